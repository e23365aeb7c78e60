import DownloadModel
import EventLoop
import TestSupport
import Testing
import TransferEngine

@testable import Transport

@Suite(.timeLimit(.minutes(5))) struct `Real nginx` {
    @Test func `gives a whole file over http, and the rest of one`() async throws {
        let file = patternBytes(5_000_000)
        let nginx = await Nginx()
        nginx.put("file.zip", file)
        let fixture = await EngineFixture()
        let part = try #require(try await fixture.run(nginx.url("/file.zip")).complete)
        #expect(fixture.part == file)
        #expect(part.facts.mediaType == "application/zip")
        #expect(part.facts.isResumable)

        writeFile(fixture.folder(".todoku-2.part"), file[..<2_000_000])
        var resume = try #require(part.resume)
        // The map of the first transfer says that all bytes are written. The second transfer has its own map.
        resume.identity = try identity(of: fixture.folder(".todoku-2.part"))
        resume.ranges = ByteRanges(prefix: 2_000_000)
        let end = try await fixture.run(nginx.url("/file.zip"), number: 2) { $0.resume = resume }
        #expect(end.complete?.size == 5_000_000)
        #expect(fixture.part(2) == file)
        // nginx logs a request after its last byte.
        #expect(await eventually { nginx.log.last == "HTTP/1.1 206 /file.zip bytes=2000000-" })
    }

    @Test func `speaks HTTP/2 over https, to whom its authority is trusted`() async throws {
        let file = patternBytes(2_000_000)
        let nginx = await Nginx()
        nginx.put("file.bin", file)
        let fixture = await EngineFixture(certificateFile: nginx.authority)
        #expect(try await fixture.run(nginx.secureURL("/file.bin")).complete?.size == 2_000_000)
        #expect(fixture.part == file)
        #expect(await eventually { nginx.log == ["HTTP/2.0 200 /file.bin -"] })
    }

    @Test func `is not believed where its authority is unknown`() async throws {
        let nginx = await Nginx()
        nginx.put("file.bin", patternBytes(1000))
        let fixture = await EngineFixture()
        let failure = try #require(try await fixture.run(nginx.secureURL("/file.bin")).failure)
        #expect(failure.name == .tls && !failure.isRetryable && failure.host == "127.0.0.1")
        #expect(failure.message.hasPrefix("The certificate of 127.0.0.1 cannot be trusted: "))
        #expect(listFolder(fixture.folder.path) == [])
        #expect(nginx.log == [])
    }

    @Test func `is believed as an https proxy, too, where its authority is trusted`() async throws {
        let file = patternBytes(200_000)
        let nginx = await Nginx()
        nginx.put("file.bin", file)
        let proxies = ProxySettings(environment: ["http_proxy": "https://127.0.0.1:\(nginx.securePort)"])
        let fixture = await EngineFixture(certificateFile: nginx.authority, proxies: proxies)
        let end = try await fixture.run("http://files.example.org/file.bin")
        #expect(end.complete?.size == 200_000, "\(end)")
        #expect(fixture.part == file)
    }

    @Test func `causes a TLS failure if https is used on its http port`() async throws {
        let nginx = await Nginx()
        let fixture = await EngineFixture()
        let failure = try #require(try await fixture.run("https://127.0.0.1:\(nginx.port)/file.bin").failure)
        #expect(failure.name == .tls)
    }

    @Test func `gives files over one HTTP/2 connection at once`() async throws {
        let nginx = await Nginx()
        let files = (0..<6).map { patternBytes(400_000, seed: UInt64($0 + 1)) }
        for (number, file) in files.enumerated() { nginx.put("\(number)", file) }
        let fixture = await EngineFixture(certificateFile: nginx.authority)
        for number in files.indices { fixture.engine.start(try fixture.request(nginx.secureURL("/\(number)"), number: UInt64(number))) }
        for number in files.indices {
            #expect(await fixture.log.end(of: DownloadNumber(UInt64(number))).complete != nil)
            #expect(fixture.part(UInt64(number)) == files[number])
        }
    }

    @Test func `is slowed down as nginx says, and reported meanwhile`() async throws {
        let nginx = await Nginx(limitRate: "400k")
        nginx.put("file.bin", patternBytes(2_000_000))  // five seconds, so that some of them are reported however busy the machine is
        let fixture = await EngineFixture()
        let start = ContinuousClock.now
        #expect(try await fixture.run(nginx.url("/file.bin")).complete?.size == 2_000_000)
        #expect(ContinuousClock.now - start > .milliseconds(400))
        let snapshots = await fixture.log.events.compactMap { if case .progress(let all) = $0 { all } else { nil } }
        #expect(!snapshots.isEmpty)
        #expect(snapshots.count <= Int((ContinuousClock.now - start) / .milliseconds(100)) + 1)
    }
}

