internal import DownloadModel
internal import PartFiles
internal import Transport

/// A URL that may bring the bytes of a transfer: the URL of the download, or a mirror. Lives on the engine's thread.
final class Source {
    let url: DownloadURL
    /// The index of the mirror, as in `DownloadOptions.mirrors`; nil: the URL of the download.
    let mirror: UInt32?
    /// Whether a response has named it, in this transfer or an earlier one.
    let isFound: Bool
    /// The bytes of the file that the source has brought, in earlier transfers too.
    var received: ByteCount
    /// Why the source is no longer used; nil: it may be used.
    var left: SourceFault?
    /// Why the source was left before it was asked as a last resort; nil: it has not been a last resort.
    private var leftBefore: SourceFault?
    /// Whether the source may not be asked even as a last resort, because its own response, and not the held bytes, speaks against it.
    var isSpent = false
    /// Whether a connection to the source was lost after it had brought bytes.
    var hasLost = false
    /// The last failure of the source in this transfer.
    var failure: DownloadFailure?
    /// The bytes that the source has sent with another digest than it stated, a range for each response (`ContentCheck`).
    var wrongRanges: [Range<ByteCount>] = []
    /// A source that has sent so many wrong responses is not believed.
    static let mostWrongRanges = 64
    /// How the next request to the source asks for the rest, if the held bytes come from this source.
    var ask = Transfer.Ask.conditional
    /// Whether the source may be asked for further ranges at the same time: true until one of its responses speaks against that.
    var takesRanges = true
    /// Whether the URL of the source leads to a private address; nil: not known yet.
    var isFirstPrivate: Bool?
    private var meter = SpeedMeter()
    private var receivedAtTick: ByteCount
    /// How often in a row a request for a further stretch has failed, and the bytes that the source had brought at the last of them.
    private var failures = Source.mostFailures
    private var receivedAtFailure: ByteCount
    private static let mostFailures = 3
    /// A connection that waits longer for the source is of more use at another source.
    private static let longestPause: Duration = .seconds(60)

    init(_ source: TransferSource) {
        (url, mirror, isFound) = (source.url, source.mirror, source.isFound)
        (received, receivedAtTick, receivedAtFailure) = (source.received, source.received, source.received)
        if source.hasWrongBytes { (left, isSpent) = (.wrongBytes, true) }
    }

    /// Bytes a second.
    var speed: Speed { meter.bytesPerSecond }

    func measure(seconds: Double) {
        meter.add(received -| receivedAtTick, seconds: seconds)
        receivedAtTick = received
    }

    /// A request for a further stretch has failed.
    ///
    /// - Returns: whether the source may be asked again: a retry may help soon, the source has brought bytes in this transfer, and at most
    ///   `mostFailures` requests have failed since.
    func mayRetry(after failure: DownloadFailure) -> Bool {
        guard failure.isRetryable, failure.retryAfter ?? .zero <= Self.longestPause else { return false }
        if received > receivedAtFailure { (failures, receivedAtFailure) = (0, received) }
        failures +|= 1
        return failures <= Self.mostFailures
    }

    /// A request of `segment` to the source has failed. A `Retry-After` is a pause of the server that has answered, behind all redirects.
    func note(_ failure: DownloadFailure?, of segment: Segment) {
        self.failure = failure
        if failure?.retryAfter != nil { self.failure?.origin = segment.url.origin }
    }

    /// Whether the source has sent wrong bytes of `range` before.
    func hasSentWrong(_ range: Range<ByteCount>) -> Bool {
        wrongRanges.count >= Self.mostWrongRanges || wrongRanges.contains { $0.overlaps(range) }
    }

    /// Asks the source for the whole file, once, although it was left. The reason is still reported.
    func askAsLastResort() { (leftBefore, left, isSpent, ask) = (left, nil, true, .whole) }

    var record: SourceRecord { SourceRecord(url: url.text, received: received, left: left ?? leftBefore) }
}

/// Which source is asked next.
extension Transfer {
    /// A source that loses its connection may be asked again at once if at least this many bytes that it has brought stay.
    static let leastKept: ByteCount = 64 << 10

    var hasMirrors: Bool { sources.count > 1 }

