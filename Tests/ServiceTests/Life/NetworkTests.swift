internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import TestSupport
internal import Testing

/// A host other than this machine: the test's proxy serves all of `files.example.org`.
private let remote = "http://files.example.org"

extension Running {
    /// Waits until the download waits for `reason`.
    fileprivate func waits(_ path: ObjectPath, for reason: String) async -> Bool {
        await client.signals.until { seen in
            seen.last { $0.path == path.value && $0.changed?["WaitReason"] != nil }?.changed?["WaitReason"] == .string(reason)
        }
    }
}

/// A daemon on a machine with NetworkManager or the portal, and with a proxy to the world.
private struct Online {
    let running: Running
    let bus: PrivateBus
    let manager: StandInNetworkManager

    init(_ proxy: ScriptedServer, state: UInt32 = 70, connectivity: UInt32 = 4, metered: UInt32 = 4) async throws {
        try await self.init(proxy: proxy.url(""), state: state, connectivity: connectivity, metered: metered)
    }

    init(proxy: String, state: UInt32 = 70, connectivity: UInt32 = 4, metered: UInt32 = 4) async throws {
        bus = await PrivateBus()
        manager = try await StandInNetworkManager(on: bus.address, state: state, connectivity: connectivity, metered: metered)
        running = try await Running.start(extra: ["DBUS_SYSTEM_BUS_ADDRESS": bus.address, "http_proxy": proxy])
    }
}

@Suite struct `A captive portal` {
    @Test func `is never asked for a file: downloads wait, except those from this machine`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let online = try await Online(server, connectivity: 2)
        let running = online.running
        let path = try await running.download("\(remote)/a")
        #expect(await running.waits(path, for: "offline"))
        #expect(try await running.client.get(Download.waitUntil, at: path) == 0)
        _ = try await running.fetch(server.url("/local"))
        #expect(server.requests.map(\.target) == [server.url("/local")])
        // After a restart, too.
        await running.world.kill(running.daemon)
        _ = await running.world.start()
        #expect(await eventually { (try? await running.client.get(Download.waitReason, at: path)) == "offline" })
        await online.manager.set("Connectivity", 4)
        #expect(readFile(try await running.client.wait(path)) == [0x78])
        #expect(server.requests.count == 2)
    }

    @Test func `stops transfers, which resume from their bytes; Resume tries in spite of it`() async throws {
        let file = SlowFile()
        let online = try await Online(file.server)
        let running = online.running
        let path = try await running.begin("\(remote)/a")
        await online.manager.set("Connectivity", 2)
        #expect(await running.waits(path, for: "offline"))
        #expect(file.server.requests.count == 1)
        try await running.client.resume(path)
        #expect(readFile(try await running.client.wait(path)) == file.body)
        #expect(file.server.requests.last?.range?.first == SlowFile.first)
        file.gate.open()
    }
}

@Suite struct `A metered link` {
    @Test func `takes back the connections that a download has added by itself`() async throws {
        // At 8 connections it takes half a minute: the link becomes metered long before the end.
        let nginx = await Nginx(limitRate: "250k")
        nginx.put("a", patternBytes(60_000_000))
        let online = try await Online(proxy: nginx.url(""))
        let path = try await online.running.download("\(remote)/a")
        func told(_ seen: [Seen]) -> UInt32? {
            seen.last { $0.path == path.value && $0.changed?["Connections"] != nil }?.changed?["Connections"]?.uint32
        }
        #expect(await online.running.client.signals.until { told($0) ?? 0 >= 2 })
        await online.manager.set("Metered", 1)
        #expect(await online.running.client.signals.until { told($0) == 1 })
        try await online.running.client.cancel(path)
    }

    @Test func `stops downloads that must not use it, which resume over another`() async throws {
        let file = SlowFile()
        let online = try await Online(file.server)
        let running = online.running
        let path = try await running.begin("\(remote)/a", ["allow-metered": .bool(false)])
        await online.manager.set("Metered", 3)
        #expect(await running.waits(path, for: "metered"))
        let other = try await running.download("\(remote)/b", ["allow-metered": .bool(false)])
        #expect(await running.waits(other, for: "metered"))
        _ = try await running.fetch("\(remote)/c")
        try await running.client.resume(path)
        #expect(try await running.state(path) == "waiting")
        #expect(file.server.requests.count == 2)
        await online.manager.set("Metered", 2)
        #expect(readFile(try await running.client.wait(path)) == file.body)
        _ = try await running.client.wait(other)
        #expect(file.server.requests.compactMap { $0.range?.first } == [SlowFile.first])
        file.gate.open()
    }

