import DownloadModel
import Scheduling
import Testing

private let failure = DownloadFailure(.httpStatus, "The server answered 404.", httpStatus: 404)

@Suite struct `Passwords, headers and cookies` {
    private static func record(_ number: UInt64, activate: String? = nil) -> DownloadRecord {
        Desk.record(number, "http://127.0.0.1/\(number)", app: "org.example.App") {
            ($0.options.headers, $0.options.username, $0.options.password) = ([HeaderField(name: "X-A", value: "secret")], "me", "word")
            $0.options.postData = [1]
            $0.options.cookies = (try? Cookie(line: "h\tFALSE\t/\tFALSE\t0\tn\tsecret")).map { [$0] } ?? []
            $0.options.activate = activate
        }
    }

    /// A desk with an active download.
    private func begun(toDescriptor: Bool = false, activate: String? = nil) -> (Desk, ScheduledDownload) {
        let desk = Desk()
        var record = Self.record(1, activate: activate)
        record.isToDescriptor = toDescriptor
        let entry = desk.addUnsaved(record)
        desk.saved(entry)
        #expect(entry.state == .active)
        return (desk, entry)
    }

    @Test func `are deleted from the row of a finished download`() {
        let (desk, entry) = begun()
        desk.bringToCommit(entry)
        #expect(entry.record.options.holdsSecrets)
        desk.committed(entry, path: "/d/f")
        #expect(!entry.record.options.holdsSecrets && entry.record.options.cookies.isEmpty && entry.record.options.postData == nil)
        #expect(desk.actions.saves.contains(.put(entry.record)) && desk.actions.saves.contains(.scrubLog))
    }

    @Test(arguments: [true, false], [String?.none, "org.example.App"])
    func `of a failed or cancelled download are kept for a day, for a retry`(isCancelled: Bool, activate: String?) throws {
        let (desk, entry) = begun(activate: activate)
        if isCancelled { try desk.steer(entry, .cancel) } else { desk.fails(entry, failure) }
        #expect(entry.state == (isCancelled ? .cancelled : .failed(failure)))
        desk.wait(Limits.secretsAge + .microseconds(-1))
        #expect(entry.record.options.holdsSecrets)
        let last = desk.now
        try desk.steer(entry, .retry)
        #expect(entry.record.options.password == "word" && entry.record.options.cookies.count == 1 && entry.record.options.postData == [1])
        try desk.steer(entry, .cancel)
        desk.wait(.microseconds(1))
        #expect(entry.record.options.holdsSecrets)
        if activate != nil { desk.acknowledge(entry) }
        desk.ends(entry, .stopped(nil))
        for number in desk.rows.sweeps.keys { desk.swept(number) }
        #expect(desk.scheduler.nextWake == last + Limits.secretsAge && !desk.scheduler.hasWork, "no service runs a day for that")
        desk.waitUntilDue()
        #expect(!entry.record.options.holdsSecrets)
        #expect(desk.actions.saves.contains(.put(entry.record)) && desk.actions.saves.contains(.scrubLog))
        #expect(desk.scheduler.nextWake == nil)
    }

    @Test func `of a proxy are deleted, and the proxy stays`() throws {
        let desk = Desk()
        let proxy = try ProxyAddress("http://me:word@proxy.example:3128")
        let entry = desk.addUnsaved(Desk.record(1, "http://127.0.0.1/1", app: "org.example.App") { $0.options.proxy = proxy })
        desk.saved(entry)
        #expect(entry.record.options.holdsSecrets)
        desk.bringToCommit(entry)
        desk.committed(entry, path: "/d/f")
        #expect(!entry.record.options.holdsSecrets)
        #expect(entry.record.options.proxy?.text == "http://proxy.example:3128")
        #expect(desk.actions.saves.contains(.put(entry.record)) && desk.actions.saves.contains(.scrubLog))
    }

    @Test func `are deleted at once if no retry is possible`() {
        let (desk, entry) = begun(toDescriptor: true)
        desk.fails(entry, failure)
        #expect(entry.state == .failed(failure) && !entry.record.options.holdsSecrets)
    }

    @Test func `that a row still has after a day are deleted at startup`() {
        var (old, young, finished) = (Self.record(1), Self.record(2), Self.record(3))
        (old.state, old.endedAt) = (.failed(failure), Desk.start + .seconds(-90_000))
        (young.state, young.endedAt) = (.cancelled, Desk.start + .seconds(-3600))
        (finished.state, finished.endedAt) = (.finished, Desk.start)
        let desk = Desk([old, young, finished])
        #expect(desk.scheduler.nextWake == WallTime(microseconds: 0) && !desk.scheduler.hasWork)
        desk.wait(.zero)
        #expect((1...3).map { desk[$0].record.options.holdsSecrets } == [false, true, false])
        #expect(desk.scheduler.nextWake == desk.now + .seconds(82_800))
    }
}
