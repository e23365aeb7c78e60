public import DownloadModel

/// The effect of an origin's refusals (429, 503): a pause, and a slower pace afterwards. An origin is a scheme, a host and a port.
///
/// A pause delays the application whose request was refused for as long as the server said. Other applications wait minutes only, so that
/// no application can block a server for the others for a day.
///
/// Some servers refuse one file again and again, and send every other file. So each download slows and pauses the origin once, until the
/// origin answers that download. A server that limits its requests refuses other downloads, too, and each of them slows the origin. While
/// the first interval is tried again, every refusal counts.
public struct OriginPace: Sendable {
    /// The longest wait for a pause that another application caused, counted from the first refusal.
    public static let longestForOthers: Duration = .seconds(300)
    /// After such a wait, further refusals delay no other application for this long. Otherwise, a refusal every few minutes could starve
    /// it.
    private static let reprieve: Duration = .seconds(300)
    /// The interval after a first refusal without a host rule; and the longest interval that refusals cause.
    private static let firstInterval: Duration = .seconds(1)
    private static let mostInterval: Duration = .seconds(60)
    /// After this many answers in a row, the interval is halved. Below `leastInterval`, or at the host rule's interval, the slow pace ends.
    private static let answersToHasten = 10
    private static let leastInterval: Duration = .milliseconds(200)
    /// This long after the last refusal, the first interval is tried again.
    private static let trustAfter: Duration = .seconds(300)
    /// A refusal older than this, with no request since, no longer counts. A refused download may be retried only after its `Retry-After`,
    /// so its refusal counts as long as that in addition.
    private static let memory: Duration = .seconds(3600)
    /// At most this many applications' pauses are remembered: the longest ones.
    private static let mostApps = 1024
    /// At most this many downloads are remembered as having slowed the origin. After that, each may slow the origin once more.
    private static let mostDownloads = 256

    /// Whether the origin refused a download that is not private. Otherwise no list of hosts may tell it.
    var isShown = false
    /// The least time between two requests; zero: none.
    public private(set) var interval: Duration = .zero
    /// The time of the first refusal of the series, and the status of the last refusal.
    public private(set) var since: WallTime?
    public private(set) var status: UInt32 = 0
    private var refusedAt: WallTime?
    private var answers = 0
    /// An answer restored the first interval, and no further answer has come since.
    private var isProbing = false
    /// The server refused the first interval again, so it has a limit, and was not just overloaded for a moment.
    private var isLimited = false
    private var pauses: [String: WallTime] = [:]
    /// The pause for every application, and the refusal from which its length is counted.
    private var othersUntil: WallTime?
    private var othersSince: WallTime?
    private var pausedAt: WallTime?
    private var pacing = HostLoad.Pacing()
    /// The downloads that have slowed the origin, and that the origin has not answered since.
    private var slowedBy: Set<DownloadNumber> = []
    /// The downloads of `slowedBy` that the origin has refused since its last answer to any download.
    private var yielding: Set<DownloadNumber> = []
    /// Until when `slowedBy` counts, even if the pace delays nothing.
    private var remembersUntil: WallTime?

    public init() {}

    /// When the next request of `app` may start; nil: once the started requests have gone out.
    ///
    /// - Parameter isUrgent: a caller wants the download at once: neither pause nor interval delays it.
    public func opens(for app: String, isUrgent: Bool, now: WallTime) -> WallTime? {
        if isUrgent { return now }
        guard let next = pacing.next(interval, now: now) else { return nil }
        return max(next, pausedUntil(for: app) ?? next)
    }

    /// The end of the pause for `app`.
    public func pausedUntil(for app: String) -> WallTime? { [pauses[app], othersUntil].compactMap { $0 }.max() }

    /// The end of the longest pause.
    public var pausedUntil: WallTime? { (pauses.values + [othersUntil].compactMap { $0 }).max() }

