import DBus
import DownloaderInterface
import EventLoop
import Glibc
import PushInterface
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(10))) struct `A push` {
    /// Version 2 is encrypted by an implementation that shares no code with ours.
    @Test(arguments: [1, 2])
    func `brings the file, and only then calls the app`(version: Int) async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor(versions: [version])
        let app = try await AppStandIn(world)
        let file = await Served()
        let registration = try await world.registered()
        #expect(registration["version"] == .uint32(UInt32(version)) && registration["problem"] == .string(""))
        await world.send(file.message(["type": "\"image/png\""]), to: registration)
        #expect(await distributor.delivered(1))
        try #require(await app.wasCalled())
        let call = try #require(await app.calls.first)
        #expect(call.action == "push" && call.name == "picture" && call.result == "new-data")
        #expect(call.path == "\(world.folder)/picture.png" && call.bytes == file.bytes)
        #expect(call.details == ["url": .string(file.url), "sha256": .string(file.sha256)])
        let entry = try await world.entry()
        #expect(entry["received"] == .uint64(1) && entry["fetched"] == .uint64(1))
        #expect(try await eventually { try await world.entry()["waiting"] == .uint32(0) })
        #expect(await eventually { world.messageFiles.isEmpty })
        #expect(file.server.requests.count == 1)
        _ = distributor
    }

    @Test func `of a file that is there, or is being fetched, fetches nothing`() async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor()
        let app = try await AppStandIn(world)
        let gate = Gate()
        let file = await Served(gate: gate)
        let registration = try await world.registered()
        await world.send(file.message(), to: registration)
        #expect(await file.server.waitForRequests(1))
        await world.send(file.message(["valid-until": "99999999999"]), to: registration)
        #expect(await distributor.delivered(2))
        gate.open()
        #expect(await app.wasCalled())
        #expect(try await eventually { try await world.entry()["waiting"] == .uint32(0) })
        await world.send(file.message(), to: registration)
        #expect(await app.wasCalled(2))
        let calls = await app.calls
        #expect(calls.map(\.result) == ["new-data", "no-data"] && calls[1].path == calls[0].path)
        #expect(file.server.requests.count == 1)
        let entry = try await world.entry()
        #expect(entry["received"] == .uint64(3) && entry["fetched"] == .uint64(1) && entry["unchanged"] == .uint64(2))

        // A file that somebody changed is fetched again.
        writeFile("\(world.folder)/picture.png", [1, 2, 3])
        await world.send(file.message(), to: registration)
        #expect(await app.wasCalled(3))
        #expect(await app.calls.last?.bytes == file.bytes)
        #expect(file.server.requests.count == 2)
    }

    @Test func `whose file is another one fails, and says why`() async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor()
        let app = try await AppStandIn(world)
        let file = await Served(type: "text/html")
        let registration = try await world.registered("picture", ["types": .strings(["image/*", "text/plain"])])
        let other = String(repeating: "0", count: 64)
        let messages = [
            (file.message(["type": "\"image/png\""]), "TypeMismatch"),
            (file.message(["sha256": "\"\(other)\"", "type": "\"image/png\""]), "TypeMismatch"),
        ]
        for (index, (message, error)) in messages.enumerated() {
            await world.send(message, to: registration)
            #expect(await app.wasCalled(index + 1))
            let call = try #require(await app.calls.last)
            #expect(call.result == "failed" && call.path.isEmpty && call.details["error"] == .string("org.todoku.Error.\(error)"))
        }
        let plain = await Served()
        let free = try await world.registered("free")
        await world.send(plain.message(["sha256": "\"\(other)\""]), to: free)
        #expect(await app.wasCalled(3))
        #expect(await app.calls.last?.details["error"] == .string("org.todoku.Error.ChecksumMismatch"))
        await world.send(plain.message(["size": "99999"]), to: free)
        #expect(await app.wasCalled(4))
        #expect(await app.calls.last?.details["error"] == .string("org.todoku.Error.SizeMismatch"))
        // The part of a failed download may be deleted after its end is told.
        #expect(await eventually { listFolder(world.folder).isEmpty }, "\(listFolder(world.folder))")
        #expect(try await world.entry("free")["failed"] == .uint64(2))
        _ = distributor
    }

    @Test func `that the rules do not allow opens nothing, and is counted`() async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor(versions: [2])
        let app = try await AppStandIn(world)
        let file = await Served()
        let registration = try await world.registered(
            "picture", ["types": .strings(["image/png", "image/jpeg"]), "max-size": .uint64(200_000)])
        let good = ["type": "\"image/png\""]
        func message(_ more: [String: String?]) -> String { file.message(good.merging(more.mapValues { $0 ?? "" }) { $1 }) }
        let refused: [(String, String, Bool)] = [
            (message(["url": "\"\(file.server.otherURL("/x"))\""]), "host", true),
            (message(["url": "\"https://example.org/x\""]), "host", true),
            (message(["url": "\"http://192.168.1.1/x\""]), "scheme", true),
            (message(["url": "\"ftp://127.0.0.1/x\""]), "format", true),
            (message(["url": "\"http://me:secret@127.0.0.1/x\""]), "format", true),
            (message(["size": "200001"]), "size", true),
            (message(["size": "-1"]), "format", true),
            (message(["size": "18446744073709551616"]), "format", true),
            (message(["valid-until": "1000"]), "expired", true),
            (message(["valid-until": "\"tomorrow\""]), "format", true),
            (message(["type": "\"image/gif\""]), "type", true),
            (message(["type": "\"image/*\""]), "type", true),
            (file.message(), "type", true),
            (message(["sha256": "\"abc\""]), "format", true),
            (message(["more": "1"]), "format", true),
            ("{\"url\": 1, \"url\": 2}", "format", true),
            (String(repeating: "[", count: 3000), "format", true),
            ("", "length", false),
            (String(repeating: " ", count: 4097), "length", false),
            (message([:]), "encryption", false),
        ]
        var expected: [String: UInt64] = [:]
        for (index, (text, rule, isEncrypted)) in refused.enumerated() {
            await world.send(text, to: registration, isEncrypted: isEncrypted)
            #expect(await distributor.delivered(index + 1))
            expected[rule, default: 0] += 1
            #expect(try await world.refused() == expected, "\(text.prefix(200))")
        }
        // An encrypted message for other keys.
        let other = try await world.register("other")
        await world.send(message([:]), to: registration.merging(other.filter { $0.key != "endpoint" }) { $1 })
        #expect(await distributor.delivered(refused.count + 1))
        expected["encryption", default: 0] += 1
        #expect(try await world.refused() == expected)
        #expect(file.server.requests.isEmpty && listFolder(world.folder).isEmpty)
        #expect(await app.calls.isEmpty)
        #expect(await world.bus.hasOwner(BusName.service) == false)
        #expect(try await world.entry()["received"] == .uint64(UInt64(refused.count) + 1))
        // The good one still comes.
        await world.send(message([:]), to: registration)
        #expect(await app.wasCalled())
    }

    @Test func `survives a crash between its arrival and its file`() async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor()
        let app = try await AppStandIn(world)
        let gate = Gate()
        let file = await Served(gate: gate)
        let registration = try await world.registered()
        await world.send(file.message(), to: registration)
        // The distributor has its answer, so the message is on disk.
        #expect(await distributor.delivered(1))
        #expect(world.messageFiles.count == 1)
        #expect(await file.server.waitForRequests(1))
        await world.kill()
        gate.open()
        #expect(await app.calls.isEmpty)
        _ = try await world.entry()  // starts it again
        #expect(await app.wasCalled())
        let calls = await app.calls
        #expect(calls.map(\.result) == ["new-data"] && calls[0].bytes == file.bytes)
        #expect(file.server.requests.count == 1)
    }

    private func end(_ process: Int32, _ number: Int, _ server: ScriptedServer, _ app: AppStandIn) async {
        switch number % 3 {
        case 0: break
        case 1: _ = await eventually { server.requests.count > 2 * number || hasEnded(process) }
        default: _ = await eventually { await app.calls.count > 2 * number || hasEnded(process) }
        }
        Glibc.kill(process, SIGKILL)
    }

    /// The kills come before, during and after the saving of the messages, the fetches and the calls of the app. Two messages end at the
    /// same time: the first one's download must not leave the list before its end is on disk.
    @Test func `survives kills at any time, and its file is fetched once`() async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor(versions: [1])
        let app = try await AppStandIn(world)
        let bytes = patternBytes(50_000)
        let server = ScriptedServer { request, reply in reply.serve(bytes, for: request, type: "image/png") }
        let file = await Served(bytes.count)  // the same bytes
        _ = try await world.register()
        let token = await distributor.token()
        /// A distributor sends a message again until it is answered.
        func send(_ name: String) async {
            let message = Array(file.message(["url": "\"\(server.url("/\(name).png"))\""]).utf8)
            _ = await eventually { await world.connectorError(UnifiedPush.Version1.message, (token, message, name)) == nil }
        }
        for number in 0..<30 {
            let process = try #require(await world.process())
            async let killed: Void = end(process, number, server, app)
            async let other: Void = send("\(number)-b")
            await send("\(number)-a")
            await other
            await killed
        }
        // What fails once, such as a call that takes too long, is tried again after a minute.
        #expect(await eventually(within: .seconds(180)) { (try? await world.entry())?["waiting"] == .uint32(0) })
        let calls = await app.calls
        for name in (0..<30).flatMap({ ["\($0)-a", "\($0)-b"] }) {
            let told = calls.filter { $0.path == "\(world.folder)/\(name).png" }
            #expect(!told.isEmpty && told.allSatisfy { $0.bytes == bytes && $0.result != "failed" }, "\(name): \(told.map(\.result))")
            #expect(told.contains { $0.result == "new-data" }, "\(name)")
            #expect(server.requests.count { $0.path == "/\(name).png" } == 1, "\(name)")
        }
        _ = distributor
    }

    @Test func `waits for a download service that is not there, also over a crash`() async throws {
        let world = try await PushWorld(hasService: false)
        let distributor = await world.distributor()
        let app = try await AppStandIn(world)
        let file = await Served()
        let registration = try await world.registered()
        await world.send(file.message(), to: registration)
        #expect(await distributor.delivered(1))
        await world.kill()
        #expect(await app.calls.isEmpty && file.server.requests.isEmpty)
        #expect(try await world.entry()["waiting"] == .uint32(1))
        // Each start of the program registers. A call of the distributor after the kill would start the program again.
        #expect(await eventually { distributor.output.ranges(of: "delivered NewEndpoint").count >= 2 }, "\(distributor.output)")
        // Once the service can be started, the message may be over before anybody looks.
        await world.kill()
        await world.bus.makeActivatable(BusName.service, PushWorld.serviceCommand)
        _ = try await world.entry()
        #expect(await app.wasCalled())
        #expect(await app.calls.map(\.bytes) == [file.bytes])
    }

    @Test func `that could not be fetched in time fails as expired`() async throws {
        let world = try await PushWorld(hasService: false)
        let distributor = await world.distributor()
        let app = try await AppStandIn(world)
        let file = await Served()
        let registration = try await world.registered()
        await world.send(file.message(), to: registration)
        #expect(await distributor.delivered(1))
        #expect(try await world.entry()["waiting"] == .uint32(1))
        await world.kill()
        await world.bus.makeActivatable(BusName.service, PushWorld.serviceCommand)
        // Its time is over before the next process begins, however slow the machine is.
        try world.changeMessage { $0["valid-until"] = .uint64(wallClock() / 1_000_000) }
        _ = try await world.entry()
        #expect(await app.wasCalled())
        let calls = await app.calls
        #expect(calls.map(\.result) == ["failed"] && calls[0].details["error"] == .string("org.todoku.Error.Expired"))
        #expect(file.server.requests.isEmpty)
    }

    @Test func `is told again if the app died with it`() async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor()
        let app = try await AppStandIn(world)
        await app.setAnswers(false)
        let file = await Served()
        let registration = try await world.registered()
        await world.send(file.message(), to: registration)
        #expect(await app.wasCalled())
        await world.kill()
        await app.setAnswers(true)
        _ = try await world.entry()
        #expect(await app.wasCalled(2))
        let calls = await app.calls
        #expect(calls[0] == calls[1])
        #expect(file.server.requests.count == 1)
        _ = distributor
    }
}

extension AppStandIn {
    func setAnswers(_ answers: Bool) { self.answers = answers }
}
