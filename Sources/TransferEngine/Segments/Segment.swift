internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import PartFiles
internal import Transport

/// One connection's part in a transfer: fetches a stretch of the file, by one request at a time and through its redirects. Lives on the
/// engine's thread; libcurl's callbacks reach it through `Attempt`.
final class Segment {
    unowned let transfer: Transfer
    /// The request of the transfer. Kept here, because it is read for each stretch of a body.
    private let request: TransferRequest
    /// Names the segment's requests in events and permits.
    let id: RequestID
    let pace: Pace
    var liveness = Liveness()
    /// The current request; nil: none.
    var exchange: Exchange?
    var attempt: Attempt? { exchange?.sink as? Attempt }

    /// The source that the segment's requests ask.
    private(set) var source: Source
    /// The bytes that the transfer had when the current request was made.
    var writtenBefore: ByteCount = 0
    /// The URL of the current hop.
    var url: DownloadURL
    var hops = 0
    /// The number of the look-up, of a proxy or a name, that the next request or the failure waits for.
    var lookup: UInt64?
    /// Whether the next request waits for `Engine.permit`.
    var awaitsPermit = false
    /// How often the segment has asked for a permit.
    var question: UInt64 = 0
    /// Whether to report when the current request goes out.
    var tellsSent: Bool
    /// Whether the host's rules set an interval between requests, so that each request needs a permit.
    var isPaced: Bool
    /// The next request must use no kept connection.
    var needsFreshConnection = false
    /// No other request may use the segment's connections.
    var ownsConnection = false
    /// The permitted request must share a connection (`TransferRequest.mustShare`).
    var mustShare: Bool
    /// Whether the next request is a POST with the body of the transfer.
    var sendsBody: Bool
    /// Whether the body has gone out, and no response has asked for it again.
    var isBodyOut = false
    /// The bytes of the connection that the server's kernel had confirmed at the last tick.
    var acknowledged: UInt64 = 0

    /// The bytes of the file that the current request asks for; the end is `.max` if that is the end of the file.
    private(set) var range: Range<ByteCount> = 0..<(.max)
    /// The end of the stretch that the segment fetches now; nil: the segment has no stretch, because it waits for a permit. Another segment
    /// may have taken over the bytes behind this end since the request.
    private(set) var end: ByteCount?
    /// Whether bytes behind `end` belong to another segment, so that this segment must not write them.
    private(set) var isBounded = false
    /// The end, in the file, of the bytes taken from the response, whether written, staged or dropped.
    private var taken: ByteCount = 0
    /// Where the next bytes are written.
    private var place: ByteCount = 0
    /// Where the first bytes of the current body were written.
    private var bodyStart: ByteCount = 0
    /// The end, in the file, of the part that the response announces; nil: the part is the whole rest.
    private var partEnd: ByteCount?
    /// How many bytes at the front of the current body are held already.
    private var skip: ByteCount = 0
    /// Whether the response has not reached missing bytes yet.
    var isSkipping: Bool { skip > 0 }

    /// The number of header lines and stretches of the body that have come from the server.
    var signsOfLife = 0
    private var signsAtTick = 0
    private(set) var lastHeard = SuspendingClock.now
    /// Whether the last reported event says that the server is silent.
    var isStalled = false

    /// When the body began, and its bytes received since.
    private(set) var began: SuspendingClock.Instant?
    private var meter = SpeedMeter()
    private var takenAtTick: ByteCount = 0

    init(of transfer: Transfer, id: RequestID, pace: Pace, at source: Source) {
        (self.transfer, self.id, self.pace, self.source) = (transfer, id, pace, source)
        (request, url, tellsSent) = (transfer.request, source.url, transfer.request.tellsSent)
        (isPaced, sendsBody, mustShare) = (tellsSent, transfer.request.body != nil, transfer.request.mustShare)
    }

    /// A further segment of the same transfer, which must ask for its first request.
    init(beside other: Segment, id: RequestID, at source: Source) {
        (transfer, self.id, pace, self.source) = (other.transfer, id, Pace(with: other.pace), source)
        (request, url, tellsSent, isPaced, sendsBody, mustShare) = (other.request, source.url, false, false, false, false)
    }

    // MARK: Before a request

    /// Chooses the bytes that the next request fetches. Returns false if no bytes are left that are worth a request.
    func aim() -> Bool {
        release()
        guard let stretch = transfer.nextStretch(for: self) else { return false }
        (range, end, isBounded) = (stretch, stretch.upperBound, transfer.hasSeveral)
        return true
    }

