import DownloadModel
import Scheduling
import Testing

extension Desk {
    fileprivate func sent(_ number: UInt64, after delay: Duration = .zero) {
        now = now + delay
        sent(self[number])
    }

    fileprivate func fail(_ number: UInt64, _ status: UInt32, retryAfter: Duration? = nil) {
        fails(self[number], DownloadFailure(.httpStatus, "…", httpStatus: status, isRetryable: true, retryAfter: retryAfter))
    }

    /// Ends the transfer and the download: a slot is free.
    fileprivate func finish(_ number: UInt64) {
        try? steer(self[number], .cancel)
        ends(self[number], .stopped(nil))
    }

    /// Advances the clock until `isDone`; every request goes out at once.
    fileprivate func live(until isDone: () -> Bool) {
        for _ in 0..<100 where !isDone() { step() }
        #expect(isDone())
    }

    /// Advances the clock to the next due instant; every request started or permitted then goes out at once.
    fileprivate func step() {
        let before = (started.count, permitted.count)
        waitUntilDue()
        for number in started.dropFirst(before.0) + permitted.dropFirst(before.1) { sent(number) }
    }

    /// Adds downloads of `app` that started elsewhere and are redirected to `host`.
    fileprivate func redirect(_ numbers: ClosedRange<UInt64>, to host: String, app: String) {
        for number in numbers { hop(add(number, "http://elsewhere/\(number)", app: app), to: host) }
    }

    fileprivate func rule(_ host: String, _ rule: HostRule) { set { try? $0.hostRules.set(host, rule) } }
    fileprivate func stalled(_ number: UInt64, _ isStalled: Bool) { stalled(self[number], isStalled) }
    fileprivate func resume(_ number: UInt64) throws { try steer(self[number], .resume) }

    /// The rows of requests saved so far.
    fileprivate var requests: [HostRequest] { history.requests }
}

private let copy = CachedCopy(
    key: CopyKey(app: "", url: "http://h/f", directory: "/d", wantedName: nil), name: "f",
    stamp: FileStamp(identity: FileIdentity(device: 1, inode: 2, mount: 3, boot: "b"), size: 1, modified: 1), validators: nil)
/// The beginning of a large file, with a validator.
private let part = ResumeData(
    written: 1 << 20, total: 1 << 40, validator: .entityTag("\"1\""), identity: FileIdentity(device: 1, inode: 2, mount: 3, boot: "b"))
private let second = HostRule(requestInterval: .seconds(1))
/// One second plus the margin.
private let interval: Duration = .seconds(1) + .seconds(1) / 64

@Suite struct `Host rules` {
    @Test func `come from the longest name that matches the host's end`() throws {
        var rules = HostRules()
        #expect(rules.all == ["musicbrainz.org": second])
        #expect(rules.governing("musicbrainz.org").name == "musicbrainz.org")
        #expect(rules.governing("beta.musicbrainz.org.").name == "musicbrainz.org")
        #expect(rules.governing("notmusicbrainz.org") == ("notmusicbrainz.org", HostRule()))
        try rules.set("example.org", HostRule(connections: 2))
        try rules.set("a.example.org", HostRule(connections: 3))
        try rules.set("*", HostRule(connections: 1))
        #expect(rules.governing("x.a.example.org") == ("a.example.org", HostRule(connections: 3)))
        #expect(rules.governing("b.example.org") == ("example.org", HostRule(connections: 2)))
        #expect(rules.governing("org") == ("org", HostRule(connections: 1)), "its own count, by the rule of all others")
        #expect(rules.governing("127.0.0.1").name == "127.0.0.1")
        try rules.set("0.0.1", second)
        #expect(rules.governing("127.0.0.1").rule == HostRule(connections: 1), "an address has no subdomains")
        try rules.set("example.org", HostRule())
        #expect(rules.governing("b.example.org").name == "b.example.org")
    }

    @Test func `that are built in fill the gaps of a rule, and return when it is removed`() throws {
        var rules = HostRules()
        try rules.set("musicbrainz.org", HostRule(connections: 1))
        #expect(rules.all["musicbrainz.org"] == HostRule(connections: 1, requestInterval: .seconds(1)))
        try rules.set("musicbrainz.org", HostRule(requestInterval: .zero))
        #expect(rules.governing("musicbrainz.org").rule.requestInterval == .zero)
        try rules.set("musicbrainz.org", HostRule())
        #expect(rules.all == ["musicbrainz.org": second])
    }

    @Test func `are at most a thousand`() throws {
        var rules = HostRules()
        for number in 0..<Limits.hostRules { try rules.set("h\(number)", second) }
        #expect(throws: Refusal.self) { try rules.set("one-more", second) }
        try rules.set("h0", HostRule(connections: 1))
        try rules.set("one-more", HostRule())
    }
}

@Suite struct `A request interval` {
    @Test func `is kept between requests as they go out, whoever makes them`() {
        let desk = Desk()
        for number in UInt64(1)...3 { desk.add(number, "http://musicbrainz.org/\(number)", app: "app\(number)") }
        #expect(desk.started == [1])
        desk.wait(.seconds(5))
        #expect(desk.started == [1], "the first has not gone out yet")
        desk.sent(1)
        let first = desk.now
        #expect(desk.scheduler.nextWake == first + interval)
        desk.wait(.milliseconds(1000))
        #expect(desk.started == [1])
        desk.waitUntilDue()
        #expect(desk.started == [1, 2])
        desk.sent(2, after: .milliseconds(3))
        #expect(desk.scheduler.nextWake == first + interval * 2 + .milliseconds(3))
        desk.waitUntilDue()
        #expect(desk.started == [1, 2, 3])
    }

    /// No turn would refresh the host, so its alarm would ring again at once.
    @Test func `wakes nobody while the journal is full`() throws {
        let desk = Desk { try? $0.hostRules.set("h", second) }
        desk.add(1)
        desk.add(2)
        desk.sent(1)
        #expect(desk.scheduler.nextWake == desk.now + interval)
        desk.now = desk.now + interval
        try desk.turn([.journalFull(true), .time])
        #expect(desk.started == [1] && desk.scheduler.nextWake == nil)
        try desk.turn([.journalFull(false)])
        #expect(desk.started == [1, 2])
    }

