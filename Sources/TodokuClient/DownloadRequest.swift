public import DBus
public import DownloadModel
internal import DownloaderInterface

/// How one download is wanted: any of `DownloadOptions`, by the same names, as `request.priority = 5`.
///
/// An option that is not set is left to the service, or to the batch that the download is an item of.
@dynamicMemberLookup
public struct DownloadRequest: Equatable, Sendable {
    private var wanted = DownloadOptions()
    /// Keys of the options that were set.
    private var given: Set<String> = []
    /// `sha256:<hex>`, `sha512`, `sha1`, `md5`. The service checks it.
    public var checksum: String?
    /// The caller's own; `DownloaderClient.metadata(of:)` gives it back.
    public var metadata: [String: Variant] = [:]

    public init() {}

    /// An option. Where it may be without a value, nil says so: no limit, no deadline.
    public subscript<V>(dynamicMember option: WritableKeyPath<DownloadOptions, V>) -> V {
        get { wanted[keyPath: option] }
        set {
            wanted[keyPath: option] = newValue
            if let row = OptionRow.of(option) { given.insert(row.key) }
        }
    }

    /// Sets an option, where there is a value for it.
    public mutating func set<V>(_ option: WritableKeyPath<DownloadOptions, V>, to value: V?) {
        if let value { self[dynamicMember: option] = value }
    }

    /// Sets an option that may be without a value, where there is one for it.
    public mutating func set<V>(_ option: WritableKeyPath<DownloadOptions, V?>, to value: V?) {
        if let value { self[dynamicMember: option] = value }
    }

    public mutating func setMetadata(_ text: String, for key: String) { metadata[key] = .string(text) }

    /// The dictionary of the call.
    var options: [String: Variant] {
        var options: [String: Variant] = [:]
        for row in OptionRow.all where given.contains(row.key) { options[row.key] = row.value(in: wanted).map { Variant($0) } }
        if let checksum { options["checksum"] = .string(checksum) }
        if !metadata.isEmpty { options["metadata"] = .dictionary(metadata) }
        return options
    }
}

/// Which downloads are meant; what is nil matches all.
public struct DownloadQuery: Equatable, Sendable {
    public var app: String?
    public var tag: String?
    public var states: Set<DownloadDescription.State>?
    /// Only its members.
    public var batch: BatchReference?

    public init(
        app: String? = nil, tag: String? = nil, states: Set<DownloadDescription.State>? = nil, batch: BatchReference? = nil
    ) {
        (self.app, self.tag, self.states, self.batch) = (app, tag, states, batch)
    }

    /// What has not ended.
    public static let remaining = DownloadQuery(states: [.queued, .waiting, .active, .paused, .verifying])
    /// What has ended.
    public static let ended = DownloadQuery(states: [.finished, .failed, .cancelled])

    var filter: DownloadFilter {
        var filter = DownloadFilter()
        (filter.app, filter.tag, filter.batch) = (app, tag, batch?.objectPath)
        filter.states = states.map { Set($0.map(\.name)) }
        return filter
    }
}
