internal import DownloadModel
internal import Scheduling

/// The rows on disk, by their keys.
struct StoredRows {
    struct RequestKey: Hashable {
        let host: String
        let requestInterval: Duration
    }

    var downloads: [DownloadNumber: DownloadRecord] = [:]
    private(set) var batches: [BatchNumber: BatchRecord] = [:]
    private(set) var sweeps: [DownloadNumber: String] = [:]
    private(set) var requests: [RequestKey: HostRequest] = [:]

    mutating func take(_ change: StoreChange) {
        switch change {
        case .put(let record): downloads[record.number] = record
        case .remove(let number): downloads[number] = nil
        case .putBatch(let record): batches[record.number] = record
        case .addBatch(let record, let members):
            batches[record.number] = record
            for member in members { downloads[member.number] = member }
        case .removeBatch(let number): batches[number] = nil
        case .sweep(let number, let directory): sweeps[number] = directory
        case .swept(let number): sweeps[number] = nil
        case .requested(let request): requests[RequestKey(host: request.host, requestInterval: request.requestInterval)] = request
        case .requestOver(let host, let interval): requests[RequestKey(host: host, requestInterval: interval)] = nil
        // `Scheduler.settings` has the settings. No test reads the copies, and assets are not the scheduler’s.
        case .set, .keepCopy, .putAsset, .removeAsset, .scrubLog: break
        }
    }
}

extension Scheduler {
    /// All rows, as a new database would hold them.
    var allRows: [StoreChange] {
        var (walk, rows) = (walkRows(), [StoreChange]())
        while let part = nextRows(&walk) { rows += part }
        return rows
    }
}
