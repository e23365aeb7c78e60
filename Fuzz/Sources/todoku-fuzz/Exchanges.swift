internal import CSystem
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Synchronization

@testable internal import PartFiles
@testable internal import TransferEngine
@testable internal import Transport

/// Whole exchanges: the real engine, with the real libcurl, fetches from a server whose answers are the input.
///
/// The input is split at RS. The first piece is the settings: how many downloads (`byte & 3`), then a byte of `ExchangeFlags`. Each further
/// piece is one answer, in the order of the requests: a byte that says how it ends (`ending`), then its bytes. Some control characters
/// stand for something else:
///
/// | byte | |
/// |---|---|
/// | SUB | what follows is sent only once the download has ended: a surplus |
/// | ESC | the server's own origin, `http://127.0.0.1:PORT` |
/// | FS and a byte n | a pattern of n × 257 bytes; of 600 KiB where n is above 239, which the written map can tell of |
/// | GS | here one write of the server ends, and the next begins when the engine has read it |
func fuzzExchanges(_ bytes: [UInt8]) {
    _ = warmUp
    let pieces = bytes.split(separator: 0x1E, omittingEmptySubsequences: false)
    let settings = Array(pieces[0])
    let flags = ExchangeFlags(rawValue: settings.count > 1 ? settings[1] : 0)
    let server = scriptServer
    server.begin(pieces.dropFirst().prefix(40).map { ServerAnswer($0, origin: server.origin) })
    let before = openDescriptors()
    do {
        let round = ExchangeRound(server)
        let last = 1 + UInt64(settings.first ?? 0) & 3 % 3
        // Only the last download may not go to this machine: an earlier one may have left a connection to use.
        for number in 1...last { round.download(number, flags: number == last ? flags : flags.subtracting(.refusesPrivate)) }
        round.innocent()
        round.end()
    }
    server.end()
    check(settles { openDescriptors().count <= before.count }, "open are \(openDescriptors()), and were \(before)")
}

/// The options of the downloads. The bits 0x10 and 0x20, which every digit has, mean nothing.
private struct ExchangeFlags: OptionSet {
    let rawValue: UInt8
    static let isNamed = Self(rawValue: 1)
    static let hasNoMap = Self(rawValue: 2)
    static let isBounded = Self(rawValue: 4)
    static let hasKnownName = Self(rawValue: 8)
    /// The option `if-exists` is `replace`.
    static let replaces = Self(rawValue: 0x40)
    /// The last download may not go to private addresses, and the server is at one.
    static let refusesPrivate = Self(rawValue: 0x80)
}

/// One engine's life.
private final class ExchangeRound {
    private let server: ScriptServer
    private let folder = exchangeFolder
    private let mailbox = Mailbox()
    private let engine: Engine

    init(_ server: ScriptServer) {
        self.server = server
        let mailbox = mailbox
        engine = Engine(configuration: EngineConfiguration(version: "0.fuzz", environment: [:])) { mailbox.put($0) }
    }

    /// One download: a transfer, and once it failed with bytes that count, another that goes on from them.
    func download(_ number: UInt64, flags: ExchangeFlags) {
        removeFiles(in: folder)
        var reader = ReferenceReader()
        var resume: ResumeData?
        for _ in 0..<3 {
            var request = request(number, path: "/d\(number)/file.bin")
            request.resume = resume
            if flags.contains(.isNamed) { request.fileName = "named.bin" }
            if flags.contains(.hasNoMap) { request.mapPath = nil }
            if flags.contains(.isBounded) { request.maxSize = 100_000 }
            if flags.contains(.hasKnownName) { request.knownName = "known.bin" }
            if flags.contains(.replaces) { request.ifExists = .replace }
            if flags.contains(.refusesPrivate) { return refused(request) }
            let end = run(request)
            for exchange in server.takeExchanges() { reader.read(exchange) }
            server.sendSurplus()
            switch end {
            case .complete(let part):
                let file = file(request.partName)
                checkName(part.facts, request)
                check(part.size == ByteCount(file.count), "\(part.size) bytes are told, and the file has \(file.count)")
                check(part.facts.total == part.size, "a total of \(part.facts.total ?? 0) for \(part.size) bytes")
                check(reader.entitles(file), "finished with what no answer says: \(describe(file))\n\(reader.account)")
                return
            case .failed(_, let madeProgress, let next):
                let held = next?.written ?? 0
                check(
                    madeProgress == (held > resume?.written ?? 0),
                    "progress is \(madeProgress) with \(held) bytes after \(resume?.written ?? 0)")
                checkHeld(next, request, reader)
                guard let next, next.written > 0 else { return }
                resume = next
            default: return check(false, "a transfer that nobody stopped, and whose name nobody took, ended with \(end)")
            }
        }
    }

