internal import CSystem
internal import DownloadModel
internal import EventLoop
internal import Glibc

/// Decides about the answers of a `LoopbackServer`.
@BusActor protocol Responder: AnyObject {
    func respond(to request: ServedRequest) -> ServedResponse
    /// The server answers `status` to something that is no request, or that it does not take.
    func refused(with status: Int)
}

/// The bytes of a body.
@BusActor protocol ServedBody: AnyObject {
    /// Reads bytes from `place` on, at most as many as `buffer` has room for. Takes little time: they are on a local disk or in memory.
    ///
    /// - Returns: the number of bytes; 0 or less if there are none.
    func read(from place: UInt64, into buffer: UnsafeMutableRawBufferPointer) -> Int
}

/// An answer: the part of it that has not been sent.
struct ServedResponse {
    /// What happens to an answer that stops before its end.
    enum Halt {
        /// Nothing more is sent, and the connection stays.
        case silence
        /// The connection is closed.
        case close
    }

    var head: [UInt8]
    var body: (any ServedBody)?
    /// The bytes of the body that are still to be sent.
    var rest: Range<UInt64> = 0..<0
    var keepsAlive: Bool
    /// What happens after the last byte of `rest`; nil: that byte ends the answer.
    var halt: Halt?
    /// Called once all bytes before the halt have been sent.
    var halted: (@BusActor () -> Void)?
    /// Most bytes per second; nil: no limit.
    var rate: UInt64?

    /// - Parameter fields: without `Date` and `Connection`.
    init(_ status: Int, _ fields: [(String, String)], text: String = "", keepsAlive: Bool) {
        let general = [("Date", httpDate(time(nil))), ("Connection", keepsAlive ? "keep-alive" : "close")]
        let lines = [general, fields].joined().map { "\($0): \($1)\r\n" }.joined()
        head = Array("HTTP/1.1 \(status) \(reasons[status] ?? "Error")\r\n\(lines)\r\n\(text)".utf8)
        self.keepsAlive = keepsAlive
    }
}

private let reasons = [
    200: "OK", 206: "Partial Content", 302: "Found", 304: "Not Modified", 400: "Bad Request", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 412: "Precondition Failed", 416: "Range Not Satisfiable", 421: "Misdirected Request",
    429: "Too Many Requests", 431: "Request Header Fields Too Large", 500: "Internal Server Error", 503: "Service Unavailable",
    505: "HTTP Version Not Supported",
]

/// An IMF-fixdate (RFC 9110 §5.6.7), which no locale changes.
func httpDate(_ instant: time_t) -> String {
    var (instant, parts) = (instant, tm())
    gmtime_r(&instant, &parts)
    let days = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"]
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    func two(_ number: Int32) -> String { number < 10 ? "0\(number)" : "\(number)" }
    guard let day = days.at(parts.tm_wday), let month = months.at(parts.tm_mon) else { return "Thu, 01 Jan 1970 00:00:00 GMT" }
    let clock = "\(two(parts.tm_hour)):\(two(parts.tm_min)):\(two(parts.tm_sec))"
    return "\(day), \(two(parts.tm_mday)) \(month) \(parts.tm_year +| 1900) \(clock) GMT"
}

extension [String] {
    fileprivate func at(_ place: Int32) -> String? {
        let place = Int(clamping: place)
        return indices.contains(place) ? self[place] : nil
    }
}

/// An HTTP/1.1 server on 127.0.0.1, for this machine only. The number of connections, the size of a head and the time for it are bounded.
@BusActor final class LoopbackServer {
    private static let mostConnections = 64
    fileprivate static let chunkSize = 128 << 10

