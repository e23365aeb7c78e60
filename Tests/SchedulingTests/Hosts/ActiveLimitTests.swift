import DownloadModel
import TestSupport
import Testing

@testable import Scheduling

@Suite struct `The automatic MaxActive` {
    private static let mebibyte: ByteCount = 1 << 20

    private func complete(_ desk: Desk, _ number: UInt64, _ size: ByteCount) {
        let identity = FileIdentity(device: 1, inode: number, mount: 1, boot: "b")
        let part = ResumeData(written: size, total: size, validator: nil, identity: identity)
        desk.ends(desk[number], .complete(size: size, fileName: "f", part))
    }

    /// - Parameter isRule: whether the host's rule limits its connections; else `MaxPerHost` does.
    private func desk(connections: UInt32, isRule: Bool) -> Desk {
        Desk { settings in
            settings.maxPerHost = isRule ? 0 : connections
            if isRule { try? settings.hostRules.set("h", HostRule(connections: connections)) }
        }
    }

    @Test func `is the default, and lets four files of unknown size run`() {
        let desk = Desk { $0.maxPerHost = 0 }
        for number in 1...10 { desk.add(UInt64(number)) }
        #expect(desk.scheduler.settings.maxActive == Settings.automatic)
        #expect(desk.started == [1, 2, 3, 4])
    }

    @Test func `never lets a fifth large file begin`() {
        let desk = Desk { $0.maxPerHost = 0 }
        for number in 1...10 { desk.add(UInt64(number)) }
        for number in 1...4 { desk.began(desk[UInt64(number)], total: Self.mebibyte) }
        #expect(desk.started == [1, 2, 3, 4])
        complete(desk, 1, Self.mebibyte)
        #expect(desk.started == [1, 2, 3, 4, 5])
    }

    @Test func `lets a known small file start beside four large ones, and a known large one not`() {
        let desk = Desk { $0.maxPerHost = 0 }
        for number in 1...4 { desk.add(UInt64(number)) { $0.options.size = 5 * Self.mebibyte } }
        desk.add(5) { $0.options.size = Self.mebibyte }
        desk.add(6) { $0.options.size = Self.mebibyte - 1 }
        #expect(desk.started == [1, 2, 3, 4, 6])
    }

    @Test func `lets further files start once responses and ends show that files are small, at most 64`() {
        let desk = Desk { $0.maxPerHost = 0 }
        for number in 1...300 { desk.add(UInt64(number)) }
        var most = 0
        for number in 1...200 {
            desk.began(desk[UInt64(number)], total: 16_384)
            complete(desk, UInt64(number), 16_384)
            most = max(most, Int(desk.scheduler.counts.active))
        }
        #expect(most == ActiveLimit.most)
    }

    @Test func `releases the slot of a file that turns out large beside four others`() {
        let desk = Desk { $0.maxPerHost = 0 }
        for number in 1...40 { desk.add(UInt64(number)) }
        for number in 1...10 { complete(desk, UInt64(number), 16_384) }
        let active = desk.started.filter { desk.state($0) == .active }
        #expect(active.count == 14)
        for number in active { desk.began(desk[number], total: Self.mebibyte) }
        #expect(active.count { desk.state($0) == .active } == 4)
        #expect(active.count { desk.state($0) == .queued } == 10)
    }

    @Test func `lets a file go on that turns out large by its bytes, unless it can resume from them`() {
        let desk = Desk { $0.maxPerHost = 0 }
        for number in 1...10 { desk.add(UInt64(number)) }
        for number in 1...2 { complete(desk, UInt64(number), 16_384) }
        #expect(desk.started == [1, 2, 3, 4, 5, 6, 7, 8])
        for number in 3...6 { desk.began(desk[UInt64(number)], total: Self.mebibyte) }
        #expect(desk.state(7) == .active && desk.state(8) == .active)
        // A checkpoint may still hold bytes that an earlier response brought. On a fast line, a file grows large before its first one.
        desk.began(desk[7], isResumable: false)
        desk.began(desk[8])
        let identity = FileIdentity(device: 1, inode: 7, mount: 1, boot: "b")
        let part = ResumeData(written: 0, total: nil, validator: .entityTag("\"a\""), identity: identity)
        _ = try? desk.turn([.checkpoint(desk[7], part), .grewLarge(DownloadNumber(7)), .grewLarge(DownloadNumber(8))])
        #expect(desk.state(7) == .active && desk.state(8) == .queued)
    }

