public import DownloadModel

/// The end of a transfer, as far as the scheduler needs to know.
public enum TransferOutcome: Equatable, Sendable {
    /// The part file holds the whole body, not flushed yet. Only the validator and the identity of the resume data count.
    case complete(size: ByteCount, fileName: String, ResumeData)
    /// `madeProgress`: the resume data has more bytes than the transfer started with.
    case failed(DownloadFailure, madeProgress: Bool, ResumeData?)
    case stopped(ResumeData?)
    /// The file name is taken, and `if-exists` is `skip` or `fail`; nothing was fetched.
    case nameTaken(path: String)
    /// The server has nothing newer than the cached copy; nothing was fetched.
    case unchanged(CachedCopy)
}

/// Events from the engine and the pool.
extension Scheduler {
    /// Whether the files of the download are being written or read.
    func isAtWork(_ entry: ScheduledDownload) -> Bool { entry.work != .idle || entry.isInPool }

    /// Whether no transfer may begin yet: the files are in use, or the part file still has to be deleted.
    func isBusy(_ entry: ScheduledDownload) -> Bool {
        if isAtWork(entry) { return true }
        return !sweeps.isEmpty && (sweeps[entry.number] != nil || sweeps.isLate(entry.number, in: entry.record.directory))
    }

    /// Whether there is work now, or work that resumes by itself: at a known instant, or when a folder, free space or the network appears.
    /// The end of secrets is no such work.
    public var hasWork: Bool {
        counts.queued > 0 || counts.active > 0 || counts.verifying > 0 || counts.waitingForTime > 0 || isDueForWork || !leaving.isEmpty
            || !sweeps.isEmpty || working > 0
    }

    // MARK: Transfers

    /// The engine accepted the response to a request. The download may already be stopped or removed.
    func transferBegan(_ id: RequestID, _ response: Response, now: WallTime) {
        guard let entry = entries[id.download] ?? leaving[id.download] else { return }
        entry.mayHavePart = true
        entry.heldFacts = response.offset > 0 ? nil : entry.heldFacts ?? HeldFacts(of: entry)
        entry.isResumable = response.isResumable
        entry.otherRepresentations = response.otherRepresentations
        // The download may have been stopped before this event arrived. The bytes still belong to this response, and a later start may need
        // no other response. The download may also have ended: then the bytes are deleted, unless the transfer leaves resume data.
        guard mayKeepBytes(entry) else { return }
        let isRunning = entry.work == .running
        if isRunning {
            gate.answered(id, now: now)
            entry.wasRefused = false
        }
        change(entry) { record in
            record.learn(response)
            record.isSpliced = response.offset > 0
            record.proof = response.total == nil ? nil : .length
            if isRunning { record.awaitsUrl = false }
        }
        learnSize(of: entry, now: now)
        if isRunning { gate.goes(id, over: response.connection) }
    }

    /// Whether the bytes of the transfer may stay. If not, nothing about them matters.
    private func mayKeepBytes(_ entry: ScheduledDownload) -> Bool {
        entry.work != .idle && !entry.isRemoved && sweeps[entry.number]?.isUnlessResumable ?? true
    }

    /// A response has announced another file, and its body was dropped. A later response may continue the held bytes without a name.
    func bodyDropped(_ number: DownloadNumber, _ held: Response) {
        guard let entry = entries[number], mayKeepBytes(entry) else { return }
        (entry.heldFacts, entry.isResumable) = (nil, held.isResumable)
        change(entry) { $0.learn(held) }
    }

    /// The transfer has ended. If the disk did not answer, the engine could not report that it has dropped the body of the last response.
    private func takeBackHeldFacts(of entry: ScheduledDownload, after outcome: TransferOutcome) {
        guard let facts = entry.heldFacts else { return }
        entry.heldFacts = nil
        if case .complete = outcome { return }
        guard let resume = outcome.resume, facts.areOf(resume), mayKeepBytes(entry) else { return }
        change(entry) { facts.restore(&$0, of: entry) }
    }