    let port: UInt16
    weak var responder: (any Responder)?
    private let listener: Int32
    private var isOpen = false
    private var token: Poller.Token?
    /// Oldest first.
    private var connections: [ServedConnection] = []
    fileprivate let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: LoopbackServer.chunkSize, alignment: 4096)

    /// Takes a port, which refuses connections until `open`.
    ///
    /// - Parameter port: 0: any that is free.
    init(port: UInt16) throws(RehearsalError) {
        listener = socket(AF_INET, Int32(bitPattern: SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
        var (one, address) = (Int32(1), sockaddr_in())
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = (0x7F00_0001 as UInt32).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        // A port that a program names may be that of its last run. On any other port, no other program may listen before `open`.
        if port != 0 { setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, socklen_t(MemoryLayout<Int32>.size)) }
        let listener = listener
        let isUp = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                listener >= 0 && bind(listener, $0, length) == 0 && getsockname(listener, $0, &length) == 0
            }
        }
        guard isUp else { throw RehearsalError("port \(port) of 127.0.0.1 cannot be used: \(String(cString: strerror(errno)))") }
        self.port = address.sin_port.bigEndian
    }

    isolated deinit {
        if let token { Poller.shared.cancel(token) }
        for connection in connections { connection.release() }
        close(listener)
        buffer.deallocate()
    }

    /// Accepts connections from now on.
    func open() throws(RehearsalError) {
        guard listen(listener, 64) == 0 else {
            throw RehearsalError("port \(port) of 127.0.0.1 cannot be used: \(String(cString: strerror(errno)))")
        }
        isOpen = true
        accept(true)
    }

    private func accept(_ accepts: Bool) {
        if let token, !accepts {
            Poller.shared.cancel(token)
            self.token = nil
        } else if token == nil, accepts, isOpen {
            token = Poller.shared.watch(listener, for: .readable) { [unowned self] _ in acceptOne() }
        }
    }

    private func acceptOne() {
        if connections.count >= Self.mostConnections {
            // Idle clients must not keep others out. If all are served, the new one waits in the kernel's queue.
            guard let idle = connections.first(where: \.isIdle) else { return accept(false) }
            idle.end()
        }
        let socket = todoku_accept(listener)
        guard socket >= 0 else {
            guard errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM else { return }
            accept(false)
            Poller.shared.schedule(after: .seconds(1)) { [weak self] in self?.accept(true) }
            return
        }
        _ = fcntl(socket, F_SETFL, O_NONBLOCK)
        connections.append(ServedConnection(socket, self))
    }

    /// Call when a connection has ended or become idle.
    fileprivate func hasRoom(without ended: ServedConnection? = nil) {
        if let ended { connections.removeAll { $0 === ended } }
        accept(true)
    }

    fileprivate func response(to request: ServedRequest) -> ServedResponse {
        responder?.respond(to: request) ?? ServedResponse(503, [("Content-Length", "0")], keepsAlive: false)
    }

    fileprivate func refusal(_ status: Int) -> ServedResponse {
        responder?.refused(with: status)
        return ServedResponse(status, [("Content-Length", "0"), ("Allow", "GET, HEAD")], keepsAlive: false)
    }
}

/// One connection: it reads a head, writes the answer, and repeats this. It ends if the client is too slow.
@BusActor private final class ServedConnection {
    /// Most time for a head, also between two requests, and without a byte that the client takes.
    private static let patience: Duration = .seconds(30)

    private let socket: Int32
    private unowned let server: LoopbackServer
    private var token: Poller.Token?
    private var deadline: Poller.Token?
    private var inbox: [UInt8] = []
    private var response: ServedResponse?

    init(_ socket: Int32, _ server: LoopbackServer) {
        (self.socket, self.server) = (socket, server)
        wait(for: .readable)
    }

    /// Whether no answer is being written.
    var isIdle: Bool { response == nil }

    private func wait(for events: Poller.Events) {
        if let token { Poller.shared.cancel(token) }
        token = Poller.shared.watch(socket, for: events) { [weak self] found in
            if found.contains(.writable) { self?.write() } else { self?.read() }
        }
        postpone()
    }

    private func postpone() {
        if let deadline { Poller.shared.cancel(deadline) }
        deadline = Poller.shared.schedule(after: Self.patience) { [weak self] in self?.end() }
    }

