internal import DownloadModel

/// Downloads at which the service crashed repeatedly.
extension Scheduler {
    /// Fails the downloads in `numbers` that have not ended, before any download starts. Their bytes stay for a retry.
    func setAside(_ numbers: [DownloadNumber], now: WallTime) {
        for number in numbers {
            guard let entry = entries[number], !entry.state.hasEnded else { continue }
            entry.isInPool = false  // nobody has looked for the file of an interrupted commit yet
            applyOwn(.interrupt(.crashed), to: entry, now: now)
        }
    }
}

extension DownloadFailure {
    static let crashed = DownloadFailure(
        .interrupted, "Todoku crashed twice while it worked on this download, and set it aside; retry it, or report the crash.",
        isRetryable: true)
}
