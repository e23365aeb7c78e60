public import DownloadModel

/// The one thing that a person can do about a failed or waiting download.
public enum Remedy: Equatable, Sendable {
    case retry
    /// The disk of `folder` has too little space.
    case freeSpace(folder: String)
    /// The server rejects the link; `page` may have a new link.
    case newLink(page: String)

    /// nil if no known action helps: the same request would fail again, or the link's page is unknown.
    public init?(after failure: DownloadFailure, of record: DownloadRecord) {
        switch failure.name {
        // Todoku has closed the caller's descriptor, so only the caller can try again.
        case .network, .timeout, .tls, .truncated, .checksumMismatch, .sizeMismatch, .writeFailed, .permissionDenied, .expired,
            .interrupted:
            if record.isToDescriptor { return nil }
            self = .retry
        // No checksum proves the damaged archive, so the server may send another one. Or the process that unpacks was stopped.
        case .extraction where failure.isRetryable:
            if record.isToDescriptor { return nil }
            self = .retry
        case .httpStatus: self.init(after: failure.httpStatus ?? 0, of: record)
        case .diskFull: self.init(forRoomOf: record)
        default: return nil
        }
    }

    private init?(after status: UInt32, of record: DownloadRecord) {
        switch status {
        case 401, 403, 404, 410: self.init(forLinkOf: record)
        // Request Timeout, Too Early, Too Many Requests, and all server errors.
        case 408, 425, 429, 500...599:
            if record.isToDescriptor { return nil }
            self = .retry
        default: return nil
        }
    }

    /// The remedy for a waiting download.
    public init?(for reason: WaitReason, of record: DownloadRecord) {
        switch reason {
        case .diskSpace: self.init(forRoomOf: record)
        case .needsUrl: self.init(forLinkOf: record)
        default: return nil
        }
    }

    private init?(forRoomOf record: DownloadRecord) {
        guard !record.directory.isEmpty else { return nil }
        self = .freeSpace(folder: record.directory)
    }

    /// The page that led to the link, as the app gave it. Only a page that a browser can open, without credentials.
    private init?(forLinkOf record: DownloadRecord) {
        guard let referrer = record.options.referrer, let page = try? DownloadURL(referrer), page.username == nil else { return nil }
        self = .newLink(page: page.text)
    }
}
