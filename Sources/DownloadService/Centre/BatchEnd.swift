internal import Desktop
internal import DownloadModel
internal import EventLoop
internal import Scheduling

/// The facts for the toast of a batch, at the time of its end.
struct BatchEnd {
    let owed: Scheduler.OwedToast
    let record: BatchRecord
    let outcomes: OutcomeCounts
    /// The size of the finished files.
    let size: ByteCount
    /// The failure of the first failed member; nil if any member finished.
    let failure: DownloadFailure?
    /// What the user can do about `failure`.
    let remedy: Remedy?
    /// The time from the end to the toast: the longest `notify-delay` of a member.
    let delay: Duration
    /// The sandboxed app that queued the batch; nil: none did.
    let sandboxedApp: String?

    /// nil if no toast is owed.
    @BusActor init?(_ batch: ManagedBatch, _ outcomes: OutcomeCounts, in scheduler: Scheduler) {
        guard let owed = batch.entry.owedToast else { return nil }
        (self.owed, record, self.outcomes) = (owed, batch.record, outcomes)
        let members = scheduler.members(of: batch.entry)
        size = members.lazy.filter { $0.state == .finished }.reduce(record.removedBytes) {
            $0 &+ ($1.record.total ?? $1.record.received)
        }
        delay = members.lazy.map(\.record.options.notifyDelay).max() ?? .zero
        sandboxedApp = members.lazy.compactMap(\.record.sandboxedApp).first
        let failed = outcomes.finished > 0 ? nil : members.lazy.compactMap { entry in entry.state.failure.map { ($0, entry.record) } }.first
        (failure, remedy) = (failed?.0, failed.flatMap { Remedy(after: $0.0, of: $0.1) })
    }
}
