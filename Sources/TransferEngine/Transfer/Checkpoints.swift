internal import DownloadModel
internal import PartFiles

/// When a checkpoint is due.
extension Transfer {
    /// A checkpoint is due after this many bytes or this long.
    static let checkpointBytes: ByteCount = 64 << 20
    static let checkpointInterval: Duration = .seconds(10)

    /// Whether a flush would save more bytes than the last checkpoint has.
    var hasUnsaved: Bool { unsaved > 0 }

    private var unsaved: ByteCount {
        guard !isSyncing, conclusion == nil, let part, part.isResumable else { return 0 }
        return part.written -| (checkpoint?.written ?? 0)
    }

    /// Whether it is time to flush.
    func isCheckpointDue(now: SuspendingClock.Instant) -> Bool {
        hasUnsaved && (unsaved >= Self.checkpointBytes || now - lastCheckpoint >= Self.checkpointInterval)
    }
}

/// Transfers that wait with bytes that no checkpoint has saved: for a permit, for a look-up, or for a check of pieces.
extension Engine {
    /// Whether the engine must keep looking, because a checkpoint becomes due.
    var hasUnsaved: Bool { transfers.values.contains(where: \.hasUnsaved) }

    /// Makes the checkpoints that are due of transfers without an exchange. `look` makes the others.
    func saveWaiting(_ now: SuspendingClock.Instant) {
        for transfer in transfers.values where !transfer.isFetching && transfer.isCheckpointDue(now: now) { sync(transfer) }
    }
}
