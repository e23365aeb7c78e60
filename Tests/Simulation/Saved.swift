// SPDX-License-Identifier: Apache-2.0
import DownloadModel
import Scheduling

/// The rows on disk.
struct Saved {
    var records: [DownloadNumber: DownloadRecord] = [:]
    /// The sources with wrong bytes, by place (`DownloadRecord.sourceURLs`), as the process has saved them.
    var blamed: [DownloadNumber: Set<Int>] = [:]
    var batches: [DownloadNumber: BatchRecord] = [:]
    var settings = Settings()
    var sweeps: [DownloadNumber: String] = [:]
    var requests: [String: HostRequest] = [:]
    var next = DownloadNumber(1)
    var copies: [CopyKey: CachedCopy] = [:]
    var assets: [AssetKey: AssetRecord] = [:]

    mutating func take(_ change: StoreChange, _ plant: Plant?) {
        switch change {
        case .put(var record):
            if !record.mirrors.isEmpty {
                let known = record.knownSources
                blamed[record.number] = Set(known.indices.filter { known[$0].left == .wrongBytes })
                if plant == .forgiving { record.sources = [] }
            }
            // The bytes between two parts of a file.
            if plant == .bridged, let ranges = record.resume?.ranges { record.resume?.ranges = ByteRanges(prefix: ranges.end) }
            if plant == .deaf { record.reminders.isAcknowledged = false }
            if plant == .silent { record.owesToast = false }
            if plant == .clinging, record.state == .cancelled { record.resume = records[record.number]?.resume }
            if plant == .repetitive, record.state.hasEnded, records[record.number]?.owesToast == true { record.owesToast = true }
            records[record.number] = record
        case .remove(let number): (records[number], blamed[number]) = (nil, nil)
        case .putBatch(let record): if plant != .uncounted || batches[record.number] == nil { batches[record.number] = record }
        case .addBatch(let batch, let members):
            take(.putBatch(batch), plant)
            for member in members { take(.put(member), plant) }
        case .removeBatch(let number): batches[number] = nil
        case .set(var settings):
            if plant == .halfway { settings.cancelsThrough = nil }
            if plant == .wakeful { settings.paused = false }
            self.settings = settings
        case .sweep(let number, let directory): if plant != .forgetful { sweeps[number] = directory }
        case .swept(let number): sweeps[number] = nil
        case .requested(let request): if plant != .hasty { requests["\(request.host) \(request.requestInterval)"] = request }
        case .requestOver(let host, let requestInterval): requests["\(host) \(requestInterval)"] = nil
        case .putAsset(var record):
            if plant == .untidy { record.removals = [] }
            if plant == .orphaned { record.pending?.download = nil }
            assets[record.key] = record
        case .removeAsset(let key): if plant != .undead { assets[key] = nil }
        case .scrubLog: break
        case .keepCopy(let copy): copies[copy.key] = copy
        }
    }
}

/// A new database, made from the rows that the process has in memory.
struct NewDatabase {
    var walk: Scheduler.RowWalk
    var rows: [StoreChange]
    /// The walk has ended, and the changes since its begin are among the rows.
    var isWhole = false

    init(_ walk: Scheduler.RowWalk, _ changes: [StoreChange]) { (self.walk, rows) = (walk, changes) }
}