    /// The engine has written bytes to disk.
    func checkpoint(_ entry: ScheduledDownload, _ resume: ResumeData) {
        guard entry.work == .running else { return }
        if let facts = entry.heldFacts, !facts.areOf(resume) { entry.heldFacts = nil }  // the other file has replaced the held bytes
        entry.record.keep(resume)
        save(entry)
    }

    /// The transfer has learned something about its sources. The transfer of the former URL, which is stopping after `replaceUrl`, does not
    /// count.
    func keep(_ sources: [SourceRecord], of entry: ScheduledDownload) {
        guard entry.work != .idle, !entry.isRemoved, sources.first?.url == entry.record.url else { return }
        let known = entry.record.sources
        change(entry) { $0.sources = sources }
        // After a kill, no source with wrong bytes is asked again. Held bytes name their mirror by its index.
        let hasNew = entry.record.options.findsMirrors && sources.count != known.count
        if hasNew || sources.contains(where: { one in one.left == .wrongBytes && known.first { $0.url == one.url }?.left != .wrongBytes }) {
            save(entry)
        }
    }

    /// The transfer of `number` has ended. Every `startTransfer` is answered by exactly one such event.
    ///
    /// - Parameter id: the request whose response ended the transfer; nil: no response did.
    func transferEnded(_ number: DownloadNumber, _ outcome: TransferOutcome, by id: RequestID?, now: WallTime) {
        guard let entry = entries[number] ?? leaving.removeValue(for: number) else { return }
        let (wasStopped, request) = (entry.state != .active, entry.request)
        defer { gate.forget(request) }
        takeBackHeldFacts(of: entry, after: outcome)
        entry.work = .idle
        working -= 1
        var outcome = outcome
        // A refusal counts even if the transfer was stopped meanwhile.
        if case .failed(var failure, let madeProgress, let resume) = outcome, let id {
            note(failure, by: id, now: now)
            if failure.retryAfter != nil { failure.origin = gate.origin(of: id) }
            outcome = .failed(failure, madeProgress: madeProgress, resume)
        }
        // After a mere stop (sleep, PauseAll, another application's turn), a person still wants the download at once.
        if !outcome.isStop { entry.isUrgent = false }
        if wasStopped || outcome.isStop {
            // The transfer was told to stop, or the service is exiting: whatever the outcome, keep its bytes.
            if let sweep = sweeps[number], sweep.isUnlessResumable, outcome.resume != nil, !entry.isRemoved {
                sweeps[number] = nil
                output.append(.save(sweeps.row(number)))
            }
            if sweeps[number] == nil, !entry.isRemoved {
                change(entry) { record in
                    switch outcome {
                    case .complete(let size, let name, let part):
                        record.complete(size: size, fileName: name, part)
                        record.isWhole = true
                    case .failed(_, _, let resume), .stopped(let resume):
                        record.keep(record.isToDescriptor && record.state.hasEnded ? nil : resume)
                    case .nameTaken, .unchanged: break  // nothing was fetched: the bytes stay as they were
                    }
                }
                // The held bytes may come from another source now. The download is in no lane yet, because its files were in use.
                entry.findPlace()
                save(entry)
                output.append(.tell(entry))
                switch entry.state {
                case .failed: dropUselessBytes(entry)
                case .paused, .waiting: dropBytesOfWait(entry)
                default: break
                }
            } else if entry.isRemoved {
                sweep(entry)
            }
            return beginSweep(entry)
        }
        switch outcome {
        case .complete(let size, let name, let resume):
            gate.finished(size)
            entry.uncountedAttempts = 0
            change(entry) { $0.complete(size: size, fileName: name, resume) }
            applyOwn(.bodyComplete, to: entry, now: now)
        case .failed(let failure, let madeProgress, let resume): failed(entry, failure, madeProgress, resume, now: now)
        case .nameTaken(let path):
            if entry.record.options.ifExists == .skip {
                change(entry) { record in
                    (record.path, record.fileName) = (path, path.pathComponents.last.map(String.init) ?? record.fileName)
                    // These facts came from an earlier response about another file.
                    (record.total, record.mediaType, record.source) = (nil, nil, nil)
                }
                applyOwn(.skipped, to: entry, now: now)
            } else {
                applyOwn(.fail(.alreadyExists(path)), to: entry, now: now)
            }
        case .unchanged(let copy):
            if let id { gate.answered(id, now: now) }
            // The copy's validators are sent to one URL only, maybe after redirects. So the 304 came from there.
            let source = copy.validators?.source ?? entry.record.url
            change(entry) { $0.source = source == $0.url ? nil : (try? DownloadURL(source))?.redacted }
            end(entry, with: copy, now: now)
        case .stopped: break
        }
    }