    /// Its new bytes are lost if the transfer stops before they replace the held bytes.
    @Test func `lets a file go on that turns out large by its bytes, if it comes beside the held bytes of a former one`() {
        let desk = Desk { $0.maxPerHost = 0 }
        for number in 1...10 { desk.add(UInt64(number)) }
        for number in 1...2 { complete(desk, UInt64(number), 16_384) }
        for number in 3...6 { desk.began(desk[UInt64(number)], total: Self.mebibyte) }
        let identity = FileIdentity(device: 1, inode: 7, mount: 1, boot: "b")
        desk.checkpoint(desk[7], ResumeData(written: 9, total: 10, validator: .entityTag("\"a\""), identity: identity))
        for number in 7...8 { desk.began(desk[UInt64(number)]) }
        _ = try? desk.turn([.grewLarge(DownloadNumber(7)), .grewLarge(DownloadNumber(8))])
        #expect(desk.state(7) == .active && desk.state(8) == .queued)
    }

    @Test func `does not apply to a number that somebody has set`() {
        let desk = Desk { ($0.maxActive, $0.maxPerHost) = (3, 0) }
        for number in 1...10 { desk.add(UInt64(number)) { $0.options.size = 1000 } }
        #expect(desk.started == [1, 2, 3])
        complete(desk, 1, 1000)
        #expect(desk.started == [1, 2, 3, 4])
        desk.set { $0.maxActive = 0 }
        #expect(desk.started.count == 10)
    }

    @Test func `halves what unknown files may do with each file that turns out large`() {
        var limit = ActiveLimit()
        for _ in 0..<100 { limit.smallFileFinished() }
        #expect(limit.allowance == ActiveLimit.mostSmall)
        limit.fileTurnedLarge()
        #expect(limit.allowance == 30)
        for _ in 0..<9 { limit.fileTurnedLarge() }
        #expect(limit.allowance == 0)
        #expect(limit.admits(.unknown, beside: .init(unknown: 3)) && !limit.admits(.unknown, beside: .init(unknown: 4)))
        #expect(limit.admits(.small, beside: .init(large: 4)) && !limit.admits(.small, beside: .init(small: 60, large: 4)))
    }

    @Test(arguments: [true, false]) func `counts small files on one HTTP 2 connection as one at their host`(isRule: Bool) {
        let desk = desk(connections: 5, isRule: isRule)
        for number in 1...10 { desk.add(UInt64(number)) { $0.options.size = 1000 } }
        #expect(desk.started == [1, 2, 3, 4, 5] && desk.hold(6) == .hostLimit, "the host is the reason, not the other downloads")
        desk.began(desk[1], total: 1000, connection: 5)
        #expect(desk.started == Array(1...10))
    }

    @Test(arguments: [true, false]) func `lets a small file share the connection of the host that it is redirected to`(isRule: Bool) {
        let desk = desk(connections: 1, isRule: isRule)
        desk.add(1) { $0.options.size = 1000 }
        for number in 2...4 { desk.add(UInt64(number), "http://front\(number)/") { $0.options.size = 1000 } }
        for number in 2...4 { desk.hop(desk[UInt64(number)], to: "h", origin: "http://h:80") }
        #expect(desk.permitted.isEmpty && desk.hold(2) == .hostLimit)
        desk.began(desk[1], total: 1000, connection: 5)
        #expect(desk.permitted == [2, 3, 4])
    }

    /// The request of each file.
    private func mustShare(_ desk: Desk) -> [UInt64] { desk.started.filter { desk.scheduler.mustShare(desk[$0].request) } }

