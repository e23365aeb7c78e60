import DBus
import DownloaderInterface
import EventLoop
import TestSupport
import Testing
import TodokuClient

/// A service that does not answer its first call in time, which would take a minute with the real one.
@BusActor private final class StandInAssets: ObjectTree {
    private static let manager = Face<StandInAssets>(
        Manager.interface, xml: { "" },
        methods: [
            Row(Manager.assets) { service, _, reply in
                service.asked += 1
                // The bus answers so for a program that does not answer in time.
                if service.asked == 1 { throw DBusError("org.freedesktop.DBus.Error.NoReply", "it hangs") }
                reply([ObjectPath(service.asset.path)])
            }
        ])
    private static let face = Face<StandInAssets>(
        Asset.interface, xml: { "" }, methods: [], properties: [PropertyRow(Asset.stage) { _ in "downloading" }])

    private let connection: Connection
    private let asset: AssetReference
    private(set) var asked = 0

    init(on address: String, _ asset: AssetReference) throws {
        self.asset = asset
        connection = try Connection.open(address: address)
        connection.export(self)
        #expect(try connection.requestName(BusName.service))
    }

    func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? {
        switch path {
        case BusName.managerPath.value: [Self.manager.of(self)]
        case asset.path: [Self.face.of(self)]
        default: nil
        }
    }
    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
}

/// What a watch reports, in order.
@BusActor private final class ToldAssets {
    private(set) var news: [AssetNews] = []
    nonisolated init() {}

    nonisolated var receive: @Sendable (AssetNews) -> Void {
        { news in BusActor.assumeIsolated { self.news.append(news) } }
    }
}

@Suite(.timeLimit(.minutes(5))) struct `A watch of assets whose service does not answer at first` {
    @Test(arguments: [false, true]) @BusActor func `reports the assets once it answers`(watchesAll: Bool) async throws {
        let bus = await PrivateBus()
        let asset = try #require(AssetReference("org.example.App/maps"))
        let service = try StandInAssets(on: bus.address, asset)
        let client = try await DownloaderClient.connect(to: bus.address)
        let told = ToldAssets()
        let watch = try await client.watchAssets(watchesAll ? nil : [asset], told.receive)
        #expect(await eventually { !told.news.isEmpty })
        guard case .changed(let description)? = told.news.first else {
            Issue.record("\(told.news)")
            return
        }
        #expect((description.reference, description.stage) == (asset, .downloading))
        #expect(service.asked == 2)
        watch.stop()
    }
}
