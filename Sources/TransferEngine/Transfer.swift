internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import PartFiles
internal import Transport

/// The engine's work on one download between a start and its end. Lives on the engine's thread; libcurl's callbacks reach it through
/// `Attempt`.
final class Transfer {
    /// A checkpoint is due after this many bytes or this long.
    static let checkpointBytes: ByteCount = 64 << 20
    static let checkpointInterval: Duration = .seconds(10)

    let request: TransferRequest
    let boot: String
    private let staging: StagingBuffer
    /// Set by `prepare`.
    private(set) var folder: OpenFolder?
    /// The part file in its place, which checkpoints and the written map describe.
    private(set) var part: PartFile?
    /// Bytes of another representation than that of `part`, until these are more than those of `part`, or complete.
    private(set) var candidate: PartFile?
    private var replaceError: DiskError?

    /// The URL of the current hop.
    var url: DownloadURL
    var hops = 0
    /// Whether the first hop went to a private address; nil: not known yet.
    private var isFirstPrivate: Bool?
    let pace: Pace
    var exchange: Exchange?
    var ask = Ask.conditional
    /// The cached copy that may answer this request. It was unmodified when the transfer began.
    private var copy: CopyHeld?
    /// The validators of the representation being received.
    var validators: CopyValidators?
    /// Whether a response contradicted the held bytes. Then only a whole body counts.
    var isDistrusted = false

    var facts: TransferFacts?
    /// Whether the next body continues the previous one (a further 206): its beginning is not announced again.
    var isFurtherPiece = false
    /// The end, in the file, of the bytes taken from the response, whether written, staged or dropped.
    private var taken: ByteCount = 0
    /// Where the next bytes are written.
    private var place: ByteCount = 0
    /// The end, in the file, of the piece that the response announces; nil: the piece is the whole rest.
    private var pieceEnd: ByteCount?
    /// How many bytes at the front of the current body are held already.
    private var skip: ByteCount = 0
    private var heldAtStart: ByteCount = 0

    var liveness = Liveness()
    /// What has come from the server: the number of header lines and stretches of the body.
    var pieces = 0
    var piecesAtTick = 0
    var lastHeard = SuspendingClock.now
    var isStalled = false
    /// The number of the proxy look-up that the next request waits for.
    var lookup: UInt64?
    /// Whether the next request waits for `Engine.permit`.
    var awaitsPermit = false
    /// Whether to report when the current request goes out.
    var tellsSent: Bool
    var meter = SpeedMeter()
    var reported: TransferProgress?
    var received: ByteCount { (candidate ?? part)?.written ?? 0 }
    var receivedAtTick: ByteCount = 0

    /// Events to report, in order.
    var events: [TransferEvent] = []
    /// The last reported checkpoint: what is on disk.
    var checkpoint: ResumeData?
    var lastCheckpoint = SuspendingClock.now
    /// The part file being flushed; kept here so that its descriptor stays open meanwhile.
    var syncing: PartFile?
    var isSyncing: Bool { syncing != nil }
    /// Set once nothing more is fetched: the end to report after the last flush.
    var conclusion: Conclusion?

    /// How the next request asks, if bytes are held. A transfer moves only down this list.
    enum Ask {
        /// For the rest, if the validator still matches (`If-Range`).
        case conditional
        /// For the rest, without a condition: the response must prove which representation it is of.
        case bare
        /// For the whole.
        case whole
    }

    enum Conclusion {
        case failed(DownloadFailure)
        case stopped
        case whole(TransferEnd)
    }

