public import DownloadModel

/// The load of each host: limits and intervals of host rules, turns, the next requests of transfers, refusals.
extension Scheduler {
    /// Refreshes hosts that are due, and hosts that have changed.
    func openHosts(now: WallTime) {
        // The rest is due in the next slice.
        if gate.hosts.touchDue(sliceSize.hosts, now: now) { return isCut = true }
        if !gate.awaitingSlot.isEmpty, gate.hasSlotForAwaiting {
            for name in gate.takeAwaitingSlot() { gate.hosts.touch(named: name) }
        }
        refreshHosts(now: now)
    }

    /// Refreshes as many changed hosts as this turn may refresh. The offers of the others stay outdated until the next slice.
    func refreshHosts(now: WallTime) {
        while case let touched = gate.hosts.takeTouched(refreshesLeft).sorted(by: { $0.name < $1.name }), !touched.isEmpty {
            for (index, host) in touched.enumerated() {
                guard refreshesLeft > 0 else {
                    gate.hosts.giveBack(touched[index...])
                    break
                }
                refresh(host, now: now)
            }
        }
        while refreshesLeft > 0, let host = gate.hosts.nextOutdated() { refresh(host, now: now) }
        if gate.hosts.hasOutdated { isCut = true }
        gate.hosts.relaxSweep()
    }

    /// Refreshes `host` if it has changed: permits redirects, offers downloads, and announces changed waits.
    func refresh(_ host: HostLoad, now: WallTime) {
        guard gate.hosts.isOutdated(host), gate.hosts.contains(host) else { return }
        refreshesLeft -= 1
        let opening = gate.refresh(host, now: now)
        for (id, saves) in opening.granted {
            output.append(saves)
            output.append(.permit(id, question: gate.requests[id]?.question ?? 0, mustShare: mustShare(id), afterSave: isPaced(id)))
        }
        if let id = opening.withdrawn { output.append(.withdraw(id)) }
        for id in opening.granted.map(\.id) + opening.slotless { if let entry = entries[id.download] { review(entry, now: now) } }
        review(host, now: now)
        if host.owesPlace { unannounced.owing[host.name] = host }
        if let saves = gate.forgetIfIdle(host, now: now) {
            output.append(saves)
            recentLane = nil
        }
    }

    // MARK: Active downloads

    /// `entry` becomes active, with its first request at its own host.
    func enterSlot(_ entry: ScheduledDownload, now: WallTime) {
        entry.transferCount &+= 1
        let request = PlacedRequest(
            host: entry.host, origin: entry.origin, app: entry.record.options.app, requestInterval: entry.requestInterval,
            isUrgent: entry.isUrgent, isPrivate: entry.record.options.isPrivate, startedAt: now, phase: .underWay)
        output.append(gate.takeSlot(request, entry.request, size: entry.fileSize(entry.record), now: now))
    }

    /// Whether the active download waits for its next request, and takes no slot.
    public func isHeld(_ entry: ScheduledDownload) -> Bool { gate.requests[mainRequest(of: entry)]?.isWaiting ?? false }

    /// The request of the current or last transfer that is not a further request.
    func mainRequest(of entry: ScheduledDownload) -> RequestID { gate.main(of: entry.number) ?? entry.request }

    /// Whether the request keeps an interval: the engine must report when the request has gone out.
    public func isPaced(_ id: RequestID) -> Bool { gate.requests[id]?.isPaced ?? false }

    /// Whether the request, which was started or permitted, may go out only on a connection that another request uses now, because its host
    /// has no place for one more. It goes out (`shares`), or asks again.
    public func mustShare(_ id: RequestID) -> Bool { gate.requests[id]?.isPresumedToShare ?? false }

    /// A request that was started or permitted while `isPaced` has gone out.
    func requestSent(_ id: RequestID, at time: WallTime, now: WallTime) {
        guard entries[id.download] != nil else { return }
        output.append(gate.sent(id, at: time, now: now))
    }

    /// The next request of a running transfer goes to `host`: a redirect, a repeated request, or a request to another source. An unknown id
    /// means a further request. `.permit` follows once the host takes the request.
    ///
    /// - Parameters:
    ///   - origin: `DownloadURL.origin` of the request; nil: http, port 80.
    ///   - isAnswered: whether the server has answered the previous request of the transfer.
    ///   - sharing: whether the request can use a connection that others use.
    ///   - question: the number that the permit repeats.
    func hop(
        _ id: RequestID, to host: String, origin: String? = nil, isAnswered: Bool = true, sharing: ConnectionSharing = .possible,
        question: UInt64, now: WallTime
    ) {
        // The transfer may be stopping.
        guard let entry = entries[id.download], entry.owns(id), entry.work == .running, entry.state == .active else { return }
        let origin = origin ?? "http://\(host):80"
        guard gate.requests[id] != nil else { return gate.addFurther(id, to: host, origin: origin, question: question, now: now) }
        if isAnswered { gate.answered(id, isRedirect: true, now: now) }
        gate.redirect(id, to: host, origin: origin, sharing: sharing, question: question, now: now)
        unannounced.redirected.append(entry)
    }

