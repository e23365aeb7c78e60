internal import DownloadModel

/// Notes in the row of each outcome whether the outcome needs a toast. `OwedToast` says which outcomes need one.
extension Scheduler {
    /// Notes whether the outcome of the just ended `entry` needs a toast. The members of a batch get no toasts of their own.
    func oweToast(of entry: ScheduledDownload) {
        guard entry.batch == nil, entry.record.hasNews, wantsToast(entry.record.options.notify, entry.record.options.app) else { return }
        entry.record.owesToast = true
    }

    private func wantsToast(_ policy: NotifyPolicy, _ app: String) -> Bool {
        policy.wantsToast(isInFront: conditions.appsInFront.contains(app))
    }

    /// Notes whether the outcome of `batch`, whose last member has just ended, needs a toast.
    func oweToast(of batch: ScheduledBatch, now: WallTime) {
        guard !batch.isLeaving, wantsToast(batch.record.notify, batch.record.app), batch.outcomes.failed > 0 || hasNews(batch) else {
            return
        }
        batch.record.toastOwedSince = now
        output.append(.save(.putBatch(batch.record)))
    }

    /// Whether any finished member is news. A member that was removed may be.
    private func hasNews(_ batch: ScheduledBatch) -> Bool {
        let unchanged = members(of: batch).lazy.filter { $0.state == .finished && !$0.record.hasNews }.count
        return batch.outcomes.finished > unchanged
    }

    /// An ended member of `batch` was retried: the batch owes no toast now.
    func forgiveToast(of batch: ScheduledBatch) {
        guard batch.record.toastOwedSince != nil else { return }
        batch.record.toastOwedSince = nil
        output.append(.save(.putBatch(batch.record)))
    }

    /// The toast was shown, or never will be. If the download or batch has ended again since, it owes a new toast.
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

    /// Shows the toasts that earlier processes owed, and drops the toasts that are too old.
    func showOwed(_ owed: [OwedToast], now: WallTime) {
        let (fresh, stale) = OwedToast.divide(owed, now: now)
        for toast in stale { settle(toast) }
        if !fresh.isEmpty { output.append(.showOwed(fresh)) }
    }
}
