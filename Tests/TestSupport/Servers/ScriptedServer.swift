internal import CSystem
internal import EventLoop
internal import Glibc

/// An HTTP/1.1 server that does exactly what a test tells it, on a raw socket of 127.0.0.1.
///
/// The handler runs for each request on a thread of its own, where it may wait. Its bytes are sent unchanged.
///
///     let server = ScriptedServer { request, reply in
///         switch request.path {
///         case "/file": reply.serve(patternBytes(100_000), for: request, entityTag: "\"a\"")   // with ranges, If-Range and HEAD
///         case "/moved": reply.respond(302, ["Location": "/file"])
///         case "/cut": reply.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n1234"); reply.close()
///         case "/slow": reply.head(200, length: 10); reply.send("12345"); gate.wait(); reply.send("67890")
///         default: reply.respond(404)
///         }
///     }
///     … server.url("/file") … server.requests.map(\.target) …
///
/// It ends, with all its connections, with its last reference or by `stop`. Before that, open every `Gate` for which a handler waits.
public final class ScriptedServer: Sendable {
    /// One request as received.
    public struct Request: Sendable {
        public let method: String
        /// Path and query, or the whole URL if the server is used as a proxy.
        public let target: String
        /// Names as received, in order.
        public let fields: [(name: String, value: String)]
        /// The first connection is 0.
        public let connection: Int
        /// The first request of the server is 0.
        public let number: Int
        public let body: [UInt8]
        /// When the whole request had arrived.
        public let arrived = ContinuousClock.now

        public var path: String { String(target.prefix { $0 != "?" }) }

        /// The first field of this name, whatever its case.
        public func field(_ name: String) -> String? { fields.first { $0.name.lowercased() == name.lowercased() }?.value }

        /// The first byte and, if given, the last byte of a plain "Range: bytes=a-b".
        public var range: (first: Int, last: Int?)? {
            guard let value = field("Range"), value.hasPrefix("bytes=") else { return nil }
            let ends = value.dropFirst(6).split(separator: "-", omittingEmptySubsequences: false)
            guard ends.count == 2, let first = Int(ends[0]) else { return nil }
            return (first, Int(ends[1]))
        }
    }

    private let core: ServerCore
    public let port: UInt16

    /// - Parameters:
    ///   - everywhere: whether it listens on all addresses of this machine, not only on 127.0.0.1.
    ///   - bodyStep: it reads bodies as a slow line carries them, so many bytes a second; nil: at once.
    public convenience init(everywhere: Bool = false, bodyStep: Int? = nil, _ handler: @escaping @Sendable (Request, Reply) -> Void) {
        self.init(everywhere: everywhere, bodyStep: bodyStep, http2: nil, handler)
    }

    /// - Parameter http2: serves a connection whose client speaks HTTP/2, until it ends. Gets the socket, the number of the connection, the
    ///   bytes that have come after the first 18 of the client's preface (RFC 9113, section 3.4), and the way back.
    init(
        everywhere: Bool = false, bodyStep: Int? = nil, http2: (@Sendable (Int32, Int, [UInt8], Reply) -> Void)?,
        _ handler: @escaping @Sendable (Request, Reply) -> Void
    ) {
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        if bodyStep != nil {
            var size: Int32 = 128 * 1024  // else the kernel takes the whole body at once
            setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &size, socklen_t(MemoryLayout<Int32>.size))
        }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = in_addr_t(everywhere ? 0 : 0x7F00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let bound = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(listener, $0, length) == 0 && listen(listener, 128) == 0 && getsockname(listener, $0, &length) == 0
            }
        }
        precondition(bound, "cannot listen on 127.0.0.1: \(String(cString: strerror(errno)))")
        port = UInt16(bigEndian: address.sin_port)
        let core = ServerCore(listener: listener, bodyStep: bodyStep, http2: http2, handler: handler)
        self.core = core
        startThread("scripted-server") { core.accept() }
    }

    deinit { core.stop() }

    /// "http://127.0.0.1:PORT" and `path`.
    public func url(_ path: String = "/") -> String { "http://127.0.0.1:\(port)\(path)" }

    /// The same server under another origin: "http://localhost:PORT".
    public func otherURL(_ path: String = "/") -> String { "http://localhost:\(port)\(path)" }

    /// All requests so far, in the order of their arrival.
    public var requests: [Request] { core.lock.locked { core.requests } }

    /// How many connections were made so far.
    public var connections: Int { core.lock.locked { core.connections } }

    /// Waits until `count` requests have arrived; false if fewer arrive within `limit`.
    public func waitForRequests(_ count: Int, within limit: Duration = .seconds(60)) async -> Bool {
        await eventually(within: limit) { requests.count >= count }
    }

    /// Closes the listening socket and cuts all connections: from now on connecting is refused.
    public func stop() { core.stop() }
}

