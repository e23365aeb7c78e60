internal import CCurl

/// The causes of failed connections, in words that a person can act on. Each is the end of a sentence, without a full stop.
///
/// libcurl and the TLS libraries have numbers for some causes only. The others are recognised by their English texts, those of OpenSSL 1.1
/// to 3 and of GnuTLS. An unknown cause keeps the library's text.
enum ConnectionFault {
    struct Cause: Equatable {
        let words: String
        /// Whether the same request may succeed later, without anybody's help.
        var isRetryable = false

        init(_ words: String, isRetryable: Bool = false) { (self.words, self.isRetryable) = (words, isRetryable) }
    }

    /// The side of a secure connection that the words are about.
    fileprivate enum Side {
        case server, proxy

        var noun: String { self == .proxy ? "proxy" : "server" }
        /// Where a person has named the host.
        var place: String { self == .proxy ? "the proxy settings or the option proxy" : "the URL" }
    }

    // MARK: Certificates

    private enum CertificateFault {
        case expired, early, ownSignature, unknownIssuer, revoked, weak, otherName

        func words(of side: Side) -> String {
            switch self {
            case .expired: "it has expired; check this machine’s date, or tell the \(side.noun)’s operator"
            case .early: "it is not valid yet; check this machine’s date"
            case .ownSignature:
                "it is self-signed; if you trust the \(side.noun), add the certificate to the trusted certificates of this machine"
            case .unknownIssuer:
                "its issuer is not among the trusted authorities of this machine; if you trust the issuer, add its certificate"
            case .revoked: "its issuer has revoked it; do not use this \(side.noun) until its operator has a new one"
            case .weak: "its key or signature is too weak; tell the \(side.noun)’s operator"
            case .otherName: "it is for another name; check the host in \(side.place)"
            }
        }
    }

    /// The results of OpenSSL's verification (x509_vfy.h).
    private static let verifyResults: [Int: CertificateFault] = [
        9: .early, 10: .expired, 18: .ownSignature, 2: .unknownIssuer, 19: .unknownIssuer, 20: .unknownIssuer, 21: .unknownIssuer,
        27: .unknownIssuer,
        23: .revoked, 62: .otherName, 64: .otherName, 66: .weak, 67: .weak, 68: .weak,
    ]

    /// The first text that the error contains counts.
    private static let certificateTexts: [(text: String, fault: CertificateFault)] = [
        ("does not match target", .otherName), ("no alternative certificate subject name", .otherName), ("has expired", .expired),
        ("expiration date has passed", .expired), ("not yet valid", .early), ("activation date is in the future", .early),
        ("revoked", .revoked), ("self-signed certificate in", .unknownIssuer), ("self signed certificate in", .unknownIssuer),
        ("self-signed", .ownSignature), ("self signed", .ownSignature), ("issuer", .unknownIssuer), ("unable to verify", .unknownIssuer),
    ]

    /// Why a certificate is not trusted. No such failure is retried.
    static func certificate(_ error: CurlError) -> String {
        // Only errors of OpenSSL begin like this. The numbers of other libraries mean something else.
        let verified = error.detail.hasPrefix("SSL certificate problem") ? verifyResults[error.verifyResult] : nil
        let detail = error.detail.lowercased()
        let fault = verified ?? certificateTexts.first { detail.contains($0.text) }?.fault
        return fault?.words(of: error.side) ?? libraryText(error)
    }

    // MARK: Secure connections

    private enum HandshakeFault {
        case notSecure, oldVersion, refused, unknownName, wantsCertificate, closed

        func cause(of side: Side) -> Cause {
            let (noun, place) = (side.noun, side == .proxy ? " in \(side.place)" : "")
            return switch self {
            case .notSecure:
                Cause("the \(noun) does not speak https at this port; check the port, or write http:// instead of https://\(place)")
            case .oldVersion: Cause("the \(noun) offers only versions of TLS that are no longer safe; tell its operator")
            case .refused: Cause("the \(noun) accepts no safe encryption, or wants a client certificate; tell its operator")
            case .unknownName: Cause("the \(noun) does not know this name; check the host in \(side.place)")
            case .wantsCertificate: Cause("the \(noun) wants a client certificate, and Todoku has none")
            case .closed: Cause("the \(noun) closed the connection", isRetryable: true)
            }
        }
    }

