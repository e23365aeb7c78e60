// Numbers from outside (a server's fields, callers' arguments, rows, file systems, clocks) may be as large as their type. Swift's own
// operators end the process on overflow; these stay at the end of the type. `meson-helpers/check-arithmetic` refuses Swift's own where such
// numbers are read.

infix operator +| : AdditionPrecedence
infix operator -| : AdditionPrecedence
infix operator *| : MultiplicationPrecedence
infix operator +|= : AssignmentPrecedence
infix operator -|= : AssignmentPrecedence

extension FixedWidthInteger {
    /// The sum, or the end of the type that it would pass.
    public static func +| (a: Self, b: Self) -> Self {
        let (sum, overflow) = a.addingReportingOverflow(b)
        return overflow ? (b < 0 ? .min : .max) : sum
    }

    /// The difference, or the end of the type that it would pass: 0 for what would be below 0 without a sign.
    public static func -| (a: Self, b: Self) -> Self {
        let (difference, overflow) = a.subtractingReportingOverflow(b)
        return overflow ? (b < 0 ? .max : .min) : difference
    }

    /// The product, or the end of the type that it would pass.
    public static func *| (a: Self, b: Self) -> Self {
        let (product, overflow) = a.multipliedReportingOverflow(by: b)
        return overflow ? ((a < 0) == (b < 0) ? .max : .min) : product
    }

    public static func +|= (a: inout Self, b: Self) { a = a +| b }
    public static func -|= (a: inout Self, b: Self) { a = a -| b }

    /// `number` without its fraction; the end of the type for what does not fit; 0 for what is no number.
    public init(clamping number: Double) {
        if let whole = Self(exactly: number.rounded(.towardZero)) {
            self = whole
        } else {
            self = number.isNaN ? 0 : number < 0 ? .min : .max
        }
    }
}

extension Range<UInt64> {
    /// How many bytes; `count` is an `Int`, which cannot hold every number of them.
    public var byteCount: UInt64 { upperBound &- lowerBound }
}
