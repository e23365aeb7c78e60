import DBus
import DownloadModel
import EventLoop
import Glibc
import PushInterface
import PushModel
import TestSupport
import Testing

@testable import PushService

@Suite(.timeLimit(.minutes(10))) struct `A push that cannot be saved` {
    /// The disk is full for one write: that of the first call. The second call comes during this write, and its own write succeeds.
    @Test @BusActor func `is on disk once a call that repeats it meanwhile is answered`() async throws {
        let bus = await PrivateBus()
        let connection = try Connection.open(address: bus.address)
        let folder = TemporaryFolder("todoku-push-store")
        let (store, registry, token) = try makeRegistration(folder)
        // The file is there already, so no service is asked for it.
        let (url, sha256, path) = ("https://example.org/a", String(repeating: "0", count: 64), folder("file"))
        writeFile(path, [1])
        let stamp = try #require(FileStamp(of: path))
        registry.change(token) { $0.remember(FetchedCopy(url: url, sha256: sha256, path: path, stamp: stamp)) }
        try await store.commit()
        let deliveries = makeDeliveries(connection, registry, store, folder)
        let end = wallClock() / 1_000_000 + 3600
        let message = "{\"url\": \"\(url)\", \"sha256\": \"\(sha256)\", \"size\": 1, \"valid-until\": \(end)}"
        let calls = Calls(deliveries, token, Array(message.utf8))
        let obstacle = folder.makeFolder("registrations/.new-\(token)")
        // With each call, the registration changes, too. Its record cannot be written.
        BusActor.spawn {
            registry.change(token) { _ in }
            await calls.receive()
            #expect(rmdir(obstacle) == 0)
        }
        // Two turns later, the write has begun. Its end comes in a later turn.
        BusActor.spawn {
            BusActor.spawn {
                registry.change(token) { _ in }
                await calls.receive()
            }
        }
        #expect(await eventually { calls.errors.count == 2 })
        #expect(calls.errors == [.storage, nil])
        #expect(deliveries.waitingCount(of: token) == 1)
        // Its file is replaced by one with the outcome, whose name begins with a dot before.
        #expect(listFolder(folder("messages")).count { !$0.hasPrefix(".") } == 1)
    }

    @Test @BusActor func `is told to its app though the end of its registration began meanwhile, and could not be saved`() async throws {
        let world = try await PushWorld(hasService: false)
        let app = try AppStandIn(world)
        let folder = TemporaryFolder("todoku-push-store")
        let (store, registry, token) = try makeRegistration(folder)
        let deliveries = makeDeliveries(world.connection, registry, store, folder)
        deliveries.begin([makeMessage(token, outcome: PendingPush.Outcome(.failed, error: "e", message: "m"))])
        let ended = try registry.unregister(app: PushWorld.app, name: "a", from: .user)
        // The call of the app has found no registration after this.
        await withCheckedContinuation { continuation in BusActor.spawn { continuation.resume() } }
        registry.restore(ended)
        deliveries.resume(token)
        #expect(await app.wasCalled())
        #expect(app.calls.map(\.result) == ["failed"])
        #expect(await eventually { deliveries.waitingCount(of: token) == 0 })
    }

    @Test func `ends when it is no longer valid, though its fetch ended while its registration could not be ended`() async throws {
        #expect(try await inTime(PushWorld.validities) { try await ends(after: $0) }, PushWorld.tooSlow)
    }

    /// - Returns: whether the file was asked for again while the message was valid.
    @BusActor private func ends(after seconds: UInt64) async throws -> Bool {
        let start = try await SilentStart()
        let (service, app, registry, deliveries, token) = (start.service, start.app, start.registry, start.deliveries, start.token)
        service.state = "active"
        let end = wallClock() / 1_000_000 + seconds
        deliveries.begin([makeMessage(token, until: end)])
        guard await eventually({ service.fetches.count == 1 }) else { return false }
        let ended = try registry.unregister(app: PushWorld.app, name: "a", from: .user)
        service.speak(DBusError("org.todoku.Error.HttpStatus", "404"))
        // The answers of a connection arrive in their order: that of Fetch has been read before the second of these.
        for _ in 0..<2 {
            start.files.removeDownload("other", of: PushWorld.app)
            #expect(await eventually { !start.filesHold.isHeld })
        }
        registry.restore(ended)
        service.silence()
        deliveries.resume(token)
        guard await eventually({ service.fetches.count == 2 }), wallClock() / 1_000_000 < end else { return false }
        #expect(await app.wasCalled())
        #expect(wallClock() / 1_000_000 >= end)
        #expect(app.calls.map(\.result) == ["failed"] && app.calls.first?.details["error"] == .string("org.todoku.Error.Expired"))
        return true
    }
}

