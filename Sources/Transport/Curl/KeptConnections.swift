internal import CCurl
internal import DownloadModel

/// Bytes that a server sends after the end of an answer must not become the next answer on that connection. Such bytes are called a
/// surplus. And no two requests may be under way on one HTTP/1 connection (`isTaken`).
///
/// libcurl 8 checks for a surplus before it uses a kept connection (curl/curl#10690); libcurl 7.88 does not. So an HTTP/1 connection with
/// readable bytes before our request is sent is not used. An answer that comes before the server can have received the request is not
/// accepted. An HTTP/2 frame names its stream, so no check is needed.
extension Exchange {
    /// Notes a socket that was opened for this exchange.
    func opened(_ descriptor: Int32) { multi.sockets.opened(descriptor) }

    /// Whether a request has gone out, on whatever connection.
    package var hasAsked: Bool { requests > 0 }

    /// Whether the request may be sent on the connection that libcurl has chosen.
    func mayAsk(_ remote: UnsafePointer<CChar>, remotePort: Int32, localPort: Int32) -> Bool {
        let connections = easy.number(CURLINFO_NUM_CONNECTS)
        isOnKept = connections == connectionsBefore
        connectionsBefore = connections
        // libcurl itself repeats a request that a kept connection left without an answer.
        if hasAsked, isFirstLine, !isFresh, !sink.mayRepeat() {
            isRepeated = true
            return false
        }
        let found = multi.sockets.find(localPort: localPort, remote: remote, remotePort: remotePort)
        // The next request of a login. A new connection may have got the number of a closed one, but hardly its port, too.
        let isSame = hasAsked && found != nil && found == socket && self.localPort == UInt32(exactly: localPort)
        if let socket, socket != found { multi.sockets.leave(socket, self) }
        (socket, self.localPort, isFirstLine) = (found, UInt32(exactly: localPort), true)
        if mustShare, !isSame, !(socket.map { multi.sockets.isInUse($0, besides: self) } ?? false) {
            isUnshared = true
            return false
        }
        if isOnKept, isTaken || !isClean {
            isSpoilt = true
            return false
        }
        if let socket {
            multi.sockets.use(socket, by: self)
            (receivedBefore, headBytes) = (todoku_socket_received(socket), 0)
        }
        requests += 1
        return sink.mayTalk(to: String(cString: remote))
    }

    /// Whether a kept connection may be used.
    private var isClean: Bool {
        guard let socket else { return false }
        guard requests > 0 ? easy.number(CURLINFO_HTTP_VERSION) < Int(CURL_HTTP_VERSION_2_0) : multi.sockets.isHTTP1(socket) else {
            return true
        }
        // If the TLS library cannot report its buffered bytes, use a new connection.
        let pending = isSecure ? todoku_curl_tls_pending(easy.raw) : 0
        let unread = todoku_socket_unread(socket)
        // Under TLS, bytes of the socket may be a session ticket, or the end of the TLS session.
        let isSurplus = isSecure ? pending > 0 || todoku_socket_has_tls_data(socket) : unread == TODOKU_UNREAD_BYTES
        if isSurplus {
            multi.distrust(place)
            multi.sockets.user(of: socket)?.isFollowed = true
        }
        return unread == TODOKU_UNREAD_NOTHING && pending == 0
    }

    /// Whether another request is under way on the HTTP/1 connection. If a place has an HTTP/2 connection, libcurl before 8.5 takes its
    /// HTTP/1 connections for shared ones, too (curl/curl#12373).
    private var isTaken: Bool {
        guard isSecure, let socket, let last = multi.sockets.user(of: socket), last !== self,
            let session = todoku_curl_tls_session(easy.raw), todoku_curl_tls_session(last.easy.raw) == session
        else { return false }
        return todoku_curl_speaks_http2(easy.raw) != TODOKU_YES
    }

    func receiveHeader(_ line: UnsafeRawBufferPointer) -> BodySink.Answer {
        headBytes += UInt64(line.count)
        if isFirstLine {
            isFirstLine = false
            let isHTTP1 = line.starts(with: "HTTP/1".utf8)
            isStream = !isHTTP1 && isSecure && todoku_curl_speaks_http2(easy.raw) != TODOKU_NO
            if let socket, !isStream { multi.sockets.hasSpokenHTTP1(socket) }
            guard isHTTP1 else {
                // After a status line of HTTP/2 on a connection of HTTP/1, libcurl would share connections to this place.
                if !isStream { multi.distrust(place) }
                return sink.receiveHeader(line)
            }
            // Each TCP segment of an answer acknowledges the request. Bytes that came before belong to no answer of this request.
            if isOnKept, let socket, todoku_socket_has_unacknowledged(socket) {
                isSpoilt = true
                multi.distrust(place)
                return .abort
            }
        }
        return sink.receiveHeader(line)
    }

