import DownloadModel
import Testing

@testable import Scheduling

extension Desk {
    /// Adds downloads of `app`, whose files have `size` bytes.
    fileprivate func add(_ numbers: ClosedRange<UInt64>, app: String, size: ByteCount) {
        for number in numbers { add(number, "http://\(app)/\(number)", app: app) { $0.options.size = size } }
    }

    /// Ends the transfer and the download some milliseconds later.
    fileprivate func finish(_ number: UInt64) {
        now = now + .milliseconds(10)
        try? steer(self[number], .cancel)
        ends(self[number], .stopped(nil))
    }
}

@Suite struct `Turns under the automatic MaxActive` {
    private static let mebibyte: ByteCount = 1 << 20

    /// A half of a file, with a validator.
    private func part(of size: ByteCount) -> ResumeData {
        ResumeData(
            written: size / 2, total: size, validator: .entityTag("\"1\""),
            identity: FileIdentity(device: 1, inode: 2, mount: 3, boot: "b"))
    }

    @Test func `rotate for the places of large files, by the time used`() {
        let desk = Desk { $0.maxPerHost = 0 }
        desk.add(1...50, app: "A", size: Self.mebibyte)
        desk.add(51...60, app: "B", size: Self.mebibyte)
        #expect(desk.started == [1, 2, 3, 4])
        for index in 0..<10 { desk.finish(desk.started[index]) }
        #expect(desk.started.dropFirst(4).count { $0 > 50 } == 5, "\(desk.started)")
        // Within one application: first in, first out.
        #expect(desk.started.filter { $0 <= 50 } == Array(1...9) && desk.started.filter { $0 > 50 } == Array(51...55))
    }

    @Test func `take the place of a large file that can resume`() {
        let desk = Desk { $0.maxPerHost = 0 }
        desk.add(1...4, app: "A", size: 1 << 40)
        desk.add(5...5, app: "B", size: Self.mebibyte)
        for _ in 0..<3 { desk.wait(.seconds(6)) }
        #expect(desk.started == [1, 2, 3, 4], "no file of A can go on from what it has")
        for number in 1...4 {
            desk.began(desk[UInt64(number)], isResumable: false)
            desk.checkpoint(desk[UInt64(number)], part(of: 1 << 40))
        }
        for _ in 0..<3 { desk.wait(.seconds(6)) }
        #expect(desk.started == [1, 2, 3, 4], "the server has stopped sending a validator, so the bytes would be lost")
        for number in 1...4 { desk.began(desk[UInt64(number)], total: 1 << 40, offset: 1 << 39) }
        for _ in 0..<3 { desk.wait(.seconds(6)) }
        #expect(desk.started == [1, 2, 3, 4, 5])
        #expect((1...4).count { desk.state($0) == .queued } == 1)
    }

    /// The servers have other files than before. The bytes of a new file are lost if its transfer stops before they replace the held bytes.
    @Test func `take no place of a file that has changed, until its new bytes have replaced the held ones`() {
        let desk = Desk { $0.maxPerHost = 0 }
        desk.add(1...4, app: "A", size: 1 << 40)
        for number in 1...4 {
            desk.checkpoint(desk[UInt64(number)], part(of: 1 << 40))
            desk.began(desk[UInt64(number)])
        }
        desk.add(5...5, app: "B", size: Self.mebibyte)
        for _ in 0..<3 { desk.wait(.seconds(6)) }
        #expect(desk.started == [1, 2, 3, 4])
        let new = FileIdentity(device: 1, inode: 9, mount: 3, boot: "b")
        desk.checkpoint(desk[2], ResumeData(written: 0, total: nil, validator: .entityTag("\"2\""), identity: new))
        for _ in 0..<3 { desk.wait(.seconds(6)) }
        #expect(desk.started == [1, 2, 3, 4, 5] && desk.state(2) == .queued)
    }

