import DownloadModel
import Scheduling
import Testing

@Suite struct `A private download` {
    private let failure = DownloadFailure(.httpStatus, "The server answered 404.", httpStatus: 404)

    private func ended(_ change: (inout DownloadRecord) -> Void = { _ in }) -> (Desk, ScheduledDownload) {
        let desk = Desk()
        let entry = desk.add(1) {
            $0.options.isPrivate = true
            change(&$0)
        }
        desk.fails(entry, failure)
        #expect(entry.state == .failed(failure))
        return (desk, entry)
    }

    @Test func `leaves the list and the database ten seconds after its end`() {
        let (desk, entry) = ended()
        #expect(desk.scheduler.nextWake == desk.now + Limits.privateAge && desk.scheduler.hasWork, "the service stays until then")
        desk.wait(Limits.privateAge + .microseconds(-1))
        #expect(!entry.isRemoved && desk.rows.downloads[entry.number] != nil)
        desk.wait(.microseconds(1))
        #expect(entry.isRemoved && desk.rows.downloads[entry.number] == nil && desk.scheduler.nextWake == nil)
        #expect(entry.hasLeftByItself)
        #expect(desk.actions.saves.contains(.scrubLog))
        #expect(desk.actions.contains { if case .removed(let gone) = $0 { gone === entry } else { false } })
    }

    @Test func `does not leave by itself if a call removes it`() throws {
        let (desk, entry) = ended()
        try desk.remove(entry)
        #expect(entry.isRemoved && !entry.hasLeftByItself)
    }

    @Test func `leaves at once if the service exits, and at the next start if it was killed`() {
        let (exiting, entry) = ended()
        exiting.exits()
        #expect(entry.isRemoved && exiting.rows.downloads.isEmpty)
        let (killed, _) = ended()
        killed.restart(after: .seconds(3600))
        killed.wait(.zero)
        #expect(killed.rows.downloads.isEmpty && killed.scheduler.entries.isEmpty)
    }

    @Test func `leaves at once if the clock is set back behind its end, also while no service runs`() {
        let (desk, entry) = ended()
        desk.clockJumps(by: .seconds(-3600))
        #expect(entry.isRemoved && desk.rows.downloads.isEmpty && desk.scheduler.nextWake == nil)
        let (killed, _) = ended()
        killed.restart(after: .seconds(-3600))
        #expect(killed.scheduler.nextWake == killed.now)
        killed.wait(.zero)
        #expect(killed.rows.downloads.isEmpty && killed.scheduler.entries.isEmpty && killed.scheduler.nextWake == nil)
    }

    @Test func `stays if the clock is set back by less than the time since its end`() {
        let (desk, entry) = ended()
        desk.wait(.seconds(5))
        desk.clockJumps(by: .seconds(-1))
        #expect(!entry.isRemoved)
        desk.wait(.seconds(6))
        #expect(entry.isRemoved)
    }

    @Test func `may be retried before, and stays then`() throws {
        let (desk, entry) = ended()
        try desk.steer(entry, .retry)
        #expect(entry.state == .active)
        desk.wait(Limits.privateAge)
        #expect(!entry.isRemoved && entry.state == .active)
    }

    @Test func `does not take others with it`() {
        let desk = Desk()
        let (open, secret) = (desk.add(1), desk.add(2) { $0.options.isPrivate = true })
        desk.fails(open, failure)
        desk.fails(secret, failure)
        desk.wait(Limits.privateAge)
        desk.exits()
        #expect(!open.isRemoved && secret.isRemoved)
    }
}
