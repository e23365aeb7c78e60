public import DownloadModel

/// Toasts of ends: each is owed to the user from the commit of its end until it is known what has become of it, over restarts too.
extension Ledger {
    /// An end that is to be shown, of a download or of a batch.
    public struct OwedToast: Equatable, Sendable {
        public let number: DownloadNumber
        public let end: WallTime
    }

    /// `entry` has just ended: whether that is to be shown. A batch speaks for its members.
    func oweToast(of entry: LedgerEntry) {
        guard entry.batch == nil, entry.record.hasNews, wantsToast(entry.record.options.notify, entry.record.options.app) else { return }
        entry.record.owesToast = true
    }

    /// Whether an end is shown to people: an application in front shows it itself.
    public func wantsToast(_ policy: NotifyPolicy, _ app: String) -> Bool {
        switch policy {
        case .always: true
        case .never: false
        case .background: !appsInFront.contains(app)
        }
    }

    /// The last member of `batch` has just ended.
    func oweToast(of batch: LedgerBatch, now: WallTime) {
        guard !batch.isLeaving, wantsToast(batch.record.notify, batch.record.app), batch.outcomes.failed > 0 || hasNews(batch) else {
            return
        }
        batch.record.toastOwedSince = now
        actions.append(.save(.putBatch(batch.record)))
    }

    /// Whether anything of `batch` has come that was not there before.
    private func hasNews(_ batch: LedgerBatch) -> Bool {
        let unchanged = members(of: batch).lazy.filter { $0.state == .finished && $0.record.isUnchanged }.count
        return batch.outcomes.finished > unchanged
    }

    /// A member of `batch`, which had ended, goes on.
    func forgiveToast(of batch: LedgerBatch) {
        guard batch.record.toastOwedSince != nil else { return }
        batch.record.toastOwedSince = nil
        actions.append(.save(.putBatch(batch.record)))
    }

    /// The toast of that end was shown, or never will be. What has ended again since owes another.
    func settle(_ toast: OwedToast) {
        if let entry = entries[toast.number], entry.owedToast == toast {
            entry.record.owesToast = false
            save(entry)
        } else if let batch = batches[toast.number], batch.owedToast == toast {
            forgiveToast(of: batch)
        }
    }

    /// Notes what a process before this one owed, before anything ends in this one.
    func restoreOwedToasts() {
        for batch in batches.values {
            if !batch.hasEnded { batch.record.toastOwedSince = nil }  // a row may say anything
            if let toast = batch.owedToast { restoredToasts.append(toast) }
        }
    }

    /// What a process before this one owed, oldest first; once. What is no news any more is settled.
    func takeOwedToasts(now: WallTime) -> [OwedToast] {
        defer { restoredToasts = [] }
        let oldest = now + (.zero - Limits.toastAge)
        for toast in restoredToasts where toast.end < oldest { settle(toast) }
        return restoredToasts.filter { $0.end >= oldest }.sorted { ($0.end, $0.number) < ($1.end, $1.number) }
    }
}

extension LedgerEntry {
    /// nil: none is owed. What is off the list owes nothing, and for a member its batch does.
    public var owedToast: Ledger.OwedToast? {
        isRemoved || batch != nil ? nil : record.toastOwedSince.map { Ledger.OwedToast(number: number, end: $0) }
    }
}

extension LedgerBatch {
    public var owedToast: Ledger.OwedToast? {
        isRemoved ? nil : record.toastOwedSince.map { Ledger.OwedToast(number: number, end: $0) }
    }
}

extension DownloadRecord {
    /// When it ended, where its toast is owed. A row may say anything.
    fileprivate var toastOwedSince: WallTime? { owesToast && hasNews ? endedAt : nil }

    /// Whether its end is worth a toast: something has come, and not into the app's own file, where nobody can open it; or it has failed.
    fileprivate var hasNews: Bool {
        switch state {
        case .finished: !isUnchanged && !isToDescriptor
        case .failed: true
        default: false
        }
    }
}