    /// Gives up the stretch: other segments may fetch its bytes.
    private func release() {
        if let began, taken > bodyStart {
            transfer.lastSpeed = Double(taken -| bodyStart) / max((SuspendingClock.now - began) / .seconds(1), 0.001)
        }
        (end, began, isBounded) = (nil, nil, false)
    }

    /// Whether the next request can use a connection that others use.
    ///
    /// With a speed limit it cannot, because a stream of HTTP/2 must not be paused (`Attempt.receive`).
    var sharing: ConnectionSharing {
        ownsConnection || needsFreshConnection || sendsBody || pace.hasLimit || transfer.isDivided(besides: self) ? .impossible : .possible
    }

    /// Back to the URL of the source.
    func startOver() {
        endExchange()
        (url, hops) = (source.url, 0)
    }

    /// From now on, the segment asks `source`.
    func move(to source: Source) {
        self.source = source
        startOver()
    }

    /// Ends the exchange. The segment keeps no stretch. The answer to a look-up that is under way no longer counts, because it is about the
    /// URL of that exchange.
    func endExchange() {
        if let attempt { transfer.noteCookies(bytes: attempt.head.cookieBytes) }
        if repeatsWrongPart { forgetBody() }
        (exchange, lookup) = (nil, nil)
        pace.endHold()
        release()
    }

    /// Ends the exchange, because the transfer ends.
    func stop() {
        endExchange()
        pace.end()
    }

    // MARK: The stretch

    /// Whether the body of a response is arriving.
    var isReceiving: Bool { exchange != nil && began != nil }

    /// The bytes that the segment still has to write; empty if it has no stretch.
    var remaining: Range<ByteCount> {
        let start = began == nil ? range.lowerBound : place
        return start..<max(start, end ?? start)
    }

    /// Bytes of the body a second; nil: too little is known yet.
    func speed(_ now: SuspendingClock.Instant) -> Double? {
        guard let began, now - began >= .milliseconds(300) else { return nil }
        return isSilent(now) ? 0 : Double(meter.bytesPerSecond)
    }

    /// Whether the segment has a request, and has heard nothing for `TransferRequest.takeOverAfter`.
    func isSilent(_ now: SuspendingClock.Instant) -> Bool {
        exchange != nil && !pace.isHolding && now - lastHeard >= request.takeOverAfter
    }

    /// Whether another segment has taken over the whole stretch.
    func isTakenOver(_ now: SuspendingClock.Instant) -> Bool { end != nil && remaining.isEmpty && isSilent(now) }

    func measure(seconds: Double) {
        guard began != nil, seconds > 0 else { return }
        meter.add(taken -| takenAtTick, seconds: seconds)
        takenAtTick = taken
    }

    /// From now on other segments may fetch the bytes behind the stretch.
    func bound() { isBounded = end != nil }

    /// From now on another segment fetches the bytes from `place` on.
    func cut(at place: ByteCount) { (end, isBounded) = (place, true) }

    /// How many of `count` arrived bytes belong to the segment's stretch. The stretch grows if no other segment fetches the bytes behind
    /// it.
    func room(for count: Int) -> Int {
        guard isBounded, let end, skip == 0, taken +| ByteCount(count) > end, partEnd != end, end < transfer.part?.total ?? .max else {
            return count
        }
        let next = max(end, min(transfer.nextClaim(from: end, besides: self), partEnd ?? .max))
        self.end = next
        return next == partEnd || next >= transfer.part?.total ?? .max ? count : Int(clamping: min(ByteCount(count), next -| taken))
    }

    /// Whether the segment has all bytes of its stretch although the response has more bytes.
    var isFilled: Bool {
        guard isBounded, let end, began != nil, end < transfer.part?.total ?? .max else { return false }
        return taken >= end && partEnd != end
    }

    /// The first byte of the requested range; nil: the request is for the whole file.
    var rangeStart: ByteCount? { transfer.part == nil || transfer.ask(of: source) == .whole ? nil : range.lowerBound }

    /// The conditions with which the current hop asks only for a file newer than the cached copy; nil: no conditions.
    var copyValidators: CopyValidators? { transfer.copyValidators(for: url, of: source) }