/// A gate at which threads of a server wait until a test opens it. It stays open.
public final class Gate: Sendable {
    private let lock = Lock()
    private nonisolated(unsafe) var isOpenLocked = false  // under `lock`

    public init() {}

    /// Releases all waiting threads, and all later ones.
    public func open() {
        lock.locked {
            isOpenLocked = true
            lock.broadcast()
        }
    }

    public var isOpen: Bool { lock.locked { isOpenLocked } }

    /// Blocks the calling thread until the gate is open; for ten minutes at most, so that a test which never opens it leaves no thread
    /// behind. Only for the threads of a `ScriptedServer`.
    public func wait() {
        lock.locked {
            let deadline = ContinuousClock.now + .seconds(600)
            while !isOpenLocked, ContinuousClock.now < deadline { lock.wait(milliseconds: 100) }
        }
    }
}

/// The answering side of one request. Used on the handler's thread only.
public final class Reply: Sendable {
    private let socket: Int32
    private let lock = Lock()
    private nonisolated(unsafe) var isClosedLocked = false  // under `lock`
    private let isHead: Bool

    fileprivate init(socket: Int32, isHead: Bool) { (self.socket, self.isHead) = (socket, isHead) }

    fileprivate var isClosed: Bool { lock.locked { isClosedLocked } }

    /// Sends bytes as they are. Waits while the client does not read. False once the client is gone.
    @discardableResult public func send(_ bytes: some Sequence<UInt8>) -> Bool {
        let bytes = Array(bytes)
        var sent = 0
        while sent < bytes.count, !isClosed {
            let count = bytes.withUnsafeBytes { Glibc.send(socket, $0.baseAddress! + sent, bytes.count - sent, Int32(MSG_NOSIGNAL)) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return false }
            sent += count
        }
        return !isClosed
    }

    @discardableResult public func send(_ text: String) -> Bool { send(text.utf8) }

    /// Sends a status line and fields, with Content-Length if `length` is given.
    public func head(_ status: Int, _ fields: KeyValuePairs<String, String> = [:], length: Int? = nil) {
        send(headText(status, fields, length))
    }

    private func headText(_ status: Int, _ fields: KeyValuePairs<String, String>, _ length: Int?) -> String {
        var text = "HTTP/1.1 \(status) Scripted\r\n"
        for (name, value) in fields { text += "\(name): \(value)\r\n" }
        if let length { text += "Content-Length: \(length)\r\n" }
        return text + "\r\n"
    }

    /// Sends a whole response with its length, in one write. If the engine does not need the body, it waits for the body for only a tenth
    /// of a second, and then closes the connection.
    public func respond(_ status: Int, _ fields: KeyValuePairs<String, String> = [:], body: some Sequence<UInt8> = []) {
        let body = Array(body)
        let head = Array(headText(status, fields, body.count).utf8)
        send(isHead ? head : head + body)
    }

    public func respond(_ status: Int, _ fields: KeyValuePairs<String, String> = [:], text: String) {
        respond(status, fields, body: text.utf8)
    }

