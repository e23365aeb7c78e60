internal import DownloadModel
internal import PartFiles
internal import Transport

/// Compares the body of a 206 with the digest that the response states of this body (`Content-Digest`, RFC 9530).
///
/// Hashes the bytes on the engine's thread while they arrive, and keeps none of them.
struct ContentCheck {
    private let stated: Checksum
    private let digest: RunningDigest

    init(_ stated: Checksum) throws(Digest.Unavailable) {
        (self.stated, digest) = (stated, try RunningDigest(stated.algorithm))
    }

    /// The next bytes of the body, each of them once.
    func add(_ bytes: UnsafeRawBufferPointer) { digest.add(bytes) }

    /// Call once, after the last byte.
    ///
    /// - Parameter range: the bytes of the file that the body is.
    /// - Returns: the failure if the body has another digest, or if its digest cannot be computed; nil: the digest is right.
    func failure(of range: Range<ByteCount>, host: String) -> DownloadFailure? {
        do throws(Digest.Unavailable) {
            guard let own = Checksum(stated.algorithm, digest: try digest.finish()), own != stated else { return nil }
            return DownloadFailure(
                .checksumMismatch,
                "\(host) sent wrong bytes, or states a wrong digest: the bytes \(range.lowerBound) to \(range.upperBound -| 1) have "
                    + "\(own), and the server stated \(stated).", host: host)
        } catch {
            return Self.failure(error, stated.algorithm)
        }
    }

    static func failure(_ error: Digest.Unavailable, _ algorithm: Checksum.Algorithm) -> DownloadFailure {
        DownloadFailure(.writeFailed, "The \(algorithm.rawValue) digest of a response cannot be computed: \(error.reason).")
    }
}

/// Responses whose bytes have another digest than they state.
extension Transfer {
    /// Makes `attempt`, whose response is a 206 with missing bytes, compare these bytes with the digest that it states of them.
    ///
    /// - Returns: the failure if the digest cannot be computed.
    func checkContent(of attempt: Attempt) -> DownloadFailure? {
        guard let stated = contentDigest(of: attempt) else { return nil }
        do throws(Digest.Unavailable) {
            attempt.check = try ContentCheck(stated)
            return nil
        } catch {
            return ContentCheck.failure(error, stated.algorithm)
        }
    }

    /// The digest to compare; nil: none.
    private func contentDigest(of attempt: Attempt) -> Checksum? {
        // The digests of the pieces decide.
        guard pieces == nil, let stated = attempt.head.contentDigests.preferred else { return nil }
        // Some servers state the digest of the whole file in each response.
        let ofFile = [part?.digest, attempt.head.statedDigests.preferred, request.checksum]
        return ofFile.contains(stated) ? nil : stated
    }

    /// The bytes of the response to `segment` have another digest than it states, or no digest can be computed. They are missing again.
    ///
    /// The first time, the bytes are requested once more. If they differ again, the source may state wrong digests, such as that of the
    /// whole file in each 206. Then a checksum decides about the file. Without one, the whole file is requested, and compared with its own
    /// digests.
    ///
    /// - Returns: nil: the bytes stay, because a checksum decides.
    func verdictOfWrongContent(in segment: Segment, _ failure: DownloadFailure) -> Attempt.Verdict? {
        let (source, range) = (segment.source, segment.bodyRange)
        let isRepeated = source.hasSentWrong(range)
        if isRepeated, request.hasChecksum { return nil }
        segment.forgetBody()
        if let diskFailure { return .failed(diskFailure) }
        guard failure.name == .checksumMismatch else { return .failed(failure) }
        if isRepeated {
            // No later request of this transfer has a range, so none of its responses is compared here. If no other source is left, this
            // one is asked as the last resort.
            distrust()
            return .left(.wrongDigest)
        }
        source.wrongRanges.append(range)
        if request.mixesSources, hasAlternative(to: source) {
            return isDivided(besides: segment) ? .declined(failure, .wrongDigest) : .left(.wrongDigest)
        }
        isFurtherPart = true
        return .again
    }

    /// Whether the response to `segment`, with bytes of `range`, must not be cut, because only a response that comes to its end is
    /// compared. Its source has sent wrong bytes there, and no checksum would find them.
    func mustStayWhole(_ range: Range<ByteCount>, of segment: Segment) -> Bool {
        !request.hasChecksum && (segment.attempt?.check != nil || !segment.isReceiving)
            && segment.source.hasSentWrong(range)
    }
}

extension Engine {
    /// Call before a transfer may end with a whole file. Responses that repeat a wrong part, and whose rest other segments have brought,
    /// are never compared. Their bytes are missing again.
    ///
    /// - Parameter ended: the segment whose response has ended.
    func forgetUncompared(of transfer: Transfer, ended: Segment) {
        staging?.flush()
        guard transfer.isWhole else { return }
        for segment in transfer.segments where segment.repeatsWrongPart {
            if segment === ended { segment.forgetBody() } else { drop(segment) }
        }
    }
}

extension Segment {
    /// Whether the response brings bytes that were wrong before, and is not compared yet. No checksum would find wrong bytes of it. If the
    /// response is cut, its bytes are missing again.
    var repeatsWrongPart: Bool { attempt?.check != nil && !transfer.request.hasChecksum && source.hasSentWrong(bodyRange) }
}