    /// Our header lines for the current hop.
    var headerLines: [String] {
        var lines: [String] = []
        if rangeStart != nil {
            lines.append("Range: \(range.rangeHeader)")
            if transfer.ask(of: source) == .conditional, let validator = transfer.part?.validator {
                lines.append("If-Range: \(validator.ifRange)")
            }
        }
        if let validators = copyValidators {
            if let tag = validators.entityTag { lines.append("If-None-Match: \(tag)") }
            if let date = validators.lastModified { lines.append("If-Modified-Since: \(date)") }
        }
        if let body = request.body, sendsBody {
            // Without "Expect:", libcurl would wait a second for servers that do not know the field.
            lines.append("Expect:")
            if !request.headers.contains(where: { $0.name.lowercased() == "content-type" }) { lines.append("Content-Type: \(body.type)") }
        }
        guard isFirstOrigin else { return lines }
        for field in request.headers where !RequestHeaders.ownFields.contains(field.name.lowercased()) && !isCookie(field) {
            guard let value = field.name.lowercased() == "referer" ? Referrer.sent(field.value, to: url) : field.value else { continue }
            // To libcurl, "Name;" is a field with an empty value, and "Name:" a field to leave out.
            lines.append(value.isEmpty ? "\(field.name);" : "\(field.name): \(value)")
        }
        return lines
    }

    /// The caller's own header Cookie for the current hop; nil: none. A request may have one such header only (RFC 6265, section 5.4), so
    /// libcurl joins it to the cookies of the transfer.
    var cookieField: String? {
        let values = isFirstOrigin ? request.headers.filter { isCookie($0) && !$0.value.isEmpty }.map(\.value) : []
        return values.isEmpty ? nil : values.joined(separator: "; ")
    }

    private func isCookie(_ field: HeaderField) -> Bool { field.name.lowercased() == "cookie" }

    /// Whether the current hop has a user or a password for a server that asks for them.
    var hasLogin: Bool { isFirstOrigin && (request.username != nil || request.password != nil) }

    var isFirstOrigin: Bool { url.origin == request.url.origin }

    /// The failure if the current hop leads to a forbidden address.
    var keptAway: DownloadFailure {
        let host = url.host
        if hops == 0, request.isNamedByPublicServer, !request.refusesPrivate {
            return DownloadFailure(
                .notAllowed, "A public server named \(host), an address inside a private network, which a public server may not do.",
                host: host)
        }
        if hops > 0 || !request.refusesPrivate {
            let why = request.refusesPrivate ? "where this download may not go (option allow-private)" : "which a public server may not do"
            return DownloadFailure(
                .unsafeRedirect, "The server redirected to \(host), an address inside a private network, \(why).", host: host)
        }
        return DownloadFailure(
            .notAllowed, "\(host) is this machine or in a private network, where this download may not go (option allow-private).",
            host: host)
    }

