public import DBus
public import DownloadModel

/// The filter of `List` and `Describe`. All keys must match; an empty filter matches every download.
public struct DownloadFilter: Equatable, Sendable {
    public var app: String?
    public var tag: String?
    /// Names of states; nil: any.
    public var states: Set<String>?
    /// Only the members of this batch.
    public var batch: ObjectPath?
    /// Only downloads whose metadata has all these keys with these values. Empty: any metadata, or none.
    public var metadata: [String: Variant] = [:]
    /// Only downloads after this one in queue order.
    public var after: ObjectPath?
    /// Reverses the order: the download that ended last comes first.
    public var isNewestFirst = false
    /// Most downloads in the answer, 1 to `Limits.listed`.
    public var limit = Limits.listed

    public static let stateNames = ["queued", "waiting", "active", "paused", "verifying", "extracting", "finished", "failed", "cancelled"]

    public init() {}

    /// - Throws: `InvalidOption` naming the key that is unknown or has the wrong type.
    public init(decoding dictionary: [String: Variant]) throws(Refusal) { try self.init(reading: dictionary) }

    /// The dictionary for a call.
    public var dictionary: [String: Variant] {
        var dictionary: [String: Variant] = ["limit": .uint32(UInt32(clamping: limit))]
        if let app { dictionary["app"] = .string(app) }
        if let tag { dictionary["tag"] = .string(tag) }
        if let states { dictionary["states"] = .strings(states.sorted()) }
        if let batch { dictionary["batch"] = .objectPath(batch) }
        if !metadata.isEmpty { dictionary["metadata"] = .dictionary(metadata) }
        if let after { dictionary["after"] = .objectPath(after) }
        if isNewestFirst { dictionary["newest-first"] = .bool(true) }
        return dictionary
    }
}

extension DownloadFilter: ListFilter {
    static let keys = allKeys(
        .text("tag") { $0.tag = $1 },
        FilterKey("state", "s", { $0.string }) { (filter, name) throws(Refusal) in try filter.add([name], of: "state") },
        FilterKey("states", "as", { $0.strings }) { (filter, names) throws(Refusal) in try filter.add(names, of: "states") },
        FilterKey("batch", "o", { $0.objectPath }) { $0.batch = $1 },
        FilterKey("metadata", "a{sv}", { $0.vardict }) { (filter, metadata) throws(Refusal) in
            // Bounded, because a call that waits for its turn keeps its filter.
            guard Message.bytes(of: metadata).count <= Limits.metadataBytes else {
                throw Refusal(.limitExceeded, "Filter key metadata may have at most \(Limits.metadataBytes) bytes.")
            }
            filter.metadata = metadata
        })

    /// Adds the states `names` to those that match.
    private mutating func add(_ names: [String], of key: String) throws(Refusal) {
        for name in names where !Self.stateNames.contains(name) {
            throw Refusal(
                .invalidOption,
                "Filter key \(key): “\(shown(name))” is not a state; the states are \(Self.stateNames.joined(separator: ", ")).")
        }
        states = Set(names).union(states ?? [])
    }
}
