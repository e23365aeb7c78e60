internal import DownloadModel
internal import PartFiles
internal import Transport

/// One HTTP exchange of a segment: receives the response, judges it by its head, and passes the body on.
///
/// The attempt is judged at the end of the head. There is one exception: a 401 that offers Basic or Digest, to a request for which there
/// are credentials, is judged only at the first body byte, or at its end. Until then, libcurl may answer by sending the credentials. A
/// proxy gets its credentials with each request, so a 407 is a refusal.
final class Attempt: BodySink {
    /// Most bytes that are read of an unwanted body (of an error or redirect), to keep the connection usable.
    static let unwantedLimit = 64 * 1024
    /// How long the engine waits for the end of a body that nobody needs: the head alone suffices to follow a redirect, to know that the
    /// part file is whole, or to know that the response to a further request brings no bytes.
    static let patience: Duration = .milliseconds(100)

    enum Verdict: Equatable {
        case undecided
        /// Missing bytes of the file.
        case body
        /// The part file is whole, as a 416 says, or a 200 of the same file.
        case whole
        case redirect
        /// The held bytes are useless: ask again, without a range.
        case restart
        /// Ask again for the missing bytes, over a connection of the segment's own.
        case alone
        /// A 304 about the cached copy.
        case unchanged(CachedCopy)
        case failed(DownloadFailure)
        case taken(path: String)
        /// The response to a further segment's request brings none of the requested bytes. The server ignores the range, or has another
        /// file (the fault says which of the two), or has failed.
        case declined(DownloadFailure?, SourceFault?)
        /// The response contradicts the bytes of other sources, or does not bring the bytes that are missing after them. Or its bytes have
        /// another digest than it states.
        case left(SourceFault)
        /// The response to a further segment's request brings bytes that another segment has fetched meanwhile.
        case late
        /// The bytes of a 206 have another digest than it states. They are missing again: ask the same source for them once more.
        case again
    }

    let url: DownloadURL
    /// The first byte that the request asked for; nil: the request was for the whole file.
    let rangeStart: ByteCount?
    /// Whether the connection goes to a proxy instead of the host.
    let isProxied: Bool
    /// Whether the request asks only for something newer than the cached copy.
    let asksIfChanged: Bool
    var head = ResponseHead()
    private(set) var verdict = Verdict.undecided
    /// Whether an address of the host was refused, because the transfer must not connect to that address.
    private(set) var isKeptAway = false
    /// Whether the request has gone to a private address; behind a proxy, whether its URL names one.
    var isToPrivate = false
    /// Whether body bytes came before the end of the head.
    private(set) var isHeadless = false
    unowned let segment: Segment
    private var unwanted = 0
    /// When the head was complete, if it suffices; nil: it does not suffice.
    private var sufficed: SuspendingClock.Instant?
    /// Whether the response was accepted as one that brings bytes of the file.
    private(set) var hasBody = false
    /// Undoes the content coding of the body; nil: no coding, or the file is stored in its coding.
    var decoder: ContentDecoder?
    /// Compares the body of a 206 with the digest that the response states of this body; nil: nothing to compare.
    var check: ContentCheck?
    /// Body bytes that were accepted before a pause. libcurl delivers these bytes again after the pause.
    private var ahead = 0
    /// Whether a response has asked for user and password.
    private var wasAskedForLogin = false
    /// Whether the last request went out with user and password, and a 401 has refused them.
    private var wasLoginRefused = false

    init(_ segment: Segment, isProxied: Bool) {
        (self.segment, self.isProxied) = (segment, isProxied)
        (url, rangeStart, asksIfChanged) = (segment.url, segment.rangeStart, segment.copyValidators != nil)
    }

    override var work: UInt64 { segment.id.download.value }

    override func receive(_ bytes: UnsafeRawBufferPointer) -> Answer {
        // libcurl ends a head at a line that begins with a bare CR. A head that does not end as RFC 9112 §2.1 says has no body.
        guard head.isComplete else {
            isHeadless = true
            return .abort
        }
        segment.signsOfLife &+= 1
        if case .undecided = verdict { decide() }
        switch verdict {
        case .body:
            let fresh = bytes[min(ahead, bytes.count)...]
            let room = segment.room(for: fresh.count)
            let count = segment.pace.take(room)
            if count > 0 || decoder?.isPaused ?? false {
                segment.liveness.count(count)
                let taken = UnsafeRawBufferPointer(rebasing: fresh.prefix(count))
                if segment.exceedsPart(count) {
                    segment.forgetBody()
                    verdict = segment.transfer.verdictOfSurplus(in: segment)
                    return .abort
                }
                if let failure = decoder == nil ? segment.take(taken) : decode(taken) {
                    verdict = .failed(failure)
                    return .abort
                }
                if let wrong = compare(taken) {
                    verdict = wrong
                    return .abort
                }
            }
            // The next bytes belong to another segment.
            if count == room, room < fresh.count { return .abort }
            let isUnpacking = decoder?.isPaused ?? false
            guard count == fresh.count, !isUnpacking else {
                if isStream {
                    verdict = .alone
                    return .abort
                }
                if isUnpacking { segment.pace.hold() }
                ahead += count - (decoder?.unread ?? 0)
                return .pause
            }
            ahead -= bytes.count - count
            return .accepted
        case .redirect, .failed, .whole, .unchanged, .declined:
            unwanted +|= bytes.count
            return unwanted <= Self.unwantedLimit && !refusesBody ? .accepted : .abort
        case .undecided, .restart, .alone, .taken, .late, .left, .again: return .abort
        }
    }

