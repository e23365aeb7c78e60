internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// A host other than this machine: the test's proxy serves all of it.
private let remote = "http://files.example.org"

/// A service on a machine with NetworkManager, and with the publisher as its proxy to the world.
private struct Online {
    let desk: Desk
    let bus: PrivateBus
    let manager: StandInNetworkManager

    /// - Parameter metered: 2: no link is metered; 1: the link is.
    init(metered: UInt32 = 2) async throws {
        bus = await PrivateBus()
        manager = try await StandInNetworkManager(on: bus.address, metered: metered)
        desk = try await Desk(systemBus: bus)
    }

    func register(_ more: [String: Variant] = [:]) async throws -> ObjectPath {
        try await desk.register("maps", more, url: "\(remote)/m.json")
    }
}

extension Desk {
    /// Waits until the asset has announced this status, and nothing else since.
    fileprivate func has(_ status: String, _ asset: ObjectPath) async -> Bool {
        await client.signals.until { seen in
            seen.last { $0.path == asset.value && $0.changed?["Status"] != nil }?.changed?["Status"] == .string(status)
        }
    }
}

@Suite(.timeLimit(.minutes(10))) struct `An update that waits` {
    @Test func `without a call stops on a metered link, says so, and resumes on another`() async throws {
        let online = try await Online()
        let (desk, client) = (online.desk, online.desk.client)
        await desk.publisher.publish("1", size: 2_000_000)
        let gate = desk.publisher.hold("/1.tar.gz")
        defer { gate.open() }
        let asset = try await online.register(["update": .string("daily")])
        #expect(await desk.downloads(asset))
        await online.manager.set("Metered", 1)
        #expect(await desk.has("waiting-unmetered", asset))
        #expect(try await client.get(Asset.status, at: asset) == "waiting-unmetered")
        #expect(try await client.get(Asset.stage, at: asset) == "downloading")
        await online.manager.set("Metered", 2)
        #expect(await client.signals.has("Ready", at: asset))
        #expect(desk.version(at: "\(desk.directory())/current") == "1")
        #expect(try await client.get(Asset.status, at: asset) == "up-to-date")
    }

    @Test func `without a call stops on a metered link, also if it continues the failed download of a call`() async throws {
        let online = try await Online()
        let (desk, client) = (online.desk, online.desk.client)
        await desk.publisher.publish("1", size: 2_000_000)
        desk.publisher.answer("/1.tar.gz", with: 500)
        let asset = try await online.register(["retries": .uint32(0)])
        #expect(await thrown { try await desk.update(asset) }?.name == todokuError("HttpStatus"))
        let download = try await client.get(Asset.download, at: asset)
        #expect(try await client.get(Download.allowMetered, at: download))
        desk.publisher.answer("/1.tar.gz", with: nil)
        let gate = desk.publisher.hold("/1.tar.gz")
        defer { gate.open() }
        // The next start is that of a login, so a check is due.
        #expect(try await online.register(["retries": .uint32(0), "update": .string("login")]) == asset)
        await desk.running.world.kill(desk.running.daemon)
        _ = await desk.running.world.start(["--if-pending"])
        #expect(await desk.downloads(asset))
        #expect(try await client.get(Asset.download, at: asset) == download)
        await online.manager.set("Metered", 1)
        #expect(await desk.has("waiting-unmetered", asset))
        await online.manager.set("Metered", 2)
        #expect(await client.signals.has("Ready", at: asset))
        #expect(desk.version(at: "\(desk.directory())/current") == "1")
    }

    @Test func `without a call does not begin on a metered link; a call does not wait for another`() async throws {
        let online = try await Online(metered: 1)
        let desk = online.desk
        await desk.publisher.publish("1")
        let asset = try await online.register(["update": .string("daily")])
        #expect(try await desk.client.get(Asset.status, at: asset) == "not-installed")
        #expect(desk.publisher.server.requests.isEmpty)
        #expect(try await desk.update(asset).0)
        #expect(desk.version(at: "\(desk.directory())/current") == "1")
    }

    /// A download that no call has asked for has a priority below 0.
    @Test func `for a call fetches the signature with the priority of the asset, also if no metered link is allowed`() async throws {
        let online = try await Online()
        let (desk, client) = (online.desk, online.desk.client)
        await desk.publisher.publish("1")
        writeFile(desk.publisher.folder("m.json.sig"), [UInt8](repeating: 0, count: 64))
        let key = Variant.array(of: "y", (0..<32).map { .byte($0) })
        let asset = try await online.register(["allow-metered": .bool(false), "public-key": key, "priority": .int32(5)])
        let gate = desk.publisher.hold("/m.json.sig")
        defer { gate.open() }
        async let refused = thrown { try await desk.update(asset) }
        #expect(await eventually { desk.publisher.requests(for: "/m.json.sig") > 0 })
        let download = try await client.get(Asset.download, at: asset)
        #expect(try await client.get(Download.priority, at: download) == 5)
        gate.open()
        #expect(await refused != nil, "the signature is none")
    }

    @Test(arguments: [0, -5] as [Int32])
    func `for a call keeps what a person has set for its download, also after a restart`(priority: Int32) async throws {
        let desk = try await Desk.start()
        let (client, world) = (desk.client, desk.running.world)
        await desk.publisher.publish("1", size: 2_000_000)
        let gate = desk.publisher.hold("/1.tar.gz")
        defer { gate.open() }
        let asset = try await desk.register("maps", ["priority": .int32(priority)])
        async let lost = thrown { try await desk.update(asset) }
        #expect(await desk.downloads(asset))
        let download = try await client.get(Asset.download, at: asset)
        #expect(try await client.get(Download.allowMetered, at: download))
        try await client.set(Download.allowMetered, at: download, false)
        try await client.pause(download)
        await world.kill(desk.running.daemon)
        #expect(await lost != nil)
        _ = await world.start()
        #expect(try await client.get(Asset.status, at: asset) == "paused")
        // This is answered when all that the start has changed is on disk.
        try await client.set(Manager.maxActive, 100)
        #expect(try await client.get(Download.allowMetered, at: download) == false)
        #expect(try await client.get(Download.priority, at: download) == priority)
    }

    @Test func `because all is paused says so, and goes on with ResumeAll`() async throws {
        let desk = try await Desk.start()
        await desk.publisher.publish("1", size: 2_000_000)
        let gate = desk.publisher.hold("/1.tar.gz")
        defer { gate.open() }
        let asset = try await desk.register()
        async let answer = desk.update(asset)
        #expect(await desk.downloads(asset))
        try await desk.client.call(Manager.pauseAll, ())
        #expect(await desk.has("paused", asset))
        #expect(try await desk.client.get(Asset.status, at: asset) == "paused")
        try await desk.client.call(Manager.resumeAll, ())
        #expect(try await answer.0)
        #expect(desk.version(at: "\(desk.directory())/current") == "1")
        // What had come was not fetched again.
        let ranges = desk.publisher.server.requests.filter { $0.path == "/1.tar.gz" }.compactMap(\.range)
        #expect(ranges.first.map { $0.first > 0 } ?? false)
    }
}

