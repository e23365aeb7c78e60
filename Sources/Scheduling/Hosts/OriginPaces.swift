public import DownloadModel

/// What one origin (scheme, host and port) asked for by refusing requests (429, 503): a pause, and a slower pace from then on.
///
/// A pause holds the application whose request was refused for as long as the server said, and other applications for minutes only: no
/// application can close a server to another one for a day.
public struct OriginPace: Sendable {
    /// The longest wait of an application for a pause that another application provoked, counted from the first refusal.
    public static let longestForOthers: Duration = .seconds(300)
    /// After such a wait the same refusals hold no other application again for so long: a refusal every few minutes must not starve it.
    private static let reprieve: Duration = .seconds(300)
    /// After a refusal without a rule, and the most that refusals make of it.
    private static let firstInterval: Duration = .seconds(1)
    private static let mostInterval: Duration = .seconds(60)
    /// After so many answers in a row the interval is halved; below the least the interval ends.
    private static let answersToHasten = 10
    private static let leastInterval: Duration = .milliseconds(200)
    /// So long after the last refusal the first interval is tried again.
    private static let trustAfter: Duration = .seconds(300)
    /// A refusal that is older than this, with no request since, counts no longer.
    private static let memory: Duration = .seconds(3600)
    /// The pauses of so many applications are remembered; of more, the longest.
    private static let mostApps = 1024

    /// The least time between two requests; zero: none is kept.
    public private(set) var interval: Duration = .zero
    /// The first refusal of the series, and the status of the last.
    public private(set) var since: WallTime?
    public private(set) var status: UInt32 = 0
    private var refusedAt: WallTime?
    private var answers = 0
    /// An answer brought the first interval back, and no other answer has come since.
    private var isProbing = false
    /// The server refused the first interval again: it has a limit, and was not merely out of order for a while.
    private var isLimited = false
    private var pauses: [String: WallTime] = [:]
    /// The pause that holds every application, and the refusal from which its length is counted.
    private var othersUntil: WallTime?
    private var othersSince: WallTime?
    private var pausedAt: WallTime?
    private var pacing = HostLoad.Pacing()

    public init() {}

    /// When the next request of `app` may start; nil: as soon as the requests under way have gone out.
    ///
    /// - Parameter isUrgent: somebody wants it at once: neither pause nor interval holds it.
    public func opens(for app: String, isUrgent: Bool, now: WallTime) -> WallTime? {
        if isUrgent { return now }
        guard let next = pacing.next(interval, now: now) else { return nil }
        return max(next, pausedUntil(for: app) ?? next)
    }

    /// Until when a pause holds `app`.
    public func pausedUntil(for app: String) -> WallTime? { [pauses[app], othersUntil].compactMap { $0 }.max() }

    /// The longest pause of all.
    public var pausedUntil: WallTime? { (pauses.values + [othersUntil].compactMap { $0 }).max() }

    /// The server refused a request of `app` that was started at `start`.
    ///
    /// - Parameter ruled: the interval of the user's rule; zero: none.
    mutating func refused(
        _ status: UInt32, startedAt start: WallTime, retryAfter: Duration?, by app: String, ruled: Duration, now: WallTime
    ) {
        self.status = status
        since = since ?? now
        if let retryAfter, retryAfter > .zero { pause(until: now + retryAfter, by: app, refusedAt: now, now: now) }
        answers = 0
        // Requests that were under way together are refused together: they count as one refusal.
        if let refusedAt, start <= refusedAt { return }
        if isProbing { (isProbing, isLimited) = (false, true) }
        if interval == .zero { pacing.passed(now) }
        interval = min(max(Self.firstInterval, max(interval, ruled) * 2), max(Self.mostInterval, ruled))
        refusedAt = now
    }

    private mutating func pause(until: WallTime, by app: String, refusedAt time: WallTime, now: WallTime) {
        pauses = pauses.filter { $0.value > now }
        pausedAt = now
        pauses[app] = max(pauses[app] ?? until, until)
        if pauses.count > Self.mostApps, let first = pauses.min(by: { ($0.value, $0.key) < ($1.value, $1.key) })?.key {
            pauses[first] = nil
        }
        if othersSince.map({ now - $0 > Self.longestForOthers + Self.reprieve }) ?? true { (othersSince, othersUntil) = (time, nil) }
        let latest = (othersSince ?? time) + Self.longestForOthers
        othersUntil = max(othersUntil ?? time, min(until, latest))
    }

