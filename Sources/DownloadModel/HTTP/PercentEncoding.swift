/// Percent-encoding (RFC 3986 §2.1), over bytes.
package enum PercentEncoding {
    /// The decoded bytes; nil if a `%` is not followed by two hexadecimal digits.
    package static func decode(_ bytes: some Sequence<UInt8>) -> [UInt8]? {
        var decoded: [UInt8] = []
        var rest = bytes.makeIterator()
        while let byte = rest.next() {
            guard byte == UInt8(ascii: "%") else {
                decoded.append(byte)
                continue
            }
            guard let high = rest.next().flatMap(hexadecimal), let low = rest.next().flatMap(hexadecimal) else { return nil }
            decoded.append(high << 4 | low)
        }
        return decoded
    }

    /// The decoded bytes. A `%` that begins no valid escape stands for itself.
    static func decodeLeniently(_ bytes: some Collection<UInt8>) -> [UInt8] {
        var decoded: [UInt8] = []
        var rest = Array(bytes)[...]
        while let byte = rest.popFirst() {
            if byte == UInt8(ascii: "%"), let high = rest.first.flatMap(hexadecimal), let low = rest.dropFirst().first.flatMap(hexadecimal)
            {
                decoded.append(high << 4 | low)
                rest = rest.dropFirst(2)
            } else {
                decoded.append(byte)
            }
        }
        return decoded
    }

    /// Percent-encodes every byte except `%` and those that `isAllowed` accepts. A `%` that begins no valid escape stays as it is, as in
    /// browsers and curl.
    static func complete(_ bytes: ArraySlice<UInt8>, isAllowed: (UInt8) -> Bool) -> String {
        encode(bytes) { $0 == UInt8(ascii: "%") || isAllowed($0) }
    }

    /// Percent-encodes every byte except the unreserved ones and `/`, as GLib's g_filename_to_uri does.
    static func path(_ path: String) -> String {
        encode(path.utf8) { $0.isLetter || $0.isDigit || "-._~/".utf8.contains($0) }
    }

    private static func encode(_ bytes: some Collection<UInt8>, isAllowed: (UInt8) -> Bool) -> String {
        var encoded: [UInt8] = []
        encoded.reserveCapacity(bytes.count)
        for byte in bytes {
            if isAllowed(byte) {
                encoded.append(byte)
            } else {
                encoded += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
            }
        }
        return String(decoding: encoded, as: UTF8.self)
    }

    static func hexadecimal(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
        default: nil
        }
    }

    private static let digits = Array("0123456789ABCDEF".utf8)
}

extension UInt8 {
    /// A digit of ASCII.
    package var isDigit: Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(self) }
    /// A letter of ASCII.
    package var isLetter: Bool { (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(self | 0x20) }
    /// A control character of ASCII, NUL and DEL included.
    var isControl: Bool { self < 0x20 || self == 0x7F }
    /// Space or tab: HTTP's optional white space (RFC 9110 §5.6.3).
    var isBlank: Bool { self == 0x20 || self == 0x09 }
    /// `unreserved` or `sub-delims` of RFC 3986 §2.
    var isPlainInURL: Bool { isLetter || isDigit || UInt8.plainMarks.contains(self) }

    private static let plainMarks = Array("-._~!$&'()*+,;=".utf8)
}

/// Reads a number of decimal digits only; nil for any other text, for an empty one and for a number too large for the type.
public func decimal<Number: FixedWidthInteger>(_ text: some Collection<UInt8>, as type: Number.Type = Number.self) -> Number? {
    guard !text.isEmpty else { return nil }
    var value: Number = 0
    for byte in text {
        guard byte.isDigit else { return nil }
        let (tens, overflow) = value.multipliedReportingOverflow(by: 10)
        let (sum, carry) = tens.addingReportingOverflow(Number(byte - UInt8(ascii: "0")))
        guard !overflow, !carry else { return nil }
        value = sum
    }
    return value
}
