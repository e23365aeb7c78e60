internal import CCurl

/// The options of one exchange.
package struct ExchangeOptions {
    var url: String
    /// "Name: value" lines.
    package var headerLines: [String] = []
    var userAgent: String
    package var referrer: String?
    package var username: String?
    package var password: String?
    /// The body, which makes the request a POST; nil: a GET.
    package var body: [UInt8]?
    /// The caller's own value for the header Cookie, which follows the cookies of `jar`.
    package var cookieField: String?
    /// nil: the exchange keeps no cookies.
    package var jar: CookieJar?
    var connectTimeoutMilliseconds: Int
    /// A proxy's URL; empty: none. `ProxySettings` chooses the proxy, never libcurl.
    package var proxy = ""
    /// The authorities that replace those of libcurl, for the server and for a proxy. Both nil: those of libcurl count.
    package var certificateFile: String?
    package var certificateFolder: String?
    /// Whether kept connections must not be used.
    package var isFresh = false
    /// Whether no other exchange may share the connection, as HTTP/2 allows.
    package var ownsConnection = false
    /// Whether the request may go out only on a connection that another exchange uses now. Else nothing is sent (`Exchange.isUnshared`).
    package var mustShare = false

    /// - Parameter connectTimeoutMilliseconds: most time to set up a connection, TLS included.
    package init(url: String, userAgent: String, connectTimeoutMilliseconds: Int) {
        (self.url, self.userAgent, self.connectTimeoutMilliseconds) = (url, userAgent, connectTimeoutMilliseconds)
    }
}