@Suite(.timeLimit(.minutes(5))) struct `Speed limits` {
    /// The seconds that `count` transfers of `size` bytes take.
    private func time(_ fixture: EngineFixture, count: Int, size: Int, own: Speed?) async throws -> Double {
        let file = patternBytes(size)
        let server = ScriptedServer { _, reply in reply.respond(200, body: file) }
        let start = ContinuousClock.now
        for number in 1...count {
            fixture.engine.start(try fixture.request(server.url("/"), number: UInt64(number)) { $0.speedLimit = own })
        }
        for number in 1...count { #expect(await fixture.log.end(of: DownloadNumber(UInt64(number))).complete != nil) }
        return (ContinuousClock.now - start) / .seconds(1)
    }

    @Test func `of a transfer are kept`() async throws {
        let seconds = try await time(EngineFixture(), count: 1, size: 1_500_000, own: 750_000)
        #expect(seconds > 0.9)  // a busy machine may take longer
    }

    @Test func `of all together are shared`() async throws {
        let fixture = await EngineFixture()
        fixture.engine.setTotalSpeedLimit(1_000_000)
        let seconds = try await time(fixture, count: 2, size: 1_000_000, own: nil)
        #expect(seconds > 0.9)  // a busy machine may take longer
    }

    /// With the limit, the transfer would take longer than the time limit of the suite.
    @Test func `can be lifted while bytes come`() async throws {
        let fixture = await EngineFixture()
        let file = patternBytes(5_000_000)
        let server = ScriptedServer { _, reply in reply.respond(200, body: file) }
        fixture.engine.start(try fixture.request(server.url("/")) { $0.speedLimit = 10_000 })
        await fixture.log.received(5_000)
        fixture.engine.setSpeedLimit(DownloadNumber(1), nil)
        #expect(await fixture.log.end(of: DownloadNumber(1)).complete?.size == 5_000_000)
    }

    @Test func `of two transfers from one server with HTTP/2 are kept`() async throws {
        let nginx = await Nginx()
        let file = patternBytes(400_000)
        nginx.put("file.bin", file)
        let fixture = await EngineFixture(certificateFile: nginx.authority)
        let start = ContinuousClock.now
        for number: UInt64 in [1, 2] {
            fixture.engine.start(try fixture.request(nginx.secureURL("/file.bin"), number: number) { $0.speedLimit = 200_000 })
        }
        for number: UInt64 in [1, 2] {
            #expect(await fixture.log.end(of: DownloadNumber(number)).complete?.size == 400_000)
            #expect(fixture.part(number) == file)
        }
        #expect(ContinuousClock.now - start > .milliseconds(1400))
    }

    @Test func `do not count as a stall`() async throws {
        let fixture = await EngineFixture()
        // The transfer takes 50 s. The server has 40 s for its head, however busy the machine is.
        let file = patternBytes(500_000)
        let server = ScriptedServer { _, reply in reply.respond(200, body: file) }
        let end = try await fixture.run(server.url("/")) { ($0.speedLimit, $0.stallTimeout) = (10_000, .seconds(40)) }
        #expect(end.complete?.size == 500_000)
    }
}

@Suite(.timeLimit(.minutes(5))) struct `A proxy` {
    @Test func `is taken from the environment, but not for the hosts that are excepted`() {
        let settings = ProxySettings(environment: [
            "http_proxy": "http://p:1", "HTTPS_PROXY": "http://q:2", "no_proxy": "localhost, .example.com,10.0.0.0/8,::1",
        ])
        #expect(settings.http == "http://p:1" && settings.https == "http://q:2")
        #expect(ProxySettings(environment: ["HTTP_PROXY": "http://p:1"]) == .none)
        #expect(ProxySettings(environment: ["ALL_PROXY": "socks5://p:1"]).https == "socks5://p:1")
        #expect(settings.exceptions == ["localhost", ".example.com", "10.0.0.0/8", "::1"])
    }

    @Test func `of the desktop is not asked for where the environment excepts the host`() throws {
        let settings = ProxySettings(environment: ["https_proxy": "http://q:2", "no_proxy": "inside.example, dotted.example."])
        for host in ["inside.example", "a.inside.example", "a.dotted.example", "dotted.example."] {
            #expect(settings.choice(for: try DownloadURL("http://\(host)/")) == .direct, "\(host)")
        }
        #expect(settings.choice(for: try DownloadURL("http://files.example/")) == nil)
        #expect(settings.choice(for: try DownloadURL("https://files.example/")) == .through("http://q:2"))
    }

    @Test func `is given the whole URL, and told nothing where the host is excepted`() async throws {
        let proxy = ScriptedServer { _, reply in reply.respond(200, text: "by proxy") }
        let server = ScriptedServer { _, reply in reply.respond(200, text: "straight") }
        let fixture = await EngineFixture(
            proxies: ProxySettings(environment: ["http_proxy": proxy.url(), "no_proxy": "straight.example,127.0.0.0/8"]))
        #expect(try await fixture.run("http://files.example.org/x?y=1").complete != nil)
        #expect(fixture.part == Array("by proxy".utf8))
        #expect(proxy.requests.map(\.target) == ["http://files.example.org/x?y=1"])
        #expect(try await fixture.run(server.url("/x")).complete != nil)
        #expect(fixture.part == Array("straight".utf8))
    }

    @Test func `that cannot be reached is named`() async throws {
        let fixture = await EngineFixture(proxies: ProxySettings(environment: ["http_proxy": "http://127.0.0.1:\(closedPort())"]))
        let failure = try #require(try await fixture.run("http://files.example.org/x").failure)
        #expect(failure.message == "files.example.org cannot be reached through the proxy: Connection refused.")
    }
}
