public import DownloadModel

/// Calls, and so starts, the owners of ended downloads (option `activate`). `OwnerReminders` says when.
extension Scheduler {
    /// Requests a call of the owner, if one is still due.
    func callOwner(_ entry: ScheduledDownload, now: WallTime) {
        guard entry.record.remindsOwner(at: now) else {
            entry.record.reminders.nextAt = nil
            return arm(entry)
        }
        entry.isCallDue = true
        arm(entry)
        output.append(.callOwner(entry))
    }

    /// At startup, calls the owner at once, whatever the schedule.
    func resumeCalls(_ entry: ScheduledDownload, now: WallTime) {
        entry.record.reminders.restore(now: now)
        callOwner(entry, now: now)
    }

    /// Whether the call that `Action.callOwner` requested must still be made.
    public func owesCall(_ entry: ScheduledDownload, now: WallTime) -> Bool {
        entry.isCallDue && !entry.isRemoved && entry.record.remindsOwner(at: now)
    }

    /// The requested call is about to be made, if it is still owed.
    func takeOwnerCall(_ entry: ScheduledDownload, now: WallTime) {
        let isOwed = owesCall(entry, now: now)
        entry.isCallDue = false
        guard isOwed else { return }
        if entry.record.reminders.call(now: now) { save(entry) }
        arm(entry)
    }

    /// The owner has acknowledged the outcome. Ignored for a download that has not ended, because it has no outcome yet.
    func acknowledge(_ entry: ScheduledDownload) {
        guard entry.state.hasEnded, !entry.record.reminders.isAcknowledged else { return }
        change(entry) { _ = $0.reminders.acknowledge() }
        entry.isCallDue = false
        arm(entry)
        save(entry)
        output.append(.tell(entry))
    }

    /// The wall clock was set: moves the scheduled calls by the same amount, and removes private downloads whose end is in the future now.
    func moveReminders(by delta: Duration, now: WallTime) {
        for number in ended.ordered {
            guard let entry = entries[number], !removePrivate(entry, now: now), entry.record.reminders.nextAt != nil else { continue }
            entry.record.reminders.shift(by: delta)
            arm(entry)
        }
    }
}
