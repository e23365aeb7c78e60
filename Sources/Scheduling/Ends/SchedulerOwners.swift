public import DownloadModel

/// Calls, and so starts, the owner of an ended download (option `activate`), until the owner acknowledges the outcome.
extension Scheduler {
    /// The delays after the first, second and third call of an owner: 1, 10 and 60 minutes after the end.
    static let reminders: [Duration] = [.seconds(60), .seconds(540), .seconds(3000)]
    /// Requests a call of the owner, if one is still due.
    func callOwner(_ entry: ScheduledDownload, now: WallTime) {
        guard entry.record.remindsOwner(at: now) else {
            entry.record.activateAt = nil
            return arm(entry)
        }
        entry.isCallDue = true
        arm(entry)
        output.append(.callOwner(entry))
    }

    /// At startup, calls the owner at once, whatever the schedule. The remaining calls of the first hour follow on schedule.
    func resumeCalls(_ entry: ScheduledDownload, now: WallTime) {
        let longest = Self.reminders.max() ?? .zero
        // A later instant is further away than any delay of ours: the clock was set back while the service was not running.
        if let time = entry.record.activateAt, time > now + longest { entry.record.activateAt = now + longest }
        callOwner(entry, now: now)
    }

    /// Whether the call that `Action.callOwner` requested must still be made.
    public func owesCall(_ entry: ScheduledDownload, now: WallTime) -> Bool {
        entry.isCallDue && !entry.isRemoved && entry.record.remindsOwner(at: now)
    }

    /// The requested call is about to be made.
    ///
    /// - Returns: whether it must still be made.
    @discardableResult func takeOwnerCall(_ entry: ScheduledDownload, now: WallTime) -> Bool {
        guard entry.isCallDue else { return false }
        entry.isCallDue = false
        guard !entry.isRemoved, entry.record.remindsOwner(at: now) else { return false }
        defer { arm(entry) }
        // Calls made at startup do not advance the 1/10/60-minute schedule.
        guard entry.record.activations == 0 || entry.record.activateAt.map({ $0 <= now }) ?? false else { return true }
        let step = Int(entry.record.activations)
        entry.record.activations +|= 1
        entry.record.activateAt = step < Self.reminders.count ? now + Self.reminders[step] : nil
        save(entry)
        return true
    }

    /// The owner has acknowledged the outcome and is not called again. Returns false if the download has not ended.
    @discardableResult func acknowledge(_ entry: ScheduledDownload) -> Bool {
        guard entry.state.hasEnded else { return false }
        guard !entry.record.isAcknowledged else { return true }
        (entry.record.isAcknowledged, entry.record.activateAt, entry.isCallDue) = (true, nil, false)
        arm(entry)
        save(entry)
        return true
    }

    /// The wall clock was set: moves the scheduled calls by the same amount.
    func moveReminders(by delta: Duration) {
        for number in ended.ordered {
            guard let entry = entries[number], let time = entry.record.activateAt else { continue }
            entry.record.activateAt = time + delta
            arm(entry)
        }
    }
}

extension DownloadRecord {
    /// Whether the owner must be called, now or at the next startup: never once the owner has acknowledged the outcome. The first call is
    /// always due, further calls until the outcome is seven days old.
    public func remindsOwner(at now: WallTime) -> Bool {
        guard options.activate != nil, !isAcknowledged, state.hasEnded else { return false }
        return activations == 0 || endedAt.map { now - $0 < Limits.remindedAge } ?? false
    }
}
