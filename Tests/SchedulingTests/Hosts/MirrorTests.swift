import DownloadModel
import Scheduling
import Testing

@Suite struct `A download with mirrors` {
    private static let url = "http://main.example.org/a"
    private static let mirrors = ["http://one.example.org/a", "http://two.example.org/a"]
    private let checksum = Checksum(.sha256, digest: [UInt8](repeating: 1, count: 32))
    private let mismatch = DownloadFailure(.checksumMismatch, "differs")

    private func part(_ mirror: UInt32?, written: ByteCount = 10) -> ResumeData {
        ResumeData(
            written: written, total: 10, validator: nil, identity: FileIdentity(device: 1, inode: 2, mount: 3, boot: "b"), mirror: mirror)
    }

    private func desk(_ change: (inout DownloadRecord) -> Void = { _ in }) -> Desk {
        let desk = Desk()
        desk.add(1, Self.url) {
            ($0.options.mirrors, $0.options.checksum) = (Self.mirrors, checksum)
            change(&$0)
        }
        return desk
    }

    /// Brings a whole file of `mirror`, whose digest is wrong.
    private func bringsWrong(_ desk: Desk, from mirror: UInt32?, offset: ByteCount = 0) {
        desk.began(desk[1], total: 10, offset: offset)
        desk.ends(desk[1], .complete(size: 10, fileName: "f", part(mirror)))
        desk.endingFailed(desk[1], mismatch)
        if desk[1].state == .queued { desk.swept(DownloadNumber(1)) }
    }

    private func left(_ desk: Desk) -> [SourceFault?] { desk[1].record.knownSources.map(\.left) }

    @Test func `fetches a mixed file again from one source, and blames none`() {
        let desk = desk()
        bringsWrong(desk, from: nil, offset: 5)
        #expect(desk[1].state == .active && desk[1].record.hasStartedOver && !desk[1].record.mixesSources)
        #expect(left(desk) == [nil, nil, nil] && desk[1].host == "main.example.org")
    }

    @Test func `blames the source that alone has brought wrong bytes, each once`() {
        let desk = desk()
        bringsWrong(desk, from: nil)
        #expect(left(desk) == [.wrongBytes, nil, nil] && desk[1].host == "one.example.org")
        // This is saved before the file is fetched again.
        #expect(desk.history.rows.last?.sources.first?.left == .wrongBytes)
        // Bytes of several responses of one source count as its own now.
        bringsWrong(desk, from: 0, offset: 5)
        #expect(left(desk) == [.wrongBytes, .wrongBytes, nil] && desk[1].host == "two.example.org")
        bringsWrong(desk, from: 1)
        #expect(left(desk) == [.wrongBytes, .wrongBytes, .wrongBytes])
        #expect(desk[1].state.failure?.name == .checksumMismatch)
    }

    @Test func `is not fetched again because of a source that was blamed before`() {
        let desk = desk { $0.sources = [SourceRecord(url: Self.url, left: .wrongBytes)] }
        bringsWrong(desk, from: nil)
        #expect(desk[1].state.failure?.name == .checksumMismatch)
    }

    @Test func `asks all again after Retry, but those with wrong bytes only if all have them`() throws {
        for (faults, kept) in [([SourceFault.wrongBytes, .network], [.wrongBytes, nil]), ([.wrongBytes, .wrongBytes], [nil, nil])]
            as [([SourceFault], [SourceFault?])]
        {
            let desk = desk {
                $0.options.mirrors.removeLast()
                $0.sources = zip($0.sourceURLs, faults).map { SourceRecord(url: $0, received: 7, left: $1) }
            }
            desk.fails(desk[1], DownloadFailure(.httpStatus, "404", httpStatus: 404))
            try desk.steer(desk[1], .retry)
            #expect(left(desk) == kept && desk[1].record.sources.allSatisfy { $0.received == 7 })
        }
    }

    @Test func `is queued at the host whose bytes it holds`() {
        let desk = desk()
        #expect(desk[1].host == "main.example.org")
        desk.checkpoint(desk[1], part(1, written: 5))
        desk.fails(desk[1], DownloadFailure(.network, "lost", isRetryable: true), madeProgress: true, part(1, written: 5))
        desk.waitUntilDue()
        #expect(desk[1].state == .active && desk[1].host == "two.example.org")
    }