    @Test func `is kept by retries, too`() {
        let desk = Desk { try? $0.hostRules.set("h", second) }
        desk.add(1)
        desk.sent(1)
        desk.fail(1, 500)
        desk.add(2)
        #expect(desk.started == [1])
        desk.live { desk.started.count == 3 }
        #expect(Set(desk.started) == [1, 2])
        let times = desk.requests.filter { !$0.isSent }.map(\.at)
        for (a, b) in zip(times, times.dropFirst()) { #expect(b - a >= interval) }
    }

    @Test func `gives each waiting download a reason, an end and a place`() {
        let desk = Desk { try? $0.hostRules.set("h", second) }
        for number in UInt64(1)...4 { desk.add(number) }
        desk.sent(1)
        let start = desk.now
        for number in 2...4 {
            let hold = desk.scheduler.hold(of: desk[UInt64(number)], now: desk.now)
            #expect(hold?.reason == .rateLimit)
            #expect(hold?.until.map { $0 - start >= .seconds(number - 1) && $0 - start < .seconds(number) } == true)
            #expect(desk.ahead(UInt64(number)) == number - 2)
        }
        #expect(desk[2].state == .queued, "what is kept on disk is that it is queued")
    }

    @Test func `of an option applies to downloads that carry it, and delays no others`() {
        let desk = Desk { $0.maxActive = 0 }
        for number in UInt64(1)...2 { desk.add(number) { $0.options.requestInterval = .seconds(10) } }
        for number in UInt64(3)...4 { desk.add(number) }
        #expect(desk.started == [1, 3, 4])
        desk.sent(1)
        desk.wait(.seconds(9))
        #expect(desk.started == [1, 3, 4])
        #expect(desk.hold(2) == .rateLimit)
        desk.waitUntilDue()
        #expect(desk.started == [1, 3, 4, 2])
    }

    @Test func `of an option does not delay its first download, nor do others lengthen its wait`() throws {
        let desk = Desk { $0.maxActive = 4 }
        for number in UInt64(1)...24 { desk.add(number) }
        for number in UInt64(25)...27 { desk.add(number) { $0.options.requestInterval = .seconds(60) } }
        #expect(desk.started == [1, 2, 3, 4])
        #expect(desk.hold(25) == nil && desk.ahead(25) == 20)
        for number in 26...27 {
            let hold = try #require(desk.scheduler.hold(of: desk[UInt64(number)], now: desk.now))
            let turns = number - 25
            #expect(hold.reason == .rateLimit && hold.until.map { $0 - desk.now == .seconds(60 * turns) } == true)
            #expect(desk.ahead(UInt64(number)) == turns)
        }
        // The first download has started, and the next one waits for the interval, but no longer.
        for number in UInt64(1)...21 { desk.finish(number) }
        #expect(desk.started.last == 25)
        desk.sent(25)
        let hold = try #require(desk.scheduler.hold(of: desk[26], now: desk.now))
        #expect(hold.reason == .rateLimit && hold.until.map { $0 - desk.now >= .seconds(60) && $0 - desk.now <= .seconds(61) } == true)
        #expect(desk.ahead(26) == 0)
    }

    @Test func `of an option that a redirect to the same host keeps delays no others there`() {
        let desk = Desk()
        desk.add(1) { $0.options.requestInterval = .seconds(3600) }
        desk.sent(1)
        desk.hop(desk[1], to: "h")
        #expect(desk.hold(1) == .rateLimit)
        desk.add(2)
        #expect(desk.started == [1, 2] && desk.hold(2) == nil)
        desk.finish(2)
        desk.waitUntilDue()
        #expect(desk.permitted == [1])
    }

    @Test func `costs no more with many different lengths than with a few, and none is shortened`() {
        let desk = Desk { ($0.maxActive, $0.maxPerHost) = (0, 0) }
        for number in 1...400 {
            desk.add(UInt64(number)) { $0.options.requestInterval = .milliseconds(10_000 + number) }
        }
        for number in UInt64(401)...402 { desk.add(number) { $0.options.requestInterval = .seconds(3600) } }
        #expect(desk.started.count <= 70)
        for number in desk.started { desk.sent(number) }
        let before = desk.started.count
        desk.wait(.seconds(9))
        #expect(desk.started.count == before)
        for _ in 0..<100 {
            desk.wait(.seconds(30))
            for number in desk.started.dropFirst(before) { desk.sent(number) }
        }
        #expect(!(desk.started.contains(401) && desk.started.contains(402)), "within 50 minutes")
    }

    @Test func `of one application is at most doubled by many long ones of another application`() {
        let desk = Desk { ($0.maxActive, $0.maxPerHost) = (0, 0) }
        for number in 1...64 {
            desk.add(UInt64(number), app: "greedy") { $0.options.requestInterval = .seconds(40 * 86_400 + number) }
            desk.sent(UInt64(number))
        }
        #expect(desk.started.count == 64)
        for number in UInt64(101)...103 { desk.add(number, app: "patient") { $0.options.requestInterval = .seconds(1) } }
        #expect(desk.started.last == 101, "no request of its interval has been sent")
        for number in UInt64(102)...103 {
            desk.sent(number - 1)
            desk.wait(.milliseconds(990))
            #expect(desk.started.last == number - 1)
            desk.wait(.milliseconds(1100))
            #expect(desk.started.last == number)
        }
    }

    @Test func `outlasts the process, even if the last request may not have gone out`() {
        for isSent in [true, false] {
            let before = Desk { try? $0.hostRules.set("h", second) }
            before.add(1)
            if isSent { before.sent(1) }
            let after = Desk(requests: [before.requests.last!], at: before.now + .milliseconds(900)) { try? $0.hostRules.set("h", second) }
            after.add(2)
            #expect(after.started == [])
            #expect(after.scheduler.nextWake == (isSent ? before.now : after.now) + interval)
            after.waitUntilDue()
            #expect(after.started == [2])
        }
    }

    @Test func `moves with a clock change`() {
        let desk = Desk { try? $0.hostRules.set("h", second) }
        desk.add(1)
        desk.sent(1)
        desk.add(2)
        for jump in [-7200, 7200] {
            desk.clockJumps(by: .seconds(jump))
            #expect(desk.started == [1])
            #expect(desk.scheduler.nextWake == desk.now + interval)
        }
    }

    @Test func `does not delay a complete part file`() {
        let desk = Desk { try? $0.hostRules.set("h", second) }
        desk.add(1)
        desk.add(2) { $0.isWhole = true }
        #expect(desk[2].state == .verifying)
    }

    @Test func `of a domain continues from earlier requests to its hosts`() {
        let desk = Desk { settings in
            settings.maxActive = 0
            for host in ["a.org", "b.org"] { try? settings.hostRules.set(host, second) }
        }
        desk.add(1, "http://a.org/1")
        desk.sent(1)
        desk.now = desk.now + .milliseconds(500)
        desk.add(2, "http://b.org/2")
        desk.sent(2)
        desk.rule("org", second)
        for host in ["a.org", "b.org"] { desk.rule(host, HostRule()) }
        desk.add(3, "http://a.org/3")
        #expect(desk.scheduler.nextWake == desk.now + interval)
    }

    @Test func `applies from the moment it is set until it is removed`() {
        let desk = Desk { $0.maxActive = 0 }
        desk.add(1)
        desk.rule("h", second)
        desk.add(2)
        #expect(desk.started == [1] && desk.hold(2) == .rateLimit)
        desk.rule("h", HostRule())
        #expect(desk.started == [1, 2])
    }
}

@Suite struct `A host's refusal` {
    @Test func `that splits a domain during a request delays neither part`() {
        let desk = Desk { try? $0.hostRules.set("h", second) }
        desk.add(1, "http://www.h/1")
        desk.add(2, "http://h/2")
        desk.rule("www.h", HostRule(requestInterval: .milliseconds(100)))
        desk.add(3, "http://www.h/3")
        #expect(desk.started == [1])
        desk.wait(.seconds(5))
        #expect(!desk.started.contains(3), "the first has not gone out yet")
        desk.sent(1)
        let gone = desk.now
        desk.live { Set(desk.started) == [1, 2, 3] }
        let times = desk.requests.filter { !$0.isSent && $0.host == "www.h" }.map(\.at)
        #expect(times.last.map { $0 - gone >= .milliseconds(100) } == true)
    }

