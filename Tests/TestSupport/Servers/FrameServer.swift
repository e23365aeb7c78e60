internal import EventLoop
internal import Glibc

/// An HTTPS server that answers each HTTP/2 request with exactly the frames that a test names, and each HTTP/1.1 request as
/// `ScriptedServer` does. The client chooses the version (ALPN).
///
/// Both handlers run for each request on a thread of its own, where they may wait.
///
///     let server = await FrameServer { request, stream in
///         stream.send(.head(length: 10), .data(Array("12345".utf8)), .reset(.internalError))
///     } http1: { request, reply in
///         reply.serve(file, for: request)
///     }
///     … server.url("/file") with SSL_CERT_FILE=server.authority … server.streams.map(\.path) … server.requests.map(\.path) …
///
/// An nginx in front of it does TLS. One write of at most 16 KiB, to a client that has read all bytes before, is one TLS record. libcurl
/// processes all frames of a record in one step.
///
/// The server knows no flow control. libcurl permits 32 MiB for each connection and stream, and a connection that would send more traps.
public final class FrameServer: Sendable {
    private let core: FrameCore
    private let server: ScriptedServer
    private let process: NginxProcess

    /// - Parameters:
    ///   - mostStreams: the most streams at a time on a connection, as the server announces (SETTINGS_MAX_CONCURRENT_STREAMS).
    ///   - speaksHTTP2: whether TLS offers HTTP/2; else only HTTP/1.1.
    ///   - http1: answers the HTTP/1.1 requests.
    public init(
        mostStreams: UInt32 = 100, speaksHTTP2: Bool = true, _ handler: @escaping @Sendable (ScriptedServer.Request, FrameStream) -> Void,
        http1: @escaping @Sendable (ScriptedServer.Request, Reply) -> Void = { _, reply in reply.respond(404) }
    ) async {
        let core = FrameCore(mostStreams, handler)
        let server = ScriptedServer(
            http2: { socket, number, bytes, reply in FrameConnection(core, socket, number, reply).serve(bytes) }, http1)
        (self.core, self.server) = (core, server)
        process = await NginxProcess(modules: ["ngx_stream_module.so"]) { folder, ports in
            """
            stream {
                server {
                    listen 127.0.0.1:\(ports.0) ssl;
                    \(NginxProcess.certificate(in: folder))
                    ssl_alpn \(speaksHTTP2 ? "h2 http/1.1" : "http/1.1");
                    proxy_pass 127.0.0.1:\(server.port);
                }
            }

            """
        }
    }

    /// The certificate (PEM) of the CA that signed the server's certificate for "127.0.0.1" and "localhost".
    public var authority: String { process.authority }

    /// "https://127.0.0.1:PORT" and `path`.
    public func url(_ path: String = "/") -> String { "https://127.0.0.1:\(process.ports.0)\(path)" }

    /// The HTTP/2 requests so far, in the order of their arrival. The number of a request is its place.
    public var streams: [ScriptedServer.Request] { core.lock.locked { core.streams } }

    /// The HTTP/1.1 requests so far, in the order of their arrival.
    public var requests: [ScriptedServer.Request] { server.requests }

    /// How many connections were made so far, of both versions.
    public var connections: Int { server.connections }

    /// Cuts all connections. From now on, no connection is accepted.
    public func stop() { server.stop() }
}

/// The answering side of one HTTP/2 request. Any thread may use it, also after the handler has returned.
public final class FrameStream: Sendable {
    public enum Frame: Sendable {
        /// HEADERS with `:status` and fields, and Content-Length if `length` is given. Names are in lower case.
        case head(Int = 200, [(name: String, value: String)] = [], length: Int? = nil, ends: Bool = false)
        /// DATA, in frames of at most 16 KiB; `ends`: the last frame has END_STREAM.
        case data([UInt8], ends: Bool = false)
        /// HEADERS after the body, with END_STREAM.
        case trailers
        case reset(Code)
        /// GOAWAY. `last`: the last stream that the server answers; nil: this stream.
        case goAway(Code = .noError, last: UInt32? = nil)
    }

