internal import DownloadModel
internal import EventLoop
internal import PartFiles
internal import Transport

/// The plan of a transfer: which segment fetches which stretch of the file.
///
/// A segment that waits for a permit has no stretch. It gets one when its request is made: bytes that no segment fetches, or a part of the
/// stretch of the segment that would end last. So no bytes wait for a request that may never be permitted. The other segment gives up this
/// part only when the response has proved that it brings the bytes.
extension Transfer {
    /// The most connections of a transfer.
    static let mostConnections = Int(clamping: DownloadOptions.mostConnections)
    /// A segment that receives nothing for this long loses its whole stretch to another segment that has no stretch
    /// (`TransferRequest.takeOverAfter`).
    static let takeOverAfter: Duration = .seconds(3)
    /// After this many lost connections in a row, no segment is added.
    static let mostLosses = 10
    /// The number of ids of a transfer, from its first id on (`TransferRequest.ordinal`).
    static let mostSegments: UInt32 = 1 << 16

    /// Whether the plan has several segments, though all but one may wait for their permits.
    var hasSeveral: Bool { segments.count > 1 }

    /// Whether other segments fetch parts of the file, too.
    func isDivided(besides segment: Segment) -> Bool { segments.contains { $0 !== segment && $0.end != nil } }

    /// Whether further segments may fetch parts of the file: their responses can be proved to be of the held representation, and a source
    /// sends ranges.
    var isDivisible: Bool {
        guard losses < Self.mostLosses, !isDistrusted, conclusion == nil, candidate == nil, let part,
            part.isResumable, part.error == nil, let total = part.total
        else { return false }
        return part.written < total && sources.contains(where: serves)
    }

    // MARK: Stretches

    /// The bytes that the next request of `segment` fetches; nil: no missing bytes are worth a request.
    func nextStretch(for segment: Segment) -> Range<ByteCount>? {
        guard isDivided(besides: segment) else {
            return ask(of: segment.source) == .whole ? 0..<(.max) : part?.ranges.firstGap ?? 0..<(.max)
        }
        staging.flush()
        guard isDivisible, serves(segment.source) else { return nil }
        return free(besides: segment) ?? division(for: segment, waiting: waitingCount(with: segment))
    }

    /// The response to `segment` brings its stretch: other segments give up these bytes.
    ///
    /// - Returns: false if another segment has fetched these bytes meanwhile, so that the response is of no use.
    func claimStretch(of segment: Segment) -> Bool {
        staging.flush()
        let start = segment.range.lowerBound
        guard let part, part.ranges.range(around: start) == nil else { return false }
        for other in segments where other !== segment && other.remaining.contains(start) { other.cut(at: start) }
        return true
    }

    /// Whether a segment without a stretch would get one now. nil: a further segment.
    func hasStretch(for segment: Segment?) -> Bool {
        guard isDivisible, segment.map({ serves($0.source) }) ?? true else { return false }
        return free(besides: segment) != nil || division(for: segment, waiting: waitingCount(with: segment)) != nil
    }

    /// How many segments want a stretch: `segment`, and the segments that wait for their permits.
    private func waitingCount(with segment: Segment?) -> Int { 1 +| segments.count { $0 !== segment && $0.end == nil } }

    /// The first missing bytes that no segment fetches.
    private func free(besides segment: Segment?) -> Range<ByteCount>? {
        guard let part, let total = part.total else { return nil }
        var claimed = part.ranges
        for other in segments where other !== segment { claimed.insert(other.remaining) }
        return claimed.gaps(in: 0..<total).first
    }

    /// The first byte from `place` on that is written, or that the response to another segment brings; `.max`: no such byte.
    func nextClaim(from place: ByteCount, besides segment: Segment) -> ByteCount {
        staging.flush()
        let claims = [part?.ranges.ranges ?? [], segments.filter { $0 !== segment && $0.isReceiving }.map(\.remaining)].joined()
        return claims.lazy.filter { !$0.isEmpty && $0.upperBound > place }.map { max($0.lowerBound, place) }.min() ?? .max
    }

