internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import PartFiles

/// Checks the pieces of files while they arrive (`TransferRequest.pieces`).
extension Engine {
    /// Starts the check of the next written pieces on a thread of their disk, unless a check is under way. Its result comes to `checked`.
    func checkPieces(of transfer: Transfer) {
        guard transfer.conclusion == nil, let ledger = transfer.pieces, let part = transfer.part, part.error == nil else { return }
        let work = DiskWork(on: checkAnswers)
        guard let run = ledger.begin(checks +| 1, in: part.ranges, work) else { return }
        checks +|= 1
        guard let descriptor = part.readable() else {
            let error = DiskError("check the pieces", EMFILE)
            return conclude(transfer, .failed(transfer.failure(error)))
        }
        let (number, check, hashes, size) = (transfer.request.number, checks, ledger.hashes, ledger.size)
        DiskPool.shared.perform(at: .descriptor(descriptor), kind: .check) {
            defer { close(descriptor) }
            return CrashMarks.working(on: number.value) {
                Result { () throws(DiskError) in
                    try Digest.wrongPieces(run, of: hashes, size: size, in: descriptor, goesOn: work.goesOn)
                }
            }
        } then: { [self] result in
            command { $0.checked(number, check, result) }
        }
    }

    /// A check has ended. Meanwhile the transfer may have ended, or have begun another part file.
    private func checked(_ number: DownloadNumber, _ check: UInt64, _ result: Result<[Int: [UInt8]], DiskError>) {
        guard let transfer = transfers[number], let ledger = transfer.pieces, ledger.check?.number == check, transfer.conclusion == nil
        else { return }
        switch result {
        case .failure(let error): return conclude(transfer, .failed(transfer.failure(error)))
        case .success(let digests):
            // Staged bytes, not written yet, may belong to these pieces.
            staging?.flush()
            let wrong = ledger.end(wrong: digests.keys.sorted())
            if !wrong.isEmpty { reject(wrong, digests, ledger, transfer) }
        }
        guard transfer.conclusion == nil else { return }
        if ledger.isDone, let (end, id) = transfer.whole { return conclude(transfer, .whole(end), by: id) }
        checkPieces(of: transfer)
    }

    /// Ends a transfer whose bytes have all come. If its pieces are not all checked yet, it ends after their check.
    func endWhole(_ transfer: Transfer, _ end: TransferEnd, by segment: Segment) {
        guard let ledger = transfer.pieces, !ledger.isDone else { return conclude(transfer, .whole(end), by: segment.id) }
        for other in transfer.segments where other !== segment { drop(other) }
        segment.endExchange()
        transfer.whole = (end, segment.id)
        checkPieces(of: transfer)
    }

    /// Pieces are wrong: their bytes are missing again. If one source alone has written a wrong piece, the transfer gives up this source.
    ///
    /// - Parameter digests: the digests of the wrong pieces, by their numbers.
    private func reject(_ wrong: [Int], _ digests: [Int: [UInt8]], _ ledger: PieceLedger, _ transfer: Transfer) {
        let isWaiting = transfer.whole != nil
        transfer.whole = nil
        var failure: DownloadFailure?
        for index in wrong {
            let writer = ledger.writer(of: index)
            let times = ledger.forget(index)
            transfer.forget(ledger.range(of: index))
            var culprit: Source?
            if case .source(let place) = writer, transfer.sources.indices.contains(place) { culprit = transfer.sources[place] }
            let host = (culprit ?? transfer.sources[0]).url.host
            let fault = ledger.fault(of: index, digest: digests[index] ?? [])
            let text = culprit == nil ? "The \(fault)" : "\(host) sent wrong bytes: the \(fault)"
            let mismatch = DownloadFailure(.checksumMismatch, text, host: host)
            if let culprit, transfer.hasMirrors {
                (culprit.left, culprit.isSpent, culprit.failure) = (.wrongBytes, true, mismatch)
                failure = mismatch
            } else if times >= (culprit == nil ? PieceLedger.mostFailures : 2) {
                return conclude(transfer, .failed(mismatch))
            } else if times >= 2 {
                // Several have written the piece again: one alone fetches it now, and answers for it.
                transfer.mostSegmentsNow = 1
            }
        }
        transfer.disownBytes()
        transfer.reportSources()
        if let failure {
            // A source that has failed may bring the pieces later.
            guard transfer.nextSource() != nil else { return conclude(transfer, .failed(transfer.mostHopefulFailure(or: failure))) }
            leaveWrongSources(of: transfer, failure)
        }
        if transfer.mostSegmentsNow == 1 { keepOne(of: transfer) }
        guard isWaiting, let segment = transfer.segments.first, segment.exchange == nil, !segment.awaitsPermit else { return }
        transfer.isFurtherPart = true
        goOn(segment)
    }

    /// Ends all segments but one.
    private func keepOne(of transfer: Transfer) {
        let kept = transfer.segments.first(where: \.isReceiving) ?? transfer.segments.first
        for other in transfer.segments where other !== kept { drop(other) }
    }

    /// Ends the requests to sources that have sent wrong bytes. One segment continues at another source.
    func leaveWrongSources(of transfer: Transfer, _ failure: DownloadFailure) {
        let left = transfer.segments.filter { $0.source.left == .wrongBytes }
        for segment in left where transfer.segments.count > 1 { drop(segment, failure) }
        guard let segment = transfer.segments.first, segment.source.left == .wrongBytes, let next = transfer.nextSource() else { return }
        turn(segment, to: next, isAnswered: segment.isReceiving)  // false while it waits for a permit, too
    }
}
