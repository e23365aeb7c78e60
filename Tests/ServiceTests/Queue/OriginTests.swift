internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import TestSupport
internal import Testing

@Suite(.timeLimit(.minutes(10))) struct `Where the bytes came from` {
    private let last = ScriptedServer { request, reply in reply.serve(patternBytes(10), for: request) }

    /// The values of `Url`, `GetUrl` and the finished file's origin attribute.
    private func told(_ running: Running, _ path: ObjectPath) async throws -> (url: String, asked: String, attribute: String?) {
        let file = try await running.client.wait(path)
        let url = try await running.client.get(Download.url, at: path)
        let asked = try await running.client.call(Download.getUrl, at: path, ())
        return (url, asked, try extendedAttribute("user.xdg.origin.url", of: file))
    }

    @Test func `is reported after redirects, without credentials and query`() async throws {
        let last = last
        let second = ScriptedServer { _, reply in
            reply.respond(307, ["Location": "http://user:secret@127.0.0.1:\(last.port)/b.bin?key=hidden#x"])
        }
        let first = ScriptedServer { _, reply in reply.respond(302, ["Location": second.url("/?token=hidden")]) }
        let running = try await Running.start()
        let (url, asked, attribute) = try await told(running, try await running.download(first.url("/a.bin?q=1")))
        #expect((url, asked, attribute) == (last.url("/b.bin"), first.url("/a.bin?q=1"), last.url("/b.bin")))
    }

    @Test func `is http where https led there, and stays what was asked for where it did not`() async throws {
        let nginx = await Nginx(extra: "location = /a.bin { return 302 \(last.url("/b.bin?key=hidden")); }")
        let running = try await Running.start(extra: ["SSL_CERT_FILE": nginx.authority])
        let allowed = try await running.download(nginx.secureURL("/a.bin"), ["allow-downgrade": .bool(true)])
        let (url, asked, attribute) = try await told(running, allowed)
        #expect((url, asked, attribute) == (last.url("/b.bin"), nginx.secureURL("/a.bin"), last.url("/b.bin")))

        let refused = try await running.download(nginx.secureURL("/a.bin"))
        let error = await thrown { _ = try await running.client.wait(refused) }
        #expect(error?.name == todokuError("UnsafeRedirect"))
        #expect(try await running.client.get(Download.url, at: refused) == nginx.secureURL("/a.bin"))
        #expect(last.requests.count == 1)
    }

    @Test func `is https where http led there, and is kept over a restart`() async throws {
        let nginx = await Nginx()
        nginx.put("b.bin", patternBytes(1000))
        let first = ScriptedServer { _, reply in reply.respond(301, ["Location": nginx.secureURL("/b.bin?key=hidden")]) }
        let world = await ServiceWorld(extra: ["SSL_CERT_FILE": nginx.authority])
        let client = try await world.client()
        let daemon = await world.start()
        let running = Running(world: world, daemon: daemon, client: client)
        let path = try await running.download(first.url("/a.bin"))
        let (url, _, attribute) = try await told(running, path)
        #expect((url, attribute) == (nginx.secureURL("/b.bin"), nginx.secureURL("/b.bin")))
        _ = await daemon.stop()
        _ = await world.start()
        #expect(try await client.get(Download.url, at: path) == nginx.secureURL("/b.bin"))
    }
}
