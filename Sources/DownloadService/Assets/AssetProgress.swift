internal import DownloadModel
internal import EventLoop

/// Sends the signal `Progress` of assets: for each at most ten times a second, and always its last report.
@BusActor final class AssetProgress {
    struct Report: Equatable, Sendable {
        /// `AssetStage.rawValue`.
        let stage: String
        let done: ByteCount
        /// nil: unknown.
        let total: ByteCount?
    }

    private var sentAt: [AssetKey: ContinuousClock.Instant] = [:]
    /// The newest report of each asset whose last signal is too recent.
    private var waiting: [AssetKey: (report: Report, timer: Poller.Token)] = [:]
    private let interval: Duration
    private let send: @BusActor (AssetKey, Report) -> Void

    /// - Parameter interval: the shortest time between two signals of an asset, except at the end of a stage.
    init(interval: Duration = .milliseconds(100), send: @escaping @BusActor (AssetKey, Report) -> Void) {
        (self.interval, self.send) = (interval, send)
    }

    /// Sends `report` now, or as soon as the interval allows it, unless a newer report comes first.
    func report(_ report: Report, of key: AssetKey) {
        if let timer = waiting[key]?.timer {
            waiting[key] = (report, timer)
        } else if let due = sentAt[key].map({ $0 + interval }), due > .now {
            waiting[key] = (report, Poller.shared.schedule(at: due) { [weak self] in self?.flush(key) })
        } else {
            sentAt[key] = .now
            send(key, report)
        }
    }

    /// Sends the report that waits, if any. Call before the signal of another stage, because the report is of the stage before.
    func flush(_ key: AssetKey) {
        guard let report = drop(key) else { return }
        sentAt[key] = .now
        send(key, report)
    }

    /// The asset is gone.
    func forget(_ key: AssetKey) {
        drop(key)
        sentAt[key] = nil
    }

    @discardableResult private func drop(_ key: AssetKey) -> Report? {
        guard let (report, timer) = waiting.removeValue(forKey: key) else { return nil }
        Poller.shared.cancel(timer)
        return report
    }
}
