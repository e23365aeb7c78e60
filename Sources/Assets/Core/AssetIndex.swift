internal import DownloadModel

/// Indexes over all assets: which assets work, to which asset a download or a folder belongs, and when checks are due.
struct AssetIndex {
    private struct Entry {
        var isWorking = false
        var hasCallers = false
        var archive: DownloadNumber?
        var folders: Set<String> = []
        /// When a check without a call is due.
        var due: WallTime?
    }

    private var entries: [AssetKey: Entry] = [:]
    private var working: Set<AssetKey> = []
    /// The assets about which a call waits for an answer.
    private(set) var awaited: Set<AssetKey> = []
    private var archives: [DownloadNumber: AssetKey] = [:]
    private var folders: [String: Set<AssetKey>] = [:]
    /// The instants of `entries`, and outdated ones.
    private var wakes = WakeHeap<AssetKey>()
    /// The assets whose instant has come.
    private(set) var due: Set<AssetKey> = []

    var instantsKept: Int { wakes.count }
    var isAnyWorking: Bool { !working.isEmpty }

    /// The asset whose pending update has this download.
    func key(ofArchive number: DownloadNumber) -> AssetKey? { archives[number] }
    /// The downloads of all pending updates.
    var archiveNumbers: some Sequence<DownloadNumber> { archives.keys }

    /// An asset that has a version in a folder of this name.
    func key(ofFolder name: String) -> AssetKey? { folders[name]?.min() }

    /// As above; nil also if `key` itself has such a version.
    func key(ofFolder name: String, besides key: AssetKey) -> AssetKey? {
        guard let keys = folders[name], !keys.contains(key) else { return nil }
        return keys.min()
    }

    /// The first instant that has not come yet.
    mutating func nextDue() -> WallTime? {
        wakes.dropStale { key, time in entries[key]?.due == time && !due.contains(key) }
        return wakes.first?.time
    }

    /// Moves the assets whose instant has come to `due`.
    mutating func collectDue(now: WallTime) {
        while let time = nextDue(), time <= now, let key = wakes.removeFirst() {
            if entries[key]?.due == time { due.insert(key) }
        }
    }

    /// The clock was set: the instants that had come may be in the future again.
    mutating func clockSet() {
        for key in due { if let time = entries[key]?.due { wakes.insert(time, key) } }
        due = []
    }

    /// Notes what has changed about an asset.
    ///
    /// - Parameters:
    ///   - state: nil: the asset is not registered any more.
    ///   - dueAt: when a check without a call is due.
    mutating func update(_ key: AssetKey, _ state: AssetState?, dueAt: WallTime?) {
        let former = entries[key] ?? Entry()
        var entry = Entry()
        if let state {
            (entry.isWorking, entry.hasCallers) = (state.isWorking, state.hasCallers)
            entry.archive = state.record.pending?.download
            entry.folders = state.record.folders
            entry.due = dueAt
        }
        entries[key] = state == nil ? nil : entry
        if entry.isWorking { working.insert(key) } else { working.remove(key) }
        if entry.hasCallers { awaited.insert(key) } else { awaited.remove(key) }
        if entry.archive != former.archive {
            if let number = former.archive, archives[number] == key { archives[number] = nil }
            if let number = entry.archive { archives[number] = key }
        }
        if entry.folders != former.folders {
            for folder in former.folders.subtracting(entry.folders) {
                folders[folder]?.remove(key)
                if folders[folder]?.isEmpty == true { folders[folder] = nil }
            }
            for folder in entry.folders.subtracting(former.folders) { folders[folder, default: []].insert(key) }
        }
        guard entry.due != former.due else { return }
        due.remove(key)
        if let time = entry.due { wakes.insert(time, key) }
        // Outdated instants far in the future would gather.
        if wakes.count > 2 *| entries.count +| 64 {
            wakes = WakeHeap()
            for (key, entry) in entries { if let time = entry.due, !due.contains(key) { wakes.insert(time, key) } }
        }
    }
}