    /// Serves `file` as a good server does: HEAD, Range of one range, If-Range, 416.
    public func serve(
        _ file: [UInt8], for request: ScriptedServer.Request, entityTag: String? = nil, lastModified: String? = nil,
        type: String = "application/octet-stream", fields: KeyValuePairs<String, String> = [:]
    ) {
        var text = "Content-Type: \(type)\r\nAccept-Ranges: bytes\r\n"
        for (name, value) in fields { text += "\(name): \(value)\r\n" }
        if let entityTag { text += "ETag: \(entityTag)\r\n" }
        if let lastModified { text += "Last-Modified: \(lastModified)\r\nDate: Fri, 20 Nov 2026 12:00:00 GMT\r\n" }
        var range = 0..<file.count
        var status = "200 OK"
        let condition = request.field("If-Range")
        if let asked = request.range, condition == nil || condition == entityTag || condition == lastModified {
            guard asked.first < file.count else {
                send("HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */\(file.count)\r\nContent-Length: 0\r\n\r\n")
                return
            }
            range = asked.first..<min(file.count, (asked.last ?? file.count - 1) + 1)
            status = "206 Partial Content"
            text += "Content-Range: bytes \(range.lowerBound)-\(range.upperBound - 1)/\(file.count)\r\n"
        }
        send("HTTP/1.1 \(status)\r\n\(text)Content-Length: \(range.count)\r\n\r\n")
        if !isHead { send(file[range]) }
    }

    /// Sends `bytes` in parts of `step` bytes, two parts a second, until the gate opens. The service counts a transfer
    /// as stalled after ten seconds without a byte, and ends it after half a minute without one.
    ///
    /// - Returns: the bytes that are left, at least one of them unless there were none.
    public func trickle<Bytes: Collection<UInt8>>(_ bytes: Bytes, by step: Int = 1, until gate: Gate) -> Bytes.SubSequence {
        var rest = bytes[...]
        while !gate.isOpen, rest.count > step {
            guard send(rest.prefix(step)) else { return rest }
            rest = rest.dropFirst(step)
            poll(nil, 0, 500)
        }
        gate.wait()
        return rest
    }

    /// Sends one chunk of a "Transfer-Encoding: chunked" body; an empty one is the last.
    public func chunk(_ bytes: some Collection<UInt8>) {
        send("\(String(bytes.count, radix: 16))\r\n")
        send(Array(bytes) + Array("\r\n".utf8))
    }

    /// Waits until the client's kernel has confirmed all sent bytes, so that the client can read them; for a minute at most. The kernel may
    /// deliver bytes some time after `send`.
    public func waitForReceipt() {
        var left: Int32 = 0
        let deadline = ContinuousClock.now + .seconds(60)
        while ioctl(socket, UInt(TIOCOUTQ), &left) == 0, left > 0, ContinuousClock.now < deadline { poll(nil, 0, 10) }
    }

    /// Closes the connection after the sent bytes (FIN).
    public func close() { lock.locked { isClosedLocked = true } }

    /// Breaks the connection (RST).
    public func reset() {
        var linger = linger(l_onoff: 1, l_linger: 0)
        setsockopt(socket, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout<linger>.size))
        close()
    }
}

/// A pthread mutex and its condition.
final class Lock: Sendable {
    private nonisolated(unsafe) let mutex: UnsafeMutablePointer<pthread_mutex_t>  // both may be shared between threads
    private nonisolated(unsafe) let condition: UnsafeMutablePointer<pthread_cond_t>

    init() {
        mutex = .allocate(capacity: 1)
        condition = .allocate(capacity: 1)
        pthread_mutex_init(mutex, nil)
        pthread_cond_init(condition, nil)
    }

    deinit {
        pthread_cond_destroy(condition)
        pthread_mutex_destroy(mutex)
        condition.deallocate()
        mutex.deallocate()
    }

    func locked<R>(_ body: () -> R) -> R {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return body()
    }

    /// Call inside `locked`.
    func broadcast() { pthread_cond_broadcast(condition) }

    /// Call inside `locked`. Releases the mutex until a broadcast, or for `milliseconds`.
    func wait(milliseconds: Int) {
        var until = timespec()
        clock_gettime(CLOCK_REALTIME, &until)
        until.tv_nsec += milliseconds * 1_000_000
        until.tv_sec += until.tv_nsec / 1_000_000_000
        until.tv_nsec %= 1_000_000_000
        pthread_cond_timedwait(condition, mutex, &until)
    }
}

/// The next `length` bytes of a connection; nil if the connection ends before.
///
/// - Parameters:
///   - buffer: the bytes that have come already.
///   - step: the most bytes that are read in a second; nil: no limit.
func readBytes(_ socket: Int32, _ buffer: inout [UInt8], _ length: Int, step: Int? = nil) -> [UInt8]? {
    var bytes = [UInt8](repeating: 0, count: step ?? 16384)
    while buffer.count < length {
        let count = recv(socket, &bytes, bytes.count, 0)
        if count < 0, errno == EINTR { continue }
        guard count > 0 else { return nil }
        buffer += bytes[..<count]
        if step != nil { poll(nil, 0, 1000) }
    }
    defer { buffer.removeFirst(length) }
    return Array(buffer[..<length])
}

