import DownloadModel
import Testing

@testable import Scheduling

@Suite struct `The pace of an origin` {
    private let start = WallTime(microseconds: 1_000_000_000_000_000)
    private let numbers = Numbers()

    private func refuse(
        _ pace: inout OriginPace, at seconds: Int, startedAt: Int? = nil, retryAfter: Duration? = nil, of download: Int? = nil,
        by app: String = "A", ruled: Duration = .zero
    ) {
        pace.refused(
            503, startedAt: start + .seconds(startedAt ?? seconds), retryAfter: retryAfter, of: numbers.number(download), by: app,
            ruled: ruled, now: start + .seconds(seconds))
    }

    private func answer(
        _ pace: inout OriginPace, at seconds: Int, startedAt: Int? = nil, of download: Int? = nil, isRedirect: Bool = false,
        ruled: Duration = .zero
    ) {
        pace.answered(
            numbers.number(download), startedAt: start + .seconds(startedAt ?? seconds), isRedirect: isRedirect, ruled: ruled,
            now: start + .seconds(seconds))
    }

    /// nil: another download at each call.
    private final class Numbers {
        private var last: UInt64 = 10_000
        func number(_ download: Int?) -> DownloadNumber {
            last += 1
            return DownloadNumber(download.map(UInt64.init) ?? last)
        }
    }

    @Test(
        arguments: [
            (60, 60, 60), (300, 300, 300), (301, 301, 300), (86_400, 86_400, 300), (0, nil, nil),
        ] as [(Int, Int?, Int?)])
    func `delays the app that caused a pause as long as the server says, and others for minutes`(seconds: Int, own: Int?, others: Int?) {
        var pace = OriginPace()
        refuse(&pace, at: 0, retryAfter: .seconds(seconds))
        #expect(pace.pausedUntil(for: "A") == own.map { start + .seconds($0) })
        #expect(pace.pausedUntil(for: "B") == others.map { start + .seconds($0) })
        #expect(pace.pausedUntil == own.map { start + .seconds($0) })
        // A shorter pause shortens no longer one.
        refuse(&pace, at: 1, retryAfter: .seconds(1), by: "B")
        #expect(pace.pausedUntil(for: "A") == own.map { start + .seconds($0) } ?? start + .seconds(2))
    }

    @Test func `delays no urgent request`() {
        var pace = OriginPace()
        refuse(&pace, at: 0, retryAfter: .seconds(3600))
        #expect(pace.opens(for: "A", isUrgent: true, now: start) == start)
        #expect(pace.opens(for: "A", isUrgent: false, now: start) == start + .seconds(3600))
    }

    /// The seconds at which `app` may start, while "A" makes an urgent request every `period` seconds for two hours and is refused.
    private func openings(for app: String, period: Int, retryAfter: Int) -> [Int] {
        var pace = OriginPace()
        return (0..<7200).filter { second in
            if second.isMultiple(of: period) { refuse(&pace, at: second, retryAfter: .seconds(retryAfter)) }
            return pace.opens(for: app, isUrgent: false, now: start + .seconds(second)).map { $0 <= start + .seconds(second) } ?? false
        }
    }

