public import DownloadModel

/// Startup: restores the stored rows into a new scheduler, in parts, while the store still reads the rest.
///
/// Nothing starts before the first turn of the scheduler. For each download in state `committing`, the caller must find out whether the
/// file was renamed, and report `committed`, `folderCommitted`, `endingFailed` or `partLost`. It continues the extraction of each download
/// in state `extracting`.
public final class Restoration {
    private let scheduler: Scheduler
    /// Ended records. They are listed in the order of their ends, so they wait for the last part.
    private var ended: [DownloadRecord] = []
    /// Restored, unfinished downloads that had already started.
    private var courses: [ScheduledDownload] = []
    /// Failed downloads whose server requested a pause.
    private var refused: [ScheduledDownload] = []
    private var sought: [ScheduledDownload] = []
    private var toasts: [Scheduler.OwedToast] = []
    /// The lane of the last restored download, and the wait reason of its downloads.
    private var lastLane: (lane: Lane, reason: WaitReason?)?

    /// - Parameters:
    ///   - scheduler: a new one.
    ///   - sweeps: the folders of part files that must be deleted, as `StoreChange.sweep` has them.
    ///   - requests: the last request to each host with a request interval.
    public init(
        into scheduler: Scheduler, batches: [BatchRecord] = [], sweeps: [DownloadNumber: String] = [:], requests: [HostRequest] = [],
        now: WallTime
    ) {
        self.scheduler = scheduler
        scheduler.restore(batches)
        for (number, directory) in sweeps {
            let folders = StoreChange.folders(ofSweep: directory)
            if !folders.isEmpty { scheduler.sweeps[number] = PartFileSweeps.Sweep(folders: folders) }
        }
        // A request that is not known to have gone out may have gone out just now. The same holds for a request in the future, because the
        // clock was set back.
        scheduler.gate.restore(
            requests.map { request in
                request.isSent && request.at <= now
                    ? request : HostRequest(host: request.host, requestInterval: request.requestInterval, at: now, isSent: true)
            })
    }

    /// Adds records, in any number of parts.
    public func add(_ records: [DownloadRecord], now: WallTime) {
        for index in records.indices {
            if records[index].state.hasEnded {
                ended.append(records[index])
            } else {
                // The reader has made each record share its options with the previous one.
                let isShared = index > 0 && records[index].sharesOptions(with: records[index - 1])
                add(records[index], isShared: isShared, now: now)
            }
        }
    }

    /// Ends the restoration, once all records are added. Called once.
    public func finish(now: WallTime) -> Restored {
        ended.sort { ($0.endedAt?.microseconds ?? 0, $0.number) < ($1.endedAt?.microseconds ?? 0, $1.number) }
        for record in ended { add(record, isShared: false, now: now) }
        scheduler.gate.hosts.touchAll()
        scheduler.dropEmptyBatches()
        toasts += scheduler.restoreOwedToasts()
        for number in scheduler.sweeps.numbers {
            guard let sweep = scheduler.sweeps[number], !sweep.isUnderWay else { continue }
            guard let entry = scheduler.entries[number] else {
                scheduler.begin(sweep, of: number)
                scheduler.beginLate(number, notIn: sweep.directory)
                continue
            }
            scheduler.beginSweep(entry)
            scheduler.limitWait(of: entry, now: now)
        }
        scheduler.recallPauses(courses, failed: refused, now: now)
        scheduler.interruptDescriptors(among: courses, now: now)
        scheduler.prune(now: now)
        return Restored(scheduler: scheduler, sought: sought, owedToasts: toasts)
    }

    private func add(_ record: consuming DownloadRecord, isShared: Bool, now: WallTime) {
        let (isUntouched, isSought) = (record.isUntouched, record.isFetch || record.options.token != nil)
        let entry = isShared ? scheduler.add(record) : scheduler.take(record)
        scheduler.sharing.joinHost(of: entry)
        if !isUntouched { resumeCourse(of: entry, now: now) }
        switch entry.state {
        case .queued, .active, .verifying, .waiting:
            let obstacle = scheduler.obstacle(of: entry, now: now)
            if obstacle != entry.state { entry.record.state = obstacle }
        // PauseAll stops an extraction, and saves no row for that.
        case .extracting: if scheduler.settings.paused { entry.record.state = .waiting(.pausedAll, until: nil) }
        case .committing, .paused, .finished, .failed, .cancelled: break
        }
        // The part file of a cancelled download is deleted; rows of earlier versions claim otherwise.
        if entry.state == .cancelled, entry.record.resume != nil { entry.record.forgetBytes() }
        entry.isEntered = true
        entry.isInPool = (entry.state == .committing || entry.state == .extracting) && !entry.record.isToDescriptor
        scheduler.count(entry, in: entry.state)
        scheduler.joinBatch(entry)
        scheduler.place(entry)
        if isSought { sought.append(entry) }
        if let lane = entry.lane {
            if lane !== lastLane?.lane { lastLane = (lane, scheduler.gate.reasonAtStart(lane, now: now)) }
            entry.toldHold = lastLane?.reason
        }
        guard entry.state.hasEnded else { return }
        scheduler.resumeCalls(entry, now: now)
        if entry.record.hasEndedInFuture(now: now) { scheduler.visitSoon(entry, now: now) }
        if entry.state.failure?.retryAfter != nil { refused.append(entry) }
        if let toast = entry.owedToast { toasts.append(toast) }
    }

    private func resumeCourse(of entry: ScheduledDownload, now: WallTime) {
        if !entry.state.hasEnded { courses.append(entry) }
        if let expiresAt = entry.record.expiresAt, let deadline = entry.record.options.deadline, expiresAt - now > deadline {
            entry.record.expiresAt = now + deadline  // the clock was set back while the service was not running
        }
    }
}

/// A scheduler with the stored rows.
public struct Restored {
    public let scheduler: Scheduler
    /// The downloads that callers look up by token or by `Fetch`.
    public let sought: [ScheduledDownload]
    /// The toasts that earlier processes owed, for the event `begins`.
    public let owedToasts: [Scheduler.OwedToast]
}

extension Scheduler {
    /// Restores the stored rows at once (`Restoration`).
    @discardableResult public func restore(
        _ records: [DownloadRecord], batches: [BatchRecord] = [], sweeps: [DownloadNumber: String], requests: [HostRequest] = [],
        now: WallTime
    ) -> Restored {
        let restoration = Restoration(into: self, batches: batches, sweeps: sweeps, requests: requests, now: now)
        restoration.add(records, now: now)
        return restoration.finish(now: now)
    }
}