    @Test(arguments: [429, 503] as [UInt32]) func `slows all apps, more each time, and answers speed them up again`(status: UInt32) {
        let desk = Desk { $0.maxActive = 0 }
        desk.add(1)
        desk.fail(1, status)
        for number in UInt64(2)...3 { desk.add(number, app: "other") }
        #expect(desk.started == [1] && desk.hold(2) == .rateLimit && desk.hold(3) == .rateLimit)
        desk.live { desk.started.contains(2) }
        let first = desk.now
        desk.fail(2, status)
        desk.live { desk.started.contains(3) }
        #expect(desk.now - first >= .seconds(2))
        for _ in 0..<40 {
            let entry = desk[3]
            desk.began(entry)
        }
        let many = desk.started.count
        for number in UInt64(10)...12 { desk.add(number) }
        #expect(desk.started.count == many + 3, "it answers as it should: nothing is slowed any more")
    }

    /// A part of the server is broken: one file is refused whenever it is requested, and every other file is sent.
    @Test(arguments: [nil, Duration.seconds(60)] as [Duration?])
    func `of one file again and again delays later files by seconds only`(retryAfter: Duration?) {
        let desk = Desk()
        var answered = 0
        var sentFiles: Set<UInt64> = []
        func answer() {
            while answered < desk.started.count {
                let number = desk.started[answered]
                answered += 1
                desk.sent(number, after: .milliseconds(1))
                guard number > 1 else {
                    desk.fail(1, 503, retryAfter: retryAfter)
                    continue
                }
                desk.began(desk[number])
                desk.finish(number)
                sentFiles.insert(number)
            }
        }
        desk.add(1) { $0.options.retries = 1000 }
        answer()
        // After 30 answers, the server is no longer slowed.
        for number in UInt64(2)...60 {
            let added = desk.now
            desk.add(number)
            answer()
            for _ in 0..<50 where !sentFiles.contains(number) {
                desk.waitUntilDue()
                answer()
            }
            // The first refusal may pause the server, because nobody knows yet that it sends the other files.
            let most: Duration = number == 2 ? .seconds(62) : .seconds(5)
            #expect(desk.now - added <= most, "file \(number) came after \(desk.now - added)")
            desk.wait(.seconds(20))
            answer()
        }
        #expect(!desk[1].state.hasEnded && desk.started.filter { $0 == 1 }.count > 3, "it is tried again all the while")
    }

    /// The server answers one request in half a minute, and refuses all others.
    @Test func `of a server with a limit fails none of many files that begin at once`() {
        let desk = Desk { ($0.maxActive, $0.maxPerHost) = (0, 0) }
        let numbers = UInt64(1)...64
        var (seen, sentFiles) = (0, Set<UInt64>())
        var lastAnswer: WallTime?
        func answer() {
            while seen < desk.started.count {
                let number = desk.started[seen]
                seen += 1
                desk.sent(number, after: .milliseconds(1))
                if let lastAnswer, desk.now - lastAnswer < .seconds(30) {
                    desk.fail(number, 429)
                } else {
                    lastAnswer = desk.now
                    desk.began(desk[number])
                    desk.finish(number)
                    sentFiles.insert(number)
                }
            }
        }
        for number in numbers { desk.add(number) }
        answer()
        for _ in 0..<5000 where numbers.contains(where: { !desk[$0].state.hasEnded }) {
            desk.waitUntilDue()
            answer()
        }
        #expect(sentFiles == Set(numbers), "those that failed are missing")
    }

    @Test func `lets the next file of the application go before the refused one, once`() {
        let desk = Desk { ($0.maxActive, $0.maxPerHost) = (0, 1) }
        for number in UInt64(1)...4 { desk.add(number) { $0.options.retries = 1000 } }
        desk.sent(1, after: .milliseconds(1))
        desk.fail(1, 503)
        desk.live { desk.started.count == 2 }
        #expect(desk.started == [1, 2], "perhaps the server sends the other files")
        desk.began(desk[2])
        desk.finish(2)
        desk.live { desk.started.count == 3 }
        #expect(desk.started == [1, 2, 1], "it sends the others, so the refused one comes in its turn")
    }

    @Test func `ends after other answers, too: redirects and 304`() {
        for isRedirect in [true, false] {
            let desk = Desk { $0.maxActive = 0 }
            desk.add(1)
            desk.fail(1, 503)
            for number in 2...41 {
                desk.add(UInt64(number))
                desk.live { desk.started.contains(UInt64(number)) }
                if isRedirect {
                    desk.hop(desk[UInt64(number)], to: "elsewhere")
                } else {
                    desk.ends(desk[UInt64(number)], .unchanged(copy))
                }
            }
            let before = desk.started.count
            for number in UInt64(50)...52 { desk.add(number) }
            #expect(desk.started.count == before + 3)
        }
    }

    @Test func `of one request shortens no interval to a request that has not gone out yet`() {
        let desk = Desk { try? $0.hostRules.set("h", second) }
        for number in UInt64(1)...3 { desk.add(number) }
        desk.sent(1)
        desk.waitUntilDue()
        #expect(desk.started == [1, 2])
        desk.fail(1, 503)
        desk.wait(.seconds(10))
        #expect(desk.started == [1, 2], "the second is still on its way")
        desk.sent(2)
        let gone = desk.now
        desk.waitUntilDue()
        #expect(desk.started.count == 3 && desk.now - gone >= .seconds(2))
    }

    @Test func `of concurrent requests counts once`() {
        let desk = Desk { ($0.maxActive, $0.maxPerHost) = (0, 0) }
        for number in UInt64(1)...8 { desk.add(number) }
        for number in UInt64(1)...8 { desk.fail(number, 429) }
        desk.add(9)
        let until = desk.holdEnd(9)
        #expect(until.map { $0 - desk.now <= .seconds(2) } == true)
    }

    /// The machine's sleep has stopped the transfer, which has not ended when a person resumes the download.
    @Test func `does not lose a download that is resumed while its transfer stops`() throws {
        let desk = Desk()
        for number in UInt64(1)...2 { desk.add(number) }
        desk.fail(1, 503, retryAfter: .seconds(3600))
        desk.sleeps()
        #expect(desk[2].state == .queued && desk[2].work == .stopping)
        try desk.resume(2)
        desk.wakes()
        desk.ends(desk[2], .stopped(nil))
        #expect(desk.started == [1, 2, 2] && desk[2].state == .active)
    }

    @Test func `delays no download that a person wants at once, also after the machine has slept`() throws {
        let desk = Desk()
        desk.add(1)
        desk.fail(1, 503, retryAfter: .seconds(3600))
        try desk.resume(1)
        desk.sleeps()
        desk.ends(desk[1], .stopped(nil))
        desk.wakes()
        #expect(desk.started == [1, 1, 1] && desk[1].state == .active)
    }

    @Test func `with Retry-After pauses requests, over a restart too; zero shortens nothing`() {
        let desk = Desk()
        desk.add(1)
        desk.fail(1, 503, retryAfter: .seconds(60))
        desk.add(2, app: "other")
        #expect(desk.started == [1])
        #expect(desk.holdEnd(2) == desk.now + .seconds(60))
        let later = Desk([desk[1].record], at: desk.now + .seconds(1))
        later.add(2, app: "other")
        #expect(later.started == [] && later.hold(2) == .rateLimit)
        desk.wait(.seconds(59))
        #expect(desk.started == [1])

        // Further away than any server's pause: the clock was set back since.
        let back = Desk([desk[1].record], at: desk.now + .seconds(-4 * 365 * 24 * 3600))
        back.add(2, app: "other")
        #expect(back.started == [1, 2])

        let hasty = Desk()
        hasty.add(1)
        hasty.fail(1, 503, retryAfter: .zero)
        #expect(hasty.started == [1])
        hasty.wait(.milliseconds(400))
        #expect(hasty.started == [1])
    }

