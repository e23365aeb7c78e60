public import DownloadModel

/// Events in, actions out: the only way to change the downloads and settings of a scheduler, once `Restoration` has filled it. Of the other
/// public members, `prepare` only makes the members of a batch for `addBatch`, and `sliceSize` bounds the work of a slice.
extension Scheduler {
    /// A fact, or a caller's request. The download may already have ended, been stopped or been removed, because engine, pool and callers
    /// learn of an end late.
    public enum Event {
        // From callers. `steer`, `replaceUrl` and `remove` may be refused (`Turn.refusal`).
        case steer(ScheduledDownload, DownloadEvent)
        /// Sets a fresh link for the same bytes. `isFromSandbox`: from now on, the rules for sandboxed apps apply to the download.
        case replaceUrl(ScheduledDownload, FreshLink, isFromSandbox: Bool = false)
        /// Removes a download from the list. An unfinished download is cancelled first.
        case remove(ScheduledDownload)
        case steerBatch(ScheduledBatch, DownloadEvent, answering: CallNumber? = nil)
        case removeBatch(ScheduledBatch)
        case pauseAll
        case resumeAll
        case cancelAll(answering: CallNumber)
        case clearEnded(answering: CallNumber, sparing: Set<DownloadNumber> = [])
        /// `takesTurn`: at place 0, the download starts next, whichever application's turn it is.
        case move(ScheduledDownload, to: UInt32, takesTurn: Bool = true)
        case setPriority(ScheduledDownload, Int32)
        case setSpeedLimit(ScheduledDownload, Speed?)
        case setAllowsMetered(ScheduledDownload, Bool)
        /// Has no effect unless `mayChangeFolder` is true.
        case setDirectory(ScheduledDownload, String)
        /// The caller's own data, marshalled as `DownloadOptions.metadata`.
        case setMetadata(ScheduledDownload, [UInt8])
        /// Queues all failed members again.
        case retryBatch(ScheduledBatch, answering: CallNumber? = nil)
        case set(Settings)
        case resetHost(String)
        /// The owner has acknowledged the outcome.
        case acknowledge(ScheduledDownload)
        /// These applications have a window in front; all other applications have none.
        case inFront(Set<String>)

        // Additions. A download whose row is not on disk yet counts, but does not run before `saved`.
        case add(DownloadRecord)
        /// `prepare` made the members. Their numbers follow the batch's number.
        case addBatch(BatchRecord, PreparedMembers)
        case saved(ScheduledDownload)
        case savedBatch(ScheduledBatch, [ScheduledDownload])
        /// Gives some members of a batch their places in the queue. Nothing starts before `savedBatch`.
        case savedMembers(ScheduledBatch, [ScheduledDownload])
        /// The row could not be saved: undo the addition.
        case unsaved(ScheduledDownload)
        case unsavedBatch(ScheduledBatch, [ScheduledDownload])

        // From the engine.
        /// The next request of a transfer goes to `host`: a redirect, or a repeated request. If the id was not seen before, the request is
        /// for another part of the file at the same time. `Action.permit` follows once the host may take the request. `isAnswered`: the
        /// server has answered the previous request of the transfer. `sharing`: whether the request can use a connection that others use.
        /// `question`: the permit repeats this number.
        case asks(
            RequestID, host: String, origin: String?, isAnswered: Bool = true, sharing: ConnectionSharing = .possible, question: UInt64 = 0)
        /// A request that must share a connection (`Scheduler.mustShare`) goes out on this one.
        case shares(RequestID, connection: UInt32)
        /// A request has failed, and the transfer asks another source (`asks` follows) or ends.
        case moved(RequestID, DownloadFailure)
        /// The known facts about the sources. Saved with the next checkpoint or end; at once if a source has sent wrong bytes.
        case sources(ScheduledDownload, [SourceRecord])
        case sent(RequestID, at: WallTime)
        /// The response to a further request brings a part of the file.
        case joined(RequestID)
        /// A request has ended, and its transfer continues without it. The failure says why the request brought no bytes.
        case over(RequestID, DownloadFailure?)
        /// The server has stopped sending (true), or sends again (false).
        case stalled(RequestID, Bool)
        /// As `stalled`, for all requests of a transfer, because its disk does not answer.
        case diskStalled(DownloadNumber, Bool)
        /// The server accepted a request.
        case began(RequestID, Response)
        /// The body that the last `began` announced was dropped. The bytes held before stay, and the facts are about them.
        case bodyDropped(DownloadNumber, Response)
        /// A transfer has received `FileSize.leastLarge` bytes of a file whose size no response told.
        case grewLarge(DownloadNumber)
        case checkpoint(ScheduledDownload, ResumeData)
        /// Every `Action.startTransfer` is answered by exactly one `transferEnded`. `by`: the request whose response ended the transfer;
        /// nil: no response did.
        case transferEnded(DownloadNumber, TransferOutcome, by: RequestID? = nil)

