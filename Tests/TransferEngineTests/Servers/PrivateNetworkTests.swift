import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing

@testable internal import TransferEngine
@testable internal import Transport

@Suite(.timeLimit(.minutes(5))) struct `A transfer that stays away from private networks` {
    private let hello = ScriptedServer { _, reply in reply.respond(200, text: "hello") }

    @Test(arguments: ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "10.0.0.1", "100.64.0.1", "[fe80::1]", "[fc00::1]"])
    func `contacts no private address that a URL names`(host: String) async throws {
        let fixture = await EngineFixture()
        let failure = try #require(
            try await fixture.run("http://\(host):\(hello.port)/x") { $0.refusesPrivate = true }.failure)
        #expect(failure.name == .notAllowed && !failure.isRetryable, "\(failure)")
        #expect(failure.message.contains("allow-private"))
        #expect(hello.connections == 0)
    }

    /// No packet is sent, because a caller that learns which ports answer knows which services run here.
    @Test func `makes no connection if a name leads there`() async throws {
        let host = ownHostName()
        try #require(!isPrivateAddress(host), "only a look-up shows that it is private")
        let fixture = await EngineFixture()
        let failure = try #require(try await fixture.run("http://\(host):\(hello.port)/x") { $0.refusesPrivate = true }.failure)
        #expect(failure.name == .notAllowed, "\(failure)")
        #expect(hello.connections == 0)
    }

    @Test func `reuses no connection that another transfer left`() async throws {
        let fixture = await EngineFixture()
        let (url, name) = (hello.url("/x"), "http://localhost.:\(hello.port)/x")
        #expect(try await fixture.run(url).complete != nil)
        #expect(try await fixture.run(url, number: 2) { $0.refusesPrivate = true }.failure?.name == .notAllowed)
        #expect(try await fixture.run(name, number: 3) { $0.refusesPrivate = true }.failure?.name == .notAllowed)
        #expect(hello.requests.count == 1)
    }

    /// A caller may name such a host itself, and so may a private server.
    @Test func `makes no connection there if a public server has named the URL, by whatever name`() async throws {
        let fixture = await EngineFixture()
        for (number, host) in ["127.0.0.1", "localhost", ownHostName()].enumerated() {
            let end = try await fixture.run("http://\(host):\(hello.port)/x", number: UInt64(number) + 1) {
                $0.isNamedByPublicServer = true
            }
            let failure = try #require(end.failure)
            #expect(failure.name == .notAllowed && !failure.isRetryable, "\(failure)")
            #expect(failure.message.hasPrefix("A public server named "), "\(failure.message)")
        }
        #expect(hello.connections == 0)
        #expect(try await fixture.run(hello.url("/x"), number: 4).complete != nil)
        #expect(await fixture.log.facts(4).map(\.isFromPrivate) == [true])
        // The connection of that transfer is kept.
        let kept = try await fixture.run(hello.url("/x"), number: 5) { $0.isNamedByPublicServer = true }
        #expect(kept.failure?.name == .notAllowed && hello.requests.count == 1)
    }

    @Test func `goes through a proxy of this machine to public names, and not to private ones`() async throws {
        let proxy = ScriptedServer { request, reply in
            if request.target == "http://public.example/moved" { return reply.respond(302, ["Location": "http://192.168.1.1/admin"]) }
            reply.respond(200, text: "through")
        }
        let fixture = await EngineFixture(proxies: ProxySettings(environment: ["http_proxy": proxy.url()]))
        #expect(try await fixture.run("http://public.example/a") { $0.refusesPrivate = true }.complete != nil)
        #expect(await fixture.log.facts().map(\.isFromPrivate) == [false])
        #expect(try await fixture.run("http://localhost/a", number: 2) { $0.refusesPrivate = true }.failure?.name == .notAllowed)
        #expect(try await fixture.run("http://192.168.1.1/a", number: 3) { $0.refusesPrivate = true }.failure?.name == .notAllowed)
        #expect(
            try await fixture.run("http://public.example/moved", number: 4) { $0.refusesPrivate = true }.failure?.name == .unsafeRedirect)
        #expect(proxy.requests.map(\.target) == ["http://public.example/a", "http://public.example/moved"])
    }

    /// A private server may redirect to a public one. The bytes are the public server's then.
    @Test func `tells whether the server that sends the bytes has a private address, not the one that redirects`() async throws {
        let proxy = ScriptedServer { request, reply in
            guard request.target == "http://192.168.1.1/out" else { return reply.respond(200, text: "through") }
            reply.respond(302, ["Location": "http://public.example/a"])
        }
        let fixture = await EngineFixture(proxies: ProxySettings(environment: ["http_proxy": proxy.url()]))
        #expect(try await fixture.run("http://192.168.1.1/own").complete != nil)
        #expect(await fixture.log.facts().map(\.isFromPrivate) == [true])
        #expect(try await fixture.run("http://192.168.1.1/out", number: 2).complete != nil)
        #expect(await fixture.log.facts(2).map(\.isFromPrivate) == [false])
    }

    /// The first transfer learns of the mirror, and the second one knows it from the first. Neither asks it.
    @Test func `asks no private mirror that a public server has named, also in a later transfer`() async throws {
        let proxy = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.respond(404) }
            reply.head(200, ["ETag": "\"v1\"", "Link": "<http://192.168.1.1/f>; rel=duplicate"], length: 1_000_000)
            reply.send(patternBytes(400_000))
            reply.close()
        }
        let fixture = await EngineFixture(proxies: ProxySettings(environment: ["http_proxy": proxy.url()]))
        let first = try await fixture.run("http://public.example/f") {
            ($0.sources, $0.findsMirrors) = ([TransferSource($0.url)], true)
            ($0.mixesSources, $0.hasChecksum) = (true, true)
        }
        #expect(first.failure != nil)
        let found = await fixture.log.events.compactMap { if case .sources(_, let sources) = $0 { sources.map(\.url) } else { nil } }.last
        #expect(found == ["http://public.example/f", "http://192.168.1.1/f"])
        let mirror = try DownloadURL("http://192.168.1.1/f")
        let second = try await fixture.run("http://public.example/f") {
            ($0.sources, $0.findsMirrors) = ([TransferSource($0.url), TransferSource(mirror, mirror: 0, isFound: true)], true)
            ($0.mixesSources, $0.hasChecksum, $0.mirrorCount, $0.resume) = (true, true, 1, first.resume)
        }
        #expect(second.failure != nil)
        #expect(proxy.requests.allSatisfy { $0.target == "http://public.example/f" }, "\(proxy.requests.map(\.target))")
        // A caller may name one.
        _ = try await fixture.run("http://public.example/f", number: 2) {
            $0.sources = [TransferSource($0.url), TransferSource(mirror, mirror: 0)]
        }
        #expect(proxy.requests.last?.target == "http://192.168.1.1/f")
    }

    @Test func `knows the addresses of this machine, public ones too`() async throws {
        #expect(isOwnAddress("127.0.0.1"))
        #expect(isOwnAddress("::ffff:127.0.0.1"))
        #expect(!isOwnAddress("192.0.2.77"))
        let listed = await Child.run(["ip", "-o", "addr", "show"]).output
        for line in listed.split(separator: "\n") {
            let words = line.split(separator: " ")
            guard let family = words.firstIndex(where: { $0 == "inet" || $0 == "inet6" }) else { continue }
            let address = words[family + 1].split(separator: "/")[0]
            #expect(isOwnAddress(String(address)), "\(line)")
        }
    }
}

