internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling

/// A batch on the bus: its ledger entry, the counts last announced, and the calls that wait for it.
@BusActor final class ManagedBatch {
    /// The shortest time between two `PropertiesChanged`, except at the end of the batch.
    private static let propertiesInterval: Duration = .milliseconds(250)

    unowned let downloader: Downloader  // the centre outlives every batch
    let entry: LedgerBatch

    /// Calls of `Wait` that have not been answered.
    var waiting: [Reply<(UInt32, UInt32, UInt32)>] = []
    /// Calls of `Remove`, answered when the batch is off the list; `isCounted`: the call is among its caller's waiting calls.
    /// `filesToDelete` are the finished files that are deleted with the batch.
    var removing: [(reply: Reply<Void>, isCounted: Bool)] = []
    var filesToDelete: [(path: String, identity: FileIdentity?)] = []
    var deletesFiles = false

    /// When the first transfer of the batch was started; nil before, and after the end of the batch.
    var begun: ContinuousClock.Instant?

    private var told: (remaining: UInt32, outcomes: OutcomeCounts)
    private var toldAt: ContinuousClock.Instant?
    private var timer: Poller.Token?

    init(_ entry: LedgerBatch, in downloader: Downloader) {
        (self.entry, self.downloader) = (entry, downloader)
        told = (entry.remaining, entry.outcomes)
    }

    var record: BatchRecord { entry.record }
    var number: BatchNumber { entry.number }
    var path: ObjectPath { BusName.path(ofBatch: number) }

    /// The bytes of all members. A failed or cancelled member adds the bytes that it keeps to both sums, because its other bytes never
    /// arrive.
    var sums: (received: ByteCount, total: ByteCount?) {
        var sums = (received: record.removedBytes, total: ByteCount?(record.removedBytes))
        for member in downloader.ledger.members(of: entry) {
            let record = member.record
            let held = downloader.lively(member.number)?.received ?? record.received
            let received = member.state == .finished ? record.total ?? held : held
            sums.received &+= received
            let total = member.state.hasEnded ? received : record.total ?? record.options.size
            if let sum = sums.total, let total {
                let (value, overflow) = sum.addingReportingOverflow(total)
                sums.total = overflow ? nil : value
            } else {
                sums.total = nil
            }
        }
        return sums
    }

    /// Announces changed counts as soon as the rate allows, and at once if the batch has ended.
    func changed(isEnd: Bool = false) {
        // The outcome of the last member is announced behind the end of that member.
        guard isEnd || !entry.hasEnded, told != (entry.remaining, entry.outcomes) else { return }
        if !isEnd, downloader.journal.gathers() { return }
        if !isEnd, let toldAt, .now - toldAt < Self.propertiesInterval {
            guard timer == nil else { return }
            timer = Poller.shared.schedule(at: toldAt + Self.propertiesInterval) { [self] in
                timer = nil
                changed()
            }
            return
        }
        if let timer { Poller.shared.cancel(timer) }
        timer = nil
        guard !entry.isRemoved || isEnd else { return }
        let (before, now) = (told, (remaining: entry.remaining, outcomes: entry.outcomes))
        (told, toldAt) = (now, .now)
        var values: [String: Variant] = [:]
        if before.remaining != now.remaining { values[Batch.remaining.name] = .uint32(now.remaining) }
        if before.outcomes.finished != now.outcomes.finished { values[Batch.succeeded.name] = .uint32(now.outcomes.finished) }
        if before.outcomes.failed != now.outcomes.failed { values[Batch.failed.name] = .uint32(now.outcomes.failed) }
        if before.outcomes.cancelled != now.outcomes.cancelled { values[Batch.cancelled.name] = .uint32(now.outcomes.cancelled) }
        downloader.journal.post(Standard.propertiesChanged.message(from: path, (Batch.interface, values, [])))
    }

    /// Sends `PropertiesChanged`, `Completed`, and the answers to `Wait`.
    func announceEnd(_ outcomes: OutcomeCounts) {
        changed(isEnd: true)
        let journal = downloader.journal
        journal.post(Batch.completed.message(from: path, outcomes.wire))
        begun = nil
        let replies = waiting
        waiting = []
        downloader.callers.answered(replies.map(\.call.sender), number)
        for reply in replies { journal.post(reply.message(outcomes.wire)) }
    }

    /// Fails the calls that wait for a batch that could not be saved.
    func giveUp(_ refusal: Refusal) {
        let replies = waiting
        waiting = []
        downloader.callers.answered(replies.map(\.call.sender), number)
        for reply in replies { reply.fail(refusal) }
    }

    /// Forgets the calls of a caller that has left the bus.
    func forget(_ sender: String) {
        waiting.removeAll { $0.call.sender == sender }
        removing.removeAll { $0.reply.call.sender == sender }
    }

    /// Stops the timer of a batch that is off the list.
    func stop() {
        if let timer { Poller.shared.cancel(timer) }
        timer = nil
    }
}
