public import DownloadModel

/// Copies that are held, and descriptors of callers.
extension Ledger {
    /// The bytes that came are those of `copy`, which it ends with; what came is deleted.
    func foundUnchanged(_ entry: LedgerEntry, _ copy: CopyHeld, now: WallTime) {
        guard leavePool(entry, now: now), entry.state == .verifying else { return }
        end(entry, with: copy, now: now)
    }

    /// `copy` is kept once more: as the newest, with what the server told of it last.
    func end(_ entry: LedgerEntry, with copy: CopyHeld, now: WallTime) {
        change(entry) { record in
            (record.path, record.fileName, record.mediaType) = (copy.path, copy.name, copy.mediaType ?? record.mediaType)
            (record.total, record.retriesUsed, record.lastFailure) = (copy.stamp.size, 0, nil)
        }
        actions.append(.save(.keepCopy(copy)))
        advance(entry, .unchanged, now: now)
        // What came is gone by now; the file that it ends with is the copy.
        change(entry) { record in
            record.received = copy.stamp.size
            record.resume = ResumeData(written: copy.stamp.size, total: copy.stamp.size, validator: nil, identity: copy.stamp.identity)
        }
        save(entry)
    }

    /// Ends what writes into descriptors, at the end of the process that holds them.
    func interruptDescriptors(now: WallTime) {
        interruptDescriptors(among: order.ordered.compactMap { entries[$0] }, now: now)
        schedule(now: now)
    }

    /// The same for those of a process that ended without a word.
    func interruptDescriptors(among entries: [LedgerEntry], now: WallTime) {
        for entry in entries where entry.record.isToDescriptor { try? apply(.interrupt(.interrupted), to: entry, now: now) }
    }

    /// Whether nothing reads or writes the file of `number` any more, nor will.
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