    @Test(arguments: [true, false]) func `lets a small file without a place open no connection`(isRule: Bool) {
        let desk = desk(connections: 2, isRule: isRule)
        for number in 1...5 { desk.add(UInt64(number)) { $0.options.size = 1000 } }
        #expect(desk.started == [1, 2] && mustShare(desk).isEmpty)
        desk.began(desk[1], total: 1000, connection: 5)
        #expect(desk.started == Array(1...5) && mustShare(desk) == [3, 4, 5])
        desk.began(desk[3], total: 1000, connection: 5)
        #expect(mustShare(desk) == [4, 5])
    }

    /// The server takes one stream at a time, or the connection has ended.
    @Test(arguments: [true, false]) func `lets requests that found no connection with room wait for a place`(isRule: Bool) {
        let desk = desk(connections: 2, isRule: isRule)
        for number in 1...6 { desk.add(UInt64(number)) { $0.options.size = 1000 } }
        desk.began(desk[1], total: 1000, connection: 5)
        for number in 3...6 { desk.hop(desk[UInt64(number)], to: "h", origin: "http://h:80", sharing: .failed) }
        #expect(desk.permitted.isEmpty && desk.hold(3) == .hostLimit)
        desk.add(7) { $0.options.size = 1000 }
        #expect(!desk.started.contains(7), "another request found no room")
        desk.ends(desk[2], .failed(DownloadFailure(.network, "lost"), madeProgress: false, nil))
        #expect(desk.permitted == [3] && mustShare(desk).isEmpty)
        desk.began(desk[3], total: 1000, connection: 5)
        // The connections of 1 and 3 are one, so 4 has a place. And one more request may share now.
        #expect(desk.permitted == [3, 4, 5] && mustShare(desk) == [5])
        complete(desk, 1, 1000)
        #expect(desk.permitted == [3, 4, 5, 6] && mustShare(desk) == [5, 6])
        complete(desk, 3, 1000)
        #expect(!desk.started.contains(7), "5 and 6 may be on the connection of 3")
        desk.began(desk[4], total: 1000, connection: 6)
        #expect(desk.started.contains(7) && mustShare(desk) == [5, 6])
    }

    /// The connection takes three streams.
    @Test(arguments: [true, false]) func `lets as many requests share as have found room, and one more after each success`(isRule: Bool) {
        let desk = desk(connections: 1, isRule: isRule)
        for number in 1...8 { desk.add(UInt64(number)) { $0.options.size = 1000 } }
        desk.began(desk[1], total: 1000, connection: 5)
        #expect(desk.started == Array(1...8))
        for number in 2...3 { desk.shares(desk[UInt64(number)], 5) }
        for number in 4...8 { desk.hop(desk[UInt64(number)], to: "h", origin: "http://h:80", sharing: .failed) }
        #expect(desk.permitted.isEmpty)
        complete(desk, 2, 1000)
        #expect(desk.permitted == [4] && mustShare(desk) == [4])
        desk.shares(desk[4], 5)
        #expect(desk.permitted == [4, 5])
        desk.hop(desk[5], to: "h", origin: "http://h:80", sharing: .failed)
        #expect(desk.permitted == [4, 5])
        complete(desk, 3, 1000)
        #expect(desk.permitted.count == 3)
    }

    /// At one of them, a connection takes one stream.
    @Test func `bounds the sharing of each origin by itself`() {
        let desk = desk(connections: 2, isRule: true)
        for number in 1...2 { desk.add(UInt64(number), "http://\(number == 1 ? "a" : "b").h/") { $0.options.size = 1000 } }
        desk.began(desk[1], total: 1000, connection: 5)
        desk.began(desk[2], total: 1000, connection: 6)
        desk.add(3, "http://a.h/") { $0.options.size = 1000 }
        #expect(mustShare(desk) == [3])
        desk.hop(desk[3], to: "a.h", origin: "http://a.h:80", sharing: .failed)
        for number in 4...6 { desk.add(UInt64(number), "http://b.h/") { $0.options.size = 1000 } }
        desk.add(7, "http://a.h/") { $0.options.size = 1000 }
        #expect(mustShare(desk) == [4, 5, 6] && !desk.started.contains(7) && desk.permitted.isEmpty)
    }

