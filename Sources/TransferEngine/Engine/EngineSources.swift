internal import DownloadModel
internal import EventLoop

/// Requests that fail. The transfer continues without the request, asks another source, or ends.
extension Engine {
    /// The request of a segment failed. If another segment brings bytes, other segments fetch the missing bytes of this segment. Otherwise
    /// the transfer asks another source. It fails if no source is left.
    ///
    /// - Parameter id: the request that failed; nil: it did not go out.
    func fail(_ segment: Segment, _ failure: DownloadFailure, by id: RequestID?) {
        let transfer = segment.transfer
        if transfer.hasSeveral, transfer.isCarried(without: segment) {
            staging?.flush()
            transfer.note(failure, of: segment)
            return drop(segment, failure)
        }
        guard transfer.hasMirrors, transfer.diskFailure == nil, let fault = transfer.fault(of: failure) else {
            return conclude(transfer, .failed(failure), by: id)
        }
        turn(segment, from: failure, fault, by: id)
    }

    func fail(_ segment: Segment, _ failure: DownloadFailure) { fail(segment, failure, by: segment.id) }

    /// A body was refused, or does not meet the options. Its bytes are missing again, and another source is asked for the whole file.
    func failWhole(_ segment: Segment, _ failure: DownloadFailure) {
        let transfer = segment.transfer
        staging?.flush()
        // Right bytes stay if the disk is full.
        if transfer.diskFailure == nil { segment.forgetBody(isOfWrongSize: [.sizeMismatch, .tooLarge].contains(failure.name)) }
        guard transfer.hasMirrors, transfer.diskFailure == nil, let fault = transfer.fault(of: failure) else {
            return conclude(transfer, .failed(failure), by: segment.id)
        }
        transfer.distrust()
        turn(segment, from: failure, fault, by: segment.id)
    }

    /// The response to one of several requests brings none of the requested bytes. The other requests continue.
    func decline(_ segment: Segment, _ failure: DownloadFailure?, _ fault: SourceFault?) {
        let (transfer, source) = (segment.transfer, segment.source)
        let goesOn = transfer.segments.contains { $0 !== segment && $0.source === source && $0.isReceiving }
        let isRetried = !goesOn && fault == .httpStatus && failure.map { source.mayRetry(after: $0) } ?? false
        if isRetried {
            // A source that has brought other stretches sends ranges.
            transfer.noteLoss()
        } else if goesOn, fault == .httpStatus {
            // A refusal of one more request says nothing about ranges: the accepted requests take over from each other.
            transfer.mostSegmentsNow = max(1, transfer.segments.count -| 1)
        } else {
            source.takesRanges = false
        }
        guard transfer.isDivided(besides: segment) else { return restart(segment) }
        let isLeft = transfer.hasMirrors && !goesOn && !isRetried
        if isLeft { source.left = fault }
        // Other sources at the server of this response have to wait for the pause, too.
        if isLeft || failure?.retryAfter != nil { source.note(failure, of: segment) }
        drop(segment, failure)
    }

    /// The response of a source contradicts the bytes of other sources, or its own digest. As a last resort, this source is asked for the
    /// whole file.
    func leave(_ segment: Segment, _ fault: SourceFault) {
        let source = segment.source
        (source.left, source.ask) = (fault, .whole)
        if fault == .noRanges { source.takesRanges = false }
        guard let next = segment.transfer.nextSource() else { return restart(segment) }
        turn(segment, to: next, isAnswered: true)
    }

    /// The source of the transfer's last request has failed.
    private func turn(_ segment: Segment, from failure: DownloadFailure, _ fault: SourceFault, by id: RequestID?) {
        let transfer = segment.transfer
        staging?.flush()
        transfer.note(failure, fault, of: segment)
        transfer.dropCandidate()
        if let id { transfer.events.append(.moved(id, failure)) }
        guard let next = transfer.nextSource() else {
            return conclude(transfer, .failed(transfer.mostHopefulFailure(or: failure)))
        }
        turn(segment, to: next, isAnswered: false)
    }

    func turn(_ segment: Segment, to source: Source, isAnswered: Bool) {
        let transfer = segment.transfer
        // Segments that only wait for a permit, or receive nothing, must not keep bytes from this segment.
        for other in transfer.segments where other !== segment { drop(other) }
        transfer.turn(segment, to: source)
        transfer.reportSources()
        ask(segment, isAnswered: isAnswered)
    }
}