    /// Error codes (RFC 9113, section 7).
    public enum Code: UInt32, Sendable { case noError = 0, protocolError, internalError, refusedStream = 7, cancel }

    /// The stream's number on its connection: 1 for the first request, then 3, 5, …
    public let id: UInt32
    private let connection: FrameConnection

    fileprivate init(_ id: UInt32, _ connection: FrameConnection) { (self.id, self.connection) = (id, connection) }

    /// Sends frames of this stream in one write. Waits while the client does not read. False once the connection is gone.
    @discardableResult public func send(_ frames: Frame...) -> Bool { send(frames) }

    /// Sends frames of this stream in one write.
    @discardableResult public func send(_ frames: [Frame]) -> Bool { connection.write(bytes(frames)) }

    /// Sends frames of this stream, then frames of another stream of the connection, in one write.
    @discardableResult public func send(_ frames: [Frame], then other: FrameStream, _ others: [Frame]) -> Bool {
        connection.write(bytes(frames) + other.bytes(others))
    }

    /// Whether the client has reset the stream, or the connection is gone.
    public var isOver: Bool { connection.isOver(id) }

    /// Ends the connection, with all its streams, after the bytes that were sent.
    public func cut() { connection.cut() }

    private func bytes(_ frames: [Frame]) -> [UInt8] {
        frames.reduce(into: []) { bytes, frame in
            switch frame {
            case .head(let status, let fields, let length, let ends):
                // ":status" is number 8 of the static table. No field enters the dynamic table, and no string is in the Huffman code.
                var block = [8] + text("\(status)")
                let all = fields + (length.map { [("content-length", "\($0)")] } ?? [])
                for (name, value) in all { block += [0] + text(name) + text(value) }
                bytes += FrameKind.headers.frame(id, flags: ends ? [.endHeaders, .endStream] : .endHeaders, block)
            case .data(let body, let ends):
                var start = 0
                repeat {
                    let end = min(start + 16384, body.count)
                    bytes += FrameKind.data.frame(id, flags: ends && end == body.count ? .endStream : [], body[start..<end])
                    start = end
                } while start < body.count
            case .trailers:
                bytes += FrameKind.headers.frame(id, flags: [.endHeaders, .endStream], [0] + text("x-end") + text("1"))
            case .reset(let code): bytes += FrameKind.reset.frame(id, bigEndian(code.rawValue))
            case .goAway(let code, let last): bytes += FrameKind.goAway.frame(0, bigEndian(last ?? id) + bigEndian(code.rawValue))
            }
        }
    }

    /// A plain string of HPACK, of at most 126 bytes.
    private func text(_ text: String) -> [UInt8] {
        precondition(text.utf8.count < 127, "too long for a string of HPACK here: \(text)")
        return [UInt8(text.utf8.count)] + text.utf8
    }
}

private func bigEndian(_ value: UInt32) -> [UInt8] { (0..<4).map { UInt8(truncatingIfNeeded: value >> (24 - 8 * $0)) } }

private enum FrameKind: UInt8 {
    case data = 0, headers, priority, reset, settings, push, ping, goAway, windowUpdate, continuation

    func frame(_ stream: UInt32, flags: FrameFlags = [], _ payload: some Collection<UInt8>) -> [UInt8] {
        bigEndian(UInt32(payload.count)).dropFirst() + [rawValue, flags.rawValue] + bigEndian(stream) + payload
    }
}

private struct FrameFlags: OptionSet {
    let rawValue: UInt8

    static let acknowledges = FrameFlags(rawValue: 1)  // of SETTINGS and PING
    static let endStream = FrameFlags(rawValue: 1)  // of DATA and HEADERS
    static let endHeaders = FrameFlags(rawValue: 4)
    static let isPadded = FrameFlags(rawValue: 8)
    static let hasPriority = FrameFlags(rawValue: 0x20)
}

/// The server's threads hold this object, not the server. So the threads end with the server.
private final class FrameCore: Sendable {
    let mostStreams: UInt32
    private let handler: @Sendable (ScriptedServer.Request, FrameStream) -> Void
    let lock = Lock()
    nonisolated(unsafe) var streams: [ScriptedServer.Request] = []  // under `lock`

