internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import TestSupport
internal import Testing

@Suite(.timeLimit(.minutes(3))) struct `The proxy of the desktop's settings` {
    /// A real HTTP proxy, as far as a GET goes: it is sent the whole URL. Names stand for their servers.
    private let proxy = ScriptedServer { request, reply in
        if request.target == "http://files.example/moved" { return reply.respond(302, ["Location": "http://other.example/b?key=1"]) }
        reply.respond(200, text: "through \(request.target)")
    }

    @Test func `is asked of the portal before each request, and taken`() async throws {
        let running = try await Running.start()
        let url = proxy.url()
        let portal = try await StandInProxyPortal(on: running.world.bus.address) { _ in [url, "direct://"] }
        let file = try await running.fetch("http://files.example/moved")
        #expect(readFile(file) == Array("through http://other.example/b?key=1".utf8))
        #expect(await portal.asked == ["http://files.example/moved", "http://other.example/b"])
    }

    @Test func `is none to be left out where it cannot be told`() async throws {
        let running = try await Running.start()
        let portal = try await StandInProxyPortal(on: running.world.bus.address) { _ in nil }
        let error = await thrown { try await running.fetch("http://files.example/a", ["retries": .uint32(0)]) }
        #expect(error?.name == todokuError("Network") && error?.message.contains("proxy") == true, "\(error as Any)")
        #expect(await portal.asked == ["http://files.example/a"])
    }

    @Test func `counts less than the environment's, and not for this machine`() async throws {
        let url = proxy.url()
        let running = try await Running.start(extra: ["http_proxy": url])
        let portal = try await StandInProxyPortal(on: running.world.bus.address) { _ in ["http://127.0.0.1:1"] }
        _ = try await running.fetch("http://files.example/a")
        let plain = try await Running.start()
        let other = try await StandInProxyPortal(on: plain.world.bus.address) { _ in ["http://127.0.0.1:1"] }
        _ = try await plain.fetch(proxy.url("/b"))
        let (first, second) = await (portal.asked, other.asked)
        #expect(first == [] && second == [])
    }

    @Test func `is read from KDE's file in KDE`() async throws {
        let world = await ServiceWorld(extra: ["XDG_CURRENT_DESKTOP": "KDE"])
        let text = "[Proxy Settings]\nProxyType=1\nhttpProxy=http://127.0.0.1 \(proxy.port)\nNoProxyFor=\n"
        writeFile(world.bus.folder("config/kioslaverc"), text.utf8)
        let client = try await world.client()
        let running = Running(world: world, daemon: await world.start(), client: client)
        let file = try await running.fetch("http://files.example/a")
        #expect(readFile(file) == Array("through http://files.example/a".utf8))
    }
}