    @Test func `does not delay a person who resumes`() throws {
        let desk = Desk()
        desk.add(1)
        desk.fail(1, 429, retryAfter: .seconds(3600))
        desk.wait(.seconds(5))
        try desk.resume(1)
        #expect(desk.started == [1, 1])
    }

    @Test func `behind a redirect does not delay that person either`() throws {
        let desk = Desk()
        desk.add(1)
        desk.hop(desk[1], to: "mirror")
        let refusal = DownloadFailure(
            .httpStatus, "…", httpStatus: 503, host: "mirror", isRetryable: true, retryAfter: .seconds(3600))
        desk.ends(desk[1], .failed(refusal, madeProgress: false, nil))
        desk.wait(.seconds(5))
        try desk.resume(1)
        desk.hop(desk[1], to: "mirror")
        #expect(desk.started == [1, 1] && desk.permitted == [1, 1])
    }

    @Test func `affects its origin only: other ports and schemes continue`() {
        let desk = Desk()
        desk.add(1, "http://h/1")
        desk.fail(1, 503, retryAfter: .seconds(86_400))
        desk.add(2, "http://h:8080/2")
        desk.add(3, "https://h/3")
        desk.add(4, "http://h:80/4")
        #expect(desk.started == [1, 2, 3] && desk.hold(4) == .rateLimit)
    }

    @Test func `caused by one application delays others for minutes only`() {
        let desk = Desk()
        desk.add(1, app: "A")
        desk.fail(1, 503, retryAfter: .seconds(86_400))
        desk.add(2, app: "B")
        desk.add(3, app: "A")
        // One second more for each, because the other one may go first.
        #expect(desk.holdEnd(2) == desk.now + .seconds(301))
        #expect(desk.holdEnd(3) == desk.now + .seconds(86_401))
        desk.wait(.seconds(299))
        #expect(desk.started == [1])
        desk.wait(.seconds(1))
        #expect(desk.started == [1, 2])
    }

    @Test func `does not delay a person who resumes a download queued behind the refused one`() throws {
        let desk = Desk()
        desk.add(1, app: "A")
        desk.fail(1, 503, retryAfter: .seconds(86_400))
        for number in UInt64(2)...4 { desk.add(number, app: "A") }
        #expect(desk.started == [1])
        desk.now = desk.now + .milliseconds(1)
        try desk.resume(3)
        #expect(desk.started == [1, 3], "at once, and nobody else")
        // After a good answer, all downloads continue.
        desk.wait(.seconds(1))
        desk.began(desk[3])
        desk.sent(3)
        #expect(desk.holdEnd(2).map { $0 < desk.now + .seconds(5) } ?? true)
    }

    @Test func `does not change the user's rule, which covers all ports`() throws {
        let desk = Desk { try? $0.hostRules.set("h", HostRule(requestInterval: .seconds(60))) }
        desk.add(1, "http://h/1")
        desk.sent(1)
        desk.add(2, "http://h:8080/2")
        try desk.resume(2)
        #expect(desk.started == [1] && desk.hold(2) == .rateLimit)
    }

    @Test func `lets only a few of a resumed batch ask again`() throws {
        let desk = Desk { ($0.maxActive, $0.maxPerHost) = (0, 3) }
        desk.add(1)
        desk.fail(1, 503, retryAfter: .seconds(86_400))
        for number in UInt64(2)...9 { desk.add(number) }
        try desk.turn((2...9).map { .steer(desk[$0], .resume) })
        #expect(desk.started == [1, 2, 3, 4], "at once, as many as the limit of the host lets through")
        desk.now = desk.now + .milliseconds(1)
        for number in UInt64(2)...4 { desk.fail(number, 503, retryAfter: .seconds(86_400)) }
        #expect(desk.started == [1, 2, 3, 4] && (5...9).allSatisfy { desk.hold(UInt64($0)) == .rateLimit })
        #expect(Set(desk.told).isSuperset(of: [5, 6, 7, 8, 9]))
        // If a person resumes one of them now, it is tried at once.
        desk.now = desk.now + .milliseconds(1)
        try desk.resume(7)
        #expect(desk.started == [1, 2, 3, 4, 7])
        // After an answer, all downloads continue.
        desk.now = desk.now + .milliseconds(1)
        desk.began(desk[7])
        #expect(desk.holdEnd(5).map { $0 - desk.now < .seconds(60) } ?? true)
    }

    @Test func `does not delay a person who pauses and resumes`() throws {
        let desk = Desk()
        desk.add(1)
        desk.fail(1, 503, retryAfter: .seconds(86_400))
        desk.add(2)
        try desk.steer(desk[2], .pause)
        try desk.resume(2)
        #expect(desk.started == [1, 2])
    }

    @Test func `behind a redirect pauses the port that refused, over a restart too`() throws {
        let desk = Desk()
        desk.add(1, "https://h/1", app: "A")
        desk.sent(1)
        desk.hop(desk[1], to: "h", origin: "http://h:8080")
        desk.fail(1, 503, retryAfter: .seconds(3600))
        #expect(desk[1].record.lastFailure?.origin == "http://h:8080")
        let later = Desk([desk[1].record], at: desk.now)
        later.add(2, "https://h/2", app: "A")
        later.add(3, "http://h/3", app: "A")
        later.add(4, "http://h:8080/4", app: "A")
        #expect(later.started == [2, 3] && later.hold(4) == .rateLimit)
    }

    /// A host has 65,535 ports. The downloads of the first 64 wait by themselves; those of all others wait for one another.
    @Test func `delays the other downloads that share its lane, and each port beyond the 64th shares one`() {
        let desk = Desk { $0.maxActive = 1 }
        func port(_ number: UInt64) -> UInt64 { 1 + number % 250 }
        for number in UInt64(1)...500 { desk.add(number, "http://h:\(port(number))/") }
        // The first download runs, in no lane. So the ports of 2 to 65 have lanes of their own.
        #expect(desk.started == [1])
        desk.move(desk[66], to: 0)
        desk.finish(1)
        desk.fail(66, 503, retryAfter: .seconds(30))
        desk.move(desk[316], to: 0)
        #expect(port(316) == port(66))
        let delayed = (UInt64(1)...500).filter { desk[$0].state == .queued && desk.hold($0) == .rateLimit }
        #expect(Set(delayed.map(port)) == Set((UInt64(1)...250).map(port)).subtracting((UInt64(2)...65).map(port)))
    }

    @Test func `at one of very many ports delays the others until its pause ends, and no longer`() {
        let desk = Desk { $0.maxActive = 1 }
        for number in UInt64(1)...500 { desk.add(number, "http://h:\(1 + number % 250)/") }
        var ended = 0
        while ended < desk.started.count, ended < 600 {
            if ended == 200 { desk.fail(desk.started[ended], 503, retryAfter: .seconds(30)) } else { desk.finish(desk.started[ended]) }
            ended += 1
            if ended == desk.started.count, ended < 500 { desk.waitUntilDue() }
        }
        #expect(Set(desk.started).count == 500)
    }

    @Test func `counts even if the transfer is stopped at that moment`() throws {
        let desk = Desk()
        desk.add(1)
        try desk.steer(desk[1], .pause)
        desk.fail(1, 429, retryAfter: .seconds(60))
        desk.add(2)
        #expect(desk.started == [1] && desk.hold(2) == .rateLimit)
    }