    /// Whether the URL of the current hop names a forbidden address literally. Behind a proxy, no other check is possible.
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
        attempt.isToPrivate = isPrivate
        guard let isFirstPrivate else {
            source.isFirstPrivate = isPrivate
            return true
        }
        return isFirstPrivate || !isPrivate
    }

    /// Whether a redirect to `url` keeps the protection of the bytes: the encrypted connection, or a checksum.
    func mayFollow(to url: DownloadURL) -> Bool {
        self.url.scheme != "https" || url.scheme == "https" || request.hasChecksum || request.allowsDowngrade
    }

    /// Whether the URL of the source leads to a private address; nil: that is not known yet, and may be so. A source that a response has
    /// named counts as the URL of the download does. A URL that a public server has named must not lead there.
    private var isFirstPrivate: Bool? {
        if let known = source.isFirstPrivate { return known }
        if source.isFound { return transfer.sources[0].isFirstPrivate ?? false }
        return request.isNamedByPublicServer ? false : nil
    }

    func requestGoesOut() {
        if mustShare, let port = exchange?.localPort { transfer.events.append(.shares(id, connection: port)) }
        guard tellsSent else { return }
        tellsSent = false
        transfer.events.append(.sent(id, at: wallTime()))
    }

    // MARK: Signs of life

    /// The server's silence before `now` does not count.
    func heard(_ now: SuspendingClock.Instant) {
        liveness.restart(now)
        lastHeard = now
    }

    /// Notes whether any bytes have come since the last tick.
    ///
    /// - Parameter isHolding: whether we hold back bytes that the server has sent.
    func listen(_ now: SuspendingClock.Instant, isHolding: Bool) {
        if isHolding || signsOfLife != signsAtTick { (signsAtTick, lastHeard) = (signsOfLife, now) }
    }

    // MARK: Body bytes

    /// The body begins at `start` of the file. Its first `held` bytes are held already. It ends at `end`; nil: it is the whole file,
    /// whatever stretch the request asked for.
    func bodyBegins(at start: ByteCount, end: ByteCount?, skipping held: ByteCount = 0) {
        (taken, place, skip, partEnd) = (start, start +| held, held, end)
        if end == nil { self.end = .max }
        bodyStart = place
        (began, meter, takenAtTick) = (.now, SpeedMeter(), start)
    }

    /// Whether `count` more bytes exceed the part in the response's `Content-Range`. Such a response proves nothing.
    func exceedsPart(_ count: Int) -> Bool { partEnd.map { taken +| ByteCount(count) > $0 } ?? false }

    /// Whether the last byte of the part in the response's `Content-Range` has come.
    var hasWholePart: Bool { taken == partEnd }

    /// The bytes of the file that the response has brought.
    var bodyRange: Range<ByteCount> { bodyStart..<max(bodyStart, taken) }

    /// The bytes that the response has brought are missing again, also if the disk has not taken all of them. They are wrong, or nothing
    /// will show whether they are.
    ///
    /// - Parameter isOfWrongSize: the body is a whole file of a wrong size. Then the held bytes that it has repeated are wrong, too. If the
    ///   pieces have digests, these digests tell which held bytes are wrong.
    func forgetBody(isOfWrongSize: Bool = false) {
        transfer.staging.flush()
        let start = isOfWrongSize && partEnd == nil && !transfer.joins(source) && transfer.pieces == nil ? 0 : bodyStart
        guard began != nil, place > start else { return }
        // Bytes of a candidate are dropped with it.
        if transfer.candidate == nil { transfer.forget(start..<place) }
        place = bodyStart
    }

    /// Takes body bytes. Returns why the transfer must end, if it must.
    func take(_ bytes: UnsafeRawBufferPointer) -> DownloadFailure? {
        taken +|= ByteCount(bytes.count)
        if let most = request.maxSize, taken > most {
            return DownloadFailure(.tooLarge, "The file at \(url.host) has more than the \(most) bytes allowed.", host: url.host)
        }
        if let expected = request.expectedSize, taken > expected {
            return DownloadFailure(.sizeMismatch, "The file at \(url.host) has more than the expected \(expected) bytes.", host: url.host)
        }
        if let total = transfer.facts?.total, taken > total {
            return DownloadFailure(.network, "\(url.host) sent more bytes than it had announced.", host: url.host)
        }
        let held = Int(clamping: min(skip, ByteCount(bytes.count)))
        skip -|= ByteCount(held)
        transfer.staging.append(UnsafeRawBufferPointer(rebasing: bytes[held...]), for: self)
        return transfer.diskFailure
    }

    /// Called by the staging buffer.
    func write(_ bytes: UnsafeRawBufferPointer) {
        CrashMarks.working(on: id.download.value) { transfer.write(bytes, at: place, from: source) }
        place +|= ByteCount(bytes.count)
        source.received +|= ByteCount(bytes.count)
    }

    /// Whether `attempt`, which ended without an error, brought all bytes of the stretch, or of the part in its `Content-Range`, and other
    /// bytes of the file are missing. The missing bytes may be behind the part, because a server may send less than was requested (RFC
    /// 9110 §15.3.7), or elsewhere in the file. A stretch has no bytes if another segment has taken over all of them. If no
    /// response has stated the size of the file, the pieces tell it.
    func gotPart(_ attempt: Attempt) -> Bool {
        guard transfer.diskFailure == nil, transfer.candidate == nil, let part = transfer.part, part.isResumable,
            place > bodyStart || isFilled, let total = part.total ?? transfer.pieces?.size, part.written < total, !isSkipping
        else { return false }
        let isWholePart =
            attempt.head.status == 206
            && attempt.head.text("content-range").flatMap(Range<UInt64>.fromContentRange)?.range.upperBound == place
        guard isFilled || isWholePart || transfer.pieces?.hasFailed ?? false && place == total else { return false }
        transfer.isFurtherPart = true
        if place > bodyStart { transfer.losses = 0 }
        return true
    }
}

/// Whether a server is alive. Its response head must be complete within the stall timeout. Its body must bring one byte a second on
/// average, in each stretch of that length. So neither silence nor a trickle blocks a transfer.
struct Liveness {
    private var since = SuspendingClock.now
    /// Wanted body bytes since `since`.
    private(set) var bytes: ByteCount = 0

    /// Starts a stretch: at a connection, a request or a body.
    mutating func restart(_ now: SuspendingClock.Instant = .now) { (since, bytes) = (now, 0) }

    mutating func count(_ more: Int) { bytes +|= ByteCount(more) }

    /// - Parameter isHolding: whether we hold back bytes that the server has sent. Then the server owes nothing.
    mutating func isStalled(_ now: SuspendingClock.Instant, timeout: Duration, isHolding: Bool) -> Bool {
        if isHolding || bytes >= max(1, ByteCount(clamping: (timeout / .seconds(1)).rounded(.up))) {
            restart(now)
            return false
        }
        return now - since > timeout
    }
}
