public import DownloadModel

extension Scheduler {
    /// The toast of an outcome, of a download or of a batch. The service owes the toast from the commit of the outcome until the toast is
    /// shown or dropped, also after a restart. The row of the download or batch says so (`DownloadRecord.owesToast`,
    /// `BatchRecord.toastOwedSince`).
    public struct OwedToast: Equatable, Sendable {
        public let number: DownloadNumber
        public let end: WallTime

        /// Divides toasts that earlier processes owed. The toasts of the last `Limits.toastAge` are shown, oldest first. Older toasts are
        /// dropped.
        static func divide(_ owed: [OwedToast], now: WallTime) -> (fresh: [OwedToast], stale: [OwedToast]) {
            let oldest = now + (.zero - Limits.toastAge)
            let fresh = owed.filter { $0.end >= oldest }.sorted { ($0.end, $0.number) < ($1.end, $1.number) }
            return (fresh, owed.filter { $0.end < oldest })
        }
    }
}

extension NotifyPolicy {
    /// Whether an outcome gets a toast. With `background`, an application in front shows the outcome itself.
    func wantsToast(isInFront: Bool) -> Bool {
        switch self {
        case .always: true
        case .never: false
        case .background: !isInFront
        }
    }
}

extension DownloadRecord {
    /// When the download ended, if it owes a toast. A stored row may contain anything, so the state is checked, too.
    var toastOwedSince: WallTime? { owesToast && hasNews ? endedAt : nil }

    /// Whether the outcome deserves a toast: a failure, a new file, or a file that was skipped. A file in the app's own descriptor deserves
    /// none, because the user cannot open it.
    var hasNews: Bool {
        switch state {
        case .finished: !isToDescriptor && (!isUnchanged || mayHaveSkipped)
        case .failed: true
        default: false
        }
    }

    /// Whether a download that ended with an existing file has skipped the file. Else the file is a cached copy that is current.
    private var mayHaveSkipped: Bool { options.ifExists == .skip && !options.onlyIfChanged && !isFetch }
}

extension ScheduledDownload {
    /// The toast that the download owes; nil: none. A removed download owes no toast. A member owes none either, because its batch does.
    public var owedToast: Scheduler.OwedToast? {
        isRemoved || batch != nil ? nil : record.toastOwedSince.map { Scheduler.OwedToast(number: number, end: $0) }
    }
}

extension ScheduledBatch {
    public var owedToast: Scheduler.OwedToast? {
        isRemoved ? nil : record.toastOwedSince.map { Scheduler.OwedToast(number: number, end: $0) }
    }
}