    @Test func `is forgotten when somebody resets the host`() {
        let desk = Desk()
        desk.add(1)
        desk.fail(1, 503, retryAfter: .seconds(3600))
        desk.add(2)
        #expect(desk.scheduler.slowedOrigins(now: desk.now).keys.sorted() == ["http://h:80"])
        desk.resetHost("other")
        #expect(desk.scheduler.slowedOrigins(now: desk.now).count == 1)
        desk.resetHost("h")
        #expect(desk.scheduler.slowedOrigins(now: desk.now).isEmpty && desk.started == [1, 2])
    }

    @Test(arguments: [404, 403, 301, 500, 408] as [UInt32])
    func `is eased by any other answer, unless the server is in trouble`(status: UInt32) {
        let desk = Desk { ($0.maxActive, $0.maxPerHost) = (0, 0) }
        for number in 1...4 {
            desk.add(UInt64(number)) { $0.options.retries = 0 }
            desk.live { desk.started.contains(UInt64(number)) }
            desk.wait(.milliseconds(1))
            desk.fail(UInt64(number), 503)
        }
        let slow = desk.scheduler.slowedOrigins(now: desk.now)["http://h:80"]?.interval
        #expect(slow == .seconds(8))
        desk.add(5)
        desk.live { desk.started.contains(5) }
        desk.wait(.milliseconds(1))
        desk.fail(5, status)
        let isAnswer = status < 500 && status != 408
        #expect(desk.scheduler.slowedOrigins(now: desk.now)["http://h:80"]?.interval == (isAnswer ? .seconds(1) : slow))
    }

    @Test func `of another kind slows nothing`() {
        let desk = Desk()
        desk.add(1)
        desk.fail(1, 500, retryAfter: .seconds(60))
        desk.add(2)
        #expect(desk.started == [1, 2])
    }
}

@Suite struct `Knowledge of hosts` {
    @Test func `is forgotten when no download needs it, however many hosts there were`() throws {
        let desk = Desk { try? $0.hostRules.set("*", second) }
        func remembered() -> Int {
            desk.scheduler.allRows.count { if case .requested = $0 { true } else { false } }
        }
        for number in 1...6000 {
            desk.add(UInt64(number), "http://h\(number)/f")
            desk.sent(UInt64(number))
            desk.finish(UInt64(number))
            try desk.remove(desk[UInt64(number)])
            desk.wait(.milliseconds(10))
        }
        #expect(remembered() < 2500)
        #expect(remembered() >= 100, "those of the last second are still to be kept")
        #expect(desk.rows.requests.count == remembered(), "nor is more on disk")
    }

    @Test func `of the downloads' own intervals is forgotten, too, while others wait at the host`() {
        let desk = Desk { ($0.maxActive, $0.maxPerHost) = (0, 0) }
        desk.add(1)
        for number in 2...500 {
            desk.add(UInt64(number)) { $0.options.requestInterval = .milliseconds(number) }
            desk.sent(UInt64(number))
            desk.finish(UInt64(number))
            desk.wait(.seconds(1))
        }
        #expect(desk.requests.count > 900 && desk.rows.requests.count <= 64)
    }
}

@Suite struct `Connections to a host` {
    @Test func `are at most what its rule or MaxPerHost says`() {
        let desk = Desk { settings in
            (settings.maxActive, settings.maxPerHost) = (0, 2)
            try? settings.hostRules.set("one", HostRule(connections: 1))
            try? settings.hostRules.set("many", HostRule(connections: 0))
        }
        for number in UInt64(1)...3 { desk.add(number, "http://a.one/\(number)") }
        for number in UInt64(4)...6 { desk.add(number, "http://two/\(number)") }
        for number in UInt64(7)...12 { desk.add(number, "http://many/\(number)") }
        #expect(desk.started == [1, 4, 5, 7, 8, 9, 10, 11, 12])
        #expect(desk.hold(2) == .hostLimit && desk.hold(6) == .hostLimit)
        desk.finish(1)
        #expect(desk.started.last == 2 && desk.hold(3) == .hostLimit)
        desk.set { $0.maxPerHost = 3 }
        #expect(desk.started.last == 6)
    }

    @Test func `are not the wait reason of a download that only waits for its turn`() {
        let desk = Desk { ($0.maxActive, $0.maxPerHost) = (2, 6) }
        for number in UInt64(1)...5 { desk.add(number) }
        #expect(desk.hold(5) == nil && desk[5].state == .queued)
        #expect(desk.ahead(5) == 2)
    }

    @Test func `include redirects, which wait for their turn`() {
        let desk = Desk { settings in
            settings.maxActive = 2
            try? settings.hostRules.set("slow", HostRule(connections: 1, requestInterval: .seconds(1)))
        }
        desk.add(1, "http://slow/1")
        desk.sent(1)
        desk.add(2, "http://fast/2")
        desk.add(3, "http://fast/3")
        #expect(desk.started == [1, 2])
        desk.hop(desk[2], to: "slow")
        #expect(desk.permitted == [])
        #expect(desk.hold(2) == .rateLimit)
        #expect(desk.started == [1, 2, 3], "who waits for a host takes no slot")
        desk.finish(1)
        #expect(desk.permitted == [])
        desk.waitUntilDue()
        #expect(desk.permitted == [2] && desk.hold(2) == nil)
        // A redirect that nothing delays is permitted at once.
        desk.hop(desk[3], to: "elsewhere")
        #expect(desk.permitted == [2, 3])
    }

    @Test func `make a redirect whose turn has come wait for a slot if others took its own`() {
        let desk = Desk { settings in
            settings.maxActive = 1
            try? settings.hostRules.set("slow", second)
        }
        desk.add(1, "http://slow/1")
        desk.sent(1)
        desk.finish(1)
        desk.add(2, "http://a/2")
        desk.hop(desk[2], to: "slow")
        desk.add(3, "http://a/3")
        #expect(desk.started == [1, 2, 3], "who waits for a host takes no slot")
        desk.wait(.seconds(5))
        #expect(desk.permitted == [], "or two were active, and one may be")
        #expect(desk.hold(2) == nil, "its host would take it")
        desk.finish(3)
        #expect(desk.permitted == [2])
    }

    @Test func `are released when a transfer that waits for a redirect is stopped`() throws {
        let desk = Desk { try? $0.hostRules.set("slow", HostRule(connections: 1)) }
        desk.add(1, "http://slow/1")
        desk.add(2, "http://fast/2")
        desk.hop(desk[2], to: "slow")
        try desk.steer(desk[2], .pause)
        desk.add(3, "http://slow/3")
        desk.finish(1)
        #expect(desk.started == [1, 2, 3])
    }
}

@Suite struct `Turns` {
    @Test func `rotate between applications at a host with an interval`() {
        let desk = Desk { try? $0.hostRules.set("h", second) }
        for number in UInt64(1)...100 { desk.add(number, app: "greedy") }
        desk.sent(1)
        desk.add(101, app: "modest")
        for _ in 0..<2 {
            desk.waitUntilDue()
            desk.sent(desk.started.last!)
            desk.finish(desk.started.last!)
        }
        #expect(desk.started.contains(101))
    }

    @Test func `rotate for slots, by the time used`() {
        let desk = Desk { $0.maxActive = 1 }
        for number in UInt64(1)...50 { desk.add(number, "http://a/\(number)", app: "A") }
        for number in UInt64(51)...60 { desk.add(number, "http://b/\(number)", app: "B") }
        for _ in 0..<20 {
            desk.now = desk.now + .milliseconds(10)
            desk.finish(desk.started.last!)
        }
        #expect(desk.started.prefix(20).count { $0 > 50 } == 10)
        // Within one application: first in, first out.
        #expect(desk.started.filter { $0 <= 50 } == Array(1...UInt64(desk.started.count { $0 <= 50 })))
    }