    /// The end of a small file lets no further large file start, even if all 64 places are taken.
    @Test(arguments: [20, 60] as [UInt64]) func `stop no small file for a large one`(small: UInt64) {
        let desk = Desk { $0.maxPerHost = 0 }
        desk.add(1...4, app: "A", size: 1 << 40)
        desk.add(5...4 + small, app: "A", size: 1000)
        for number in 5...4 + small { desk.checkpoint(desk[number], part(of: 1000)) }
        if small == 60 { desk.add(65...100, app: "A", size: 1000) }
        desk.add(201...201, app: "B", size: Self.mebibyte)
        let started = desk.started
        for _ in 0..<3 { desk.wait(.seconds(6)) }
        #expect(desk.started == started && (1...4).allSatisfy { desk.state($0) == .active }, "\(desk.started.dropFirst(started.count))")
        desk.checkpoint(desk[2], part(of: 1 << 40))
        for _ in 0..<3 { desk.wait(.seconds(6)) }
        #expect(Array(desk.started.dropFirst(started.count)) == [201] && desk.state(2) == .queued)
    }

    /// All places are taken by small files of one application.
    @Test(arguments: [1000, 1 << 20] as [ByteCount]) func `give the next place to an application that has none`(size: ByteCount) {
        let desk = Desk { $0.maxPerHost = 0 }
        desk.add(1...100, app: "A", size: 1000)
        desk.add(101...102, app: "B", size: size)
        #expect(desk.started == Array(1...64))
        desk.finish(1)
        #expect(desk.started.last == 101)
        desk.finish(2)
        #expect(desk.started.last == 102, "A has used more time")
        desk.finish(3)
        #expect(desk.started.last == 65)
    }

    /// The large file 21 precedes the redirect 20 at its host. Then 23, at another host, takes the last place of large files.
    ///
    /// - Returns: the desk, and the downloads that it has started before places become free.
    private func contended(connections: UInt32, hosts: Int = SliceSize().hosts) throws -> (desk: Desk, started: [UInt64]) {
        let desk = Desk { $0.maxPerHost = connections }
        let first = Array(1...UInt64(connections))
        for number in first { desk.add(number, "http://h/\(number)", app: "A") { $0.options.size = 1000 } }
        for number in UInt64(11)...14 { desk.add(number, "http://other\(number)/", app: "other") { $0.options.size = Self.mebibyte } }
        desk.add(20, "http://front/20", app: "A") { $0.options.size = 1000 }
        desk.hop(desk[20], to: "h", origin: "http://h:80")
        desk.add(21, "http://h/21", app: "B") { $0.options.size = Self.mebibyte }
        desk.add(22, "http://h/22", app: "C") { $0.options.size = 1000 }
        desk.add(23, "http://other23/", app: "D") {
            $0.options.size = Self.mebibyte
            $0.options.priority = 1
        }
        let started = first + [11, 12, 13, 14, 20]
        #expect(desk.started == started && desk.permitted.isEmpty)
        desk.scheduler.sliceSize.hosts = hosts
        let ended = first + [11]
        try desk.turn(ended.map { Scheduler.Event.steer(desk[$0], .cancel) })
        return (desk, started)
    }

    @Test(arguments: [1, 2] as [UInt32])
    func `lost by a large file without a slot go to a small file at once, before a redirect`(connections: UInt32) throws {
        let (desk, started) = try contended(connections: connections)
        #expect(desk.started == started + [23, 22])
        let permitted: [UInt64] = connections == 1 ? [] : [20]
        #expect(desk.permitted == permitted, "the redirect takes the second place")
        desk.finish(22)
        #expect(desk.permitted == [20])
    }

    /// A slice may end with the last host that has changed.
    @Test(arguments: 1...40) func `lost by a large file go to a small one, however few hosts a slice refreshes`(hosts: Int) throws {
        let (desk, started) = try contended(connections: 1, hosts: hosts)
        desk.slices()
        #expect(desk.started == started + [23, 22] && desk.permitted.isEmpty)
    }
}
