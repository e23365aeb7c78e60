/// A binary heap of instants, earliest first. An outdated instant stays in the heap until it reaches the top.
public struct WakeHeap<Name: Comparable> {
    /// At most so many outdated instants are dropped at a time.
    @inlinable static var mostStale: Int { 1000 }
    @usableFromInline var entries: [(time: WallTime, name: Name)] = []

    @inlinable public init() {}

    @inlinable public var first: (time: WallTime, name: Name)? { entries.first }
    /// With the outdated instants.
    @inlinable public var count: Int { entries.count }

    @inlinable public mutating func insert(_ time: WallTime, _ name: Name) {
        entries.append((time, name))
        var child = entries.count - 1
        while child > 0 {
            let parent = (child - 1) / 2
            guard entries[child] < entries[parent] else { break }
            entries.swapAt(child, parent)
            child = parent
        }
    }

    @inlinable public mutating func dropStale(_ holds: (Name, WallTime) -> Bool) {
        var left = Self.mostStale
        while left > 0, let first, !holds(first.name, first.time) {
            removeFirst()
            left -= 1
        }
    }

    @inlinable @discardableResult public mutating func removeFirst() -> Name? {
        guard let first else { return nil }
        entries.swapAt(0, entries.count - 1)
        entries.removeLast()
        var parent = 0
        while true {
            var least = parent
            for child in [2 * parent + 1, 2 * parent + 2] where child < entries.count && entries[child] < entries[least] { least = child }
            guard least != parent else { return first.name }
            entries.swapAt(parent, least)
            parent = least
        }
    }
}
