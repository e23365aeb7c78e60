import DBus
import DownloaderInterface
import EventLoop
import Glibc
import PushInterface
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(10))) struct `A push that waits` {
    private func send(_ message: String, _ token: String, to world: PushWorld) async {
        #expect(await world.connectorError(UnifiedPush.Version1.message, (token, Array(message.utf8), "id")) == nil)
    }

    /// As while no unmetered network is there: the service's deadline does not count then.
    @Test func `ends when it is no longer valid, and so does its download`() async throws {
        #expect(try await inTime(PushWorld.validities) { try await ends(after: $0) }, PushWorld.tooSlow)
    }

    /// - Returns: whether the file was asked for while the message was valid, and all was seen before the program gave up the service.
    private func ends(after seconds: UInt64) async throws -> Bool {
        let world = try await PushWorld(hasService: false)
        let service = try await ServiceStandIn(world)
        await service.silence()
        await service.holdRemovals(true)
        let distributor = await world.distributor(versions: [1])
        let app = try await AppStandIn(world)
        let file = await Served()
        _ = try await world.register()
        let token = await distributor.token()
        let end = wallClock() / 1_000_000 + seconds
        await send(file.message(["valid-until": "\(end)"]), token, to: world)
        guard await eventually({ await service.fetches.count == 1 }) else { return false }
        #expect(await app.wasCalled())
        #expect(wallClock() / 1_000_000 >= end)
        let calls = await app.calls
        #expect(calls.map(\.result) == ["failed"] && calls.first?.details["error"] == .string("org.todoku.Error.Expired"))
        let download = await service.fetches.first?.options["token"]?.string ?? ""
        #expect(await eventually { await service.removed == [BusName.path(app: PushWorld.app, token: download).value] })
        #expect(try await eventually { try await world.entry()["waiting"] == .uint32(0) })
        // The record stays until the service has answered. This answer comes when all changes before are on disk.
        _ = try await world.register("later")
        let records = world.messageFiles.count
        // The program waits for a minute for the answer of the service.
        guard wallClock() / 1_000_000 < end + 60 else { return false }
        #expect(records == 1)
        await service.holdRemovals(false)
        #expect(await eventually { world.messageFiles.isEmpty })
        return true
    }

    @Test func `ends as valid for as long as the last message about its file says`() async throws {
        #expect(try await inTime(PushWorld.validities) { try await endsWithTheLast(after: $0) }, PushWorld.tooSlow)
    }

    /// - Returns: whether all messages came while the first was valid.
    private func endsWithTheLast(after seconds: UInt64) async throws -> Bool {
        let world = try await PushWorld(hasService: false)
        let service = try await ServiceStandIn(world)
        await service.silence()
        let distributor = await world.distributor(versions: [1])
        let app = try await AppStandIn(world)
        let file = await Served()
        _ = try await world.register()
        let token = await distributor.token()
        let end = wallClock() / 1_000_000 + seconds
        await send(file.message(["valid-until": "\(end)"]), token, to: world)
        await send(file.message(["valid-until": "\(end + 2)"]), token, to: world)
        await send(file.message(["valid-until": "\(end)"]), token, to: world)
        guard wallClock() / 1_000_000 < end else { return false }
        #expect(await app.wasCalled())
        #expect(wallClock() / 1_000_000 >= end + 2)
        #expect(await service.fetches.count == 1)
        return true
    }

    /// The deadline of a download is that of the first message.
    @Test func `begins anew if its download ends before the later message does`() async throws {
        let world = try await PushWorld(hasService: false)
        let service = try await ServiceStandIn(world)
        await service.silence()
        let distributor = await world.distributor(versions: [1])
        let app = try await AppStandIn(world)
        let file = await Served()
        _ = try await world.register()
        let token = await distributor.token()
        await send(file.message(), token, to: world)
        await send(file.message(["valid-until": "\(wallClock() / 1_000_000 + 7200)"]), token, to: world)
        #expect(await eventually { await service.fetches.count == 1 })
        await service.speak(DBusError("org.todoku.Error.Expired", "late"))
        #expect(await app.wasCalled())
        #expect(await app.calls.map(\.result) == ["no-data"])
        let fetches = await service.fetches
        try #require(fetches.count == 2)
        #expect(fetches[0].options["token"] != fetches[1].options["token"])
        #expect((7_100_000...7_200_000).contains(fetches[1].options["deadline"]?.uint64 ?? 0))
        #expect(try await eventually { try await world.entry()["waiting"] == .uint32(0) })
    }

    /// Sends a push, and kills the program once the service has asked for the file. The server sends the file after that.
    /// - Returns: the `valid-until` of the push, too; nil: the service has not asked for the file in time, or the push ended before the
    ///   kill.
    private func killBeforeFile(_ world: PushWorld, within seconds: UInt64) async throws -> (AppStandIn, Served, end: UInt64)? {
        let distributor = await world.distributor(versions: [1])
        let app = try await AppStandIn(world)
        let gate = Gate()
        defer { gate.open() }
        let file = await Served(gate: gate)
        _ = try await world.register()
        let token = await distributor.token()
        let end = wallClock() / 1_000_000 + seconds
        await send(file.message(["valid-until": "\(end)"]), token, to: world)
        guard await file.server.waitForRequests(1) else { return nil }
        await world.kill()
        guard wallClock() / 1_000_000 < end else { return nil }
        return (app, file, end)
    }

    /// Waits until the download of the only message on disk has finished.
    private func hasFinished(_ world: PushWorld) async throws -> Bool {
        let id = try #require(world.messageFiles.first)
        let download = BusName.path(app: PushWorld.app, token: "push_\(id)")
        return await eventually {
            let state = try? await world.connection.call(
                Standard.get, on: BusName.service, at: download, (Download.interface, Download.state.name), timeout: .seconds(60))
            return state == .string("finished")
        }
    }

    /// As on a disk that is mounted only after the login.
    @Test func `brings a file that came, though its folder is gone when the next process asks for it`() async throws {
        let world = try await PushWorld()
        guard let (app, file, _) = try await killBeforeFile(world, within: 3600) else {
            Issue.record("the service has not asked for the file")
            return
        }
        #expect(try await hasFinished(world))
        let away = world.bus.folder("away")
        #expect(rename(world.folder, away) == 0)
        _ = try await world.entry()
        #expect(await app.wasCalled())
        #expect(await app.calls.map(\.result) == ["new-data"])
        #expect(readFile("\(away)/picture.png") == file.bytes)
    }

    @Test func `brings a file that came in time, though nobody was there to see it`() async throws {
        #expect(try await inTime(PushWorld.validities) { try await bringsUnseen(within: $0) }, PushWorld.tooSlow)
    }

    /// - Returns: whether the file came while the message was valid.
    private func bringsUnseen(within seconds: UInt64) async throws -> Bool {
        let world = try await PushWorld()
        guard let (app, file, end) = try await killBeforeFile(world, within: seconds) else { return false }
        guard try await hasFinished(world), wallClock() / 1_000_000 < end else { return false }
        #expect(await eventually { wallClock() / 1_000_000 >= end })
        _ = try await world.entry()
        #expect(await app.wasCalled())
        #expect(await app.calls.map(\.result) == ["new-data"])
        #expect(readFile("\(world.folder)/picture.png") == file.bytes)
        return true
    }

    @Test func `brings a file that came in time, though the service cannot be reached when its time is over`() async throws {
        #expect(try await inTime(PushWorld.validities) { try await bringsLater(within: $0) }, PushWorld.tooSlow)
    }

    /// - Returns: whether the file came while the message was valid.
    private func bringsLater(within seconds: UInt64) async throws -> Bool {
        let world = try await PushWorld(hasService: false)
        let service = Child([PushWorld.todokud, "--idle-exit", "3600"], environment: world.bus.environment)
        #expect(await world.bus.waitForOwner(BusName.service))
        guard let (app, file, end) = try await killBeforeFile(world, within: seconds) else { return false }
        guard try await hasFinished(world), wallClock() / 1_000_000 < end else { return false }
        await service.stop()
        #expect(await eventually { wallClock() / 1_000_000 >= end })
        // The program asks for the file now, and nobody answers.
        _ = try await world.entry()
        let again = Child([PushWorld.todokud, "--idle-exit", "3600"], environment: world.bus.environment)
        // If the service appears before the program has heard that it is not there, the program asks again after a minute.
        #expect(await eventually(within: .seconds(120)) { await !app.calls.isEmpty })
        #expect(await app.calls.map(\.result) == ["new-data"])
        #expect(readFile("\(world.folder)/picture.png") == file.bytes)
        await again.stop()
        return true
    }

    /// A registration with a service that never answers a fetch.
    private func makeSilentWorld() async throws -> (PushWorld, ServiceStandIn, Child, Served) {
        let world = try await PushWorld(hasService: false)
        let service = try await ServiceStandIn(world)
        await service.silence()
        let distributor = await world.distributor(versions: [1])
        let file = await Served()
        _ = try await world.register()
        return (world, service, distributor, file)
    }

    @Test func `is asked for by the same options after others were registered`() async throws {
        let (world, service, distributor, file) = try await makeSilentWorld()
        await send(file.message(), await distributor.token(), to: world)
        #expect(await eventually { await service.fetches.count == 1 })
        _ = try await world.register("picture", ["max-size": .uint64(200_000), "allow-metered": .bool(true)])
        await world.kill()
        _ = try await world.entry()
        #expect(await eventually { await service.fetches.count == 2 })
        let fetches = await service.fetches
        #expect(fetches.count == 2 && fetches.first?.options == fetches.last?.options)
    }

    @Test func `whose options were not saved replaces the download that has others`() async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor(versions: [1])
        let app = try await AppStandIn(world)
        let gate = Gate()
        let file = await Served(gate: gate)
        _ = try await world.register()
        await send(file.message(), await distributor.token(), to: world)
        #expect(await file.server.waitForRequests(1))
        _ = try await world.register("picture", ["max-size": .uint64(200_000)])
        await world.kill()
        // As an earlier version of the program has saved it.
        try world.changeMessage { ($0["options"], $0["sandboxed"]) = (nil, nil) }
        _ = try await world.entry()
        #expect(await file.server.waitForRequests(2))
        gate.open()
        #expect(await app.wasCalled())
        #expect(await app.calls.map(\.result) == ["new-data"])
    }

    @Test func `for the service keeps the program running, because nobody else asks for its file in time`() async throws {
        let world = try await PushWorld(idleExit: 1, hasService: false)
        let service = try await ServiceStandIn(world)
        await service.setError(DBusError("org.todoku.Error.Storage", "full"))
        let distributor = await world.distributor(versions: [1])
        let file = await Served()
        _ = try await world.register()
        await send(file.message(), await distributor.token(), to: world)
        #expect(await eventually { await service.fetches.count == 1 })
        let process = await world.process()
        // An exit would come after one second. Later than now is right, too.
        let end = wallClock() + 3_000_000
        #expect(await eventually { wallClock() >= end })
        #expect(await world.process() == process && process != nil)
    }

    @Test func `does not delay the files of other registrations, and ends with its own registration`() async throws {
        let world = try await PushWorld(hasService: false)
        let service = try await ServiceStandIn(world)
        await service.silence()
        let distributor = await world.distributor(versions: [1])
        let file = await Served()
        func message(_ path: String) -> String { file.message(["url": "\"\(file.server.url(path))\""]) }
        _ = try await world.register()
        let token = await distributor.token()
        for number in 0..<5 { await send(message("/\(number)"), token, to: world) }
        #expect(await eventually { await service.fetches.count == 4 })
        _ = try await world.register("other")
        let other = await distributor.token(after: [token])
        await send(message("/other"), other, to: world)
        #expect(await eventually { await service.fetches.count == 5 })
        #expect(await service.fetches.last?.url == file.server.url("/other"))
        // A registration that is made anew starts with nothing.
        try await world.call(Push.unregister, (PushWorld.app, "picture"))
        #expect(await eventually { await Set(service.removed).count == 5 })
        _ = try await world.register()
        await send(message("/anew"), await distributor.token(after: [token, other]), to: world)
        #expect(await eventually { await service.fetches.count == 6 })
        #expect(await service.fetches.last?.url == file.server.url("/anew"))
    }

    @Test func `of a registration whose end was interrupted leaves no download behind`() async throws {
        let (world, service, distributor, file) = try await makeSilentWorld()
        let token = await distributor.token()
        await send(file.message(), token, to: world)
        #expect(await eventually { await service.fetches.count == 1 })
        await world.kill()
        // A registration leaves the disk before its messages.
        #expect(unlink("\(world.state)/registrations/\(token)") == 0)
        let login = Child([PushWorld.program, "--if-registered", "--idle-exit", "1"], environment: world.bus.environment)
        let download = await service.fetches.first?.options["token"]?.string ?? ""
        #expect(await eventually { await service.removed == [BusName.path(app: PushWorld.app, token: download).value] })
        #expect(await login.wait().status == 0)
        #expect(listFolder("\(world.state)/messages").isEmpty)
    }

    @Test func `of an ended registration leaves no download behind if the program dies before the service answers`() async throws {
        #expect(try await inTime { try await leavesNoDownload() }, "each time, the program died after it had given up the service")
    }

    /// - Returns: whether the program died in the minute in which it waits for the answer of the service.
    private func leavesNoDownload() async throws -> Bool {
        let (world, service, distributor, file) = try await makeSilentWorld()
        await send(file.message(), await distributor.token(), to: world)
        #expect(await eventually { await service.fetches.count == 1 })
        let token = try #require(await service.fetches.first?.options["token"]?.string)
        let download = BusName.path(app: PushWorld.app, token: token).value
        await service.holdRemovals(true)
        let begin = ContinuousClock.now
        try await world.call(Push.unregister, (PushWorld.app, "picture"))
        #expect(await eventually { await service.removed == [download] })
        // The answer comes when all changes before are on disk.
        _ = try await world.register("later")
        // The call has not reached the service: it ends, too.
        await world.kill()
        guard ContinuousClock.now - begin < .seconds(60) else { return false }
        await service.holdRemovals(false)
        _ = try await world.entry("later")
        #expect(await eventually { await service.removed == [download, download] })
        #expect(await eventually { world.messageFiles.isEmpty })
        return true
    }

    @Test(
        arguments: [
            "org.todoku.Error.LimitExceeded", "org.freedesktop.DBus.Error.Failed", "org.freedesktop.DBus.Error.LimitsExceeded",
        ])
    func `is not told as failed while the service refuses any call for now, and brings its file later`(error: String) async throws {
        let world = try await PushWorld(hasService: false)
        let service = try await ServiceStandIn(world)
        await service.setError(DBusError(error, "try again"))
        let distributor = await world.distributor(versions: [1])
        let app = try await AppStandIn(world)
        let file = await Served()
        _ = try await world.register()
        await send(file.message(), await distributor.token(), to: world)
        #expect(await eventually { await service.fetches.count == 1 })
        _ = try await world.entry()  // the answer of Fetch was read before
        await service.setError(nil)
        try await service.restart()
        #expect(await app.wasCalled())
        #expect(await app.calls.map(\.result) == ["no-data"])
        #expect(await service.fetches.count == 2)
    }

    /// The service is slow to take the download of the push before off its list. The end is noted after that.
    @Test func `and whose fetch has failed takes no later message about its file along`() async throws {
        let world = try await PushWorld(hasService: false)
        let service = try await ServiceStandIn(world)
        let distributor = await world.distributor(versions: [1])
        let app = try await AppStandIn(world)
        let file = await Served()
        _ = try await world.register()
        let token = await distributor.token()
        await send(file.message(["url": "\"\(file.server.url("/former"))\""]), token, to: world)
        #expect(await app.wasCalled())
        await service.silence()
        await service.holdRemovals(true)
        await send(file.message(), token, to: world)
        #expect(await eventually { await service.fetches.count == 2 })
        await service.speak(DBusError("org.todoku.Error.HttpStatus", "404"))
        #expect(await eventually { await service.removed.count == 1 })
        await send(file.message(), token, to: world)
        #expect(await eventually { await service.fetches.count == 3 })
        await service.holdRemovals(false)
        #expect(await app.wasCalled(3))
        #expect(await app.calls.map(\.result).sorted() == ["failed", "no-data", "no-data"])
    }

    @Test func `for the service is tried again when it is repeated, and when the service appears`() async throws {
        let world = try await PushWorld(hasService: false)
        let service = try await ServiceStandIn(world)
        await service.setError(DBusError("org.todoku.Error.Storage", "full"))
        let distributor = await world.distributor(versions: [1])
        let app = try await AppStandIn(world)
        let file = await Served()
        _ = try await world.register()
        let token = await distributor.token()
        await send(file.message(), token, to: world)
        #expect(await eventually { await service.fetches.count == 1 })
        _ = try await world.entry()  // the answer of Fetch was read before
        await send(file.message(["valid-until": "99999999999"]), token, to: world)
        #expect(await eventually { await service.fetches.count == 2 })
        _ = try await world.entry()
        await service.setError(nil)
        try await service.restart()
        #expect(await app.wasCalled())
        let fetches = await service.fetches
        #expect(fetches.count == 3 && fetches.allSatisfy { $0.options == fetches[0].options })
    }
}
