internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// Whether each property behaves as the XML that the service returns declares by `EmitsChangedSignal`.
@Suite(.timeLimit(.minutes(10))) struct `A property` {
    private typealias Change = @BusActor @Sendable () async throws -> Void
    private typealias Changes = [String: Change]

    /// The declarations of one interface, from the introspection of an object.
    private func declared(_ interface: String, _ path: ObjectPath, _ client: Client) async throws -> [String: String] {
        let document = try await client.call(Standard.introspect, at: path, ())
        let start = try #require(document.firstRange(of: "<interface name=\"\(interface)\">"))
        let end = try #require(document[start.upperBound...].firstRange(of: "</interface>"))
        return InterfaceText(String(document[start.lowerBound..<end.upperBound])).changes
    }

    /// The values that an object has announced of a property, in order.
    private func told(_ name: String, _ path: ObjectPath, _ seen: [Seen]) -> [Variant] {
        seen.filter { $0.path == path.value }.compactMap { $0.changed?[name] }
    }

    /// Changes each property that is declared as told, on an object of its own from `prepare` or on one for all. Checks that the change
    /// is told, and that the value told last is that of `Get`. Checks that the other properties are never told, and that constant ones
    /// never change.
    private func check(
        _ interface: String, _ client: Client,
        _ prepare: @BusActor (String) async throws -> (ObjectPath, Change)?
    ) async throws {
        var declared: [String: String]?
        var constants: [(path: ObjectPath, name: String, value: Variant)] = []
        var names: [String] = [""]
        while let name = names.popLast() {
            // With an empty name, only the declarations of the object are read.
            guard let (path, change) = try await prepare(name) else {
                Issue.record("\(interface).\(name) is declared as told, and this test does not change it")
                continue
            }
            if declared == nil {
                let changes = try await self.declared(interface, path, client)
                #expect(Set(try await client.call(Standard.getAll, at: path, interface).keys) == Set(changes.keys))
                names = changes.filter { $0.value == "true" }.keys.sorted()  // the last is the first
                declared = changes
            }
            for (constant, kind) in declared ?? [:] where kind == "const" {
                constants.append((path, constant, try await client.get(interface, constant, at: path)))
            }
            guard !name.isEmpty else { continue }
            let before = try await client.get(interface, name, at: path)
            let seen = await client.signals.seen.count
            try await change()
            let isTold = await client.signals.until {
                told(name, path, Array($0.dropFirst(seen))).contains { $0 != before }
            }
            #expect(isTold, "\(interface).\(name) is not told")
            // A property that is still changing is told again.
            let isTrue = await eventually {
                let value = try? await client.get(interface, name, at: path)
                return told(name, path, await client.signals.seen).last == value
            }
            #expect(isTrue, "\(interface).\(name) is not what was told last")
        }
        for (path, name, value) in constants { #expect(try await client.get(interface, name, at: path) == value, "\(name) has changed") }
        for (name, kind) in declared ?? [:] where kind != "true" {
            let signals = await client.signals.seen.filter {
                $0.changed?[name] != nil && Standard.propertiesChanged.read($0.message)?.0 == interface
            }
            #expect(signals.isEmpty, "\(interface).\(name) is declared as \(kind), and told")
        }
    }

    private let server = ScriptedServer { request, reply in
        switch request.path {
        case "/missing": reply.respond(404)
        case "/archive": reply.respond(200, body: [UInt8](repeating: 0, count: 1024))  // a tar without entries
        case "/busy": reply.respond(429, ["Retry-After": "3600"])
        default:
            reply.respond(200, ["Content-Type": "image/png", "Content-Disposition": "attachment; filename=\"name.png\""], text: "hello")
        }
    }

    private let paused: [String: Variant] = ["start": .bool(false), "tag": .string("t"), "app": .string("org.example.App")]

    @Test func `of a download is told as declared`() async throws {
        let running = try await Running.start()
        let client = running.client
        try await check(Download.interface, client) { name in
            let isWait = ["WaitReason", "WaitUntil", "Error"].contains(name)
            let isUnpacked = name == "Extracted"
            let path = try await running.download(
                server.url(isWait ? "/busy" : isUnpacked ? "/archive" : "/file"),
                paused.merging(
                    isUnpacked ? ["extract": .bool(true)] : name == "Sources" ? ["mirrors": .strings(["http://127.0.0.1:1/"])] : [:]
                ) { $1 })
            let changes: Changes = [
                "Url": { [server] in try await client.call(Download.replaceUrl, at: path, (server.otherURL("/fresh"), [:])) },
                "Priority": { try await client.set(Download.priority, at: path, 7) },
                "SpeedLimit": { try await client.set(Download.speedLimit, at: path, 12_345_678) },
                "AllowMetered": { try await client.set(Download.allowMetered, at: path, false) },
                "Directory": {
                    try await client.set(Download.directory, at: path, running.world.bus.folder.makeFolder("other"))
                },
                "Acknowledged": {
                    try await client.resume(path)
                    _ = try await client.wait(path)
                    try await client.call(Download.acknowledge, at: path, ())
                },
            ]
            let byResume = [
                "", "State", "WaitReason", "WaitUntil", "Error", "FileName", "MediaType", "Path", "Attempts", "Connections", "StartedAt",
                "EndedAt", "Extracted", "ProvedBy", "Sources",
            ]
            let resume: Change = { try await client.resume(path) }
            return (changes[name] ?? (byResume.contains(name) ? resume : nil)).map { (path, $0) }
        }
    }

    /// Checks that a client that read all properties once, and then followed the signals, has the values that `GetAll` answers.
    private func checkFollowed(_ client: Client, _ path: ObjectPath, _ change: () async throws -> Void) async throws {
        let declared = try await declared(Download.interface, path, client)
        // A signal before the answer has a value that the answer has too, or one that a later signal replaces.
        let seen = await client.signals.seen.count
        var followed = try await client.all(path)
        try await change()
        let now = try await client.all(path)
        for signal in await client.signals.seen.dropFirst(seen) where signal.path == path.value {
            followed.merge(signal.changed ?? [:]) { $1 }
        }
        for (name, kind) in declared where kind == "true" { #expect(followed[name] == now[name], "\(name)") }
    }

    /// The download is released, and starts, in one turn.
    @Test func `that a client follows is right after PauseAll and ResumeAll`() async throws {
        let running = try await Running.start()
        let client = running.client
        try await client.call(Manager.pauseAll, ())
        let path = try await running.download(server.url("/file"))
        #expect(try await client.get(Download.waitReason, at: path) == "paused-all")
        try await checkFollowed(client, path) {
            try await client.call(Manager.resumeAll, ())
            _ = try await client.wait(path)
        }
    }

    @Test func `that a client follows is right after the wait of a redirect`() async throws {
        let server = ScriptedServer { request, reply in
            guard request.target.contains("slow.example.org") else {
                return reply.respond(302, ["Location": "http://slow.example.org/\(request.target.suffix(1))"])
            }
            reply.respond(200, text: "x")
        }
        let running = try await Running.start(extra: ["http_proxy": server.url("/")])
        let client = running.client
        try await client.call(Manager.setHostRule, ("slow.example.org", ["request-interval": .uint32(3_600_000)]))
        let paths = [try await running.download("http://example.org/1"), try await running.download("http://example.org/2")]
        @Sendable func isWait(_ seen: Seen) -> Bool { seen.changed?["WaitReason"] == .string("rate-limit") && seen.state == "waiting" }
        #expect(await client.signals.until { $0.contains { isWait($0) } })
        let told = await client.signals.seen.first { isWait($0) }?.path
        let path = try #require(paths.first { $0.value == told })
        try await checkFollowed(client, path) {
            try await client.cancel(path)
            #expect(await client.signals.has("Completed", at: path))
        }
    }

    @Test func `of a batch is told as declared`() async throws {
        let running = try await Running.start()
        let client = running.client
        try await check(Batch.interface, client) { name in
            let (path, members) = try await running.batch([server.url("/file"), server.url("/missing")], paused)
            let changes: Changes = [
                "": {}, "Remaining": { try await client.resume(members[0]) }, "Succeeded": { try await client.resume(members[0]) },
                "Failed": { try await client.resume(members[1]) }, "Cancelled": { try await client.cancel(members[0]) },
            ]
            return changes[name].map { (path, $0) }
        }
    }

    @Test func `of the manager is told as declared`() async throws {
        let world = await ServiceWorld()
        for folder in [world.bus.folder("state"), world.state] { mkdir(folder, 0o700) }
        writeFile("\(world.state)/todoku.db", patternBytes(8192))  // damaged
        let client = try await world.client()
        let running = Running(world: world, daemon: await world.start(), client: client)
        let gate = Gate()
        defer { gate.open() }
        let slow = ScriptedServer { _, reply in
            gate.wait()
            reply.respond(200, text: "x")
        }
        /// The database vanishes, and the next change is saved in a new one.
        let lose: Change = {
            for suffix in ["-wal", "-shm", ""] { unlink("\(world.state)/todoku.db\(suffix)") }
            try await client.set(Manager.maxPerHost, 9)
        }
        let changes: Changes = [
            "": {},
            "Remaining": { _ = try await running.download("http://127.0.0.1:1/a", ["start": .bool(false)]) },
            "Active": { try await client.call(Manager.resumeAll, ()) },  // behind Queued and Paused
            "Queued": {
                try await client.set(Manager.maxActive, 1)
                // By one call: a second one could come when the server has been silent for so long that another download starts.
                _ = try await running.batch(["b", "c"].map { slow.url("/\($0)") })
            },
            "Paused": { try await client.call(Manager.pauseAll, ()) },
            "MaxActive": { try await client.set(Manager.maxActive, 7) },
            "MaxPerHost": { try await client.set(Manager.maxPerHost, 3) },
            "SpeedLimit": { try await client.set(Manager.speedLimit, 12_345_678) },
            "HostRules": { try await client.call(Manager.setHostRule, ("example.org", ["request-interval": .uint32(60_000)])) },
            "Language": { try await client.set(Manager.language, "en") },
            "Badge": { try await client.set(Manager.badge, "percent") },
            "SandboxPrivate": { try await client.set(Manager.sandboxPrivate, true) },
            "DiskReserve": { try await client.set(Manager.diskReserve, 1 << 20) },
            "DefaultDirectory": { try await client.set(Manager.defaultDirectory, world.folder) },
            "SetAside": {
                unlink(try await client.get(Manager.setAside))
                try await client.set(Manager.maxPerHost, 8)
            },
            "Salvaged": lose,
        ]
        try await check(Manager.interface, client) { name in changes[name].map { (BusName.managerPath, $0) } }
    }

    @Test func `with a folder is told and kept, also if the folder's name only looks like that of the former one`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start()
        let (composed, decomposed) = (world.bus.folder.makeFolder("caf\u{E9}"), world.bus.folder.makeFolder("cafe\u{301}"))
        try await client.set(Manager.defaultDirectory, composed)
        try await client.set(Manager.defaultDirectory, decomposed)
        let isTold = await client.signals.until { seen in
            seen.contains { $0.changed?[Manager.defaultDirectory.name]?.string?.utf8.elementsEqual(decomposed.utf8) == true }
        }
        #expect(isTold)
        _ = await world.stop(daemon)
        _ = await world.start()
        let kept = try await client.get(Manager.defaultDirectory)
        #expect(kept.utf8.elementsEqual(decomposed.utf8), "\(kept)")
    }
}
