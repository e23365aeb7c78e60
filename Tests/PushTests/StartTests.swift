import DBus
import DownloadModel
import DownloaderInterface
import EventLoop
import Glibc
import PushInterface
import PushModel
import TestSupport
import Testing

@testable import PushService

@Suite(.timeLimit(.minutes(10))) struct `A push of an earlier process` {
    @Test @BusActor func `is read though a thousand others, of registrations that cannot be read, are kept`() async throws {
        let folder = TemporaryFolder("todoku-push-store")
        let store = PushStore(folder: folder.path)
        _ = try store.open()
        let token = try Registry([], store: store).register(
            app: PushWorld.app, name: "a", options: ["hosts": .strings(["example.org"])], from: .user
        ).token
        try await store.commit()
        let push = AcceptedPush(
            url: "https://example.org/a", sha256: String(repeating: "0", count: 64), size: 1, type: nil, validUntil: 1, patience: 1)
        func write(_ id: String, of token: String) {
            let message = PendingPush(
                id: id, token: token, app: PushWorld.app, push: push, arrived: WallTime(microseconds: 1), options: nil,
                isSandboxed: false, outcome: nil)
            writeFile(folder("messages/\(id)"), Message.bytes(of: message.record))
        }
        // Names are read in alphabetical order.
        for number in 0..<max(Registry.most, Deliveries.mostWaiting) {
            writeFile(folder("registrations/!\(number)"), [1])
            write("a\(number)", of: "!\(number)")
        }
        write("b", of: token)
        let content = try store.open()
        #expect(content.registrations.map(\.token) == [token])
        #expect(content.messages.map(\.id) == ["b"])
        #expect(listFolder(folder("messages")).count == Deliveries.mostWaiting + 1)
    }

    @Test func `leaves no download of the push before it on the list`() async throws {
        let world = try await PushWorld(hasService: false)
        let service = try await ServiceStandIn(world)
        let distributor = await world.distributor(versions: [1])
        let app = try await AppStandIn(world)
        let file = await Served()
        _ = try await world.register()
        let token = await distributor.token()
        func send(_ message: String) async {
            #expect(await world.connectorError(UnifiedPush.Version1.message, (token, Array(message.utf8), "id")) == nil)
        }
        await send(file.message())
        #expect(await app.wasCalled())
        let first = BusName.path(app: PushWorld.app, token: try #require(await service.fetches.first?.options["token"]?.string)).value
        await service.holdRemovals(true)
        await send(file.message(["url": "\"\(file.server.url("/second.png"))\""]))
        #expect(await eventually { await service.removed == [first] })
        // The call has not reached the service: it ends, too.
        await world.kill()
        await service.holdRemovals(false)
        _ = try await world.entry()
        #expect(await app.wasCalled(2))
        #expect(await eventually { await service.removed == [first, first] })
    }
}
