import DownloadModel
import Testing

@testable import Scheduling

@Suite struct `The automatic MaxActive` {
    private static let mebibyte: ByteCount = 1 << 20

    private func complete(_ desk: Desk, _ number: UInt64, _ size: ByteCount) {
        let identity = FileIdentity(device: 1, inode: number, mount: 1, boot: "b")
        let part = ResumeData(written: size, total: size, validator: nil, identity: identity)
        desk.ends(desk[number], .complete(size: size, fileName: "f", part))
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

    @Test func `gives the place of a file back that turns out large beside four others`() {
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
        let identity = FileIdentity(device: 1, inode: 8, mount: 1, boot: "b")
        let part = ResumeData(written: Self.mebibyte, total: nil, validator: .entityTag("\"a\""), identity: identity)
        _ = try? desk.turn([.checkpoint(desk[8], part), .grewLarge(DownloadNumber(7)), .grewLarge(DownloadNumber(8))])
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

    @Test func `counts small files on one HTTP 2 connection as one at their host`() {
        let desk = Desk { $0.maxPerHost = 1 }
        for number in 1...10 { desk.add(UInt64(number)) { $0.options.size = 1000 } }
        #expect(desk.started == [1])
        var response = Scheduler.Response(
            fileName: "f", mediaType: nil, source: nil, total: 1000, offset: 0, isResumable: false)
        response.connection = 5
        _ = try? desk.turn([.began(desk[1].request, response)])
        #expect(desk.started == Array(1...10))
    }

    @Test func `gives a large file on a shared connection a place of its own`() {
        let desk = Desk { $0.maxPerHost = 2 }
        for number in 1...10 { desk.add(UInt64(number)) }
        #expect(desk.started == [1, 2])
        for number in 1...2 {
            var response = Scheduler.Response(
                fileName: "f", mediaType: nil, source: nil, total: Self.mebibyte, offset: 0, isResumable: false)
            response.connection = 5
            _ = try? desk.turn([.began(desk[UInt64(number)].request, response)])
        }
        #expect(desk.started == [1, 2] && desk.state(1) == .active && desk.state(2) == .active)
    }

    @Test func `stops a file that turns out large on a shared connection, if its host has no place`() {
        let desk = Desk { $0.maxPerHost = 1 }
        desk.add(1) { $0.options.size = 1000 }
        desk.add(2) { $0.options.size = 1000 }
        desk.add(3) { $0.options.size = 1000 }
        func respond(_ number: UInt64, _ total: ByteCount) {
            var response = Scheduler.Response(fileName: "f", mediaType: nil, source: nil, total: total, offset: 0, isResumable: false)
            response.connection = 5
            _ = try? desk.turn([.began(desk[number].request, response)])
        }
        respond(1, 1000)
        #expect(desk.started == [1, 2, 3])
        respond(2, Self.mebibyte)
        respond(3, 1000)
        #expect([1, 2, 3].map { desk.state($0) } == [.active, .queued, .active])
    }

    @Test func `counts files over HTTP 1 as one connection each`() {
        let desk = Desk { $0.maxPerHost = 2 }
        for number in 1...10 { desk.add(UInt64(number)) { $0.options.size = 1000 } }
        desk.began(desk[1], total: 1000)
        #expect(desk.started == [1, 2])
    }
}
