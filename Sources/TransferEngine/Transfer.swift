internal import DownloadModel
internal import Glibc

/// One download's work in the engine between a start and its end. Of the engine's thread; reached by libcurl's callbacks through `Attempt`.
final class Transfer {
    /// A checkpoint is due after this many bytes or this long.
    static let checkpointBytes: ByteCount = 64 << 20
    static let checkpointInterval: Duration = .seconds(10)

    let request: TransferRequest
    let boot: String
    private let staging: StagingBuffer
    private(set) var part: PartFile?
    private var map: WrittenMap?

    /// The URL of the hop under way.
    var url: DownloadURL
    var hops = 0
    /// Whether the first hop went to a private address; nil until it is known.
    private var isFirstPrivate: Bool?
    /// Bytes per second; nil: no limit of its own.
    var speedLimit: Speed?
    var pace = Pace()
    var exchange: Exchange?
    /// Whether it has started once more from 0 because what was held was of no use.
    var hasRestarted = false

    private(set) var facts: TransferFacts?
    private var validator: Validator?
    /// Bytes taken from the response, written or staged.
    private var taken: ByteCount = 0
    private var heldAtStart: ByteCount = 0

    /// Set by every byte that comes in; the engine's tick looks and resets.
    var arrived = false
    var lastArrival = SuspendingClock.now
    var meter = SpeedMeter()
    var reported: TransferProgress?
    var received: ByteCount { part?.written ?? 0 }
    var receivedAtTick: ByteCount = 0

    /// Waiting to be reported, in order.
    var events: [TransferEvent] = []
    /// The last that is on disk, as reported.
    var checkpoint: ResumeData?
    var lastCheckpoint = SuspendingClock.now
    var isSyncing = false
    /// Set once nothing more is fetched: what is reported when the last flush is done.
    var conclusion: Conclusion?

    enum Conclusion {
        case failed(DownloadFailure)
        case stopped
        case whole(TransferEnd)
    }

    init(_ request: TransferRequest, boot: String, staging: StagingBuffer) {
        (self.request, self.boot, self.staging, url, speedLimit) = (request, boot, staging, request.url, request.speedLimit)
    }

    // MARK: Before the first request

    /// Opens what is held. Says how it ends where it ends at once.
    func prepare() -> TransferEnd? {
        if let name = request.fileName, let path = takenPath(name) { return .nameTaken(path: path) }
        guard let resume = request.resume, resume.validator != nil || request.hasChecksum else { return nil }
        part = PartFile.reopen(
            in: request.directory, name: request.partName, resume: resume, mapPath: request.mapPath, boot: boot)
        guard let part else { return nil }
        validator = resume.validator
        heldAtStart = part.written
        taken = part.written
        receivedAtTick = part.written
        checkpoint = ResumeData(
            written: min(resume.written, part.written), total: resume.total, validator: validator, identity: part.identity)
        return nil
    }

    /// The final path, where it is taken and the policy ends the transfer then.
    private func takenPath(_ name: String) -> String? {
        guard request.ifExists == .skip || request.ifExists == .fail else { return nil }
        let path = "\(request.directory)/\(name)"
        var status = stat()
        return lstat(path, &status) == 0 ? path : nil
    }

    /// The bytes that the next request goes on from; nil: it asks for the whole.
    var rangeStart: ByteCount? {
        guard let part, part.written > 0, !hasRestarted else { return nil }
        return part.written
    }

    /// The request's own header lines for the hop under way.
    var headerLines: [String] {
        var lines: [String] = []
        if let rangeStart {
            lines.append("Range: \((rangeStart..<UInt64.max).rangeHeader)")
            if let validator { lines.append("If-Range: \(validator.ifRange)") }
        }
        guard isFirstOrigin else { return lines }
        for field in request.headers where !TransferRequest.reservedHeaders.contains(field.name.lowercased()) {
            // libcurl takes "Name;" for a field with an empty value, and "Name:" for one to leave out.
            lines.append(field.value.isEmpty ? "\(field.name);" : "\(field.name): \(field.value)")
        }
        return lines
    }

    var isFirstOrigin: Bool { url.origin == request.url.origin }

    /// A public server may not send us into a private network; what the caller named itself may be private.
    func mayTalk(to address: String, for attempt: Attempt) -> Bool {
        let isPrivate = attempt.isProxied ? attempt.url.isHostLiteralPrivate : isPrivateAddress(address)
        guard let isFirstPrivate else {
            isFirstPrivate = isPrivate
            return true
        }
        return isFirstPrivate || !isPrivate
    }