    init(_ request: TransferRequest, boot: String, staging: StagingBuffer, pace: Pace) {
        (self.request, self.boot, self.staging, self.pace, url) = (request, boot, staging, pace, request.url)
        tellsSent = request.tellsSent
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
            // Under `fail` a file that has not changed is no second one.
            if let name = request.fileName, copy == nil || request.ifExists == .skip, let path = takenPath(name) {
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

    /// Takes the held bytes as the start of this transfer.
    private func takeStock() -> TransferEnd? {
        guard let part else { return nil }
        part.diskReserve = request.diskReserve
        heldAtStart = part.written
        receivedAtTick = part.written
        let onDisk = sameRepresentation(part) ? request.resume?.ranges.intersection(part.ranges) : nil
        checkpoint = part.resumeData(onDisk ?? ByteRanges())
        return nil
    }

    /// The download's failure for an error of the disk.
    func failure(_ error: DiskError) -> DownloadFailure {
        request.descriptor == nil ? error.failure(folder: request.directory) : error.descriptorFailure
    }

    /// Whether the resume data, and not only the written map, describes the opened part file.
    private func sameRepresentation(_ part: PartFile) -> Bool {
        guard let resume = request.resume else { return false }
        return resume.identity.inode == part.identity.inode && resume.validator == part.validator
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
            .writeFailed, "\(request.directory) is on another disk than the \(held) bytes held of this file; connect that disk again.",
            wait: .destination)
    }

    /// The final path, if it is taken and the policy then ends the transfer.
    func takenPath(_ name: String) -> String? {
        guard request.ifExists == .skip || request.ifExists == .fail, folder?.status(name) != nil else { return nil }
        return "\(request.directory)/\(name)"
    }

    // MARK: The copy held

    /// Whether the cached copy satisfies this request, if the server confirms that the copy is current.
    private func serves(_ copy: CopyHeld) -> Bool {
        guard copy.validators != nil, !request.hasChecksum || copy.checksum == request.checksum else { return false }
        if let expected = request.expectedSize, copy.stamp.size != expected { return false }
        if let most = request.maxSize, copy.stamp.size > most { return false }
        guard let expected = request.expectedType else { return true }
        return copy.mediaType.map { expected.hasSuffix("/*") ? $0.hasPrefix(expected.dropLast()) : $0 == expected } ?? false
    }

    private func isIntact(_ copy: CopyHeld) -> Bool {
        guard copy.key.directory.isSameBytes(as: request.directory), let status = folder?.status(copy.name) else { return false }
        return folder?.isOurs(status) == true && copy.stamp.isOf(status.stamp(boot: boot))
    }

    /// Whether the current hop asks only for something newer than the copy. It must not while newer bytes are held. A validator belongs to
    /// the URL that gave it.
    var asksIfChanged: Bool { part == nil && ask == .conditional && copy?.validators?.source == url.text }

    /// The copy, if a 304 with this head can be about it, and the copy is still unmodified.
    func unchangedCopy(_ head: ResponseHead) -> CopyHeld? {
        guard let copy, copy.validators?.matches(entityTag: head.text("etag"), lastModified: head.text("last-modified")) == true,
            isIntact(copy)
        else { return nil }
        return copy
    }

    /// Where the next request's range begins; nil: it asks for the whole.
    var rangeStart: ByteCount? { ask == .whole ? nil : part?.ranges.prefixEnd }

    /// Our header lines for the current hop.
    var headerLines: [String] {
        var lines: [String] = []
        if let rangeStart {
            lines.append("Range: \((rangeStart..<UInt64.max).rangeHeader)")
            if ask == .conditional, let validator = part?.validator { lines.append("If-Range: \(validator.ifRange)") }
        }
        if asksIfChanged, let validators = copy?.validators {
            if let tag = validators.entityTag { lines.append("If-None-Match: \(tag)") }
            if let date = validators.lastModified { lines.append("If-Modified-Since: \(date)") }
        }
        guard isFirstOrigin else { return lines }
        for field in request.headers where !TransferRequest.reservedHeaders.contains(field.name.lowercased()) {
            guard let value = field.name.lowercased() == "referer" ? Referrer.sent(field.value, to: url) : field.value else { continue }
            // To libcurl, "Name;" is a field with an empty value, and "Name:" a field to leave out.
            lines.append(value.isEmpty ? "\(field.name);" : "\(field.name): \(value)")
        }
        return lines
    }

    var isFirstOrigin: Bool { url.origin == request.url.origin }

    /// The failure if the current hop leads to a forbidden address.
    var keptAway: DownloadFailure {
        let host = url.host
        if hops > 0 || !request.refusesPrivate {
            let why = request.refusesPrivate ? "where this download may not go (option allow-private)" : "which a public one may not"
            return DownloadFailure(
                .unsafeRedirect, "The server redirected to \(host), an address inside a private network, \(why).", host: host)
        }
        return DownloadFailure(
            .notAllowed, "\(host) is this machine or in a private network, where this download may not go (option allow-private).",
            host: host)
    }

    /// Whether the URL of the current hop names a forbidden address literally. Behind a proxy, nothing else tells.
    var isNamedAway: Bool { request.refusesPrivate && url.isHostLiteralPrivate }

    /// Called before the first packet goes to an address.
    func mayConnect(to address: String, for attempt: Attempt) -> Bool {
        if attempt.isProxied { return true }
        if request.refusesPrivate { return !isPrivateAddress(address) && !isOwnAddress(address) }
        return isFirstPrivate != false || !isPrivateAddress(address)
    }

    /// A public server may not redirect us into a private network; the caller itself may name a private host. Called before each request,
    /// because the connection may be a kept one.
    func mayTalk(to address: String, for attempt: Attempt) -> Bool {
        guard attempt.isProxied || !request.refusesPrivate || !isPrivateAddress(address) && !isOwnAddress(address) else { return false }
        let isPrivate = attempt.isProxied ? attempt.url.isHostLiteralPrivate : isPrivateAddress(address)
        guard let isFirstPrivate else {
            isFirstPrivate = isPrivate
            return true
        }
        return isFirstPrivate || !isPrivate
    }

    /// Whether a redirect to `url` keeps the protection of the bytes: the encrypted connection, or a checksum.
    func mayFollow(to url: DownloadURL) -> Bool {
        self.url.scheme != "https" || url.scheme == "https" || request.hasChecksum || request.allowsDowngrade
    }

    func requestGoesOut() {
        guard tellsSent else { return }
        tellsSent = false
        events.append(.sent(request.id, at: wallTime()))
    }

    /// The server's silence before `now` does not count.
    func heard(_ now: SuspendingClock.Instant) {
        liveness.restart(now)
        lastHeard = now
    }

    // MARK: Body bytes

    /// Whether `count` more bytes exceed the piece in the response's `Content-Range`. Such a response proves nothing.
    func exceedsPiece(_ count: Int) -> Bool { pieceEnd.map { taken +| ByteCount(count) > $0 } ?? false }

    /// Takes body bytes. Returns why the transfer must end, if it must.
    func take(_ bytes: UnsafeRawBufferPointer) -> DownloadFailure? {
        taken +|= ByteCount(bytes.count)
        let host = url.host
        if let most = request.maxSize, taken > most {
            return DownloadFailure(.tooLarge, "The file at \(host) has more than the \(most) bytes allowed.", host: host)
        }
        if let expected = request.expectedSize, taken > expected {
            return DownloadFailure(.sizeMismatch, "The file at \(host) has more than the expected \(expected) bytes.", host: host)
        }
        if let total = facts?.total, taken > total {
            return DownloadFailure(.network, "\(host) sent more bytes than it had announced.", host: host)
        }
        let held = Int(clamping: min(skip, ByteCount(bytes.count)))
        skip -|= ByteCount(held)
        staging.append(UnsafeRawBufferPointer(rebasing: bytes[held...]), for: self)
        return diskFailure
    }

    /// Called by the staging buffer.
    func write(_ bytes: UnsafeRawBufferPointer) { CrashMarks.working(on: request.number.value) { append(bytes) } }

    private func append(_ bytes: UnsafeRawBufferPointer) {
        if let candidate {
            try? candidate.write(bytes, at: place)  // a failure stays in its `error`
            if candidate.written > part?.written ?? 0 { replacePart() }
        } else {
            try? part?.write(bytes, at: place)
        }
        place +|= ByteCount(bytes.count)
    }

    /// The bytes taken may be of another representation: from now on, only a whole body counts.
    func distrust() { (ask, isDistrusted) = (.whole, true) }

    /// Whether `attempt`, which ended well, brought the whole piece of its `Content-Range`, and more pieces are missing. A server may send
    /// less than was asked for (RFC 9110 §15.3.7).
    func gotPiece(_ attempt: Attempt) -> Bool {
        guard attempt.head.status == 206, diskFailure == nil, candidate == nil, let part, part.isResumable, let start = attempt.rangeStart,
            place > start, let total = part.total, part.written < total, skip == 0,
            attempt.head.text("content-range").flatMap(Range<UInt64>.fromContentRange)?.range.upperBound == place
        else { return false }
        isFurtherPiece = true
        return true
    }

    var diskFailure: DownloadFailure? {
        let file = candidate ?? part
        guard var failure = (replaceError ?? file?.error).map(failure) else { return nil }
        if failure.wait == .diskSpace { failure.neededRoom = file?.neededRoom }
        return failure
    }

    /// Whether a flush can still prove the written bytes: a full disk has kept what it accepted.
    var mayFlush: Bool { part?.error.map { [ENOSPC, EDQUOT, EFBIG].contains($0.code) } ?? true }

    /// Whether the next transfer can resume with more bytes than this one could.
    func madeProgress(keeping resume: ResumeData?) -> Bool { resume?.written ?? 0 > heldAtStart }

    // MARK: The body's file

    /// Creates a part file for a body from its first byte, with room for `total` bytes. The held bytes stay until the new file is longer,
    /// unless the disk has no room for both.
    func openWhole(_ total: ByteCount?, validator: Validator?, isResumable: Bool) throws(DiskError) {
        if let descriptor = request.descriptor { return try begin(in: descriptor, total, validator, isResumable) }
        guard let folder else { return }
        let held = part
        let name = held == nil ? request.partName : PartFile.candidateName(request.partName)
        let fresh = try PartFile.create(in: folder, name: name, mapPath: held == nil ? request.mapPath : nil, boot: boot)
        (fresh.validator, fresh.total, fresh.isResumable) = (validator, total, isResumable)
        fresh.diskReserve = request.diskReserve
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
        (taken, place, skip, receivedAtTick, pieceEnd) = (0, 0, 0, 0, nil)
        if held == nil {
            (part, checkpoint) = (fresh, nil)
        } else if part !== fresh {
            candidate = fresh
        }
    }

    /// A caller's file cannot hold two representations: the held bytes go first.
    private func begin(
        in descriptor: HeldDescriptor, _ total: ByteCount?, _ validator: Validator?, _ isResumable: Bool
    ) throws(DiskError) {
        let fresh = try PartFile.create(in: descriptor, boot: boot)
        (fresh.validator, fresh.total, fresh.isResumable) = (validator, total, isResumable)
        fresh.diskReserve = request.diskReserve
        (part, checkpoint) = (fresh, nil)
        (taken, place, skip, receivedAtTick, pieceEnd) = (0, 0, 0, 0, nil)
        try fresh.makeRoom(beside: nil)
    }

    /// Continues after the held bytes. The body begins there, or at the first byte if `isWhole`. It ends at `end`, if the response says so.
    func openRest(_ part: PartFile, isWhole: Bool, end: ByteCount?) throws(DiskError) {
        try part.trim()
        try part.makeRoom(beside: nil)
        try part.reserve()
        place = part.ranges.prefixEnd
        (taken, skip) = isWhole ? (0, place) : (place, 0)
        pieceEnd = end
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
        (part, candidate, checkpoint) = (new, nil, nil)
        reportStart()
    }

    /// Reports that bytes which a record may describe are gone.
    func reportStart() {
        guard let part, candidate == nil else { return }
        report(ResumeData(written: 0, total: part.total, validator: part.validator, identity: part.identity))
    }

    /// Deletes the bytes of another representation, which are neither complete nor more than the held bytes.
    func dropCandidate() {
        candidate?.remove()
        candidate = nil
    }

    // MARK: Checkpoints

    func report(_ data: ResumeData) {
        checkpoint = data
        events.append(.checkpoint(request.number, data))
    }

    /// Whether it is time to flush.
    func isCheckpointDue(now: SuspendingClock.Instant) -> Bool {
        guard !isSyncing, conclusion == nil, let part, part.isResumable else { return false }
        let last = checkpoint?.written ?? 0
        return part.written > last && (part.written -| last >= Self.checkpointBytes || now - lastCheckpoint >= Self.checkpointInterval)
    }

    // MARK: The end

    /// Checks a body that ended without an error.
    func complete(status: UInt32) -> Result<TransferEnd, DownloadFailure> {
        staging.flush()
        if let diskFailure { return .failure(diskFailure) }
        guard var facts, let file = candidate ?? part, skip == 0, file.ranges.prefixEnd >= facts.total ?? file.written else {
            return .failure(FailureMapping.truncated(host: url.host))
        }
        if let expected = request.expectedSize, file.written != expected {
            return .failure(
                DownloadFailure(
                    .sizeMismatch, "The file at \(url.host) has \(file.written) bytes instead of \(expected).", host: url.host))
        }
        replacePart()
        if let diskFailure { return .failure(diskFailure) }
        guard let part else { return .failure(FailureMapping.truncated(host: url.host)) }
        facts.total = part.written
        var complete = CompletePart(
            facts: facts, size: part.written, identity: part.identity, host: url.host, httpStatus: status,
            resume: part.resumeData(checkpoint?.ranges ?? ByteRanges()))
        complete.validators = validators
        return .success(.complete(complete))
    }
}

func wallTime() -> WallTime { WallTime(microseconds: wallClock()) }