    /// Adds the mirrors that a response names (RFC 6249 §3). Only the server of the download's URL, and servers to which it redirects, may
    /// name mirrors. As with redirects, a public server may not name a mirror in a private network.
    func learnMirrors(from attempt: Attempt) {
        let segment = attempt.segment
        guard request.findsMirrors, request.mixesSources, segment.source.mirror == nil, let field = attempt.head.links else { return }
        let target = attempt.head.bytes("location").flatMap { try? DownloadURL(location: $0, from: attempt.url) }
        let known = sources.map(\.url.text) + [attempt.url, target].compactMap { $0?.text }
        var found: [String] = []
        for duplicate in LinkField.duplicates(in: field) where nextMirror < UInt32(clamping: Limits.mirrors) {
            guard let url = try? DownloadURL(location: duplicate.reference, from: attempt.url), url.username == nil, url.password == nil,
                !known.contains(url.text), !found.contains(url.text),
                foundMirrorBytes +| url.text.utf8.count <= Limits.foundMirrorBytes
            else { continue }
            foundMirrorBytes +|= url.text.utf8.count
            sources.append(Source(TransferSource(url, mirror: nextMirror, isFound: true)))
            found.append(url.text)
            nextMirror +|= 1
        }
        reportSources()
    }

    /// How a request to `source` asks for the missing bytes.
    func ask(of source: Source) -> Ask {
        // A later response can replace such bytes, and never continue them.
        if isDistrusted || part?.isResumable == false { return .whole }
        guard source.ask != .whole, let part, part.mirror != source.mirror else { return source.ask }
        return mayFollow(part, source) ? .bare : .whole
    }

    /// Whether a request to `source` may ask for the bytes that follow the held bytes, which come from another source.
    private func mayFollow(_ part: PartFile, _ source: Source) -> Bool {
        if request.mixesSources { return mixesNow }
        // The response must have the same strong validator, and come from the server of the held bytes (`mayContinue`).
        guard !request.keepsSourcesApart, part.validator != nil, let server = part.origin else { return false }
        return [server, sources.first { $0.mirror == part.mirror }?.url.origin].contains(source.url.origin)
    }

    /// Whether sources may be joined now. Only an equal size shows that another source may have the same file.
    private var mixesNow: Bool { request.mixesSources && knownSize != nil }

    /// Whether the server of a response may continue the held bytes. Redirects of sources with one origin may lead to different servers,
    /// which may send the same validator for different files.
    func mayContinue(_ part: PartFile, _ attempt: Attempt) -> Bool {
        request.mixesSources || part.mirror == attempt.segment.source.mirror || part.origin == attempt.url.origin
    }

    /// Whether bytes of `source` may be joined to the held bytes of another source, because something else than validators proves the file.
    func joins(_ source: Source) -> Bool { request.mixesSources && part.map { $0.mirror != source.mirror } ?? false }

    /// Whether the held bytes stay if a response of `source` contradicts them: they come from other sources, or other sources can continue
    /// them. The source that began the file may have brought few of them, and something else than validators proves the file.
    func heldBytesOutweigh(_ source: Source) -> Bool {
        guard request.mixesSources, let part else { return false }
        return part.mirror != source.mirror || part.written > 0 && hasAlternative(to: source)
    }

    /// Whether `source` may fetch a stretch of the file beside other segments.
    func serves(_ source: Source) -> Bool { source.left == nil && source.takesRanges && ask(of: source) != .whole }

    private var standings: [SourceStanding] {
        sources.map { source in
            let own = segments.lazy.filter { $0.source === source }
            let receiving = own.count(where: \.isReceiving)
            return SourceStanding(
                left: source.left, isSpent: source.isSpent, hasLost: source.hasLost, isPaused: isPaused(source.url.origin),
                holds: part?.mirror == source.mirror, serves: serves(source), connections: own.count,
                isWaiting: own.contains(where: \.awaitsPermit),
                speed: receiving > 0 ? Double(source.speed) / Double(receiving) : nil)
        }
    }

    /// Whether a source was refused at `origin` with a `Retry-After`.
    private func isPaused(_ origin: String) -> Bool { sources.contains { $0.failure?.retryAfter != nil && $0.failure?.origin == origin } }

