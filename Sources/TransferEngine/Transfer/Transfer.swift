internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import PartFiles
internal import Transport

/// The engine's work on one download between a start and its end. Lives on the engine's thread; libcurl's callbacks reach it through
/// `Attempt`.
final class Transfer {
    let request: TransferRequest
    /// In the order of preference, the URL of the download first.
    var sources: [Source]
    /// The number of the next mirror that a response names.
    var nextMirror: UInt32
    /// The bytes of the URLs that responses have named.
    var foundMirrorBytes: Int
    /// The facts about the sources as last reported.
    var reportedSources: [SourceRecord] = []
    let boot: String
    let staging: StagingBuffer
    /// Set by `prepare`.
    private(set) var folder: OpenFolder?
    /// The part file in its place, which checkpoints and the written map describe.
    private(set) var part: PartFile?
    /// Bytes of another representation than that of `part`, until they are complete, or suffice to replace the bytes of `part`.
    private(set) var candidate: PartFile?
    /// The state of the pieces of `part`, and of the pieces of `candidate`; nil: the pieces have no digests.
    private(set) var pieces: PieceLedger?
    private var candidatePieces: PieceLedger?
    /// Whether the source of `candidate` has stated this representation in the previous transfer, too.
    private var isCandidateKnown = false
    /// The representations that sources have stated instead of that of the held bytes, since the last response that continued these
    /// bytes: in the previous transfer, and in this one (the last of each source).
    private var statedBefore: [OtherRepresentation]
    private(set) var otherRepresentations: [OtherRepresentation] = []
    /// The end of the transfer, once all pieces are checked; nil: bytes are missing.
    var whole: (end: TransferEnd, by: RequestID)?
    private var replaceError: DiskError?

    /// The plan: the segments that fetch the file, each a stretch of it (`Plan.swift`).
    var segments: [Segment] = []
    /// Whether the request with the body may have reached the server.
    var isBodySent = false
    /// The cookies of the transfer's requests (`TransferCookies.swift`).
    var jar = TransferJar()
    /// The number of segments that the transfer has had.
    var segmentCount: UInt32 = 1
    /// The mean speed of the last response that ended, in bytes a second; nil: none has ended yet.
    var lastSpeed: Double?
    /// How many connections an automatic transfer uses.
    var trial = ConnectionTrial()
    /// How often in a row a segment has lost its connection.
    var losses = 0
    /// No segment is added before this instant.
    var growsAfter = SuspendingClock.now
    /// The most segments from now on: a server has refused a further request, or one source alone must fetch a wrong piece again.
    var mostSegmentsNow = Int.max
    /// The cached copy that may answer this request. It was unmodified when the transfer began.
    private var copy: CachedCopy?
    /// The validators of the representation being received.
    var validators: CopyValidators?
    /// Whether a response contradicted the held bytes. Then only a whole body counts.
    var isDistrusted = false
    /// The bytes that the flush under way brings to disk, without those that turned out to be wrong since it began.
    private var covered = ByteRanges()

    /// The facts of the last accepted response.
    var facts: TransferFacts?
    /// The name and the media type of the file of `part`, from the responses of this transfer; nil: from earlier ones.
    var partFacts: TransferFacts?
    /// Whether the next body continues the previous one (a further 206 of the same source): its beginning is not announced again.
    var isFurtherPart = false
    private var heldAtStart: ByteCount = 0

    var meter = SpeedMeter()
    var reported: TransferProgress?
    var received: ByteCount { (candidate ?? part)?.written ?? 0 }
    var receivedAtTick: ByteCount = 0

    /// Events to report, in order.
    var events: [TransferEvent] = []
    /// The last reported checkpoint: the bytes on disk.
    var checkpoint: ResumeData?
    var lastCheckpoint = SuspendingClock.now
    /// The part file being flushed; kept here so that its descriptor stays open meanwhile.
    var syncing: PartFile? { didSet { if let syncing { covered = syncing.ranges } } }
    var isSyncing: Bool { syncing != nil }
    /// The last flush.
    var flush: DiskWork?
    /// Set once nothing more is fetched: the end to report after the last flush.
    var conclusion: Conclusion?
    /// The request by which the transfer came to its conclusion; nil: no request did.
    var concludedBy: RequestID?

