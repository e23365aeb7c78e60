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
        for number in 1...4 { desk.checkpoint(desk[UInt64(number)], part(of: 1 << 40)) }
        for _ in 0..<3 { desk.wait(.seconds(6)) }
        #expect(desk.started == [1, 2, 3, 4, 5])
        #expect((1...4).count { desk.state($0) == .queued } == 1)
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
}