    @Test(arguments: [1, 10, 59, 60, 299, 300, 301, 599, 600, 700], [1, 60, 300, 86_400])
    func `delays others for minutes, however often one app is refused`(period: Int, retryAfter: Int) {
        let openings = openings(for: "B", period: period, retryAfter: retryAfter)
        let gaps = zip([0] + openings, openings + [7200]).map { $1 - $0 }
        #expect(gaps.max().map { $0 <= 302 } == true, "\(gaps.max() ?? 0) s")
        if retryAfter == 86_400 { #expect(self.openings(for: "A", period: period, retryAfter: retryAfter).isEmpty) }
    }

    @Test func `delays each of very many refused downloads as long as the server said`() {
        var pace = OriginPace()
        for number in 1...200 { refuse(&pace, at: 0, retryAfter: .seconds(80_000 + number), by: "app \(number)") }
        #expect((1...200).allSatisfy { pace.pausedUntil(for: "app \($0)") == start + .seconds(80_000 + $0) })
        for number in 1...3000 { refuse(&pace, at: 0, retryAfter: .seconds(400), by: "other \(number)") }
        #expect((1...200).allSatisfy { pace.pausedUntil(for: "app \($0)") == start + .seconds(80_000 + $0) })
    }

    @Test func `survives a restart with its full length, for other apps too`() {
        var pace = OriginPace()
        pace.recall(until: start + .seconds(86_000), by: "A", status: 503, refusedAt: start + .seconds(-400), now: start)
        #expect(pace.pausedUntil(for: "A") == start + .seconds(86_000))
        #expect(pace.pausedUntil(for: "B").map { $0 <= start } == true)
        pace.recall(until: start + .seconds(-1), by: "C", status: 503, refusedAt: start + .seconds(-400), now: start)
        #expect(pace.pausedUntil(for: "C").map { $0 <= start } == true)
    }

    @Test func `is forgotten an hour after the last refusal and request`() {
        var pace = OriginPace()
        refuse(&pace, at: 0)
        pace.sent(RequestID(DownloadNumber(1), 1), at: start + .seconds(100))
        #expect(!pace.isOver(now: start + .seconds(3700)))
        #expect(pace.isOver(now: start + .seconds(3701)))
    }

    @Test func `ends with an answer to a request that started after the refusal, and not before`() {
        var pace = OriginPace()
        refuse(&pace, at: 10, retryAfter: .seconds(3600))
        answer(&pace, at: 11, startedAt: 9)
        #expect(pace.pausedUntil(for: "A") != nil)
        answer(&pace, at: 12, startedAt: 11)
        #expect(pace.pausedUntil(for: "A") == nil && pace.interval == .seconds(1))
    }

    @Test func `slows with each refusal, and the first good answer restores the first interval`() {
        var pace = OriginPace()
        var intervals: [Duration] = []
        for second in [0, 2, 5, 10, 20, 40, 80, 160] {
            refuse(&pace, at: second)
            intervals.append(pace.interval)
        }
        #expect(intervals == [2, 2, 4, 8, 16, 32, 60, 60].map { .seconds($0) }.enumerated().map { $0 == 0 ? .seconds(1) : $1 })
        answer(&pace, at: 230)
        #expect(pace.interval == .seconds(1), "it was out of order for a while")
        for second in 231...260 { answer(&pace, at: second) }
        #expect(pace.interval == .zero && pace.isOver(now: start + .seconds(261)))
    }

    @Test func `of a server with a limit does not return to the first interval again and again`() {
        var pace = OriginPace()
        for second in [0, 2, 5, 10] { refuse(&pace, at: second) }
        #expect(pace.interval == .seconds(8))
        answer(&pace, at: 20)
        #expect(pace.interval == .seconds(1))
        for second in [21, 24, 29] { refuse(&pace, at: second) }
        #expect(pace.interval == .seconds(8))
        answer(&pace, at: 40)
        #expect(pace.interval == .seconds(8), "ten answers halve it")
        for second in 41...49 { answer(&pace, at: second) }
        #expect(pace.interval == .seconds(4))
        // Minutes after the last refusal, the first interval is tried again.
        answer(&pace, at: 400)
        #expect(pace.interval == .seconds(1))
    }

    @Test func `is slowed and paused once by each download, until the server answers that download`() {
        var pace = OriginPace()
        refuse(&pace, at: 0, retryAfter: .seconds(20), of: 1)
        for second in [3, 9, 10] { refuse(&pace, at: second, retryAfter: .seconds(500), of: 1) }
        #expect(pace.interval == .seconds(1) && pace.pausedUntil == start + .seconds(20))
        refuse(&pace, at: 11, retryAfter: .seconds(30), of: 2)
        #expect(pace.interval == .seconds(2) && pace.pausedUntil == start + .seconds(41), "another download is refused, too")
        for second in 50...51 { answer(&pace, at: second) }
        refuse(&pace, at: 52, of: 1)
        #expect(pace.interval == .seconds(1))
        answer(&pace, at: 53, of: 1)
        refuse(&pace, at: 54, of: 1)
        #expect(pace.interval == .seconds(2), "the server sends that file, so the refusal is about the pace")
    }

    @Test func `is slowed by every refusal while the first interval is tried again`() {
        var pace = OriginPace()
        for second in [0, 2] { refuse(&pace, at: second, of: second) }
        answer(&pace, at: 10)
        #expect(pace.interval == .seconds(1))
        refuse(&pace, at: 11, of: 0)
        #expect(pace.interval == .seconds(2))
        refuse(&pace, at: 14, of: 2)
        #expect(pace.interval == .seconds(2), "the first interval is no longer tried")
    }

    @Test func `is slowed once by the target of a redirect of the same server, too`() {
        var pace = OriginPace()
        for second in [0, 2, 5] {
            answer(&pace, at: second, of: 1, isRedirect: true)
            refuse(&pace, at: second, of: 1)
        }
        #expect(pace.interval == .seconds(1))
    }

    @Test func `lets others go before a refused download, until the server has answered one`() {
        var pace = OriginPace()
        refuse(&pace, at: 0, of: 1)
        #expect(pace.yields(DownloadNumber(1)) && !pace.yields(DownloadNumber(2)))
        answer(&pace, at: 2, of: 2, isRedirect: true)
        #expect(pace.yields(DownloadNumber(1)), "the server may refuse the target")
        answer(&pace, at: 4, of: 2)
        #expect(!pace.yields(DownloadNumber(1)))
        refuse(&pace, at: 6, of: 1)
        #expect(pace.yields(DownloadNumber(1)))
    }

    @Test func `remembers a bounded number of refused downloads`() {
        var pace = OriginPace()
        for second in 0...3000 { refuse(&pace, at: second, of: second) }
        for second in 3001...3002 { answer(&pace, at: second) }
        refuse(&pace, at: 3003, of: 3000)
        #expect(pace.interval == .seconds(1), "remembered")
        refuse(&pace, at: 3004, of: 1)
        #expect(pace.interval == .seconds(2), "forgotten, so its refusal counts as a first one")
    }

    @Test func `counts concurrent refusals once, and never shortens the interval of the user's rule`() {
        var pace = OriginPace()
        for _ in 0..<8 { refuse(&pace, at: 5, startedAt: 0) }
        refuse(&pace, at: 6, startedAt: 1)
        #expect(pace.interval == .seconds(1))
        var ruled = OriginPace()
        refuse(&ruled, at: 0, ruled: .seconds(5))
        #expect(ruled.interval == .seconds(10))
        answer(&ruled, at: 1, ruled: .seconds(5))
        #expect(ruled.interval == .zero, "the rule's own interval is kept anyway")
    }

    @Test(arguments: [
        "http://h/a", "https://h/", "http://h:8080/x?y", "http://[::1]/a", "https://[::1]:9/a", "http://127.0.0.1:80/", "http://h",
    ]) func `belongs to the origin that a full parse of the URL finds`(text: String) throws {
        #expect(try DownloadURL.origin(of: DownloadURL(text).text) == DownloadURL(text).origin)
        #expect(DownloadURL.origin(of: "http://user:a@h/") == "http://h:80" && DownloadURL.origin(of: "no URL") == "")
    }
}

/// The paces of origins after download 1 was refused at the origin "o", and download 2 was answered 40 times there.
private struct EndedPaces {
    private static let start = WallTime(microseconds: 1_000_000_000_000_000)
    var paces = OriginPaces()