    /// The source that the only segment of the transfer asks next; nil: no source is left.
    func nextSource() -> Source? { SourceChoice.next(standings, mixes: mixesNow).map { sources[$0] } }

    /// The source for one more segment; nil: no source may get one.
    func furtherSource() -> Source? {
        guard hasMirrors else { return serves(sources[0]) ? sources[0] : nil }
        return SourceChoice.further(standings).map { sources[$0] }
    }

    /// Whether another source could continue from the held bytes, so that `source` need not begin from the first byte.
    func hasAlternative(to source: Source) -> Bool {
        sources.contains { $0 !== source && $0.left == nil && ask(of: $0) != .whole }
    }

    /// Whether the current exchange of `segment` has brought bytes that the next request to its source need not fetch again.
    func keepsBytes(of segment: Segment) -> Bool {
        guard candidate == nil, let part, part.isResumable, ask(of: segment.source) != .whole else { return false }
        return part.written >= segment.writtenBefore +| Self.leastKept
    }

    /// The bytes of the part file come from another source than the one that the first request asks. The service was killed before it could
    /// record that.
    ///
    /// - Returns: whether `segment` now asks that source.
    func turnToHolder(_ segment: Segment) -> Bool {
        guard hasMirrors, let part, part.mirror != segment.source.mirror, let holder = sources.first(where: { $0.mirror == part.mirror }),
            holder.left == nil
        else { return false }
        segment.move(to: holder)
        return true
    }

    /// Lets `segment`, the only segment of the transfer, continue at `source`.
    func turn(_ segment: Segment, to source: Source) {
        isFurtherPart = false  // the next body is of another source, even if the last one was a part
        if source.left == nil, part?.mirror == source.mirror {
            source.ask = .conditional  // all held bytes come from this source
        } else if source.left != nil {
            source.askAsLastResort()
        }
        // An empty part file is nobody's. Otherwise the source that brings all bytes would not answer for them.
        if let part, request.mixesSources, part.written == 0, part.mirror != source.mirror {
            part.turn(to: source.mirror)
            if let data = part.resumeData(checkpoint?.ranges ?? ByteRanges()) { report(data) }
        }
        segment.move(to: source)
    }

    /// What a failure says about the source of the last request; nil: another source would not help.
    func fault(of failure: DownloadFailure) -> SourceFault? {
        // No disk has room for the size that the response states. Another source may state another size. A full disk is waited for.
        if failure.name == .diskFull, failure.wait == nil, request.descriptor == nil { return .wrongSize }
        return SourceFault(failure)
    }

    /// One of several requests has failed. The other requests continue. One failure between two stretches does not end the use of a source.
    func note(_ failure: DownloadFailure, of segment: Segment) {
        let source = segment.source
        guard hasMirrors, let fault = SourceFault(failure), segment.isReceiving == false,
            !segments.contains(where: { $0 !== segment && $0.source === source && $0.isReceiving })
        else {
            source.hasLost = hasMirrors
            return noteLoss()
        }
        if source.mayRetry(after: failure) { return noteLoss() }
        source.left = fault
        source.note(failure, of: segment)
    }

    /// The last request of the transfer has failed.
    func note(_ failure: DownloadFailure, _ fault: SourceFault, of segment: Segment) {
        let source = segment.source
        source.note(failure, of: segment)
        if keepsBytes(of: segment) { source.hasLost = true } else { (source.left, source.isSpent) = (fault, true) }
    }

    /// The most hopeful of all sources' failures: a failure that a retry may cure, with the shortest `Retry-After`; else the failure of the
    /// first source.
    func mostHopefulFailure(or failure: DownloadFailure) -> DownloadFailure {
        let failures = sources.compactMap(\.failure)
        let retryable = failures.filter(\.isRetryable)
        // A source whose host does not exist comes last.
        let hopeful = retryable.filter { !$0.isOfMissingHost }.min { ($0.retryAfter ?? .zero) < ($1.retryAfter ?? .zero) }
        return hopeful ?? retryable.first ?? failures.first ?? failure
    }

    /// Reports the known facts about the sources, if they have changed.
    func reportSources() {
        guard hasMirrors, case let records = sources.map(\.record), records != reportedSources else { return }
        reportedSources = records
        events.append(.sources(request.number, records))
    }
}