    // MARK: A response

    /// Decides what a response is good for, and gets the part file ready where it is the file.
    func judge(_ attempt: Attempt) -> Attempt.Verdict {
        let head = attempt.head
        switch head.status {
        case 200, 203: return beginWhole(attempt)
        case 206 where attempt.rangeStart != nil: return goOn(attempt)
        case 301, 302, 303, 307, 308:
            return head.text("location") == nil ? .failed(FailureMapping.status(head, host: attempt.url.host, now: wallTime())) : .redirect
        case 416 where attempt.rangeStart != nil: return isWhole(attempt) ? .whole : .restart
        default: return .failed(FailureMapping.status(head, host: attempt.url.host, now: wallTime()))
        }
    }

    private func isWhole(_ attempt: Attempt) -> Bool {
        guard let part, let length = attempt.head.text("content-range").flatMap(Range<UInt64>.unsatisfiedLength) else { return false }
        guard length == part.written, request.expectedSize.map({ $0 == length }) ?? true else { return false }
        let total = request.resume?.total
        facts = TransferFacts(
            fileName: fileName(attempt), mediaType: nil, total: length, offset: part.written, discarded: false, isResumable: true)
        if total != nil, total != length { return false }
        events.append(.began(request.number, facts!))
        return true
    }

    private func fileName(_ attempt: Attempt) -> String {
        request.fileName
            ?? FileName.chosen(contentDisposition: attempt.head.bytes("content-disposition"), url: attempt.url, decode: iconvDecoder)
    }

    /// A 200: the whole, from its first byte.
    private func beginWhole(_ attempt: Attempt) -> Attempt.Verdict {
        let head = attempt.head
        let total: ByteCount?
        switch head.contentLength {
        case .known(let length): total = length
        case .unknown: total = nil
        case .contradictory: return .failed(contradiction(attempt))
        }
        if let failure = sizeFailure(total, host: attempt.url.host) { return .failed(failure) }
        let name = fileName(attempt)
        if let path = takenPath(name) { return .taken(path: path) }
        let discarded = (part?.written ?? 0) > 0
        do {
            if let part {
                forgetMap()
                try part.startOver()
            } else {
                forgetMap()
                part = try PartFile.create(in: request.directory, name: request.partName, boot: boot)
            }
            if let total { try part?.reserve(total) }
        } catch {
            return .failed(error.failure(folder: request.directory))
        }
        validator = head.isCoded ? nil : head.validator
        (taken, heldAtStart, receivedAtTick, checkpoint) = (0, 0, 0, nil)
        let facts = TransferFacts(
            fileName: name, mediaType: head.mediaType, total: total, offset: 0, discarded: discarded || hasRestarted,
            isResumable: !head.isCoded && (validator != nil || request.hasChecksum))
        begin(facts)
        return .body
    }

    /// A 206: what follows what is held, if it says so and nothing contradicts that.
    private func goOn(_ attempt: Attempt) -> Attempt.Verdict {
        let head = attempt.head
        guard let part, !head.isCoded, let field = head.text("content-range"), let (range, length) = Range<UInt64>.fromContentRange(field),
            range.lowerBound == part.written,
            validator?.matches(entityTag: head.text("etag"), lastModified: head.text("last-modified")) ?? true
        else { return .restart }
        switch head.contentLength {
        case .known(let count) where count != UInt64(range.count): return .restart
        case .contradictory: return .failed(contradiction(attempt))
        default: break
        }
        if let known = request.resume?.total, let length, known != length { return .restart }
        let total = length ?? request.resume?.total
        if let failure = sizeFailure(total, host: attempt.url.host) { return .failed(failure) }
        let name = fileName(attempt)
        if let path = takenPath(name) { return .taken(path: path) }
        do {
            try part.trim()
            if let total { try part.reserve(total) }
        } catch {
            return .failed(error.failure(folder: request.directory))
        }
        if validator == nil { validator = head.validator }
        begin(
            TransferFacts(
                fileName: name, mediaType: head.mediaType, total: total, offset: part.written, discarded: false, isResumable: true))
        return .body
    }