    @Test func `do not delay a download that somebody moves to the front`() {
        let desk = Desk { $0.maxActive = 1 }
        for number in UInt64(1)...3 { desk.add(number, app: "A") }
        for number in UInt64(4)...6 { desk.add(number, app: "B") }
        desk.move(desk[3], to: 0)
        desk.finish(1)
        #expect(desk.started == [1, 3])
    }

    @Test func `do not delay a moved download whose application keeps using the only slot`() {
        let desk = Desk { $0.maxActive = 1 }
        for number in UInt64(1)...3 { desk.add(number, app: "A") }
        for number in UInt64(4)...6 { desk.add(number, app: "B") }
        desk.move(desk[3], to: 0)
        desk.wait(.seconds(60))
        desk.finish(1)
        #expect(desk.started == [1, 3], "A has used 60 s more than B")
        desk.finish(3)
        #expect(desk.started == [1, 3, 4], "only the moved download precedes B's turn")
    }

    @Test func `come first again if a download is moved away from the front`() {
        let desk = Desk { $0.maxActive = 1 }
        for number in UInt64(1)...2 { desk.add(number, app: "A") }
        desk.add(3, app: "B")
        desk.move(desk[2], to: 0)
        desk.move(desk[2], to: 1)
        desk.wait(.seconds(60))
        desk.finish(1)
        #expect(desk.started == [1, 3])
    }

    @Test func `come first again if a moved download has ended before its start`() throws {
        let desk = Desk { $0.maxActive = 1 }
        for number in UInt64(1)...2 { desk.add(number, app: "A") }
        desk.add(3, app: "B")
        desk.move(desk[2], to: 0)
        try desk.steer(desk[2], .cancel)
        try desk.steer(desk[2], .retry)
        desk.wait(.seconds(60))
        desk.finish(1)
        #expect(desk.started == [1, 3])
    }

    @Test func `reach an application that is owed a slot, although another application's download was moved to the front`() {
        let desk = Desk { $0.maxActive = 2 }
        for number in UInt64(1)...3 { desk.add(number, app: "A") }
        desk.add(4, app: "B")
        for number in UInt64(1)...2 { desk.checkpoint(desk[number], part) }
        desk.move(desk[3], to: 0)
        #expect(desk.started == [1, 2])
        for _ in 0..<3 { desk.wait(.seconds(6)) }
        #expect(desk.started == [1, 2, 4], "the slot that A has yielded is B's")
        desk.finish(4)
        #expect(desk.started == [1, 2, 4, 3])
    }

    @Test(arguments: [1, 1000]) func `reach the application that is owed the only slot at once, although many downloads were moved`(
        hosts: Int
    ) {
        let desk = Desk { $0.maxActive = 1 }
        desk.scheduler.sliceSize.hosts = hosts
        for number in UInt64(1)...5 { desk.add(number, "http://a\(number)/", app: "A") }
        desk.add(6, "http://b/", app: "B")
        desk.checkpoint(desk[1], part)
        for number in UInt64(2)...5 { desk.move(desk[number], to: 0) }
        desk.slices()
        #expect(desk.started == [1])
        for _ in 0..<3 { desk.wait(.seconds(6)) }
        desk.slices()
        #expect(desk.started == [1, 6] && desk.state(1) == .queued)
    }

    @Test func `give way to a higher priority`() {
        let desk = Desk { $0.maxActive = 1 }
        desk.add(1, app: "A")
        desk.add(2, app: "B")
        desk.add(3, app: "A") { $0.options.priority = 1 }
        desk.finish(1)
        #expect(desk.started == [1, 3])
    }

    @Test func `take a slot from a long-running download that loses nothing`() {
        let desk = Desk { $0.maxActive = 2 }
        for number in UInt64(1)...2 { desk.add(number, "http://a/\(number)", app: "A") }
        desk.add(3, "http://b/3", app: "B")
        desk.add(4, "http://a/4", app: "A")
        for _ in 0..<3 { desk.wait(.seconds(6)) }
        #expect(desk.started == [1, 2], "neither can go on from what it has")
        desk.checkpoint(desk[2], part)
        for _ in 0..<3 { desk.wait(.seconds(6)) }
        #expect(desk[2].state == .queued && desk.started == [1, 2, 3])
        desk.ends(desk[2], .stopped(part))
        for _ in 0..<10 { desk.wait(.seconds(6)) }
        #expect(desk.started == [1, 2, 3], "with a slot each nobody is owed one")
        desk.finish(3)
        #expect(desk.started == [1, 2, 3, 2], "first in, first out")
    }

    /// Nothing was queued while A ran alone, so no choice has compared what A has used.
    @Test func `begin level for an application that comes after another one has run alone for an hour`() {
        let desk = Desk { $0.maxActive = 2 }
        for number in UInt64(1)...2 {
            desk.add(number, app: "A")
            desk.checkpoint(desk[number], part)
        }
        desk.now = desk.now + .seconds(3600)
        desk.add(3, app: "B")
        desk.wait(.seconds(6))
        #expect(desk.started == [1, 2], "A has used only 12 s more than B")
        desk.wait(.seconds(6))
        #expect(desk.started == [1, 2, 3])
    }

    @Test func `are not used up by redirects that wait for their host without a slot`() {
        let desk = Desk { $0.maxActive = 1 }
        desk.add(1, "http://slow/1", app: "A")
        desk.fail(1, 503, retryAfter: .seconds(3600))
        desk.redirect(100...119, to: "slow", app: "A")
        #expect(desk.scheduler.counts.active == 20 && desk.permitted == [])
        for number in UInt64(2)...6 { desk.add(number, "http://a/\(number)", app: "A") }
        for number in UInt64(7)...11 { desk.add(number, "http://b/\(number)", app: "B") }
        let before = desk.started.count
        #expect(desk.started.last == 2)
        for _ in 0..<9 {
            desk.now = desk.now + .seconds(10)
            desk.finish(desk.started.last!)
        }
        #expect(Array(desk.started.dropFirst(before)) == [7, 3, 8, 4, 9, 5, 10, 6, 11])
    }

    @Test func `survive a clock change`() {
        let desk = Desk { $0.maxActive = 1 }
        desk.add(1, "http://a/1", app: "A")
        desk.add(2, "http://b/2", app: "B")
        desk.add(3, "http://a/3", app: "A")
        let day = Duration.seconds(24 * 3600)
        desk.clockJumps(by: day)
        desk.finish(1)
        #expect(desk.started == [1, 2])
        desk.add(4, "http://b/4", app: "B")
        desk.wait(.seconds(3))
        desk.finish(2)
        #expect(desk.started == [1, 2, 3], "A has not had a day")
    }

    @Test func `are not taken by servers that send nothing`() {
        let desk = Desk { $0.maxActive = 1 }
        for number in UInt64(1)...3 { desk.add(number) }
        desk.stalled(1, true)
        #expect(desk.started == [1, 2])
        desk.stalled(1, false)
        desk.finish(2)
        #expect(desk.started == [1, 2])
        desk.finish(1)
        #expect(desk.started == [1, 2, 3])
    }

