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

    /// A file has the place of the folder, as if the disk could not read the folder. Without its registration, a message would be deleted.
    @Test @BusActor func `is kept if the registrations cannot be listed, because the program does not start`() throws {
        let folder = TemporaryFolder("todoku-push-store")
        let store = PushStore(folder: folder.path)
        _ = try store.open()
        #expect(rmdir(folder("registrations")) == 0)
        writeFile(folder("registrations"), [], mode: 0o700)
        let message = makeMessage(randomName())
        writeFile(folder("messages/\(message.id)"), Message.bytes(of: message.record))
        do throws(Refusal) {
            let content = try store.open()
            Issue.record("\(content.messages.count) messages of no registration")
        } catch { #expect(error.name == .storage && error.message.contains(folder("registrations")), "\(error.message)") }
        #expect(listFolder(folder("messages")) == [message.id])
    }

    /// The service refuses more than 256 waiting calls of one connection.
    @Test @BusActor func `is asked for beside at most 239 others, also after its time`() async throws {
        let start = try await SilentStart()
        let (service, deliveries, token) = (start.service, start.deliveries, start.token)
        deliveries.begin((0..<300).map { makeMessage(token, url: "https://example.org/\($0)") })
        #expect(await eventually { service.fetches.count >= 240 })
        // The calls of a connection arrive in their order: a further Fetch would come before the second of these.
        for count in 1...2 {
            start.files.removeDownload("other", of: PushWorld.app)
            #expect(await eventually { service.removed.count == count })
        }
        #expect(service.fetches.count == 240)
        service.speak(DBusError("org.todoku.Error.HttpStatus", "404"))
        // On a slow disk, the ends of 300 messages take long.
        #expect(await eventually(within: .seconds(180)) { deliveries.waitingCount(of: token) == 0 })
        #expect(service.fetches.count == 300 && start.app.calls.count == 300)
    }

    /// 200 others take the calls that may wait for a network, and all do.
    @Test @BusActor func `is asked for at its end though the files of all others wait for a network`() async throws {
        let start = try await SilentStart()
        var others: [String] = []
        for number in 0..<50 {
            let change = try start.registry.register(
                app: "\(PushWorld.app)\(number)", name: "a", options: ["hosts": .strings(["example.org"])], from: .user)
            start.registry.confirm(change)
            others.append(change.token)
        }
        try await start.store.commit()
        let now = wallClock() / 1_000_000
        let messages = (0..<200).map { makeMessage(others[$0 / 4], url: "https://example.org/\($0)", until: now + 3600) }
        start.deliveries.begin(messages + [makeMessage(start.token, url: "https://example.org/200", until: now + 20)])
        // On a busy machine, its time may be over before the others are asked for.
        #expect(await eventually(within: .seconds(120)) { start.service.fetches.contains { $0.url == "https://example.org/200" } })
    }

    @Test @BusActor func `is asked for again at its end if the service has not answered, because the file may be there`() async throws {
        #expect(try await inTime(PushWorld.validities) { try await isAskedForAgain(after: $0) }, PushWorld.tooSlow)
    }

    /// - Returns: whether the file was asked for while the message was valid.
    @BusActor private func isAskedForAgain(after seconds: UInt64) async throws -> Bool {
        let start = try await SilentStart()
        let (service, app, deliveries, token) = (start.service, start.app, start.deliveries, start.token)
        let end = wallClock() / 1_000_000 + seconds
        deliveries.begin([makeMessage(token, until: end)])
        guard await eventually({ service.fetches.count == 1 }), wallClock() / 1_000_000 < end else { return false }
        #expect(await eventually(within: .seconds(120)) { service.descriptions == 1 })
        #expect(wallClock() / 1_000_000 >= end)
        service.speak(DBusError("org.todoku.Error.HttpStatus", "404"))
        #expect(await app.wasCalled())
        #expect(await eventually { deliveries.waitingCount(of: token) == 0 })
        #expect(app.calls.count == 1 && app.calls.first?.details["error"] != .string("org.todoku.Error.Expired"))
        return true
    }

    @Test @BusActor func `is asked for at its end though the service has refused it for now, because the file may be there`() async throws {
        // The next try comes after 60 seconds, so the message must end before.
        #expect(
            try await inTime([20, 40] as [UInt64]) { try await isAskedForAfterRefusal(after: $0) },
            "the steps before the end of the message took too long, or the file was asked for with the next try only")
    }

    /// - Returns: whether the refusal came while the message was valid, and the file was asked for before the next try.
    @BusActor private func isAskedForAfterRefusal(after seconds: UInt64) async throws -> Bool {
        let start = try await SilentStart()
        let (service, app, deliveries, token) = (start.service, start.app, start.deliveries, start.token)
        let end = wallClock() / 1_000_000 + seconds
        deliveries.begin([makeMessage(token, until: end)])
        guard await eventually({ service.fetches.count == 1 }), wallClock() / 1_000_000 < end else { return false }
        let refusal = ContinuousClock.now
        service.speak(DBusError("org.todoku.Error.Storage", "full"))
        #expect(await eventually(within: .seconds(120)) { service.descriptions == 1 })
        // The next try comes a minute after the refusal.
        guard ContinuousClock.now - refusal < .seconds(60) else { return false }
        #expect(wallClock() / 1_000_000 >= end)
        #expect(await app.wasCalled())
        #expect(app.calls.map(\.result) == ["no-data"])
        #expect(await eventually { deliveries.waitingCount(of: token) == 0 })
        return true
    }

    /// As when the clock is set back between two steps: no timer would end the download.
    @Test @BusActor func `is not fetched once its time was over, whatever the clock says next`() async throws {
        let world = try await PushWorld(hasService: false)
        let service = try ServiceStandIn(world)
        service.state = "active"
        let folder = TemporaryFolder("todoku-push-store")
        let (_, registry, token) = try makeRegistration(folder)
        let message = makeMessage(token)
        var looks = 0
        let end = await makeFiles(world, folder).fetch(message, try #require(registry[token])) {
            looks += 1
            return looks == 1 ? .over : .inTime
        }
        if case .expired = end {} else { Issue.record("\(end)") }
        #expect(service.fetches.isEmpty && service.descriptions == 1)
    }

    /// The program may have died before the service had heard of the end.
    @Test @BusActor func `that was given up leaves no download behind, also if its app has answered before the service`() async throws {
        #expect(try await inTime { try await leavesNoDownload() }, "each time, the app answered after the service was given up")
    }

    /// - Returns: whether all was seen in the minute in which the answer of the service is waited for.
    @BusActor private func leavesNoDownload() async throws -> Bool {
        let start = try await SilentStart()
        let (service, store, folder) = (start.service, start.store, start.folder)
        let error = ErrorName.expired.busName
        let message = makeMessage(start.token, outcome: PendingPush.Outcome(.failed, error: error, message: "late"))
        store.put(.message(message.id), message.record)
        try await store.commit()
        service.holdRemovals(true)
        let begin = ContinuousClock.now
        start.deliveries.begin([message])
        #expect(await start.app.wasCalled())
        #expect(await eventually { start.deliveries.waitingCount(of: start.token) == 0 })
        #expect(await eventually { service.removed == [BusName.path(app: PushWorld.app, token: "push_\(message.id)").value] })
        // Not before the service has answered, because the program may die once more.
        try await store.commit()
        let records = listFolder(folder("messages"))
        guard ContinuousClock.now - begin < .seconds(60) else { return false }
        #expect(records == [message.id])
        service.holdRemovals(false)
        #expect(await eventually { listFolder(folder("messages")).isEmpty })
        return true
    }

    /// As when the service is killed before the removal is on its disk. The end of a registration was noted before.
    @Test @BusActor func `of a registration that has ended is kept until the service has removed its download`() async throws {
        let start = try await SilentStart()
        let (service, store, folder) = (start.service, start.store, start.folder)
        let message = makeMessage("ended", until: wallClock() / 1_000_000 + 3600)
        store.put(.message(message.id), message.record)
        try await store.commit()
        service.refuseRemovals(Self.noReply)
        start.deliveries.begin([message])
        #expect(await eventually { !start.filesHold.isHeld })
        try await store.commit()
        #expect(listFolder(folder("messages")) == [message.id])
        // A service that is gone for good keeps it for seven days after the end of the registration, whatever `valid-until` was.
        let record = Message.value([String: Variant].self, from: readFile(folder("messages/\(message.id)")) ?? [])
        let kept = record.flatMap { PendingPush(record: $0) }
        #expect(kept.map { $0.end <= WallTime(microseconds: wallClock()) } == true)
        // The next try comes when the service appears.
        service.refuseRemovals(nil)
        try service.restart()
        #expect(await eventually { listFolder(folder("messages")).isEmpty })
        #expect(Set(service.removed) == [BusName.path(app: PushWorld.app, token: "push_\(message.id)").value])
    }

    /// As when the service is killed while it has both calls.
    @Test @BusActor func `is not asked for again if the service goes away after the push was given up`() async throws {
        let start = try await SilentStart()
        let (service, registry, deliveries) = (start.service, start.registry, start.deliveries)
        deliveries.begin([makeMessage(start.token, until: wallClock() / 1_000_000 + 3600)])
        #expect(await eventually { service.fetches.count == 1 })
        service.refuseRemovals(Self.noReply)
        let registration = try #require(registry[start.token])
        _ = try registry.unregister(app: PushWorld.app, name: "a", from: .user)
        deliveries.forget(registration)
        #expect(await eventually { service.removed.count == 1 })
        service.speak(Self.noReply)
        // The calls and the answers of a connection arrive in their order: a further Fetch would come before the last of these.
        for _ in 0..<3 {
            start.files.removeDownload("other", of: PushWorld.app)
            #expect(await eventually { !start.filesHold.isHeld })
        }
        #expect(service.fetches.count == 1)
    }

    private static let noReply = DBusError("org.freedesktop.DBus.Error.NoReply", "The service was killed.")

    /// The service has told the end, so the record of the registration names the download.
    @Test @BusActor func `whose download the service ended at its deadline leaves it on the list until the next push`() async throws {
        let start = try await SilentStart()
        let error = ErrorName.expired.busName
        let message = makeMessage(start.token, outcome: PendingPush.Outcome(.failed, error: error, message: "late"))
        start.registry.change(start.token) { $0.lastDownload = message.id }
        start.deliveries.begin([message])
        #expect(await start.app.wasCalled())
        // The calls of a connection arrive in their order.
        start.files.removeDownload("other", of: PushWorld.app)
        #expect(await eventually { !start.service.removed.isEmpty })
        #expect(start.service.removed == [BusName.path(app: PushWorld.app, token: "push_other").value])
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

@Suite(.timeLimit(.minutes(10))) struct `An idle todoku-push` {
    /// systemd sends SIGTERM to a service of `Type=dbus` whose name has no owner, even if only for a moment (systemd.service(5)).
    @Test @BusActor func `ended because a call met it on its way out has the bus start the next`() async throws {
        let world = try await PushWorld(idleExit: 30, hasService: false)
        let owners = Owners()
        _ = try await world.call(Push.list, "")
        let since = ContinuousClock.now
        let own = try await world.connection.call(BusDaemon.getNameOwner, on: BusDaemon.name, at: BusDaemon.path, Push.busName)
        let process = try #require(await world.bus.process(of: Push.busName))
        _ = world.connection.watchOwner(of: Push.busName) { owners.seen.append($0) }
        let before = await settledSwitches(process)

        // The stopped bus has the call before the program releases its name, and delivers it after that.
        world.bus.signal(SIGSTOP)
        async let listed = world.call(Push.list, "")
        // Only the end of its idle time wakes the program. It then waits for the answer of the bus, for up to 25 seconds.
        #expect(await eventually { ContinuousClock.now - since > .seconds(32) && switches(process) != before })
        world.bus.signal(SIGCONT)
        #expect(try await listed.isEmpty)
        #expect(await eventually { owners.seen.count == 2 })
        #expect(owners.seen == [nil, own], "no call met the program on its way out")

        kill(process, SIGTERM)
        #expect(await eventually { owners.seen.count == 4 }, "nobody has started the next process")
        let next = owners.seen.last ?? nil
        #expect(next != nil && next != own, "\(owners.seen)")
    }
}

/// The owners that a name has had since it is watched; nil: none.
@BusActor private final class Owners { var seen: [String?] = [] }

/// The number of voluntary context switches of a program's main thread, which adds one each time that it waits again.
private func switches(_ process: Int32) -> String? {
    String(decoding: readFile("/proc/\(process)/status") ?? [], as: UTF8.self).split(separator: "\n")
        .first { $0.hasPrefix("voluntary_ctxt") }.map(String.init)
}

/// The value of `switches` once it has not changed for a while.
private func settledSwitches(_ process: Int32) async -> String? {
    var (last, looks) = (switches(process), 0)
    _ = await eventually {
        let now = switches(process)
        (last, looks) = (now, now == last ? looks + 1 : 0)
        return looks == 30
    }
    return last
}
