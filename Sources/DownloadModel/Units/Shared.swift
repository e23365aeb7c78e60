/// A value that copies share until one of them changes it: 100,000 records hold their options by one pointer each.
///
/// It is inlined into other modules. Otherwise, every read of one field of a large value copies the whole value.
@usableFromInline struct Shared<Value: Equatable & Sendable>: Equatable, Sendable {
    @usableFromInline final class Box: Sendable {
        // Copies on several threads only read it. `_modify` changes it only while a single copy of `Shared` refers to the box, which
        // `isKnownUniquelyReferenced` proves: the exclusive access to that copy keeps another one from being made meanwhile.
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
