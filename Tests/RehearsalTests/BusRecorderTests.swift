import DBus
import EventLoop
import TestSupport
import Testing

@testable import Rehearsal

@Suite(.timeLimit(.minutes(5))) struct `The recorder of the bus` {
    @Test @BusActor func `awaits no outcome from a service that was killed before it told the outcome`() async throws {
        let bus = await PrivateBus()
        let recorder = BusRecorder(ownName: "")
        let monitor = try Connection.open(address: bus.address)
        try await monitor.monitor { recorder.record($0) }
        let service = try Connection.open(address: bus.address)
        #expect(try service.requestName("org.todoku.Downloader1"))
        service.send(
            Standard.propertiesChanged.message(
                from: ObjectPath("/org/todoku/Downloader1/download/1"), ("org.todoku.Download1", ["State": .string("finished")], [])))
        #expect(await eventually { recorder.hasOpenEnds })
        // The bus does the same when the service is killed.
        #expect(throws: Never.self) { try service.releaseName("org.todoku.Downloader1") }
        #expect(await eventually { !recorder.hasOpenEnds })
        withExtendedLifetime((monitor, service)) {}
    }
}