@Suite(.timeLimit(.minutes(10))) struct `A manifest on a public server` {
    @Test(arguments: ["http://192.168.1.1/1.tar.gz", "http://127.0.0.1/1.tar.gz", "http://[::1]/1.tar.gz", "http://localhost/1.tar.gz"])
    func `leads to no private address, neither as its archive nor as a mirror`(url: String) async throws {
        let online = try await Online()
        let desk = online.desk
        let asset = try await online.register(["retries": .uint32(0)])
        _ = await desk.publisher.archive("1")
        let digest = await desk.publisher.digest("1.tar.gz")
        desk.publisher.manifest(#"{"version": "1", "url": "\#(url)", "sha256": "\#(digest)"}"#)
        let refused = await thrown { try await desk.update(asset) }
        #expect(refused?.name == todokuError("NotAllowed"), "\(refused as Any)")
        #expect(refused?.message.contains("private address") == true, "\(refused?.message ?? "")")
        desk.publisher.manifest(
            #"{"version": "1", "url": "none.tar.gz", "sha256": "\#(digest)", "mirrors": ["\#(url)"]}"#)
        let mirror = await thrown { try await desk.update(asset) }
        #expect(mirror?.name == todokuError("NotAllowed"), "\(mirror as Any)")
        #expect(
            desk.publisher.server.requests.allSatisfy { $0.target.hasPrefix(remote) }, "\(desk.publisher.server.requests.map(\.target))")
        #expect(await eventually { listFolder(desk.directory()).isEmpty }, "\(listFolder(desk.directory()))")
    }

    @Test func `whose archive is redirected to a private address gets nothing from there`() async throws {
        let digest = String(repeating: "0", count: 64)
        let proxy = ScriptedServer { request, reply in
            guard request.target == "\(remote)/m.json" else { return reply.respond(302, ["Location": "http://192.168.1.1/admin"]) }
            reply.respond(200, text: #"{"version": "1", "url": "1.tar.gz", "sha256": "\#(digest)"}"#)
        }
        let desk = Desk(running: try await Running.start(extra: ["http_proxy": proxy.url("")]))
        let asset = try await desk.register("maps", ["retries": .uint32(0)], url: "\(remote)/m.json")
        let refused = await thrown { try await desk.update(asset) }
        #expect(refused?.name == todokuError("UnsafeRedirect"), "\(refused as Any)")
        #expect(proxy.requests.map(\.target) == ["\(remote)/m.json", "\(remote)/1.tar.gz"])
        #expect(desk.version(at: "\(desk.directory())/current") == nil)
    }

    @Test(.enabled("the own name of this machine leads to no private address") { await isOwnNamePrivate() })
    func `leads to no private address by a name either, which a manifest from a private address may name`() async throws {
        let (name, publisher) = (ownHostName(), Publisher())
        await publisher.publish("1")
        let (files, digest) = (publisher.folder, await publisher.digest("1.tar.gz"))
        let inside = ScriptedServer(everywhere: true) { request, reply in
            guard let file = readFile(files(String(request.path.dropFirst()))) else { return reply.respond(404) }
            reply.serve(file, for: request, entityTag: "\"v1\"")
        }
        let port = inside.port
        let proxy = ScriptedServer { _, reply in
            reply.respond(200, text: #"{"version": "1", "url": "http://\#(name):\#(port)/1.tar.gz", "sha256": "\#(digest)"}"#)
        }
        let desk = Desk(running: try await Running.start(extra: ["http_proxy": proxy.url(""), "no_proxy": name]))
        let asset = try await desk.register("maps", ["retries": .uint32(0)], url: "\(remote)/m.json")
        let refused = await thrown { try await desk.update(asset) }
        #expect(refused?.name == todokuError("NotAllowed") && refused?.message.contains(name) == true, "\(refused as Any)")
        #expect(proxy.requests.map(\.target) == ["\(remote)/m.json"] && inside.connections == 0)
        let own = try await desk.register("own", ["retries": .uint32(0)], url: "http://\(name):\(port)/m.json")
        #expect(try await desk.update(own).0)
        #expect(desk.version(at: "\(desk.directory("own"))/current") == "1")
    }

    @Test(arguments: [404, 410]) func `that is gone makes the asset obsolete, also after a restart, until there is one again`(
        status: Int
    ) async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register()
        await desk.publisher.publish("1")
        let (_, path) = try await desk.update(asset)
        desk.publisher.answer("/m.json", with: status)
        let gone = await thrown { try await desk.update(asset) }
        #expect(gone?.name == todokuError("HttpStatus") && gone?.message.contains("\(status)") == true, "\(gone as Any)")
        #expect(try await desk.client.get(Asset.status, at: asset) == "obsolete")
        await desk.running.world.kill(desk.running.daemon)
        _ = await desk.running.world.start()
        #expect(try await desk.client.get(Asset.status, at: asset) == "obsolete")
        #expect(desk.version(at: path) == "1")
        desk.publisher.answer("/m.json", with: nil)
        await desk.publisher.publish("2")
        #expect(try await desk.update(asset).0 && desk.version(at: path) == "2")
        #expect(try await desk.client.get(Asset.status, at: asset) == "up-to-date")
    }
}

/// The test's server listens on IPv4 only.
@Sendable private func isOwnNamePrivate() async -> Bool {
    let lines = await Child.run(["getent", "ahosts", ownHostName()]).output.split(separator: "\n")
    let addresses = lines.compactMap { $0.split(separator: " ").first }
    return addresses.contains { $0.contains(".") } && addresses.allSatisfy { isPrivateAddress(String($0)) }
        && !isPrivateAddress(ownHostName())
}
