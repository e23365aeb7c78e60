internal import Glibc

/// The number format. The default is that of Japanese and English: "1,234.5".
public struct NumberStyle: Equatable, Sendable {
    public private(set) var point = "."
    /// The separator between groups of digits; empty: none.
    public private(set) var separator = ","
    /// Digits of each group from the right; the last size repeats. 0 ends the grouping.
    private var groups = [3]

    public init() {}
    init(point: String, separator: String, groups: [Int]) { (self.point, self.separator, self.groups) = (point, separator, groups) }

    /// The format of the locale "C": no groups.
    public static let plain = NumberStyle(point: ".", separator: "", groups: [])

    /// The C library's format for a locale; nil if the locale does not exist, or its separators are not UTF-8.
    public init?(locale name: String) {
        guard let locale = newlocale(1 << LC_NUMERIC, name, nil) else { return nil }
        defer { freelocale(locale) }
        func bytes(_ item: Int) -> [UInt8] {
            guard var pointer = nl_langinfo_l(nl_item(item), locale) else { return [] }
            var bytes: [UInt8] = []
            while pointer.pointee != 0 {
                bytes.append(UInt8(bitPattern: pointer.pointee))
                pointer += 1
            }
            return bytes
        }
        guard let point = String(validating: bytes(Int(RADIXCHAR)), as: UTF8.self), !point.isEmpty,
            let separator = String(validating: bytes(Int(THOUSEP)), as: UTF8.self)
        else { return nil }
        (self.point, self.separator) = (point, separator)
        // CHAR_MAX ends the grouping.
        groups = separator.isEmpty ? [] : bytes(Int(__GROUPING)).map { $0 < 127 ? Int($0) : 0 }
    }

    /// "12,345".
    public func grouped(_ number: UInt64) -> String {
        var rest = String(number)[...]
        guard !separator.isEmpty, !groups.isEmpty else { return String(rest) }
        var parts: [Substring] = []
        var sizes = groups[...]
        while let size = sizes.first, size > 0, rest.utf8.count > size {
            parts.append(rest.suffix(size))
            rest = rest.dropLast(size)
            if sizes.count > 1 { sizes.removeFirst() }
        }
        return ([rest] + parts.reversed()).joined(separator: separator)
    }
}
