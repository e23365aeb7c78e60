internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing
internal import TodokuClient

@Suite(.serialized, .timeLimit(.minutes(10))) struct `A sequence of a download's states` {
    private let body = patternBytes(40_000)

    /// A server whose responses wait for `gate`; nil: for nothing.
    private func server(_ gate: Gate? = nil) -> ScriptedServer {
        ScriptedServer { [body] request, reply in
            gate?.wait()
            if request.path == "/missing" { reply.respond(404) } else { reply.serve(body, for: request) }
        }
    }

    @Test func `begins with the present state and ends with the outcome`() async throws {
        let desk = await Desk()
        let server = server()
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        var request = DownloadRequest()
        request.start = false
        let download = try await client.download(server.url("/a.bin"), request)
        var states = client.watch(download).makeAsyncIterator()
        let first = try await states.next()
        #expect(first?.state == .paused && first?.outcome == nil)
        try await client.resume(download)
        var last: DownloadDescription?
        while let now = try await states.next() { last = now }
        #expect(last?.outcome == .finished(path: "\(desk.downloads)/a.bin"))
        #expect((last?.received, last?.total) == (40_000, 40_000))
        let further = try await states.next()
        #expect(further == nil)
        await desk.close()
    }

    /// The signals of a download with a token come from the path with the token only.
    @Test func `of a download with a token follows its number, too`() async throws {
        let desk = await Desk()
        let server = server()
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        var request = DownloadRequest()
        (request.start, request.app, request.token) = (false, "org.example.App", "t")
        let download = try await client.download(server.url("/a.bin"), request)
        #expect(download == DownloadReference(app: "org.example.App", token: "t"))
        var states = client.watch(DownloadReference(number: 1)).makeAsyncIterator()
        let first = try await states.next()
        #expect(first?.state == .paused && first?.token == "t")
        try await client.resume(download)
        var last: DownloadDescription?
        while let now = try await states.next() { last = now }
        #expect(last?.outcome == .finished(path: "\(desk.downloads)/a.bin"))
        #expect(last?.reference == DownloadReference(number: 1))
        await desk.close()
    }

    @Test func `has the error of a failed download, also after its end`() async throws {
        let desk = await Desk()
        let server = server()
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        let download = try await client.download(server.url("/missing"))
        var outcomes: [DownloadOutcome?] = []
        for try await now in client.watch(download) { outcomes.append(now.outcome) }
        guard case .failed(let error)?? = outcomes.last else { throw Missing() }
        #expect((error.errorName, error.httpStatus, error.isRetryable) == (.httpStatus, 404, false))
        #expect(error.host == "127.0.0.1" && error.message.contains("404"))
        #expect(outcomes.dropLast().allSatisfy { $0 == nil })
        var later: [DownloadOutcome?] = []
        for try await now in client.watch(download) { later.append(now.outcome) }
        #expect(later == [.failed(error)])
        await desk.close()
    }

    @Test func `continues when the service is killed`() async throws {
        let desk = await Desk()
        let gate = Gate()
        defer { gate.open() }
        let server = server(gate)
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        let download = try await client.download(server.url("/a.bin"))
        #expect(await server.waitForRequests(1))
        var states = client.watch(download).makeAsyncIterator()
        let first = try await states.next()
        #expect(first != nil && first?.outcome == nil)
        kill(try #require(await desk.serviceProcess()), SIGKILL)
        // Only the sequence starts the service again.
        #expect(await server.waitForRequests(2))
        gate.open()
        var last: DownloadDescription?
        while let now = try await states.next() { last = now }
        #expect(last?.outcome == .finished(path: "\(desk.downloads)/a.bin"))
        await desk.close()
    }

    @Test func `skips states for a slow reader, and never the last one`() async throws {
        let desk = await Desk()
        let gate = Gate()
        defer { gate.open() }
        let server = server(gate)
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        let download = try await client.download(server.url("/a.bin"))
        var states = client.watch(download).makeAsyncIterator()
        let first = try await states.next()
        #expect(first?.outcome == nil)
        gate.open()
        // The answer to Wait comes after the signals of the end.
        _ = try await client.wait(for: download)
        let second = try await states.next()
        let third = try await states.next()
        #expect(second?.state == .finished && third == nil)
        await desk.close()
    }

    @Test func `ends without an error when its reader is cancelled, and the download continues`() async throws {
        let desk = await Desk()
        let (gate, isReading) = (Gate(), Gate())
        defer { gate.open() }
        let server = server(gate)
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        let download = try await client.download(server.url("/a.bin"))
        #expect(await server.waitForRequests(1))
        let reading = Task {
            for try await _ in client.watch(download) { isReading.open() }
        }
        #expect(await eventually { isReading.isOpen })
        reading.cancel()
        try await reading.value
        let never = Task {
            Self.cancelOwnTask()
            var count = 0
            for try await _ in client.watch(download) { count += 1 }
            return count
        }
        #expect(try await never.value == 0)
        #expect(try await client.describe(download).outcome == nil)
        gate.open()
        #expect(try await client.wait(for: download) == "\(desk.downloads)/a.bin")
        await desk.close()
    }

    @Test func `throws if there is no such download, and once the bus is gone`() async throws {
        let desk = await Desk()
        let gate = Gate()
        defer { gate.open() }
        let server = server(gate)
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        var missing = client.watch(DownloadReference(number: 99)).makeAsyncIterator()
        do throws(ClientError) {
            _ = try await missing.next(isolation: nil)
            Issue.record("there is a download 99")
        } catch { #expect(error.cause == .unknownDownload) }
        let afterError = try await missing.next()
        #expect(afterError == nil)

        let download = try await client.download(server.url("/a.bin"))
        var states = client.watch(download).makeAsyncIterator()
        _ = try await states.next()
        await desk.bus.stop()
        do throws(ClientError) {
            while try await states.next(isolation: nil) != nil {}
            Issue.record("the sequence ended without an error")
        } catch { #expect(error.cause == .busUnavailable) }
    }

    /// A download that has not ended is cancelled before it leaves the list.
    @Test func `ends when its download is removed`() async throws {
        let desk = await Desk()
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        var request = DownloadRequest()
        request.start = false
        let download = try await client.download("http://127.0.0.1:1/", request)
        var states = client.watch(download).makeAsyncIterator()
        let first = try await states.next()
        #expect(first?.state == .paused)
        try await client.remove(download)
        var outcome: DownloadOutcome?
        do throws(ClientError) {
            while let now = try await states.next(isolation: nil) { outcome = now.outcome }
            #expect(outcome == .cancelled)
        } catch { #expect(error.cause == .unknownDownload) }
        await desk.close()
    }

    /// In a function of its own, because an async function would call the async version.
    private static func cancelOwnTask() { withUnsafeCurrentTask { (task: UnsafeCurrentTask?) -> Void in task?.cancel() } }

    private struct Missing: Error {}
}
