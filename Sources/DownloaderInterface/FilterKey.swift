internal import DBus
internal import DownloadModel

/// One key of a filter's dictionary, and how its value sets a field of the filter.
struct FilterKey<Filter>: Sendable {
    let name: String
    let put: @Sendable (Variant, inout Filter) throws(Refusal) -> Void

    /// - Parameters:
    ///   - type: the value's signature.
    ///   - read: converts the value; nil if it has another type.
    init<Value>(
        _ name: String, _ type: String, _ read: @escaping @Sendable (Variant) -> Value?,
        _ set: @escaping @Sendable (inout Filter, Value) throws(Refusal) -> Void
    ) {
        self.name = name
        put = { variant, filter throws(Refusal) in
            guard let value = read(variant) else {
                throw Refusal(.invalidOption, "Filter key \(name) \(variant.mismatch(with: type)).")
            }
            try set(&filter, value)
        }
    }
}

/// Most bytes of a text in a filter. The option of the same name has this limit, too, so no download has a longer text.
private let longestText = 255

extension FilterKey {
    /// A key whose value is a text. The text is bounded, because a call that waits for its answer keeps its filter.
    static func text(_ name: String, _ set: @escaping @Sendable (inout Filter, String) -> Void) -> FilterKey {
        FilterKey(name, "s", { $0.string }) { (filter, text) throws(Refusal) in
            guard text.utf8.count <= longestText else {
                throw Refusal(.invalidOption, "Filter key \(name) is longer than \(longestText) bytes.")
            }
            set(&filter, text)
        }
    }
}

/// The common fields of the filters for downloads and for batches.
protocol ListFilter: Sendable {
    var app: String? { get set }
    var after: ObjectPath? { get set }
    var isNewestFirst: Bool { get set }
    var limit: Int { get set }

    /// Every key of this filter, in the order of the error's list.
    static var keys: [FilterKey<Self>] { get }
    init()
}

extension ListFilter {
    /// The keys of a filter: `app`, its `own` keys, and those that select a part of the list.
    static func allKeys(_ own: FilterKey<Self>...) -> [FilterKey<Self>] {
        var keys = [FilterKey<Self>.text("app") { $0.app = $1 }]
        keys.append(contentsOf: own)
        keys.append(contentsOf: [
            FilterKey("after", "o", { $0.objectPath }) { $0.after = $1 },
            FilterKey("newest-first", "b", { $0.bool }) { $0.isNewestFirst = $1 },
            FilterKey("limit", "u", { $0.uint32 }) { (filter, number) throws(Refusal) in
                guard number > 0, number <= Limits.listed else {
                    throw Refusal(.invalidOption, "Filter key limit must be 1 to \(Limits.listed).")
                }
                filter.limit = Int(number)
            },
        ])
        return keys
    }

    /// - Throws: `InvalidOption` naming the key that is unknown or has the wrong type.
    init(reading dictionary: [String: Variant]) throws(Refusal) {
        self.init()
        for (name, value) in dictionary.sorted(by: { $0.key < $1.key }) {
            guard let key = Self.keys.first(where: { $0.name == name }) else {
                let names = Self.keys.map(\.name).joined(separator: ", ")
                throw Refusal(.invalidOption, "There is no filter key “\(shown(name))”; the keys are \(names).")
            }
            try key.put(value, &self)
        }
    }
}