    /// How the next request to a source asks, if bytes are held. A source only moves down this list.
    enum Ask {
        /// For the rest, if the validator still matches (`If-Range`).
        case conditional
        /// For the rest, without a condition: the response must prove its representation.
        case bare
        /// For the whole.
        case whole
    }

    enum Conclusion {
        case failed(DownloadFailure)
        case stopped
        case whole(TransferEnd)
    }

    init(_ request: TransferRequest, boot: String, staging: StagingBuffer, pace: SharedPace) {
        (self.request, self.boot, self.staging) = (request, boot, staging)
        statedBefore = request.otherRepresentations
        let given = request.sources.isEmpty ? [TransferSource(request.url)] : request.sources
        sources = given.map { Source($0) }
        (nextMirror, foundMirrorBytes) = (request.mirrorCount, request.foundMirrorBytes)
        let first = sources[sources.indices.contains(request.firstSource) ? request.firstSource : 0]
        segments = [Segment(of: self, id: request.id, pace: Pace(pace, limit: request.speedLimit ?? 0), at: first)]
    }

    // MARK: The plan

    var isFetching: Bool { segments.contains { $0.exchange != nil } }

    /// Ends all exchanges, and the check of pieces.
    func stop() {
        for segment in segments { segment.stop() }
        pieces?.giveUp()
    }

    /// Sets the limit of all segments together, in bytes per second; 0: no limit.
    func setLimit(_ limit: Speed) {
        for segment in segments { segment.pace.limit = limit }
    }

    // MARK: Before the first request

    /// Opens the folder and the held bytes. Returns the end, if the transfer ends at once.
    func prepare() -> TransferEnd? {
        do throws(DiskError) {
            if let held = request.descriptor {
                part = try PartFile.reopen(in: held, resume: request.resume, hasChecksum: request.hasChecksum, boot: boot)
                return takeStock()
            }
            let folder = try OpenFolder.open(request.directory, allowHidden: request.allowsHiddenFolders)
            self.folder = folder
            _ = try? folder.removeOwn(PartFile.candidateName(request.partName))
            if let copy = request.copy, serves(copy), isIntact(copy) { self.copy = copy }
            // Under `fail`, an unchanged file of the cached copy does not count as an existing file.
            if let name = request.fileName ?? request.extract?.name, copy == nil || request.ifExists == .skip,
                let path = try takenPath(name)
            {
                return .nameTaken(path: path)
            }
            part = try PartFile.reopen(
                in: folder, name: request.partName, resume: request.resume, hasChecksum: request.hasChecksum, mapPath: request.mapPath,
                boot: boot)
            if part == nil, let resume = request.resume, !resume.ranges.isEmpty, try isOtherDisk(folder, resume.identity) {
                return .failed(otherDisk(resume.written), madeProgress: false, resume)
            }
        } catch {
            return .failed(failure(error), madeProgress: false, request.resume)
        }
        return takeStock()
    }

    /// Makes the held bytes the start of this transfer.
    private func takeStock() -> TransferEnd? {
        guard let part else { return nil }
        pieces = ledger(of: part)
        part.diskReserve = request.diskReserve
        heldAtStart = part.written
        receivedAtTick = part.written
        let onDisk = sameRepresentation(part) ? request.resume?.ranges.intersection(part.ranges) : nil
        checkpoint = part.resumeData(onDisk ?? ByteRanges())
        if pieces != nil { disownBytes() }
        return nil
    }

    private func ledger(of file: PartFile) -> PieceLedger? {
        guard let hashes = request.pieces, let size = request.expectedSize, hashes.fits(size) else { return nil }
        return PieceLedger(hashes, size: size, held: file.ranges, failures: pieces?.failures ?? [:])
    }

    /// The download's failure for an error of the disk.
    func failure(_ error: DiskError) -> DownloadFailure {
        request.descriptor == nil ? error.failure(folder: request.directory) : error.descriptorFailure
    }

    /// Whether the resume data, and not only the written map, describes the opened part file.
    private func sameRepresentation(_ part: PartFile) -> Bool {
        guard let resume = request.resume else { return false }
        return resume.identity.inode == part.identity.inode && resume.validator == part.validator && resume.mirror == part.mirror
            && (resume.digest == nil || part.digest == nil || resume.digest == part.digest)
    }

