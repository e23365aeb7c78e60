public import DownloadModel

/// A dictionary by text, or by another key, that never grows in one long step.
///
/// A `Dictionary` of 100,000 entries moves all of them when it grows. Here, the keys are spread by their hash values over 64 dictionaries,
/// so that only one of these 64 grows at a time.
public struct KeyTable<Key: Hashable, Value> {
    @usableFromInline var parts = [[Key: Value]](repeating: [:], count: 64)

    @inlinable public init() {}

    @inlinable func part(of key: Key) -> Int { Int(truncatingIfNeeded: UInt(bitPattern: key.hashValue) % UInt(parts.count)) }

    public subscript(_ key: Key) -> Value? {
        @inlinable get { parts[part(of: key)][key] }
        @inlinable _modify { yield &parts[part(of: key)][key] }
    }

    public subscript(_ key: Key, default value: @autoclosure () -> Value) -> Value {
        @inlinable get { parts[part(of: key)][key] ?? value() }
        @inlinable _modify { yield &parts[part(of: key)][key, default: value()] }
    }

    @inlinable public var isEmpty: Bool { parts.allSatisfy(\.isEmpty) }

    /// In no particular order.
    @inlinable public var keys: some Sequence<Key> { parts.lazy.flatMap(\.keys) }
}

extension KeyTable where Value == NumberSet {
    public mutating func insert(_ number: DownloadNumber, at key: Key) { self[key, default: NumberSet()].insert(number) }

    /// Removes the set with its last number.
    public mutating func remove(_ number: DownloadNumber, at key: Key) { remove(CollectionOfOne(number), at: key) }

    /// Removes the key, too, if nothing is left at it.
    public mutating func remove(_ numbers: some Sequence<DownloadNumber>, at key: Key) {
        guard var left = self[key].take() else { return }
        for number in numbers { left.remove(number) }
        if !left.isEmpty { self[key] = left }
    }
}
