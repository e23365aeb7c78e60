public import DownloadModel

/// A turn: the one way into the ledger for whoever carries out what it decides.
extension Ledger {
    /// What happened, or what somebody asks for. An event may be about a download that has ended, was stopped or is off the list by now:
    /// engine, pool and callers learn of an end later than the ledger does.
    public enum Event {
        // What is asked for. `steer`, `replaceUrl` and `remove` may be refused (`Turn.refusal`).
        case steer(LedgerEntry, DownloadEvent)
        /// Takes a fresh link for the same bytes. `isFromSandbox`: the rules of sandboxes hold for the download from here on.
        case replaceUrl(LedgerEntry, FreshLink, isFromSandbox: Bool = false)
        /// Takes a download off the list, cancelled first where it has not ended.
        case remove(LedgerEntry)
        case steerBatch(LedgerBatch, DownloadEvent, answering: CallNumber? = nil)
        case removeBatch(LedgerBatch)
        case pauseAll
        case resumeAll
        case cancelAll(answering: CallNumber)
        case clearEnded(answering: CallNumber)
        /// `takesTurn`: the download is the next one, whichever application's turn it is.
        case move(LedgerEntry, to: UInt32, takesTurn: Bool = true)
        case setPriority(LedgerEntry, Int32)
        case setSpeedLimit(LedgerEntry, Speed?)
        case set(Settings)
        case resetHost(String)
        /// The owner has taken what ended.
        case acknowledge(LedgerEntry)
        /// These applications have their window in front, and no others.
        case inFront(Set<String>)

        // What is new. A row that is not on disk yet counts, but does not run before `saved`.
        case add(DownloadRecord)
        /// The members are those that `prepare` made, with the numbers that follow the batch's.
        case addBatch(BatchRecord, [LedgerEntry])
        case saved(LedgerEntry)
        case savedBatch(LedgerBatch, [LedgerEntry])
        /// Some members of a batch take their places. Nothing starts before `savedBatch`.
        case savedMembers(LedgerBatch, [LedgerEntry])
        /// The row could not be saved: it never was.
        case unsaved(LedgerEntry)
        case unsavedBatch(LedgerBatch, [LedgerEntry])

        // What the engine tells.
        /// The next request of a transfer goes to `host`, by a redirect or once more: `Action.permit` follows when the host takes it.
        case asks(RequestID, host: String, origin: String?)
        case sent(RequestID, at: WallTime)
        /// The server sends nothing, or sends again.
        case stalled(RequestID, Bool)
        case began(LedgerEntry, Response)
        case checkpoint(LedgerEntry, ResumeData)
        /// Every `Action.startTransfer` comes to this once.
        case transferEnded(DownloadNumber, TransferOutcome)

        // What the pool tells.
        /// The part file is flushed and proved; the identity finds it again if the service dies between the rename and the row.
        case verified(LedgerEntry, FileIdentity)
        case endingFailed(LedgerEntry, DownloadFailure)
        /// The file is at `path`; `skipped`: another one is. `copy`: what a later Fetch is to know of it.
        case committed(LedgerEntry, path: String, skipped: Bool = false, copy: CopyHeld? = nil)
        case partLost(LedgerEntry)
        case foundUnchanged(LedgerEntry, CopyHeld)
        /// The part file is deleted; or, where it is not gone for good, that is to be tried again at the next start.
        case swept(DownloadNumber, isGone: Bool)

        /// The descriptor is not there into which it writes.
        case descriptorLost(LedgerEntry)

        // What the world tells.
        case time
        case clockJumped(Duration)
        case network(NetworkCondition?)
        case sleeps
        case wakes
        /// A folder was looked at: `free` bytes are there for us; nil: the folder is not there, or cannot be written.
        case folderSeen(String, free: ByteCount?)
        /// Too many changes wait for the disk, or they do no more.
        case journalFull(Bool)

        // What was announced.
        case toastSettled(OwedToast)
        /// The owner is about to be called, as `owesCall` said.
        case ownerCalled(LedgerEntry)

        // The life of the process.
        /// All is restored; `crashed`: the downloads at which processes before this one crashed again and again.
        case begins(crashed: [DownloadNumber])
        /// A further slice of what is done to many.
        case slice
        /// The process ends: nothing new is started, and what writes into descriptors of callers ends.
        case ends
    }

    /// What the server said of the bytes that come.
    public struct Response {
        public var fileName: String
        public var mediaType: String?
        /// Where redirects led, without credentials and query; nil: nowhere else.
        public var source: String?
        public var total: ByteCount?
        /// The bytes of the part file count from here on.
        public var offset: ByteCount
        /// Whether a later transfer can go on from its bytes, should this one not come to its end.
        public var isResumable: Bool

        public init(
            fileName: String, mediaType: String?, source: String?, total: ByteCount?, offset: ByteCount, isResumable: Bool
        ) {
            (self.fileName, self.mediaType, self.source) = (fileName, mediaType, source)
            (self.total, self.offset, self.isResumable) = (total, offset, isResumable)
        }
    }

