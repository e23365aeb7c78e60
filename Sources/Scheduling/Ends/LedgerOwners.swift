public import DownloadModel

/// Owners that are called, and so started, when their download has ended (option `activate`), until they say that they have taken it.
extension Ledger {
    /// The owner is called at the end, and so long after the call before: 1, 10 and 60 minutes after the end.
    static let reminders: [Duration] = [.seconds(60), .seconds(540), .seconds(3000)]
    /// Has the owner called, where that is still to be.
    func callOwner(_ entry: LedgerEntry, now: WallTime) {
        guard entry.record.remindsOwner(at: now) else {
            entry.record.activateAt = nil
            return arm(entry)
        }
        entry.isCallDue = true
        arm(entry)
        actions.append(.callOwner(entry))
    }

    /// A start of ours: the owner is called now, whatever the clock says, and what was still to come of the first hour comes.
    func resumeCalls(_ entry: LedgerEntry, now: WallTime) {
        let longest = Self.reminders.max() ?? .zero
        // Further off than any: the clock was set back while nobody looked.
        if let time = entry.record.activateAt, time > now + longest { entry.record.activateAt = now + longest }
        callOwner(entry, now: now)
    }

    /// Whether the call that `Action.callOwner` asked for is still to be made.
    public func owesCall(_ entry: LedgerEntry, now: WallTime) -> Bool {
        entry.isCallDue && !entry.isRemoved && entry.record.remindsOwner(at: now)
    }

    /// The call that was asked for is about to be made.
    ///
    /// - Returns: whether it still is to be.
    @discardableResult func takeOwnerCall(_ entry: LedgerEntry, now: WallTime) -> Bool {
        guard entry.isCallDue else { return false }
        entry.isCallDue = false
        guard !entry.isRemoved, entry.record.remindsOwner(at: now) else { return false }
        defer { arm(entry) }
        // What a start calls for besides is no step of the hour.
        guard entry.record.activations == 0 || entry.record.activateAt.map({ $0 <= now }) ?? false else { return true }
        let step = Int(entry.record.activations)
        entry.record.activations +|= 1
        entry.record.activateAt = step < Self.reminders.count ? now + Self.reminders[step] : nil
        save(entry)
        return true
    }

    /// The owner has taken what ended: it is not called any more. False where it has not ended.
    @discardableResult func acknowledge(_ entry: LedgerEntry) -> Bool {
        guard entry.state.hasEnded else { return false }
        guard !entry.record.isAcknowledged else { return true }
        (entry.record.isAcknowledged, entry.record.activateAt, entry.isCallDue) = (true, nil, false)
        arm(entry)
        save(entry)
        return true
    }

    /// The wall clock was set: what is left of the hours moves with it.
    func moveReminders(by delta: Duration) {
        for number in ended.ordered {
            guard let entry = entries[number], let time = entry.record.activateAt else { continue }
            entry.record.activateAt = time + delta
            arm(entry)
        }
    }
}

extension DownloadRecord {
    /// Whether its owner is to be called, now or at the next start: never yet, or not for seven days and without an answer.
    public func remindsOwner(at now: WallTime) -> Bool {
        guard options.activate != nil, !isAcknowledged, state.hasEnded else { return false }
        return activations == 0 || endedAt.map { now - $0 < Limits.remindedAge } ?? false
    }
}
