internal import DownloadModel
package import EventLoop
internal import Glibc

/// An HTTP server on loopback for the files of one folder, to rehearse an update: with entity tags, conditional requests and ranges.
///
/// It serves the regular files right in the folder. Every connection is bounded in its head, its time and its number.
@BusActor package final class RehearsalServer {
    private static let mostConnections = 64
    fileprivate static let chunkSize = 128 << 10

    /// Called with each answer: the request's line, and the status.
    private let report: (String, Int) -> Void
    /// Reads of files on a local disk are short; they are done on the loop.
    private let folder: Int32
    private let listener: Int32
    package let port: UInt16
    private var token: Poller.Token?
    /// Oldest first.
    private var connections: [ServedConnection] = []
    fileprivate let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: RehearsalServer.chunkSize, alignment: 4096)

    /// - Parameters:
    ///   - path: the folder.
    ///   - port: 0: any that is free.
    package init(_ path: String, port: UInt16, report: @escaping (String, Int) -> Void) throws(PackingError) {
        self.report = report
        folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard folder >= 0 else { throw .of(path, "cannot be opened", errno) }
        listener = socket(AF_INET, Int32(bitPattern: SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
        var (one, address) = (Int32(1), sockaddr_in())
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = (0x7F00_0001 as UInt32).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, socklen_t(MemoryLayout<Int32>.size))
        let listener = listener
        let isUp = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                listener >= 0 && bind(listener, $0, length) == 0 && Glibc.listen(listener, 64) == 0
                    && getsockname(listener, $0, &length) == 0
            }
        }
        guard isUp else { throw PackingError("port \(port) of 127.0.0.1 cannot be used: \(String(cString: strerror(errno)))") }
        self.port = address.sin_port.bigEndian
        listen()
    }

    isolated deinit {
        if let token { Poller.shared.cancel(token) }
        close(listener)
        close(folder)
        buffer.deallocate()
    }

    private func listen() {
        guard token == nil else { return }
        token = Poller.shared.watch(listener, for: .readable) { [unowned self] _ in accept() }
    }

    private func pause() {
        if let token { Poller.shared.cancel(token) }
        token = nil
    }

    private func accept() {
        if connections.count >= Self.mostConnections {
            // Idle clients must not keep others out. If all are served, the new one waits in the kernel's queue.
            guard let idle = connections.first(where: \.isIdle) else { return pause() }
            idle.end()
        }
        let socket = Glibc.accept(listener, nil, nil)
        guard socket >= 0 else {
            guard errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM else { return }
            pause()
            Poller.shared.schedule(after: .seconds(1)) { [weak self] in self?.listen() }
            return
        }
        _ = fcntl(socket, F_SETFD, FD_CLOEXEC)
        _ = fcntl(socket, F_SETFL, O_NONBLOCK)
        connections.append(ServedConnection(socket, self))
    }

    /// Call when a connection has ended or become idle.
    fileprivate func hasRoom(without ended: ServedConnection? = nil) {
        if let ended { connections.removeAll { $0 === ended } }
        listen()
    }

    // MARK: Answers

    fileprivate struct Response {
        var head: [UInt8]
        /// -1: there is no body in a file.
        var file: Int32 = -1
        var rest: Range<UInt64> = 0..<0
        var keepsAlive: Bool
    }

    fileprivate func refuse(_ status: Int) -> Response {
        report("-", status)
        return Response(head: head(status, [("Content-Length", "0"), ("Allow", "GET, HEAD")], false), keepsAlive: false)
    }

    fileprivate func respond(to request: ServedRequest) -> Response {
        let line = "\(request.isHead ? "HEAD" : "GET") /\(request.name ?? "…")"
        func plain(_ status: Int, _ fields: [(String, String)]) -> Response {
            report(line, status)
            return Response(head: head(status, fields, request.keepsAlive), keepsAlive: request.keepsAlive)
        }
        let nothing = [("Content-Length", "0")]
        guard let name = request.name else { return plain(404, nothing) }
        let file = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        var status = stat()
        guard file >= 0, fstat(file, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
            let code = errno
            if file >= 0 { close(file) }
            return plain(file < 0 && (code == EMFILE || code == ENFILE) ? 503 : 404, nothing)
        }
        let size = UInt64(clamping: status.st_size)
        let numbers = [
            UInt64(clamping: status.st_ino), size, UInt64(clamping: status.st_mtim.tv_sec), UInt64(clamping: status.st_mtim.tv_nsec),
        ]
        let tag = "\"\(numbers.map { String($0, radix: 16) }.joined(separator: "-"))\""
        let modified = WallTime(microseconds: UInt64(clamping: status.st_mtim.tv_sec) *| 1_000_000)
        var fields = [("ETag", tag), ("Last-Modified", httpDate(status.st_mtim.tv_sec)), ("Accept-Ranges", "bytes")]
        let body: Range<UInt64>
        let code: Int
        switch request.answer(tag: tag, modified: modified, size: size) {
        case .notModified:
            close(file)
            return plain(304, fields)
        case .preconditionFailed:
            close(file)
            return plain(412, nothing)
        case .unsatisfiable:
            close(file)
            return plain(416, [("Content-Length", "0"), ("Content-Range", "bytes */\(size)")])
        case .whole: (body, code) = (0..<size, 200)
        case .part(let range):
            (body, code) = (range, 206)
            fields.append(("Content-Range", "bytes \(range.lowerBound)-\(range.upperBound -| 1)/\(size)"))
        }
        fields.append(("Content-Type", name.hasSuffix(".json") ? "application/json" : "application/octet-stream"))
        fields.append(("Content-Length", "\(body.upperBound -| body.lowerBound)"))
        var response = plain(code, fields)
        if request.isHead { close(file) } else { (response.file, response.rest) = (file, body) }
        return response
    }

    private func head(_ status: Int, _ fields: [(String, String)], _ keepsAlive: Bool) -> [UInt8] {
        let general = [("Date", httpDate(time(nil))), ("Connection", keepsAlive ? "keep-alive" : "close")]
        let lines = [general, fields].joined().map { "\($0): \($1)\r\n" }.joined()
        return Array("HTTP/1.1 \(status) \(reasons[status] ?? "Error")\r\n\(lines)\r\n".utf8)
    }
}