    private func failed(_ entry: ScheduledDownload, _ failure: DownloadFailure, _ madeProgress: Bool, _ resume: ResumeData?, now: WallTime)
    {
        let madeProgress = madeProgress && resume != nil
        var (verdict, used, uncounted) = RetryPolicy.verdict(
            record: entry.record, failure: failure, madeProgress: madeProgress, uncounted: entry.uncountedAttempts, now: now,
            random: jitter.next())
        // After a request with a body, a failure is final, even if the network is gone.
        let isFinal = entry.record.options.isPostSent && !failure.isRetryable && failure.wait == nil
        if !isFinal, failure.isLostConnection || failure.wait == .offline, lostNetwork(entry) {
            verdict = .wait(.offline, until: nil)
            (used, uncounted) = madeProgress ? (0, 0) : (entry.record.retriesUsed, entry.uncountedAttempts)
        }
        entry.uncountedAttempts = uncounted
        change(entry) { record in
            record.keep(resume)
            (record.retriesUsed, record.lastFailure) = (used, failure)
        }
        // The engine had opened the part file before the server answered, and found no bytes to resume from. An earlier process may have
        // left such bytes.
        if failure.httpStatus != nil, resume == nil { entry.isResumable = false }
        switch verdict {
        case .fail: applyOwn(entry.record.keepsBytes(after: failure) ? .refuse(failure) : .fail(failure), to: entry, now: now)
        case .wait(let reason, let until):
            // The request did not go out: otherwise the engine says that each failure is final.
            if entry.record.options.postData != nil { change(entry) { $0.options.isPostSent = false } }
            dropBytesOfWait(entry)
            applyOwn(.wait(reason, until: until), to: entry, now: now)
            if reason == .retry { reconsider(entry, isBack: false, now: now) }
        }
    }

    /// Deletes the part file of a failed download if no later attempt can resume from it.
    func dropUselessBytes(_ entry: ScheduledDownload) {
        let isToDescriptor = entry.record.isToDescriptor
        guard entry.record.resume == nil || isToDescriptor, !entry.isRemoved else { return }
        // A transfer that is still stopping may leave resume data. A download into a descriptor never resumes.
        sweep(entry, unlessResumable: entry.work != .idle && !isToDescriptor)
    }

    /// Deletes the part file of a waiting or paused download if no later attempt can resume from it, because downloads may wait for this
    /// space. Applies only to a response of this process: after a restart, the written map may prove bytes that the row does not.
    private func dropBytesOfWait(_ entry: ScheduledDownload) {
        guard !entry.isResumable, entry.record.resume == nil, !entry.record.isWhole, !entry.record.isToDescriptor, !entry.isRemoved else {
            return
        }
        sweep(entry)
    }

    // MARK: Verification and commit

    /// The part file is flushed and verified. If the service dies between the rename and the row, `identity` finds the file again.
    func verified(_ entry: ScheduledDownload, identity: FileIdentity, now: WallTime) {
        guard leavePool(entry, now: now), entry.state == .verifying else { return }
        entry.record.resume = ResumeData(
            written: entry.record.received, total: entry.record.total, validator: entry.record.resume?.validator, identity: identity,
            digest: entry.record.resume?.digest, mirror: entry.record.resume?.mirror)
        entry.record.proof = entry.record.proofOfVerification
        // PauseAll does not stop a verification, so the extraction must be held now.
        let unpacks: DownloadEvent = settings.paused ? .wait(.pausedAll, until: nil) : .unpack
        applyOwn(entry.record.folderName == nil ? .verified : unpacks, to: entry, now: now)
    }

