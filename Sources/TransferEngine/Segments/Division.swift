internal import DownloadModel
internal import PartFiles

/// Chooses the part of another segment's stretch that a segment without a stretch fetches, so that all segments end at the same time.
struct Division {
    /// A part of a stretch has at least this many bytes, because a new request costs a round trip, and cutting the other response loses its
    /// bytes in flight.
    static let leastPart: ByteCount = 1 << 20
    /// As `leastPart`, for a stretch that takes longer than `longStretch`.
    static let leastSlowPart: ByteCount = 64 << 10
    static let longStretch = 4.0
    /// A stretch that ends within this many seconds is not divided, because the bytes in flight that a cut response loses cost more than
    /// the division saves.
    static let shortStretch = 2.0
    /// A small rest is taken over from a segment if another connection is, or was, so many times faster.
    static let muchFaster = 8.0
    /// As `muchFaster`, for a rest that takes longer than `longRest`.
    static let clearlyFaster = 2.0
    static let longRest = 10.0

    /// What a segment still has to fetch.
    struct Rest {
        var bytes: Range<ByteCount>
        /// Bytes a second; nil: too little is known yet.
        var speed: Double?
        var isReceiving = true
        /// Whether nothing has come for `TransferRequest.takeOverAfter`.
        var isSilent = false
    }

    /// How many segments want a part.
    let waiting: Int
    /// The usual speed of the transfer's connections in bytes a second; nil: not known yet.
    let usual: Double?
    /// The mean speed of the last response that ended; nil: none has ended yet.
    let lastSpeed: Double?

    /// - Parameter speeds: the known speeds of the transfer's connections.
    init(waiting: Int, speeds: [Double], lastSpeed: Double?) {
        let known = speeds.filter { $0 > 0 }
        usual = known.isEmpty ? nil : known.reduce(0, +) / Double(known.count)
        (self.waiting, self.lastSpeed) = (waiting, lastSpeed)
    }

    /// The part of the rest that would end last; nil: no part is worth a request.
    func part(of rests: [Rest]) -> Range<ByteCount>? {
        var last: (part: Range<ByteCount>, seconds: Double)?
        for rest in rests {
            guard let part = part(of: rest) else { continue }
            // Without a measured speed, the longest stretch counts as the one that ends last.
            let seconds = Double(rest.bytes.byteCount) / max(rest.speed ?? usual ?? 1, 0.001)
            if seconds > last?.seconds ?? -1 { last = (part, seconds) }
        }
        return last?.part
    }

    /// The back part of `rest`; nil: the part is not worth a request.
    private func part(of rest: Rest) -> Range<ByteCount>? {
        if rest.isSilent { return rest.bytes }
        guard rest.isReceiving else { return nil }
        let count = Double(rest.bytes.byteCount)
        guard let speed = rest.speed, let usual else {
            let part = ByteCount(clamping: count / Double(waiting +| 1))
            return part < Self.leastPart ? nil : rest.bytes.last(part)
        }
        if count < Self.shortStretch * speed { return nil }
        // The other segment keeps the front part.
        let front = count * speed / (speed + usual * Double(waiting))
        let part = ByteCount(clamping: (count - front) / Double(waiting))
        let isLong = count > Self.longStretch * max(speed, 0.001)
        if part >= (isLong ? Self.leastSlowPart : Self.leastPart) { return rest.bytes.last(part) }
        // The end of a file must not wait for a trickle. The other segment keeps the bytes that it brings until the response comes.
        let faster = count > Self.longRest * speed ? Self.clearlyFaster : Self.muchFaster
        guard isLong, max(usual, lastSpeed ?? 0) > faster * speed else { return nil }
        return rest.bytes.last(ByteCount(clamping: count - Self.shortStretch * speed))
    }
}

extension Range<ByteCount> {
    /// The last `count` bytes.
    fileprivate func last(_ count: ByteCount) -> Self { Swift.max(lowerBound, upperBound -| count)..<upperBound }
}
