internal import DownloadModel
internal import DownloadStore
internal import EventLoop

/// Takes into a ledger what the store has read, while it reads on: a start with a hundred thousand downloads takes the longer of the two, not
/// their sum.
@BusActor final class Intake {
    private(set) var ledger = Intake.ledger(Settings())
    /// Those that are to be found by their tokens, or by what they fetch.
    private(set) var tracked: [DownloadRecord] = []

    /// To be called from the store's thread.
    nonisolated func take(_ part: StoredPart) { BusActor.spawn { self.takeIn(part) } }

    private func takeIn(_ part: StoredPart) {
        switch part {
        case .queue(let queue):
            (ledger, tracked) = (Self.ledger(queue.settings), [])
            // What is known of the network is asked for: until then nothing is started that needs it.
            ledger.network(nil, now: .now)
            ledger.beginRestore(count: queue.count, batches: queue.batches, sweeps: queue.sweeps, requests: queue.requests, now: .now)
        case .records(let records):
            ledger.restore(records, now: .now)
            for record in records where record.options.token != nil || record.isFetch { tracked.append(record) }
        }
    }

    private static func ledger(_ settings: Settings) -> Ledger { Ledger(settings: settings) { .random(in: 0..<1) } }
}
