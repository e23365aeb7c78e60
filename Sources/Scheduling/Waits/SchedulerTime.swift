public import DownloadModel

/// What happens without an event from outside: ends of waits, deadlines, folders and free space.
extension Scheduler {
    /// When the event `time` is due next; nil: nothing waits for an instant.
    public var nextWake: WallTime? { [nextEntryWake, nextHostWake, sliceAt].compactMap { $0 }.min() }

    /// Whether the event `time` is due for anything that needs this process. Secrets that end after this process are deleted at the next
    /// start.
    var isDueForWork: Bool { dueForWork > 0 || nextHostWake != nil || sliceAt != nil }

    /// nil while nothing may start: `schedule` refreshes no host then, so an instant that has come would stay due.
    private var nextHostWake: WallTime? { settings.paused || !conditions.allowStarts ? nil : gate.hosts.nextWake() }

    /// When the first download is due. The result may be earlier, if the heap holds more outdated instants than one call drops.
    private var nextEntryWake: WallTime? {
        wakes.dropStale { number, time in entries[number]?.wakeAt == time }
        return wakes.first?.time
    }

    /// The most downloads per tick.
    private static let mostDue = 200

    func arm(_ entry: ScheduledDownload) {
        guard !entry.isRemoved, !entry.isCallDue else { return disarm(entry) }
        let record = entry.record
        let work = record.nextWake
        countWork(of: entry, work != nil)
        let time = [work, record.secretsEnd, entry.patienceEnd].compactMap { $0 }.min()
        guard time != entry.wakeAt else { return }
        entry.wakeAt = time
        if let time { wakes.insert(time, entry.number) }
    }

    /// Has the next tick visit `entry`.
    func visitSoon(_ entry: ScheduledDownload, now: WallTime) {
        entry.wakeAt = now
        wakes.insert(now, entry.number)
    }

    /// Nothing is due for `entry`.
    func disarm(_ entry: ScheduledDownload) {
        entry.wakeAt = nil
        countWork(of: entry, false)
    }

    private func countWork(of entry: ScheduledDownload, _ isDue: Bool) {
        guard isDue != entry.isDueForWork else { return }
        entry.isDueForWork = isDue
        dueForWork += isDue ? 1 : -1
    }

    /// Ends due waits, applies due deadlines, drops expired secrets, removes private downloads and calls owners.
    func tick(now: WallTime) {
        var due: [ScheduledDownload] = []
        // Any further due downloads make the next tick due at once.
        while due.count < Self.mostDue, let time = nextEntryWake, time <= now, let number = wakes.removeFirst() {
            guard let entry = entries[number], entry.wakeAt == time else { break }
            entry.wakeAt = nil
            due.append(entry)
        }
        // A download whose instants predate a clock jump may not be due by the new clock: its wake is set again instead.
        for entry in due where !catchUpClock(entry) {
            if let time = entry.patienceEnd, time <= now { letGo(entry) }
            if let expiresAt = entry.record.expiresAt, expiresAt <= now {
                applyOwn(.expire(.expired(entry.record)), to: entry, now: now)
            } else if case .waiting(_, let until?) = entry.state, until <= now {
                applyOwn(.ready, to: entry, now: now)
            } else if entry.state.hasEnded, !removePrivate(entry, now: now) {
                if forgetSecrets(of: entry, now: now) { save(entry) }
                if let time = entry.record.reminders.nextAt, time <= now { callOwner(entry, now: now) }
            }
            arm(entry)
        }
    }

    /// The wall clock was set: instants computed from durations move by the same amount. `not-before` does not, because it is a wall-clock
    /// time.
    func clockJumped(by delta: Duration, now: WallTime) {
        clockJumps.append(delta)
        shiftHosts(by: delta)
        moveReminders(by: delta, now: now)
        beginPass(now: now) { _ in }
        tick(now: now)
    }

    /// Moves the instants of `entry` by the clock jumps since they were computed.
    ///
    /// - Returns: whether there were instants to move.
    @discardableResult func catchUpClock(_ entry: ScheduledDownload) -> Bool {
        guard Int(entry.clockJumps) < clockJumps.count else { return false }
        let delta = clockJumps[Int(entry.clockJumps)...].reduce(.zero, +)
        entry.clockJumps = Int32(clamping: clockJumps.count)
        if let time = entry.patienceEnd {
            entry.patienceEnd = time + delta
            arm(entry)
        }
        guard entry.isEntered, !entry.state.hasEnded, entry.record.isReckoned else { return false }
        change(entry) { record in
            record.retryAt = record.retryAt.map { $0 + delta }
            record.expiresAt = record.expiresAt.map { $0 + delta }
            if case .waiting(let reason, let until?) = record.state, reason != .notBefore {
                record.state = .waiting(reason, until: until + delta)
            }
        }
        arm(entry)
        if entry.record.retryAt != nil || entry.record.expiresAt != nil { save(entry) }
        output.append(.tell(entry))
        return true
    }

    // MARK: Disks

    /// A folder was probed: `free` bytes are available to downloads; nil: the folder is missing or not writable.
    func folderSeen(_ directory: String, free: ByteCount?, now: WallTime) {
        guard let free, counts.awaitingFolder > 0 else { return }
        let folder = ByteText(directory)
        // A running pass that assigns this folder's room continues. If every probe restarted it, the pass would never reach its last
        // downloads.
        if let left = pass?.rooms[folder] {
            pass?.rooms[folder] = min(left, free)
        } else {
            beginPass(now: now) { $0.rooms[folder] = free }
        }
    }
}

extension DownloadRecord {
    /// Whether an instant of the record was computed from a duration.
    fileprivate var isReckoned: Bool {
        if case .waiting(let reason, .some) = state, reason != .notBefore { return true }
        return retryAt != nil || expiresAt != nil
    }

    /// The free space that a download of unknown size needs for a retry.
    private static let roomForUnknown: ByteCount = 16 << 20

    /// The free space that the missing bytes need.
    var roomNeeded: ByteCount {
        if let needed = lastFailure?.neededRoom { return needed }
        guard let total = total ?? options.size else { return Self.roomForUnknown }
        return total -| received
    }
}

extension DownloadFailure {
    fileprivate static func expired(_ record: DownloadRecord) -> DownloadFailure {
        let seconds = (record.options.deadline ?? .zero).components.seconds
        let cause = record.lastFailure.map { " The last attempt: \($0.message)" } ?? ""
        return DownloadFailure(
            .expired, "The download did not end within its deadline of \(seconds) s.\(cause)", host: record.lastFailure?.host,
            isRetryable: true)
    }
}