    /// What a turn came to.
    public struct Turn {
        /// What is to be done, in this order.
        public let actions: [Action]
        /// Why the first event that was refused was: the state of its download does not allow it. All others have been taken.
        public let refusal: IllegalTransition?
    }

    /// Takes `events` in their order, starts what may start by then, and says what is to be done.
    ///
    /// Nothing outside is called meanwhile: what is known of time is `now`.
    public func turn(_ events: [Event], at now: WallTime) -> Turn {
        var refusal: IllegalTransition?
        isScheduled = true
        for event in events {
            isScheduled = false
            do throws(IllegalTransition) { try take(event, now: now) } catch { refusal = refusal ?? error }
        }
        if !isScheduled { schedule(now: now) }
        return Turn(actions: takeActions(), refusal: refusal)
    }

    private func take(_ event: Event, now: WallTime) throws(IllegalTransition) {
        switch event {
        case .steer(let entry, let event): try apply(event, to: entry, now: now)
        case .replaceUrl(let entry, let link, let isFromSandbox):
            try replaceUrl(entry, link, isFromSandbox: isFromSandbox, now: now)
        case .remove(let entry):
            if !entry.state.hasEnded { try apply(.cancel, to: entry, now: now) }
            if !entry.isRemoved { remove(entry, now: now) }
        case .steerBatch(let batch, let event, let call): apply(event, to: batch, answering: call, now: now)
        case .removeBatch(let batch): remove(batch, now: now)
        case .pauseAll: pauseAll(now: now)
        case .resumeAll: resumeAll(now: now)
        case .cancelAll(let call): cancelAll(answering: call, now: now)
        case .clearEnded(let call): clearEnded(answering: call, now: now)
        case .move(let entry, let place, let takesTurn): move(entry, to: place, takesTurn: takesTurn)
        case .setPriority(let entry, let priority): setPriority(entry, priority)
        case .setSpeedLimit(let entry, let limit): setSpeedLimit(entry, limit)
        case .set(let settings): set(now: now) { $0 = settings }
        case .resetHost(let host): resetHost(host, now: now)
        case .acknowledge(let entry): acknowledge(entry)
        case .inFront(let apps): appsInFront = apps
        case .add(let record): _ = insert(record)
        case .addBatch(let record, let members): _ = insert(record, members)
        case .saved(let entry): enter(entry, now: now)
        case .savedBatch(let batch, let members): enter(batch, members, now: now)
        case .savedMembers(let batch, let members): enter(members, of: batch, now: now)
        case .unsaved(let entry): undo(entry, now: now)
        case .unsavedBatch(let batch, let members): undo(batch, members, now: now)
        case .asks(let id, let host, let origin): hop(id, to: host, origin: origin, now: now)
        case .sent(let id, let time): requestSent(id, at: time, now: now)
        case .stalled(let id, let isStalled):
            if let entry = entries[id.download], entry.request == id { stalled(entry, isStalled, now: now) }
        case .began(let entry, let response):
            transferBegan(
                entry, fileName: response.fileName, mediaType: response.mediaType, source: response.source, total: response.total,
                offset: response.offset, isResumable: response.isResumable, now: now)
        case .checkpoint(let entry, let resume): checkpoint(entry, resume)
        case .transferEnded(let number, let outcome): transferEnded(number, outcome, now: now)
        case .verified(let entry, let identity): verified(entry, identity: identity, now: now)
        case .endingFailed(let entry, let failure): endingFailed(entry, failure, now: now)
        case .committed(let entry, let path, let skipped, let copy): committed(entry, path: path, skipped: skipped, copy: copy, now: now)
        case .partLost(let entry): partLost(entry, now: now)
        case .foundUnchanged(let entry, let copy): foundUnchanged(entry, copy, now: now)
        case .swept(let number, let isGone): swept(number, isGone: isGone, now: now)
        case .descriptorLost(let entry): interruptDescriptors(among: [entry], now: now)
        case .time: tick(now: now)
        case .clockJumped(let delta): clockJumped(by: delta, now: now)
        case .network(let condition): network(condition, now: now)
        case .sleeps: sleep(now: now)
        case .wakes: wake(now: now)
        case .folderSeen(let directory, let free): folderSeen(directory, free: free, now: now)
        case .journalFull(let isFull): isJournalFull = isFull
        case .toastSettled(let toast): settle(toast)
        case .ownerCalled(let entry): takeOwnerCall(entry, now: now)
        case .begins(let crashed): begin(crashed: crashed, now: now)
        case .slice: continueSlices(now: now)
        case .ends:
            isEnding = true
            interruptDescriptors(now: now)
        }
    }

    private func begin(crashed: [DownloadNumber], now: WallTime) {
        setAside(crashed, now: now)
        goOnCancelling(now: now)
        let toasts = takeOwedToasts(now: now)
        if !toasts.isEmpty { actions.append(.showOwed(toasts)) }
    }
}