    /// Call at the end of an answer that is a head alone, such as a redirect. If libcurl has read bytes behind the head, no kept connection
    /// to the place is used again.
    ///
    /// libcurl 7.88 drops such bytes, and keeps the connection. The rest of them may come later, as the next answer. Under TLS, the number
    /// of bytes that the socket has received does not tell.
    package func lookBehindHead() {
        guard !isSecure, let socket, multi.sockets.user(of: socket) === self, multi.sockets.isHTTP1(socket) else { return }
        if todoku_socket_received(socket) > receivedBefore + headBytes { multi.distrust(place) }
    }

    /// Whether the request must be repeated on a new connection. This exchange has ended, and the received bytes may be no answer.
    ///
    /// - Parameters:
    ///   - heardAnswer: whether a trustworthy head came.
    ///   - closes: whether the answer announced that the connection closes after it.
    package func needsNewConnection(_ error: CurlError?, heardAnswer: Bool, closes: Bool) -> Bool {
        if isRepeated { return true }
        guard isOnKept, !isFresh else { return false }
        if isSpoilt { return true }
        switch error?.kind {
        case nil:
            // A surplus after this answer on a kept connection suggests that the answer was a surplus itself. libcurl closes the connection
            // if it sees one.
            guard easy.number(CURLINFO_HTTP_VERSION) < Int(CURL_HTTP_VERSION_2_0), !closes else { return false }
            if !isFollowed, hasUnread { isFollowed = true }
            if isFollowed { multi.distrust(place) }
            return isFollowed
        case .nothingReceived, .reset, .malformedAnswer, .http2, .partialFile: return !heardAnswer
        default: return false
        }
    }

    /// Whether a surplus can be read now, after the end of this exchange.
    private var hasUnread: Bool {
        guard let active = easy.socket else { return !isSecure }
        // In the same call, libcurl may have sent the next request on this connection. The exchange of that request has looked for a
        // surplus (`isClean`), and what can be read now is its answer.
        guard multi.sockets.user(of: active) === self else { return false }
        // OpenSSL reads one record at a time from the socket, so later bytes are still there. A session ticket comes with the first answer.
        return isSecure ? todoku_socket_has_tls_data(active) : todoku_socket_unread(active) == TODOKU_UNREAD_BYTES
    }
}

/// The sockets of a multi handle's connections. libcurl 7.88 reports a connection's socket only after an exchange, but its ports before.
struct KnownSockets {
    private var all: Set<Int32> = []
    /// Sockets on which an HTTP/1 answer has begun. Any other kept connection is HTTP/2, shared by many exchanges.
    private var http1: Set<Int32> = []

    /// The exchange that has sent the last request on a socket. Its memory is not kept.
    private var users: [Int32: User] = [:]

    private struct User { weak var exchange: Exchange? }

    /// The exchanges that have sent a request on a socket, and have not ended.
    private var inUse: [Int32: Set<ObjectIdentifier>] = [:]

    mutating func opened(_ descriptor: Int32) {
        all.insert(descriptor)
        http1.remove(descriptor)
        users[descriptor] = nil
        inUse[descriptor] = nil
    }

    mutating func use(_ descriptor: Int32, by exchange: Exchange) {
        users[descriptor] = User(exchange: exchange)
        inUse[descriptor, default: []].insert(ObjectIdentifier(exchange))
    }

    /// `exchange` ends, or turns to another socket.
    mutating func leave(_ descriptor: Int32, _ exchange: Exchange) {
        guard inUse[descriptor]?.remove(ObjectIdentifier(exchange)) != nil, inUse[descriptor]?.isEmpty ?? false else { return }
        inUse[descriptor] = nil
    }

    /// Whether another exchange that has not ended has sent a request on the socket.
    func isInUse(_ descriptor: Int32, besides exchange: Exchange) -> Bool {
        inUse[descriptor]?.contains { $0 != ObjectIdentifier(exchange) } ?? false
    }

    func user(of descriptor: Int32) -> Exchange? { users[descriptor]?.exchange }

    mutating func hasSpokenHTTP1(_ descriptor: Int32) { http1.insert(descriptor) }

    func isHTTP1(_ descriptor: Int32) -> Bool { http1.contains(descriptor) }

    /// Finds the socket by its addresses. The set also holds descriptors that libcurl has closed, and the process may have reused their
    /// numbers.
    func find(localPort: Int32, remote: UnsafePointer<CChar>, remotePort: Int32) -> Int32? {
        all.first { todoku_socket_joins($0, localPort, remote, remotePort) }
    }
}

extension ExchangeOptions {
    /// The connection's target: the proxy, and the URL's scheme, host and port.
    var place: String { "\(proxy) \(DownloadURL.origin(of: url))" }

    /// Whether the proxy, if there is one, speaks HTTP. A proxy without a scheme does.
    var hasHTTPProxy: Bool { !proxy.isEmpty && !(proxy.lowercased().hasPrefix("socks") && proxy.contains("://")) }
}
