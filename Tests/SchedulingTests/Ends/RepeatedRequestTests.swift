import DownloadModel
import Scheduling
import Testing

@Suite struct `A download whose request has a body` {
    private let unreachable = DownloadFailure(.network, "h cannot be reached.", isRetryable: true)
    /// As the engine reports a lost connection after the request has gone out.
    private let lost = DownloadFailure(.network, "The connection to h was lost.")

    private func begun() -> (Desk, ScheduledDownload) {
        let desk = Desk()
        let entry = desk.add(1) { $0.options.postData = [1, 2] }
        #expect(entry.state == .active && desk.started == [1])
        return (desk, entry)
    }

    private func isInterrupted(_ entry: ScheduledDownload) -> Bool { entry.state.failure?.name == .interrupted }

    @Test func `starts once its row says that the request may have gone out`() throws {
        let (desk, entry) = begun()
        #expect(desk.rows.downloads[entry.number]?.options.isPostSent == true)
        let isAfterSave = desk.history.contains { if case .startTransfer(_, afterSave: true) = $0 { true } else { false } }
        #expect(isAfterSave)
    }

    @Test func `fails after a kill instead of starting again, until somebody retries it`() throws {
        let (desk, _) = begun()
        desk.restart()
        #expect(isInterrupted(desk[1]) && desk.started == [1])
        desk.swept(DownloadNumber(1))
        try desk.steer(desk[1], .retry)
        #expect(desk.state(1) == .active && desk.started == [1, 1])
        desk.restart()
        #expect(isInterrupted(desk[1]) && desk.started == [1, 1])
    }

    @Test func `is verified after a kill if its response was whole, however short`() {
        let (desk, entry) = begun()
        let identity = FileIdentity(device: 1, inode: 1, mount: 1, boot: "b")
        desk.began(entry, total: 10)
        desk.ends(entry, .complete(size: 10, fileName: "f", ResumeData(written: 10, total: 10, validator: nil, identity: identity)))
        #expect(entry.state == .verifying)
        desk.restart()
        #expect(desk.state(1) == .verifying && desk.started == [1])
        // The crash has taken the unflushed bytes.
        desk.partLost(desk[1])
        #expect(isInterrupted(desk[1]) && desk.started == [1])
    }

    @Test(arguments: ["pause", "pause all", "sleep", "metered"]) func `fails if it was stopped and would start again`(stop: String) throws {
        let desk = Desk()
        let entry = desk.add(1) {
            $0.options.postData = [1]
            $0.options.allowsMetered = false
        }
        switch stop {
        case "pause": try desk.steer(entry, .pause)
        case "pause all": desk.pauseAll()
        case "sleep": desk.sleeps()
        default: desk.network(NetworkCondition(reach: .online, isMetered: true))
        }
        desk.ends(entry, .stopped(nil))
        #expect(!entry.state.hasEnded)
        switch stop {
        case "pause": try desk.steer(entry, .resume)
        case "pause all": desk.resumeAll()
        case "sleep": desk.wakes()
        default: desk.network(.open)
        }
        desk.slices()
        #expect(isInterrupted(entry) && desk.started == [1], "\(entry.state)")
    }

    @Test func `waits and starts again if its request did not go out`() {
        let (desk, entry) = begun()
        desk.fails(entry, unreachable)
        #expect(entry.state.name == "waiting" && desk.rows.downloads[entry.number]?.options.isPostSent == false)
        desk.waitUntilDue()
        #expect(entry.state == .active && desk.started == [1, 1])
    }

    @Test func `fails with the first failure after its request has gone out, even if the network is gone`() {
        let (desk, entry) = begun()
        desk.network(NetworkCondition(reach: .offline))
        desk.fails(entry, lost)
        #expect(entry.state == .failed(lost))
    }

    @Test func `is not sent without its body, which is forgotten a day after the failure`() throws {
        let (desk, entry) = begun()
        desk.fails(entry, lost)
        desk.wait(Limits.secretsAge)
        #expect(entry.record.options.postData == nil)
        try desk.steer(entry, .retry)
        #expect(isInterrupted(entry) && entry.state.failure?.message.contains("forgotten") == true && desk.started == [1])
    }
}
