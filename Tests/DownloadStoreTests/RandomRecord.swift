internal import DownloadModel
internal import TestSupport

/// Records with any value in any field that the model allows.
struct RandomRecords {
    private var generator: SeededRandom
    init(seed: UInt64) { generator = SeededRandom(seed) }

    private static let alphabet = Array("aZ09 _-./:;,\"'\\%?#&=ダウンロード完了é🎌\u{0}\u{1}\t\u{301}")

    private mutating func text(_ most: Int = 24) -> String {
        String((0..<Int.random(in: 0...most, using: &generator)).map { _ in Self.alphabet.randomElement(using: &generator)! })
    }

    private mutating func perhaps<V>(_ value: (inout RandomRecords) -> V) -> V? {
        Bool.random(using: &generator) ? value(&self) : nil
    }

    private mutating func number() -> UInt64 {
        [0, 1, UInt64(Int64.max), UInt64(Int64.max) + 1, .max, .random(in: 0 ... .max, using: &generator)].randomElement(using: &generator)!
    }

    private mutating func time() -> WallTime { WallTime(microseconds: number()) }

    private mutating func failure() -> DownloadFailure {
        var failure = DownloadFailure(
            ErrorName.allCases.randomElement(using: &generator)!, text(),
            httpStatus: perhaps { .random(in: 0 ... .max, using: &$0.generator) },
            host: perhaps { $0.text() }, isRetryable: .random(using: &generator),
            retryAfter: perhaps { .microseconds(Int64.random(in: 0...1 << 50, using: &$0.generator)) },
            wait: perhaps { WaitReason.allCases.randomElement(using: &$0.generator)! }, missingBytes: perhaps { $0.number() },
            neededRoom: perhaps { $0.number() })
        failure.origin = perhaps { $0.text() }
        return failure
    }

    private mutating func state() -> DownloadState {
        switch Int.random(in: 0..<9, using: &generator) {
        case 0: .queued
        case 1: .waiting(WaitReason.allCases.randomElement(using: &generator)!, until: perhaps { $0.time() })
        case 2: .active
        case 3: .paused
        case 4: Bool.random(using: &generator) ? .verifying : .extracting
        case 5: .committing
        case 6: .finished
        case 7: .failed(failure())
        default: .cancelled
        }
    }

    private mutating func checksum() -> Checksum {
        let algorithm = Checksum.Algorithm.allCases.randomElement(using: &generator)!
        return Checksum(algorithm, digest: (0..<algorithm.length).map { _ in .random(in: 0 ... .max, using: &generator) })!
    }

    private mutating func pieceHashes() -> PieceHashes {
        let checksum = checksum()
        let digests = (0..<Int.random(in: 1...5, using: &generator)).flatMap { _ in checksum.digest }
        return PieceHashes(checksum.algorithm, length: max(1, number()), digests: digests)!
    }

    private mutating func options() -> DownloadOptions {
        var options = DownloadOptions()
        options.app = text()
        options.token = perhaps { $0.text() }
        options.directory = perhaps { $0.text() }
        options.fileName = perhaps { $0.text() }
        options.extract = [nil, .namedAfterArchive, .named(text())].randomElement(using: &generator)!
        options.ifExists = ExistingFilePolicy.allCases.randomElement(using: &generator)!
        options.headers = (0..<Int.random(in: 0...4, using: &generator)).map { HeaderField(name: "X-Field-\($0)", value: " " + text()) }
        options.cookies = (0..<Int.random(in: 0...3, using: &generator)).compactMap {
            let value = String(text().unicodeScalars.filter { $0.value >= 0xA0 || $0.value > 0x1F && $0.value < 0x7F && $0 != ";" })
            return try? Cookie(line: "h\($0).org\tTRUE\t/\tFALSE\t\(number() >> 1)\tn\t\(value)")
        }
        options.userAgent = perhaps { $0.text() }
        options.referrer = perhaps { $0.text() }
        options.postData = perhaps { Array($0.text().utf8) }
        options.postType = text()
        options.isPostSent = .random(using: &generator)
        options.hasForgottenSecrets = .random(using: &generator)
        options.username = perhaps { $0.text() }
        options.password = perhaps { $0.text() }
        let proxies = ["none", "direct://", "http://h", "socks5h://u%25:p@[::1]:1"]
        options.proxy = try? ProxyAddress(proxies.randomElement(using: &generator)!)
        options.mirrors = (0..<Int.random(in: 0...3, using: &generator)).map { "https://m\($0).example.org/\(number())" }
        options.findsMirrors = .random(using: &generator)
        options.isPrivate = .random(using: &generator)
        options.checksum = perhaps { $0.checksum() }
        options.pieceHashes = perhaps { $0.pieceHashes() }
        options.size = perhaps { $0.number() }
        options.maxSize = perhaps { $0.number() }
        options.expectType = perhaps { $0.text() }
        options.notBefore = perhaps { $0.time() }
        options.deadline = perhaps { .microseconds(Int64.random(in: 0...1 << 50, using: &$0.generator)) }
        options.renewable = .random(using: &generator)
        options.allowsMetered = .random(using: &generator)
        options.allowsPrivate = .random(using: &generator)
        options.allowsDowngrade = .random(using: &generator)
        options.isSandboxed = .random(using: &generator)
        options.isNamedByPublicServer = perhaps { Bool.random(using: &$0.generator) }
        options.requestInterval = perhaps { .microseconds(Int64.random(in: 0...1 << 50, using: &$0.generator)) }
        options.onlyIfChanged = .random(using: &generator)
        options.activate = perhaps { $0.text() }
        options.start = .random(using: &generator)
        options.priority = [.min, 0, .max].randomElement(using: &generator)!
        options.speedLimit = perhaps { $0.number() }
        options.connections = .random(in: 0...16, using: &generator)
        options.stallTimeout = .microseconds(Int64.random(in: 0...1 << 50, using: &generator))
        options.retries = [0, 10, .max].randomElement(using: &generator)!
        options.tag = text()
        options.notify = NotifyPolicy.allCases.randomElement(using: &generator)!
        options.notifyDelay = .microseconds(Int64.random(in: 0...1 << 50, using: &generator))
        options.title = perhaps { $0.text() }
        options.body = perhaps { $0.text() }
        options.icon = perhaps { $0.text() }
        options.sound = text()
        options.showProgress = .random(using: &generator)
        options.desktopID = perhaps { _ in DesktopID("org.example.App")! }
        options.metadata = (0..<Int.random(in: 0...64, using: &generator)).map { _ in .random(in: 0 ... .max, using: &generator) }
        return options
    }