    /// Whether the part file is missing because its disk is: the folder is an empty mount point, or is on another disk.
    private func isOtherDisk(_ folder: OpenFolder, _ identity: FileIdentity) throws(DiskError) -> Bool {
        guard folder.status(request.partName) == nil, try fileIdentity(of: folder.descriptor, boot: boot).device != identity.device else {
            return false
        }
        // On some file systems (overlayfs), files have another device number than folders, so a trial file decides. An empty mount point
        // often belongs to root.
        guard let probe = try? PartFile.create(in: folder, name: request.partName, mapPath: nil, boot: boot) else { return true }
        probe.remove()
        return probe.identity.device != identity.device
    }

    private func otherDisk(_ held: ByteCount) -> DownloadFailure {
        DownloadFailure(
            .writeFailed, "\(request.directory) is now on another disk than the \(held) bytes already downloaded; connect that disk again.",
            wait: .destination)
    }

    // MARK: The cached copy

    /// Whether the cached copy satisfies this request, if the server confirms that the copy is current.
    private func serves(_ copy: CachedCopy) -> Bool {
        guard copy.validators != nil, !request.hasChecksum || request.checksum != nil && copy.checksum == request.checksum else {
            return false
        }
        if let expected = request.expectedSize, copy.stamp.size != expected { return false }
        if let most = request.maxSize, copy.stamp.size > most { return false }
        guard let expected = request.expectedType else { return true }
        return copy.mediaType.map { expected.hasSuffix("/*") ? $0.hasPrefix(expected.dropLast()) : $0 == expected } ?? false
    }

    private func isIntact(_ copy: CachedCopy) -> Bool {
        guard copy.key.directory.isSameBytes(as: request.directory), let status = folder?.status(copy.name) else { return false }
        return folder?.isOurs(status) == true && copy.stamp.isOf(status.stamp(boot: boot))
    }

    /// The conditions with which a request to `url` asks only for a file newer than the copy; nil: the request asks for the file, for
    /// example because newer bytes are held. A validator belongs to the URL that sent it.
    func copyValidators(for url: DownloadURL, of source: Source) -> CopyValidators? {
        guard part == nil, ask(of: source) == .conditional, let validators = copy?.validators, validators.source == url.text else {
            return nil
        }
        return validators
    }

    /// The copy, if a 304 with this head can be about it, and the copy is still unmodified.
    func unchangedCopy(_ head: ResponseHead) -> CachedCopy? {
        guard let copy, copy.validators?.matches(entityTag: head.text("etag"), lastModified: head.text("last-modified")) == true,
            isIntact(copy)
        else { return nil }
        return copy
    }

    // MARK: Body bytes

    /// Writes bytes of a body at `place`. A failure stays in the `error` of the file.
    func write(_ bytes: UnsafeRawBufferPointer, at place: ByteCount, from source: Source) {
        if let ledger = candidate == nil ? pieces : candidatePieces, let index = sources.firstIndex(where: { $0 === source }) {
            ledger.wrote(place..<(place +| ByteCount(bytes.count)), index)
        }
        guard let candidate else {
            try? part?.write(bytes, at: place)
            return
        }
        try? candidate.write(bytes, at: place)
        let held = part?.written ?? 0
        if candidate.written > (isCandidateKnown ? min(held, Self.leastKept) : held) { replacePart() }
    }

    /// The received bytes may be of another representation: from now on, only a whole body counts.
    func distrust() { isDistrusted = true }

    var diskFailure: DownloadFailure? {
        let file = candidate ?? part
        guard var failure = (replaceError ?? file?.error).map(failure) else { return nil }
        if failure.wait == .diskSpace { failure.neededRoom = file?.neededRoom }
        return failure
    }

    /// Whether a flush can still prove the written bytes. A flush can do so after a full disk, which keeps the accepted bytes.
    var mayFlush: Bool { part?.error.map { [ENOSPC, EDQUOT, EFBIG].contains($0.code) } ?? true }

    /// Whether the next transfer can resume with more bytes than this one could.
    func madeProgress(keeping resume: ResumeData?) -> Bool { resume?.written ?? 0 > heldAtStart }

    // MARK: The body's file

