internal import DownloadModel
internal import Glibc
internal import PartFiles
internal import Transport

/// Judges responses.
extension Transfer {
    /// Judges a response, and prepares the part file if the response brings the file.
    func judge(_ attempt: Attempt) -> Attempt.Verdict {
        if isDivided(besides: attempt.segment) { return judgeFurther(attempt) }
        if [200, 203, 206].contains(attempt.head.status), let failure = settleCoding(attempt) { return .failed(failure) }
        let head = attempt.head
        if attempt.rangeStart != nil, heldBytesOutweigh(attempt.segment.source), let fault = fault(of: attempt) { return .left(fault) }
        switch head.status {
        case 200, 203: return beginWhole(attempt)
        case 206 where attempt.rangeStart != nil: return goOn(attempt)
        case 304 where attempt.asksIfChanged:
            // If the 304 cannot be about the copy, or the copy has changed meanwhile, ask again for the whole file.
            return unchangedCopy(head).map { .unchanged($0) } ?? askAgain(attempt, .whole)
        case 301, 302, 303, 307, 308:
            return head.bytes("location")?.isEmpty ?? true
                ? .failed(FailureMapping.status(head, host: attempt.url.host, now: wallTime())) : .redirect
        // The request was for a range, so its condition may have failed: ask again for the whole file.
        case 304 where attempt.rangeStart != nil, 412 where attempt.rangeStart != nil: return askAgain(attempt, .whole)
        case 416 where attempt.rangeStart != nil:
            guard isWhole(attempt), let part else { return askAgain(attempt, .whole, distrusting: true) }
            begin(
                attempt, continuedName(attempt), mediaType: knownType, total: part.ranges.prefixEnd, offset: part.written)
            return .whole
        default: return .failed(FailureMapping.status(head, host: attempt.url.host, now: wallTime()))
        }
    }

    /// The size of the file of the held bytes; nil: unknown. A chunked response states no size, so the caller's expectation counts, too.
    var knownSize: ByteCount? { part?.total ?? request.expectedSize }

    /// Why a response does not bring the rest of held bytes that outweigh its source; nil: the response may bring it, or has failed.
    private func fault(of attempt: Attempt) -> SourceFault? {
        let head = attempt.head
        switch head.status {
        case 200, 203:
            let total = if case .known(let length) = head.contentLength { length } else { ByteCount?.none }
            if let total, let known = knownSize, total != known { return .wrongSize }
            if let part, isSame(part, attempt, total) { return nil }
            // The first bytes of this response could be dropped. But another source need not send them at all.
            guard total == nil || hasAlternative(to: attempt.segment.source) else { return nil }
            return joins(attempt.segment.source) || part?.validator == nil ? .noRanges : .changed
        case 206:
            guard let part, case .failure(.contradiction(let fault)) = announcedPart(attempt, part) else { return nil }
            return fault
        case 304, 412: return .changed
        case 416: return isWhole(attempt) ? nil : .wrongSize
        default: return nil
        }
    }

    /// Judges a response to one of several segments. The response brings the requested bytes, or none. The other segments continue in
    /// either case, and the bytes that they have brought stay.
    private func judgeFurther(_ attempt: Attempt) -> Attempt.Verdict {
        let (head, host) = (attempt.head, attempt.url.host)
        switch head.status {
        case 206 where attempt.rangeStart != nil:
            if let failure = settleCoding(attempt) { return .declined(failure, SourceFault(failure)) }
            guard let part else { return .declined(nil, nil) }
            let announced: (range: Range<ByteCount>, total: ByteCount)
            switch announcedPart(attempt, part) {
            case .success(let found): announced = found
            case .failure(.contradiction(let fault)): return .declined(nil, fault)
            case .failure(.unproved): return .declined(nil, .changed)
            case .failure(.failed(let failure)): return .declined(nil, SourceFault(failure))
            }
            if !statesLength(head) { return .declined(nil, .noRanges) }
            if let failure = checkContent(of: attempt) { return .declined(failure, nil) }
            guard claimStretch(of: attempt.segment) else { return .late }
            attempt.segment.bodyBegins(at: announced.range.lowerBound, end: announced.range.upperBound)
            events.append(.joined(attempt.segment.id))
            return .body
        // The server ignores ranges, or the file has changed.
        case 200...299: return .declined(nil, .noRanges)
        case 304, 412: return .declined(nil, .changed)
        case 416: return .declined(nil, .wrongSize)
        case 301, 302, 303, 307, 308:
            guard head.bytes("location")?.isEmpty ?? true else { return .redirect }
            return .declined(FailureMapping.status(head, host: host, now: wallTime()), .httpStatus)
        default: return .declined(FailureMapping.status(head, host: host, now: wallTime()), .httpStatus)
        }
    }

