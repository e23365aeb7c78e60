public import DownloadModel

/// What holds for all, said at once and carried to each download in slices: PauseAll, ResumeAll, the network.
///
/// Who asks in between for one that has not been reached is told what it is about to be (`upcoming`), and whatever happens to it first
/// carries it there. So a hundred thousand are paused by one row, and nobody waits for that.
struct LedgerPass {
    /// All that had not ended when it began, in queue order; what came later has heard of it.
    var numbers: [DownloadNumber] = []
    var next = 0
    /// The network has changed; `isBack`: it is there again.
    var isOfNetwork = false
    var isBack = false
    /// Nothing starts before it is over, or those that it comes to first would be started before their turn.
    var holdsStarts = false
    /// Hosts whose ways have changed, so that what is queued there waits for something else.
    var hosts: Set<String> = []
    /// Folders that were looked at, and the room that is left in each for those that wait for it.
    var rooms: [ByteText: ByteCount] = [:]
}

extension Ledger {
    /// What one that is changed, is asked what it waits for, or is passed by counts for `SliceSize.cost`.
    private static let costs = (changed: 100, asked: 20, seen: 2)

    /// Whether something that holds for all has not come to each yet.
    public var hasPass: Bool { pass != nil }

    func pauseAll(now: WallTime) { setPaused(true, now: now) }
    func resumeAll(now: WallTime) { setPaused(false, now: now) }

    private func setPaused(_ isPaused: Bool, now: WallTime) {
        // What each download is by this follows from this one row, after a restart, too.
        if settings.paused != isPaused {
            settings.paused = isPaused
            actions.append(.save(.set(settings)))
        }
        // Often called with nothing held: then nobody walks through a hundred thousand.
        if !isPaused, counts.held == 0, pass == nil { return schedule(now: now) }
        beginPass(now: now) { $0.holdsStarts = !isPaused }
    }

    /// Carries to each what holds for all now, what runs first; what is left of an earlier pass is part of it.
    func beginPass(now: WallTime, _ how: (inout LedgerPass) -> Void) {
        var pass = pass ?? LedgerPass()
        (pass.numbers, pass.next) = (order.ordered, 0)
        how(&pass)
        self.pass = pass
        for entry in running { visit(entry, pass, now: now) }
        continuePass(now: now)
    }

    /// One slice of what `beginPass` began.
    func continuePass(now: WallTime) {
        guard var current = pass else { return }
        var left = sliceSize.cost
        while current.next < current.numbers.count, left > 0 {
            let number = current.numbers[current.next]
            current.next += 1
            left -= Self.costs.seen
            guard let entry = entries[number] else { continue }
            if visit(entry, current, now: now) { left -= Self.costs.changed }
            if giveRoom(to: entry, of: &current.rooms, now: now) { left -= Self.costs.changed }
            guard let host = entry.lane?.host.name, current.hosts.contains(host) else { continue }
            left -= review(entry, now: now) ? Self.costs.changed : Self.costs.asked
        }
        pass = current.next < current.numbers.count ? current : nil
        schedule(now: now)
    }

    /// The ways of `host` have changed, where many are queued: each is told in its slice.
    func reviewSoon(_ host: HostLoad) {
        var pass = pass ?? LedgerPass()
        (pass.numbers, pass.next) = (order.ordered, 0)
        pass.hosts.insert(host.name)
        self.pass = pass
    }

    /// All that are active, in queue order: few among many.
    var running: [LedgerEntry] {
        placed.compactMap { self.entries[$0.key.download] }.filter { $0.state == .active }.sorted {
            ($1.record.options.priority, $0.record.position, $0.number) < ($0.record.options.priority, $1.record.position, $1.number)
        }
    }

    /// - Returns: whether it has changed.
    @discardableResult private func visit(_ entry: LedgerEntry, _ pass: LedgerPass, now: WallTime) -> Bool {
        guard entry.isEntered else { return false }
        let before = entry.state
        let isShifted = catchUpClock(entry)
        if let event = overdue(entry) {
            try? apply(event, to: entry, now: now)
        } else if pass.isOfNetwork {
            reconsider(entry, isBack: pass.isBack, now: now)
        }
        return isShifted || entry.state != before
    }

    /// Has `entry` go on that waits for a folder which was seen, and for as much room as is left there.
    private func giveRoom(to entry: LedgerEntry, of rooms: inout [ByteText: ByteCount], now: WallTime) -> Bool {
        guard !rooms.isEmpty, entry.isEntered, entry.state.awaitsFolder, let room = rooms[ByteText(entry.record.directory)] else {
            return false
        }
        if case .waiting(.diskSpace, _) = entry.state {
            let needed = entry.record.roomNeeded
            guard needed <= room else { return false }
            rooms[ByteText(entry.record.directory)] = room -| needed
        }
        try? apply(.ready, to: entry, now: now)
        return true
    }

    /// What of PauseAll or ResumeAll has not come to `entry` yet.
    private func overdue(_ entry: LedgerEntry) -> DownloadEvent? {
        switch entry.state {
        case .waiting(.pausedAll, _): settings.paused ? nil : .release
        case .queued, .active, .waiting: settings.paused && entry.isEntered ? .hold : nil
        default: nil
        }
    }

    /// Something else is about to happen to `entry`: it must not meet it as it was before.
    func catchUp(_ entry: LedgerEntry, before event: DownloadEvent, now: WallTime) {
        guard pass != nil else {
            // All that are queued were visited. What had ended, or was not queued yet, has no instants of the clock before.
            entry.clockJumps = Int32(clamping: clockJumps.count)
            return
        }
        catchUpClock(entry)
        guard event != .hold, event != .release, let late = overdue(entry) else { return }
        try? apply(late, to: entry, now: now)
    }

    /// What `entry` is about to be by PauseAll or ResumeAll, as far as they have not come to it yet.
    public func upcoming(_ entry: LedgerEntry, now: WallTime) -> DownloadState? {
        guard pass != nil, overdue(entry) != nil else { return nil }
        return obstacle(of: entry, now: now)
    }
}
