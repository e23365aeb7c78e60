import CSystem
import DownloadModel
import Glibc
import TestSupport
import Testing
import TransferEngine

@testable import Transport

extension EngineFixture {
    fileprivate func failure(at server: SecureServer, host: String = "127.0.0.1") async throws -> DownloadFailure {
        try #require(try await run(server.url("/x", host: host)).failure)
    }
}

@Suite(.timeLimit(.minutes(5))) struct `Secure connections that fail` {
    enum Fault: String, CaseIterable, Sendable {
        case expired = "it has expired; check this machine’s date, or tell the server’s operator"
        case early = "it is not valid yet; check this machine’s date"
        case otherName = "it is for another name; check the host in the URL"
        case ownSignature =
            "it is self-signed; if you trust the server, add the certificate to the trusted certificates of this machine"
        case unknownIssuer = "its issuer is not among the trusted authorities of this machine; if you trust the issuer, add its certificate"
    }

    private func server(with fault: Fault) async -> SecureServer {
        switch fault {
        case .expired: return await SecureServer(years: 2020...2021)
        case .early: return await SecureServer(years: 2089...2090)
        case .otherName: return await SecureServer(names: "DNS:other.example")
        case .ownSignature: return await SecureServer(signsItself: true)
        case .unknownIssuer: return await SecureServer()
        }
    }

    @Test(arguments: Fault.allCases) func `say what is wrong with a certificate, and are not retried`(fault: Fault) async throws {
        let server = await server(with: fault)
        let fixture = await EngineFixture(certificateFile: fault == .unknownIssuer ? nil : server.authority)
        let failure = try await fixture.failure(at: server)
        #expect(failure.message == "The certificate of 127.0.0.1 cannot be trusted: \(fault.rawValue).")
        #expect(failure.name == .tls && !failure.isRetryable && failure.host == "127.0.0.1")
    }

    /// The server's authority has the name of an authority of the system. OpenSSL finds that one by its name, and tries its key.
    @Test(.enabled("libcurl is built without a file of authorities") { CertificateStore.builtIn()?.file.map(fileExists) ?? false })
    func `fail for their issuer if a file or a folder replaces all authorities of the system`() async throws {
        let system = try #require(CertificateStore.builtIn()?.file)
        let server = await SecureServer(rival: system)
        let (other, empty) = (await SecureServer(), TemporaryFolder())
        let unknown = "The certificate of 127.0.0.1 cannot be trusted: \(Fault.unknownIssuer.rawValue)."
        let byFile = try await EngineFixture(certificateFile: other.authority).failure(at: server)
        #expect(byFile.message == unknown)
        let byFolder = try await EngineFixture(certificateFolder: empty.path).failure(at: server)
        #expect(byFolder.message == unknown)
        // Without a replacement, the system's authority is tried, so the two failures above mean something.
        let bySystem = try await EngineFixture().failure(at: server)
        #expect(bySystem.message != unknown && bySystem.name == .tls)
        withExtendedLifetime((other, empty)) {}
    }

    @Test func `to a server of http say so, and are not retried`() async throws {
        let nginx = await Nginx()
        let fixture = await EngineFixture()
        let failure = try #require(try await fixture.run("https://127.0.0.1:\(nginx.port)/file.bin").failure)
        #expect(
            failure.message == """
                A secure connection to 127.0.0.1 cannot be made: the server does not speak https at this port; check the port, or write \
                http:// instead of https://.
                """)
        #expect(failure.name == .tls && !failure.isRetryable)
    }

    /// Nothing reaches the server, so its URL needs no change.
    @Test(arguments: ["http", "https"]) func `to a proxy of http are the proxy's fault, and are not retried`(scheme: String) async throws {
        let nginx = await Nginx()
        let proxies = ProxySettings(environment: ["\(scheme)_proxy": "https://127.0.0.1:\(nginx.port)"])
        let fixture = await EngineFixture(proxies: proxies)
        let failure = try #require(try await fixture.run("\(scheme)://files.example.org/x").failure)
        #expect(
            failure.message == """
                A secure connection to the proxy cannot be made: the proxy does not speak https at this port; check the port, or write \
                http:// instead of https:// in the proxy settings or the option proxy.
                """)
        #expect(failure.name == .tls && !failure.isRetryable)
    }

    @Test func `to a proxy with the certificate of another name are the proxy's fault, and are not retried`() async throws {
        let server = await SecureServer(names: "DNS:other.example")
        let proxies = ProxySettings(environment: ["https_proxy": "https://127.0.0.1:\(server.port)"])
        let fixture = await EngineFixture(certificateFile: server.authority, proxies: proxies)
        let failure = try #require(try await fixture.run("https://files.example.org/x").failure)
        #expect(
            failure.message == """
                The certificate of the proxy cannot be trusted: it is for another name; check the host in the proxy settings or the option \
                proxy.
                """)
        #expect(failure.name == .tls && !failure.isRetryable)
        withExtendedLifetime(server) {}
    }

    @Test func `to a server of old versions of TLS say so, and are not retried`() async throws {
        let server = await SecureServer(arguments: ["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"])
        let failure = try await EngineFixture(certificateFile: server.authority).failure(at: server)
        #expect(failure.name == .tls && !failure.isRetryable)
        #expect(failure.message.contains("the server offers only versions of TLS that are no longer safe"), "\(failure.message)")
    }

    @Test(
        arguments: [
            ("SSL_read: error:0A00045C:SSL routines::tlsv13 alert certificate required, errno 0", "wants a client certificate", false),
            ("error:0A000458:SSL routines::tlsv1 unrecognized name", "does not know this name", false),
            ("error:0A0000C6:SSL routines::packet length too long", "does not speak https", false),
            ("gnutls_handshake() failed: An unexpected TLS packet was received.", "does not speak https", false),
            ("error:0A000410:SSL routines::sslv3 alert handshake failure", "accepts no safe encryption", false),
            ("error:0A000126:SSL routines::unexpected eof while reading", "closed the connection", true),
            ("OpenSSL SSL_connect: SSL_ERROR_SYSCALL in connection to h:443", "closed the connection", true),
            ("error:0A000438:SSL routines::tlsv1 alert internal error.", "tlsv1 alert internal error.", true),
            ("", "a text of libcurl.", true),
        ]) func `are explained by the texts of the TLS libraries`(detail: String, words: String, isRetryable: Bool)
    {
        var error = CurlError(.tlsHandshake, "a text of libcurl")
        error.detail = detail
        let failure = FailureMapping.failure(error, host: "h", proxy: false, stallTimeout: .seconds(1), madeProgress: false)
        #expect(failure.name == .tls && failure.isRetryable == isRetryable && failure.message.contains(words), "\(failure.message)")
        #expect(failure.message.hasPrefix("A secure connection to h cannot be made: ") && !failure.message.hasSuffix(".."))
    }

    @Test(
        arguments: [
            (.tlsHandshake, "wrong version number"), (.tlsHandshake, "unsupported protocol"), (.tlsHandshake, "alert handshake failure"),
            (.tlsHandshake, "unrecognized name"), (.tlsHandshake, "unexpected eof"), (.reset, "alert certificate required"),
            (.certificate, "certificate has expired"), (.certificate, "does not match target host name"), (.certificate, "revoked"),
            (.certificate, "self-signed certificate"), (.certificate, "unable to get local issuer certificate"),
        ] as [(CurlError.Kind, String)]) func `name the proxy alone if the fault is the proxy's`(kind: CurlError.Kind, detail: String)
    {
        var error = CurlError(kind, "a text of libcurl")
        (error.detail, error.isOfProxy) = (detail, true)
        let failure = FailureMapping.failure(error, host: "h.example", proxy: true, stallTimeout: .seconds(1), madeProgress: false)
        #expect(failure.name == .tls && failure.message.contains(" the proxy cannot be "), "\(failure.message)")
        for other in ["server", "h.example", "URL"] { #expect(!failure.message.contains(other), "\(failure.message)") }
    }

    @Test func `name the proxy if the certificate is the proxy's`() {
        var error = CurlError(.certificate, "")
        (error.detail, error.verifyResult, error.isOfProxy) = ("SSL certificate problem: certificate has expired", 10, true)
        let failure = FailureMapping.failure(error, host: "h", proxy: true, stallTimeout: .seconds(1), madeProgress: false)
        #expect(failure.message.hasPrefix("The certificate of the proxy cannot be trusted: it has expired"))
        // The number counts only if it is OpenSSL's.
        (error.detail, error.isOfProxy) = ("server certificate verification failed", false)
        let other = FailureMapping.failure(error, host: "h", proxy: false, stallTimeout: .seconds(1), madeProgress: false)
        #expect(other.message == "The certificate of h cannot be trusted: server certificate verification failed.")
    }
}

