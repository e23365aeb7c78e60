internal import DownloadModel
internal import Transport

/// Requests with a body (`TransferRequest.body`).
extension Engine {
    /// Decides whether the request at the target of a redirect has the body, as browsers do (Fetch standard, "HTTP-redirect fetch").
    ///
    /// - Returns: the failure if the body may not go to `url`.
    func settleBody(of segment: Segment, after status: UInt32, to url: DownloadURL) -> DownloadFailure? {
        guard segment.sendsBody else { return nil }
        if [301, 302, 303].contains(status) {
            segment.sendsBody = false
            return nil
        }
        if url.origin == segment.transfer.request.url.origin { return nil }
        return DownloadFailure(
            .unsafeRedirect,
            """
            The server \(segment.url.host) redirected the request with its body to another server, \(url.host); a body goes only to the server \
            that it is for.
            """, host: segment.url.host)
    }
}

extension DownloadFailure {
    /// The same failure, after which nothing is tried again by itself.
    var withoutRetry: DownloadFailure {
        var failure = self
        (failure.isRetryable, failure.wait) = (false, nil)
        return failure
    }
}