    /// Checks that nothing of the server at a private address becomes a file, and that it is asked for nothing.
    private func refused(_ request: TransferRequest) {
        var request = request
        request.refusesPrivate = true
        let end = run(request)
        guard case .failed(let failure, false, nil) = end, failure.name == .notAllowed else {
            return check(false, "a download that may not go to a private address ended with \(end)")
        }
        let exchanges = server.takeExchanges()
        check(exchanges.isEmpty, "a private address was asked: \(exchanges.map(\.path))")
        let names = fileNames(in: folder).filter { !file($0).isEmpty }
        check(names.isEmpty, "bytes of a private address are in \(names)")
    }

    /// Checks that the server does not choose the name where that would decide which file is replaced.
    private func checkName(_ facts: TransferFacts, _ request: TransferRequest) {
        guard let name = request.fileName ?? (request.ifExists == .replace ? "file.bin" : nil) else { return }
        check(facts.fileName == name, "the server calls it \(facts.fileName), and it must be \(name)")
    }

    /// Checks that a correctly served download finishes, whatever earlier downloads left on the kept connections.
    func innocent() {
        removeFiles(in: folder)
        server.isKind = true
        let end = run(request(99, path: "/innocent"))
        _ = server.takeExchanges()
        guard case .complete = end else { return check(false, "an innocent download ended with \(end)") }
        let file = file(".todoku-99.part")
        check(file == ScriptServer.innocentBody, "an innocent download got \(describe(file))")
    }

    /// Shuts the engine down, and waits for it.
    func end() {
        let done = Mailbox()
        engine.shutDown { done.put(.progress([])) }
        check(settles { !done.takeAll().isEmpty }, "the engine does not end")
    }

    private func request(_ number: UInt64, path: String) -> TransferRequest {
        guard let url = try? DownloadURL(server.origin + path) else { preconditionFailure("\(server.origin) is refused") }
        var request = TransferRequest(number: DownloadNumber(number), url: url, directory: folder, partName: ".todoku-\(number).part")
        request.stallTimeout = longestPause
        request.mapPath = "\(folder)/.map-\(number)"
        request.allowsHiddenFolders = true
        return request
    }

    private func run(_ request: TransferRequest) -> TransferEnd {
        engine.start(request)
        var ended: TransferEnd?
        var asked = 0
        server.serve(wakeDescriptor: mailbox.descriptor) {
            for event in mailbox.takeAll() {
                switch event {
                case .asks(let id, _, let question, _, _):
                    asked += 1
                    check(asked < 100, "it asks again and again")
                    engine.permit(id, question: question, tellsSent: false)
                case .began(_, let facts): checkName(facts, request)
                case .ended(_, let end, _): ended = end
                default: break
                }
            }
            return ended != nil
        }
        return ended ?? .stopped(nil)
    }

    /// Checks that the bytes a failed transfer keeps, by its record and by its written map, all belong to one representation.
    private func checkHeld(_ resume: ResumeData?, _ request: TransferRequest, _ reader: ReferenceReader) {
        let names = fileNames(in: folder)
        check(!names.contains(".todoku-\(request.number.value).new.part"), "a second part file is left: \(names)")
        let file = file(request.partName)
        if let resume, resume.written > 0 {
            check(resume.ranges.prefixEnd == resume.written, "one connection left \(resume.ranges)")
            check(resume.written <= ByteCount(file.count), "\(resume.written) bytes count of \(file.count)")
            check(reader.isPrefix(file.prefix(Int(clamping: resume.written)), resume.validator?.ifRange), "what counts is of no answer")
        }
        let path = "\(folder)/\(request.partName)"
        guard let map = request.mapPath, fileNames(in: folder).contains(".map-\(request.number.value)"), !file.isEmpty else { return }
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        defer { close(descriptor) }
        guard let identity = try? fileIdentity(of: descriptor, boot: bootIdentity()), let told = try? WrittenMap.read(map, of: identity)
        else {
            return check(false, "the map is of another file")
        }
        let end = told.ranges.end
        check(end <= ByteCount(file.count) && end == told.ranges.prefixEnd, "the map tells of \(told.ranges) of \(file.count) bytes")
        check(
            reader.isPrefix(file.prefix(Int(clamping: end)), told.header.validator?.ifRange), "what the map tells of is of no answer")
    }

