public import DownloadModel

/// The one thing that a person can do about what has failed, or waits.
public enum Remedy: Equatable, Sendable {
    case retry
    /// There is too little room where `folder` is.
    case freeSpace(folder: String)
    /// The link is not taken any more; on `page` there may be a fresh one.
    case newLink(page: String)

    /// nil where nothing that we know of helps: the same request would come to the same, or the link's page is not known.
    public init?(after failure: DownloadFailure, of record: DownloadRecord) {
        switch failure.name {
        // A caller's own descriptor is closed: only the caller can try again.
        case .network, .timeout, .tls, .truncated, .checksumMismatch, .sizeMismatch, .writeFailed, .permissionDenied, .expired,
            .interrupted:
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
        // Request Timeout, Too Early, Too Many Requests, and what a server has on its own conscience.
        case 408, 425, 429, 500...599:
            if record.isToDescriptor { return nil }
            self = .retry
        default: return nil
        }
    }

    /// For what waits.
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

    /// The page that led to the link, as the app gave it; only what a browser fetches, without credentials.
    private init?(forLinkOf record: DownloadRecord) {
        guard let referrer = record.options.referrer, let page = try? DownloadURL(referrer), page.username == nil else { return nil }
        self = .newLink(page: page.text)
    }
}
