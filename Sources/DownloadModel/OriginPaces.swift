/// What one origin (scheme, host and port) asked for by refusing requests (429, 503): a pause, and a slower pace from then on.
///
/// The pause holds the application whose request was refused for as long as the server said, and others for minutes: no application closes a
/// server to another for a day.
public struct OriginPace: Sendable {
    /// The most that an application waits for what another provoked.
    public static let longestForOthers: Duration = .seconds(300)
    /// After a refusal without a rule, and the most that refusals make of it.
    private static let firstInterval: Duration = .seconds(1)
    private static let mostInterval: Duration = .seconds(60)
    /// After so many answers in a row the interval is halved; below the least it is over.
    private static let answersToHasten = 10
    private static let leastInterval: Duration = .milliseconds(200)
    /// So long after the last refusal it is tried again whether the server takes requests at the first interval.
    private static let trustAfter: Duration = .seconds(300)
    private static let mostApps = 64

    /// The least time between two requests; zero: none is kept any more.
    public private(set) var interval: Duration = .zero
    /// Since when requests are refused, and by which status the last was.
    public private(set) var since: WallTime?
    public private(set) var status: UInt32 = 0
    private var refusedAt: WallTime?
    private var answers = 0
    /// The interval went back to the first after an answer, and no other answer has come since.
    private var isProbing = false
    /// That was refused: the server has a limit, and was not merely out of order for a while.
    private var isLimited = false
    private var pauses: [String: WallTime] = [:]
    private var othersUntil: WallTime?
    private var pausedAt: WallTime?
    /// Requests that kept the interval; and those that somebody wanted at once, which keep it among themselves.
    private var pacing = HostLoad.Pacing()
    private var urgent = HostLoad.Pacing()

    public init() {}

    /// When the next request of `app` may start; nil: as soon as those under way have gone out.
    ///
    /// - Parameter isUrgent: somebody wants it at once: it waits for no pause, and for no request that was not urgent.
    public func opens(for app: String, isUrgent: Bool, now: WallTime) -> WallTime? {
        if isUrgent { return urgent.next(interval, now: now) }
        guard let next = pacing.next(interval, now: now) else { return nil }
        return max(next, pausedUntil(for: app) ?? next)
    }

    /// Until when a pause holds `app`.
    public func pausedUntil(for app: String) -> WallTime? { pauses[app] ?? othersUntil }

    /// The longest pause of all.
    public var pausedUntil: WallTime? { (pauses.values + [othersUntil].compactMap { $0 }).max() }

    /// The server refused a request of `app` that was started at `start`.
    ///
    /// - Parameter ruled: the interval that the user's rule asks for; zero: none.
    public mutating func refused(
        _ status: UInt32, startedAt start: WallTime, retryAfter: Duration?, by app: String, ruled: Duration, now: WallTime
    ) {
        self.status = status
        if let retryAfter, retryAfter > .zero {
            pauses = pauses.filter { $0.value > now }
            pausedAt = now
            let until = now + retryAfter
            // Each app's own is not less than what holds all.
            if pauses[app] != nil || pauses.count < Self.mostApps {
                pauses[app] = [pauses[app], othersUntil, until].compactMap { $0 }.max()
            }
            othersUntil = max(othersUntil ?? now, min(until, now + Self.longestForOthers))
            for (app, time) in pauses { pauses[app] = max(time, othersUntil ?? time) }
        }
        answers = 0
        // Requests that were under way together are refused together: that is one refusal.
        if let refusedAt, start <= refusedAt { return }
        if isProbing { (isProbing, isLimited) = (false, true) }
        interval = min(max(Self.firstInterval, max(interval, ruled) * 2), max(Self.mostInterval, ruled))
        refusedAt = now
        since = since ?? now
        pacing.passed(now)
    }

    /// The server answered a request that was started at `start`, whatever it answered: a file, a redirect, that there is no such file.
    public mutating func answered(startedAt start: WallTime, ruled: Duration, now: WallTime) {
        guard let refusedAt, start > refusedAt else { return }
        if pausedAt.map({ start > $0 }) ?? true { (pauses, othersUntil, pausedAt) = ([:], nil, nil) }
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

    /// A request starts; `sent` or `gaveUp` follows.
    mutating func started(_ number: DownloadNumber, isUrgent: Bool, at now: WallTime) {
        if isUrgent { urgent.started(number, at: now) } else { pacing.started(number, at: now) }
    }

    mutating func sent(_ number: DownloadNumber, at time: WallTime) {
        pacing.sent(number, at: time)
        urgent.sent(number, at: time)
    }

    mutating func gaveUp(_ number: DownloadNumber) {
        pacing.gaveUp(number)
        urgent.gaveUp(number)
    }

    mutating func shift(by delta: Duration) {
        pauses = pauses.mapValues { $0 + delta }
        (since, refusedAt) = (since.map { $0 + delta }, refusedAt.map { $0 + delta })
        (othersUntil, pausedAt) = (othersUntil.map { $0 + delta }, pausedAt.map { $0 + delta })
        pacing.shift(by: delta)
        urgent.shift(by: delta)
    }

    /// A pause that a process before this one was asked for by `app`.
    mutating func recall(until time: WallTime, by app: String, status: UInt32, now: WallTime) {
        pauses[app] = max(pauses[app] ?? time, time)
        othersUntil = max(othersUntil ?? now, min(time, now + Self.longestForOthers))
        (self.status, since, refusedAt, pausedAt) = (status, since ?? now, refusedAt ?? now, now)
        for (app, time) in pauses { pauses[app] = max(time, othersUntil ?? time) }
    }

    /// Whether nothing waits for it any more.
    public func isOver(now: WallTime) -> Bool { interval == .zero && pausedUntil.map { $0 <= now } ?? true }
}

/// The paces of all origins that refused requests: a few, and as few as it can be.
public struct OriginPaces: Sendable {
    private static let most = 4096
    private var paces: [String: OriginPace] = [:]

    public init() {}

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
        var pace = paces[origin] ?? OriginPace()
        body(&pace)
        paces[origin] = pace.isOver(now: now) ? nil : pace
    }

    /// Those that hold somebody, by origin.
    public func all(now: WallTime) -> [String: OriginPace] { paces.filter { !$0.value.isOver(now: now) } }

    mutating func gaveUp(_ origin: String, _ number: DownloadNumber) { paces[origin]?.gaveUp(number) }

    mutating func forget(_ origin: String) { paces[origin] = nil }

    mutating func shift(by delta: Duration) { for origin in paces.keys { paces[origin]?.shift(by: delta) } }
}