        // From the pool.
        /// The part file is flushed and verified. If the service dies between the rename and the row, `FileIdentity` finds the file again.
        case verified(ScheduledDownload, FileIdentity)
        case endingFailed(ScheduledDownload, DownloadFailure)
        /// All files of the archive are on disk, in a folder without its final name.
        case unpacked(ScheduledDownload)
        /// This archive cannot be unpacked. `isDamaged`: its bytes are wrong.
        case unpackingFailed(ScheduledDownload, DownloadFailure, isDamaged: Bool)
        /// The extraction has stopped, after `stopUnpacking` or because the service exits.
        case unpackingStopped(ScheduledDownload)
        /// The unpacked folder is at `path`.
        case folderCommitted(ScheduledDownload, path: String, FileIdentity)
        /// The file is at `path`; `skipped`: `path` is an existing file instead. `copy`: the cached copy for later `Fetch` calls.
        case committed(ScheduledDownload, path: String, skipped: Bool = false, copy: CachedCopy? = nil)
        case partLost(ScheduledDownload)
        /// The disk does not answer while the pool verifies, unpacks or renames the file. This work continues, and another event reports
        /// its outcome.
        case endingDelayed(ScheduledDownload, DownloadFailure)
        case foundUnchanged(ScheduledDownload, CachedCopy)
        /// The call that removes a download also deletes the folder that it has unpacked, which is in `directory`. `Action.sweep` follows.
        case deleteFolder(DownloadNumber, directory: String)
        /// An `Action.sweep` has ended. `isGone` false: the part file may still exist; the next startup tries again.
        case swept(DownloadNumber, directory: String, isGone: Bool)

        /// The caller's descriptor that the download writes into is missing.
        case descriptorLost(ScheduledDownload)

        // From the system.
        case time
        case clockJumped(Duration)
        case network(NetworkCondition?)
        case sleeps
        case wakes
        /// A folder was probed: `free` bytes are available to downloads; nil: the folder is missing or not writable.
        case folderSeen(String, free: ByteCount?)
        /// Whether the journal refuses further changes, because too many wait for the disk.
        case journalFull(Bool)

        // From the announcements.
        case toastSettled(OwedToast)
        /// The owner is about to be called, if `owesCall` is true.
        case ownerCalled(ScheduledDownload)

        // The process.
        /// All records are restored. `crashed`: downloads at which earlier processes crashed repeatedly. `owed`: `Restored.owedToasts`.
        case begins(crashed: [DownloadNumber], owed: [OwedToast])
        /// Perform the next slice of the work on many downloads.
        case slice
        /// The process exits: no download starts any more, and downloads into callers' descriptors end.
        case ends
    }

    /// The facts of a response.
    public struct Response {
        public var fileName: String
        public var mediaType: String?
        /// The URL after redirects, without credentials and query; nil: no redirect.
        public var source: String?
        public var total: ByteCount?
        /// The part file's bytes count from this offset on.
        public var offset: ByteCount
        /// Whether a later transfer can resume from these bytes.
        public var isResumable: Bool
        /// The HTTP/2 connection of the response, which other requests may share; nil: no other request can.
        public var connection: UInt32?
        /// The representations that sources have stated instead of that of the held bytes.
        public var otherRepresentations: [OtherRepresentation] = []

        public init(
            fileName: String, mediaType: String?, source: String?, total: ByteCount?, offset: ByteCount, isResumable: Bool
        ) {
            (self.fileName, self.mediaType, self.source) = (fileName, mediaType, source)
            (self.total, self.offset, self.isResumable) = (total, offset, isResumable)
        }
    }

    /// The result of a turn.
    public struct Turn {
        /// The actions that the caller must perform, in this order.
        public let actions: [Action]
        /// The first refused event and the state that refused it. All other events took effect.
        public let refusal: IllegalTransition?
        /// Mistakes of the scheduler. The downloads stay as they were.
        public let faults: [Fault]
    }

    /// A transition that the scheduler itself requested, although the state of the download does not allow it.
    public struct Fault: CustomStringConvertible {
        public let number: DownloadNumber
        public let transition: IllegalTransition
        public var description: String { "download \(number): \(transition)" }
    }

    /// Applies `events` in order, starts every download that may run now, and returns the actions.
    ///
    /// Calls nothing outside the scheduler; the time is `now`.
    public func turn(_ events: [Event], at now: WallTime) -> Turn {
        gate.charge(now: now)
        var refusal: IllegalTransition?
        for event in events {
            do throws(IllegalTransition) { try take(event, now: now) } catch { refusal = refusal ?? error }
        }
        if !events.isEmpty { schedule(now: now) }
        return Turn(actions: output.take(), refusal: refusal, faults: output.takeFaults())
    }

