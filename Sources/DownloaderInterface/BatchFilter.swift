public import DBus
public import DownloadModel

/// The filter of `ListBatches`. All keys must match; an empty filter matches every batch.
public struct BatchFilter: Equatable, Sendable {
    public var app: String?
    /// true: only ended batches; false: only those that have not ended.
    public var hasEnded: Bool?
    /// Only batches added after this one; with `isNewestFirst`, before it.
    public var after: ObjectPath?
    public var isNewestFirst = false
    /// Most batches in the answer, 1 to `Limits.listed`.
    public var limit = Limits.listed

    public init() {}

    /// - Throws: `InvalidOption` naming the key that is unknown or has the wrong type.
    public init(decoding dictionary: [String: Variant]) throws(Refusal) { try self.init(reading: dictionary) }

    /// The dictionary for a call.
    public var dictionary: [String: Variant] {
        var dictionary: [String: Variant] = ["limit": .uint32(UInt32(clamping: limit))]
        if let app { dictionary["app"] = .string(app) }
        if let hasEnded { dictionary["ended"] = .bool(hasEnded) }
        if let after { dictionary["after"] = .objectPath(after) }
        if isNewestFirst { dictionary["newest-first"] = .bool(true) }
        return dictionary
    }
}

extension BatchFilter: ListFilter {
    static let keys = allKeys(FilterKey("ended", "b", { $0.bool }) { $0.hasEnded = $1 })
}
