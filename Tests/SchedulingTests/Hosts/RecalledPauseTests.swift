import DownloadModel
import Scheduling
import Testing

/// A desk whose download 1 of the host "h" was refused for good.
private func refused(pause: Duration) -> Desk {
    let desk = Desk()
    desk.add(1) { $0.options.retries = 0 }
    desk.fails(desk[1], DownloadFailure(.httpStatus, "…", httpStatus: 503, isRetryable: true, retryAfter: pause))
    #expect(desk[1].state.failure?.httpStatus == 503)
    return desk
}

extension Desk {
    fileprivate func finish(_ number: UInt64) {
        bringToCommit(self[number])
        committed(self[number], path: "/d/f")
        #expect(self[number].state == .finished)
    }
}

@Suite struct `A pause that a server requested from a download that failed` {
    @Test func `lasts over a restart`() {
        let desk = refused(pause: .seconds(60))
        desk.restart(after: .seconds(1))
        desk.add(2)
        #expect(desk.started == [1])
        #expect(desk.hold(2) == .rateLimit && desk.holdEnd(2) == Desk.start + .seconds(60))
        desk.wait(.seconds(58))
        #expect(desk.started == [1])
        desk.wait(.seconds(1))
        #expect(desk.started == [1, 2])
    }

    @Test func `delays other apps for five minutes, and another port not at all`() {
        let desk = refused(pause: .seconds(3600))
        desk.restart(after: .seconds(1))
        desk.add(2, app: "other")
        desk.add(3, "http://h:8080/3")
        #expect(desk.started == [1, 3] && desk.holdEnd(2) == Desk.start + .seconds(300))
    }

    @Test func `is over after a restart if the server has sent another file since`() {
        let desk = refused(pause: .seconds(3600))
        desk.wait(.seconds(301))
        desk.add(2, app: "other")
        desk.finish(2)
        desk.restart()
        desk.add(3)
        #expect(desk.started == [1, 2, 3])
    }

    @Test func `is not over after a restart if another server has sent a file`() {
        let desk = refused(pause: .seconds(3600))
        desk.wait(.seconds(1))
        desk.add(2, "http://g/2")
        desk.finish(2)
        desk.restart()
        desk.add(3)
        #expect(desk.started == [1, 2] && desk.hold(3) == .rateLimit)
    }

    @Test func `is over after a restart if a person has reset the host, and no other`() {
        for (host, isOver) in [("h", true), ("g", false)] {
            let desk = refused(pause: .seconds(3600))
            desk.resetHost(host)
            desk.restart()
            desk.add(2)
            #expect(desk.started == (isOver ? [1, 2] : [1]))
        }
    }

    @Test func `is forgotten if the clock was set back since`() {
        let desk = refused(pause: .seconds(60))
        let back = Desk([desk[1].record], at: Desk.start + .seconds(-1))
        back.add(2)
        #expect(back.started == [2])
    }
}

@Suite struct `A pause that a server requested from a download that waits for its retry` {
    /// The reset ends the pause for the host's other downloads. The refused one still comes no sooner than its server has asked.
    @Test(arguments: ["h", "g"]) func `is over after a restart if a person has reset the host, and no other`(host: String) {
        let desk = Desk()
        desk.add(1)
        desk.fails(desk[1], DownloadFailure(.httpStatus, "…", httpStatus: 503, isRetryable: true, retryAfter: .seconds(3600)))
        let retry = desk[1].record.retryAt
        desk.resetHost(host)
        desk.restart(after: .seconds(1))
        desk.add(2)
        #expect(desk.started == (host == "h" ? [1, 2] : [1]))
        #expect(retry != nil && desk[1].state == .waiting(.retry, until: retry))
    }

    /// The tenth retry follows after 150 s at the earliest, and the pause is shorter. nil: it is over.
    @Test(arguments: [(0, 2, nil), (1, 2, nil), (60, 10, 60), (60, 61, nil), (200, 100, 200)] as [(Int, Int, Int?)])
    func `lasts over a restart no longer than the server has asked, however late the retry`(pause: Int, restart: Int, end: Int?) {
        let desk = Desk()
        desk.add(1) { $0.retriesUsed = 9 }
        desk.fails(desk[1], DownloadFailure(.httpStatus, "…", httpStatus: 503, isRetryable: true, retryAfter: .seconds(pause)))
        #expect(desk[1].record.retryAt == Desk.start + .seconds(max(pause, 150)))
        desk.restart(after: .seconds(restart))
        desk.add(2)
        #expect(desk.started == (end == nil ? [1, 2] : [1]))
        #expect(desk.holdEnd(2) == end.map { Desk.start + .seconds($0) })
        #expect(desk.scheduler.slowedOrigins(now: desk.now).isEmpty == (end == nil))
    }

    /// The server refuses one file only, and sends another app's.
    @Test func `is over after a restart if the server has sent another file since`() {
        let desk = Desk()
        desk.add(1)
        desk.fails(desk[1], DownloadFailure(.httpStatus, "…", httpStatus: 503, isRetryable: true, retryAfter: .seconds(3600)))
        desk.wait(.seconds(301))
        desk.add(2, app: "other")
        desk.finish(2)
        desk.restart()
        desk.add(3)
        #expect(desk.started == [1, 2, 3] && desk[1].state.name == "waiting")
    }
}