@Suite struct `The sentence about an error of libcurl` {
    private static let kinds: [CurlError.Kind] = [
        .resolve, .resolveProxy, .connect, .proxy, .timeout, .certificate, .tls, .tlsHandshake, .reset, .nothingReceived, .partialFile,
        .http2, .coding, .writeRefused, .aborted, .malformedAnswer, .noMemory, .tooLarge, .other,
    ]

    /// A new kind needs a sentence here, and a place in `kinds`.
    private func sentence(_ kind: CurlError.Kind) -> String {
        switch kind {
        case .resolve: "The address of 127.0.0.1 cannot be found; check the URL and the network."
        case .resolveProxy: "The address of the proxy cannot be found; check the proxy settings or the option proxy."
        case .connect: "127.0.0.1 cannot be reached: no connection."
        case .proxy: "127.0.0.1 cannot be reached through the proxy: the library’s words."
        case .timeout: "127.0.0.1 did not answer within 1 s."
        case .certificate: "The certificate of 127.0.0.1 cannot be trusted: the library’s words."
        case .tls, .tlsHandshake: "A secure connection to 127.0.0.1 cannot be made: the library’s words."
        case .reset: "The connection to 127.0.0.1 broke."
        case .nothingReceived: "127.0.0.1 closed the connection without an answer."
        case .partialFile: "127.0.0.1 ended the connection before the file was complete."
        case .http2: "The HTTP/2 connection to 127.0.0.1 broke."
        case .coding: "127.0.0.1 sent a body that cannot be decoded."
        case .malformedAnswer: "127.0.0.1 sent a response that is not HTTP."
        case .noMemory: "There is not enough memory for a connection to 127.0.0.1."
        case .writeRefused, .aborted, .tooLarge, .other: "The transfer from 127.0.0.1 failed: the library’s words."
        }
    }

