internal import DownloadModel
internal import DownloadStore
internal import EventLoop
internal import Scheduling

/// Adds the rows to a scheduler while the store reads the rest. So a start with 100,000 downloads takes the longer of both times, not their
/// sum.
@BusActor final class Intake {
    private var restoration = Intake.restoration(StoredQueue())
    private(set) var assets: [AssetRecord] = []

    /// Call from the store's thread.
    nonisolated func take(_ part: StoredPart) { BusActor.spawn { self.takeIn(part) } }

    /// The scheduler, once all parts passed so far are added. A call to the store may return sooner, because only spawned bodies keep their
    /// order.
    func finish() async -> Restored {
        await withCheckedContinuation { added in BusActor.spawn { added.resume() } }
        return restoration.finish(now: .now)
    }

    private func takeIn(_ part: StoredPart) {
        switch part {
        case .queue(let queue):
            restoration = Self.restoration(queue)
            assets = queue.assets
        case .records(let records): restoration.add(records, now: .now)
        }
    }

    /// The state of the network is unknown at first. Until it is known, no download starts that needs the network.
    private static func restoration(_ queue: StoredQueue) -> Restoration {
        let scheduler = Scheduler(settings: queue.settings, network: nil, jitter: .seeded(.random(in: 0 ... .max)))
        return Restoration(into: scheduler, batches: queue.batches, sweeps: queue.sweeps, requests: queue.requests, now: .now)
    }
}
