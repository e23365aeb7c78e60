import DBus
import DownloaderInterface
import EventLoop
import TestSupport
import Testing
import TodokuClient

/// A service that can keep a client waiting for an answer, which no test can arrange with the real one.
@BusActor private final class StandInForeground: ObjectTree {
    private static let face = Face<StandInForeground>(
        Manager.interface, xml: { "" },
        methods: [
            Row(Manager.setForeground) { service, report, reply in
                service.reports.append(Report(app: report.0, isInFront: report.1))
                guard service.holdsNext else { return reply() }
                service.holdsNext = false
                service.held = reply
            }
        ])

    struct Report: Equatable {
        let app: String
        let isInFront: Bool
    }

    private let connection: Connection
    private(set) var reports: [Report] = []
    private var holdsNext = false
    private var held: DBus.Reply<Void>?

    init(on address: String) throws {
        connection = try Connection.open(address: address)
        connection.export(self)
        #expect(try connection.requestName(BusName.service))
    }

    /// Ends and starts again, as other programs see it. Holds the answer to the first report after that until `answer`.
    func restart() {
        (reports, holdsNext) = ([], true)
        #expect(throws: Never.self) { try connection.releaseName(BusName.service) }
        #expect(throws: Never.self) { _ = try connection.requestName(BusName.service) }
    }

    func answer() { held?() }

    func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? {
        path == BusName.managerPath.value ? [Self.face.of(self)] : nil
    }
    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
}

@Suite(.timeLimit(.minutes(5))) struct `A client of several applications whose service restarts` {
    @Test @BusActor func `does not report an application that has left the front meanwhile`() async throws {
        let bus = await PrivateBus()
        let service = try StandInForeground(on: bus.address)
        let client = try await DownloaderClient.connect(to: bus.address)
        for app in ["org.example.One", "org.example.Two"] { try await client.setForeground(app, true) }
        service.restart()
        #expect(await eventually { service.reports.count == 1 })
        let first = try #require(service.reports.first).app
        let other = first == "org.example.One" ? "org.example.Two" : "org.example.One"
        try await client.setForeground(other, false)
        service.answer()
        // When the first of these is answered, the client has made its next report, which the service has before the second.
        for _ in 0..<2 { try await client.setForeground(first, true) }
        #expect(service.reports.map(\.app) == [first, other, first, first])
        #expect(service.reports.map(\.isInFront) == [true, false, true, true])
    }
}