private let reasons = [
    200: "OK", 206: "Partial Content", 304: "Not Modified", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
    412: "Precondition Failed", 416: "Range Not Satisfiable", 421: "Misdirected Request", 431: "Request Header Fields Too Large",
    503: "Service Unavailable", 505: "HTTP Version Not Supported",
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

/// One connection: it reads a head, writes the answer, and so on. It ends if the client is too slow.
@BusActor private final class ServedConnection {
    /// Most time for a head, also between two requests, and without a byte that the client takes.
    private static let patience: Duration = .seconds(30)

    private let socket: Int32
    private unowned let server: RehearsalServer
    private var token: Poller.Token?
    private var deadline: Poller.Token?
    private var inbox: [UInt8] = []
    private var response: RehearsalServer.Response?

    init(_ socket: Int32, _ server: RehearsalServer) {
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

    func end() {
        for token in [token, deadline] { if let token { Poller.shared.cancel(token) } }
        (token, deadline) = (nil, nil)
        if let file = response?.file, file >= 0 { close(file) }
        response = nil
        close(socket)
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
        case .refused(let status): response = server.refuse(status)
        case .request(let request, let length):
            inbox.removeFirst(length)
            response = server.respond(to: request)
        }
        wait(for: .writable)
    }

    /// Writes one chunk, so that no client keeps the others waiting.
    private func write() {
        guard var now = response else { return }
        if !now.head.isEmpty {
            let count = send(socket, now.head, now.head.count, Int32(clamping: MSG_NOSIGNAL))
            guard count >= 0 else { return failed() }
            now.head.removeFirst(count)
        } else if !now.rest.isEmpty {
            let wanted = Int(clamping: min(now.rest.upperBound -| now.rest.lowerBound, UInt64(clamping: RehearsalServer.chunkSize)))
            let count = pread(now.file, server.buffer.baseAddress, wanted, off_t(clamping: now.rest.lowerBound))
            guard count > 0 else { return end() }  // the file was cut meanwhile
            let sent = send(socket, server.buffer.baseAddress, count, Int32(clamping: MSG_NOSIGNAL))
            guard sent >= 0 else { return failed() }
            now.rest = min(now.rest.lowerBound +| UInt64(clamping: sent), now.rest.upperBound)..<now.rest.upperBound
        }
        response = now
        postpone()
        guard now.head.isEmpty, now.rest.isEmpty else { return }
        if now.file >= 0 { close(now.file) }
        response = nil
        server.hasRoom()
        guard now.keepsAlive else { return finish() }
        wait(for: .readable)
        if !inbox.isEmpty { answer() }
    }

    private func failed() { if errno != EAGAIN, errno != EINTR { end() } }

    /// Ends the connection without a reset: bytes that the client still sends are read first, for as long as `patience`.
    private func finish() {
        shutdown(socket, Int32(clamping: SHUT_WR))
        if let token { Poller.shared.cancel(token) }
        token = Poller.shared.watch(socket, for: .readable) { [weak self] _ in
            guard let self else { return }
            let count = recv(socket, server.buffer.baseAddress, RehearsalServer.chunkSize, 0)
            if count == 0 || count < 0 && errno != EAGAIN && errno != EINTR { end() }
        }
    }
}
