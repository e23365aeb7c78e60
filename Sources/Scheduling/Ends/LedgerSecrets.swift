public import DownloadModel

/// Passwords and request headers are kept as long as a request may need them, and no longer.
extension Ledger {
    /// Drops the secrets of `entry`, where it has any and no retry may need them any more.
    ///
    /// - Returns: whether anything was dropped, and its row is to be saved.
    @discardableResult
    func forgetSecrets(of entry: LedgerEntry, now: WallTime) -> Bool {
        guard let time = entry.record.secretsEnd, time <= now else { return false }
        index.count(entry.record, -1)
        change(entry) { $0.options.forgetSecrets() }
        index.count(entry.record, 1)
        actions.append(.save(.scrubLog))
        return true
    }
}

extension DownloadRecord {
    /// When its secrets go; nil: it has none, or has not ended.
    var secretsEnd: WallTime? {
        guard state.hasEnded, options.holdsSecrets else { return nil }
        guard mayBeRetried, let endedAt else { return WallTime(microseconds: 0) }
        return endedAt + Limits.secretsAge
    }

    private var mayBeRetried: Bool {
        switch state {
        case .failed(let failure): failure.name != .storage && !isToDescriptor
        case .cancelled: !isToDescriptor
        default: false
        }
    }
}

extension DownloadOptions {
    /// Whether it has what only its server should see: credentials, and header fields, in which tokens and cookies are.
    public var holdsSecrets: Bool { !headers.isEmpty || username != nil || password != nil }

    public mutating func forgetSecrets() { (headers, username, password) = ([], nil, nil) }
}
