internal import DBus
internal import EventLoop
internal import TestSupport
internal import Testing

@testable internal import Desktop

@Suite(.timeLimit(.minutes(10))) struct `Views of jobs` {
    @Test @BusActor func `of a server that answers late are closed if their jobs have ended, and else updated`() async throws {
        let bus = await PrivateBus()
        let server = try StandInJobServer(on: bus.address)
        server.isHanging = true
        let session = try Connection.open(address: bus.address)
        let views = JobViews(session: session, icon: "", patience: .milliseconds(1), wished: { _, _ in }, servedChanged: {})
        views.watch()
        #expect(await eventually { views.isServed })
        views.show(1, JobContent())
        views.show(2, JobContent())
        #expect(await eventually { server.views.count == 2 && !views.isServed })
        views.end(1, finished: false)
        views.show(3, JobContent())  // not requested from a silent server
        server.answer()
        #expect(await eventually { server.views.count == 3 && server.open.allSatisfy { !$0.updates.isEmpty } })
        let ends = server.views.map { $0.terminated }
        #expect(ends == [1, nil, nil])
        withExtendedLifetime((bus, views)) {}
    }
}
