internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import Scheduling

/// The downloads that have a token, by their paths.
struct TokenTable {
    private var numbers = KeyTable<String, DownloadNumber>()
    /// The downloads of each app, which is written as in their paths.
    private var apps = KeyTable<String, NumberSet>()
    /// Batches whose members are entered in slices: the places of their members, by path.
    private var batches: [BatchNumber: [String: Int]] = [:]
    /// Counts the changes.
    private(set) var generation: UInt64 = 0

    /// The number of the download with this path. It may have left the scheduler.
    subscript(path: String) -> DownloadNumber? {
        if let number = numbers[path] { return number }
        for (batch, places) in batches {
            if let place = places[path] { return DownloadNumber(batch.value +| 1 +| UInt64(clamping: place)) }
        }
        return nil
    }

    mutating func insert(_ record: DownloadRecord) {
        guard record.options.token != nil else { return }
        generation &+= 1
        numbers[BusName.path(of: record).value] = record.number
        apps.insert(record.number, at: ObjectPath.escape(record.options.app))
    }

    /// Makes the members of a large batch findable at once. The caller then enters them in slices by `insert(_:)`, and calls `settle` at
    /// the end.
    ///
    /// - Parameter places: of the members with a token, by path.
    mutating func insert(_ batch: BatchNumber, _ places: [String: Int]) {
        generation &+= 1
        batches[batch] = places
    }

    /// The members of `batch` have all been inserted, or never will be.
    mutating func settle(_ batch: BatchNumber) {
        generation &+= 1
        batches[batch] = nil
    }

    mutating func remove(_ record: DownloadRecord) {
        guard record.options.token != nil else { return }
        generation &+= 1
        let path = BusName.path(of: record).value
        if numbers[path] == record.number { numbers[path] = nil }
        apps.remove(record.number, at: ObjectPath.escape(record.options.app))
    }

    /// At most `limit` apps that have downloads with a token. The apps are written as in paths.
    func apps(_ limit: Int) -> [String] { apps.keys.prefix(limit).sorted() }

    /// The downloads with a token of `app`, which is written as in paths; nil if none exists.
    func numbers(of app: String) -> NumberSet? { apps[app] }
}
