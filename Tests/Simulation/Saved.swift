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

extension World {
    /// The pauses that the rows on disk carry over a restart.
    func recallPauses() {
        // A file of the same origin that has arrived since may have ended the pause.
        let answered = Set(saved.records.values.lazy.filter { $0.state == .finished }.map { self.origin(of: $0) })
        func isAnswered(_ failure: DownloadFailure, _ record: DownloadRecord) -> Bool {
            answered.contains(failure.origin ?? origin(of: record))
        }
        for record in saved.records.values {
            if let failure = record.state.failure {
                guard let pause = failure.retryAfter, let end = record.endedAt, end <= now, end + pause > now else { continue }
                recall(failure, of: record, until: end + pause, certainly: isAnswered(failure, record) ? nil : end + pause)
            } else if let failure = record.lastFailure, let pause = failure.retryAfter, let time = record.retryAt, !record.state.hasEnded {
                // The back-off may be longer than the pause. So the pause began between these instants.
                let latest = min(time + (.zero - pause), now)
                let earliest = min(time + (.zero - max(pause, Backoff.longest)), now)
                let isCertain = time < now + RetryAfter.longest && !isAnswered(failure, record)
                recall(failure, of: record, until: latest + pause, certainly: isCertain ? earliest + pause : nil)
            }
        }
    }

    /// - Parameters:
    ///   - until: until then, the scheduler may keep the pause.
    ///   - certain: until then, the scheduler must keep the pause.
    private func recall(_ failure: DownloadFailure, of record: DownloadRecord, until: WallTime, certainly certain: WallTime?) {
        let (origin, app) = (failure.origin ?? origin(of: record), record.options.app)
        if let certain { originFloors[origin, default: [:]][app] = max(originFloors[origin]?[app] ?? certain, certain) }
        slowness[origin, default: Slowness()].isRecalled(until: until, by: app, now: now)
        // The start of the pause tells when the other applications may be delayed again.
        let start = min(until + (.zero - (failure.retryAfter ?? .zero)), now)
        let since = max(commonFloors[origin]?.since ?? start, start)
        commonFloors[origin] = (since, since)
    }
}
