internal import CCurl

/// What a server sends beyond the end of an answer must not become the next answer of its connection. Such bytes are called a surplus.
///
/// libcurl 8 looks for it itself before it uses a kept connection (curl/curl#10690), libcurl 7.88 does not. An HTTP/1 connection on which
/// anything can be read before our request is out is not used. One whose answer comes before the server can have the request is not
/// believed. HTTP/2 says in each frame what it belongs to.
extension Exchange {
    /// A socket was made for this exchange.
    func opened(_ descriptor: Int32) { multi.sockets.opened(descriptor) }

    /// The connection is chosen and the request about to go out: whether it may.
    func mayAsk(_ remote: UnsafePointer<CChar>, remotePort: Int32, localPort: Int32) -> Bool {
        let connections = easy.number(CURLINFO_NUM_CONNECTS)
        isOnKept = connections == connectionsBefore
        connectionsBefore = connections
        socket = multi.sockets.find(localPort: localPort, remote: remote, remotePort: remotePort)
        isFirstLine = true
        if isOnKept, !isClean {
            isSpoilt = true
            return false
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
        // A TLS library that cannot tell what it holds back costs a new connection.
        let pending = isSecure ? todoku_curl_tls_pending(easy.raw) : 0
        if pending > 0 { multi.distrust(place) }
        switch todoku_socket_unread(socket) {
        case TODOKU_UNREAD_NOTHING: return pending == 0
        case TODOKU_UNREAD_BYTES:
            if !isSecure { multi.distrust(place) }  // under TLS it may be a session ticket, or its end
            return false
        default: return false
        }
    }

    func receiveHeader(_ line: UnsafeRawBufferPointer) -> BodySink.Answer {
        if isFirstLine {
            isFirstLine = false
            // Each segment of an answer confirms the request. Bytes that came before that answer something else.
            if isOnKept, let socket, line.starts(with: "HTTP/1".utf8), todoku_socket_has_unacknowledged(socket) {
                isSpoilt = true
                multi.distrust(place)
                return .abort
            }
        }
        return sink.receiveHeader(line)
    }

    /// Whether the request must be made once more, on a new connection: this exchange has ended, and what it heard, if anything, may be no
    /// answer.
    ///
    /// - Parameters:
    ///   - heardAnswer: whether a head came that can be believed.
    ///   - closes: whether the answer said that the connection ends with it.
    package func needsNewConnection(_ error: CurlError?, heardAnswer: Bool, closes: Bool) -> Bool {
        let isHTTP1 = easy.number(CURLINFO_HTTP_VERSION) < Int(CURL_HTTP_VERSION_2_0)
        let active = easy.socket
        if isHTTP1, let active { multi.sockets.hasSpokenHTTP1(active) }
        guard isOnKept, !isFresh else { return false }
        if isSpoilt { return true }
        switch error?.kind {
        case nil:
            // On a kept connection a surplus after this answer tells that it may have been a surplus itself. libcurl closes where it saw
            // one.
            guard isHTTP1, !closes else { return false }
            // OpenSSL takes one record at a time out of the socket: what follows is still there. A session ticket comes with the first
            // answer.
            let isFollowed =
                isSecure
                ? active.map { todoku_socket_has_tls_data($0) } ?? false
                : active.map { todoku_socket_unread($0) == TODOKU_UNREAD_BYTES } ?? true
            if isFollowed { multi.distrust(place) }
            return isFollowed
        case .nothingReceived, .reset, .malformedAnswer, .http2, .partialFile: return !heardAnswer
        default: return false
        }
    }
}

/// The sockets of a multi handle's connections. libcurl 7.88 tells a connection's socket only after an exchange, and its ports before.
struct KnownSockets {
    private var all: Set<Int32> = []
    /// Those on which an HTTP/1 exchange has ended. A kept connection that is not among them is HTTP/2's, which many exchanges share.
    private var http1: Set<Int32> = []

    mutating func opened(_ descriptor: Int32) {
        all.insert(descriptor)
        http1.remove(descriptor)
    }

    mutating func hasSpokenHTTP1(_ descriptor: Int32) { http1.insert(descriptor) }

    func isHTTP1(_ descriptor: Int32) -> Bool { http1.contains(descriptor) }

    /// Descriptors that libcurl has closed stay in the set, and the process may have opened something else there: the ends tell.
    func find(localPort: Int32, remote: UnsafePointer<CChar>, remotePort: Int32) -> Int32? {
        all.first { todoku_socket_joins($0, localPort, remote, remotePort) }
    }
}

extension ExchangeOptions {
    /// The scheme, host and port that the connection leads to, and the proxy.
    var place: String { "\(proxy) \(url.split(separator: "/", maxSplits: 2).prefix(2).joined(separator: "/"))" }
}
