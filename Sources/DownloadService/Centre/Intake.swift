internal import DownloadModel
internal import DownloadStore
internal import EventLoop
internal import Scheduling

/// Adds the rows to a ledger while the store reads on. So a start with a hundred thousand downloads takes the longer of both times, not
/// their sum.
@BusActor final class Intake {
    private(set) var ledger = Intake.ledger(Settings())

    /// Call from the store's thread.
    nonisolated func take(_ part: StoredPart) { BusActor.spawn { self.takeIn(part) } }

    /// Waits until all parts passed so far are added. Await this before using the ledger. A call to the store may return sooner, because
    /// only spawned bodies keep their order.
    func settle() async { await withCheckedContinuation { settled in BusActor.spawn { settled.resume() } } }

    private func takeIn(_ part: StoredPart) {
        switch part {
        case .queue(let queue):
            ledger = Self.ledger(queue.settings)
            ledger.beginRestore(batches: queue.batches, sweeps: queue.sweeps, requests: queue.requests, now: .now)
        case .records(let records): ledger.restore(records, now: .now)
        }
    }

    /// What the network is like is asked for: until the answer comes nothing is started that needs it.
    private static func ledger(_ settings: Settings) -> Ledger {
        Ledger(settings: settings, network: nil, jitter: .seeded(.random(in: 0 ... .max)))
    }
}