/// A registration in this process, whose call was answered although it is not on disk yet.
@BusActor func makeRegistration(_ folder: TemporaryFolder) throws -> (PushStore, Registry, token: String) {
    let store = PushStore(folder: folder.path)
    _ = try store.open()
    let registry = Registry([], store: store)
    let change = try registry.register(app: PushWorld.app, name: "a", options: ["hosts": .strings(["example.org"])], from: .user)
    registry.confirm(change)
    return (store, registry, change.token)
}

/// A message about a file of one byte, as it is kept.
/// - Parameter end: `valid-until`; nil: long ago.
@BusActor func makeMessage(
    _ token: String, url: String = "https://example.org/a", until end: UInt64? = nil, outcome: PendingPush.Outcome? = nil
) -> PendingPush {
    let push = AcceptedPush(
        url: url, sha256: String(repeating: "0", count: 64), size: 1, type: nil, validUntil: end ?? 1,
        patience: end == nil ? 1 : 3_600_000)
    return PendingPush(
        id: randomName(), token: token, app: PushWorld.app, push: push, arrived: WallTime(microseconds: end == nil ? 1 : wallClock()),
        options: nil, isSandboxed: false, outcome: outcome)
}

/// - Parameter files: nil: those of a service on the session bus.
@BusActor func makeDeliveries(
    _ connection: Connection, _ registry: Registry, _ store: PushStore, _ folder: TemporaryFolder, files: PushedFiles? = nil
) -> Deliveries {
    let idleExit = IdleExit(connection: connection, name: Push.busName, idle: .seconds(3600))
    let log = PushOptions(folder: folder.path).logger
    return Deliveries(
        connection: connection, registry: registry, store: store, files: files ?? PushedFiles(hold: idleExit.makeHold(), log: log),
        apps: PushedApps(connection: connection, registry: registry), hold: idleExit.makeHold(), log: log)
}

/// What fetches files by the service of a test's session.
/// - Parameter hold: what keeps the program alive while a call is not answered; nil: one of its own.
@BusActor func makeFiles(_ world: PushWorld, _ folder: TemporaryFolder, hold: IdleExit.Hold? = nil) -> PushedFiles {
    let idleExit = IdleExit(connection: world.connection, name: Push.busName, idle: .seconds(3600))
    return PushedFiles(hold: hold ?? idleExit.makeHold(), log: PushOptions(folder: folder.path).logger, address: world.bus.address)
}

/// The start of a program that has one registration. The service answers no fetch until a test says otherwise.
@BusActor struct SilentStart {
    let world: PushWorld
    let service: ServiceStandIn
    let app: AppStandIn
    let folder = TemporaryFolder("todoku-push-store")
    let store: PushStore
    let registry: Registry
    let token: String
    /// Held while a call of `files` is not answered.
    let filesHold: IdleExit.Hold
    let files: PushedFiles
    let deliveries: Deliveries

    init() async throws {
        world = try await PushWorld(hasService: false)
        service = try ServiceStandIn(world)
        service.silence()
        app = try AppStandIn(world)
        (store, registry, token) = try makeRegistration(folder)
        try await store.commit()
        filesHold = IdleExit(connection: world.connection, name: Push.busName, idle: .seconds(3600)).makeHold()
        files = makeFiles(world, folder, hold: filesHold)
        deliveries = makeDeliveries(world.connection, registry, store, folder, files: files)
    }
}

/// Calls of a distributor that bring one message.
@BusActor private final class Calls {
    private let deliveries: Deliveries
    private let token: String
    private let message: [UInt8]
    /// The errors of the answered calls; nil: the message was taken.
    private(set) var errors: [ErrorName?] = []

    init(_ deliveries: Deliveries, _ token: String, _ message: [UInt8]) {
        (self.deliveries, self.token, self.message) = (deliveries, token, message)
    }

    func receive() async {
        do throws(Refusal) {
            try await deliveries.receive(token, message, version: 1)
            errors.append(nil)
        } catch { errors.append(error.name) }
    }
}