    /// Whether a 416 proves that the part file is whole, without contradicting its validator.
    private func isWhole(_ attempt: Attempt) -> Bool {
        let (head, source) = (attempt.head, attempt.segment.source)
        guard let part, mayContinue(part, attempt),
            let length = head.text("content-range").flatMap(Range<UInt64>.unsatisfiedLength), length == part.ranges.prefixEnd,
            knownSize.map({ $0 == length }) ?? !joins(source), request.expectedSize.map({ $0 == length }) ?? true,
            joins(source) || part.validator?.matches(entityTag: head.text("etag"), lastModified: head.text("last-modified")) ?? true,
            joins(source) || ask(of: source) == .conditional || part.validator == nil || head.validator == part.validator
        else { return false }
        return true
    }

    private func fileName(_ attempt: Attempt) -> String {
        if let name = request.fileName { return name }
        // With `replace`, the server must not choose which file is overwritten, neither by a header (its type, too) nor by a redirect.
        if request.ifExists == .replace { return FileName.chosen(contentDisposition: nil, url: request.url, decode: iconvDecoder) }
        if let name = toldName(attempt) { return name }
        // The caller has chosen the URL of the download, and a mirror may name its copies in other ways.
        let url = attempt.segment.source.mirror == nil ? attempt.url : request.url
        let mediaType = attempt.head.status == 416 ? knownType : attempt.head.mediaType
        return FileName.chosen(contentDisposition: nil, url: url, mediaType: mediaType, decode: iconvDecoder)
    }

    /// The name in the response's `Content-Disposition`, made safe; nil: the response has no usable name. The fields of a 416 are about its
    /// own body, not about the file.
    private func toldName(_ attempt: Attempt) -> String? {
        guard attempt.head.status != 416, let field = attempt.head.bytes("content-disposition") else { return nil }
        return ContentDisposition.fileName(from: field, decode: iconvDecoder).flatMap { FileName.safe($0) }
    }

    /// The file name for a response that continues held bytes.
    private func continuedName(_ attempt: Attempt) -> String {
        if joins(attempt.segment.source), let name = request.fileName ?? knownName { return name }
        guard toldName(attempt) == nil, request.ifExists != .replace else { return fileName(attempt) }
        return request.fileName ?? knownName ?? fileName(attempt)
    }

    /// The name and the media type that earlier responses told of the file of `part`. A response that continues it may omit them (RFC 9110
    /// §15.3.7).
    private var knownName: String? { partFacts?.fileName ?? request.knownName }
    private var knownType: String? { partFacts?.mediaType ?? request.knownType }

    /// The body of the last reported response was dropped: reports the facts about the held bytes again.
    func reportHeldFacts() {
        guard let part else { return }
        let name = request.fileName ?? knownName ?? FileName.chosen(contentDisposition: nil, url: request.url, decode: iconvDecoder)
        var held = TransferFacts(
            fileName: name, mediaType: knownType, total: part.total, offset: part.written, discarded: false, isResumable: part.isResumable)
        held.source = partFacts?.source
        (facts, validators) = (held, nil)
        events.append(.bodyDropped(request.number, held))
    }

    /// The final path, if it is taken and the policy therefore ends the transfer.
    ///
    /// - Throws: the file system of the folder allows no name of this length. Under `rename`, the commit cuts the name.
    func takenPath(_ name: String) throws(DiskError) -> String? {
        let name = request.extract?.name(for: name) ?? name
        guard request.ifExists != .rename, let folder else { return nil }
        guard folder.status(name) == nil else { return request.ifExists == .replace ? nil : "\(request.directory)/\(name)" }
        guard errno == ENAMETOOLONG else { return nil }
        throw DiskError(
            "name the file", ENAMETOOLONG,
            refusal: "The name “\(name)” is too long for the file system of \(request.directory); choose a shorter one, "
                + "or if-exists “rename”, which cuts it.")
    }

    /// The verdict on a response whose file cannot get this name; nil: the name can be used.
    private func verdict(of name: String) -> Attempt.Verdict? {
        do throws(DiskError) {
            return try takenPath(name).map { .taken(path: $0) }
        } catch {
            return .failed(failure(error))
        }
    }