@Suite(.timeLimit(.minutes(5))) struct `A redirect from https to http` {
    private let plain = ScriptedServer { _, reply in reply.respond(200, text: "hello") }

    private func secure(_ location: String) async -> Nginx { await Nginx(extra: "location = /a { return 302 \(location); }") }

    @Test func `is refused if nothing proves the bytes`() async throws {
        let nginx = await secure(plain.url("/b"))
        let fixture = await EngineFixture(certificateFile: nginx.authority)
        let failure = try #require(try await fixture.run(nginx.secureURL("/a")).failure)
        #expect(failure.name == .unsafeRedirect && !failure.isRetryable)
        #expect(failure.message.contains("checksum") && failure.message.contains("allow-downgrade"), "\(failure.message)")
        #expect(plain.connections == 0)
    }

    /// Redirects from http to https and back, or from https to https and then to http.
    @Test(arguments: [true, false]) func `is refused at the second hop, too`(isFirstSecure: Bool) async throws {
        let nginx = await Nginx(extra: "location = /a { return 302 /b; } location = /b { return 302 \(plain.url("/c")); }")
        let start = ScriptedServer { _, reply in reply.respond(302, ["Location": nginx.secureURL("/b")]) }
        let fixture = await EngineFixture(certificateFile: nginx.authority)
        let end = try await fixture.run(isFirstSecure ? nginx.secureURL("/a") : start.url("/a"))
        #expect(end.failure?.name == .unsafeRedirect)
        #expect(plain.connections == 0)
        #expect(fixture.part == nil)
    }

    @Test func `is refused for the rest of a download, and its bytes stay`() async throws {
        let file = patternBytes(200_000)
        let origin = ScriptedServer { [plain] request, reply in
            guard request.field("range") == nil else { return reply.respond(302, ["Location": plain.url("/b")]) }
            reply.head(200, ["ETag": "\"v1\""], length: file.count)
            reply.send(file[..<100_000])
            reply.close()
        }
        let nginx = await Nginx(extra: "location = /a { proxy_buffering off; proxy_pass \(origin.url("")); }")
        let fixture = await EngineFixture(certificateFile: nginx.authority)
        let cut = try await fixture.run(nginx.secureURL("/a"))
        let resume = try #require(cut.resume)
        #expect(cut.failure?.name != .unsafeRedirect && resume.written > 0)
        let end = try await fixture.run(nginx.secureURL("/a")) { $0.resume = resume }
        #expect(end.failure?.name == .unsafeRedirect)
        #expect(end.resume?.written == resume.written && plain.connections == 0)
        #expect(origin.requests.count == 2)
    }

    @Test func `is followed with a checksum, with the option, and from http`() async throws {
        let nginx = await secure(plain.url("/b"))
        let fixture = await EngineFixture(certificateFile: nginx.authority)
        #expect(try await fixture.run(nginx.secureURL("/a")) { $0.hasChecksum = true }.complete != nil)
        let allowed = try await fixture.run(nginx.secureURL("/a"), number: 2) { $0.allowsDowngrade = true }
        #expect(allowed.complete != nil)
        #expect(try await fixture.run(nginx.url("/a"), number: 3).complete != nil)
    }
}