    @Test func `names the host, and says what happened`() {
        for kind in Self.kinds {
            let error = CurlError(kind, "the library’s words")
            let failure = FailureMapping.failure(
                error, host: "127.0.0.1", proxy: false, stallTimeout: .seconds(1), madeProgress: false)
            #expect(failure.message == sentence(kind) && failure.host == "127.0.0.1", "\(kind)")
            // Nobody but a person can help with these.
            #expect(failure.isRetryable == ![.certificate, .tls, .malformedAnswer].contains(kind), "\(kind)")
        }
    }

    @Test func `also names the proxy that the request went through`() {
        for (kind, sentence) in [
            (.connect, "h.example cannot be reached through the proxy: Connection refused."),
            (.reset, "The connection to h.example broke through the proxy."),
        ] as [(CurlError.Kind, String)] {
            var error = CurlError(kind, "the library’s words")
            error.osError = ECONNREFUSED
            let failure = FailureMapping.failure(error, host: "h.example", proxy: true, stallTimeout: .seconds(1), madeProgress: false)
            #expect(failure.message == sentence)
        }
    }
}

@Suite(.timeLimit(.minutes(5))) struct `A proxy that refuses` {
    @Test(
        arguments: [
            (407, "407 (Proxy Authentication Required); give its user name and password in the proxy settings or the option proxy", false),
            (403, "403 (Forbidden); its rules do not allow the connection", false), (502, "502 (Bad Gateway)", true),
        ]) func `a secure connection is named with its answer`(status: Int, words: String, isRetryable: Bool) async throws
    {
        let proxy = ScriptedServer { _, reply in
            reply.respond(status, status == 407 ? ["Proxy-Authenticate": "Basic realm=\"x\""] : [:])
        }
        let fixture = await EngineFixture(proxies: ProxySettings(environment: ["https_proxy": proxy.url()]))
        let failure = try #require(try await fixture.run("https://files.example.org/x").failure)
        #expect(failure.message == "files.example.org cannot be reached: the proxy answered \(words).")
        #expect(failure.name == .network && failure.isRetryable == isRetryable)
        #expect(proxy.requests.first?.method == "CONNECT" && proxy.requests.first?.target == "files.example.org:443")
    }

    @Test func `a plain request for want of a password is named, too`() async throws {
        let proxy = ScriptedServer { _, reply in reply.respond(407, ["Proxy-Authenticate": "Basic realm=\"x\""]) }
        let fixture = await EngineFixture(proxies: ProxySettings(environment: ["http_proxy": proxy.url()]))
        let failure = try #require(try await fixture.run("http://files.example.org/x").failure)
        #expect(failure.httpStatus == 407 && failure.message.hasPrefix("The proxy for files.example.org answered 407"))
    }

    @Test(arguments: [("http", ErrorName.httpStatus), ("https", .network)])
    func `is named with its answer although the body never comes`(scheme: String, name: ErrorName) async throws {
        let gate = Gate()
        defer { gate.open() }
        let proxy = ScriptedServer { _, reply in
            reply.head(407, ["Proxy-Authenticate": "Basic realm=\"x\""], length: 500)
            gate.wait()
        }
        let fixture = await EngineFixture(proxies: ProxySettings(environment: ["\(scheme)_proxy": proxy.url()]))
        // The proxy has time for its head, however busy the machine is: without it, there would be no status.
        let end = try await fixture.run("\(scheme)://files.example.org/x") { $0.stallTimeout = .seconds(40) }
        let failure = try #require(end.failure, "\(end)")
        let words = "407 (Proxy Authentication Required); give its user name and password in the proxy settings or the option proxy."
        #expect(failure.message.hasSuffix(words) && failure.name == name && !failure.isRetryable, "\(failure)")
        #expect(proxy.requests.count == 1)
    }

    @Test func `as a SOCKS proxy is distinguished from a server that cannot be reached`() async throws {
        let fixture = await EngineFixture(proxies: ProxySettings(environment: ["http_proxy": "socks5h://127.0.0.1:\(closedPort())"]))
        let absent = try #require(try await fixture.run("http://files.example.org/x").failure)
        #expect(absent.message == "files.example.org cannot be reached through the proxy: Connection refused.")
        var error = CurlError(.proxy, "proxy handshake error")
        for (code, words, isRetryable) in [
            (19, "the server refuses the connection", true), (23, "the proxy’s rules do not allow the connection", false),
            (33, "the proxy wants a user name and a password, or refuses those of the proxy settings or the option proxy", false),
            (27, "the address of the server cannot be found; check the URL and the network", true), (0, "proxy handshake error", true),
        ] as [(UInt32, String, Bool)] {
            error.proxyError = code
            let failure = FailureMapping.failure(error, host: "h", proxy: true, stallTimeout: .seconds(1), madeProgress: false)
            #expect(failure.message == "h cannot be reached through the proxy: \(words)." && failure.isRetryable == isRetryable)
        }
    }
}