    /// A request with a place lands on the connection of another one.
    @Test func `lets requests share again once one has joined a connection`() {
        let desk = desk(connections: 2, isRule: true)
        for number in 1...2 { desk.add(UInt64(number)) { $0.options.size = 1000 } }
        desk.began(desk[1], total: 1000, connection: 5)
        desk.add(3) { $0.options.size = 1000 }
        desk.hop(desk[3], to: "h", origin: "http://h:80", sharing: .failed)
        #expect(desk.permitted.isEmpty)
        desk.began(desk[2], total: 1000, connection: 5)
        #expect(desk.permitted == [3] && mustShare(desk).isEmpty, "the second connection is free")
        desk.add(4) { $0.options.size = 1000 }
        #expect(mustShare(desk) == [4])
    }

    /// Its queue of small files never ends.
    @Test(arguments: [true, false]) func `lets none share while a request waits that cannot`(isRule: Bool) {
        let desk = desk(connections: 1, isRule: isRule)
        for number in 1...3 { desk.add(UInt64(number)) { $0.options.size = 1000 } }
        desk.began(desk[1], total: 1000, connection: 5)
        for number in 2...3 { desk.shares(desk[UInt64(number)], 5) }
        desk.hop(desk[2], to: "h", origin: "http://h:80", sharing: .impossible)
        for number in 4...9 { desk.add(UInt64(number)) { $0.options.size = 1000 } }
        #expect(desk.started == [1, 2, 3] && desk.permitted.isEmpty)
        complete(desk, 1, 1000)
        #expect(desk.started == [1, 2, 3] && desk.permitted.isEmpty)
        complete(desk, 3, 1000)
        #expect(desk.permitted == [2] && desk.started == [1, 2, 3])
    }

    /// The rule is for both origins. The queue of small files at the other one never ends.
    @Test func `lets none share while a redirect waits whose origin has no shared connection`() {
        let desk = desk(connections: 1, isRule: true)
        desk.add(1, "http://b.h/1") { $0.options.size = 1000 }
        desk.began(desk[1], total: 1000, connection: 5)
        desk.add(2, "http://front/2") { $0.options.size = 1000 }
        desk.hop(desk[2], to: "a.h", origin: "http://a.h:80")
        for number in 3...6 { desk.add(UInt64(number), "http://b.h/\(number)") { $0.options.size = 1000 } }
        #expect(desk.started == [1, 2] && desk.permitted.isEmpty)
        complete(desk, 1, 1000)
        #expect(desk.started == [1, 2] && desk.permitted == [2])
    }

    @Test(arguments: [true, false])
    func `keeps the order of the queue where small files share and a large one needs a place`(isRule: Bool) {
        let desk = desk(connections: 1, isRule: isRule)
        desk.add(1) { $0.options.size = 1000 }
        desk.began(desk[1], total: 1000, connection: 5)
        desk.add(2) { $0.options.size = 1000 }
        desk.add(3) { $0.options.size = 5 * Self.mebibyte }
        for number in 4...9 { desk.add(UInt64(number)) { $0.options.size = 1000 } }
        #expect(desk.started == [1, 2] && desk.hold(4) == .hostLimit)
        desk.shares(desk[2], 5)
        complete(desk, 1, 1000)
        #expect(desk.started == [1, 2])
        complete(desk, 2, 1000)
        #expect(desk.started == [1, 2, 3])
    }

    @Test func `lets another application share until the turn is that of the file that needs a place`() {
        let desk = desk(connections: 1, isRule: true)
        desk.add(1, app: "A") { $0.options.size = 1000 }
        desk.began(desk[1], total: 1000, connection: 5)
        desk.add(2, app: "A") { $0.options.size = 5 * Self.mebibyte }
        desk.add(3, app: "B") { $0.options.size = 1000 }
        #expect(desk.started == [1], "the applications are level, and 2 was queued first")
        desk.now = desk.now + .seconds(5)
        for number in 4...20 { desk.add(UInt64(number), app: "B") { $0.options.size = 1000 } }
        // The first transfer of A has cost five seconds, and each start costs one.
        #expect(desk.started == [1, 3, 4, 5, 6, 7])
    }

