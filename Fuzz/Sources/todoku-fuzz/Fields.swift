internal import DownloadModel

@testable internal import TransferEngine
@testable internal import Transport

func fuzzContentRange(_ bytes: [UInt8]) {
    let field = String(decoding: bytes, as: UTF8.self)
    let parsed = Range<UInt64>.fromContentRange(field)
    let unsatisfied = Range<UInt64>.unsatisfiedLength(field)
    check(parsed == nil || unsatisfied == nil, "both satisfied and not")
    if let unsatisfied { check(Range<UInt64>.unsatisfiedLength("bytes */\(unsatisfied)") == unsatisfied, "another length") }
    guard let (range, length) = parsed else { return }
    check(!range.isEmpty, "an empty range")
    if let length { check(range.upperBound <= length, "a range beyond the end") }
    let wire = "bytes \(range.lowerBound)-\(range.upperBound - 1)/\(length.map { String($0) } ?? "*")"
    guard let again = Range<UInt64>.fromContentRange(wire) else { return check(false, "\(wire) is refused") }
    check(again.range == range && again.length == length, "\(wire) is another range")
    let open = range.upperBound == UInt64.max
    check(range.rangeHeader == "bytes=\(range.lowerBound)-" + (open ? "" : "\(range.upperBound - 1)"), range.rangeHeader)
}

/// Eight bytes of now, then the field; or the three fields of a validator, a line each.
func fuzzTimes(_ bytes: [UInt8]) {
    var tape = Tape(bytes)
    let now = WallTime(microseconds: tape.number())
    let bytes = tape.remaining()
    let field = String(decoding: bytes, as: UTF8.self)
    if let delay = RetryAfter.delay(field, now: now) {
        check((Duration.zero...RetryAfter.longest).contains(delay), "a delay of \(delay)")
        check(now + delay >= now, "a delay into the past")
    }
    for time in [HTTPDate.parse(field), HTTPDate.parse(field, now: now)] {
        guard let time else { continue }
        check(time.microseconds.isMultiple(of: 1_000_000) && time.microseconds < 253_402_300_800_000_000, "\(time)")
        check(time + .seconds(60) > time, "60 s later is not later")
    }
    _ = now + .nanoseconds(Int64(truncatingIfNeeded: bytes.count) << 40)
    _ = now + (.seconds(Int64.max) + .seconds(Int64(bytes.first ?? 0)))
    _ = now + .seconds(Int64.min)

    let lines = bytes.split(separator: 10, maxSplits: 2, omittingEmptySubsequences: false).map { String(decoding: $0, as: UTF8.self) }
    let (tag, modified) = (lines.first, lines.count > 1 ? lines[1] : nil)
    if let validator = Validator(entityTag: tag, lastModified: modified, date: lines.count > 2 ? lines[2] : nil) {
        checkValidator(validator)
    }
    guard let validator = Validator(entityTag: nil, lastModified: modified, date: lines.count > 2 ? lines[2] : nil) else { return }
    checkValidator(validator)
    check(validator.matches(entityTag: tag, lastModified: modified), "a validator that its own response does not match")
}

private func checkValidator(_ validator: Validator) {
    check(!validator.ifRange.hasPrefix("W/"), "a weak tag")
    check(
        !validator.ifRange.utf8.contains { $0 < 0x20 && $0 != 9 || $0 == 0x7F },
        "a control character in \(validator.ifRange.debugDescription)")
}

/// `Repr-Digest`, `Digest` and `Content-Digest`, a line each.
func fuzzDigests(_ bytes: [UInt8]) {
    let lines = bytes.split(separator: 10, maxSplits: 2, omittingEmptySubsequences: false).map { Array($0) }
    checkDigests(
        StatedDigests(
            reprDigest: lines.first, digest: lines.count > 1 ? lines[1] : nil, contentDigest: lines.count > 2 ? lines[2] : nil))
}

/// A field `Link`, and a text of the option `piece-hashes`.
func fuzzLinks(_ bytes: [UInt8]) {
    let duplicates = LinkField.duplicates(in: bytes)
    check(duplicates.map(\.priority) == duplicates.map(\.priority).sorted(), "not by priority")
    check(duplicates.allSatisfy { $0.priority > 0 && $0.reference.count + 2 <= bytes.count }, "more than the field has")
    if let base = try? DownloadURL("https://example.org/a/b") {
        for duplicate in duplicates.prefix(100) { _ = try? DownloadURL(location: duplicate.reference, from: base) }
    }
    guard let hashes = try? PieceHashes(String(decoding: bytes, as: UTF8.self)) else { return }
    check((try? PieceHashes(hashes.description)) == hashes, "\(hashes) is read as another")
    check(hashes.count > 0 && hashes.digests.count <= Limits.pieceHashBytes, "\(hashes.count) digests")
    for size in [0, 1, hashes.length, .max] as [ByteCount] {
        guard hashes.fits(size) else { continue }
        let last = hashes.range(of: hashes.count - 1, size: size)
        check(!last.isEmpty && last.upperBound == size, "the last piece of \(size) bytes is \(last)")
    }
}

private func checkDigests(_ digests: StatedDigests) {
    guard let preferred = digests.preferred else { return }
    check([.sha256, .sha512].contains(preferred.algorithm), "a weak digest: \(preferred)")
    check(preferred.digest.count == preferred.algorithm.length, "\(preferred)")
    check(!digests.contradict(preferred) && !digests.contradict(nil), "digests that contradict themselves")
    let other = preferred.digest.map { $0 ^ 0xFF }
    check(digests.contradict(Checksum(preferred.algorithm, digest: other)), "another digest is none")
    check((try? Checksum(preferred.description)) == preferred, "\(preferred) is read as another")
}

/// Lines as libcurl hands them over.
func fuzzResponseHead(_ bytes: [UInt8]) {
    var head = ResponseHead()
    var rest = bytes[...]
    while !rest.isEmpty {
        let line = Array(rest.prefix { $0 != 10 } + [10])
        rest = rest.dropFirst(line.count)
        do { try line.withUnsafeBytes { line in try head.take(line) } } catch {
            return check(bytes.count > 1000, "too large: \(bytes.count) bytes")
        }
    }
    if case .known(let length) = head.contentLength { check(length <= ByteCount(Int64.max), "a length of \(length)") }
    if let type = head.mediaType {
        check(type.utf8.count <= 255 && type.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F } && type.contains("/"), type.debugDescription)
        check(type == type.lowercased(), "not in lower case: \(type)")
    }
    if let validator = head.validator { checkValidator(validator) }
    checkDigests(head.statedDigests)
    checkDigests(head.contentDigests)
    for name in ["content-disposition", "content-range", "retry-after", "location"] {
        guard let value = head.bytes(name) else { continue }
        check(!value.contains(10), "a line break in \(name)")
    }
}