    @Test func `reach other applications even if one has too many transfers from silent servers`() {
        let desk = Desk { $0.maxActive = 1 }
        for number in 1...80 {
            desk.add(UInt64(number), "http://a\(number)/f", app: "A")
            if desk.started.contains(UInt64(number)) { desk.stalled(UInt64(number), true) }
        }
        #expect(desk.started.count == 65)
        desk.add(100, "http://b/f", app: "B")
        #expect(!desk.started.contains(100))
        for _ in 0..<4 { desk.wait(.seconds(6)) }
        #expect(desk.started.last == 100)
    }

    @Test func `are also taken at a host full of silent transfers`() throws {
        let desk = Desk { ($0.maxActive, $0.maxPerHost) = (4, 6) }
        for number in 1...8 {
            desk.add(UInt64(number), app: "A")
            if number <= 6 { desk.stalled(UInt64(number), true) }
        }
        #expect(desk.started == [1, 2, 3, 4, 5, 6])
        desk.add(100, app: "B")
        #expect(desk.started.last == 6)
        #expect(desk.hold(100) == .hostLimit, "and not a slot")
        #expect(desk[100].state == .queued)
        for _ in 0..<4 {
            desk.wait(.seconds(6))
            let stopping = desk.scheduler.entries.values.filter { $0.work == .stopping }
            for entry in stopping { desk.ends(entry, .stopped(nil)) }
        }
        #expect(desk.started.contains(100))
        #expect(desk.scheduler.nextWake == nil || desk.scheduler.nextWake! > desk.now)
        let before = desk.started
        for _ in 0..<20 { desk.wait(.seconds(6)) }
        #expect(desk.started == before, "it has its place; and in its own queue A may wait for itself")
    }
}

@Suite struct `Turns at a host` {
    /// A host with an interval of one second, whose first request has just gone out.
    private func desk(_ change: (inout Settings) -> Void = { _ in }) -> Desk {
        let desk = Desk { settings in
            (settings.maxActive, settings.maxPerHost) = (0, 0)
            try? settings.hostRules.set("slow", second)
            change(&settings)
        }
        desk.add(1, "http://slow/1", app: "greedy")
        desk.sent(1)
        desk.finish(1)
        return desk
    }

    @Test func `rotate between waiting redirects and queued downloads`() {
        let desk = desk()
        desk.redirect(100...120, to: "slow", app: "greedy")
        desk.add(2, "http://slow/2", app: "modest")
        desk.add(3, "http://slow/3", app: "modest")
        for _ in 0..<4 { desk.step() }
        #expect(desk.started.filter { $0 < 100 } == [1, 2, 3] && desk.permitted == [100, 101])
    }

    @Test func `rotate even if the redirects' application is first in the queue`() {
        let desk = desk()
        desk.redirect(100...120, to: "slow", app: "greedy")
        desk.add(2, "http://slow/2", app: "modest")
        desk.add(3, "http://slow/3", app: "greedy") { $0.options.priority = 1 }
        for _ in 0..<4 { desk.step() }
        #expect(desk.started.filter { $0 < 100 } == [1, 3, 2] && desk.permitted.count == 2)
    }

    /// The application of 5 has waited longest, but downloads of higher priority come first. The redirects do not wait for all of these.
    @Test func `rotate between redirects and the queued downloads of the highest priority, until these have started`() {
        let desk = desk()
        desk.redirect(100...120, to: "slow", app: "greedy")
        for number in UInt64(2)...4 { desk.add(number, "http://slow/\(number)", app: "keen") { $0.options.priority = 1 } }
        desk.add(5, "http://slow/5", app: "modest")
        for _ in 0..<4 { desk.step() }
        #expect(desk.started.filter { $0 < 100 } == [1, 2, 3] && desk.permitted == [100, 101])
        for _ in 0..<3 { desk.step() }
        #expect(desk.started.filter { $0 < 100 } == [1, 2, 3, 4, 5] && desk.permitted == [100, 101, 102])
    }

    /// The redirect 100 yields to 5 of its own application, because 6 behind it has waited longer. The redirect 200 has waited longer
    /// than 5.
    @Test func `are kept if a redirect of another application goes first`() {
        let desk = desk()
        desk.add(2, "http://slow/2", app: "keen") { $0.options.requestInterval = .seconds(1) }
        desk.step()
        desk.add(3, "http://slow/3", app: "greedy")
        desk.step()
        desk.add(4, "http://slow/4", app: "keen")
        desk.step()
        #expect(desk.started == [1, 2, 3, 4])
        let redirected = desk.add(100, "http://elsewhere/100", app: "keen") { $0.options.requestInterval = .seconds(1) }
        desk.hop(redirected, to: "slow")
        desk.redirect(200...201, to: "slow", app: "greedy")
        desk.add(5, "http://slow/5", app: "keen") { $0.options.priority = 1 }
        desk.add(6, "http://slow/6", app: "modest")
        desk.step()
        #expect(desk.started.filter { $0 < 100 } == [1, 2, 3, 4] && desk.permitted == [200])
        for _ in 0..<2 { desk.step() }
        #expect(desk.started.filter { $0 < 100 } == [1, 2, 3, 4, 5, 6] && desk.permitted == [200])
        for _ in 0..<2 { desk.step() }
        #expect(desk.permitted == [200, 100, 201])
    }

    @Test func `rotate between redirects of several applications, first come first served within each`() {
        let desk = desk()
        desk.redirect(100...120, to: "slow", app: "greedy")
        desk.redirect(200...201, to: "slow", app: "modest")
        for _ in 0..<4 { desk.step() }
        #expect(desk.permitted == [200, 100, 201, 101])
    }

    @Test func `rotate at an origin that refused requests, too`() {
        let desk = Desk { ($0.maxActive, $0.maxPerHost) = (0, 0) }
        desk.add(1, "http://slow/1", app: "greedy") { $0.options.retries = 0 }
        desk.fail(1, 503)
        desk.redirect(100...120, to: "slow", app: "greedy")
        desk.add(2, "http://slow/2", app: "modest")
        desk.step()
        desk.step()
        #expect(desk.started.contains(2) && desk.permitted.count == 1)
    }

    @Test func `reach each of many applications before any has its second`() {
        let desk = desk()
        desk.redirect(1000...1100, to: "slow", app: "greedy")
        for number in UInt64(2)...101 { desk.add(number, "http://slow/\(number)", app: "app \(number)") }
        desk.redirect(200...200, to: "slow", app: "one more")
        for _ in 0..<102 { desk.step() }
        #expect(Set(desk.started).isSuperset(of: 2...101) && Set(desk.permitted).isSuperset(of: [200, 1000]))
        #expect(desk.permitted.count == 2)
    }

    @Test func `reach an application that has used many slots elsewhere`() {
        let desk = desk()
        desk.add(2, "http://other/2", app: "modest")
        desk.add(3, "http://slow/3", app: "greedy")
        desk.wait(.seconds(3600))
        desk.sent(3)
        for number in UInt64(4)...30 { desk.add(number, "http://slow/\(number)", app: "greedy") }
        desk.add(31, "http://slow/31", app: "modest")
        desk.step()
        #expect(desk.started.last == 31)
    }

    @Test func `stay with a queued download that the next slice starts`() {
        let desk = desk { try? $0.hostRules.set("other", second) }
        desk.add(2, "http://other/2", app: "busy")
        desk.sent(2)
        desk.add(3, "http://other/3", app: "busy") { $0.options.priority = 1 }
        desk.redirect(100...100, to: "slow", app: "greedy")
        desk.add(4, "http://slow/4", app: "modest")
        // Both hosts open at once. One slice starts one download, and 4 is the second.
        desk.scheduler.sliceSize.starts = 1
        desk.wait(.seconds(2))
        #expect(desk.started.last == 3 && desk.permitted == [])
        desk.slices()
        #expect(desk.started.last == 4 && desk.permitted == [])
    }

