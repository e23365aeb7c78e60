internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite(.timeLimit(.minutes(10))) struct `The option proxy` {
    /// Works like a real HTTP proxy for GET: requests have the whole URL, and names stand for servers.
    private let proxy = ScriptedServer { request, reply in
        switch request.target {
        case "http://files.example/gone": reply.respond(404)
        case "http://files.example/moved": reply.respond(302, ["Location": "http://other.example/b"])
        case "http://files.example/private" where request.field("Proxy-Authorization") != "Basic bWU6cEB3": reply.respond(407)
        default: reply.respond(200, text: "through \(request.target)")
        }
    }

    @Test func `leads all requests of its download through that proxy, before the environment's`() async throws {
        let other = ScriptedServer { request, reply in reply.respond(200, text: "other \(request.target)") }
        let running = try await Running.start(extra: ["http_proxy": other.url(), "no_proxy": "files.example"])
        let option = ["proxy": Variant.string(proxy.url())]
        #expect(readFile(try await running.fetch("http://files.example/moved", option)) == Array("through http://other.example/b".utf8))
        #expect(proxy.requests.map(\.target) == ["http://files.example/moved", "http://other.example/b"])
        // This machine, too, which is reached directly otherwise.
        let local = "http://127.0.0.1:1/c"
        #expect(readFile(try await running.fetch(local, option)) == Array("through \(local)".utf8))
        #expect(other.requests.isEmpty)
        #expect(readFile(try await running.fetch("http://third.example/d")) == Array("other http://third.example/d".utf8))
        #expect(proxy.requests.count == 3, "another download has its own proxy")
    }

    @Test func `holds for all hosts, whatever the environment excepts`() async throws {
        let running = try await Running.start(extra: ["no_proxy": "*", "NO_PROXY": "*"])
        for url in ["http://files.example/a", "http://127.0.0.1:1/b", "http://localhost:1/c"] {
            let file = try await running.fetch(url, ["proxy": .string(proxy.url())])
            #expect(readFile(file) == Array("through \(url)".utf8))
        }
    }

    @Test func `is none if it says direct`() async throws {
        let server = ScriptedServer { request, reply in reply.respond(200, text: "straight to \(request.target)") }
        let running = try await Running.start(extra: ["http_proxy": proxy.url(), "no_proxy": ""])
        let file = try await running.fetch(server.url("/a"), ["proxy": .string("direct://")])
        #expect(readFile(file) == Array("straight to /a".utf8))
        #expect(proxy.requests.isEmpty)
    }

    @Test(arguments: [("socks5h", "files.example"), ("socks5", "127.0.0.1")])
    func `may be a SOCKS proxy, which can resolve the names`(scheme: String, host: String) async throws {
        let server = ScriptedServer { request, reply in reply.respond(200, text: "straight to \(request.target)") }
        let socks = SocksServer(to: server.port)
        let running = try await Running.start()
        let file = try await running.fetch("http://\(host):8/a", ["proxy": .string("\(scheme)://127.0.0.1:\(socks.port)")])
        #expect(readFile(file) == Array("straight to /a".utf8))
        #expect(socks.requests == [.init(isByName: scheme == "socks5h", host: host, port: 8)])
    }

    @Test func `may have credentials, which no one but the proxy sees`() async throws {
        let running = try await Running.start()
        let url = "http://files.example/private"
        let option: [String: Variant] = ["proxy": .string("http://me:p%40w@127.0.0.1:\(proxy.port)")]
        let path = try await running.download(url, option)
        #expect(readFile(try await running.client.wait(path)) == Array("through \(url)".utf8))
        let properties = "\(try await running.client.all(path))"
        #expect(!properties.contains("p%40w"))
        let refused = await thrown { try await running.fetch(url, ["proxy": .string("http://127.0.0.1:\(proxy.port)")]) }
        #expect(refused?.name == todokuError("HttpStatus") && refused?.message.contains("407") == true, "\(refused as Any)")
    }

    @Test func `stays with a fresh link, also to another origin`() async throws {
        let running = try await Running.start()
        let path = try await running.download("http://files.example/gone", ["proxy": .string(proxy.url())])
        let gone = await thrown { try await running.client.wait(path) }
        #expect(gone?.name == todokuError("HttpStatus"), "\(gone as Any)")
        try await running.client.call(Download.replaceUrl, at: path, ("http://other.example/b", [:]))
        #expect(readFile(try await running.client.wait(path)) == Array("through http://other.example/b".utf8))
    }

    @Test func `holds after a restart, and for a proxy that is not there`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start()
        let options: [String: Variant] = ["proxy": .string(proxy.url()), "start": .bool(false), "directory": .string(world.folder)]
        let path = try await client.download("http://files.example/a", options)
        #expect(await world.stop(daemon).status == 0)
        _ = await world.start()
        try await client.call(Download.resume, at: path, ())
        #expect(readFile(try await client.wait(path)) == Array("through http://files.example/a".utf8))
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let none: [String: Variant] = ["proxy": .string("http://127.0.0.1:\(closedPort())"), "retries": .uint32(0)]
        let lost = try await client.download(server.url("/b"), none)
        let error = await thrown { try await client.wait(lost) }
        #expect(error?.name == todokuError("Network") && error?.message.contains("proxy") == true, "\(error as Any)")
        #expect(server.requests.isEmpty, "never past the proxy")
    }
}
