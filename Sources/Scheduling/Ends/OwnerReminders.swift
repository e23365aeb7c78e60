public import DownloadModel

/// When the owner of an ended download is called: at the end, 1, 10 and 60 minutes later, and at each startup. No call follows the owner's
/// acknowledgement, and only the first one comes later than `Limits.remindedAge` after the end.
extension OwnerReminders {
    /// The delays after the first, second and third call.
    private static let delays: [Duration] = [.seconds(60), .seconds(540), .seconds(3000)]
    private static let longestDelay = delays.max() ?? .zero

    /// The first call of an owner is due at the end.
    static func due(at end: WallTime) -> OwnerReminders {
        var reminders = OwnerReminders()
        reminders.nextAt = end
        return reminders
    }

    /// Whether the owner must be called, now or at the next startup. The first call is always due, however old the outcome is.
    public func areOwed(since end: WallTime?, now: WallTime) -> Bool {
        !isAcknowledged && (calls == 0 || end.map { now - $0 < Limits.remindedAge } ?? false)
    }

    /// The owner is called now. A call at startup does not advance the schedule, unless it is the first call.
    ///
    /// - Returns: whether the schedule has advanced, so that the row must be saved.
    mutating func call(now: WallTime) -> Bool {
        guard calls == 0 || nextAt.map({ $0 <= now }) ?? false else { return false }
        let step = Int(calls)
        calls +|= 1
        nextAt = step < Self.delays.count ? now + Self.delays[step] : nil
        return true
    }

    /// - Returns: false if the owner had acknowledged before.
    mutating func acknowledge() -> Bool {
        guard !isAcknowledged else { return false }
        (isAcknowledged, nextAt) = (true, nil)
        return true
    }

    /// Restores the schedule at startup. An instant beyond the longest delay means that the clock was set back while no service ran.
    mutating func restore(now: WallTime) {
        if let time = nextAt, time > now + Self.longestDelay { nextAt = now + Self.longestDelay }
    }

    /// The wall clock was set.
    mutating func shift(by delta: Duration) { nextAt = nextAt.map { $0 + delta } }
}

extension DownloadRecord {
    /// Whether the owner must be called, now or at the next startup.
    public func remindsOwner(at now: WallTime) -> Bool {
        options.activate != nil && state.hasEnded && reminders.areOwed(since: endedAt, now: now)
    }
}
