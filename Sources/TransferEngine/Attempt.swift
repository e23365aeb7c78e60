internal import DownloadModel
internal import PartFiles
internal import Transport

/// One HTTP exchange of a transfer: hears what comes, decides by the response's head what it is good for, and hands the body on.
///
/// The decision falls with the end of the head. Only a 401 or 407 waits for the first body byte (or the end): libcurl may deal with it
/// itself, by sending credentials.
final class Attempt: BodySink {
    /// Most bytes of a body that nobody wants (of an error, of a redirect) that are read for the sake of the connection.
    static let unwantedLimit = 64 * 1024
    /// A redirect is followed by its head; its body is waited for so long.
    static let redirectPatience: Duration = .milliseconds(100)

    enum Verdict: Equatable {
        case undecided
        /// The file's bytes, from where the part file ends.
        case body
        /// A 416 that says that the part file is whole.
        case whole
        case redirect
        /// What is held is of no use: once more, without a range.
        case restart
        /// A 304 about the copy held.
        case unchanged(CopyHeld)
        case failed(DownloadFailure)
        case taken(path: String)
    }

    let url: DownloadURL
    /// The first byte that was asked for; nil: the whole.
    let rangeStart: ByteCount?
    /// Whether a proxy is spoken to instead of the host.
    let isProxied: Bool
    /// Whether it was asked for what is newer than the copy held only.
    let asksIfChanged: Bool
    var head = ResponseHead()
    private(set) var verdict = Verdict.undecided
    /// Whether an address of the host was left out because the transfer must stay away from it.
    private(set) var isKeptAway = false
    /// Whether body bytes came before the end of the head.
    private(set) var isHeadless = false
    private unowned let transfer: Transfer
    private var unwanted = 0
    /// When the head of a redirect was complete.
    private var redirected: SuspendingClock.Instant?
    /// Undoes the body's content coding; nil: it has none, or is stored in it.
    var decoder: ContentDecoder?
    /// Body bytes that were taken, and that libcurl gives once more after the pause in which they were.
    private var ahead = 0

    init(_ transfer: Transfer, url: DownloadURL, rangeStart: ByteCount?, isProxied: Bool) {
        (self.transfer, self.url, self.rangeStart, self.isProxied) = (transfer, url, rangeStart, isProxied)
        asksIfChanged = transfer.asksIfChanged
    }

    override var work: UInt64 { transfer.request.number.value }

    override func receive(_ bytes: UnsafeRawBufferPointer) -> Answer {
        // libcurl ends a head at a line that begins with a bare CR. No body belongs to a head that does not end as RFC 9112 §2.1 says.
        guard head.isComplete else {
            isHeadless = true
            return .abort
        }
        transfer.pieces &+= 1
        if case .undecided = verdict { decide() }
        switch verdict {
        case .body:
            let fresh = bytes[min(ahead, bytes.count)...]
            let count = transfer.pace.take(fresh.count)
            if count > 0 {
                transfer.liveness.count(count)
                let taken = UnsafeRawBufferPointer(rebasing: fresh.prefix(count))
                if transfer.exceedsPiece(count) {
                    transfer.distrust()
                    verdict = .restart
                    return .abort
                }
                if let failure = decoder == nil ? transfer.take(taken) : decode(taken) {
                    verdict = .failed(failure)
                    return .abort
                }
            }
            guard count == fresh.count else {
                ahead += count
                return .pause
            }
            ahead -= bytes.count - count
            return .accepted
        case .redirect, .failed, .whole, .unchanged:
            unwanted +|= bytes.count
            return unwanted <= Self.unwantedLimit && !refusesBody ? .accepted : .abort
        case .undecided, .restart, .taken: return .abort
        }
    }

    override func receiveHeader(_ line: UnsafeRawBufferPointer) -> Answer {
        transfer.pieces &+= 1
        do {
            try head.take(line)
            if head.isComplete, head.status >= 200, head.status != 401, head.status != 407 { decide() }
            return refusesBody ? .abort : .accepted
        } catch {
            verdict = .failed(DownloadFailure(.network, "\(url.host) sent more header fields than Todoku accepts.", host: url.host))
            return .abort
        }
    }

    override func mayConnect(to address: String) -> Bool {
        if transfer.mayConnect(to: address, for: self) { return true }
        isKeptAway = true
        return false
    }

    override func mayTalk(to address: String) -> Bool {
        transfer.liveness.restart()  // connected; the request goes out now
        if transfer.mayTalk(to: address, for: self) {
            transfer.requestGoesOut()
            return true
        }
        verdict = .failed(transfer.keptAway)
        return false
    }

    /// Says what the response is, unless that is said.
    func decide() {
        guard case .undecided = verdict else { return }
        verdict = transfer.judge(self)
        if case .redirect = verdict { redirected = .now }
        transfer.liveness.restart()
    }

    /// Whether the body of a redirect still comes, so long after its head.
    func drags(_ now: SuspendingClock.Instant) -> Bool { redirected.map { now - $0 >= Self.redirectPatience } ?? false }

    private func decode(_ bytes: UnsafeRawBufferPointer) -> DownloadFailure? {
        decoder?.decode(bytes, host: url.host) { transfer.take($0) }
    }

    /// Of a body that came to its end: why its content coding did not.
    var codingFailure: DownloadFailure? { decoder?.finish(host: url.host, isEmptyAnnounced: head.isEmptyAnnounced) }

    /// Whether the body would have been the file, but must not be: nothing to read on for.
    private var refusesBody: Bool {
        switch verdict {
        case .failed: head.status < 300
        case .restart, .taken: true
        // What may follow would be taken for the next response of the connection, which ends here.
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