    @Test func `lets no redirect of another application share while a place is owed to a queued file that has waited longer`() {
        let desk = desk(connections: 1, isRule: true)
        desk.add(1, app: "A") { $0.options.size = 1000 }
        desk.began(desk[1], total: 1000, connection: 5)
        desk.add(2, app: "B") { $0.options.size = 5 * Self.mebibyte }
        for number in 3...5 { desk.add(UInt64(number), "http://front/\(number)", app: "A") { $0.options.size = 1000 } }
        for number in 3...5 { desk.hop(desk[UInt64(number)], to: "h", origin: "http://h:80") }
        #expect(desk.permitted.isEmpty && desk.hold(3) == .hostLimit && desk.started == [1, 3, 4, 5])
        complete(desk, 1, 1000)
        #expect(desk.permitted.isEmpty && desk.started == [1, 3, 4, 5, 2])
        complete(desk, 2, 5 * Self.mebibyte)
        #expect(desk.permitted == [3])
    }

    @Test func `lets redirects share if they belong to the application that is owed a place`() {
        let desk = desk(connections: 1, isRule: true)
        desk.add(1) { $0.options.size = 1000 }
        desk.began(desk[1], total: 1000, connection: 5)
        desk.add(2) { $0.options.size = 5 * Self.mebibyte }
        desk.add(3, "http://front/3") { $0.options.size = 1000 }
        desk.hop(desk[3], to: "h", origin: "http://h:80")
        #expect(desk.permitted == [3] && mustShare(desk) == [3])
    }

    @Test func `lets small files share again once the large one that is owed a place has no slot any more`() {
        let desk = desk(connections: 1, isRule: true)
        desk.add(1) { $0.options.size = 1000 }
        desk.began(desk[1], total: 1000, connection: 5)
        for number in 2...4 { desk.add(UInt64(number), "http://other/\(number)") { $0.options.size = 5 * Self.mebibyte } }
        desk.add(5) { $0.options.size = 5 * Self.mebibyte }
        desk.add(6) { $0.options.size = 1000 }
        #expect(desk.started == [1, 2, 3, 4], "a place is owed to 5")
        desk.add(7, "http://other/7") { $0.options.size = 5 * Self.mebibyte }
        #expect(desk.started == [1, 2, 3, 4, 7, 6])
        complete(desk, 2, 5 * Self.mebibyte)
        desk.add(8) { $0.options.size = 1000 }
        #expect(desk.started == [1, 2, 3, 4, 7, 6], "a place is owed to 5 again")
    }

    @Test func `tells the first queued download that it waits for its host, once a place is owed to another`() {
        let desk = desk(connections: 1, isRule: true)
        desk.set { $0.maxActive = 2 }
        for number in 1...4 { desk.add(UInt64(number)) { $0.options.size = 1000 } }
        desk.began(desk[1], total: 1000, connection: 5)
        desk.shares(desk[2], 5)
        #expect(desk.started == [1, 2] && desk.hold(3) == nil, "there is no slot")
        let told = desk.told.count
        desk.hop(desk[2], to: "h", origin: "http://h:80", sharing: .impossible)
        #expect(desk.started == [1, 2] && desk.hold(3) == .hostLimit && desk.told.dropFirst(told).contains(3))
    }

    /// The first request has left before the engine tells which connection the second one uses.
    @Test(arguments: [true, false]) func `counts the connection of a request that must share after the others have left`(isRule: Bool) {
        let desk = desk(connections: 1, isRule: isRule)
        for number in 1...2 { desk.add(UInt64(number)) { $0.options.size = 1000 } }
        desk.began(desk[1], total: 1000, connection: 5)
        #expect(desk.started == [1, 2])
        desk.add(3) { $0.options.size = ByteCount(5) * Self.mebibyte }
        complete(desk, 1, 1000)
        #expect(desk.started == [1, 2], "the second request may be on the connection of the first")
        desk.shares(desk[2], 5)
        #expect(desk.started == [1, 2])
        complete(desk, 2, 1000)
        #expect(desk.started == [1, 2, 3])
    }

    /// What the engine tells of three transfers on one connection. The first one has opened it.
    enum Tidings: CaseIterable, Sendable {
        case secondShares, thirdShares, firstEnds