    /// A refusal of one source must slow its origin, and the next request must not count as an answer of that origin.
    @Test func `slows the origin of a source that refuses, and asks another`() throws {
        let desk = desk()
        let refusal = DownloadFailure(.httpStatus, "503", httpStatus: 503, isRetryable: true, retryAfter: .seconds(60))
        try desk.turn([
            .moved(desk[1].request, refusal),
            .asks(desk[1].request, host: "one.example.org", origin: "http://one.example.org:80", isAnswered: false),
        ])
        #expect(desk.scheduler.slowedOrigins(now: desk.now).keys.sorted() == ["http://main.example.org:80"])
        #expect(desk[1].state == .active && !desk.scheduler.isHeld(desk[1]))
        // No server was reached here: an earlier pause of the origin goes on.
        desk.add(2, "http://one.example.org/b") { $0.options.mirrors = ["http://main.example.org/b"] }
        let lost = DownloadFailure(.network, "unreachable", isRetryable: true)
        try desk.turn([
            .moved(desk[2].request, lost),
            .asks(desk[2].request, host: "main.example.org", origin: "http://main.example.org:80", isAnswered: false),
        ])
        #expect(desk.scheduler.isHeld(desk[2]), "it waits for the end of the pause")
        #expect(desk.scheduler.slowedOrigins(now: desk.now).keys.sorted() == ["http://main.example.org:80"])
    }

    /// A piece of the first one may turn out to be wrong while its permit is under way to the engine.
    @Test func `gets each permit with the number of the question that it answers`() throws {
        let desk = desk()
        for (question, host) in [(1, "one"), (2, "two")] as [(UInt64, String)] {
            try desk.turn([.asks(desk[1].request, host: "\(host).example.org", origin: nil, question: question)])
            let permitted: [UInt64] = desk.actions.compactMap { if case .permit(_, let answered, _, _) = $0 { answered } else { nil } }
            #expect(permitted == [question])
        }
    }

    @Test func `that is resumed while the machine sleeps then goes at once to the source whose bytes it holds`() throws {
        let desk = desk()
        let lost = DownloadFailure(.network, "unreachable", isRetryable: true)
        try desk.turn([
            .moved(desk[1].request, lost),
            .asks(desk[1].request, host: "one.example.org", origin: "http://one.example.org:80", isAnswered: false),
        ])
        desk.add(2, "http://one.example.org/b")
        desk.fails(desk[2], DownloadFailure(.httpStatus, "503", httpStatus: 503, isRetryable: true, retryAfter: .seconds(60)))
        desk.sleeps()
        desk.ends(desk[1], .stopped(part(0, written: 5)))
        try desk.steer(desk[1], .resume)
        desk.wakes()
        #expect(desk[1].state == .active && desk[1].host == "one.example.org", "the pause of this source delays it no more")
    }

    @Test func `keeps what its transfer has learned with the next checkpoint`() {
        let desk = desk()
        let learned = [SourceRecord(url: Self.url, received: 5, left: .network), SourceRecord(url: Self.mirrors[0], received: 3)]
        let rows = desk.history.rows.count
        _ = try? desk.turn([.sources(desk[1], learned)])
        #expect(desk.history.rows.count == rows && desk[1].record.sources == learned)
        desk.checkpoint(desk[1], part(0, written: 8))
        #expect(desk.history.rows.last?.sources == learned)
        #expect([SourceRecord](storedText: learned.storedText) == learned)
    }

    @Test func `does not get its former URL as a mirror from the transfer that stops after ReplaceUrl`() throws {
        let desk = desk()
        let learned = [SourceRecord(url: Self.url, received: 5, left: .network), SourceRecord(url: Self.mirrors[0], received: 3)]
        try desk.turn([.sources(desk[1], learned)])
        try desk.replaceUrl(desk[1], DownloadURL("http://fresh.example.org/a"))
        try desk.turn([.sources(desk[1], learned)])
        #expect(!desk[1].record.sources.contains { $0.url == Self.url } && !desk[1].record.mirrors.contains(Self.url))
    }

    @Test func `forgets with ReplaceUrl that its former source has changed the file`() throws {
        let desk = desk()
        let other = OtherRepresentation(.entityTag("\"v2\""), mirror: nil)
        var response = Scheduler.Response(fileName: "f", mediaType: nil, source: nil, total: 9, offset: 0, isResumable: true)
        response.otherRepresentations = [other]
        try desk.turn([.began(desk[1].request, response)])
        #expect(desk[1].otherRepresentations == [other])
        try desk.replaceUrl(desk[1], DownloadURL("http://fresh.example.org/a"))
        #expect(desk[1].otherRepresentations.isEmpty)
    }

    @Test func `whose URL becomes one of its mirrors asks that one once`() throws {
        let desk = desk()
        try desk.replaceUrl(desk[1], DownloadURL(Self.mirrors[0]))
        #expect(desk[1].record.sourceURLs == Self.mirrors && desk[1].record.options.mirrors == Self.mirrors)
    }
}
