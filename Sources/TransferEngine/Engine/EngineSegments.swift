internal import DownloadModel
internal import EventLoop
internal import Synchronization
internal import Transport

/// The requests of a transfer: one segment or several, permits and redirects.
extension Engine {
    /// Measures whether more connections make automatic transfers faster. One transfer of all engines tries at a time.
    func measureConnections(of fetching: [Transfer], _ seconds: Double) {
        guard seconds > 0 else { return }
        if isMetered.load(ordering: .relaxed) {
            for transfer in fetching { transfer.trial = ConnectionTrial() }
            return
        }
        let bytes = fetching.reduce(0 as ByteCount) { $0 +| ($1.received -| $1.receivedAtTick) }
        let all = trials.begin(ObjectIdentifier(self), Set(fetching.map(\.request.number)), speed: Double(bytes) / seconds)
        if all.numbers != fetched { for transfer in fetching { transfer.trial.reset() } }
        fetched = all.numbers
        let whole = bytes +| ByteCount(clamping: all.others * seconds)
        var trying = fetching.first { $0.trial.isTrying }
        for transfer in fetching {
            let own = transfer.received -| transfer.receivedAtTick
            let mayTry = all.mayTry && trying.map { $0 === transfer } ?? true
            transfer.measureConnections(seconds: seconds, own: own, whole: whole, mayTry: mayTry)
            if trying == nil || trying === transfer { trying = transfer.trial.isTrying ? transfer : nil }
        }
        trials.end(ObjectIdentifier(self), isTrying: trying != nil)
    }

    var isFetching: Bool { transfers.values.contains(where: \.isFetching) }

    /// Adds the segments that the transfer should have now.
    func grow(_ transfer: Transfer, _ now: SuspendingClock.Instant) {
        while transfer.hasSeveral, let segment = transfer.surplusSegment { drop(segment) }
        for segment in transfer.segments where transfer.hasSeveral && segment.isTakenOver(now) {
            segment.source.hasLost = transfer.hasMirrors
            transfer.noteLoss()
            drop(segment)
        }
        while let segment = transfer.furtherSegment(now) { ask(segment) }
    }

    /// A segment has fetched its stretch: it fetches another stretch, or ends.
    func goOn(_ segment: Segment) {
        let transfer = segment.transfer
        segment.startOver()
        guard transfer.isDivided(besides: segment), !transfer.hasStretch(for: segment) else { return ask(segment) }
        drop(segment)
    }

    /// Ends one of several segments.
    func drop(_ segment: Segment, _ failure: DownloadFailure? = nil) {
        let transfer = segment.transfer
        reportEvents()  // as in `ask`
        transfer.drop(segment, failure)
        reportEvents(of: transfer)
    }

    /// The bytes of a response may be wrong: one segment fetches the whole file.
    func distrust(_ transfer: Transfer, keeping segment: Segment) {
        for other in transfer.segments where other !== segment { drop(other) }
        transfer.distrust()
    }

    func takeBack(_ id: RequestID) {
        guard let transfer = transfers[id.download], transfer.conclusion == nil, transfer.hasSeveral,
            let segment = transfer.segments.first(where: { $0.id == id })
        else { return }
        drop(segment)
        transfer.growsAfter = .now + .seconds(1)
    }

    /// Starts over from the first URL, as `Transfer.ask` says.
    func restart(_ segment: Segment) {
        segment.startOver()
        ask(segment)
    }

    /// Asks for permission for a further request, because this request must obey the host's rule too.
    ///
    /// - Parameters:
    ///   - isAnswered: whether the server of the segment's last request has answered.
    ///   - sharing: nil: as the segment needs it.
    func ask(_ segment: Segment, isAnswered: Bool = true, _ sharing: ConnectionSharing? = nil) {
        // The segment has left its connection. Requests that have joined this connection are reported before (`.shares`).
        reportEvents()
        segment.awaitsPermit = true
        segment.question &+= 1
        segment.transfer.events.append(
            .asks(
                segment.id, segment.url, question: segment.question, isAnswered: isAnswered, sharing: sharing ?? segment.sharing))
        reportEvents(of: segment.transfer)
    }

    /// A permit has come. The permit of an earlier question is void: it is for another host, or for an earlier time.
    func goOn(_ id: RequestID, _ question: UInt64, tellsSent: Bool, mustShare: Bool = false) {
        guard let transfer = transfers[id.download], transfer.conclusion == nil,
            let segment = transfer.segments.first(where: { $0.id == id && $0.awaitsPermit && $0.question == question })
        else { return }
        (segment.awaitsPermit, segment.tellsSent, segment.isPaced, segment.mustShare) = (false, tellsSent, tellsSent, mustShare)
        let isFresh = segment.needsFreshConnection
        segment.needsFreshConnection = false
        fetch(segment, isFresh: isFresh)
    }

    /// The head of a response suffices, and its body drags on: ends the exchange without the rest.
    func leaveBody(of segment: Segment, _ attempt: Attempt) {
        guard attempt.verdict != .redirect, let exchange = segment.exchange else { return follow(segment, attempt) }
        exchangeEnded(exchange, CurlError(.timeout, "the body drags on"))
    }

    func follow(_ segment: Segment, _ attempt: Attempt) {
        let host = segment.url.host
        segment.endExchange()
        segment.hops += 1
        guard segment.hops <= Self.hopLimit else {
            return fail(
                segment,
                DownloadFailure(.tooManyRedirects, "The server \(host) redirected more than \(Self.hopLimit) times.", host: host), by: nil)
        }
        let url: DownloadURL
        do throws(Refusal) {
            url = try DownloadURL(location: attempt.head.bytes("location") ?? [], from: segment.url)
        } catch {
            return fail(segment, FailureMapping.redirect(error, host: host), by: nil)
        }
        guard segment.mayFollow(to: url) else {
            return fail(
                segment,
                DownloadFailure(
                    .unsafeRedirect,
                    """
                    The server \(host) redirected from https to http, where anyone on the way can read and change the file; give a checksum, or \
                    allow it (option allow-downgrade).
                    """, host: host), by: nil)
        }
        if let failure = redirectBody(of: segment, after: attempt.head.status, to: url) { return fail(segment, failure, by: nil) }
        segment.url = url
        ask(segment)
    }
}