    /// Whether the response comes over HTTP/2. Such a stream is never paused. libcurl 7.88 collects up to 64 MiB for a paused stream if
    /// others use its connection, loses them at an error, and delivers little to the others.
    ///
    /// False if the segment has asked for a connection of its own in vain.
    var isStream: Bool { segment.exchange?.isStream ?? false && !segment.ownsConnection }

    override func receiveHeader(_ line: UnsafeRawBufferPointer) -> Answer {
        segment.signsOfLife &+= 1
        do {
            try head.take(line)
            if head.isComplete, head.status == 401, !wasAskedForLogin {
                // libcurl repeats the request with user and password, if it has them. No later response makes it repeat the body.
                (wasAskedForLogin, segment.isBodyOut) = (true, false)
            } else if head.isComplete, head.status == 401 {
                wasLoginRefused = true
            }
            if head.isComplete, head.status >= 200, head.status != 401 || !mayLogIn { decide() }
            return refusesBody ? .abort : .accepted
        } catch {
            verdict = .failed(FailureMapping.headTooLarge(host: url.host))
            return .abort
        }
    }

    /// Whether libcurl may answer a 401 by sending user and password.
    private var mayLogIn: Bool { segment.hasLogin && segment.exchange?.offersLogin ?? false }

    override func mayConnect(to address: String) -> Bool {
        if segment.mayConnect(to: address, for: self) { return true }
        isKeptAway = true
        return false
    }

    override func mayRepeat() -> Bool { !segment.isPaced }

    override func mayTalk(to address: String) -> Bool {
        segment.liveness.restart()  // connected: the request goes out now
        wasLoginRefused = false
        guard segment.mayTalk(to: address, for: self) else {
            verdict = .failed(segment.keptAway)
            return false
        }
        if let failure = segment.bodyGoesOut() {
            verdict = .failed(failure)
            return false
        }
        segment.requestGoesOut()
        return true
    }

    /// Judges the response, unless it is judged already.
    func decide() {
        guard case .undecided = verdict else { return }
        verdict = segment.transfer.judge(self)
        switch verdict {
        case .redirect:
            sufficed = .now
            segment.transfer.learnMirrors(from: self)
        case .whole, .declined: sufficed = .now
        case .body:
            hasBody = true
            segment.transfer.learnMirrors(from: self)
        default: break
        }
        segment.liveness.restart()
    }

    /// Whether a response whose body does not come is a refusal, as its head says.
    func isRefusal() -> Bool {
        if wasLoginRefused { decide() }
        return switch verdict {
        case .failed, .declined: true
        default: false
        }
    }

    /// Whether a body that nobody needs has not ended `patience` after the head.
    func drags(_ now: SuspendingClock.Instant) -> Bool { sufficed.map { now - $0 >= Self.patience } ?? false }

    /// Hashes body bytes whose digest the response states.
    ///
    /// - Returns: the verdict if the last byte has come, and the digest is another one. A response that is cut before is not compared.
    private func compare(_ bytes: UnsafeRawBufferPointer) -> Verdict? {
        guard let check else { return nil }
        check.add(bytes)
        guard segment.hasWholePart else { return nil }
        self.check = nil
        return check.failure(of: segment.bodyRange, host: url.host).flatMap { segment.transfer.verdictOfWrongContent(in: segment, $0) }
    }

    private func decode(_ bytes: UnsafeRawBufferPointer) -> DownloadFailure? {
        decoder?.decode(bytes, host: url.host) { segment.take($0) }
    }

    /// The failure if the content coding of an ended body is incomplete or damaged; nil: it is intact.
    var codingFailure: DownloadFailure? { decoder?.finish(host: url.host, isEmptyAnnounced: head.isEmptyAnnounced) }

    /// Whether to end the connection rather than read the rest of the body.
    private var refusesBody: Bool {
        switch verdict {
        case .failed, .declined: head.status < 300
        case .restart, .alone, .taken, .late, .left, .again: true
        // Further bytes would be taken for the next response on this connection, so the connection ends here.
        case .unchanged: head.announcesBody
        case .redirect:
            switch head.contentLength {
            case .known(let length): length > Self.unwantedLimit
            case .unknown: false
            case .contradictory: true
            }
        case .undecided, .body, .whole: false
        }
    }
}
