import DownloadModel
import EventLoop
import Glibc
import TestSupport

@testable internal import PartFiles
@testable internal import TransferEngine
@testable internal import Transport

/// An engine, a folder to download into, and all events of the engine.
final class EngineFixture: Sendable {
    let folder = TemporaryFolder("todoku-engine")
    let engine: Engine
    let log: EventLog

    /// - Parameters:
    ///   - isHostMissing: replaces the system's resolver, as far as it says why a host has no address.
    ///   - flush: replaces fdatasync(2), to simulate a failing disk.
    init(
        certificateFile: String? = nil, certificateFolder: String? = nil, proxies: ProxySettings = .none,
        isHostMissing: (@Sendable (String) -> Bool)? = nil,
        flush: @escaping @Sendable (Int32) -> Int32 = { fdatasync($0) == 0 ? 0 : errno }
    ) async {
        let log = EventLog()
        self.log = log
        var configuration = EngineConfiguration(version: "0.test", environment: [:])
        (configuration.certificateFile, configuration.certificateFolder) = (certificateFile, certificateFolder)
        configuration.proxies = proxies
        if let isHostMissing { configuration.isHostMissing = isHostMissing }
        let engine = Engine(configuration: configuration, flush: flush) { log.take($0) }
        self.engine = engine
        await log.permit { [weak engine] id, question in engine?.permit(id, question: question, tellsSent: false) }
    }

    deinit { engine.shutDown {} }

    /// Ends the engine and waits for it.
    func shutDown() async {
        await withCheckedContinuation { continuation in engine.shutDown { continuation.resume() } }
    }

    func request(_ url: String, number: UInt64 = 1, _ change: (inout TransferRequest) -> Void = { _ in }) throws -> TransferRequest {
        var request = TransferRequest(
            number: DownloadNumber(number), url: try DownloadURL(url), directory: folder.path, partName: ".todoku-\(number).part")
        // A server may pause for long on a busy machine, or wait until a test goes on. A test about silence sets the times itself.
        (request.stallTimeout, request.takeOverAfter) = (.seconds(240), .seconds(240))
        request.mapPath = folder("map-\(number)")
        change(&request)
        return request
    }

    /// Starts a transfer and waits for its end.
    func run(_ url: String, number: UInt64 = 1, _ change: (inout TransferRequest) -> Void = { _ in }) async throws -> TransferEnd {
        let request = try request(url, number: number, change)
        return await run(request)
    }

    func run(_ request: TransferRequest) async -> TransferEnd {
        let ends = await log.ends(of: request.number)
        engine.start(request)
        return await log.end(of: request.number, after: ends)
    }

    var part: [UInt8]? { part(1) }
    func part(_ number: UInt64) -> [UInt8]? { readFile(folder(".todoku-\(number).part")) }
}

/// The events of an engine, in order.
@BusActor final class EventLog {
    private(set) var events: [TransferEvent] = []

    nonisolated init() {}
    private var waiters: [(condition: @BusActor ([TransferEvent]) -> Bool, resume: CheckedContinuation<Void, Never>)] = []

    /// The further requests for which the engine asked permission.
    private(set) var asked: [RequestID] = []
    /// The numbers of these questions.
    private(set) var questions: [UInt64] = []
    /// Whether the server had answered the request before each question.
    private(set) var areAnswered: [Bool] = []
    /// Whether each of these requests can use a connection that others use.
    private(set) var sharings: [ConnectionSharing] = []
    private var permit: (RequestID, UInt64) -> Void = { _, _ in }

    /// Permits every further request at once.
    func permit(_ body: @escaping (RequestID, UInt64) -> Void) { permit = body }

    func take(_ event: TransferEvent) {
        if case .asks(let id, _, let question, let isAnswered, let sharing) = event {
            asked.append(id)
            questions.append(question)
            areAnswered.append(isAnswered)
            sharings.append(sharing)
            return permit(id, question)
        }
        events.append(event)
        var due: [CheckedContinuation<Void, Never>] = []
        // Ask each condition once, because a condition that reads a clock may come true between two calls.
        waiters.removeAll { waiter in
            guard waiter.condition(events) else { return false }
            due.append(waiter.resume)
            return true
        }
        for waiter in due { waiter.resume() }
    }

    /// The requests that went out on a connection that they share, in the order of their ids.
    var shared: [RequestID] { events.compactMap { if case .shares(let id, _) = $0 { id } else { nil } }.sorted() }

    func wait(until condition: @escaping @BusActor ([TransferEvent]) -> Bool) async {
        await withCheckedContinuation { continuation in
            // Check only here, because other work of the loop may run between a call of `withCheckedContinuation` and its body.
            if condition(events) { continuation.resume() } else { waiters.append((condition, continuation)) }
        }
    }

    func ends(of number: DownloadNumber) -> Int { events.count { $0.isEnd(of: number) } }

    func end(of number: DownloadNumber, after count: Int = 0) async -> TransferEnd {
        await wait { events in events.count { $0.isEnd(of: number) } > count }
        let last = events.filter { $0.isEnd(of: number) }[count]
        guard case .ended(_, let end, _) = last else { preconditionFailure() }
        return end
    }

    /// Waits until `bytes` of a transfer were reported as received.
    func received(_ bytes: ByteCount, of number: UInt64 = 1) async {
        await wait { events in
            events.contains {
                if case .progress(let all) = $0 { all.contains { $0.number.value == number && $0.received >= bytes } } else { false }
            }
        }
    }

    /// The bytes that were last reported as received, of any transfer.
    var received: ByteCount {
        events.lazy.reversed().compactMap { if case .progress(let all) = $0 { all.last?.received } else { nil } }.first ?? 0
    }

    /// The facts of all accepted responses, in order.
    func facts(_ number: UInt64 = 1) -> [TransferFacts] {
        events.compactMap { if case .began(let id, let facts) = $0, id.download.value == number { facts } else { nil } }
    }

    func checkpoints(_ number: UInt64 = 1) -> [ResumeData] {
        events.compactMap { if case .checkpoint(let n, let data) = $0, n.value == number { data } else { nil } }
    }
}

extension TransferEvent {
    func isEnd(of number: DownloadNumber) -> Bool { if case .ended(number, _, _) = self { true } else { false } }
}

extension TransferEnd {
    var complete: CompletePart? { if case .complete(let part) = self { part } else { nil } }
    var failure: DownloadFailure? { if case .failed(let failure, _, _) = self { failure } else { nil } }
    var resume: ResumeData? {
        switch self {
        case .failed(_, _, let resume), .stopped(let resume): resume
        default: nil
        }
    }
    var isStopped: Bool { if case .stopped = self { true } else { false } }
}

/// The identity of a file, on this boot.
func identity(of path: String) throws -> FileIdentity {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC)
    defer { close(descriptor) }
    return try fileIdentity(of: descriptor, boot: bootIdentity())
}

extension ScriptedServer {
    /// A server of `file` that closes the connection of the first request after `count` bytes of the body.
    static func lost(after count: Int, of file: [UInt8]) -> ScriptedServer {
        ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.serve(file, for: request, entityTag: "\"v1\"") }
            reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: file.count)
            reply.send(file[..<count])
            reply.close()
        }
    }
}