    private func file(_ name: String) -> [UInt8] { readWhole("\(folder)/\(name)") }
}

/// What the engine told and nobody has taken.
private final class Mailbox: Sendable {
    private let events = Mutex<[TransferEvent]>([])
    /// Readable while something may be in it.
    let descriptor = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))

    deinit { close(descriptor) }

    func put(_ event: TransferEvent) {
        events.withLock { $0.append(event) }
        _ = eventfd_write(descriptor, 1)
    }

    func takeAll() -> [TransferEvent] {
        var value: UInt64 = 0
        _ = eventfd_read(descriptor, &value)
        return events.withLock { all in
            defer { all = [] }
            return all
        }
    }
}

/// How long the engine or the server may pause: 2 s, or the seconds in TODOKU_FUZZ_PAUSE. On a busy machine, a pause is no fault.
let longestPause = Duration.seconds(getenv("TODOKU_FUZZ_PAUSE").flatMap { Int(String(cString: $0)) } ?? 2)

/// Waits until `condition` holds, a second longer than `longestPause` at most.
private func settles(_ condition: () -> Bool) -> Bool {
    let start = ContinuousClock.now
    while !condition() {
        if ContinuousClock.now - start > longestPause + .seconds(1) { return false }
        usleep(100)
    }
    return true
}

/// What each open descriptor leads to, by its number.
private func openDescriptors() -> [String] {
    fileNames(in: "/proc/self/fd").map { name in
        var target = [UInt8](repeating: 0, count: 200)
        let count = readlink("/proc/self/fd/\(name)", &target, target.count)
        return "\(name) (\(String(decoding: target.prefix(max(0, count)), as: UTF8.self)))"
    }
}

private func describe(_ bytes: [UInt8]) -> String {
    "\(bytes.count) bytes, \(String(decoding: bytes.prefix(60), as: UTF8.self).debugDescription)"
}

private func fileNames(in folder: String) -> [String] {
    guard let list = opendir(folder) else { return [] }
    defer { closedir(list) }
    var names: [String] = []
    while let entry = readdir(list) {
        let name = withUnsafeBytes(of: entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
        if name != ".", name != ".." { names.append(name) }
    }
    return names
}

private func removeFiles(in folder: String) { for name in fileNames(in: folder) { unlink("\(folder)/\(name)") } }

private func readWhole(_ path: String) -> [UInt8] {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return [] }
    defer { close(descriptor) }
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { return [] }
    var bytes = [UInt8](repeating: 0, count: Int(status.st_size))
    let count = bytes.withUnsafeMutableBytes { pread(descriptor, $0.baseAddress, $0.count, 0) }
    return Array(bytes.prefix(max(0, count)))
}

/// Creates what later rounds reuse (the bus loop, libcurl's caches, the mount table), so that the check for leaked descriptors does not
/// count it.
private let warmUp: Void = {
    let cut = "1HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nright\r\n"
    scriptServer.begin([ServerAnswer(Array(cut.utf8)[...], origin: scriptServer.origin)])
    let round = ExchangeRound(scriptServer)
    round.download(1, flags: [])
    round.innocent()
    round.end()
    scriptServer.end()
    usleep(300_000)  // what belongs to the round closes
}()

// libFuzzer has one thread, and these two belong to it.
private nonisolated(unsafe) let scriptServer = ScriptServer()
private let exchangeFolder: String = {
    var template = Array("\(getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp")/exchanges.XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else { preconditionFailure("mkdtemp: \(errno)") }
    return String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
}()
