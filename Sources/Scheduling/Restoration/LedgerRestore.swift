public import DownloadModel

/// A start: the ledger takes in what the store held, in pieces, while the rest is still being read.
extension Ledger {
    /// Restores what the store held; nothing starts before `schedule`. For each that was being committed the caller has to find out whether
    /// the rename had happened, and to tell by `committed`, `endingFailed` or `partLost`.
    ///
    /// - Parameter requests: the last to each host that keeps an interval.
    public func restore(
        _ records: [DownloadRecord], batches: [BatchRecord] = [], sweeps: [DownloadNumber: String], requests: [HostRequest] = [],
        now: WallTime
    ) {
        beginRestore(batches: batches, sweeps: sweeps, requests: requests, now: now)
        restore(records, now: now)
        endRestore(now: now)
    }

    /// The same in pieces, while the rest is still being read: first this.
    public func beginRestore(batches: [BatchRecord], sweeps: [DownloadNumber: String], requests: [HostRequest], now: WallTime) {
        restore(batches)
        for (number, directory) in sweeps { self.sweeps[number] = Sweep(directory: directory) }
        // One that is not known to have gone out may have done so until now; so may one of a clock that was set back since.
        lastRequests = Dictionary(
            grouping: requests.map { request in
                request.isSent && request.at <= now
                    ? request : HostRequest(host: request.host, spacing: request.spacing, at: now, isSent: true)
            }, by: \.host)
        isRestoring = true
    }

    /// Then the records, in any pieces.
    public func restore(_ records: [DownloadRecord], now: WallTime) {
        for index in records.indices {
            if records[index].state.hasEnded {
                restoredEnded.append(records[index])
            } else {
                // Who read them has had each share with the one before.
                let isShared = index > 0 && records[index].sharesOptions(with: records[index - 1])
                restore(records[index], isShared: isShared, now: now)
            }
        }
    }

    /// At last, when all are there.
    ///
    /// - Returns: those that are found by their tokens, or by what they fetch.
    @discardableResult public func endRestore(now: WallTime) -> [LedgerEntry] {
        // In the order in which they ended.
        restoredEnded.sort { ($0.endedAt?.microseconds ?? 0, $0.number) < ($1.endedAt?.microseconds ?? 0, $1.number) }
        for record in restoredEnded { restore(record, isShared: false, now: now) }
        isRestoring = false
        touched.formUnion(hosts.keys)
        dropEmptyBatches()
        restoreOwedToasts()
        for number in Array(sweeps.numbers) {
            if let sweep = sweeps[number], !sweep.isUnderWay, !(entries[number].map(isAtWork) ?? false) { begin(sweep, of: number) }
        }
        recallPauses(restoredCourses, now: now)
        interruptDescriptors(among: restoredCourses, now: now)
        prune(now: now)
        defer { (restoredEnded, restoredCourses, restoredSought, restoredLane) = ([], [], [], nil) }
        return restoredSought
    }

    private func restore(_ record: consuming DownloadRecord, isShared: Bool, now: WallTime) {
        let (isUntouched, isSought) = (record.isUntouched, record.isFetch || record.options.token != nil)
        let entry = isShared ? add(record) : take(record)
        shareHost(with: entry)
        if !isUntouched { resumeCourse(of: entry, now: now) }
        switch entry.state {
        case .queued, .active, .verifying, .waiting:
            let obstacle = obstacle(of: entry, now: now)
            if obstacle != entry.state { entry.record.state = obstacle }
        case .committing, .paused, .finished, .failed, .cancelled: break
        }
        // Its part file is gone; rows of before told otherwise.
        if entry.state == .cancelled, entry.record.resume != nil { entry.record.forgetBytes() }
        entry.isEntered = true
        entry.isInPool = entry.state == .committing && !entry.record.isToDescriptor
        count(entry, in: entry.state)
        joinBatch(entry)
        place(entry)
        if isSought { restoredSought.append(entry) }
        if let lane = entry.lane {
            if lane !== restoredLane?.lane { restoredLane = (lane, reasonAtStart(lane, now: now)) }
            entry.toldHold = restoredLane?.reason
        }
        guard entry.state.hasEnded else { return }
        resumeCalls(entry, now: now)
        if let toast = entry.owedToast { restoredToasts.append(toast) }
    }

    private func resumeCourse(of entry: LedgerEntry, now: WallTime) {
        if !entry.state.hasEnded { restoredCourses.append(entry) }
        if let expiresAt = entry.record.expiresAt, let deadline = entry.record.options.deadline, expiresAt - now > deadline {
            entry.record.expiresAt = now + deadline  // the clock was set back while nobody looked
        }
    }
}
