// Numbers from outside (a server's fields, callers' arguments, rows, file systems, clocks) may be as large as their type. Swift's operators
// trap on overflow; these saturate. `meson-helpers/check-arithmetic` refuses Swift's operators where such numbers are read.

infix operator +| : AdditionPrecedence
infix operator -| : AdditionPrecedence
infix operator *| : MultiplicationPrecedence
infix operator +|= : AssignmentPrecedence
infix operator -|= : AssignmentPrecedence

extension FixedWidthInteger {
    /// The sum; on overflow the type's largest or smallest value.
    @inlinable public static func +| (a: Self, b: Self) -> Self {
        let (sum, overflow) = a.addingReportingOverflow(b)
        return overflow ? (b < 0 ? .min : .max) : sum
    }

    /// The difference; on overflow the type's largest or smallest value. An unsigned difference below 0 is 0.
    @inlinable public static func -| (a: Self, b: Self) -> Self {
        let (difference, overflow) = a.subtractingReportingOverflow(b)
        return overflow ? (b < 0 ? .max : .min) : difference
    }

    /// The product; on overflow the type's largest or smallest value.
    @inlinable public static func *| (a: Self, b: Self) -> Self {
        let (product, overflow) = a.multipliedReportingOverflow(by: b)
        return overflow ? ((a < 0) == (b < 0) ? .max : .min) : product
    }

    @inlinable public static func +|= (a: inout Self, b: Self) { a = a +| b }
    @inlinable public static func -|= (a: inout Self, b: Self) { a = a -| b }

    /// `number` without its fraction, clamped to the type; 0 for NaN.
    @inlinable public init(clamping number: Double) {
        if let whole = Self(exactly: number.rounded(.towardZero)) {
            self = whole
        } else {
            self = number.isNaN ? 0 : number < 0 ? .min : .max
        }
    }
}

extension Range<UInt64> {
    /// The number of bytes. `count` is an `Int`, which cannot hold every `UInt64`.
    @inlinable public var byteCount: UInt64 { upperBound &- lowerBound }
}
