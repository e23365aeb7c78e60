internal import DBus
public import DownloadModel
internal import DownloaderInterface

/// The options of one download: any of `DownloadOptions`, by the same names, as in `request.priority = 5`.
///
/// An option that is not set takes its value from the batch, if any, or from the service.
@dynamicMemberLookup
public struct DownloadRequest: Equatable, Sendable {
    private var wanted = DownloadOptions()
    /// Keys of the options that were set.
    private var given: Set<String> = []
    /// `sha256:<hex>`, `sha512`, `sha384`, `sha224`, `sha1`, `md5`. The service checks it.
    public var checksum: String?
    /// The caller's own data; `DownloaderClient.metadata(of:)` returns it.
    public var metadata: [String: MetadataValue] = [:]

    public init() {}

    /// An option. nil means "no value" for an option that allows it, such as no limit or no deadline.
    public subscript<V>(dynamicMember option: WritableKeyPath<DownloadOptions, V>) -> V {
        get { wanted[keyPath: option] }
        set {
            wanted[keyPath: option] = newValue
            if let row = OptionRow.of(option) { given.insert(row.key) }
        }
    }

    /// Sets an option if `value` is not nil.
    public mutating func set<V>(_ option: WritableKeyPath<DownloadOptions, V>, to value: V?) {
        if let value { self[dynamicMember: option] = value }
    }

    /// Sets an option of an optional type if `value` is not nil.
    public mutating func set<V>(_ option: WritableKeyPath<DownloadOptions, V?>, to value: V?) {
        if let value { self[dynamicMember: option] = value }
    }

    /// The dictionary of the call.
    var options: [String: Variant] {
        var options: [String: Variant] = [:]
        for row in OptionRow.all where given.contains(row.key) { options[row.key] = row.value(in: wanted).map { Variant($0) } }
        // A dictionary has no name twice.
        if given.contains("headers"), Set(wanted.headers.map { $0.name.lowercased() }).count < wanted.headers.count {
            options["headers"] = nil
            options[OptionRow.headerListKey] = OptionRow.byKey[OptionRow.headerListKey]?.value(in: wanted).map { Variant($0) }
        }
        if let checksum { options["checksum"] = .string(checksum) }
        if !metadata.isEmpty { options["metadata"] = .dictionary(metadata.mapValues(\.variant)) }
        return options
    }
}

/// Selects downloads; a nil field matches all.
public struct DownloadQuery: Equatable, Sendable {
    public var app: String?
    public var tag: String?
    public var states: Set<DownloadDescription.State>?
    /// Only members of this batch.
    public var batch: BatchReference?
    /// Only downloads whose metadata has all these keys with these values.
    public var metadata: [String: MetadataValue] = [:]

    public init(
        app: String? = nil, tag: String? = nil, states: Set<DownloadDescription.State>? = nil, batch: BatchReference? = nil
    ) {
        (self.app, self.tag, self.states, self.batch) = (app, tag, states, batch)
    }

    /// Downloads that have not ended.
    public static let remaining = DownloadQuery(states: [.queued, .waiting, .active, .paused, .verifying, .extracting])
    /// Downloads that have ended.
    public static let ended = DownloadQuery(states: [.finished, .failed, .cancelled])

    var filter: DownloadFilter {
        var filter = DownloadFilter()
        (filter.app, filter.tag, filter.batch) = (app, tag, batch?.objectPath)
        filter.states = states.map { Set($0.map(\.name)) }
        filter.metadata = metadata.mapValues(\.variant)
        return filter
    }
}
