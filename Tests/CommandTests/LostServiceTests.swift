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

    /// Ends a download and signals that, behind the answer that is being written.
    func endBehindAnswer(_ download: DownloadReference) {
        BusActor.spawn { [self] in
            guard let ended = downloads[download.path], ended.state != "finished" else { return }
            ended.state = "finished"
            let changed: [String: Variant] = ["State": .string(ended.state)]
            connection.send(Standard.propertiesChanged.message(from: ObjectPath(download.path), (Download.interface, changed, [])))
        }
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

@Suite(.timeLimit(.minutes(5))) struct `A download that ends right behind the answer to a watch` {
    private static let downloads = (1...300).map { DownloadReference(number: $0) }

    @BusActor private func service(on bus: PrivateBus) throws -> StandInService {
        let paths = Self.downloads.map { ($0.path, StandInDownload()) }
        let service = try StandInService(on: bus.address, Dictionary(uniqueKeysWithValues: paths))
        for (download, (_, standIn)) in zip(Self.downloads, paths) { standIn.isRead = { service.endBehindAnswer(download) } }
        return service
    }

    /// As in an app: `BusActor` did not start the task of the test.
    @Test @BusActor func `is reported as ended`() async throws {
        let bus = await PrivateBus()
        let service = try service(on: bus)
        let client = try await DownloaderClient.connect(to: bus.address)
        let told = ToldStates()
        var watches: [Watch] = []
        for download in Self.downloads { watches.append(try await client.watch([download], told.receive)) }
        #expect(await eventually { Self.downloads.allSatisfy { told.of[$0]?.last == "finished" } }, "\(told.of)")
        for watch in watches { watch.stop() }
        withExtendedLifetime(service) {}
    }

    @Test @BusActor func `is reported as ended by a watch that it is added to`() async throws {
        let bus = await PrivateBus()
        let service = try service(on: bus)
        let client = try await DownloaderClient.connect(to: bus.address)
        let told = ToldStates()
        let watch = try await client.watch([], told.receive)
        for download in Self.downloads { try await watch.add(download) }
        #expect(await eventually { Self.downloads.allSatisfy { told.of[$0]?.last == "finished" } }, "\(told.of)")
        watch.stop()
        withExtendedLifetime(service) {}
    }
}