    /// Decides how to treat the content coding of the body. Returns why the body must be refused, if it must.
    private func settleCoding(_ attempt: Attempt) -> DownloadFailure? {
        let host = attempt.url.host
        func failure(_ what: String) -> DownloadFailure {
            DownloadFailure(.network, "\(host) sent \(what).", httpStatus: attempt.head.status, host: host)
        }
        if attempt.head.isTransferCoded { return failure("a body in a transfer coding that Todoku did not request") }
        guard let coding = attempt.head.coding else { return nil }
        let given = FileName.chosen(
            contentDisposition: attempt.head.bytes("content-disposition"), url: attempt.url, mediaType: attempt.head.mediaType,
            decode: iconvDecoder)
        // `fileName`: the file may get another name than the server gives.
        let names = [given, fileName(attempt), knownName].compactMap(\.self)
        let mediaType = attempt.head.mediaType ?? (attempt.head.status == 206 ? knownType : nil)
        if coding == .unknown || coding.isOfFileItself(mediaType: mediaType, names: names) {
            attempt.head.isStoredCoded = true
            return nil
        }
        if coding == .several { return failure("a body that is compressed more than once; Todoku unpacks one layer only") }
        guard attempt.head.status != 206 else { return nil }  // the file will be requested again
        attempt.decoder = ContentDecoder(coding, isBounded: request.maxSize != nil || request.expectedSize != nil)
        return attempt.decoder == nil ? failure("a body in the coding \(coding), whose library is not installed here") : nil
    }

    /// Asks the source again, by a later case of `Ask`.
    private func askAgain(_ attempt: Attempt, _ ask: Ask, distrusting: Bool = false) -> Attempt.Verdict {
        attempt.segment.source.ask = ask
        if distrusting { isDistrusted = true }
        return .restart
    }

    /// A 200: the whole file from its first byte.
    private func beginWhole(_ attempt: Attempt) -> Attempt.Verdict {
        let head = attempt.head
        let total: ByteCount?
        switch head.contentLength {
        case .known(let length): total = length
        // libcurl 7.88 may report a stream of HTTP/2 that was reset as whole. It does not do so with the chunks of HTTP/1.1.
        case .unknown where attempt.isStream: return .alone
        case .unknown: total = nil
        case .contradictory: return .failed(contradiction(attempt))
        }
        if let failure = sizeFailure(total, host: attempt.url.host) ?? typeFailure(attempt) { return .failed(failure) }
        let source = attempt.segment.source
        if let part, part.isResumable, !isDistrusted, joins(source), !source.takesRanges || attempt.rangeStart != nil, let total,
            total == knownSize
        {
            return goOn(attempt, part, total, isWhole: true)
        }
        if let part, isSame(part, attempt, total) { return goOnWithin(attempt, part, total) }
        let name = fileName(attempt)
        if let verdict = verdict(of: name) { return verdict }
        let discarded = part != nil || isDistrusted
        let (validator, digest) = (head.isCoded ? nil : head.validator, statedDigests(head).preferred)
        let isResumable = request.body == nil && !head.isCoded && (validator != nil || digest != nil || request.hasChecksum)
        let hasChanged = ask(of: source) == .conditional && part?.validator != nil && validator != nil
        do throws(DiskError) {
            try openWhole(for: attempt.segment, total, validator: validator, digest: digest, isResumable: isResumable)
        } catch {
            return .failed(failure(error))
        }
        // After a 200 to a range, unless its condition has failed, and after `Accept-Ranges: none` (RFC 9110, section 14.3), the server is
        // asked for no further ranges.
        source.takesRanges = (attempt.rangeStart == nil || hasChanged) && head.text("accept-ranges")?.lowercased() != "none"
        begin(attempt, name, mediaType: head.mediaType, total: total, discarded: discarded, isResumable: isResumable)
        // The record may describe a file that is gone, whose inode the new file may get. Report this before bytes arrive.
        if discarded || request.resume != nil, candidate == nil, checkpoint == nil { reportStart() }
        return .body
    }

    /// The digests that can be compared with the file: none if it is a caller's file that cannot be read.
    private func statedDigests(_ head: ResponseHead) -> StatedDigests {
        request.descriptor?.isReadable == false ? StatedDigests() : head.statedDigests
    }

    /// Whether a 200 is of the held representation, by its strong validator.
    private func isSame(_ part: PartFile, _ attempt: Attempt, _ total: ByteCount?) -> Bool {
        let (head, source) = (attempt.head, attempt.segment.source)
        guard !isDistrusted, part.mirror == source.mirror || ask(of: source) != .whole && !joins(source), !head.isCoded,
            mayContinue(part, attempt),
            let validator = part.validator, head.validator == validator,
            !statedDigests(head).contradict(part.digest)
        else { return false }
        guard let total else { return true }
        return total >= part.ranges.end && part.total ?? total == total
    }