    /// The part of another segment's stretch that a segment without a stretch would fetch; nil: no part is worth a request.
    ///
    /// - Parameter waiting: the number of segments that want a part, including `segment`.
    private func division(for segment: Segment?, waiting: Int) -> Range<ByteCount>? {
        guard let total = part?.total, !(segments.first?.pace.isLimiting ?? false) else { return nil }
        let now = SuspendingClock.now
        let others = segments.filter { $0 !== segment }
        let stretches = others.map { ($0, $0.remaining.clamped(to: 0..<total)) }.filter { !$0.1.isEmpty }
        let rests = stretches.filter { !mustStayWhole($0.1, of: $0.0) || $0.0.isSilent(now) }.compactMap { other, stretch in
            // Exclude the bytes that a later segment has requested.
            let later = stretches.filter { ($0.1.lowerBound, $0.0.id) > (stretch.lowerBound, other.id) }
            let next = max(stretch.lowerBound, later.map(\.1.lowerBound).min() ?? .max)
            return missing(in: stretch.clamped(to: 0..<next), of: other).map {
                Division.Rest(bytes: $0, speed: other.speed(now), isReceiving: other.isReceiving, isSilent: other.isSilent(now))
            }
        }
        return Division(waiting: waiting, speeds: others.compactMap { $0.speed(now) }, lastSpeed: lastSpeed).part(of: rests)
    }

    /// The first missing bytes of `stretch`, which `segment` fetches; nil if there are none, or if another response brings them now.
    /// Until the response to `segment` comes, the response to another request may get into `stretch`.
    private func missing(in stretch: Range<ByteCount>, of segment: Segment) -> Range<ByteCount>? {
        guard let gap = part?.ranges.gaps(in: stretch).first,
            !segments.contains(where: { $0 !== segment && $0.isReceiving && $0.remaining.first == gap.lowerBound })
        else { return nil }
        return gap
    }

    // MARK: Segments

    /// Whether another segment brings bytes, so that the transfer can continue without `segment`.
    func isCarried(without segment: Segment) -> Bool {
        let now = SuspendingClock.now
        return segments.contains { $0 !== segment && $0.exchange != nil && !$0.isSilent(now) }
    }

    /// The segment to add now; nil: none.
    func furtherSegment(_ now: SuspendingClock.Instant) -> Segment? {
        guard segments.count < wantedConnections, segmentCount < Self.mostSegments, now >= growsAfter,
            let other = segments.first(where: { $0.isReceiving || isUnanswered($0, now) }), hasStretch(for: nil),
            let source = furtherSource()
        else { return nil }
        let segment = Segment(beside: other, id: RequestID(request.number, request.ordinal &+ segmentCount), at: source)
        segmentCount +|= 1
        for other in segments { other.bound() }
        segments.append(segment)
        return segment
    }

    /// Whether a request for missing bytes gets no response, so that another segment may take over its stretch. The first response of a
    /// transfer is waited for, because it tells the facts about the file.
    private func isUnanswered(_ segment: Segment, _ now: SuspendingClock.Instant) -> Bool {
        facts != nil && segment.isSilent(now) && segment.attempt?.rangeStart != nil
    }

    private var isAutomatic: Bool { request.connections == 0 }

    /// How many connections the transfer should have.
    private var wantedConnections: Int {
        min(isAutomatic ? trial.target : min(Int(clamping: request.connections), Self.mostConnections), mostSegmentsNow)
    }

    /// The segment to end now, because a further connection has gained nothing; nil: none.
    var surplusSegment: Segment? {
        guard isAutomatic, segments.count > max(1, trial.target) else { return nil }
        // End the segment that was added last; a segment that receives nothing ends before the others.
        return segments.max { ($0.isReceiving ? 0 : 1, $0.id) < ($1.isReceiving ? 0 : 1, $1.id) }
    }

    /// Measures whether more connections make the transfer faster.
    ///
    /// - Parameters:
    ///   - own, whole: the bytes of this transfer, and of all transfers, in the last `seconds`.
    ///   - mayTry: whether no other transfer is trying.
    func measureConnections(seconds: Double, own: ByteCount, whole: ByteCount, mayTry: Bool) {
        guard isAutomatic, let part, let total = part.total else { return }
        let (rest, isUnlimited) = (total -| part.written, isDivisible && !(segments.first?.pace.isLimiting ?? true))
        if isUnlimited, hasMirrors, request.mixesSources { trial.spread(over: sources.count(where: serves), rest: rest) }
        trial.look(
            seconds: seconds, own: own, whole: whole, receiving: segments.count(where: \.isReceiving), rest: rest,
            mayTry: mayTry && isUnlimited)
    }

    /// Ends one of several segments. Other segments fetch the rest of its stretch.
    ///
    /// - Parameter failure: why its request brought no bytes; nil: the request brought bytes, or no bytes are left for the segment.
    func drop(_ segment: Segment, _ failure: DownloadFailure? = nil) {
        staging.flush()
        segment.endExchange()
        segments.removeAll { $0 === segment }
        events.append(.over(segment.id, failure))
    }

    /// A segment has lost its connection.
    func noteLoss() {
        losses +|= 1
        growsAfter = .now + .seconds(1 << min(losses -| 1, 6))
    }
}
