internal import DBus
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing
@testable internal import TodokuClient

/// Starts a wait on the client's thread.
///
/// - Returns: when the wait has made its call, or joined another call.
private func begin<Answer: Sendable>(_ wait: @escaping @Sendable () async throws -> Answer) async -> Task<Answer, any Error> {
    let task = Task(executorPreference: BusActor.shared.loop) { try await wait() }
    // The loop runs jobs in the order in which they come, and the wait needs fewer jobs than these.
    for _ in 0..<20 { await withCheckedContinuation { continuation in BusActor.spawn { continuation.resume() } } }
    return task
}

@Suite(.serialized, .timeLimit(.minutes(10))) struct `A call whose task is cancelled` {
    private let body = patternBytes(40_000)

    private func server(_ gate: Gate) -> ScriptedServer {
        ScriptedServer { [body] request, reply in
            gate.wait()
            reply.serve(body, for: request)
        }
    }

    /// A client, its calls, and a server that answers once the gate opens.
    private func stage(_ gate: Gate) async throws -> (desk: Desk, server: ScriptedServer, client: DownloaderClient, calls: Calls) {
        let desk = await Desk()
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        return (desk, server(gate), client, await Calls(of: desk))
    }

    @Test func `ends at once, and leaves the download alone`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let (desk, server, client, calls) = try await stage(gate)
        let download = try await client.download(server.url("/a.bin"))
        let waiting = Task { try await client.wait(for: download) }
        #expect(await eventually { calls.count("Wait") == 1 })
        waiting.cancel()
        await #expect(throws: CancellationError.self) { try await waiting.value }
        #expect(try await client.describe(download).outcome == nil)
        // The service still has the first call, and its answer is the next wait's.
        let again = await begin { try await client.wait(for: download) }
        gate.open()
        #expect(try await again.value == "\(desk.downloads)/a.bin")
        // The monitor sees this call after all others.
        _ = try await client.list()
        #expect(await eventually { calls.count("Describe") == 1 })
        #expect(calls.count("Wait") == 1 && calls.count("Cancel") == 0)
        await desk.close()
    }

    @Test func `ends at once whatever it waits for`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let (desk, server, client, calls) = try await stage(gate)
        let batch = try await client.downloadBatch([BatchItem(server.url("/a.bin"))]).reference
        let checked = try await client.registerAsset(AssetKey(app: "org.example.App", name: "a"), manifest: server.url("/a.json"))
        let updated = try await client.registerAsset(AssetKey(app: "org.example.App", name: "b"), manifest: server.url("/b.json"))
        let waits: [(method: String, wait: @Sendable () async throws -> Void)] = [
            ("Wait", { _ = try await client.wait(for: batch) }),
            ("WaitAll", { _ = try await client.waitAll() }),
            ("Fetch", { _ = try await client.fetch(server.url("/b.bin")) }),
            ("Check", { _ = try await client.check(checked) }),
            ("Update", { _ = try await client.update(updated) }),
        ]
        for (method, wait) in waits {
            let waiting = Task { try await wait() }
            #expect(await eventually { calls.count(method) == 1 }, "\(method)")
            waiting.cancel()
            await #expect(throws: CancellationError.self, "\(method)") { try await waiting.value }
        }
        gate.open()
        #expect(try await client.wait(for: batch) == OutcomeCounts(finished: 1))
        #expect(try await eventually { try await client.list(DownloadQuery(states: [.finished])).count >= 2 })
        #expect(calls.count("Cancel") == 0)
        await desk.close()
    }

    /// Other work of the loop comes between the call and the wait for its answer. That work gives up the call, which ends in an error.
    @Test @BusActor func `ends as cancelled, though the call was given up before the wait for its answer began`() async {
        let call = LongCall<Int>(isJoinable: false)
        let place = call.enter()
        #expect(call.isAwaited, "no other task gives the call up")
        call.end(.failure(ClientError(DBusError.disconnected("the bus is gone"))))
        let waiting = Task { @BusActor in try await call.wait(place) }
        waiting.cancel()
        await #expect(throws: CancellationError.self) { try await waiting.value }
        #expect(!call.isAwaited)
    }

    @Test func `ends also while the service does not answer, and then does not start the service again`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let (desk, server, client, calls) = try await stage(gate)
        let download = try await client.download(server.url("/a.bin"))
        let waiting = Task { try await client.wait(for: download) }
        #expect(await eventually { calls.count("Wait") == 1 })
        let process = try #require(await desk.serviceProcess())
        kill(process, SIGSTOP)
        waiting.cancel()
        await #expect(throws: CancellationError.self) { try await waiting.value }
        kill(process, SIGKILL)
        #expect(await eventually { await desk.serviceProcess() == nil })
        // The first answer comes after the news that the call of Wait is lost. A repeated call would come before the second question.
        for _ in 0..<2 { #expect(try await client.overview() == nil) }
        #expect(await desk.serviceProcess() == nil)
        gate.open()
        #expect(try await client.list() == [download])
        #expect(await eventually { calls.count("Describe") == 1 })
        #expect(calls.count("Wait") == 1)
        #expect(try await client.wait(for: download) == "\(desk.downloads)/a.bin")
        await desk.close()
    }

    @Test func `is joined by the next Fetch of the same file, and by no other`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let (desk, server, client, calls) = try await stage(gate)
        let url = server.url("/a.bin")
        let waiting = Task { try await client.fetch(url) }
        #expect(await eventually { calls.count("Fetch") == 1 })
        waiting.cancel()
        await #expect(throws: CancellationError.self) { try await waiting.value }
        let again = await begin { try await client.fetch(url) }
        gate.open()
        #expect(try await again.value == FetchedFile(isNew: true, path: "\(desk.downloads)/a.bin"))
        var request = DownloadRequest()
        request.fileName = "b.bin"
        #expect(try await client.fetch(url, request) == FetchedFile(isNew: true, path: "\(desk.downloads)/b.bin"))
        // A call of `again` would have come before this one.
        #expect(await eventually { calls.count("Fetch") >= 2 })
        #expect(calls.count("Fetch") == 2)
        await desk.close()
    }

    /// The service answers at most 256 waiting calls of a connection.
    @Test func `leaves room for further waits`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let (desk, server, client, _) = try await stage(gate)
        let download = try await client.download(server.url("/a.bin"))
        let waits = (0..<600).map { _ in Task { try await client.wait(for: download) } }
        for wait in waits[..<300] { wait.cancel() }
        for wait in waits[..<300] { await #expect(throws: CancellationError.self) { try await wait.value } }
        gate.open()
        for wait in waits[300...] { #expect(try await wait.value == "\(desk.downloads)/a.bin") }
        await desk.close()
    }

    /// The service counts the application as in front while its client is on the bus.
    @Test func `does not keep a released client on the bus`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let (desk, server, client, calls) = try await stage(gate)
        let download = try await client.download(server.url("/a.bin"))
        let name = try await cancelWait(for: download, by: desk, calls)
        #expect(await desk.bus.waitForOwner(name, present: false))
        #expect(try await client.describe(download).outcome == nil)
        await desk.close()
    }

    /// Reports an application in front, and cancels a wait, by a client that is released then.
    ///
    /// - Returns: the client's name on the bus.
    private func cancelWait(for download: DownloadReference, by desk: Desk, _ calls: Calls) async throws -> String {
        let bus = try await Connection.open(address: desk.bus.address)
        func names() async throws -> Set<String> {
            Set(try await bus.call(BusDaemon.listNames, on: BusDaemon.name, at: BusDaemon.path, ()).filter { $0.hasPrefix(":") })
        }
        let others = try await names()
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        try await client.setForeground("org.example.App", true)
        let own = try await names().subtracting(others)
        let name = try #require(own.count == 1 ? own.first : nil, "\(own)")
        let waiting = Task { try await client.wait(for: download) }
        #expect(await eventually { calls.count("Wait") == 1 })
        waiting.cancel()
        await #expect(throws: CancellationError.self) { try await waiting.value }
        return name
    }

    @Test func `is not made if the task was cancelled before, but other calls are`() async throws {
        let desk = await Desk()
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        let late = Task {
            Self.cancelOwnTask()
            return try await client.fetch("http://127.0.0.1:1/a.bin")
        }
        await #expect(throws: CancellationError.self) { try await late.value }
        #expect(try await client.list().isEmpty)

        var request = DownloadRequest()
        request.start = false
        let download = try await client.download("http://127.0.0.1:1/", request)
        let cleaning = Task {
            Self.cancelOwnTask()
            do { _ = try await client.wait(for: download) } catch is CancellationError { try await client.cancel(download) }
        }
        try await cleaning.value
        #expect(try await client.describe(download).outcome == .cancelled)
        await desk.close()
    }

    /// In a function of its own, because an async function would call the async version.
    private static func cancelOwnTask() { withUnsafeCurrentTask { (task: UnsafeCurrentTask?) -> Void in task?.cancel() } }
}
