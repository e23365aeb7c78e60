internal import DownloadModel
internal import DownloadStore
internal import EventLoop
internal import Scheduling

/// Takes into a ledger what the store has read, while it reads on: a start with a hundred thousand downloads takes the longer of the two,
/// not their sum.
@BusActor final class Intake {
    private(set) var ledger = Intake.ledger(Settings())

    /// To be called from the store's thread.
    nonisolated func take(_ part: StoredPart) { BusActor.spawn { self.takeIn(part) } }

    /// Waits until all that was given before is taken in; to be awaited before the ledger is used. A call to the store may return sooner:
    /// only bodies that are spawned keep the order among them.
    func settle() async { await withCheckedContinuation { settled in BusActor.spawn { settled.resume() } } }

    private func takeIn(_ part: StoredPart) {
        switch part {
        case .queue(let queue):
            ledger = Self.ledger(queue.settings)
            ledger.beginRestore(count: queue.count, batches: queue.batches, sweeps: queue.sweeps, requests: queue.requests, now: .now)
        case .records(let records): ledger.restore(records, now: .now)
        }
    }

    /// What the network is like is asked for: until the answer comes nothing is started that needs it.
    private static func ledger(_ settings: Settings) -> Ledger { Ledger(settings: settings, network: nil, jitter: .seeded(.random(in: 0 ... .max))) }
}
