internal import DownloadModel
internal import Transport

/// Requests with a body (`TransferRequest.body`).
extension Engine {
    /// Decides whether the request at the target of a redirect has the body, as browsers do (Fetch standard, "HTTP-redirect fetch").
    ///
    /// - Returns: the failure if the body may not go to `url`.
    func redirectBody(of segment: Segment, after status: UInt32, to url: DownloadURL) -> DownloadFailure? {
        guard segment.sendsBody else { return nil }
        if [301, 302, 303].contains(status) {
            segment.sendsBody = false
            return nil
        }
        if url.origin == segment.transfer.request.url.origin {
            segment.isBodyOut = false
            return nil
        }
        return DownloadFailure(
            .unsafeRedirect,
            """
            The server \(segment.url.host) redirected the request with its body to another server, \(url.host); a body goes only to the server \
            that it is for.
            """, host: segment.url.host)
    }
}

extension Segment {
    /// Makes the request a POST, if it has the body.
    func addBody(to options: inout ExchangeOptions) {
        guard sendsBody else { return }
        options.body = transfer.request.body?.bytes
        // libcurl repeats a request that a kept connection leaves without a response. Before version 8.1.1, libcurl may also get stuck in
        // an upload over HTTP/2 (`sharing`).
        options.isFresh = true
    }

    /// Called before a request goes out.
    ///
    /// libcurl 7.88 itself repeats a request that a used connection leaves without a response. After a 401, even a connection of our own
    /// counts as used. A server that calls each login stale makes libcurl repeat the request forever.
    ///
    /// - Returns: the failure if the request has the body, and the server may have got the body already.
    func bodyGoesOut() -> DownloadFailure? {
        guard sendsBody else { return nil }
        if isBodyOut {
            return DownloadFailure(
                .network, "\(url.host) got the request with its body, and gave no usable response; a body is not sent twice.",
                host: url.host)
        }
        (isBodyOut, transfer.isBodySent) = (true, true)
        return nil
    }

    /// Counts bytes of the body that have arrived at the server as signs of life: on a slow line the body takes longer than the stall
    /// timeout.
    func watchUpload() {
        guard sendsBody, isBodyOut, let known = exchange?.acknowledged, known != acknowledged else { return }
        if known > acknowledged {
            signsOfLife &+= 1
            liveness.count(Int(clamping: known -| acknowledged))
        }
        acknowledged = known
    }
}

extension Transfer.Conclusion {
    /// The same conclusion, with a failure that is not retried.
    var withoutRetry: Transfer.Conclusion {
        guard case .failed(let failure) = self else { return self }
        return .failed(failure.withoutRetry)
    }
}

extension DownloadFailure {
    /// The same failure, which is not retried automatically.
    var withoutRetry: DownloadFailure {
        var failure = self
        (failure.isRetryable, failure.wait) = (false, nil)
        return failure
    }
}