    private func take(_ event: Event, now: WallTime) throws(IllegalTransition) {
        switch event {
        case .steer(let entry, let event): try apply(event, to: entry, now: now)
        case .replaceUrl(let entry, let link, let isFromSandbox):
            try replaceUrl(entry, link, isFromSandbox: isFromSandbox, now: now)
        case .remove(let entry):
            if !entry.state.hasEnded { try apply(.cancel, to: entry, now: now) }
            if !entry.isRemoved { remove(entry) }
        case .steerBatch(let batch, let event, let call): apply(event, to: batch, answering: call, now: now)
        case .removeBatch(let batch): remove(batch, now: now)
        case .pauseAll: pauseAll(now: now)
        case .resumeAll: resumeAll(now: now)
        case .cancelAll(let call): cancelAll(answering: call, now: now)
        case .clearEnded(let call, let spared): clearEnded(answering: call, sparing: spared, now: now)
        case .move(let entry, let place, let takesTurn): move(entry, to: place, takesTurn: takesTurn)
        case .setPriority(let entry, let priority): setPriority(entry, priority)
        case .setSpeedLimit(let entry, let limit): setSpeedLimit(entry, limit)
        case .setAllowsMetered(let entry, let allows): setAllowsMetered(entry, allows, now: now)
        case .setDirectory(let entry, let directory): setDirectory(entry, directory, now: now)
        case .setMetadata(let entry, let metadata): setMetadata(entry, metadata)
        case .retryBatch(let batch, let call): retryFailed(of: batch, answering: call, now: now)
        case .set(let settings): set(now: now) { $0 = settings }
        case .resetHost(let host): resetHost(host, now: now)
        case .acknowledge(let entry): acknowledge(entry)
        case .inFront(let apps): conditions.appsInFront = apps
        case .add(let record): _ = insert(record)
        case .addBatch(let record, let members): _ = insert(record, members)
        case .saved(let entry): enter(entry, now: now)
        case .savedBatch(let batch, let members): enter(batch, members, now: now)
        case .savedMembers(let batch, let members): enter(members, of: batch, now: now)
        case .unsaved(let entry): undo(entry)
        case .unsavedBatch(let batch, let members): undo(batch, members)
        case .asks(let id, let host, let origin, let isAnswered, let sharing, let question):
            hop(id, to: host, origin: origin, isAnswered: isAnswered, sharing: sharing, question: question, now: now)
        case .moved(let id, let failure): moved(id, failure, now: now)
        case .sources(let entry, let sources): keep(sources, of: entry)
        case .sent(let id, let time): requestSent(id, at: time, now: now)
        case .shares(let id, let connection): gate.goes(id, over: connection)
        case .joined(let id): joined(id, now: now)
        case .over(let id, let failure): requestOver(id, failure, now: now)
        case .stalled(let id, let isStalled):
            stalled(id, isStalled, now: now)
        case .diskStalled(let number, let isStalled):
            for id in gate.slots[number]?.requests ?? [] { stalled(id, isStalled, now: now) }
        case .began(let id, let response): transferBegan(id, response, now: now)
        case .bodyDropped(let number, let held): bodyDropped(number, held)
        case .grewLarge(let number): grewLarge(number, now: now)
        case .checkpoint(let entry, let resume): checkpoint(entry, resume)
        case .transferEnded(let number, let outcome, let id): transferEnded(number, outcome, by: id, now: now)
        case .verified(let entry, let identity): verified(entry, identity: identity, now: now)
        case .endingFailed(let entry, let failure): endingFailed(entry, failure, now: now)
        case .unpacked(let entry): unpacked(entry, now: now)
        case .unpackingFailed(let entry, let failure, let isDamaged): unpackingFailed(entry, failure, isDamaged: isDamaged, now: now)
        case .unpackingStopped(let entry): unpackingStopped(entry, now: now)
        case .folderCommitted(let entry, let path, let identity): folderCommitted(entry, path: path, identity: identity, now: now)
        case .committed(let entry, let path, let skipped, let copy): committed(entry, path: path, skipped: skipped, copy: copy, now: now)
        case .partLost(let entry): partLost(entry, now: now)
        case .endingDelayed(let entry, let failure): endingDelayed(entry, failure)
        case .foundUnchanged(let entry, let copy): foundUnchanged(entry, copy, now: now)
        case .deleteFolder(let number, let directory): deleteFolder(number, in: directory)
        case .swept(let number, let directory, let isGone): swept(number, in: directory, isGone: isGone)
        case .descriptorLost(let entry): interruptDescriptors(among: [entry], now: now)
        case .time: tick(now: now)
        case .clockJumped(let delta): clockJumped(by: delta, now: now)
        case .network(let condition): network(condition, now: now)
        case .sleeps: sleep(now: now)
        case .wakes: wake()
        case .folderSeen(let directory, let free): folderSeen(directory, free: free, now: now)
        case .journalFull(let isFull): conditions.isJournalFull = isFull
        case .toastSettled(let toast): settle(toast)
        case .ownerCalled(let entry): takeOwnerCall(entry, now: now)
        case .begins(let crashed, let owed): begin(crashed: crashed, owed: owed, now: now)
        case .slice: continueSlices(now: now)
        case .ends:
            conditions.isEnding = true
            interruptDescriptors(now: now)
            removeAllPrivate()
        }
    }

    private func begin(crashed: [DownloadNumber], owed: [OwedToast], now: WallTime) {
        setAside(crashed, now: now)
        goOnCancelling(now: now)
        showOwed(owed, now: now)
    }
}
