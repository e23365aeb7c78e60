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
    ///   - seenAt: when somebody last looked; what failed later is news.
    init(_ overview: ServiceOverview?, isPresent: Bool, seenAt: WallTime) {
        let status = isPresent ? overview?.status : nil
        let remaining = Int(status?.remaining ?? 0)
        current = isPresent ? overview?.current ?? [] : []
        recent = overview?.recent ?? []
        moreCurrent = max(0, remaining - current.count)
        isPaused = overview?.status.isPaused ?? false
        speedLimit = overview?.status.settings.speedLimit ?? 0
        unseenFailures = recent.count { $0.state == .failed && ($0.endedAt?.microseconds ?? 0) > seenAt.microseconds }
        speed = status?.speed ?? 0
        if let status, let total = status.total, remaining > 0 {
            percent = total == 0 ? 100 : min(100, Int(Double(status.received) / Double(total) * 100))
            let missing = total > status.received ? total - status.received : 0
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