/// The server's threads hold this object, not the server. So the threads end with the server.
private final class ServerCore: Sendable {
    let lock = Lock()
    private let listener: Int32
    private let bodyStep: Int?
    private let http2: (@Sendable (Int32, Int, [UInt8], Reply) -> Void)?
    private let handler: @Sendable (ScriptedServer.Request, Reply) -> Void
    // All under `lock`.
    nonisolated(unsafe) var requests: [ScriptedServer.Request] = []
    nonisolated(unsafe) var connections = 0
    private nonisolated(unsafe) var sockets: Set<Int32> = []
    private nonisolated(unsafe) var isStopped = false

    init(
        listener: Int32, bodyStep: Int?, http2: (@Sendable (Int32, Int, [UInt8], Reply) -> Void)?,
        handler: @escaping @Sendable (ScriptedServer.Request, Reply) -> Void
    ) {
        (self.listener, self.bodyStep, self.http2, self.handler) = (listener, bodyStep, http2, handler)
    }

    func stop() {
        lock.locked {
            guard !isStopped else { return }
            isStopped = true
            shutdown(listener, Int32(SHUT_RDWR))
            for socket in sockets { shutdown(socket, Int32(SHUT_RDWR)) }
        }
    }

    func accept() {
        while true {
            let socket = todoku_accept(listener)
            if socket < 0, errno == EINTR || errno == ECONNABORTED { continue }
            guard socket >= 0 else { break }
            let number: Int? = lock.locked {
                guard !isStopped else { return nil }
                sockets.insert(socket)
                connections += 1
                return connections - 1
            }
            guard let number else {
                close(socket)
                break
            }
            startThread("scripted-conn") { [self] in
                serve(socket, number)
                lock.locked {
                    sockets.remove(socket)
                    close(socket)
                }
            }
        }
        close(listener)
    }

    private func serve(_ socket: Int32, _ connection: Int) {
        var buffer: [UInt8] = []
        while let head = readHead(socket, &buffer) {
            let lines = String(decoding: head, as: UTF8.self).split(separator: "\r\n", omittingEmptySubsequences: true)
            let words = (lines.first ?? "").split(separator: " ")
            guard words.count == 3 else { return }
            if let http2, words[0] == "PRI" { return http2(socket, connection, buffer, Reply(socket: socket, isHead: false)) }
            let fields = lines.dropFirst().compactMap { line -> (name: String, value: String)? in
                let pair = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
                return pair.count == 2 ? (String(pair[0]), String(pair[1].drop { $0 == " " })) : nil
            }
            let length = fields.first { $0.name.lowercased() == "content-length" }.flatMap { Int($0.value) } ?? 0
            guard let body = readBytes(socket, &buffer, length, step: bodyStep) else { return }
            let request = lock.locked {
                let request = ScriptedServer.Request(
                    method: String(words[0]), target: String(words[1]), fields: fields, connection: connection, number: requests.count,
                    body: body)
                requests.append(request)
                return request
            }
            let reply = Reply(socket: socket, isHead: request.method == "HEAD")
            handler(request, reply)
            if reply.isClosed { return }
        }
    }

    /// The bytes up to and including the empty line; nil at the end of the connection.
    private func readHead(_ socket: Int32, _ buffer: inout [UInt8]) -> [UInt8]? {
        var bytes = [UInt8](repeating: 0, count: 16384)
        while true {
            if let end = endOfHead(buffer) {
                let head = Array(buffer[..<end])
                buffer.removeFirst(end)
                return head
            }
            let count = recv(socket, &bytes, bytes.count, 0)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return nil }
            buffer += bytes[..<count]
        }
    }

    private func endOfHead(_ buffer: [UInt8]) -> Int? {
        guard buffer.count >= 4 else { return nil }
        return (0...(buffer.count - 4)).first {
            buffer[$0] == 13 && buffer[$0 + 1] == 10 && buffer[$0 + 2] == 13 && buffer[$0 + 3] == 10
        }.map { $0 + 4 }
    }
}
