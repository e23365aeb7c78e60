/// A value that copies share until one of them changes it. So each of 100,000 records needs only a pointer for its options.
///
/// It is inlined into other modules. Otherwise, every read of one field of a large value copies the whole value.
@usableFromInline struct Shared<Value: Equatable & Sendable>: Equatable, Sendable {
    @usableFromInline final class Box: Sendable {
        // Copies on several threads only read the value. `_modify` changes it only while a single copy of `Shared` refers to the box, which
        // `isKnownUniquelyReferenced` proves. The exclusive access to that copy prevents a further copy meanwhile.
        @usableFromInline nonisolated(unsafe) var value: Value
        @inlinable init(_ value: Value) { self.value = value }
    }

    @usableFromInline var box: Box

    init(_ value: Value) { box = Box(value) }

    @inlinable var value: Value {
        _read { yield box.value }
        _modify {
            if !isKnownUniquelyReferenced(&box) { box = Box(box.value) }
            yield &box.value
        }
    }

    @usableFromInline static func == (a: Shared, b: Shared) -> Bool { a.isIdentical(to: b) || a.value == b.value }

    func isIdentical(to other: Shared) -> Bool { box === other.box }

    /// Shares the value of `other` if the two are equal.
    mutating func join(_ other: Shared) { if self == other { box = other.box } }
}