    /// The server refused a request of `app` that was started at `start`.
    ///
    /// - Parameters:
    ///   - download: the download of the request.
    ///   - ruled: the interval of the user's host rule; zero: none.
    mutating func refused(
        _ status: UInt32, startedAt start: WallTime, retryAfter: Duration?, of download: DownloadNumber, by app: String, ruled: Duration,
        now: WallTime
    ) {
        remembersUntil = max(remembersUntil ?? now, now + (retryAfter ?? .zero) + Self.memory)
        if slowedBy.contains(download), !isProbing {
            yielding.insert(download)
            return
        }
        self.status = status
        since = since ?? now
        if let retryAfter, retryAfter > .zero { pause(until: now + retryAfter, by: app, refusedAt: now, now: now) }
        answers = 0
        // Requests in flight at the same time are refused together: they count as one refusal.
        if let refusedAt, start <= refusedAt { return }
        if slowedBy.count >= Self.mostDownloads { (slowedBy, yielding) = ([], []) }
        slowedBy.insert(download)
        yielding.insert(download)
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

    /// Whether other downloads of the same application go before `download`, because the origin may send their files.
    func yields(_ download: DownloadNumber) -> Bool { yielding.contains(download) }

    /// The server answered a request of `download` that was started at `start`, be it with a file, a redirect or an error like 404.
    ///
    /// - Parameter isRedirect: the origin may still refuse the target of the redirect.
    mutating func answered(
        _ download: DownloadNumber, startedAt start: WallTime, isRedirect: Bool = false, ruled: Duration, now: WallTime
    ) {
        if !isRedirect {
            slowedBy.remove(download)
            yielding = []
        }
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
    }

    /// A request that keeps the interval starts; `sent` or `gaveUp` follows.
    mutating func started(_ id: RequestID, at now: WallTime) { pacing.started(id, at: now) }

    /// A request that was not urgent went out; it may have been started before there was an interval.
    mutating func sent(_ id: RequestID, at time: WallTime) {
        pacing.sent(id, at: time)
        if interval > .zero { pacing.passed(time) }
    }

    mutating func gaveUp(_ id: RequestID) { pacing.gaveUp(id) }

    mutating func shift(by delta: Duration) {
        pauses = pauses.mapValues { $0 + delta }
        (since, refusedAt, pausedAt) = (since.map { $0 + delta }, refusedAt.map { $0 + delta }, pausedAt.map { $0 + delta })
        (othersUntil, othersSince) = (othersUntil.map { $0 + delta }, othersSince.map { $0 + delta })
        remembersUntil = remembersUntil.map { $0 + delta }
        pacing.shift(by: delta)
    }

    /// Restores a pause of an earlier process, requested at `refusal` by an answer to `app`.
    mutating func recall(until: WallTime, by app: String, status: UInt32, refusedAt refusal: WallTime, now: WallTime) {
        guard until > now else { return }
        let refusal = min(refusal, now)
        pause(until: until, by: app, refusedAt: refusal, now: now)
        (self.status, since, refusedAt) = (status, min(since ?? refusal, refusal), max(refusedAt ?? refusal, refusal))
    }

    /// Whether the pace delays nothing any more.
    public func isOver(now: WallTime) -> Bool {
        guard pausedUntil.map({ $0 <= now }) ?? true else { return false }
        if interval == .zero { return true }
        return pacing.unsent.isEmpty && [refusedAt, pacing.last].allSatisfy { $0.map { now - $0 > Self.memory } ?? true }
    }

    /// The part of the pace that still counts; nil: nothing of it counts. Once the pace delays nothing, only the downloads that have slowed
    /// the origin count, because the origin may refuse their files again and again.
    func remaining(now: WallTime) -> OriginPace? {
        guard isOver(now: now) else { return self }
        guard !slowedBy.isEmpty, let remembersUntil, now < remembersUntil else { return nil }
        var rest = OriginPace()
        (rest.slowedBy, rest.yielding, rest.remembersUntil) = (slowedBy, yielding, remembersUntil)
        (rest.refusedAt, rest.isProbing) = (refusedAt, isProbing)
        return rest
    }
}

extension SlowedHost {
    public init(_ pace: OriginPace) {
        self.init(interval: pace.interval, since: pace.since, pausedUntil: pace.pausedUntil, status: pace.status)
    }
}

/// The paces of all origins that refused requests: at most `most`. A pace that delays nothing any more may be among them.
public struct OriginPaces: Sendable {
    private static let most = 4096
    private var paces: [String: OriginPace] = [:]

    public init() {}

    var isEmpty: Bool { paces.isEmpty }

    public subscript(_ origin: String) -> OriginPace? { paces[origin] }

    /// Changes the pace of `origin`, if there is one or `creates` is true.
    mutating func change(_ origin: String, creates: Bool = false, now: WallTime, _ body: (inout OriginPace) -> Void) {
        guard creates || paces[origin] != nil else { return }
        if paces[origin] == nil, paces.count >= Self.most {
            paces = paces.filter { !$0.value.isOver(now: now) }
            if paces.count >= Self.most, let oldest = paces.min(by: { ($0.value.since ?? now) < ($1.value.since ?? now) })?.key {
                paces[oldest] = nil
            }
        }
        var pace = paces[origin]?.remaining(now: now) ?? OriginPace()
        body(&pace)
        paces[origin] = pace.remaining(now: now)
    }

    /// The paces that still delay requests, by origin.
    public func all(now: WallTime) -> [String: OriginPace] { paces.filter { !$0.value.isOver(now: now) } }

    mutating func gaveUp(_ origin: String, _ id: RequestID) { paces[origin]?.gaveUp(id) }

    mutating func forget(_ isForgotten: (_ origin: String) -> Bool) { paces = paces.filter { !isForgotten($0.key) } }

    mutating func shift(by delta: Duration) { for origin in paces.keys { paces[origin]?.shift(by: delta) } }
}