    /// Creates a part file for a body from its first byte, with room for `total` bytes. The held bytes stay until the new file has enough
    /// bytes (`write`), unless the disk has no room for both.
    func openWhole(
        for segment: Segment, _ total: ByteCount?, validator: Validator?, digest: Checksum?, isResumable: Bool
    ) throws(DiskError) {
        if let descriptor = request.descriptor { return try begin(in: descriptor, for: segment, total, validator, digest, isResumable) }
        guard let folder else { return }
        let held = part
        let name = held == nil ? request.partName : PartFile.candidateName(request.partName)
        let fresh = try PartFile.create(in: folder, name: name, mapPath: held == nil ? request.mapPath : nil, boot: boot)
        (fresh.validator, fresh.digest, fresh.total, fresh.isResumable) = (validator, digest, total, isResumable)
        (fresh.mirror, fresh.origin, fresh.diskReserve) = (segment.source.mirror, segment.url.origin, request.diskReserve)
        do {
            try fresh.makeRoom(beside: held)
            if let held, fresh.isCramped {
                try replace(held, by: fresh)
                held.giveUp()
            }
            try fresh.reserve()
        } catch {
            if part !== fresh { fresh.remove() }
            throw error
        }
        segment.bodyBegins(at: 0, end: nil)
        receivedAtTick = 0
        if held == nil {
            (part, checkpoint, pieces) = (fresh, nil, ledger(of: fresh))
        } else if part !== fresh {
            (candidate, candidatePieces) = (fresh, ledger(of: fresh))
            noteRepresentation(of: fresh, from: segment.source)
        }
    }

    /// `source` states another representation than that of the held bytes. The first time, it may be a login page, or the server may not be
    /// up to date. If the held bytes stayed the second time in a row, too, a connection that always breaks would never bring the new file.
    ///
    /// A body of unknown size, or of a source that is asked as a last resort, may turn out to be a wrong file. The source of the held bytes
    /// is such a source in each transfer while another source could continue these bytes, so it counts nevertheless.
    private func noteRepresentation(of file: PartFile, from source: Source) {
        isCandidateKnown = false
        guard let validator = file.validator, file.total != nil, !source.isSpent || file.mirror == part?.mirror,
            (part?.validator, part?.mirror) != (file.validator, file.mirror)
        else { return }
        let other = OtherRepresentation(validator, mirror: file.mirror)
        isCandidateKnown = statedBefore.contains(other)
        otherRepresentations.removeAll { $0.mirror == other.mirror }
        otherRepresentations.append(other)
    }

    /// A response continues the held bytes, or other bytes have replaced them. What sources stated before does not count any more.
    func forgetOtherRepresentations() { (statedBefore, otherRepresentations) = ([], []) }

    /// A caller's file cannot hold two representations: the held bytes go first.
    private func begin(
        in descriptor: HeldDescriptor, for segment: Segment, _ total: ByteCount?, _ validator: Validator?, _ digest: Checksum?,
        _ isResumable: Bool
    ) throws(DiskError) {
        let fresh = try PartFile.create(in: descriptor, boot: boot)
        (fresh.validator, fresh.digest, fresh.total, fresh.isResumable) = (validator, digest, total, isResumable)
        (fresh.mirror, fresh.origin, fresh.diskReserve) = (segment.source.mirror, segment.url.origin, request.diskReserve)
        (part, checkpoint, pieces) = (fresh, nil, ledger(of: fresh))
        segment.bodyBegins(at: 0, end: nil)
        receivedAtTick = 0
        try fresh.makeRoom(beside: nil)
    }

    /// Gets the part file ready for missing bytes.
    func openRest(_ part: PartFile) throws(DiskError) {
        try part.trim()
        try part.makeRoom(beside: nil)
        try part.reserve()
    }

    /// The candidate becomes the part file.
    private func replacePart() {
        guard let candidate, let part else { return }
        do throws(DiskError) {
            try replace(part, by: candidate)
        } catch {
            replaceError = error
        }
    }

    private func replace(_ old: PartFile, by new: PartFile) throws(DiskError) {
        try new.takePlace(of: old)
        (pieces, candidatePieces) = (candidatePieces ?? ledger(of: new), nil)
        (part, candidate, checkpoint, partFacts) = (new, nil, nil, facts)
        forgetOtherRepresentations()
        reportStart()
    }

