public import DownloadModel

/// A change to all downloads, applied to each download in slices: PauseAll, ResumeAll, host rules, the network, room in a folder, the
/// clock.
///
/// Until PauseAll or ResumeAll reaches a download, callers see its `upcoming` state. Any other event first brings the download up to
/// date. So one row pauses 100,000 downloads, and no call waits for all of them.
struct QueuePass {
    /// The unfinished downloads that the pass has not reached yet, in queue order. Downloads added later are already up to date.
    fileprivate var left: DownloadQueue.Walk
    /// The network has changed; `isBack`: the network is back.
    var isOfNetwork = false
    var isBack = false
    /// ResumeAll was called, and PauseAll was not called since.
    var isOfResume = false
    /// A change of the host rules: downloads move to the lanes of other hosts.
    var isOfRules = false
    /// Nothing starts before the pass is over. Otherwise, the first downloads of the pass could start before their turn.
    var holdsStarts: Bool { isOfResume || isOfRules }
    /// Hosts whose regime has changed, so that the wait reasons of their queued downloads may change.
    var hosts: Set<String> = []
    /// Probed folders, and the room still unassigned in each.
    var rooms: [ByteText: ByteCount] = [:]
}

extension Scheduler {
    /// The cost of one visited download, as counted by `SliceSize.cost`: the pass has changed it, has computed its wait reason, or has only
    /// visited it.
    private static let costs = (changed: 100, asked: 20, seen: 2)

    /// Whether a pass has not reached all downloads yet.
    public var hasPass: Bool { pass != nil }

    func pauseAll(now: WallTime) { setPaused(true, now: now) }
    func resumeAll(now: WallTime) { setPaused(false, now: now) }

    private func setPaused(_ isPaused: Bool, now: WallTime) {
        // This one row decides the state of every download, after a restart, too.
        if settings.paused != isPaused {
            settings.paused = isPaused
            output.append(.save(.set(settings)))
        }
        // Often called while nothing is held: skip the walk through 100,000 downloads.
        if !isPaused, counts.held == 0, pass == nil { return }
        beginPass(now: now) { $0.isOfResume = !isPaused }
    }

    /// Starts a pass that brings all downloads up to date, active downloads first. The new pass includes the rest of an earlier pass.
    func beginPass(now: WallTime, _ how: (inout QueuePass) -> Void) {
        var pass = pass ?? QueuePass(left: order.walk())
        pass.left = order.walk()
        how(&pass)
        self.pass = pass
        for entry in running { visit(entry, pass, now: now) }
        continuePass(now: now)
    }

    /// One slice of the pass.
    func continuePass(now: WallTime) {
        guard var current = pass else { return }
        var left = sliceSize.cost
        var isOver = false
        while left > 0 {
            guard let number = current.left.next() else {
                isOver = true
                break
            }
            left -= Self.costs.seen
            guard let entry = entries[number] else { continue }
            if visit(entry, current, now: now) { left -= Self.costs.changed }
            if giveRoom(to: entry, of: &current.rooms, now: now) { left -= Self.costs.changed }
            if current.isOfRules { left -= regroup(entry) ? Self.costs.asked : Self.costs.seen }
            guard let host = entry.lane?.host.name, current.hosts.contains(host) else { continue }
            left -= review(entry, now: now) ? Self.costs.changed : Self.costs.asked
        }
        pass = isOver ? nil : current
    }

    /// Reviews the queued downloads of `host` in slices, because they are many and the host's regime has changed.
    func reviewSoon(_ host: HostLoad) {
        var pass = pass ?? QueuePass(left: order.walk())
        pass.left = order.walk()
        pass.hosts.insert(host.name)
        self.pass = pass
    }

    /// All active downloads, in queue order. They are few.
    var running: [ScheduledDownload] {
        gate.slots.all.keys.compactMap { entries[$0] }.filter { $0.state == .active }.sorted {
            ($1.record.options.priority, $0.record.position, $0.number) < ($0.record.options.priority, $1.record.position, $1.number)
        }
    }

    /// - Returns: whether the download has changed.
    @discardableResult private func visit(_ entry: ScheduledDownload, _ pass: QueuePass, now: WallTime) -> Bool {
        guard entry.isEntered else { return false }
        let before = entry.state
        let isShifted = catchUpClock(entry)
        if let event = overdue(entry) {
            applyOwn(event, to: entry, now: now)
        } else if pass.isOfNetwork {
            reconsider(entry, isBack: pass.isBack, now: now)
        }
        return isShifted || entry.state != before
    }

    /// Resumes `entry` if it waits for a probed folder and its missing bytes fit into the room left there.
    private func giveRoom(to entry: ScheduledDownload, of rooms: inout [ByteText: ByteCount], now: WallTime) -> Bool {
        guard !rooms.isEmpty, entry.isEntered, entry.state.awaitsFolder, let room = rooms[ByteText(entry.record.directory)] else {
            return false
        }
        if case .waiting(.diskSpace, _) = entry.state {
            let needed = entry.record.roomNeeded
            guard needed <= room else { return false }
            rooms[ByteText(entry.record.directory)] = room -| needed
        }
        applyOwn(.ready, to: entry, now: now)
        return true
    }

    /// The part of PauseAll or ResumeAll that has not reached `entry` yet.
    private func overdue(_ entry: ScheduledDownload) -> DownloadEvent? {
        switch entry.state {
        case .waiting(.pausedAll, _): settings.paused ? nil : .release
        case .queued, .active, .extracting, .waiting: settings.paused && entry.isEntered ? .hold : nil
        default: nil
        }
    }

    /// Brings `entry` up to date before another event.
    func catchUp(_ entry: ScheduledDownload, before event: DownloadEvent, now: WallTime) {
        guard pass != nil else {
            // Without a pass, all queued downloads are up to date. Other downloads have no instants from before the last clock jump.
            entry.clockJumps = Int32(clamping: clockJumps.count)
            return
        }
        catchUpClock(entry)
        guard event != .hold, event != .release, let late = overdue(entry) else { return }
        applyOwn(late, to: entry, now: now)
    }

    /// The state that PauseAll or ResumeAll will give `entry`; nil if they have already reached it.
    public func upcoming(_ entry: ScheduledDownload, now: WallTime) -> DownloadState? {
        guard pass != nil, overdue(entry) != nil else { return nil }
        return obstacle(of: entry, now: now)
    }
}