    init(retryAfter: Duration? = nil) {
        refuse(1, at: 0, retryAfter: retryAfter)
        for second in 1...40 { answer(2, at: second) }
    }

    mutating func refuse(_ download: UInt64, at seconds: Int, retryAfter: Duration? = nil) {
        let now = Self.start + .seconds(seconds)
        paces.change("o", creates: true, now: now) { pace in
            pace.refused(503, startedAt: now, retryAfter: retryAfter, of: DownloadNumber(download), by: "A", ruled: .zero, now: now)
        }
    }

    mutating func answer(_ download: UInt64, at seconds: Int) {
        let now = Self.start + .seconds(seconds)
        paces.change("o", now: now) { $0.answered(DownloadNumber(download), startedAt: now, ruled: .zero, now: now) }
    }

    func interval(at seconds: Int) -> Duration { paces.all(now: Self.start + .seconds(seconds))["o"]?.interval ?? .zero }
}

@Suite struct `The paces of origins` {
    @Test func `remember a refused download after its pace has ended, until the origin answers that download`() {
        var ended = EndedPaces()
        #expect(ended.interval(at: 40) == .zero)
        ended.refuse(1, at: 41)
        #expect(ended.interval(at: 41) == .zero, "a file that is refused again and again delays only itself")
        ended.refuse(3, at: 42)
        #expect(ended.interval(at: 42) == .seconds(1), "another download is refused, too")
        for second in 43...83 { ended.answer(2, at: second) }
        ended.answer(1, at: 84)
        ended.refuse(1, at: 85)
        #expect(ended.interval(at: 85) == .seconds(1), "the origin had answered that download")
    }

    @Test(arguments: [(10_799, true), (10_800, false)] as [(Int, Bool)])
    func `remember a refused download for an hour after its Retry-After`(seconds: Int, isRemembered: Bool) {
        var ended = EndedPaces(retryAfter: .seconds(7200))
        ended.refuse(1, at: seconds)
        #expect(ended.interval(at: seconds) == (isRemembered ? .zero : .seconds(1)))
    }

    @Test func `remember nothing once a person has reset the host`() {
        var ended = EndedPaces()
        ended.paces.forget { $0 == "o" }
        ended.refuse(1, at: 41)
        #expect(ended.interval(at: 41) == .seconds(1))
    }
}
