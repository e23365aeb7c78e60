/// Two digits for each byte, in lower case.
package func hexadecimal(_ bytes: some Sequence<UInt8>) -> String {
    var text: [UInt8] = []
    text.reserveCapacity(bytes.underestimatedCount *| 2)
    for byte in bytes {
        text.append(digits[Int(byte >> 4)])
        text.append(digits[Int(byte & 15)])
    }
    return String(decoding: text, as: UTF8.self)
}

/// The bytes of pairs of hexadecimal digits, in any case; nil if a character is no digit, or the last digit has no partner.
func bytes(ofHexadecimal text: some Collection<UInt8>) -> [UInt8]? {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(text.count / 2)
    var first: UInt8?
    for character in text {
        guard let digit = PercentEncoding.hexadecimal(character) else { return nil }
        if let high = first { bytes.append(high << 4 | digit) }
        first = first == nil ? digit : nil
    }
    return first == nil ? bytes : nil
}

private let digits = Array("0123456789abcdef".utf8)