    /// Reports that the bytes in the record are gone.
    func reportStart() {
        guard let part, candidate == nil else { return }
        report(
            ResumeData(
                written: 0, total: part.total, validator: part.validator, identity: part.identity, digest: part.digest, mirror: part.mirror)
        )
    }

    /// Deletes the candidate, which has not replaced the held bytes. The name and the other facts of its response are about no bytes any
    /// more.
    func dropCandidate() {
        guard let dropped = candidate else { return }
        dropped.remove()
        (candidate, candidatePieces) = (nil, nil)
        reportHeldFacts()
    }

    /// Whether only a flush, or the check of pieces, delays the end, and its disk has been silent for longer than `patience`.
    func endWaitsForDisk(longerThan patience: Duration, _ now: SuspendingClock.Instant) -> Bool {
        let work = conclusion == nil ? pieces?.check?.work : flush
        let isWaiting = conclusion == nil ? whole != nil : isSyncing
        return isWaiting && work?.isSilent(longerThan: patience, now) == true
    }

    // MARK: Pieces

    /// The bytes of a piece, or of a response, are wrong: they are missing again.
    func forget(_ range: Range<ByteCount>) {
        guard let part else { return }
        covered.remove(range)
        part.forget(range)
        guard var data = checkpoint else { return }
        data.ranges.remove(range)
        if data != checkpoint { report(data) }
    }

    /// If the held bytes count as those of a source that was given up for wrong bytes, they count as those of another source from now on.
    /// Then the validator and the digest of the wrong source contradict no response of the other source.
    func disownBytes() {
        guard let part, sources.contains(where: { $0.mirror == part.mirror && $0.left == .wrongBytes }),
            let next = sources.first(where: { $0.left == nil })
        else { return }
        part.turn(to: next.mirror)
        if let data = part.resumeData(checkpoint?.ranges ?? ByteRanges()) { report(data) }
    }

    // MARK: Checkpoints

    func report(_ data: ResumeData) {
        checkpoint = data
        reportSources()
        events.append(.checkpoint(request.number, data))
    }

    /// `data` of a flush that has ended, without the bytes that turned out to be wrong meanwhile. If they have come again since, no flush
    /// has covered the new ones. The other facts are those that are known by now.
    func stillHeld(of data: ResumeData) -> ResumeData { part?.resumeData(covered) ?? data }

    // MARK: The end

    /// Whether no byte of the file is missing.
    var isWhole: Bool { part.map { $0.written == $0.total } ?? false }

    /// Whether the bytes of a body that has ended are missing again after `failure` (`complete`).
    ///
    /// A body that has stated no length, and has another size than expected, is not the beginning of the file, so no mirror may continue
    /// it. The digests of pieces tell more exactly which bytes are wrong. A candidate is dropped anyway, and the held bytes stay.
    func mustForgetBody(after failure: DownloadFailure) -> Bool {
        isWhole || failure.name == .sizeMismatch && candidate == nil && pieces == nil
    }

    /// Checks the file after `attempt`, whose body ended without an error.
    func complete(_ attempt: Attempt) -> Result<TransferEnd, DownloadFailure> {
        let host = attempt.url.host
        staging.flush()
        if let diskFailure { return .failure(diskFailure) }
        guard var facts, let file = candidate ?? part, !attempt.segment.isSkipping, file.ranges.prefixEnd >= facts.total ?? file.written
        else {
            return .failure(FailureMapping.truncated(host: host))
        }
        if let expected = request.expectedSize, file.written != expected {
            return .failure(
                DownloadFailure(
                    .sizeMismatch, "The file at \(host) has \(file.written) bytes instead of \(expected).", host: host))
        }
        replacePart()
        if let diskFailure { return .failure(diskFailure) }
        guard let part else { return .failure(FailureMapping.truncated(host: host)) }
        facts.total = part.written
        var complete = CompletePart(
            facts: facts, size: part.written, identity: part.identity, host: host, httpStatus: attempt.head.status,
            resume: part.resumeData(checkpoint?.ranges ?? ByteRanges()))
        (complete.validators, complete.mirror) = (validators, part.mirror)
        return .success(.complete(complete))
    }
}

func wallTime() -> WallTime { WallTime(microseconds: wallClock()) }
