internal import DownloadModel

// A private download (option `private`) leaves no trace: soon after its end, its row is deleted.

extension DownloadRecord {
    /// When the download leaves the list because it is private; nil: it is not private, or has not ended.
    var privateEnd: WallTime? {
        guard options.isPrivate, state.hasEnded else { return nil }
        return (endedAt ?? WallTime(microseconds: 0)) + Limits.privateAge
    }

    /// Whether the download is private, and the clock was set back behind its end: then `privateEnd` may be far away.
    func hasEndedInFuture(now: WallTime) -> Bool { privateEnd != nil && endedAt.map { $0 > now } ?? false }
}

extension Scheduler {
    /// Takes `entry` off the list if it is private and due.
    ///
    /// - Returns: whether it has left.
    func removePrivate(_ entry: ScheduledDownload, now: WallTime) -> Bool {
        guard let time = entry.record.privateEnd, !entry.isRemoved else { return false }
        guard time <= now || entry.record.hasEndedInFuture(now: now) else { return false }
        entry.hasLeftByItself = true
        remove(entry)
        return true
    }

    /// The service exits: no private download waits for the next process.
    func removeAllPrivate() {
        for number in Array(ended.ordered) {
            guard let entry = entries[number], entry.record.options.isPrivate else { continue }
            entry.hasLeftByItself = true
            remove(entry)
        }
    }
}