    /// The size of the file of an active download may be known now. If too many large files are active, this download stops and continues
    /// later.
    func learnSize(of entry: ScheduledDownload, now: WallTime) {
        guard entry.state == .active, entry.work == .running else { return }
        if gate.learn(entry.fileSize(entry.record), of: entry.number), entry.mayYield { applyOwn(.yield, to: entry, now: now) }
    }

    /// So many bytes of a file have arrived that it is large, although no response told its size. The transfer stops only if a later
    /// transfer can resume from these bytes.
    func grewLarge(_ number: DownloadNumber, now: WallTime) {
        guard let entry = entries[number], entry.work == .running, entry.record.total == nil, !entry.isKnownLarge else { return }
        entry.isKnownLarge = true
        guard entry.state == .active, gate.learn(.large, of: number), entry.keepsBytes, entry.mayYield else { return }
        applyOwn(.yield, to: entry, now: now)
    }

    /// A request has failed. Its transfer asks another source, or ends.
    func moved(_ id: RequestID, _ failure: DownloadFailure, now: WallTime) {
        guard let entry = entries[id.download], entry.owns(id), entry.work != .idle else { return }
        note(failure, by: id, now: now)
    }

    /// A further request brings a part of the file.
    func joined(_ id: RequestID, now: WallTime) {
        guard let entry = entries[id.download], entry.owns(id), entry.work == .running else { return }
        gate.answered(id, now: now)
        if !entry.record.isSpliced { change(entry) { $0.isSpliced = true } }
    }

    /// A request has ended, and its transfer continues without it.
    func requestOver(_ id: RequestID, _ failure: DownloadFailure?, now: WallTime) {
        guard let entry = entries[id.download], entry.owns(id), entry.work == .running, entry.state == .active else { return }
        if let failure { note(failure, by: id, now: now) }
        gate.over(id)
        unannounced.redirected.append(entry)
    }

    /// The server of a request has stopped sending, or sends again.
    func stalled(_ id: RequestID, _ isStalled: Bool, now: WallTime) {
        gate.stalled(id, isStalled, now: now)
    }

    // MARK: Refusals

    /// Notes what `failure` says about the origin of the request `id`: a refusal, an answer, or nothing.
    func note(_ failure: DownloadFailure, by id: RequestID, now: WallTime) {
        guard let status = failure.httpStatus else { return }
        switch status {
        case 429, 503:
            gate.refused(id, status, failure.retryAfter, now: now)
            entries[id.download]?.wasRefused = true
        case 408, 425, 500...: break  // the server is in trouble, which says nothing about its pace
        default:
            gate.answered(id, now: now)
            entries[id.download]?.wasRefused = false
        }
    }

    /// A caller resumed `entry`, which is queued or waits for its next request: try at once, whatever pause or pace its origin has.
    func defyPace(_ entry: ScheduledDownload, now: WallTime) {
        let isQueued = entry.state == .queued
        guard isQueued || isHeld(entry), !(entry.lane?.isUrgent ?? entry.isUrgent),
            let pace = gate.paces[isQueued ? entry.origin : gate.origin(of: mainRequest(of: entry))], !pace.isOver(now: now)
        else { return }
        // A queued download whose former transfer is still stopping is in `heldBack`, and in no lane yet.
        let isRunnable = entry.lane != nil || heldBack.contains(entry.number)
        leaveLane(entry)
        entry.isUrgent = true
        if isRunnable { makeRunnable(entry) }
        if isQueued { unannounced.queued.append(entry) }
        gate.hurry(mainRequest(of: entry))
    }

    /// The origins whose refusals still delay requests, by `DownloadURL.origin`.
    public func slowedOrigins(now: WallTime) -> [String: OriginPace] { gate.paces.all(now: now).filter(\.value.isShown) }

    /// Forgets the refusals of the origins of `host`, and of all hosts that share its rule.
    func resetHost(_ host: String, now: WallTime) {
        gate.reset(host)
        forgetPauses(of: host, now: now)
    }

    // MARK: Rules

    /// Limits or host rules may have changed. Requests under way count at once at the host that governs them under the new rules. Queued
    /// downloads whose host has changed follow in slices, and no download starts before all of them have followed.
    func settingsChanged(now: WallTime) {
        let (saves, regroups) = gate.set(settings, now: now)
        recentLane = nil
        output.append(saves)
        if regroups { beginPass(now: now) { $0.isOfRules = true } }
    }