/// One HTTP exchange: an easy handle in a multi handle, from its creation to its end. Never reused.
package final class Exchange {
    /// The largest size of libcurl's receive buffer, in bytes, and the largest that libcurl takes (CURLOPT_BUFFERSIZE). Whatever it is,
    /// libcurl delivers at most 16 KiB a call; larger reads cost less CPU.
    package static let bufferSize = 512 * 1024
    /// The smallest size, in bytes. An exchange beside many others receives little at a time.
    private static let leastBufferSize = 32 * 1024
    /// An exchange gets an equal share of so many bytes. Earlier exchanges keep their larger buffers, so the buffers of 64 exchanges have
    /// 7 MiB together.
    private static let sharedBytes = 2 << 20

    /// The size of the receive buffer, in bytes, of an exchange that begins beside so many others. libcurl allocates the buffer once, for
    /// the whole exchange.
    ///
    /// - Parameter others: at least 0.
    static func bufferSize(beside others: Int) -> Int { min(bufferSize, max(leastBufferSize, sharedBytes / (others &+ 1))) }

    package let sink: BodySink
    let multi: MultiHandle
    var easy: EasyHandle
    let isFresh: Bool
    let mustShare: Bool
    let isSecure: Bool
    /// The connection's target, the key for distrust (`ExchangeOptions.place`).
    let place: String
    /// Whether the connection goes to a proxy that speaks HTTP. To libcurl, a connection through SOCKS is one to the server.
    package let hasHTTPProxy: Bool
    /// The socket on which the request is sent.
    var socket: Int32?
    /// The local port of the connection on which the request is sent.
    package var localPort: UInt32?
    var requests = 0
    var connectionsBefore = 0
    /// Whether an earlier exchange, or an earlier answer of this one, used the connection.
    var isOnKept = false
    var isFirstLine = true
    /// Whether the answer is a stream of HTTP/2, so that other exchanges can share its connection. False before its first line.
    package var isStream = false
    /// Whether the connection held, or may have held, bytes that belong to no answer.
    var isSpoilt = false
    /// Whether a surplus came after the answer.
    var isFollowed = false
    /// The bytes that `socket` had received before the last request.
    var receivedBefore: UInt64 = 0
    /// The bytes of all header lines since then.
    var headBytes: UInt64 = 0
    /// Whether libcurl wanted to repeat a request, and was not allowed to.
    var isRepeated = false
    /// Whether the request was not sent, because no connection was there to share (`ExchangeOptions.mustShare`).
    package var isUnshared = false
    /// Whether the handle is in the multi handle.
    private var isAdded = false

    /// Starts the exchange: `multi`'s next `perform` makes the first calls to `sink`.
    package init(_ options: ExchangeOptions, sink: BodySink, multi: MultiHandle) throws(CurlError) {
        self.sink = sink
        self.multi = multi
        (isFresh, mustShare, isSecure) = (
            options.isFresh || multi.isDistrusted(options.place), options.mustShare,
            options.url.utf8.starts(with: "https:".utf8) || options.proxy.utf8.starts(with: "https:".utf8)
        )
        (place, hasHTTPProxy) = (options.place, options.hasHTTPProxy)
        easy = try EasyHandle()
        configure(options)
        easy.set(CURLOPT_PRIVATE, Unmanaged.passUnretained(self).toOpaque())
        try multi.add(easy.raw)
        isAdded = true
    }

    // The handle leaves the multi handle here; the field is freed after this body.
    deinit {
        guard isAdded else { return }
        giveUpConnection()
        multi.remove(easy.raw)
        if let socket { multi.sockets.leave(socket, self) }
    }

    /// Has libcurl close the connection with this exchange, unless other exchanges use it. Has no effect once the answer is complete.
    ///
    /// libcurl closes an HTTP/1 connection by itself if the answer is not read to its end. An HTTP/2 connection is kept, and libcurl 7.88
    /// sends the frame that ends the answer (RST_STREAM) only before the next frame on the connection. Until then, the server would send
    /// until all buffers are full.
    func giveUpConnection() { easy.set(CURLOPT_FORBID_REUSE, 1) }

    private func configure(_ options: ExchangeOptions) {
        easy.set(CURLOPT_URL, options.url)
        easy.set(CURLOPT_PROTOCOLS_STR, "http,https")
        easy.set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https")
        easy.set(CURLOPT_FOLLOWLOCATION, 0)
        easy.set(CURLOPT_NOSIGNAL, 1)
        easy.set(CURLOPT_QUICK_EXIT, 1)  // a dropped exchange does not wait for its name look-up
        easy.set(CURLOPT_HTTP_VERSION, Int(options.ownsConnection ? CURL_HTTP_VERSION_1_1 : CURL_HTTP_VERSION_2TLS))
        // The same versions of TLS, but another configuration. libcurl uses no connection for a request of the other kind then. Without
        // this, it may send a request on an HTTP/1.1 connection that is in use (`isTaken`).
        easy.set(CURLOPT_SSLVERSION, options.ownsConnection ? todoku_curl_tls_1_2_to_1_3 : todoku_curl_tls_1_2)
        easy.set(CURLOPT_BUFFERSIZE, Exchange.bufferSize(beside: multi.exchanges))
        easy.set(CURLOPT_CONNECTTIMEOUT_MS, options.connectTimeoutMilliseconds)
        easy.set(CURLOPT_TCP_KEEPALIVE, 1)
        if isFresh { easy.set(CURLOPT_FRESH_CONNECT, 1) }
        if multi.isDistrusted(place) { easy.set(CURLOPT_FORBID_REUSE, 1) }
        easy.set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1)
        easy.set(CURLOPT_DISALLOW_USERNAME_IN_URL, 1)
        easy.set(CURLOPT_PROXY, options.proxy)
        // Without this option, libcurl would read `no_proxy` and connect directly, and the address would not be checked.
        easy.set(CURLOPT_NOPROXY, "")
        easy.set(CURLOPT_USERAGENT, options.userAgent)
        if let referrer = options.referrer { easy.set(CURLOPT_REFERER, referrer) }
        if options.username != nil || options.password != nil {
            easy.set(CURLOPT_HTTPAUTH, todoku_curl_auth_basic_digest)
            easy.set(CURLOPT_USERNAME, options.username ?? "")
            easy.set(CURLOPT_PASSWORD, options.password ?? "")
        }
        if let body = options.body { easy.setBody(body) }
        if let jar = options.jar { easy.use(jar) }
        if let field = options.cookieField { easy.set(CURLOPT_COOKIE, field) }
        replaceAuthorities(options)
        // Set the field here instead of CURLOPT_ACCEPT_ENCODING. With that option libcurl would decode a body that is coded nevertheless,
        // but would not report a coded stream that ends early: see `ContentDecoder`.
        easy.setHeaders(["Accept-Encoding: identity"] + options.headerLines)
        easy.set(CURLOPT_WRITEFUNCTION, bodySinkWrite)
        easy.set(CURLOPT_HEADERFUNCTION, bodySinkHeader)
        let own = Unmanaged.passUnretained(self).toOpaque()
        easy.set(CURLOPT_WRITEDATA, own)
        easy.set(CURLOPT_HEADERDATA, own)
        easy.set(CURLOPT_PREREQFUNCTION, bodySinkPrerequest)
        easy.set(CURLOPT_PREREQDATA, own)
        easy.set(CURLOPT_OPENSOCKETFUNCTION, bodySinkOpenSocket)
        easy.set(CURLOPT_OPENSOCKETDATA, own)
    }

    private func replaceAuthorities(_ options: ExchangeOptions) {
        guard options.certificateFile != nil || options.certificateFolder != nil else { return }
        // libcurl may be built with a file and a folder, has a store of its own for proxies, and trusts what any of them vouches for.
        for option in [CURLOPT_CAINFO, CURLOPT_PROXY_CAINFO] { easy.set(option, path: options.certificateFile) }
        for option in [CURLOPT_CAPATH, CURLOPT_PROXY_CAPATH] { easy.set(option, path: options.certificateFolder) }
    }

    /// Resumes after the sink answered `.pause`. Within this call libcurl first delivers the bytes that it holds back. An error ends the
    /// exchange.
    package func resume() -> CurlError? { error(for: easy_pause(easy.raw, CURLPAUSE_CONT)) }

    /// The connection of the answer, named by its local port, if other exchanges can share the connection; else nil.
    package var sharedConnection: UInt32? {
        guard isStream else { return nil }
        return UInt32(exactly: easy.number(CURLINFO_LOCAL_PORT)).flatMap { $0 > 0 ? $0 : nil }
    }

    /// The status by which a proxy has refused to connect to the server (CONNECT); nil: none has come. libcurl reads the body of a 407
    /// before it ends the exchange.
    package var proxyRefusal: UInt32? {
        let status = UInt32(clamping: easy.number(CURLINFO_HTTP_CONNECTCODE))
        return status >= 300 ? status : nil
    }

    /// Whether a 401 has offered Basic or Digest. libcurl then repeats the request with user and password, if it has them.
    package var offersLogin: Bool { easy.number(CURLINFO_HTTPAUTH_AVAIL) & todoku_curl_auth_basic_digest != 0 }

    /// The bytes that the other side's kernel has confirmed on the connection of the request, since it was made; 0 if unknown.
    package var acknowledged: UInt64 { socket.map { todoku_socket_acknowledged($0) } ?? 0 }

    fileprivate func complete(_ error: CurlError) -> CurlError {
        var error = error
        error.detail = easy.errorDetail
        // With OpenSSL, the number of a side is 1 from the beginning of its handshake until its certificate has been checked.
        let ofProxy = easy.number(CURLINFO_PROXY_SSL_VERIFYRESULT)
        error.isOfProxy = ofProxy != 0
        error.verifyResult = error.isOfProxy ? ofProxy : easy.number(CURLINFO_SSL_VERIFYRESULT)
        error.proxyStatus = UInt32(clamping: easy.number(CURLINFO_HTTP_CONNECTCODE))
        error.proxyError = UInt32(clamping: easy.number(CURLINFO_PROXY_ERROR))
        error.osError = Int32(truncatingIfNeeded: easy.number(CURLINFO_OS_ERRNO))
        return error
    }

    func error(for code: CURLcode) -> CurlError? { CurlError(code).map(complete) }
}
