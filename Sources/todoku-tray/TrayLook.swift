internal import DownloadModel
internal import StatusNotifier
internal import TodokuClient

/// What the tray shows of what the service says. Pure.
struct TrayLook: Equatable {
    enum Activity: Equatable {
        case idle
        /// So many transfer.
        case downloading(Int)
        /// None transfers; so many will by themselves, or when somebody does something.
        case waiting(Int)
        /// All that is left is there, and is looked through.
        case checking(Int)
        /// All that is left was paused, each by itself.
        case paused(Int)
        /// Everything is held; so many have not ended.
        case held(Int)
    }

    let activity: Activity
    /// Of all that has not ended, rounded down; nil while a total is unknown.
    let percent: Int?
    let speed: Speed
    let timeLeft: Duration?
    /// 0: none.
    let speedLimit: Speed
    let unseenFailures: Int
    let current: [DownloadDescription]
    let recent: [DownloadDescription]
    /// How many have not ended and are not in `current`.
    let moreCurrent: Int
    let isPaused: Bool

    /// - Parameters:
    ///   - overview: as the service last gave it; nil where it has not been met.
    ///   - isPresent: whether the service runs.
    init(_ overview: ServiceOverview?, isPresent: Bool, unseenFailures: Int) {
        let all = overview?.current ?? []
        let resting = all.filter(\.rests)
        // The service leaves by itself where all that is left rests: that is as it was. What else was going on as it went is not known any
        // more.
        let isAsItWas = isPresent || overview?.status.active == 0 && resting.count == all.count
        let status = isAsItWas ? overview?.status : nil
        let remaining = status.map { Int($0.remaining) } ?? resting.count
        current = isPresent ? all : resting
        recent = overview?.recent ?? []
        self.unseenFailures = unseenFailures
        moreCurrent = max(0, remaining - current.count)
        isPaused = overview?.status.isPaused ?? false
        speedLimit = overview?.status.settings.speedLimit ?? 0
        speed = status?.speed ?? 0
        if let status, let total = status.total, remaining > 0 {
            percent = total == 0 ? 100 : min(100, Int(clamping: Double(status.received) / Double(total) * 100))
            let missing = total -| status.received
            // Beyond a hundred days nobody knows.
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
            activity = .idle
        } else if moreCurrent == 0, current.allSatisfy({ $0.state == .paused }) {
            activity = .paused(remaining)
        } else if moreCurrent == 0, current.allSatisfy({ $0.state == .verifying }) {
            activity = .checking(remaining)
        } else {
            activity = .waiting(remaining)
        }
    }

    /// Whether there is something to look at. That everything is held is only where something is.
    var isBusy: Bool {
        switch activity {
        case .idle: false
        case .held(let count): count > 0
        default: true
        }
    }

    /// - Parameter turn: counts the changes of the icon, for a total that is not known.
    func ring(turn: Int) -> ProgressRing {
        let lit: ProgressRing.Lit =
            switch (isBusy, percent, activity) {
            case (false, _, _): .none
            case (true, let percent?, _): .percent(percent)
            case (true, nil, .downloading): .moving(turn: turn)
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
    /// Nothing becomes of it by itself: such downloads do not keep the service.
    fileprivate var rests: Bool { state == .paused || state == .waiting && ["paused-all", "needs-url"].contains(waitReason) }
}

/// What failed since somebody last looked, however much has ended since. Pure.
struct UnseenFailures {
    /// More are not told apart.
    static let most = 1000
    private var downloads: Set<DownloadReference> = []
    private var seenAt: WallTime

    /// - Parameter since: what failed later is news.
    init(since: WallTime) { seenAt = since }

    var count: Int { downloads.count }

    mutating func insert(_ download: DownloadReference) { if downloads.count < Self.most { downloads.insert(download) } }
    mutating func remove(_ download: DownloadReference) { downloads.remove(download) }

    /// What failed while nobody listened is found in the list; what has begun anew has not failed any more.
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

    /// Somebody looks at `overview`.
    mutating func see(_ overview: ServiceOverview?) {
        downloads = []
        seenAt = max(seenAt, overview?.recent.compactMap(\.endedAt).max() ?? seenAt)
    }
}

/// Steps of the speed limit.
enum SpeedSteps {
    /// Slowest first; bytes per second.
    static let limits: [Speed] = [100 << 10, 200 << 10, 500 << 10, 1 << 20, 2 << 20, 5 << 20, 10 << 20, 20 << 20, 50 << 20]
    /// Those of the menu.
    static let offered: [Speed] = [100 << 10, 500 << 10, 1 << 20, 5 << 20, 10 << 20]

    /// The next limit that is faster or slower than `limit`; 0 is none, and faster than all. nil: there is no further step.
    static func next(after limit: Speed, faster: Bool) -> Speed? {
        if faster { return limit == 0 ? nil : limits.first { $0 > limit } ?? 0 }
        return limit == 0 ? limits.last : limits.last { $0 < limit }
    }
}