        static let orders = allCases.flatMap { one in
            allCases.filter { $0 != one }.map { two in [one, two] + allCases.filter { $0 != one && $0 != two } }
        }
    }

    @Test(arguments: Tidings.orders, [true, false])
    func `counts one connection in whatever order its requests tell that they share it, or end`(order: [Tidings], isRule: Bool) throws {
        let desk = desk(connections: 1, isRule: isRule)
        func connections() -> Int { desk.scheduler.gate.hosts["h"]?.connections ?? 0 }
        for number in 1...3 { desk.add(UInt64(number)) { $0.options.size = 1000 } }
        desk.began(desk[1], total: 1000, connection: 5)
        #expect(desk.started == [1, 2, 3] && mustShare(desk) == [2, 3])
        desk.add(4) { $0.options.size = 5 * Self.mebibyte }
        for tidings in order {
            switch tidings {
            case .secondShares: desk.shares(desk[2], 5)
            case .thirdShares: desk.shares(desk[3], 5)
            case .firstEnds: complete(desk, 1, 1000)
            }
            #expect(connections() == 1 && desk.started == [1, 2, 3], "after \(tidings)")
        }
        let second = desk[2].request
        complete(desk, 2, 1000)
        #expect(connections() == 1 && desk.started == [1, 2, 3])
        // Its transfer has ended meanwhile.
        try desk.turn([.shares(second, connection: 5)])
        #expect(connections() == 1 && desk.started == [1, 2, 3])
        complete(desk, 3, 1000)
        #expect(connections() == 1 && desk.started == [1, 2, 3, 4], "the connection of the large file")
        complete(desk, 4, 5 * Self.mebibyte)
        #expect(connections() == 0)
    }

    /// The connection of the first request has ended meanwhile, and the second request has joined another one.
    @Test(arguments: [true, false], [true, false])
    func `counts the connection that a request names, not the one that it was expected on`(isEndFirst: Bool, isRule: Bool) {
        let desk = desk(connections: 2, isRule: isRule)
        func connections() -> Int { desk.scheduler.gate.hosts["h"]?.connections ?? 0 }
        for number in 1...4 { desk.add(UInt64(number)) { $0.options.size = 1000 } }
        #expect(desk.started == [1, 2])
        desk.began(desk[1], total: 1000, connection: 5)
        #expect(desk.started == [1, 2, 3, 4] && mustShare(desk) == [3, 4])
        desk.began(desk[2], total: 1000, connection: 6)
        #expect(connections() == 2)
        if isEndFirst { complete(desk, 1, 1000) }
        desk.shares(desk[3], 6)
        #expect(connections() == (isEndFirst ? 1 : 2))
        if !isEndFirst { complete(desk, 1, 1000) }
        #expect(connections() == 1)
        desk.shares(desk[4], 6)
        for number in 2...3 { complete(desk, UInt64(number), 1000) }
        #expect(connections() == 1)
        complete(desk, 4, 1000)
        #expect(connections() == 0)
    }

    @Test(arguments: [true, false]) func `gives a request that needs a connection of its own a place`(isRule: Bool) {
        let desk = desk(connections: 2, isRule: isRule)
        for number in 1...3 { desk.add(UInt64(number)) { $0.options.size = 1000 } }
        for number in 1...3 { desk.began(desk[UInt64(number)], total: 1000, connection: 5) }
        desk.hop(desk[2], to: "h", origin: "http://h:80", sharing: .impossible)
        #expect(desk.permitted == [2] && !desk.scheduler.mustShare(desk[2].request))
        desk.hop(desk[3], to: "h", origin: "http://h:80", sharing: .impossible)
        #expect(desk.permitted == [2] && desk.hold(3) == .hostLimit)
        desk.hop(desk[3], to: "h", origin: "http://h:80")
        #expect(desk.permitted == [2, 3] && desk.scheduler.mustShare(desk[3].request))
    }

