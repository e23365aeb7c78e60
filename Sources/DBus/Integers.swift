/// Integers in variants. Python, JavaScript and other languages have one kind of number, so a caller easily sends `i` where `u` is meant.
/// Where a value has one type, any integer type of D-Bus is taken, as long as the value fits.
extension Variant {
    /// The value of an integer of any type; nil for another type.
    public var integer: Int128? {
        switch self {
        case .byte(let value): Int128(value)
        case .int16(let value): Int128(value)
        case .uint16(let value): Int128(value)
        case .int32(let value): Int128(value)
        case .uint32(let value): Int128(value)
        case .int64(let value): Int128(value)
        case .uint64(let value): Int128(value)
        default: nil
        }
    }

    // The value of an integer of any type, if it fits; else nil.
    public var int32: Int32? { integer.flatMap { Int32(exactly: $0) } }
    public var uint32: UInt32? { integer.flatMap { UInt32(exactly: $0) } }
    public var int64: Int64? { integer.flatMap { Int64(exactly: $0) } }
    public var uint64: UInt64? { integer.flatMap { UInt64(exactly: $0) } }

    /// This value with the type `type`: the value itself, or an integer that fits. nil: it does not fit, or is no integer.
    public func converted(to type: String) -> Variant? {
        if self.type == type { return self }
        switch type {
        case "i": return int32.map { Variant.int32($0) }
        case "u": return uint32.map { Variant.uint32($0) }
        case "x": return int64.map { Variant.int64($0) }
        case "t": return uint64.map { Variant.uint64($0) }
        default: return nil
        }
    }

    /// The end of an error's sentence that begins with the name of an option or property: "takes the type s, not u", or "takes a number
    /// from 0 to 255, not -1".
    ///
    /// - Parameter type: the type that the option or property has.
    public func mismatch(with type: String) -> String {
        guard let integer, let range = Self.range(of: type) else { return "takes the type \(type), not \(self.type.prefix(64))" }
        return "takes a number from \(range.least) to \(range.most), not \(integer)"
    }

    /// Whether both values are the same: integers by their numbers, whatever their types; other values by their types and bytes.
    public func isSameValue(as other: Variant) -> Bool {
        if let integer, let number = other.integer { return integer == number }
        return isSameBytes(as: other)
    }

    private static func range(of type: String) -> (least: Int128, most: Int128)? {
        switch type {
        case "i": return (least: Int128(Int32.min), most: Int128(Int32.max))
        case "u": return (least: 0, most: Int128(UInt32.max))
        case "x": return (least: Int128(Int64.min), most: Int128(Int64.max))
        case "t": return (least: 0, most: Int128(UInt64.max))
        default: return nil
        }
    }
}
