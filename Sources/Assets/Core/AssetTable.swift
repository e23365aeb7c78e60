public import DownloadModel

/// The registered assets. An event concerns few assets, so every look-up of an event has an index, and no event visits all assets.
public final class AssetTable {
    private var states: [AssetKey: AssetState] = [:]
    private var byApp: [String: Set<AssetKey>] = [:]
    /// By the bytes of the path.
    private var byDirectory: [[UInt8]: AssetKey] = [:]
    /// The assets that were changed since `takeChanged`.
    private var changed: Set<AssetKey> = []
    /// How many states were read or changed so far. Tests count with it what an event costs.
    package private(set) var visits = 0

    public subscript(_ key: AssetKey) -> AssetState? {
        get {
            visits &+= 1
            return states[key]
        }
        _modify {
            visits &+= 1
            changed.insert(key)
            yield &states[key]
        }
    }

    public var count: Int { states.count }

    /// All assets, in no particular order.
    public var values: some Collection<AssetState> {
        visits &+= states.count
        return states.values
    }

    /// The keys of all assets, in order.
    public var keys: [AssetKey] {
        visits &+= states.count
        return states.keys.sorted()
    }

    /// The applications that have assets, in no particular order.
    public var apps: some Collection<String> { byApp.keys }

    /// The assets of `app`, by name.
    public func keys(of app: String) -> [AssetKey] { byApp[app]?.sorted() ?? [] }
    public func count(of app: String) -> Int { byApp[app]?.count ?? 0 }

    func key(in directory: String) -> AssetKey? { byDirectory[Array(directory.utf8)] }

    func insert(_ state: AssetState) {
        let key = state.record.key
        self[key] = state
        byApp[key.app, default: []].insert(key)
        byDirectory[Array(state.record.directory.utf8)] = key
    }

    @discardableResult func remove(_ key: AssetKey) -> AssetState? {
        guard let state = self[key] else { return nil }
        self[key] = nil
        byApp[key.app]?.remove(key)
        if byApp[key.app]?.isEmpty == true { byApp[key.app] = nil }
        let directory = Array(state.record.directory.utf8)
        if byDirectory[directory] == key { byDirectory[directory] = nil }
        return state
    }

    func takeChanged() -> Set<AssetKey> {
        defer { changed = [] }
        return changed
    }
}