@Suite(.timeLimit(.minutes(5)), .enabled("without a network, no host is asked for") { todoku_has_interface() })
struct `A host without an address` {
    @Test(arguments: [true, false]) func `is distinguished from name servers that do not answer`(isMissing: Bool) async throws {
        let fixture = await EngineFixture(isHostMissing: { $0 == "does-not-exist.invalid" && isMissing })
        let failure = try #require(try await fixture.run("http://does-not-exist.invalid/x").failure)
        #expect(failure.isOfMissingHost == isMissing && failure.isRetryable && failure.name == .network)
        #expect(
            failure.message
                == (isMissing
                    ? "There is no host with the name does-not-exist.invalid; check the URL."
                    : "The address of does-not-exist.invalid cannot be found; check the URL and the network."))
    }

    @Test func `delays no other transfer while the name servers do not answer`() async throws {
        let gate = Gate()
        let fixture = await EngineFixture(isHostMissing: { _ in
            gate.wait()
            return true
        })
        let names = UInt64(1)...9
        for number in names {
            fixture.engine.start(try fixture.request("http://does-not-exist-\(number).invalid/x", number: number))
        }
        // The resolver is asked for four names at a time; the other transfers do not wait for it.
        let log = fixture.log
        func ended() async -> Int {
            var count = 0
            for number in names { count += await log.ends(of: DownloadNumber(number)) }
            return count
        }
        #expect(await eventually { await ended() == 5 })
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        #expect(try await fixture.run(server.url("/x"), number: 20).complete?.size == 1)
        gate.open()
        #expect(await eventually { await ended() == 9 })
    }
}
