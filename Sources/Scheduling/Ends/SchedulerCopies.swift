public import DownloadModel

/// Cached copies, and callers' descriptors.
extension Scheduler {
    /// The received bytes equal `copy`, which becomes the outcome. The received bytes are deleted.
    func foundUnchanged(_ entry: ScheduledDownload, _ copy: CachedCopy, now: WallTime) {
        guard leavePool(entry, now: now), entry.state == .verifying else { return }
        end(entry, with: copy, now: now)
    }

    /// Ends `entry` with `copy`, and saves `copy` as the newest cached copy, with the server's latest answer about it.
    func end(_ entry: ScheduledDownload, with copy: CachedCopy, now: WallTime) {
        change(entry) { record in
            (record.path, record.fileName, record.mediaType) = (copy.path, copy.name, copy.mediaType ?? record.mediaType)
            (record.total, record.retriesUsed, record.lastFailure, record.proof) = (copy.stamp.size, 0, nil, copy.proof)
        }
        output.append(.save(.keepCopy(copy)))
        applyOwn(.unchanged, to: entry, now: now)
        // The received bytes are deleted; the file of the outcome is the copy.
        change(entry) { record in
            record.received = copy.stamp.size
            record.resume = ResumeData(written: copy.stamp.size, total: copy.stamp.size, validator: nil, identity: copy.stamp.identity)
        }
        save(entry)
    }

    /// Fails all downloads into descriptors, because the process that holds the descriptors exits.
    func interruptDescriptors(now: WallTime) {
        interruptDescriptors(among: order.ordered.compactMap { entries[$0] }, now: now)
    }

    /// As above for the given downloads, whose process has exited already or whose descriptor is missing.
    func interruptDescriptors(among entries: [ScheduledDownload], now: WallTime) {
        for entry in entries where entry.record.isToDescriptor { applyOwn(.interrupt(.interrupted), to: entry, now: now) }
    }

    /// Whether the file of `number` is out of use: nothing reads or writes it now or later.
    public func isDone(_ number: DownloadNumber) -> Bool {
        guard sweeps[number] == nil else { return false }
        guard let entry = entries[number] ?? leaving[number] else { return true }
        return entry.state.hasEnded && !isAtWork(entry)
    }
}

extension DownloadFailure {
    static let interrupted = DownloadFailure(
        .interrupted, "Todoku exited while it wrote into the caller’s descriptor; call DownloadToFd again.", isRetryable: true)
}
