/// A value that copies share until one of them changes it: a hundred thousand records hold their options by one pointer each.
struct Shared<Value: Equatable & Sendable>: Equatable, Sendable {
    private final class Box: Sendable {
        nonisolated(unsafe) var value: Value  // changed only while nobody else has the box
        init(_ value: Value) { self.value = value }
    }

    private var box: Box

    init(_ value: Value) { box = Box(value) }

    var value: Value {
        _read { yield box.value }
        _modify {
            if !isKnownUniquelyReferenced(&box) { box = Box(box.value) }
            yield &box.value
        }
    }

    static func == (a: Shared, b: Shared) -> Bool { a.box === b.box || a.box.value == b.box.value }

    func isIdentical(to other: Shared) -> Bool { box === other.box }

    /// Takes the place of what is equal to `other`.
    mutating func join(_ other: Shared) { if self == other { box = other.box } }
}