    @Test(arguments: [true, false]) func `gives a large file on a shared connection a place of its own`(isRule: Bool) {
        let desk = desk(connections: 2, isRule: isRule)
        for number in 1...10 { desk.add(UInt64(number)) }
        #expect(desk.started == [1, 2])
        for number in 1...2 { desk.began(desk[UInt64(number)], total: Self.mebibyte, connection: 5) }
        #expect(desk.started == [1, 2] && desk.state(1) == .active && desk.state(2) == .active)
    }

    @Test(arguments: [true, false])
    func `stops a file that turns out large on a shared connection, if its host has no place`(isRule: Bool) {
        let desk = desk(connections: 1, isRule: isRule)
        for number in 1...3 { desk.add(UInt64(number)) { $0.options.size = 1000 } }
        desk.began(desk[1], total: 1000, connection: 5)
        #expect(desk.started == [1, 2, 3])
        desk.began(desk[2], total: Self.mebibyte, connection: 5)
        desk.began(desk[3], total: 1000, connection: 5)
        #expect([1, 2, 3].map { desk.state($0) } == [.active, .queued, .active])
    }

    /// Redirects, silences, ends and new rules move requests between hosts and connections.
    @Test func `counts the connections of each host as a new count does, after any changes`() throws {
        let hosts = ["a.h", "b.h", "c"]
        var sharing = 0
        for seed in 1...20 as ClosedRange<UInt64> {
            var random = SeededRandom(seed)
            let desk = Desk { $0.maxPerHost = 3 }
            for number in 1...60 {
                desk.add(UInt64(number), "http://\(hosts[number % 3])/\(number)") { $0.options.size = number % 2 == 0 ? 1000 : nil }
            }
            for _ in 0..<300 {
                let active = (1...60).map(UInt64.init).filter { desk.scheduler[DownloadNumber($0)]?.state == .active }
                guard let number = active.randomElement(using: &random) else { break }
                switch Int.random(in: 0..<12, using: &random) {
                case 0: complete(desk, number, 1000)
                case 1: desk.stalled(desk[number], Bool.random(using: &random))
                case 2, 3:
                    let host = hosts.randomElement(using: &random)!
                    let sharing: ConnectionSharing = [.possible, .possible, .failed, .impossible].randomElement(using: &random)!
                    desk.hop(desk[number], to: host, origin: "http://\(host):80", sharing: sharing)
                case 4 where desk.scheduler.mustShare(desk[number].request): desk.shares(desk[number], 5)
                case 4: desk.set { try? $0.hostRules.set("h", Bool.random(using: &random) ? HostRule(connections: 2) : HostRule()) }
                default:
                    desk.began(
                        desk[number], total: [nil, 1000, 1000, Self.mebibyte].randomElement(using: &random)!, isResumable: false,
                        connection: [nil, 5, 5, 6].randomElement(using: &random)!)
                }
                var (own, shared): ([String: Int], [String: Set<SharedConnection>]) = ([:], [:])
                var presumed: [String: Set<String>] = [:]
                for (_, request) in desk.scheduler.gate.placed where !request.isWaiting {
                    let host = desk.scheduler.settings.hostRules.governing(request.host).name
                    if let connection = request.shared {
                        if !shared[host, default: []].insert(connection).inserted { sharing += 1 }
                    } else if !request.isPresumedToShare {
                        own[host, default: 0] += 1
                    } else {
                        presumed[host, default: []].insert(request.origin)
                    }
                }
                for name in hosts + ["h"] {
                    let counted = desk.scheduler.gate.hosts[name]?.connections ?? 0
                    let unnamed = (presumed[name] ?? []).subtracting(shared[name]?.map(\.origin) ?? []).count
                    #expect(counted == (own[name] ?? 0) + (shared[name]?.count ?? 0) + unnamed, "\(name), seed \(seed)")
                }
            }
        }
        #expect(sharing > 1000, "requests that share a connection, over all steps")
    }

    @Test(arguments: [true, false]) func `counts files over HTTP 1 as one connection each`(isRule: Bool) {
        let desk = desk(connections: 2, isRule: isRule)
        for number in 1...10 { desk.add(UInt64(number)) { $0.options.size = 1000 } }
        desk.began(desk[1], total: 1000)
        #expect(desk.started == [1, 2])
    }
}