    /// Puts a queued download into a lane of the host that governs it under the new rules.
    ///
    /// - Returns: whether the lane has changed.
    func regroup(_ entry: ScheduledDownload) -> Bool {
        guard let lane = entry.lane, !entry.record.isWhole, settings.hostRules.governing(entry.host).name != lane.host.name else {
            return false
        }
        makeRunnable(entry)
        return true
    }

    /// Restores the pauses that servers requested: of downloads that wait for a retry, and of downloads that have failed. A pause is over
    /// if its origin has sent a file since.
    func recallPauses(_ waiting: [ScheduledDownload], failed: [ScheduledDownload], now: WallTime) {
        var pauses: [(entry: ScheduledDownload, failure: DownloadFailure, since: WallTime, until: WallTime)] = []
        for entry in waiting {
            // A pause longer than any possible one means that the clock was set back since.
            guard let failure = entry.record.lastFailure, let pause = failure.retryAfter, pause <= RetryAfter.longest,
                let retry = entry.record.retryAt, retry > now, retry < now + DownloadRecord.longestRetry
            else { continue }
            // The back-off may be longer than the pause. The row does not tell its random part, so the refusal may be earlier.
            let delay = max(pause, Backoff.delay(attempt: entry.record.retriesUsed -| 1, random: 0, floor: nil))
            let refusal = min(retry + (.zero - delay), now)
            pauses.append((entry, failure, refusal, refusal + pause))
        }
        for entry in failed {
            guard let until = entry.pauseAfterEnd(now: now), let failure = entry.state.failure, let end = entry.record.endedAt
            else { continue }
            pauses.append((entry, failure, end, until))
        }
        guard let first = pauses.map(\.since).min() else { return }
        let answered = finishedOrigins(since: first)
        for (entry, failure, since, until) in pauses {
            if let answer = answered[failure.origin ?? entry.origin], answer > since { continue }
            recall(failure, of: entry, until: until, now: now)
        }
    }

    private func recall(_ failure: DownloadFailure, of entry: ScheduledDownload, until: WallTime, now: WallTime) {
        guard let status = failure.httpStatus, [429, 503].contains(status), let pause = failure.retryAfter else { return }
        let (origin, options) = (failure.origin ?? entry.origin, entry.record.options)
        gate.recall(origin, status, pause, until: until, by: options.app, isShown: !options.isPrivate, now: now)
    }

    /// The origins of the files that have arrived since `time`, each with the start of the last such download.
    private func finishedOrigins(since time: WallTime) -> [String: WallTime] {
        var starts: [String: WallTime] = [:]
        var newest = ended.walk(isReversed: true)
        while let number = newest.next(), let entry = entries[number], let end = entry.record.endedAt, end > time {
            guard entry.state == .finished, let start = entry.record.startedAt, start > time else { continue }
            let origin = entry.record.source.map { DownloadURL.origin(of: $0) } ?? entry.origin
            starts[origin] = max(starts[origin] ?? start, start)
        }
        return starts
    }

    /// No download restores a pause of the origins of `host` after a restart, because a person has ended these pauses. A waiting download
    /// keeps the time of its own retry.
    private func forgetPauses(of host: String, now: WallTime) {
        let name = settings.hostRules.governing(host).name
        /// The failure without its pause; nil: it tells no pause of these origins.
        func cleared(_ failure: DownloadFailure?, of entry: ScheduledDownload) -> DownloadFailure? {
            guard var failure, failure.retryAfter != nil,
                settings.hostRules.governing(DownloadURL.host(of: failure.origin ?? entry.origin)).name == name
            else { return nil }
            failure.retryAfter = nil
            return failure
        }
        // Nobody sees the difference, so nobody is told.
        for entry in entries.values where !entry.state.hasEnded && entry.record.retryAt.map({ $0 > now }) ?? false {
            guard let failure = cleared(entry.record.lastFailure, of: entry) else { continue }
            entry.record.lastFailure = failure
            save(entry)
        }
        var newest = ended.walk(isReversed: true)
        while let number = newest.next(), let entry = entries[number], let end = entry.record.endedAt, end + RetryAfter.longest > now {
            guard entry.pauseAfterEnd(now: now) != nil, let failure = cleared(entry.state.failure, of: entry) else { continue }
            entry.record.state = .failed(failure)
            save(entry)
        }
    }

    func shiftHosts(by delta: Duration) {
        output.append(gate.shift(by: delta))
    }
}

extension ScheduledDownload {
    /// The end of the pause that the server requested when it refused the download for good; nil: it requested none, or the pause is over.
    /// An end in the future means that the clock was set back since.
    fileprivate func pauseAfterEnd(now: WallTime) -> WallTime? {
        guard let pause = state.failure?.retryAfter, pause <= RetryAfter.longest, let end = record.endedAt, end <= now else { return nil }
        let until = end + pause
        return until > now ? until : nil
    }
}