    @Test func `stops a download that is forbidden to use it meanwhile, and not one that is allowed to`() async throws {
        let file = SlowFile()
        let online = try await Online(file.server, metered: 1)
        let running = online.running
        let path = try await running.begin("\(remote)/a")
        try await running.client.set(Download.allowMetered, at: path, false)
        #expect(await running.waits(path, for: "metered"))
        // Over a restart, too.
        await running.world.kill(running.daemon)
        _ = await running.world.start()
        #expect(await eventually { (try? await running.client.get(Download.waitReason, at: path)) == "metered" })
        #expect(try await running.client.get(Download.allowMetered, at: path) == false)
        try await running.client.set(Download.allowMetered, at: path, true)
        #expect(readFile(try await running.client.wait(path)) == file.body)
        file.gate.open()
        let ended = await thrown { try await running.client.set(Download.allowMetered, at: path, false) }
        #expect(ended?.name == todokuError("InvalidState"))
    }

    @Test func `is known before the first byte of a download that must not use it`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let online = try await Online(server, metered: 1)
        let path = try await online.running.download("\(remote)/a", ["allow-metered": .bool(false)])
        _ = try await online.running.fetch("\(remote)/b")
        #expect(try await online.running.client.get(Download.waitReason, at: path) == "metered")
        #expect(server.requests.map(\.target) == ["\(remote)/b"])
    }

    @Test func `is remembered while NetworkManager restarts`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let online = try await Online(server, metered: 1)
        let path = try await online.running.download("\(remote)/a", ["allow-metered": .bool(false)])
        #expect(await online.running.waits(path, for: "metered"))
        let gone = ContinuousClock.now
        try await online.manager.vanish()
        // A NetworkManager that has just started knows no link yet.
        await online.manager.setSilently("State", 20)
        await online.manager.setSilently("Metered", 0)
        try await online.manager.appear()
        let client = online.running.client
        let other = try await online.running.download("\(remote)/b")
        #expect(
            await client.signals.until { seen in
                seen.contains { $0.ended?.path == other || $0.path == other.value && $0.changed?["WaitReason"] == .string("offline") }
            })
        // The earlier answer holds for ten seconds. Where these calls have taken longer, the state of the new NetworkManager counts.
        let states = [try await client.get(Download.waitReason, at: path), try await client.get(Download.state, at: other)]
        #expect(states == ["metered", "finished"] || ContinuousClock.now - gone > .seconds(10), "\(states)")
        await online.manager.setSilently("Metered", 2)
        await online.manager.set("State", 70)
        for download in [path, other] { _ = try await client.wait(download) }
    }
}

@Suite struct `A link that NetworkManager does not manage` {
    @Test(.enabled("only root can make a network of its own, with ip(8)") { await Child.run(["unshare", "-n", "ip", "link"]).status == 0 })
    func `lets downloads resume when it gets its route, later than the service has started`() async throws {
        let bus = await PrivateBus()
        let manager = try await StandInNetworkManager(on: bus.address, state: 20)
        // Nothing listens at the address of the proxy, so the first attempt fails at once.
        let world = await ServiceWorld(extra: ["DBUS_SYSTEM_BUS_ADDRESS": bus.address, "http_proxy": "http://127.0.0.1:9"])
        let daemon = await world.start(prefix: ["unshare", "-n"])
        let running = Running(world: world, daemon: daemon, client: try await world.client())
        let path = try await running.download("\(remote)/a", ["retries": .uint32(0)])
        #expect(await running.waits(path, for: "offline"))
        let link = "ip link set lo up && ip addr add 10.9.9.1/24 dev lo && ip route add default via 10.9.9.2 dev lo"
        let exit = await Child.run(["nsenter", "--net=/proc/\(daemon.pid)/ns/net", "--", "sh", "-c", link])
        #expect(exit.status == 0, "\(exit.errors)")
        #expect(await running.client.signals.isIn("failed", path), "the download was not tried")
        withExtendedLifetime(manager) {}
    }
}

@Suite struct `Without NetworkManager` {
    @Test func `the portal is asked`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let world = await ServiceWorld(extra: ["http_proxy": server.url("")])
        let portal = try await StandInPortal(on: world.bus.address)
        await portal.set("connectivity", .uint32(3))
        let running = Running(world: world, daemon: await world.start(), client: try await world.client())
        let path = try await running.download("\(remote)/a", ["allow-metered": .bool(false)])
        #expect(await running.waits(path, for: "offline"))
        await portal.set("metered", .bool(true))
        await portal.set("connectivity", .uint32(4))
        #expect(await running.waits(path, for: "metered"))
        await portal.set("metered", .bool(false))
        _ = try await running.client.wait(path)
        #expect(server.requests.count == 1)
    }

    @Test func `and without a portal, or when it leaves, it is simply tried`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let online = try await Online(server, connectivity: 2)
        let path = try await online.running.download("\(remote)/a", ["allow-metered": .bool(false)])
        #expect(await online.running.waits(path, for: "offline"))
        try await online.manager.vanish()
        _ = try await online.running.client.wait(path)
        #expect(server.requests.count == 1)
    }
}
