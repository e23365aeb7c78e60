public import DownloadModel

/// Toasts of outcomes. A toast is owed from the commit of the outcome until the toast is shown or dropped, across restarts, too.
extension Scheduler {
    /// The toast of an outcome, of a download or of a batch.
    public struct OwedToast: Equatable, Sendable {
        public let number: DownloadNumber
        public let end: WallTime
    }

    /// Notes whether the outcome of the just ended `entry` needs a toast. The members of a batch get no toasts of their own.
    func oweToast(of entry: ScheduledDownload) {
        guard entry.batch == nil, entry.record.hasNews, wantsToast(entry.record.options.notify, entry.record.options.app) else { return }
        entry.record.owesToast = true
    }

    /// Whether an outcome gets a toast. With `background`, an application in front shows the outcome itself.
    public func wantsToast(_ policy: NotifyPolicy, _ app: String) -> Bool {
        switch policy {
        case .always: true
        case .never: false
        case .background: !conditions.appsInFront.contains(app)
        }
    }

    /// Notes whether the outcome of `batch`, whose last member has just ended, needs a toast.
    func oweToast(of batch: ScheduledBatch, now: WallTime) {
        guard !batch.isLeaving, wantsToast(batch.record.notify, batch.record.app), batch.outcomes.failed > 0 || hasNews(batch) else {
            return
        }
        batch.record.toastOwedSince = now
        output.append(.save(.putBatch(batch.record)))
    }

    /// Whether the batch fetched any file that was not there before.
    private func hasNews(_ batch: ScheduledBatch) -> Bool {
        let unchanged = members(of: batch).lazy.filter { $0.state == .finished && $0.record.isUnchanged }.count
        return batch.outcomes.finished > unchanged
    }

    /// An ended member of `batch` was retried: the batch owes no toast now.
    func forgiveToast(of batch: ScheduledBatch) {
        guard batch.record.toastOwedSince != nil else { return }
        batch.record.toastOwedSince = nil
        output.append(.save(.putBatch(batch.record)))
    }

    /// The toast was shown, or never will be. A download or batch that has ended again since owes a new toast.
    func settle(_ toast: OwedToast) {
        if let entry = entries[toast.number], entry.owedToast == toast {
            entry.record.owesToast = false
            save(entry)
        } else if let batch = batches[toast.number], batch.owedToast == toast {
            forgiveToast(of: batch)
        }
    }

    /// Returns the toasts of batches that earlier processes owed, before anything ends in this process.
    func restoreOwedToasts() -> [OwedToast] {
        batches.values.compactMap { batch in
            if !batch.hasEnded { batch.record.toastOwedSince = nil }  // a stored row may contain anything
            return batch.owedToast
        }
    }

    /// Returns `owed`, oldest first, without the toasts older than `Limits.toastAge`: these are dropped.
    func dropStale(_ owed: [OwedToast], now: WallTime) -> [OwedToast] {
        let oldest = now + (.zero - Limits.toastAge)
        for toast in owed where toast.end < oldest { settle(toast) }
        return owed.filter { $0.end >= oldest }.sorted { ($0.end, $0.number) < ($1.end, $1.number) }
    }
}

extension ScheduledDownload {
    /// nil: none. A removed download owes no toast, nor does a member: its batch does.
    public var owedToast: Scheduler.OwedToast? {
        isRemoved || batch != nil ? nil : record.toastOwedSince.map { Scheduler.OwedToast(number: number, end: $0) }
    }
}

extension ScheduledBatch {
    public var owedToast: Scheduler.OwedToast? {
        isRemoved ? nil : record.toastOwedSince.map { Scheduler.OwedToast(number: number, end: $0) }
    }
}

extension DownloadRecord {
    /// When the download ended, if it owes a toast. A stored row may contain anything, so the state is checked, too.
    fileprivate var toastOwedSince: WallTime? { owesToast && hasNews ? endedAt : nil }

    /// Whether the outcome deserves a toast: a failure, or a new file, except in the app's own descriptor, where the user cannot open it.
    fileprivate var hasNews: Bool {
        switch state {
        case .finished: !isUnchanged && !isToDescriptor
        case .failed: true
        default: false
        }
    }
}