    /// Closes the connection, without telling the server.
    func release() {
        for token in [token, deadline] { if let token { Poller.shared.cancel(token) } }
        (token, deadline, response) = (nil, nil, nil)
        close(socket)
    }

    func end() {
        release()
        server.hasRoom(without: self)
    }

    private func read() {
        let count = recv(socket, server.buffer.baseAddress, ServedRequest.longestHead, 0)
        if count < 0, errno == EAGAIN || errno == EINTR { return }
        guard count > 0 else { return end() }
        inbox.append(contentsOf: server.buffer[..<count])
        answer()
    }

    /// Answers the first request of the inbox, if it is whole.
    private func answer() {
        switch ServedRequest.read(inbox) {
        case .incomplete: return
        case .refused(let status): response = server.refusal(status)
        case .request(let request, let length):
            inbox.removeFirst(length)
            response = server.response(to: request)
        }
        wait(for: .writable)
    }

    /// Writes one chunk, so that no client keeps the others waiting.
    private func write() {
        guard var now = response else { return }
        var pause: Duration?
        if !now.head.isEmpty {
            let count = send(socket, now.head, now.head.count, Int32(clamping: MSG_NOSIGNAL))
            guard count >= 0 else { return failed() }
            now.head.removeFirst(count)
        } else if !now.rest.isEmpty {
            var most = UInt64(clamping: LoopbackServer.chunkSize)
            if let rate = now.rate { most = min(most, max(1, rate / 10)) }  // at most a tenth of a second, or one byte
            let wanted = Int(clamping: min(now.rest.byteCount, most))
            let chunk = UnsafeMutableRawBufferPointer(rebasing: server.buffer[..<wanted])
            let count = now.body?.read(from: now.rest.lowerBound, into: chunk) ?? 0
            guard count > 0 else { return end() }  // the file was cut meanwhile
            let sent = send(socket, chunk.baseAddress, count, Int32(clamping: MSG_NOSIGNAL))
            guard sent >= 0 else { return failed() }
            now.rest = min(now.rest.lowerBound +| UInt64(clamping: sent), now.rest.upperBound)..<now.rest.upperBound
            pause = now.rate.map { Duration.seconds(Double(sent) / Double(max(1, $0))) }
        }
        response = now
        postpone()
        guard now.head.isEmpty, now.rest.isEmpty else {
            if let pause { rest(for: pause) }
            return
        }
        if let halt = now.halt { return stop(halt, now.halted) }
        response = nil
        server.hasRoom()
        guard now.keepsAlive else { return finish() }
        wait(for: .readable)
        if !inbox.isEmpty { answer() }
    }

    private func failed() { if errno != EAGAIN, errno != EINTR { end() } }

    /// Writes nothing for some time, to keep a rate.
    private func rest(for time: Duration) {
        if let token { Poller.shared.cancel(token) }
        token = nil
        Poller.shared.schedule(after: time) { [weak self] in
            guard let self, response != nil else { return }  // the connection has ended meanwhile
            wait(for: .writable)
        }
    }

    private func stop(_ halt: ServedResponse.Halt, _ halted: (@BusActor () -> Void)?) {
        finish(isClosed: halt == .close)
        halted?()
    }

    /// Ends the connection without a reset: bytes that the client still sends are read first, for as long as `patience`.
    ///
    /// - Parameter isClosed: whether the client sees the end; otherwise the connection stays until the client closes it.
    private func finish(isClosed: Bool = true) {
        if isClosed {
            shutdown(socket, Int32(clamping: SHUT_WR))
        } else if let deadline {
            Poller.shared.cancel(deadline)
            self.deadline = nil
        }
        if let token { Poller.shared.cancel(token) }
        token = Poller.shared.watch(socket, for: .readable) { [weak self] _ in
            guard let self else { return }
            let count = recv(socket, server.buffer.baseAddress, LoopbackServer.chunkSize, 0)
            if count == 0 || count < 0 && errno != EAGAIN && errno != EINTR { end() }
        }
    }
}