    /// A 200 of the held representation: the server supports no ranges, or none with a condition.
    private func goOnWithin(_ attempt: Attempt, _ part: PartFile, _ total: ByteCount?) -> Attempt.Verdict {
        let total = total ?? part.total
        learnDigest(of: part, from: attempt.head)
        if ask(of: attempt.segment.source) == .conditional, attempt.head.text("accept-ranges")?.lowercased() != "none" {
            return askAgain(attempt, .bare)
        }
        if total == part.ranges.prefixEnd {
            begin(attempt, continuedName(attempt), mediaType: attempt.head.mediaType, total: total, offset: part.written)
            return .whole
        }
        return goOn(attempt, part, total, isWhole: true)
    }

    /// A 206 brings the requested bytes, if the head says so and nothing contradicts the head.
    private func goOn(_ attempt: Attempt) -> Attempt.Verdict {
        guard let part else { return askAgain(attempt, .whole, distrusting: true) }
        switch announcedPart(attempt, part) {
        case .success(let announced):
            if let failure = checkContent(of: attempt) { return .failed(failure) }
            if !statesLength(attempt.head) { attempt.segment.source.takesRanges = false }
            return goOn(attempt, part, announced.total, isWhole: false, end: announced.range.upperBound)
        case .failure(.unproved): return askAgain(attempt, .whole)
        case .failure(.contradiction): return askAgain(attempt, .whole, distrusting: true)
        case .failure(.failed(let failure)): return .failed(failure)
        }
    }

    /// A response has more bytes than its `Content-Range` says, so none of its bytes counts. One of several sources is left if the other
    /// bytes outweigh it. Otherwise the server of all held bytes has lied, so only a whole body counts.
    func verdictOfSurplus(in segment: Segment) -> Attempt.Verdict {
        if hasMirrors, isDivided(besides: segment) { return .declined(nil, .changed) }
        if heldBytesOutweigh(segment.source) { return .left(.changed) }
        distrust()
        return .restart
    }

    /// Why a 206 does not bring the requested bytes.
    private enum Objection: Error {
        /// The response does not prove that its bytes are of the held representation.
        case unproved
        /// The response contradicts the request, or the known facts about the file.
        case contradiction(SourceFault)
        case failed(DownloadFailure)
    }

    /// The bytes that a 206 brings, and the size of the file, if nothing contradicts that these are the requested bytes.
    private func announcedPart(_ attempt: Attempt, _ part: PartFile) -> Result<(range: Range<ByteCount>, total: ByteCount), Objection> {
        let (head, source) = (attempt.head, attempt.segment.source)
        let joins = joins(source)
        guard !head.isCoded, let field = head.text("content-range"), let (range, length) = Range<UInt64>.fromContentRange(field),
            range.lowerBound == attempt.rangeStart,
            joins || part.validator?.matches(entityTag: head.text("etag"), lastModified: head.text("last-modified")) ?? true
        else { return .failure(.contradiction(.changed)) }
        if statedDigests(head).contradict(part.digest) { return .failure(.contradiction(.wrongDigest)) }
        switch head.contentLength {
        case .known(let count) where count != range.byteCount: return .failure(.contradiction(.changed))
        case .contradictory: return .failure(.failed(contradiction(attempt)))
        default: break
        }
        if let known = part.total, let length, known != length { return .failure(.contradiction(.wrongSize)) }
        // For another source, only an equal size shows that the file may be the same.
        if joins, length == nil || length != knownSize { return .failure(.contradiction(.wrongSize)) }
        // Without the condition `If-Range`, the response itself must prove its representation.
        if !joins, ask(of: source) == .bare, part.validator != nil, head.validator != part.validator { return .failure(.unproved) }
        guard mayContinue(part, attempt) else { return .failure(.unproved) }
        // The response may bring less than the rest. Without a known total, missing bytes would go unnoticed.
        guard let total = length ?? knownSize else { return .failure(.unproved) }
        guard range.upperBound <= total else { return .failure(.contradiction(.wrongSize)) }
        if let failure = sizeFailure(total, host: attempt.url.host) { return .failure(.failed(failure)) }
        // RFC 9110 §15.3.7: a 206 to If-Range should omit fields that the first response had. `Content-Type` is such a field.
        if head.text("content-type") != nil, let failure = typeFailure(attempt) { return .failure(.failed(failure)) }
        return .success((range, total))
    }