    /// All files of the archive are on disk.
    func unpacked(_ entry: ScheduledDownload, now: WallTime) {
        guard leavePool(entry, now: now), entry.state == .extracting else { return }
        applyOwn(.unpacked, to: entry, now: now)
    }

    /// This archive cannot be unpacked, now or later. `isDamaged`: its bytes are wrong. If no checksum has proved them, the server may have
    /// right ones.
    func unpackingFailed(_ entry: ScheduledDownload, _ failure: DownloadFailure, isDamaged: Bool, now: WallTime) {
        guard leavePool(entry, now: now), entry.state == .extracting else { return }
        change(entry) { $0.lastFailure = failure }
        applyOwn(isDamaged && !entry.record.options.provesFile ? .spoil(failure) : .fail(failure), to: entry, now: now)
    }

    /// The verification, the extraction or the commit failed.
    func endingFailed(_ entry: ScheduledDownload, _ failure: DownloadFailure, now: WallTime) {
        guard leavePool(entry, now: now) else { return }
        if failure.name == .checksumMismatch, entry.state == .verifying {
            var record = entry.record
            let mayStartOver = record.learnFromMismatch()
            change(entry) { $0.sources = record.sources }
            if mayStartOver {
                applyOwn(.startOver, to: entry, now: now)
                return
            }
        }
        let (verdict, used, uncounted) =
            failure.wait != nil || failure.isShortage
            ? RetryPolicy.verdict(
                record: entry.record, failure: failure, madeProgress: false, uncounted: entry.uncountedAttempts, now: now,
                random: jitter.next())
            : (.fail, entry.record.retriesUsed, entry.uncountedAttempts)
        entry.uncountedAttempts = uncounted
        change(entry) { record in
            (record.retriesUsed, record.lastFailure) = (used, failure)
            // After a failed flush, the next flush may succeed without writing: only the checkpoint before the failure counts.
            if record.state == .verifying, !failure.isShortage { record.isWhole = false }
        }
        switch verdict {
        case .fail: applyOwn(.fail(failure), to: entry, now: now)
        case .wait(let reason, let until):
            applyOwn(.wait(reason, until: until), to: entry, now: now)
            // PauseAll does not stop a verification or a commit, so the wait must be held now.
            if settings.paused { settle(entry, now: now) } else { reconsider(entry, isBack: false, now: now) }
        }
    }

    /// The disk does not answer. The download's error says so; the outcome for the file is not known yet.
    func endingDelayed(_ entry: ScheduledDownload, _ failure: DownloadFailure) {
        guard entry.state.isEnding, !entry.isRemoved else { return }
        change(entry) { $0.lastFailure = failure }
        output.append(.tell(entry))
    }

    /// The file is at `path`; `skipped`: `path` is an existing file, and the part file is deleted. `copy`: for later `Fetch` calls.
    func committed(_ entry: ScheduledDownload, path: String, skipped: Bool, copy: CachedCopy? = nil, now: WallTime) {
        guard leavePool(entry, now: now), entry.state == .committing else { return }
        change(entry) { $0.path = path.isEmpty ? nil : path }  // nil for a caller's descriptor
        if let copy { output.append(.save(.keepCopy(copy))) }
        applyOwn(skipped ? .skipped : .committed, to: entry, now: now)
    }

    /// The unpacked folder is at `path`.
    func folderCommitted(_ entry: ScheduledDownload, path: String, identity: FileIdentity, now: WallTime) {
        guard leavePool(entry, now: now), entry.state == .committing else { return }
        change(entry) { record in
            record.path = path
            // The archive is deleted. From now on, the folder is the file of the download.
            record.resume = ResumeData(ranges: ByteRanges(), total: record.total, validator: nil, identity: identity)
        }
        applyOwn(.folderCommitted, to: entry, now: now)
    }

    /// Neither the whole part file nor the final file exists.
    func partLost(_ entry: ScheduledDownload, now: WallTime) {
        guard leavePool(entry, now: now) else { return }
        applyOwn(.partLost, to: entry, now: now)
    }

