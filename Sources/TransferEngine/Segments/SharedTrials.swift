internal import DownloadModel
internal import Synchronization

/// What the engines tell each other about automatic connections: their transfers write to different disks, and share a link.
final class SharedTrials: Sendable {
    /// An older report no longer counts, because the disk of the engine hangs.
    private static let memory: Duration = .seconds(10)

    private struct Report {
        var at: SuspendingClock.Instant
        var numbers: Set<DownloadNumber>
        /// Bytes a second of all transfers.
        var speed: Double
        /// Whether one of the transfers tries more connections.
        var isTrying: Bool
    }

    private let reports = Mutex<[ObjectIdentifier: Report]>([:])

    /// Call at each tick, and `end` after the measurement.
    ///
    /// - Parameters:
    ///   - numbers: the transfers of `engine` that fetch.
    ///   - speed: their bytes a second.
    /// - Returns: the transfers of all engines, the speed of the other engines, and whether a transfer of `engine` may try.
    func begin(
        _ engine: ObjectIdentifier, _ numbers: Set<DownloadNumber>, speed: Double, now: SuspendingClock.Instant = .now
    ) -> (numbers: Set<DownloadNumber>, others: Double, mayTry: Bool) {
        reports.withLock { reports in
            reports = reports.filter { $0.key != engine && now - $0.value.at < Self.memory }
            let others = Array(reports.values)
            let mayTry = !others.contains(where: \.isTrying)
            // Until `end`, no other engine begins a trial.
            reports[engine] = Report(at: now, numbers: numbers, speed: speed, isTrying: mayTry)
            return (others.reduce(numbers) { $0.union($1.numbers) }, others.reduce(0) { $0 + $1.speed }, mayTry)
        }
    }

    func end(_ engine: ObjectIdentifier, isTrying: Bool) { reports.withLock { $0[engine]?.isTrying = isTrying } }

    /// The engine fetches nothing any more.
    func leave(_ engine: ObjectIdentifier) { reports.withLock { $0[engine] = nil } }
}