    private mutating func ranges() -> ByteRanges {
        ByteRanges(
            (0..<Int.random(in: 0...70, using: &generator)).map { _ in
                let ends = (number(), number())
                return min(ends.0, ends.1)..<max(ends.0, ends.1)
            })
    }

    private mutating func resume() -> ResumeData {
        let validators: [Validator?] = [nil, .entityTag("\"\(text())\""), .lastModified(text())]
        let ranges = [ByteRanges(prefix: number()), ranges()].randomElement(using: &generator)!
        return ResumeData(
            ranges: ranges, total: perhaps { $0.number() }, validator: validators.randomElement(using: &generator)!,
            identity: FileIdentity(
                device: number(), inode: number(), mount: number(), boot: text(), born: perhaps { Int64(truncatingIfNeeded: $0.number()) }),
            digest: perhaps { $0.checksum() }, mirror: perhaps { .random(in: 0 ... .max, using: &$0.generator) })
    }

    mutating func record(_ value: UInt64) -> DownloadRecord {
        var record = DownloadRecord(
            number: DownloadNumber(value), url: "https://example.org/\(text())", options: options(), directory: "/\(text())",
            state: state(),
            queuedAt: time(), position: .random(in: .min ... .max, using: &generator))
        record.startedAt = perhaps { $0.time() }
        // A finished download has an end: without an end, its row is read as damaged.
        record.endedAt = record.state == .finished ? time() : perhaps { $0.time() }
        record.attempts = .random(in: 0 ... .max, using: &generator)
        record.retriesUsed = .random(in: 0 ... .max, using: &generator)
        record.received = number()
        record.total = perhaps { $0.number() }
        record.fileName = perhaps { $0.text() }
        record.mediaType = perhaps { $0.text() }
        record.source = perhaps { $0.text() }
        record.path = perhaps { $0.text() }
        record.sources = record.options.mirrors.map {
            SourceRecord(url: $0, received: number(), left: perhaps { SourceFault.allCases.randomElement(using: &$0.generator)! })
        }
        record.resume = perhaps { $0.resume() }
        record.retryAt = perhaps { $0.time() }
        record.expiresAt = perhaps { $0.time() }
        record.timeLeft = perhaps { .microseconds(Int64.random(in: 0...1 << 50, using: &$0.generator)) }
        record.awaitsUrl = .random(using: &generator)
        record.isSpliced = .random(using: &generator)
        record.hasStartedOver = .random(using: &generator)
        record.isWhole = .random(using: &generator)
        record.proof = perhaps { FileProof.allCases.randomElement(using: &$0.generator)! }
        record.batch = perhaps { DownloadNumber($0.number()) }
        record.isFetch = .random(using: &generator)
        record.isUnchanged = .random(using: &generator)
        record.isToDescriptor = .random(using: &generator)
        record.reminders.isAcknowledged = .random(using: &generator)
        record.reminders.calls = .random(in: 0 ... .max, using: &generator)
        record.reminders.nextAt = perhaps { $0.time() }
        record.owesToast = .random(using: &generator)
        if !record.state.hasEnded { record.lastFailure = perhaps { $0.failure() } }
        return record
    }
}

