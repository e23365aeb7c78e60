internal import DownloadModel

/// Keeps passwords, request headers, cookies and bodies only as long as a request may need them.
extension Scheduler {
    /// Deletes the secrets of `entry`, if it has any and no retry may need them any more.
    ///
    /// - Returns: whether secrets were deleted, so that the row must be saved.
    @discardableResult
    func forgetSecrets(of entry: ScheduledDownload, now: WallTime) -> Bool {
        guard let time = entry.record.secretsEnd, time <= now else { return false }
        index.count(entry.record, -1)
        change(entry) { $0.options.forgetSecrets() }
        index.count(entry.record, 1)
        output.append(.save(.scrubLog))
        return true
    }
}

extension DownloadRecord {
    /// When to delete the secrets; nil: the download has none, or has not ended.
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