    /// The server answered a request that was started at `start`, whatever it answered: a file, a redirect, that there is no such file.
    mutating func answered(startedAt start: WallTime, ruled: Duration, now: WallTime) {
        if pausedAt.map({ start > $0 }) ?? true { (pauses, othersUntil, othersSince, pausedAt) = ([:], nil, nil, nil) }
        guard let refusedAt, start > refusedAt else { return }
        if isProbing || now - refusedAt > Self.trustAfter { (isProbing, isLimited) = (false, false) }
        answers += 1
        if interval > max(Self.firstInterval, ruled), !isLimited {
            (interval, answers, isProbing) = (max(Self.firstInterval, ruled), 0, true)
        } else if answers >= Self.answersToHasten {
            (interval, answers) = (interval / 2, 0)
        }
        guard interval < Self.leastInterval || interval <= ruled else { return }
        interval = .zero
        if pausedAt == nil { (self.refusedAt, since) = (nil, nil) }
    }

    /// A request that keeps the interval starts; `sent` or `gaveUp` follows.
    mutating func started(_ id: RequestID, at now: WallTime) { pacing.started(id, at: now) }

    /// A request went out that was not urgent, perhaps one that was started before there was an interval.
    mutating func sent(_ id: RequestID, at time: WallTime) {
        pacing.sent(id, at: time)
        if interval > .zero { pacing.passed(time) }
    }

    mutating func gaveUp(_ id: RequestID) { pacing.gaveUp(id) }

    mutating func shift(by delta: Duration) {
        pauses = pauses.mapValues { $0 + delta }
        (since, refusedAt, pausedAt) = (since.map { $0 + delta }, refusedAt.map { $0 + delta }, pausedAt.map { $0 + delta })
        (othersUntil, othersSince) = (othersUntil.map { $0 + delta }, othersSince.map { $0 + delta })
        pacing.shift(by: delta)
    }

    /// Takes in a pause that an earlier process was asked for, by a request of `app`, at `refusal`.
    mutating func recall(until: WallTime, by app: String, status: UInt32, refusedAt refusal: WallTime, now: WallTime) {
        guard until > now else { return }
        let refusal = min(refusal, now)
        pause(until: until, by: app, refusedAt: refusal, now: now)
        (self.status, since, refusedAt) = (status, min(since ?? refusal, refusal), max(refusedAt ?? refusal, refusal))
    }

    /// Whether nothing waits for it.
    public func isOver(now: WallTime) -> Bool {
        guard pausedUntil.map({ $0 <= now }) ?? true else { return false }
        if interval == .zero { return true }
        return pacing.unsent.isEmpty && [refusedAt, pacing.last].allSatisfy { $0.map { now - $0 > Self.memory } ?? true }
    }
}

extension SlowedHost {
    public init(_ pace: OriginPace) {
        self.init(interval: pace.interval, since: pace.since, pausedUntil: pace.pausedUntil, status: pace.status)
    }
}

/// The paces of all origins that refused requests: at most `most`.
public struct OriginPaces: Sendable {
    private static let most = 4096
    private var paces: [String: OriginPace] = [:]

    public init() {}

    var isEmpty: Bool { paces.isEmpty }

    public subscript(_ origin: String) -> OriginPace? { paces[origin] }

    /// Changes the pace of `origin`, where there is one or `creates` one.
    mutating func change(_ origin: String, creates: Bool = false, now: WallTime, _ body: (inout OriginPace) -> Void) {
        guard creates || paces[origin] != nil else { return }
        if paces[origin] == nil, paces.count >= Self.most {
            paces = paces.filter { !$0.value.isOver(now: now) }
            if paces.count >= Self.most, let oldest = paces.min(by: { ($0.value.since ?? now) < ($1.value.since ?? now) })?.key {
                paces[oldest] = nil
            }
        }
        var pace = paces[origin].flatMap { $0.isOver(now: now) ? nil : $0 } ?? OriginPace()
        body(&pace)
        paces[origin] = pace.isOver(now: now) ? nil : pace
    }

    /// Those that hold somebody, by origin.
    public func all(now: WallTime) -> [String: OriginPace] { paces.filter { !$0.value.isOver(now: now) } }

    mutating func gaveUp(_ origin: String, _ id: RequestID) { paces[origin]?.gaveUp(id) }

    mutating func forget(_ origin: String) { paces[origin] = nil }

    mutating func shift(by delta: Duration) { for origin in paces.keys { paces[origin]?.shift(by: delta) } }
}