    private func begin(_ facts: TransferFacts) {
        self.facts = facts
        events.append(.began(request.number, facts))
        // The bytes of a checkpoint that is held elsewhere are gone: say so before new ones come.
        if facts.discarded, facts.isResumable, let start = resumeData(written: 0) { report(start) }
    }

    private func contradiction(_ attempt: Attempt) -> DownloadFailure {
        DownloadFailure(
            .network, "\(attempt.url.host) gave a length that makes no sense.", httpStatus: attempt.head.status, host: attempt.url.host)
    }

    private func sizeFailure(_ total: ByteCount?, host: String) -> DownloadFailure? {
        guard let total else { return nil }
        if let expected = request.expectedSize, expected != total {
            return DownloadFailure(.sizeMismatch, "The file at \(host) has \(total) bytes instead of \(expected).", host: host)
        }
        if let most = request.maxSize, total > most {
            return DownloadFailure(.tooLarge, "The file at \(host) has \(total) bytes, more than the \(most) allowed.", host: host)
        }
        return nil
    }

    // MARK: Body bytes

    /// Takes body bytes. Says why the transfer must end, where it must.
    func take(_ bytes: UnsafeRawBufferPointer) -> DownloadFailure? {
        taken += ByteCount(bytes.count)
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
        staging.append(bytes, for: self)
        return diskFailure
    }

    /// The staging buffer's door to the part file.
    func write(_ bytes: UnsafeRawBufferPointer) {
        guard let part else { return }
        try? part.write(bytes)  // what failed stays in `part.error`
        guard facts?.isResumable == true, part.written >= WrittenMap.threshold else { return }
        if map == nil, let path = request.mapPath { map = WrittenMap(path) }
        map?.save(part.written)
    }

    var diskFailure: DownloadFailure? { part?.error?.failure(folder: request.directory) }

    private func forgetMap() {
        map = nil
        if let path = request.mapPath { unlink(path) }
    }

    var madeProgress: Bool { received > heldAtStart }

    // MARK: Checkpoints

    /// What a record may say once `written` bytes are on disk; nil where a later transfer could not go on from them.
    func resumeData(written: ByteCount) -> ResumeData? {
        guard let part, facts == nil || facts?.isResumable == true, validator != nil || request.hasChecksum else { return nil }
        return ResumeData(written: written, total: facts?.total ?? request.resume?.total, validator: validator, identity: part.identity)
    }

    func report(_ data: ResumeData) {
        checkpoint = data
        events.append(.checkpoint(request.number, data))
    }

    /// Whether it is time to flush. The first is due as soon as the map counts: it tells the record what the map belongs to.
    func isCheckpointDue(now: SuspendingClock.Instant) -> Bool {
        guard !isSyncing, conclusion == nil, facts?.isResumable == true else { return false }
        let last = checkpoint?.written ?? 0
        return received > last && (received - last >= Self.checkpointBytes || now - lastCheckpoint >= Self.checkpointInterval)
    }

    /// Reports the first checkpoint once the map counts, without any flush: nothing is claimed to be on disk, only what the map belongs to.
    func reportIdentity() {
        guard checkpoint == nil, received >= WrittenMap.threshold, facts?.isResumable == true, let data = resumeData(written: 0) else {
            return
        }
        report(data)
    }

    // MARK: The end

    /// Checks a body that came to its end without an error.
    func complete(status: UInt32) -> Result<TransferEnd, DownloadFailure> {
        staging.flush()
        if let diskFailure { return .failure(diskFailure) }
        guard var facts, let part else { return .failure(FailureMapping.truncated(host: url.host)) }
        if let total = facts.total, part.written < total { return .failure(FailureMapping.truncated(host: url.host)) }
        if let expected = request.expectedSize, part.written != expected {
            return .failure(
                DownloadFailure(
                    .sizeMismatch, "The file at \(url.host) has \(part.written) bytes instead of \(expected).", host: url.host))
        }
        facts.total = part.written
        return .success(
            .complete(
                CompletePart(
                    facts: facts, size: part.written, identity: part.identity, host: url.host, httpStatus: status,
                    resume: resumeData(written: part.written))))
    }
}

/// CLOCK_REALTIME.
func wallTime() -> WallTime {
    var now = timespec()
    clock_gettime(CLOCK_REALTIME, &now)
    return WallTime(microseconds: UInt64(now.tv_sec) * 1_000_000 + UInt64(now.tv_nsec / 1000))
}