    private static let handshakeTexts: [(text: String, fault: HandshakeFault)] = [
        ("wrong version number", .notSecure), ("packet length too long", .notSecure), ("http request", .notSecure),
        ("unexpected tls packet", .notSecure), ("unknown protocol", .notSecure),
        ("unsupported protocol", .oldVersion), ("alert protocol version", .oldVersion), ("no protocols available", .oldVersion),
        ("unsupported version packet", .oldVersion),
        ("alert handshake failure", .refused), ("alert insufficient security", .refused), ("dh key too small", .refused),
        ("no ciphers available", .refused), ("no supported cipher suites", .refused),
        ("unrecognized name", .unknownName), ("unrecognised name", .unknownName),
        ("alert certificate required", .wantsCertificate), ("alert bad certificate", .wantsCertificate),
        ("unexpected eof", .closed), ("ssl_error_syscall", .closed), ("connection reset", .closed), ("non-properly terminated", .closed),
    ]

    /// Why a secure connection could not be set up.
    ///
    /// - Parameter isRetryable: of a cause that is not known.
    static func handshake(_ error: CurlError, isRetryable: Bool) -> Cause {
        known(error) ?? Cause(libraryText(error), isRetryable: isRetryable)
    }

    /// The cause that the text of `error` names; nil: the text is unknown. The cause may come late: a server of TLS 1.3 asks for the
    /// client's certificate after the client has finished its handshake.
    static func known(_ error: CurlError) -> Cause? {
        let detail = error.detail.lowercased()
        return handshakeTexts.first { detail.contains($0.text) }?.fault.cause(of: error.side)
    }

    /// The library's text without its full stop.
    static func libraryText(_ error: CurlError) -> String {
        var text = error.detail.isEmpty ? error.text : error.detail
        while let last = text.last, last == "." || last == "\n" { text.removeLast() }
        return text
    }

    // MARK: Proxies

    /// Why a SOCKS proxy made no connection (CURLINFO_PROXY_ERROR); nil: libcurl does not say.
    static func socks(_ error: CurlError) -> Cause? {
        switch error.proxyError {
        case CURLPX_REPLY_CONNECTION_REFUSED.rawValue: Cause("the server refuses the connection", isRetryable: true)
        case CURLPX_REPLY_HOST_UNREACHABLE.rawValue: Cause("the proxy cannot find or reach the server", isRetryable: true)
        // With socks4:// and socks5://, libcurl looks the name up itself.
        case CURLPX_RESOLVE_HOST.rawValue:
            Cause("the address of the server cannot be found; check the URL and the network", isRetryable: true)
        case CURLPX_REPLY_NETWORK_UNREACHABLE.rawValue, CURLPX_REPLY_TTL_EXPIRED.rawValue:
            Cause("the proxy cannot reach the server’s network", isRetryable: true)
        case CURLPX_REPLY_GENERAL_SERVER_FAILURE.rawValue, CURLPX_REPLY_UNASSIGNED.rawValue, CURLPX_REQUEST_FAILED.rawValue:
            Cause("the proxy reports a failure", isRetryable: true)
        case CURLPX_CLOSED.rawValue: Cause("the proxy closed the connection", isRetryable: true)
        case CURLPX_REPLY_NOT_ALLOWED.rawValue: Cause("the proxy’s rules do not allow the connection")
        case CURLPX_NO_AUTH.rawValue, CURLPX_USER_REJECTED.rawValue, CURLPX_RECV_AUTH.rawValue:
            Cause("the proxy wants a user name and a password, or refuses those of the proxy settings or the option proxy")
        case CURLPX_BAD_VERSION.rawValue, CURLPX_UNKNOWN_MODE.rawValue:
            Cause("the server at its address is no SOCKS proxy; check the proxy settings or the option proxy")
        default: nil
        }
    }
}

extension CurlError {
    fileprivate var side: ConnectionFault.Side { isOfProxy ? .proxy : .server }
}
