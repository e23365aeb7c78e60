/// A value that copies share until one of them changes it: 100,000 records hold their options by one pointer each.
struct Shared<Value: Equatable & Sendable>: Equatable, Sendable {
    /// An array of one element, because an array is copied on write.
    private var box: [Value]

    init(_ value: Value) { box = [value] }

    var value: Value {
        _read { yield box[0] }
        _modify { yield &box[0] }
    }

    static func == (a: Shared, b: Shared) -> Bool { a.isIdentical(to: b) || a.value == b.value }

    func isIdentical(to other: Shared) -> Bool {
        box.withUnsafeBufferPointer { own in other.box.withUnsafeBufferPointer { own.baseAddress == $0.baseAddress } }
    }

    /// Shares the value of `other` if the two are equal.
    mutating func join(_ other: Shared) { if self == other { box = other.box } }
}