    /// A slice ends before it starts 4. While the journal is full, nothing starts, and the redirect that waits for 4 ends.
    @Test func `stay with a queued download without a slot after the redirect behind it has ended`() throws {
        let desk = desk { settings in
            settings.maxActive = 2
            try? settings.hostRules.set("other", second)
        }
        desk.add(2, "http://other/2", app: "busy")
        desk.sent(2)
        desk.finish(2)
        desk.add(3, "http://other/3", app: "busy") { $0.options.priority = 1 }
        desk.redirect(100...100, to: "slow", app: "greedy")
        desk.add(4, "http://slow/4", app: "modest")
        desk.add(5, "http://slow/5", app: "greedy")
        desk.scheduler.sliceSize.starts = 1
        desk.wait(.seconds(2))
        #expect(desk.started == [1, 2, 100, 3] && desk.permitted == [])
        try desk.turn([.journalFull(true)])
        desk.finish(100)
        desk.set { $0.maxActive = 1 }
        try desk.turn([.journalFull(false)])
        #expect(desk.started == [1, 2, 100, 3])
        desk.finish(3)
        #expect(desk.started == [1, 2, 100, 3, 4], "4 has waited longer than 5")
    }

    @Test func `go first to a download that somebody moves to the front`() {
        let desk = desk()
        desk.add(2, "http://slow/2", app: "modest")
        desk.add(3, "http://slow/3", app: "greedy")
        desk.add(4, "http://slow/4", app: "greedy")
        desk.move(desk[4], to: 0)
        desk.step()
        #expect(desk.started.last == 4)
    }

    @Test func `are lost without a free slot: a redirect that has a slot is not delayed`() {
        let desk = desk { $0.maxActive = 1 }
        desk.redirect(100...100, to: "slow", app: "greedy")
        desk.add(2, "http://other/2", app: "busy")
        for number in UInt64(3)...9 { desk.add(number, "http://other/\(number)", app: "busy") { $0.options.priority = 1 } }
        desk.add(10, "http://slow/10", app: "modest")
        desk.wait(.seconds(5))
        #expect(desk.permitted == [] && desk.started.last == 2)
        desk.finish(2)
        desk.finish(desk.started.last!)
        #expect(desk.permitted == [100])
    }

    @Test func `do not keep an application from other hosts: waiting redirects yield`() {
        let desk = desk { settings in
            settings.maxActive = 2
            try? settings.hostRules.set("slow", HostRule(requestInterval: .seconds(60)))
        }
        desk.redirect(100...165, to: "slow", app: "greedy")
        #expect(desk.scheduler.counts.active == 66)
        desk.add(2, "http://other/2", app: "modest")
        desk.add(3, "http://other/3", app: "modest")
        for _ in 0..<4 { desk.wait(.seconds(6)) }
        #expect(desk.started.contains(2))
    }
}

@Suite struct `The report of a wait` {
    @Test func `reaches downloads at a host full of silent transfers, and again when it is no longer full`() {
        let desk = Desk { ($0.maxActive, $0.maxPerHost) = (4, 6) }
        for number in 1...7 {
            desk.add(UInt64(number))
            if number <= 6 { desk.stalled(UInt64(number), true) }
        }
        #expect(desk.hold(7) == .hostLimit)
        desk.stalled(1, false)
        #expect(desk.hold(7) == .hostLimit && desk.told == [])
        for number in UInt64(2)...6 { desk.stalled(number, false) }
        #expect(desk.hold(7) == nil && desk.told == [7], "now it is a slot, too, that is not there")
    }

    @Test func `reaches downloads that a rule stops or releases, once`() {
        let desk = Desk { $0.maxActive = 1 }
        for number in UInt64(1)...3 { desk.add(number) }
        #expect(desk.told == [])
        desk.rule("h", second)
        #expect(desk.told == [2, 3])
        desk.rule("h", HostRule(requestInterval: .seconds(2)))
        #expect(desk.told == [2, 3])
        desk.rule("h", HostRule())
        #expect(desk.told == [2, 3, 2, 3])
    }

    @Test func `reaches a download whose turn at its host has come`() {
        let desk = Desk { settings in
            settings.maxActive = 2
            try? settings.hostRules.set("h", HostRule(connections: 1))
        }
        for number in UInt64(1)...3 { desk.add(number) }
        for number in UInt64(4)...5 { desk.add(number, "http://other/\(number)", app: "other") }
        #expect(desk.started == [1, 4] && desk.hold(2) == .hostLimit && desk.told == [])
        desk.set { $0.maxActive = 1 }
        desk.finish(1)
        #expect(desk.hold(2) == nil)
    }
}

/// A change of all hosts reaches them in slices. Meanwhile, no download may start by the earlier rules.
@Suite struct `Hosts that a later slice reaches` {
    /// Calls the slices, and checks `isKept` after each turn.
    private func slices(_ desk: Desk, keep isKept: () -> Bool) {
        #expect(isKept())
        var count = 0
        while desk.scheduler.hasSlices, count < 1000 {
            desk.slice()
            #expect(isKept())
            count += 1
        }
        #expect(count > 2 && count < 1000, "\(count) slices")
    }

    /// The active downloads of each host.
    private func most(_ desk: Desk) -> Int {
        Dictionary(grouping: desk.started) { desk[$0].host }.values.map(\.count).max() ?? 0
    }

    @Test(arguments: [1, 2, 1000]) func `start no more than their new limit`(most hosts: Int) {
        let desk = Desk { ($0.maxActive, $0.maxPerHost) = (1, 8) }
        for number in UInt64(1)...40 { desk.add(number, "http://h\(number % 10)/\(number)") }
        #expect(desk.started == [1])
        (desk.scheduler.sliceSize.hosts, desk.scheduler.sliceSize.starts) = (hosts, 2)
        // Each host offers a download; the limits of hosts fall while the number of slots rises.
        desk.set { ($0.maxActive, $0.maxPerHost) = (100, 1) }
        slices(desk) { most(desk) <= 1 }
        #expect(desk.started.count == 10)
        desk.set { $0.maxPerHost = 3 }
        slices(desk) { most(desk) <= 3 }
        #expect(desk.started.count == 30)
    }

    @Test(arguments: [1, 10, 25]) func `count for the domain of a new rule`(cost: Int) {
        let desk = Desk { $0.maxActive = 1 }
        for number in UInt64(1)...20 { desk.add(number, "http://h\(number % 5).example.org/\(number)") }
        for number in UInt64(21)...24 { desk.add(number, "http://example.com/\(number)") }
        desk.scheduler.sliceSize.cost = cost
        desk.set {
            $0.maxActive = 100
            try? $0.hostRules.set("example.org", HostRule(connections: 2))
        }
        slices(desk) { desk.started.count { $0 <= 20 } <= 2 }
        #expect(desk.started.count { $0 <= 20 } == 2 && desk.started.count == 6)
        #expect(desk.hold(20) == .hostLimit)
        desk.finish(1)
        #expect(desk.started.count { $0 <= 20 } == 3)
        // Without the rule, each host has its own count again.
        desk.set { try? $0.hostRules.set("example.org", HostRule()) }
        slices(desk) { most(desk) <= 6 }
        #expect(desk.started.count == 24)
    }
}
