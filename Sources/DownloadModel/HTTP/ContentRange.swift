/// Wire ranges (RFC 9110 §14) are inclusive; ours are half-open. Only `fromContentRange` and `rangeHeader` convert.
extension Range<UInt64> {
    /// Reads `Content-Range: bytes 0-499/1234` (RFC 9110 §14.4).
    ///
    /// - Returns: the range and the complete length in bytes. The length is nil if the server sent `*`. The whole result is nil if the
    ///   field is malformed, impossible or in another unit.
    public static func fromContentRange(_ field: String) -> (range: Range<UInt64>, length: UInt64?)? {
        guard let (range, length) = ContentRangeParts.split(field) else { return nil }
        let ends = range.split(separator: UInt8(ascii: "-"), omittingEmptySubsequences: false)
        guard ends.count == 2, let first = decimal(ends[0], as: UInt64.self), let last = decimal(ends[1], as: UInt64.self),
            first <= last, last < UInt64.max
        else { return nil }
        if length.elementsEqual("*".utf8) { return (first..<(last +| 1), nil) }
        guard let complete = decimal(length, as: UInt64.self), last < complete else { return nil }
        return (first..<(last +| 1), complete)
    }

    /// The value of `Range` that requests these bytes: `bytes=0-499`. An upper bound of `UInt64.max` requests the rest of the file:
    /// `bytes=500-`. The range must not be empty.
    public var rangeHeader: String {
        precondition(!isEmpty, "an empty range cannot be asked for")
        return upperBound == UInt64.max ? "bytes=\(lowerBound)-" : "bytes=\(lowerBound)-\(upperBound -| 1)"
    }

    /// The complete length in the `Content-Range: bytes */1234` of a 416 (RFC 9110 §15.5.17); nil for any other form.
    public static func unsatisfiedLength(_ field: String) -> UInt64? {
        guard let (range, length) = ContentRangeParts.split(field), range.elementsEqual("*".utf8) else { return nil }
        return decimal(length, as: UInt64.self)
    }
}

private enum ContentRangeParts {
    /// The text before and after the "/" of a field; nil if its unit is not bytes.
    static func split(_ field: String) -> (range: ArraySlice<UInt8>, length: ArraySlice<UInt8>)? {
        let bytes = Array(field.utf8).trimmingBlanks
        // Range units are case-insensitive (§14.1).
        guard String(decoding: bytes.prefix(6), as: UTF8.self).lowercased() == "bytes " else { return nil }
        let parts = bytes.dropFirst(6).split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
        return parts.count == 2 ? (parts[0], parts[1]) : nil
    }
}
