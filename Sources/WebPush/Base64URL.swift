/// base64url (RFC 4648 §5), as keys and secrets of Web Push are written.
public enum Base64URL {
    private static let letters = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)
    private static let values: [UInt8] = {
        var values = [UInt8](repeating: .max, count: 256)
        for (value, letter) in letters.enumerated() { values[Int(letter)] = UInt8(value) }
        (values[Int(UInt8(ascii: "+"))], values[Int(UInt8(ascii: "/"))]) = (62, 63)
        return values
    }()

    /// Without padding.
    public static func encode(_ bytes: some Sequence<UInt8>) -> String {
        var result: [UInt8] = []
        var (buffer, bits): (UInt32, UInt32) = (0, 0)
        for byte in bytes {
            buffer = buffer << 8 | UInt32(byte)
            bits &+= 8
            while bits >= 6 {
                bits &-= 6
                result.append(letters[Int(buffer >> bits & 63)])
            }
        }
        if bits > 0 { result.append(letters[Int(buffer << (6 &- bits) & 63)]) }
        return String(decoding: result, as: UTF8.self)
    }

    /// Reads both alphabets of base64, with padding or without.
    ///
    /// - Returns: nil for other characters, for a length that is impossible, and for bits that stand for nothing.
    public static func decode(_ text: some Collection<UInt8>) -> [UInt8]? {
        var result: [UInt8] = []
        var (buffer, bits, count, padding): (UInt32, UInt32, Int, Int) = (0, 0, 0, 0)
        for letter in text {
            if letter == UInt8(ascii: "=") {
                padding &+= 1
                continue
            }
            let value = values[Int(letter)]
            guard value < 64, padding == 0 else { return nil }
            count &+= 1
            buffer = buffer << 6 | UInt32(value)
            bits &+= 6
            if bits >= 8 {
                bits &-= 8
                result.append(UInt8(truncatingIfNeeded: buffer >> bits))
            }
        }
        guard count & 3 != 1, padding == 0 || padding <= 2 && (count &+ padding) & 3 == 0, buffer & (1 << bits &- 1) == 0 else {
            return nil
        }
        return result
    }
}
