public import DownloadModel

/// Startup: the ledger restores the stored rows in parts, while the store still reads the rest.
extension Ledger {
    /// Restores the stored rows. Nothing starts before the next turn. For each download in state `committing`, the caller must find out
    /// whether the file was renamed, and report `committed`, `endingFailed` or `partLost`.
    ///
    /// - Parameter requests: the last request to each host with a request interval.
    public func restore(
        _ records: [DownloadRecord], batches: [BatchRecord] = [], sweeps: [DownloadNumber: String], requests: [HostRequest] = [],
        now: WallTime
    ) {
        beginRestore(batches: batches, sweeps: sweeps, requests: requests, now: now)
        restore(records, now: now)
        endRestore(now: now)
    }

    /// As `restore`, in parts, while the store still reads the rest. First this call.
    public func beginRestore(batches: [BatchRecord], sweeps: [DownloadNumber: String], requests: [HostRequest], now: WallTime) {
        restore(batches)
        for (number, directory) in sweeps { self.sweeps[number] = Sweep(directory: directory) }
        // A request not known to have gone out may have gone out just now. So may a request in the future, since the clock was set back.
        lastRequests = Dictionary(
            grouping: requests.map { request in
                request.isSent && request.at <= now
                    ? request : HostRequest(host: request.host, spacing: request.spacing, at: now, isSent: true)
            }, by: \.host)
        isRestoring = true
    }

    /// Then the records, in any number of parts.
    public func restore(_ records: [DownloadRecord], now: WallTime) {
        for index in records.indices {
            if records[index].state.hasEnded {
                restoredEnded.append(records[index])
            } else {
                // The reader has made each record share its options with the previous one.
                let isShared = index > 0 && records[index].sharesOptions(with: records[index - 1])
                restore(records[index], isShared: isShared, now: now)
            }
        }
    }

    /// Last, once all records are restored.
    ///
    /// - Returns: the downloads that callers look up by token or by `Fetch`.
    @discardableResult public func endRestore(now: WallTime) -> [LedgerEntry] {
        // By the time of the end.
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
        // The part file of a cancelled download is deleted; rows of earlier versions claim otherwise.
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
            entry.record.expiresAt = now + deadline  // the clock was set back while the service was not running
        }
    }
}
