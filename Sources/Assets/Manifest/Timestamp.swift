package import DownloadModel

/// Instants as manifests write them (RFC 3339).
package enum Timestamp {
    /// Reads `2026-11-24T18:30:00Z`, also with a fraction, in lower case, or with an offset such as `+09:00`. What is finer than a
    /// microsecond is cut off.
    ///
    /// - Returns: nil if the text is malformed, if there is no such instant, or if it is before 1970 or after 9999.
    package static func parse(_ text: String) -> WallTime? {
        let bytes = Array(text.utf8)
        func number(_ place: Int, _ digits: Int) -> UInt64? { decimal(bytes[place...].prefix(digits)) }
        guard (20...64).contains(bytes.count), bytes[4] == dash, bytes[7] == dash, bytes[10] | 0x20 == UInt8(ascii: "t"),
            bytes[13] == colon, bytes[16] == colon, let year = number(0, 4), let month = number(5, 2), let day = number(8, 2),
            let hour = number(11, 2), let minute = number(14, 2), let second = number(17, 2)
        else { return nil }
        guard
            let whole = HTTPDate.instant(
                year: year, month: Int(clamping: month), day: day, hour: hour, minute: minute, second: second)
        else { return nil }
        var rest = bytes[19...]
        guard let fraction = microseconds(&rest), let offset = offset(rest) else { return nil }
        // The local time is ahead of UTC by a positive offset.
        guard whole - WallTime(microseconds: 0) >= offset else { return nil }
        return whole + .microseconds(fraction) + (.zero - offset)
    }

    private static let (dash, colon) = (UInt8(ascii: "-"), UInt8(ascii: ":"))

    /// The digits after a point, in microseconds; 0 if there is no point, nil if no digit follows it.
    private static func microseconds(_ rest: inout ArraySlice<UInt8>) -> Int64? {
        guard rest.first == UInt8(ascii: ".") else { return 0 }
        let digits = rest.dropFirst().prefix { (0x30...0x39).contains($0) }
        guard !digits.isEmpty else { return nil }
        rest = rest[digits.endIndex...]
        return decimal(Array(digits.prefix(6)) + Array(repeating: UInt8(ascii: "0"), count: 6 -| min(6, digits.count)))
    }

    /// `Z`, or hours and minutes with a sign.
    private static func offset(_ text: ArraySlice<UInt8>) -> Duration? {
        if text.count == 1, let letter = text.first { return letter | 0x20 == UInt8(ascii: "z") ? .zero : nil }
        let bytes = Array(text)
        guard bytes.count == 6, bytes[3] == colon, let hours = decimal(bytes[1...2], as: Int64.self), hours < 24,
            let minutes = decimal(bytes[4...5], as: Int64.self), minutes < 60
        else { return nil }
        let size = Duration.seconds(hours *| 3600 +| minutes *| 60)
        switch bytes[0] {
        case UInt8(ascii: "+"): return size
        case dash: return .zero - size
        default: return nil
        }
    }
}
