internal import CSystem
package import DownloadModel
internal import Glibc

/// The only place that turns libcurl's errors and HTTP statuses into failures.
package enum FailureMapping {
    /// - Parameter proxy: whether the attempt used a proxy.
    package static func failure(_ error: CurlError, host: String, proxy: Bool, stallTimeout: Duration, madeProgress: Bool)
        -> DownloadFailure
    {
        let through = proxy ? " through the proxy" : ""
        func secure(_ cause: ConnectionFault.Cause) -> DownloadFailure {
            // Without a connection to the proxy, nothing has reached the host.
            let (peer, way) = error.isOfProxy ? ("the proxy", "") : (host, through)
            return DownloadFailure(
                .tls, "A secure connection to \(peer) cannot be made\(way): \(cause.words).", host: host, isRetryable: cause.isRetryable)
        }
        if isOffline(error, host: host) {
            return DownloadFailure(
                .network, "\(host) cannot be reached: there is no network.", host: host, isRetryable: true, wait: .offline)
        }
        if proxy, error.proxyStatus >= 300, [.reset, .connect, .timeout].contains(error.kind) {
            return refusedByProxy(error.proxyStatus, host: host)
        }
        switch error.kind {
        case .resolve:
            return DownloadFailure(
                .network, "The address of \(host) cannot be found; check the URL and the network.", host: host, isRetryable: true)
        case .resolveProxy:
            return DownloadFailure(
                .network, "The address of the proxy cannot be found; check the proxy settings or the option proxy.", host: host,
                isRetryable: true)
        case .connect:
            let reason = error.osError == 0 ? "no connection" : String(cString: strerror(error.osError))
            return DownloadFailure(.network, "\(host) cannot be reached\(through): \(reason).", host: host, isRetryable: true)
        case .proxy:
            let cause =
                ConnectionFault.socks(error) ?? ConnectionFault.Cause(ConnectionFault.libraryText(error), isRetryable: true)
            return DownloadFailure(
                .network, "\(host) cannot be reached through the proxy: \(cause.words).", host: host, isRetryable: cause.isRetryable)
        case .timeout: return timeout(host: host, after: stallTimeout, madeProgress: madeProgress)
        case .certificate:
            let owner = error.isOfProxy ? "the proxy" : host
            return DownloadFailure(
                .tls, "The certificate of \(owner) cannot be trusted: \(ConnectionFault.certificate(error)).", host: host)
        case .tls: return secure(ConnectionFault.handshake(error, isRetryable: false))
        case .tlsHandshake: return secure(ConnectionFault.handshake(error, isRetryable: true))
        case .nothingReceived:
            return DownloadFailure(.network, "\(host) closed the connection without an answer.", host: host, isRetryable: true)
        case .reset:
            if let cause = ConnectionFault.known(error), !cause.isRetryable { return secure(cause) }
            return DownloadFailure(.network, "The connection to \(host) broke\(through).", host: host, isRetryable: true)
        case .http2:
            return DownloadFailure(.network, "The HTTP/2 connection to \(host) broke.", host: host, isRetryable: true)
        case .partialFile: return truncated(host: host)
        case .coding:
            return DownloadFailure(.network, "\(host) sent a body that cannot be decoded.", host: host, isRetryable: true)
        case .malformedAnswer: return DownloadFailure(.network, "\(host) sent a response that is not HTTP.", host: host)
        case .noMemory:
            return DownloadFailure(.network, "There is not enough memory for a connection to \(host).", host: host, isRetryable: true)
        case .writeRefused, .aborted, .tooLarge, .other:
            return DownloadFailure(.network, "The transfer from \(host) failed: \(error.text).", host: host, isRetryable: true)
        }
    }

    /// The failure of a request to a host that does not exist, according to the name servers: mistyped, most likely.
    package static func missingHost(_ host: String) -> DownloadFailure {
        var failure = DownloadFailure(
            .network, "There is no host with the name \(host); check the URL.", host: host, isRetryable: true)
        failure.isOfMissingHost = true
        return failure
    }

    private static let proxyAdvice = "give its user name and password in the proxy settings or the option proxy"

    /// The failure of a request whose proxy did not connect to the server (RFC 9110, section 9.3.6).
    package static func refusedByProxy(_ status: UInt32, host: String) -> DownloadFailure {
        let phrase = phrases[status].map { " (\($0))" } ?? ""
        let advice =
            switch status {
            case 407: "; \(proxyAdvice)"
            case 403: "; its rules do not allow the connection"
            default: ""
            }
        return DownloadFailure(
            .network, "\(host) cannot be reached: the proxy answered \(status)\(phrase)\(advice).", host: host,
            isRetryable: DownloadFailure.isRetryable(status: status))
    }

    /// Whether the cause is that this machine has no network, so that the error says nothing about the host. Sends nothing.
    private static func isOffline(_ error: CurlError, host: String) -> Bool {
        guard !isLoopbackAddress(host) else { return false }
        switch error.kind {
        case .resolve, .resolveProxy: return !todoku_has_interface()
        // libcurl reports the last address it tried, which may be an IPv6 address on a machine with IPv4 only.
        case .connect: return error.osError == ENETDOWN || [ENETUNREACH, EADDRNOTAVAIL].contains(error.osError) && !todoku_has_route()
        default: return false
        }
    }

    /// - Parameter trickle: body bytes that came within `limit`, too few to count as progress.
    package static func timeout(host: String, after limit: Duration, madeProgress: Bool, trickle: ByteCount = 0) -> DownloadFailure {
        let what = !madeProgress ? "did not answer" : trickle > 0 ? "sent only \(trickle) bytes" : "sent nothing more"
        return DownloadFailure(.timeout, "\(host) \(what) within \(limit.inWords).", host: host, isRetryable: true)
    }

    /// The failure for a `Location` that is not followed, with its reason.
    package static func redirect(_ refusal: Refusal, host: String) -> DownloadFailure {
        let reason =
            refusal.name == .unsupportedScheme
            ? "The server \(host) redirected to an address that is not http or https."
            : "The server \(host) redirected to an address that cannot be used. \(refusal.message)"
        return DownloadFailure(.unsafeRedirect, reason, host: host)
    }

    /// The failure of a response whose head is larger than `ResponseHead` or libcurl takes.
    package static func headTooLarge(host: String) -> DownloadFailure {
        DownloadFailure(.network, "\(host) sent more header fields than Todoku accepts.", host: host)
    }

    package static func truncated(host: String) -> DownloadFailure {
        DownloadFailure(.truncated, "\(host) ended the connection before the file was complete.", host: host, isRetryable: true)
    }

    package static func status(_ head: ResponseHead, host: String, now: WallTime) -> DownloadFailure {
        let status = head.status
        let phrase = phrases[status].map { " (\($0))" } ?? ""
        let message =
            switch status {
            case 200...299: "The server \(host) answered \(status)\(phrase), which carries no file."
            case 407: "The proxy for \(host) answered \(status)\(phrase); \(proxyAdvice)."
            default: "The server \(host) answered \(status)\(phrase)."
            }
        return DownloadFailure(
            .httpStatus, message, httpStatus: status, host: host, isRetryable: DownloadFailure.isRetryable(status: status),
            retryAfter: head.text("retry-after").flatMap { RetryAfter.delay($0, now: now) })
    }

    /// Reason phrases of RFC 9110 §15 and RFC 6585 for statuses that a download may get.
    private static let phrases: [UInt32: String] = [
        204: "No Content", 205: "Reset Content", 206: "Partial Content", 300: "Multiple Choices", 304: "Not Modified", 400: "Bad Request",
        401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 406: "Not Acceptable",
        407: "Proxy Authentication Required", 408: "Request Timeout", 409: "Conflict", 410: "Gone", 412: "Precondition Failed",
        416: "Range Not Satisfiable", 421: "Misdirected Request", 423: "Locked", 425: "Too Early", 426: "Upgrade Required",
        429: "Too Many Requests", 431: "Request Header Fields Too Large", 451: "Unavailable For Legal Reasons",
        500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout",
    ]
}

extension Duration {
    /// "30 s", "1.5 s", "200 ms".
    var inWords: String {
        let milliseconds = wholeMilliseconds
        if milliseconds < 1000 { return "\(milliseconds) ms" }
        return milliseconds % 1000 == 0 ? "\(milliseconds / 1000) s" : "\(Double(milliseconds / 100) / 10) s"
    }
}
