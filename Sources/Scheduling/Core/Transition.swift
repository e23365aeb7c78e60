internal import DownloadModel

/// The effect of an event on a download: on its state, on the other fields of its record, and on its row. `DownloadState.after` decides the
/// state, and the work for engine and pool.
struct Transition {
    /// From this size on, a row says that the part file is whole before its verification: after a crash, no byte is fetched again.
    private static let sizeWorthARow: ByteCount = 1 << 20

    let event: DownloadEvent
    let before: DownloadState
    let next: DownloadState
    let effects: [DownloadEffect]

    init(_ event: DownloadEvent, of record: DownloadRecord) throws(IllegalTransition) {
        (self.event, before) = (event, record.state)
        (next, effects) = try before.after(event)
        // The descriptor of an ended download is closed.
        if record.isToDescriptor, revives { throw IllegalTransition(state: before, event: event) }
    }

    /// Whether nothing changes.
    var isVoid: Bool { next == before && effects.isEmpty }
    /// Whether the event applies to all downloads: PauseAll or ResumeAll.
    var isOfAll: Bool { event == .hold || event == .release }
    /// Whether the event ends the download.
    var ends: Bool { next.hasEnded && !before.hasEnded }
    var revives: Bool { before.hasEnded && !next.hasEnded }
    /// Whether a caller wants the download at once (true), or no longer (false); nil: as before.
    var hurries: Bool? {
        switch event {
        case .resume, .retry, .renew: true
        case .pause, .cancel: false
        default: nil
        }
    }

    /// Changes the fields of `record`.
    func apply(to record: inout DownloadRecord, now: WallTime) {
        record.state = next
        switch event {
        case .start:
            record.attempts +|= 1
            (record.isWhole, record.lastFailure) = (false, nil)
            if record.startedAt == nil { record.startedAt = now }
            if record.options.postData != nil { record.options.isPostSent = true }
        case .resume: if before != .paused { record.retryAt = nil }  // resumed while waiting: retry at once; a paused wait continues
        case .retry, .renew: (record.retryAt, record.awaitsUrl, record.lastFailure) = (nil, false, nil)
        case .wait(.retry, let until): record.retryAt = until
        case .wait(.needsUrl, _): record.awaitsUrl = true
        case .bodyComplete: record.isWhole = true
        case .verified, .unpack: record.lastFailure = nil
        case .startOver: record.hasStartedOver = true
        case .partLost: record.isWhole = false
        case .unchanged: record.isUnchanged = true
        case .skipped: (record.isUnchanged, record.proof) = (true, nil)
        default: break
        }
        if revives {
            (record.endedAt, record.retriesUsed, record.expiresAt, record.timeLeft, record.hasStartedOver) = (nil, 0, nil, nil, false)
            (record.reminders, record.owesToast) = (OwnerReminders(), false)
            record.forgiveSources()
            if record.options.postData != nil { record.options.isPostSent = false }
        }
        if ends {
            (record.retryAt, record.lastFailure, record.expiresAt, record.timeLeft, record.awaitsUrl) = (nil, nil, nil, nil, false)
            record.endedAt = now
            record.reminders = record.options.activate == nil ? OwnerReminders() : .due(at: now)
        }
        record.runDeadline(at: now)
        // Before the row is saved: a later attempt must not look for deleted bytes. A finished (skipped) download keeps its size.
        // No attempt resumes from the bytes in a caller's descriptor.
        if next == .finished {
            if effects.contains(.deletePart), event != .folderCommitted { record.resume = nil }
        } else if effects.contains(.deletePart) || ends && record.isToDescriptor {
            record.forgetBytes()
        }
    }

    /// Whether the row of `record` is saved. A change that a restart would repeat anyway is not saved. Queued, active and verifying
    /// downloads all restart as queued, and the network is queried again. The first start is saved if it sets the deadline. Each start that
    /// sends a body is saved, and so is the end of its response, because no later request can bring this response again.
    func isSaved(_ record: DownloadRecord) -> Bool {
        switch event {
        case .yield, .hinder: false
        case .wait(.offline, nil) where before == .queued, .wait(.metered, nil) where before == .queued: false
        case .hold, .release: before == .active || record.options.deadline != nil
        case .start: record.options.deadline != nil || record.options.postData != nil
        case .startWhole, .ready: record.options.deadline != nil
        case .bodyComplete: record.received >= Self.sizeWorthARow || record.options.isPostSent
        default: true
        }
    }
}

extension DownloadRecord {
    /// Clears the fields about received bytes, because the bytes are deleted.
    mutating func forgetBytes() { (received, resume, isSpliced, isWhole, proof) = (0, nil, false, false, nil) }

    /// Updates the deadline (option `deadline`). Its time runs from the first start, in waits too, but not while the download is paused.
    fileprivate mutating func runDeadline(at now: WallTime) {
        guard let deadline = options.deadline, !state.hasEnded else { return }
        switch state {
        case .paused, .waiting(.pausedAll, _):
            guard let expiresAt else { return }
            timeLeft = max(.zero, expiresAt - now)
            self.expiresAt = nil
        case .active, .verifying:
            if expiresAt == nil { expiresAt = now + (timeLeft ?? deadline) }
            timeLeft = nil
        default:
            guard let timeLeft else { return }
            expiresAt = now + timeLeft
            self.timeLeft = nil
        }
    }
}