/// A record with the defaults.
func plainRecord(_ value: UInt64, _ state: DownloadState = .queued) -> DownloadRecord {
    DownloadRecord(
        number: DownloadNumber(value), url: "https://example.org/file-\(value).iso", options: DownloadOptions(),
        directory: "/home/a/Downloads",
        state: state, queuedAt: WallTime(microseconds: 1_700_000_000_000_000 + value), position: Int64(value) << 20)
}

/// A record without a default value in any field.
func fullRecord(_ value: UInt64) -> DownloadRecord {
    var failure = DownloadFailure(
        .httpStatus, "example.org answered 503.", httpStatus: 503, host: "example.org", isRetryable: true, retryAfter: .seconds(7),
        wait: .diskSpace, missingBytes: 8, neededRoom: 9)
    failure.origin = "https://example.org:8443"
    var record = plainRecord(value, .failed(failure))
    record.options.app = "org.example.App"
    record.options.token = "token_1"
    record.options.directory = "/home/a/Wanted"
    record.options.fileName = "名前.iso"
    record.options.ifExists = .replace
    record.options.extract = .named("maps")
    record.options.headers = [
        HeaderField(name: "X-One", value: "1: a, b"), HeaderField(name: "X-Empty", value: ""), HeaderField(name: "X-One", value: "2"),
    ]
    let lines = ["#HttpOnly_.h.org\tTRUE\t/\tTRUE\t7\tn\tä\\n", "h\tFALSE\t/\tFALSE\t0\tm\t"]
    record.options.cookies = lines.compactMap { try? Cookie(line: $0) }
    record.options.userAgent = "Agent/1"
    record.options.referrer = "https://example.org/"
    (record.options.postData, record.options.postType, record.options.isPostSent) = ([0, 10, 255], "text/plain", true)
    record.options.hasForgottenSecrets = true
    record.options.username = "user"
    record.options.password = "pass: word"
    record.options.proxy = try? ProxyAddress("socks4a://user:pass%20word@proxy.example.org:1080")
    record.options.mirrors = ["https://m.example.org/a?b", "http://n.example.org/"]
    record.options.checksum = Checksum(.sha512, digest: [UInt8](repeating: 0xA5, count: 64))
    record.options.pieceHashes = PieceHashes(.md5, length: 1, digests: [UInt8](repeating: 0x5A, count: 32))
    (record.options.findsMirrors, record.options.isPrivate) = (true, true)
    record.options.size = 1
    record.options.maxSize = 2
    record.options.expectType = "image/*"
    record.options.notBefore = WallTime(microseconds: 21)
    record.options.deadline = .milliseconds(22)
    record.options.renewable = true
    (record.options.allowsMetered, record.options.onlyIfChanged) = (false, true)
    (record.options.allowsPrivate, record.options.allowsDowngrade, record.options.isSandboxed) = (false, true, true)
    record.options.isNamedByPublicServer = true
    record.options.requestInterval = .milliseconds(26)
    record.options.activate = "org.example.App"
    record.options.start = false
    record.options.priority = -3
    record.options.speedLimit = 4
    record.options.connections = 3
    record.options.stallTimeout = .milliseconds(1500)
    record.options.retries = 5
    record.options.tag = "tag"
    record.options.notify = .always
    record.options.notifyDelay = .milliseconds(27)
    record.options.desktopID = DesktopID("org.example.App")
    record.options.title = "title"
    record.options.body = "body"
    record.options.icon = "icon"
    record.options.sound = ""
    record.options.showProgress = false
    record.options.metadata = [0, 1, 255]
    record.startedAt = WallTime(microseconds: 11)
    record.endedAt = WallTime(microseconds: 12)
    record.attempts = 13
    record.retriesUsed = 14
    record.received = 15
    record.total = 16
    record.fileName = "file.iso"
    record.mediaType = "application/x-iso"
    record.source = "https://mirror.example.org/a"
    record.path = "/home/a/Wanted/file.iso"
    (record.retryAt, record.expiresAt, record.timeLeft) = (WallTime(microseconds: 23), WallTime(microseconds: 24), .milliseconds(25))
    (record.awaitsUrl, record.isSpliced, record.hasStartedOver, record.isWhole) = (true, true, true, true)
    (record.batch, record.isFetch, record.isUnchanged, record.isToDescriptor) = (DownloadNumber(27), true, true, true)
    (record.reminders.isAcknowledged, record.reminders.calls, record.reminders.nextAt) = (true, 28, WallTime(microseconds: 29))
    (record.owesToast, record.proof) = (true, .reprDigest)
    record.resume = ResumeData(
        ranges: ByteRanges([0..<17, 100..<200, 300..<301]), total: 18, validator: .entityTag("\"abc\""),
        identity: FileIdentity(device: 19, inode: 20, mount: .max, boot: "b-o-o-t", born: -21),
        digest: Checksum(.sha256, digest: [UInt8](repeating: 0x5A, count: 32)), mirror: 1)
    record.sources = [SourceRecord(url: record.url, received: 30, left: .httpStatus), SourceRecord(url: record.options.mirrors[1])]
    return record
}