    /// The pool has released the part file of `entry`. Returns false if the download has left verification, extraction and commit
    /// meanwhile, so that the outcome no longer counts.
    func leavePool(_ entry: ScheduledDownload, now: WallTime) -> Bool {
        entry.isInPool = false
        leaving[entry.number] = nil
        if entry.state.isEnding, !entry.isRemoved { return true }
        beginSweep(entry)
        return false
    }

    /// The pool has stopped unpacking, because the download was stopped or the service exits. The next process continues in that case.
    func unpackingStopped(_ entry: ScheduledDownload, now: WallTime) { _ = leavePool(entry, now: now) }

    // MARK: Deleting part files

    /// Deletes the part file: now, or as soon as its transfer has ended. If this process dies before, the next startup deletes it.
    ///
    /// - Parameter unlessResumable: keep the part file if the ending transfer leaves resume data.
    func sweep(_ entry: ScheduledDownload, unlessResumable: Bool = false) {
        if !unlessResumable { sweeps[entry.number]?.isUnlessResumable = false }
        let folder = entry.record.directory
        // A transfer may have created a part file that it has not reported yet.
        guard sweeps[entry.number]?.folders.has(folder) != true, !sweeps.isLate(entry.number, in: folder),
            entry.mayHavePart || entry.work != .idle
        else { return }
        if sweeps[entry.number] == nil {
            sweeps[entry.number] = PartFileSweeps.Sweep(folders: [folder], isUnlessResumable: unlessResumable)
        } else {
            sweeps[entry.number]?.folders.append(folder)  // behind the deletion in a folder that the download has left
        }
        if !entry.record.isToDescriptor { output.append(.save(sweeps.row(entry.number))) }
        // A download queued in the same turn must not begin before the deletion.
        if entry.lane != nil { makeRunnable(entry) }
        beginSweep(entry)
    }

    /// Begins the next deletion, unless the part file is in use. In a folder that the download has left, nothing is in use: no event of the
    /// pool would begin that deletion later.
    func beginSweep(_ entry: ScheduledDownload) {
        guard let sweep = sweeps[entry.number], !sweep.isUnderWay, !isAtWork(entry) || !isOwn(sweep, entry) else { return }
        if entry.mayHavePart || !isOwn(sweep, entry) {
            begin(sweep, of: entry.number)
        } else {
            swept(entry.number, in: sweep.directory, isGone: true)
        }
    }

    /// Whether the part file is in the folder of the download, not in one that the download has left.
    private func isOwn(_ sweep: PartFileSweeps.Sweep, _ entry: ScheduledDownload) -> Bool {
        sweep.directory.isSameBytes(as: entry.record.directory)
    }

    func begin(_ sweep: PartFileSweeps.Sweep, of number: DownloadNumber) {
        sweeps[number]?.isUnderWay = true
        output.append(.sweep(number, directory: sweep.directory))
    }

    /// Whether the download is in another folder than `directory`. Then its written map may be of a part file there, also if the record has
    /// no bytes: before the first checkpoint, only the map proves bytes. A map of a former part file is removed when the download starts.
    public func hasLeft(_ directory: String, _ number: DownloadNumber) -> Bool {
        entries[number].map { !$0.record.directory.isSameBytes(as: directory) } ?? false
    }

    /// Deletes the unpacked folder of a removed download as a part file is deleted: its row stays until the folder is gone.
    func deleteFolder(_ number: DownloadNumber, in directory: String) {
        let sweep = PartFileSweeps.Sweep(folders: [directory])
        // The archive may be being deleted.
        let isFirst = sweeps[number] == nil
        if isFirst { sweeps[number] = sweep } else { sweeps[number]?.folders.append(directory) }
        output.append(.save(sweeps.row(number)))
        if isFirst { begin(sweep, of: number) }
    }

    /// A deletion has ended. `isGone` false: the part file may still exist; the next startup tries again.
    func swept(_ number: DownloadNumber, in directory: String, isGone: Bool) {
        if sweeps.endLate(number, in: directory, isGone: isGone) {
            if isGone { output.append(.save(sweeps.row(number))) }
            return
        }
        guard let sweep = sweeps.end(number, isGone: isGone) else { return }
        let isToDescriptor = sweep.directory.isEmpty
        if isGone || isToDescriptor, let entry = entries[number], isOwn(sweep, entry) { entry.mayHavePart = false }
        sweeps[number] = sweep.rest
        if isGone, !isToDescriptor { output.append(.save(sweeps.row(number))) }
        guard let rest = sweep.rest else { return }
        if let entry = entries[number] ?? leaving[number] { beginSweep(entry) } else { begin(rest, of: number) }
    }

