internal import CCurl

/// An error of libcurl. `FailureMapping` turns it into a `DownloadFailure`.
package struct CurlError: Error {
    package enum Kind {
        case resolve, resolveProxy, connect, proxy, timeout, certificate, tls, tlsHandshake, reset, nothingReceived, partialFile, http2,
            coding
        case writeRefused, aborted, malformedAnswer, noMemory, tooLarge, other
    }

    package let kind: Kind
    /// libcurl's text for its code (`curl_easy_strerror`).
    package let text: String
    /// The cause in the words of libcurl or its TLS library; may be empty.
    var detail = ""
    /// The TLS library's number for what is wrong with a certificate (CURLINFO_SSL_VERIFYRESULT, CURLINFO_PROXY_SSL_VERIFYRESULT); 0:
    /// nothing, or unknown.
    var verifyResult = 0
    /// Whether the secure connection to an https proxy was begun, and not made: its certificate or its TLS is at fault.
    var isOfProxy = false
    /// What a proxy answered to CONNECT (CURLINFO_HTTP_CONNECTCODE); 0: nothing.
    var proxyStatus: UInt32 = 0
    /// Why a SOCKS proxy made no connection: CURLPX_… of curl.h; 0: nothing.
    var proxyError: UInt32 = 0
    /// The errno of a failed connect, or 0.
    var osError: Int32 = 0

    init?(_ code: CURLcode) {
        guard code != CURLE_OK else { return nil }
        kind = CurlError.kind(of: code)
        text = String(cString: easy_strerror(code))
    }

    package init(_ kind: Kind, _ text: String) { (self.kind, self.text) = (kind, text) }

    private static func kind(of code: CURLcode) -> Kind {
        switch code {
        case CURLE_COULDNT_RESOLVE_HOST: .resolve
        case CURLE_COULDNT_RESOLVE_PROXY: .resolveProxy
        case CURLE_COULDNT_CONNECT, CURLE_INTERFACE_FAILED: .connect
        case CURLE_PROXY: .proxy
        case CURLE_OPERATION_TIMEDOUT: .timeout
        case CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_ISSUER_ERROR, CURLE_SSL_INVALIDCERTSTATUS, CURLE_SSL_PINNEDPUBKEYNOTMATCH:
            .certificate
        case CURLE_SSL_CONNECT_ERROR, CURLE_SSL_SHUTDOWN_FAILED: .tlsHandshake
        case CURLE_SSL_CACERT_BADFILE, CURLE_SSL_CERTPROBLEM, CURLE_SSL_CIPHER, CURLE_SSL_CRL_BADFILE, CURLE_SSL_ENGINE_NOTFOUND,
            CURLE_SSL_ENGINE_SETFAILED, CURLE_SSL_ENGINE_INITFAILED, CURLE_SSL_CLIENTCERT, CURLE_USE_SSL_FAILED:
            .tls
        case CURLE_GOT_NOTHING: .nothingReceived
        case CURLE_SEND_ERROR, CURLE_RECV_ERROR, CURLE_AGAIN: .reset
        case CURLE_PARTIAL_FILE: .partialFile
        case CURLE_HTTP2, CURLE_HTTP2_STREAM: .http2
        case CURLE_BAD_CONTENT_ENCODING: .coding
        case CURLE_WRITE_ERROR: .writeRefused
        case CURLE_ABORTED_BY_CALLBACK: .aborted
        case CURLE_WEIRD_SERVER_REPLY, CURLE_UNSUPPORTED_PROTOCOL: .malformedAnswer
        case CURLE_OUT_OF_MEMORY: .noMemory
        case CURLcode(rawValue: 100): .tooLarge  // CURLE_TOO_LARGE, in libcurl's headers since 8.6
        default: .other
        }
    }
}
