internal import DownloadModel
internal import Testing

@testable internal import Desktop

/// Wraps the group for `#expect`, which accepts no mutating call.
private final class Held {
    private var group = ProgressGroup()
    var round: UInt64 { group.round }
    func isDue(_ number: DownloadNumber, since start: ContinuousClock.Instant, at now: ContinuousClock.Instant) -> Bool {
        group.isDue(number, since: start, at: now)
    }
    func tell(at now: ContinuousClock.Instant) -> [DownloadNumber] { group.tell(at: now) }
    func stop(_ number: DownloadNumber) -> Bool { group.stop(number) }
    func dismiss() { group.dismiss() }
    func forget(_ number: DownloadNumber) { group.forget(number) }
    func contains(_ number: DownloadNumber) -> Bool { group.contains(number) }
}

@Suite struct `The progress toast` {
    let start = ContinuousClock.now
    let a = DownloadNumber(1)
    let b = DownloadNumber(2)

    @Test func `includes downloads active for over two seconds, and changes at most once a second`() {
        let group = Held()
        #expect(!group.isDue(a, since: start, at: start))
        #expect(!group.isDue(a, since: start, at: start + .seconds(2)))
        let first = start + .milliseconds(2001)
        #expect(group.isDue(a, since: start, at: first))
        #expect(!group.isDue(b, since: start + .seconds(1), at: first))
        #expect(group.tell(at: first) == [a])
        #expect(!group.isDue(a, since: start, at: first + .milliseconds(999)))
        #expect(group.isDue(a, since: start, at: first + .seconds(1)))
        #expect(group.tell(at: first + .seconds(1)) == [a, b])
    }

    @Test func `closes with its last download`() {
        let group = Held()
        let now = start + .seconds(3)
        for number in [a, b] { #expect(group.isDue(number, since: start, at: now)) }
        #expect(group.tell(at: now) == [a, b])
        #expect(!group.stop(a) && !group.stop(a))
        #expect(group.stop(b))
        #expect(!group.stop(b) && !group.contains(b))
        // A download that becomes due then need not wait for the rest of the second.
        #expect(group.isDue(b, since: start, at: now + .milliseconds(1)))
    }

    @Test func `does not close if it was never shown`() {
        let group = Held()
        #expect(!group.isDue(a, since: start, at: start + .seconds(1)))
        #expect(!group.stop(a))
    }

    @Test func `does not return for dismissed downloads, but appears for the next`() {
        let group = Held()
        let now = start + .seconds(3)
        _ = group.isDue(a, since: start, at: now)
        #expect(group.tell(at: now) == [a])
        group.dismiss()
        #expect(group.round == 1)
        #expect(!group.isDue(a, since: start, at: now + .seconds(5)))
        // The toast does not return after a pause either.
        #expect(!group.stop(a))
        #expect(!group.isDue(a, since: now, at: now + .seconds(9)))
        #expect(group.isDue(b, since: now, at: now + .seconds(9)))
        #expect(group.tell(at: now + .seconds(9)) == [b])
        // After its end a retried download counts as a new one.
        _ = group.stop(a)
        group.forget(a)
        #expect(group.isDue(a, since: now, at: now + .seconds(20)))
    }

    @Test func `counts a batch from its earliest start`() {
        let group = Held()
        #expect(!group.isDue(a, since: start + .seconds(1), at: start + .seconds(2)))
        #expect(!group.isDue(a, since: start, at: start + .seconds(2)))
        #expect(group.isDue(a, since: start + .seconds(2), at: start + .milliseconds(2001)))
    }
}

@Suite struct `The remedy` {
    let page = "https://example.org/page?a=b"

    private func record(referrer: String? = nil, isToDescriptor: Bool = false) -> DownloadRecord {
        var options = DownloadOptions()
        options.referrer = referrer
        var record = DownloadRecord(
            number: DownloadNumber(1), url: "https://example.org/a", options: options, directory: isToDescriptor ? "" : "/tmp",
            state: .queued, queuedAt: WallTime(microseconds: 0), position: 0)
        record.isToDescriptor = isToDescriptor
        return record
    }

    @Test(arguments: ErrorName.allCases)
    func `is to retry, to free space, or nothing`(name: ErrorName) {
        let remedy = Remedy(after: DownloadFailure(name, ""), of: record(referrer: page))
        let again: Set<ErrorName> = [
            .network, .timeout, .tls, .truncated, .checksumMismatch, .sizeMismatch, .writeFailed, .permissionDenied, .expired, .interrupted,
        ]
        #expect(remedy == (again.contains(name) ? .retry : name == .diskFull ? .freeSpace(folder: "/tmp") : nil))
        // Todoku cannot retry into a caller's own file.
        #expect(Remedy(after: DownloadFailure(name, ""), of: record(isToDescriptor: true)) == nil)
    }

    @Test(
        arguments: [
            (401, "link"), (403, "link"), (404, "link"), (410, "link"), (408, "retry"), (425, "retry"), (429, "retry"), (500, "retry"),
            (503, "retry"), (400, ""), (405, ""), (451, ""),
        ] as [(UInt32, String)])
    func `depends on the HTTP status`(status: UInt32, helps: String) {
        let failure = DownloadFailure(.httpStatus, "", httpStatus: status)
        let expected: Remedy? = helps == "retry" ? .retry : helps == "link" ? .newLink(page: page) : nil
        #expect(Remedy(after: failure, of: record(referrer: page)) == expected)
        #expect(Remedy(after: failure, of: record()) == (helps == "retry" ? .retry : nil))
        #expect(Remedy(after: failure, of: record(isToDescriptor: true)) == nil)
    }

    @Test func `after an extraction is to retry if another attempt may succeed`() {
        let failure = DownloadFailure(.extraction, "", isRetryable: true)
        #expect(Remedy(after: failure, of: record(referrer: page)) == .retry)
        #expect(Remedy(after: failure, of: record(isToDescriptor: true)) == nil)
        #expect(Remedy(after: DownloadFailure(.extraction, "", isRetryable: false), of: record(referrer: page)) == nil)
    }

    @Test(arguments: [nil, "", "file:///etc/passwd", "javascript:alert(1)", "-h", "https://user:secret@example.org/"])
    func `is a page only for an http URL without credentials`(referrer: String?) {
        #expect(Remedy(for: .needsUrl, of: record(referrer: referrer)) == nil)
    }

    @Test func `is a page, or free space, for a waiting download`() {
        #expect(Remedy(for: .needsUrl, of: record(referrer: page)) == .newLink(page: page))
        #expect(Remedy(for: .diskSpace, of: record()) == .freeSpace(folder: "/tmp"))
        #expect(Remedy(for: .retry, of: record(referrer: page)) == nil)
    }
}