    // MARK: A fresh link

    /// Sets a fresh link for the same bytes. An active or failed download, or one that waits for a link or a retry, is queued again.
    ///
    /// - Parameter isFromSandbox: from now on, the rules for sandboxed apps apply to the download, whoever queued it.
    func replaceUrl(
        _ entry: ScheduledDownload, _ link: FreshLink, isFromSandbox: Bool = false, now: WallTime
    ) throws(IllegalTransition) {
        let url = link.url
        _ = try entry.state.after(.renew)
        index.count(entry.record, -1)
        defer { index.count(entry.record, 1) }
        change(entry) { record in
            let old = record.url
            link.apply(to: &record.options, from: old)
            record.url = url.text
            record.source = nil
            if old != url.text { record.sources.removeAll { $0.url == old } }  // it is no mirror
            if isFromSandbox { record.options.isSandboxed = true }
            record.awaitsUrl = false
        }
        entry.otherRepresentations = []  // the former source has stated them
        let isInLane = entry.lane != nil
        leaveLane(entry)
        (entry.host, entry.origin, entry.isFirstLocal) = (url.host, url.origin, isLoopbackAddress(url.host))
        entry.findPlace()
        if isInLane || entry.state == .queued { makeRunnable(entry) }
        save(entry)
        output.append(.tell(entry))
        try apply(.renew, to: entry, now: now)
    }
}

extension TransferOutcome {
    fileprivate var isStop: Bool { if case .stopped = self { true } else { false } }

    fileprivate var resume: ResumeData? {
        switch self {
        case .complete(_, _, let resume): resume
        case .failed(_, _, let resume), .stopped(let resume): resume
        case .nameTaken, .unchanged: nil
        }
    }
}

extension DownloadRecord {
    mutating func keep(_ resume: ResumeData?) { (self.resume, received) = (resume, resume?.written ?? 0) }

    fileprivate mutating func learn(_ response: Scheduler.Response) {
        (fileName, mediaType, total, source) = (response.fileName, response.mediaType, response.total, response.source)
    }

    /// Whether a transfer that found a file of a wrong size leaves bytes that a later transfer can continue.
    ///
    /// The response may be another one than that of the held bytes, such as a login page. The engine keeps no bytes of a body that has a
    /// wrong size itself, unless its pieces have digests.
    func keepsBytes(after failure: DownloadFailure) -> Bool {
        guard failure.name == .sizeMismatch || failure.name == .tooLarge, let resume, resume.written > 0 else { return false }
        guard let total = resume.total else { return true }
        return total == options.size ?? total && total <= options.maxSize ?? total
    }

    /// The whole body was received, by a transfer that was stopped or not.
    mutating func complete(size: ByteCount, fileName: String, _ part: ResumeData) {
        (total, self.fileName, retriesUsed, lastFailure) = (size, fileName, 0, nil)
        keepWhole(part, size: size)
    }

    /// The part file is whole, but not flushed: only the ranges of the last checkpoint are known to be on disk.
    mutating func keepWhole(_ part: ResumeData, size: ByteCount) {
        let isSame = resume.map { ($0.identity.device, $0.identity.inode) == (part.identity.device, part.identity.inode) } ?? false
        let durable = isSame ? resume?.ranges.clipped(to: size) ?? ByteRanges() : ByteRanges()
        resume = ResumeData(
            ranges: durable, total: size, validator: part.validator, identity: part.identity, digest: part.digest, mirror: part.mirror)
        received = size
    }
}

extension DownloadFailure {
    fileprivate static func alreadyExists(_ path: String) -> DownloadFailure {
        DownloadFailure(.alreadyExists, "\(path) exists already, and the option if-exists is “fail”.")
    }
}
