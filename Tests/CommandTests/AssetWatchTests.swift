import DBus
import DownloaderInterface
import EventLoop
import TestSupport
import Testing
import TodokuClient

/// A service that can keep a client waiting for an answer, which no test can arrange with the real one in less than a minute.
@BusActor private final class StandInAssets: ObjectTree {
    private static let manager = Face<StandInAssets>(
        Manager.interface, xml: { "" },
        methods: [
            Row(Manager.assets) { service, _, reply in
                service.asked += 1
                // The bus answers so for a program that does not answer in time.
                if service.isSilent, service.asked == 1 { throw DBusError("org.freedesktop.DBus.Error.NoReply", "it hangs") }
                reply(service.assets.map { ObjectPath($0.path) })
                service.isListed()
            }
        ])
    private static let face = Face<StandInAssets>(
        Asset.interface, xml: { "" }, methods: [], properties: [PropertyRow(Asset.stage) { _ in "downloading" }])

    private let connection: Connection
    /// Whether the first list is not answered in time.
    private let isSilent: Bool
    /// The asset whose descriptions are sent by `answer` only.
    private let slow: AssetReference?
    private(set) var held: [Message] = []
    /// The registered assets, in order.
    var assets: [AssetReference]
    /// Called after the list has been sent.
    var isListed: () -> Void = {}
    /// How often the list was asked for.
    private(set) var asked = 0

    init(on address: String, _ assets: [AssetReference], isSilent: Bool = false, holding slow: AssetReference? = nil) throws {
        (self.assets, self.isSilent, self.slow) = (assets, isSilent, slow)
        connection = try Connection.open(address: address)
        connection.export(self)
        #expect(try connection.requestName(BusName.service))
    }

    func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? {
        switch path {
        case BusName.managerPath.value: [Self.manager.of(self)]
        case _ where assets.contains(where: { $0.path == path }): [Self.face.of(self)]
        default: nil
        }
    }
    func postpones(_ answer: Message, from path: String) -> Bool {
        guard path == slow?.path else { return false }
        held.append(answer)
        return true
    }

    func answer() {
        for message in held { connection.send(message) }
        held = []
    }

    func tellAdded(_ asset: AssetReference) {
        connection.send(Manager.assetAdded.message(from: BusName.managerPath, ObjectPath(asset.path)))
    }

    func tellRemoved(_ asset: AssetReference) {
        connection.send(Manager.assetRemoved.message(from: BusName.managerPath, ObjectPath(asset.path)))
    }

    func tellStage(_ stage: String, of asset: AssetReference) {
        let changed: [String: Variant] = [Asset.stage.name: .string(stage)]
        connection.send(Standard.propertiesChanged.message(from: ObjectPath(asset.path), (Asset.interface, changed, [])))
    }
    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
}

/// What a watch reports, in order.
@BusActor private final class ToldAssets {
    private(set) var news: [AssetNews] = []
    nonisolated init() {}

    /// The news in short, such as "a downloading" or "a removed".
    var words: [String] {
        func name(_ asset: AssetReference) -> String { asset.path.split(separator: "/").last.map(String.init) ?? "" }
        return news.map { news in
            switch news {
            case .changed(let description): "\(name(description.reference)) \(description.stage.name)"
            case .removed(let asset): "\(name(asset)) removed"
            case .absent: "absent"
            case .lost: "lost"
            }
        }
    }

    nonisolated var receive: @Sendable (AssetNews) -> Void {
        { news in BusActor.assumeIsolated { self.news.append(news) } }
    }
}

@Suite(.timeLimit(.minutes(5))) struct `A watch of assets whose service does not answer at first` {
    @Test(arguments: [false, true]) @BusActor func `reports the assets once it answers`(watchesAll: Bool) async throws {
        let bus = await PrivateBus()
        let asset = try #require(AssetReference("org.example.App/maps"))
        let service = try StandInAssets(on: bus.address, [asset], isSilent: true)
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

@Suite(.timeLimit(.minutes(5))) struct `A watch of named assets` {
    @Test @BusActor func `keeps an asset that is registered while another one is described`() async throws {
        let bus = await PrivateBus()
        let (new, slow) = (try #require(AssetReference("org.example.App/a")), try #require(AssetReference("org.example.App/c")))
        let service = try StandInAssets(on: bus.address, [slow], holding: slow)
        let client = try await DownloaderClient.connect(to: bus.address)
        let told = ToldAssets()
        let begun = Task { try await client.watchAssets([new, slow], told.receive) }
        #expect(await eventually { service.held.count == 1 })
        service.assets = [new, slow]
        service.tellAdded(new)
        #expect(await eventually { told.words.contains("a downloading") && service.held.count == 2 })
        service.answer()
        let watch = try await begun.value
        service.tellStage("ready", of: new)
        #expect(await eventually { told.words.last == "a ready" }, "\(told.words)")
        #expect(told.words == ["a removed", "a downloading", "c downloading", "a ready"])
        watch.stop()
    }

    /// The service leaves an asset out of its list before it sends the signal, which waits for the disk.
    @Test @BusActor func `reports each removal once`() async throws {
        let bus = await PrivateBus()
        let (first, second) = (try #require(AssetReference("org.example.App/a")), try #require(AssetReference("org.example.App/b")))
        let service = try StandInAssets(on: bus.address, [first])
        let client = try await DownloaderClient.connect(to: bus.address)
        let told = ToldAssets()
        let watch = try await client.watchAssets([first, second], told.receive)
        #expect(told.words == ["b removed", "a downloading"])
        service.assets = []
        service.tellAdded(second)
        #expect(await eventually { service.asked == 2 })
        for asset in [first, second] { service.tellRemoved(asset) }
        service.assets = [first]
        service.tellAdded(first)
        #expect(await eventually { told.words.last == "a downloading" && told.words.count > 2 })
        #expect(told.words == ["b removed", "a downloading", "a removed", "a downloading"])
        watch.stop()
    }
}

@Suite(.timeLimit(.minutes(5))) struct `The list of assets` {
    @Test @BusActor func `leaves out an asset that is unregistered before it is described`() async throws {
        let bus = await PrivateBus()
        let (first, gone) = (try #require(AssetReference("org.example.App/a")), try #require(AssetReference("org.example.App/b")))
        let service = try StandInAssets(on: bus.address, [first, gone])
        service.isListed = { [weak service] in service?.assets = [first] }
        let list = await Child.run([Desk.command, "asset", "list"], environment: bus.environment)
        #expect(list.status == 0 && list.errors == "", "\(list)")
        #expect(list.output.split(separator: "\n").count == 2, "a heading and an asset: \(list)")
        #expect(service.asked == 1)
    }
}
