internal import DownloadModel
internal import StatusNotifier
internal import TodokuClient

/// The state of the service as the tray shows it. Pure.
struct TrayLook: Equatable {
    enum Activity: Equatable {
        case idle
        /// This number of downloads transfer.
        case downloading(Int)
        /// No download transfers. This number will transfer later, by themselves or when the user or an app acts.
        case waiting(Int)
        /// All remaining downloads are verifying.
        case checking(Int)
        /// All remaining downloads are verifying or extracting.
        case unpacking(Int)
        /// No download is left. This number of assets are being updated.
        case updating(Int)
        /// All remaining downloads were paused individually.
        case paused(Int)
        /// Everything is paused; this number of downloads have not ended.
        case held(Int)
    }

    let activity: Activity
    /// The progress of all unended downloads together, rounded down; nil while a total is unknown.
    let percent: Int?
    let speed: Speed
    let timeLeft: Duration?
    /// 0: none.
    let speedLimit: Speed
    let unseenFailures: Int
    let current: [DownloadDescription]
    /// The assets that are being updated. Their downloads are not in `current`, but in `downloads`.
    let assets: [AssetDescription]
    /// The downloads that were read.
    let downloads: [DownloadDescription]
    let recent: [DownloadDescription]
    /// The assets that downloads belong to.
    let owners: [DownloadReference: AssetDescription]
    /// How many unended downloads are not in `current`.
    let moreCurrent: Int
    let isPaused: Bool

    /// - Parameters:
    ///   - overview: the last one from the service; nil if there was none yet.
    ///   - assets: all that are known, in the order of the menu.
    ///   - isPresent: whether the service runs.
    init(_ overview: ServiceOverview?, assets: [AssetDescription] = [], isPresent: Bool, unseenFailures: Int) {
        let all = overview?.current ?? []
        let resting = all.filter(\.rests)
        // The service exits by itself if all remaining downloads rest, so the last overview is still right. Otherwise, the fate of the
        // downloads that ran when the service went away is unknown.
        let isAsItWas = isPresent || overview?.status.active == 0 && resting.count == all.count
        let status = isAsItWas ? overview?.status : nil
        let remaining = status.map { Int($0.remaining) } ?? resting.count
        let known = isPresent ? all : resting
        downloads = known
        self.assets = isPresent ? assets.filter(\.stage.isUnderWay) : []
        let ofAssets = Set(self.assets.compactMap(\.download))
        current = known.filter { !ofAssets.contains($0.reference) }
        let owners = assets.compactMap { asset in asset.download.map { ($0, asset) } }
        self.owners = Dictionary(owners, uniquingKeysWith: { first, _ in first })
        let ofOthers = self.owners
        // The archive of an asset that is being unpacked.
        recent = (overview?.recent ?? []).filter { $0.state == .failed || ofOthers[$0.reference] == nil }
        self.unseenFailures = unseenFailures
        let more = max(0, remaining -| known.count)
        // An asset's download may be beyond those that were read.
        moreCurrent = max(0, more -| ofAssets.subtracting(known.map(\.reference)).count)
        isPaused = overview?.status.isPaused ?? false
        speedLimit = overview?.status.settings.speedLimit ?? 0
        speed = status?.speed ?? 0
        if let status, let total = status.total, remaining > 0 {
            percent = total == 0 ? 100 : min(100, Int(clamping: Double(status.received) / Double(total) * 100))
            let missing = total -| status.received
            // More than a hundred days is no useful estimate.
            let seconds = status.speed > 0 ? missing / status.speed : .max
            timeLeft = missing > 0 && seconds < 100 * 86_400 ? .seconds(Int64(seconds) + 1) : nil
        } else {
            (percent, timeLeft) = (nil, nil)
        }
        if isPaused, status?.active ?? 0 == 0 {
            activity = .held(remaining)
        } else if let status, status.active > 0 {
            activity = .downloading(Int(status.active))
        } else if remaining == 0 {
            activity = self.assets.isEmpty ? .idle : .updating(self.assets.count)
        } else if more == 0, known.allSatisfy({ $0.state == .paused }) {
            activity = .paused(remaining)
        } else if more == 0, known.allSatisfy({ $0.state == .verifying || $0.state == .extracting }) {
            activity = known.contains { $0.state == .extracting } ? .unpacking(remaining) : .checking(remaining)
        } else {
            activity = .waiting(remaining)
        }
    }

    /// Whether there is something to show. "Everything is paused" counts only if downloads are left.
    var isBusy: Bool {
        switch activity {
        case .idle: false
        case .held(let count): count > 0
        default: true
        }
    }

    /// - Parameter turn: the number of icon updates, which moves the ring while the total is unknown.
    func ring(turn: Int) -> ProgressRing {
        let lit: ProgressRing.Lit =
            switch (isBusy, percent, activity) {
            case (false, _, _): .none
            case (true, let percent?, _): .percent(percent)
            case (true, nil, .downloading), (true, nil, .updating): .moving(turn: turn)
            default: .none
            }
        let sign: ProgressRing.Sign =
            switch activity {
            case .paused, .held: .pause
            default: .arrow
            }
        return ProgressRing(sign: sign, lit: lit)
    }
}

extension DownloadDescription {
    /// Whether the download waits for the user or an app. Such downloads do not keep the service running.
    fileprivate var rests: Bool { state == .paused || state == .waiting && ["paused-all", "needs-url"].contains(waitReason) }
}

/// The downloads that failed since the user last looked, even if many others have ended since. Pure.
struct UnseenFailures {
    /// The counter stops here.
    static let most = 1000
    private var downloads: Set<DownloadReference> = []
    private var seenAt: WallTime

    /// - Parameter since: later failures are news.
    init(since: WallTime) { seenAt = since }

    var count: Int { downloads.count }

    mutating func insert(_ download: DownloadReference) { if downloads.count < Self.most { downloads.insert(download) } }
    mutating func remove(_ download: DownloadReference) { downloads.remove(download) }

    /// Adds failures from the list, in case their signals were missed. Removes downloads that have started again.
    mutating func take(_ overview: ServiceOverview) {
        for download in overview.current { remove(download.reference) }
        for download in overview.recent {
            if download.state != .failed {
                remove(download.reference)
            } else if let endedAt = download.endedAt, endedAt > seenAt {
                insert(download.reference)
            }
        }
    }

    /// The user has seen `overview`.
    mutating func see(_ overview: ServiceOverview?) {
        downloads = []
        seenAt = max(seenAt, overview?.recent.compactMap(\.endedAt).max() ?? seenAt)
    }
}

/// Steps of the speed limit.
enum SpeedSteps {
    /// In bytes per second, slowest first.
    static let limits: [Speed] = [100 << 10, 200 << 10, 500 << 10, 1 << 20, 2 << 20, 5 << 20, 10 << 20, 20 << 20, 50 << 20]
    /// The limits in the menu.
    static let offered: [Speed] = [100 << 10, 500 << 10, 1 << 20, 5 << 20, 10 << 20]

    /// The next limit that is faster or slower than `limit`. 0 means no limit, the fastest. nil: there is no further step.
    static func next(after limit: Speed, faster: Bool) -> Speed? {
        if faster { return limit == 0 ? nil : limits.first { $0 > limit } ?? 0 }
        return limit == 0 ? limits.last : limits.last { $0 < limit }
    }
}
