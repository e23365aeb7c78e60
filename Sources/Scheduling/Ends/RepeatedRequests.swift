internal import DownloadModel

// A request with a body may change something on the server, so it goes out once for each time that a caller asks for it.

extension ScheduledDownload {
    /// Whether another transfer may begin after the present one is stopped.
    var mayYield: Bool { !record.options.isPostSent }
}

extension DownloadRecord {
    /// Why the download must not start; nil: it may start.
    var failureOfRepetition: DownloadFailure? {
        guard options.isPostSent else { return nil }
        let words =
            options.postData == nil
            ? "The body of the request is forgotten; queue a new download with post-data."
            : "The download was stopped after its request had gone out with its body, which is not sent again by itself; retry to send it."
        return DownloadFailure(.interrupted, words, isRetryable: options.postData != nil)
    }
}