    init(_ mostStreams: UInt32, _ handler: @escaping @Sendable (ScriptedServer.Request, FrameStream) -> Void) {
        (self.mostStreams, self.handler) = (mostStreams, handler)
    }

    /// Answers a request on a thread of its own.
    func answer(_ fields: [HeaderDecoder.Field], _ connection: Int, _ stream: FrameStream) {
        func value(_ name: String) -> String { fields.first { $0.name == name }?.value ?? "" }
        let request = lock.locked {
            let request = ScriptedServer.Request(
                method: value(":method"), target: value(":path"), fields: fields.filter { !$0.name.hasPrefix(":") }, connection: connection,
                number: streams.count, body: [])
            streams.append(request)
            return request
        }
        startThread("frame-stream") { [handler] in handler(request, stream) }
    }
}

/// One HTTP/2 connection.
private final class FrameConnection: Sendable {
    /// The bytes that libcurl permits.
    private static let window = 32 << 20

    private let core: FrameCore
    private let socket: Int32
    private let number: Int
    private let reply: Reply
    private let lock = Lock()
    // Both under `lock`.
    private nonisolated(unsafe) var isGone = false
    private nonisolated(unsafe) var ended: Set<UInt32> = []
    /// Held during a write, which may last. Frames of two writes do not mix.
    private let writing = Lock()
    private nonisolated(unsafe) var sent = 0  // under `writing`

    init(_ core: FrameCore, _ socket: Int32, _ number: Int, _ reply: Reply) {
        (self.core, self.socket, self.number, self.reply) = (core, socket, number, reply)
        var isOn: Int32 = 1  // no write waits for the next one
        setsockopt(socket, Int32(IPPROTO_TCP), TCP_NODELAY, &isOn, socklen_t(MemoryLayout<Int32>.size))
    }

    /// Reads frames until the connection ends.
    ///
    /// - Parameter bytes: the bytes that have come after the first 18 of the client's preface.
    func serve(_ bytes: [UInt8]) {
        // Before the socket is closed, all writes end, because its number may be used again.
        defer {
            lock.locked { isGone = true }
            writing.locked {}
        }
        var (buffer, decoder) = (bytes, HeaderDecoder())
        guard readBytes(socket, &buffer, 6) == Array("SM\r\n\r\n".utf8) else { return }
        write(FrameKind.settings.frame(0, [0, 3] + bigEndian(core.mostStreams)))
        while let head = readBytes(socket, &buffer, 9) {
            let length = head[..<3].reduce(0) { $0 << 8 | Int($1) }
            let (kind, flags) = (FrameKind(rawValue: head[3]), FrameFlags(rawValue: head[4]))
            let id = head[5...].reduce(0) { $0 << 8 | UInt32($1) }
            guard let payload = readBytes(socket, &buffer, length) else { return }
            switch kind {
            case .headers:
                precondition(flags.contains(.endHeaders) && !flags.contains(.isPadded), "a request in several frames, or with padding")
                let fields = decoder.fields(of: Array(payload.dropFirst(flags.contains(.hasPriority) ? 5 : 0)))
                core.answer(fields, number, FrameStream(id, self))
            case .settings where !flags.contains(.acknowledges): write(FrameKind.settings.frame(0, flags: .acknowledges, []))
            case .ping where !flags.contains(.acknowledges): write(FrameKind.ping.frame(0, flags: .acknowledges, payload))
            case .reset: lock.locked { _ = ended.insert(id) }
            default: break
            }
        }
    }

    /// Sends bytes as they are. False once the connection is gone.
    @discardableResult func write(_ bytes: [UInt8]) -> Bool {
        writing.locked {
            guard !lock.locked({ isGone }) else { return false }
            sent += bytes.count
            precondition(sent < Self.window, "FrameServer sends less than 32 MiB on a connection")
            return reply.send(bytes)
        }
    }

    func isOver(_ id: UInt32) -> Bool { lock.locked { isGone || ended.contains(id) } }

    func cut() {
        lock.locked { if !isGone { _ = shutdown(socket, Int32(SHUT_RDWR)) } }
    }
}
