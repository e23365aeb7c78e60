public import DownloadModel

/// A dictionary by download number that never grows in one long step.
///
/// A `Dictionary` of 100,000 entries moves all of them when it grows. Here, 768 consecutive numbers form a page, a dictionary of its own,
/// so that only a page ever grows. Numbers are assigned in order, so most pages are full. 768 entries exactly fill the storage of a
/// `Dictionary` of this size.
public struct NumberTable<Value> {
    /// By page number: the download number divided by 768. No page is empty.
    @usableFromInline var pages: [UInt64: [DownloadNumber: Value]] = [:]
    @usableFromInline var entryCount = 0
    @inlinable public var count: Int { entryCount }

    @inlinable public init() {}

    @inlinable public var isEmpty: Bool { pages.isEmpty }

    @inlinable static func page(of number: DownloadNumber) -> UInt64 { number.value / 768 }

    @inlinable public subscript(_ number: DownloadNumber) -> Value? {
        get { pages[Self.page(of: number)]?[number] }
        set { if let newValue { updateValue(newValue, for: number) } else { removeValue(for: number) } }
    }

    /// - Returns: the old value.
    @discardableResult @inlinable public mutating func updateValue(_ value: Value, for number: DownloadNumber) -> Value? {
        let old = pages[Self.page(of: number), default: [:]].updateValue(value, forKey: number)
        if old == nil { entryCount += 1 }
        return old
    }

    /// - Returns: the old value.
    @discardableResult @inlinable public mutating func removeValue(for number: DownloadNumber) -> Value? {
        guard let index = pages.index(forKey: Self.page(of: number)) else { return nil }
        let old = pages.values[index].removeValue(forKey: number)
        if old != nil { entryCount -= 1 }
        if pages.values[index].isEmpty { pages.remove(at: index) }
        return old
    }

    /// In no particular order.
    @inlinable public var values: some Sequence<Value> { pages.values.lazy.flatMap { $0.values } }
    /// In no particular order.
    @inlinable public var numbers: some Sequence<DownloadNumber> { pages.values.lazy.flatMap { $0.keys } }
}

extension NumberTable: Sendable where Value: Sendable {}

extension NumberTable {
    /// The numbers that are in the table now, in ascending order; or in descending order. One page is sorted at a time.
    public func walk(isReversed: Bool = false) -> Walk { Walk(self, isReversed) }

    public struct Walk: IteratorProtocol {
        private let table: NumberTable
        private let isReversed: Bool
        private var pages: [UInt64]
        private var numbers: [DownloadNumber] = []

        fileprivate init(_ table: NumberTable, _ isReversed: Bool) {
            (self.table, self.isReversed) = (table, isReversed)
            // The walk takes the last page first.
            pages = isReversed ? table.pages.keys.sorted() : table.pages.keys.sorted(by: >)
        }

        public mutating func next() -> DownloadNumber? {
            while numbers.isEmpty {
                guard let page = pages.popLast() else { return nil }
                numbers = isReversed ? table.pages[page]?.keys.sorted() ?? [] : table.pages[page]?.keys.sorted(by: >) ?? []
            }
            return numbers.popLast()
        }
    }
}

/// A set of download numbers that never grows in one long step.
public struct NumberSet: Sequence, Sendable {
    private var table = NumberTable<Void>()

    public init() {}

    public var count: Int { table.count }
    public var isEmpty: Bool { table.isEmpty }
    public func contains(_ number: DownloadNumber) -> Bool { table[number] != nil }
    /// - Returns: whether the number was new.
    @discardableResult public mutating func insert(_ number: DownloadNumber) -> Bool { table.updateValue((), for: number) == nil }
    public mutating func insert(_ numbers: some Sequence<DownloadNumber>) { for number in numbers { insert(number) } }
    /// - Returns: whether the number was present.
    @discardableResult public mutating func remove(_ number: DownloadNumber) -> Bool { table.removeValue(for: number) != nil }
    public func makeIterator() -> some IteratorProtocol<DownloadNumber> { table.numbers.makeIterator() }
    /// The numbers that are in the set now, in ascending order. One page is sorted at a time.
    public func walk() -> NumberTable<Void>.Walk { table.walk() }
}