    private func goOn(
        _ attempt: Attempt, _ part: PartFile, _ total: ByteCount?, isWhole: Bool, end: ByteCount? = nil
    ) -> Attempt.Verdict {
        let name = continuedName(attempt)
        if let verdict = verdict(of: name) { return verdict }
        let isTotalNew = part.total == nil
        if isTotalNew { part.total = total }
        do throws(DiskError) {
            try openRest(part)
        } catch {
            // The disk has no file of this size, so the size must not stay: a later response may be of another size.
            if isTotalNew, error.code == EFBIG { part.total = nil }
            if isTotalNew { checkpoint?.total = part.total }
            return .failed(failure(error))
        }
        if isTotalNew { checkpoint?.total = total }
        if !joins(attempt.segment.source) { learnDigest(of: part, from: attempt.head) }
        if part.mirror == attempt.segment.source.mirror { part.origin = attempt.url.origin }
        if isWhole {
            attempt.segment.source.takesRanges = false
            attempt.segment.bodyBegins(at: 0, end: nil, skipping: part.ranges.prefixEnd)
        } else {
            attempt.segment.bodyBegins(at: attempt.rangeStart ?? 0, end: end)
        }
        begin(attempt, name, mediaType: attempt.head.mediaType ?? knownType, total: total, offset: part.written)
        return .body
    }

    /// Takes the digest of the held representation from a later response that was found to be of the same representation.
    private func learnDigest(of part: PartFile, from head: ResponseHead) {
        guard part.digest == nil, let digest = statedDigests(head).preferred else { return }
        part.digest = digest
        checkpoint?.digest = digest
    }

    private func begin(
        _ attempt: Attempt, _ name: String, mediaType: String?, total: ByteCount?, offset: ByteCount = 0, discarded: Bool = false,
        isResumable: Bool = true
    ) {
        var facts = TransferFacts(
            fileName: name, mediaType: mediaType, total: total, offset: offset, discarded: discarded, isResumable: isResumable)
        facts.connection = attempt.segment.exchange?.sharedConnection
        facts.isFromPrivate = attempt.isToPrivate
        if offset > 0 { forgetOtherRepresentations() }
        facts.otherRepresentations = otherRepresentations
        if attempt.segment.hops > 0 || attempt.segment.source.mirror != nil { facts.source = attempt.url.redacted }
        let isTold = isFurtherPart && self.facts?.fileName.isSameBytes(as: name) == true && self.facts?.total == total && offset > 0
        isFurtherPart = false
        if !isTold {
            self.facts = facts
            events.append(.began(attempt.segment.id, facts))
        }
        if candidate == nil { partFacts = facts }
        // The validators of the held bytes come from another URL.
        if offset > 0, joins(attempt.segment.source) { return }
        // A 416 does not say whether the file has variants.
        let vary = attempt.head.status == 416 ? "*" : attempt.head.vary
        // For held bytes, only the validator that ties their parts together is proved.
        validators =
            offset > 0
            ? part?.validator.flatMap { CopyValidators($0, vary: vary, source: attempt.url.text) }
            : CopyValidators(
                entityTag: attempt.head.text("etag"), lastModified: attempt.head.text("last-modified"), date: attempt.head.text("date"),
                vary: vary, source: attempt.url.text)
    }

    /// The failure if the media type is not the expected one.
    private func typeFailure(_ attempt: Attempt) -> DownloadFailure? {
        guard let expected = request.expectedType else { return nil }
        let type = attempt.head.mediaType
        let matches = expected.hasSuffix("/*") ? type?.hasPrefix(expected.dropLast()) : type == expected
        if matches == true { return nil }
        return DownloadFailure(
            .typeMismatch, "\(attempt.url.host) sent \(type ?? "a file of no type") instead of \(expected).",
            httpStatus: attempt.head.status,
            host: attempt.url.host)
    }

    /// Whether the length of a 206, by which its connection divides responses, is known. Otherwise only its end shows whether it has more
    /// bytes than its `Content-Range` says, and a response is cut before its end if another segment brings the rest.
    private func statesLength(_ head: ResponseHead) -> Bool { if case .known = head.contentLength { true } else { false } }

    private func contradiction(_ attempt: Attempt) -> DownloadFailure {
        DownloadFailure(
            .network, "\(attempt.url.host) sent an impossible file length.", httpStatus: attempt.head.status, host: attempt.url.host)
    }

    private func sizeFailure(_ total: ByteCount?, host: String) -> DownloadFailure? {
        guard let total else { return nil }
        if let expected = request.expectedSize, expected != total {
            return DownloadFailure(.sizeMismatch, "The file at \(host) has \(total) bytes instead of \(expected).", host: host)
        }
        if let most = request.maxSize, total > most {
            return DownloadFailure(.tooLarge, "The file at \(host) has \(total) bytes, more than the \(most) allowed.", host: host)
        }
        return nil
    }
}
