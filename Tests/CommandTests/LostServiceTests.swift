import DBus
import DownloaderInterface
import EventLoop
import TestSupport
import Testing
import TodokuClient

/// A download of `StandInService`.
@BusActor private final class StandInDownload: Sendable {
    var state = "active"
    /// Called before the state is read.
    var isRead: () -> Void = {}
    nonisolated init() {}
}

/// A service that can end between two answers, which no test can arrange with the real one.
@BusActor private final class StandInService: ObjectTree {
    private static let face = Face<StandInDownload>(
        Download.interface, xml: { "" }, methods: [],
        properties: [
            PropertyRow(Download.state) { download in
                download.isRead()
                return download.state
            }
        ])
    private let connection: Connection
    private let downloads: [String: StandInDownload]

    init(on address: String, _ downloads: [String: StandInDownload]) throws {
        self.downloads = downloads
        connection = try Connection.open(address: address)
        connection.export(self)
        #expect(try connection.requestName(BusName.service))
    }

    /// Ends and starts again, as other programs see it.
    func restart() {
        #expect(throws: Never.self) { try connection.releaseName(BusName.service) }
        #expect(throws: Never.self) { _ = try connection.requestName(BusName.service) }
    }

    func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? { downloads[path].map { [Self.face.of($0)] } }
    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
}

/// The states of each download that a watch reports, in order.
@BusActor private final class ToldStates {
    private(set) var of: [DownloadReference: [String]] = [:]
    nonisolated init() {}

    nonisolated var receive: @Sendable (DownloadUpdate) -> Void {
        { update in
            BusActor.assumeIsolated {
                if case .changed(let download) = update { self.of[download.reference, default: []].append(download.state.name) }
            }
        }
    }
}

@Suite(.timeLimit(.minutes(5))) struct `A watch whose service is lost again while the watch reads` {
    @Test @BusActor func `reports the end of a download that it had read before`() async throws {
        let bus = await PrivateBus()
        let (first, second) = (DownloadReference(number: 1), DownloadReference(number: 2))
        let (early, late) = (StandInDownload(), StandInDownload())
        let service = try StandInService(on: bus.address, [first.path: early, second.path: late])
        let client = try await DownloaderClient.connect(to: bus.address)
        let told = ToldStates()
        let watch = try await client.watch([first, second], told.receive)
        #expect(told.of == [first: ["active"], second: ["active"]])
        // The watch reads the first download, which ends then. The service is lost before it can signal the end.
        late.isRead = {
            late.isRead = {}
            early.state = "finished"
            service.restart()
        }
        service.restart()
        #expect(await eventually { told.of[first]?.last == "finished" })
        watch.stop()
    }
}
