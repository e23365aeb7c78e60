import DBus
import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing
import TodokuClient

/// Records the updates of a watch in order. The client calls on the loop's thread, which is this actor's.
@BusActor private final class Told {
    var updates: [DownloadUpdate] = []

    nonisolated init() {}

    nonisolated var receive: @Sendable (DownloadUpdate) -> Void {
        { update in BusActor.assumeIsolated { self.updates.append(update) } }
    }

    var states: [String] {
        var names: [String] = []
        for case .changed(let description) in updates where description.state.name != names.last { names.append(description.state.name) }
        return names
    }
    var last: DownloadUpdate? { updates.last }
    var count: Int { updates.count }
}

/// Records the news of the service in order, as `Told` does.
@BusActor private final class ServiceTold {
    var news: [ServiceNews] = []

    nonisolated init() {}

    nonisolated var receive: @Sendable (ServiceNews) -> Void { { news in BusActor.assumeIsolated { self.news.append(news) } } }
}

@Suite(.serialized) struct `The Swift client` {
    private let body = patternBytes(40_000)

    @Test func `queues a batch, steers it, waits for it and finds its downloads`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { [body] request, reply in
            if request.path == "/gone" { reply.respond(404) } else { reply.serve(body, for: request) }
        }
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        var defaults = DownloadRequest()
        (defaults.start, defaults.title, defaults.notify) = (false, "Album", .never)
        var own = DownloadRequest()
        own.fileName = "other.bin"
        let queued = try await client.downloadBatch(
            [BatchItem(server.url("/a.bin")), BatchItem(server.url("/b.bin"), own), BatchItem(server.url("/gone"))], defaults)
        #expect(queued.reference == BatchReference("1") && queued.downloads.map(\.description) == ["2", "3", "4"])
        #expect(BatchReference("/org/todoku/Downloader1/batch/1") == queued.reference && queued.reference.description == "1")
        for text in ["", "x", "01", "-1", "/org/todoku/Downloader1/download/1", "/org/todoku/Downloader1/batch/"] {
            #expect(BatchReference(text) == nil)
        }
        var batch = try await client.describe(queued.reference)
        #expect((batch.title, batch.count, batch.remaining, batch.outcomes) == ("Album", 3, 3, OutcomeCounts()))
        #expect(batch.total == nil && batch.fraction == nil)
        try await client.resume(queued.reference)
        #expect(try await client.wait(for: queued.reference) == OutcomeCounts(finished: 2, failed: 1))
        batch = try await client.describe(queued.reference)
        #expect((batch.remaining, batch.received, batch.total, batch.fraction) == (0, 80_000, 80_000, 1))
        let failed = try await client.describe(DownloadQuery(states: [.failed], batch: queued.reference))
        #expect(failed.map(\.reference.description) == ["4"] && failed[0].batch == queued.reference.path)
        #expect(readFile("\(desk.downloads)/other.bin") == body)
        do {
            _ = try await client.downloadBatch([BatchItem(server.url("/a")), BatchItem("nonsense")])
            Issue.record("a bad URL was taken")
        } catch { #expect(error.errorName == .invalidUrl && error.message.hasPrefix("Item 1: ")) }
        let held = try await client.downloadBatch([BatchItem(server.url("/c"))], defaults)
        try await client.pause(held.reference)
        try await client.cancel(held.reference)
        #expect(try await client.wait(for: held.reference) == OutcomeCounts(cancelled: 1))
        #expect(try await client.batches() == [queued.reference, held.reference])
        #expect(try await client.batches(hasEnded: false) == [])
        let (one, other) = ("org.example.One", "org.example.Other")
        defaults.app = one
        let ofApp = try await client.downloadBatch([BatchItem(server.url("/d")), BatchItem(server.url("/e"))], defaults).reference
        #expect(try await client.batches(of: one) == [ofApp])
        #expect(try await client.batches(of: one, hasEnded: true) == [])
        #expect(try await client.batches(of: other) == [])
        #expect(try await client.batches().count == 3)
        try await client.remove(queued.reference, deleteFiles: true)
        #expect(listFolder(desk.downloads) == [])
        do {
            _ = try await client.describe(queued.reference)
            Issue.record("it is still there")
        } catch { #expect(error.cause == .unknownDownload) }
        await desk.close()
    }

    @Test func `queues, waits, describes and reads`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { [body] request, reply in reply.serve(body, for: request) }
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        var request = DownloadRequest()
        request.start = false
        request.priority = 3
        request.tag = "tests"
        request.metadata = ["n": 7, "list": ["a", "b"], "mixed": [1.5, "x", true, []], "most": .unsigned(.max), "map": ["key": -1]]
        let download = try await client.download(server.url("/a.bin?q=1"), request)
        var description = try await client.describe(download)
        #expect((description.state, description.priority, description.tag, description.total) == (.paused, 3, "tests", nil))
        #expect(try await client.metadata(of: download) == request.metadata)
        var query = DownloadQuery(tag: "tests")
        query.metadata = ["n": 7, "list": ["a", "b"]]
        #expect(try await client.list(query) == [download])
        try await client.setMetadata(["n": 8], of: download)
        #expect(try await client.metadata(of: download) == ["n": 8])
        #expect(try await client.list(query).isEmpty)
        #expect(try await client.url(of: download) == server.url("/a.bin?q=1"))
        #expect(description.url == server.url("/a.bin"))
        try await client.setPriority(-1, of: download)
        try await client.setSpeedLimit(1 << 30, of: download)
        try await client.move(download, to: 0)
        #expect(try await client.list(.remaining) == [download])
        try await client.resume(download)
        #expect(try await client.wait(for: download) == "\(desk.downloads)/a.bin")
        description = try await client.describe(download)
        #expect((description.state, description.priority, description.speedLimit) == (.finished, -1, 1 << 30))
        #expect((description.received, description.total, description.fraction) == (40_000, 40_000, 1))
        let file = try await client.openFile(download)
        var bytes = [UInt8](repeating: 0, count: 50_000)
        #expect(read(file, &bytes, bytes.count) == 40_000)
        #expect(Array(bytes[..<40_000]) == body)
        close(file)
        let status = try await client.status()
        #expect((status.remaining, status.active, status.isPaused) == (0, 0, false))
        #expect(status.supportedOptions.contains("checksum"))
        #expect(try await client.clearEnded() == 1)
        #expect(try await client.describe().isEmpty)
        await desk.close()
    }

    @Test func `lists more downloads than fit into one answer`() async throws {
        let desk = await Desk()
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        var request = DownloadRequest()
        request.start = false
        for number in 1...2005 { _ = try await client.download("http://127.0.0.1/\(number)", request) }
        let all = try await client.list()
        #expect(all.map(\.number) == (1...2005).map { UInt64($0) })
        try await client.cancelAll()
        #expect(try await client.clearEnded() == 2005)
        await desk.close()
    }

    @Test func `reports each state to a watch in order, and nothing after its stop`() async throws {
        let desk = await Desk()
        let gate = Gate()
        let server = ScriptedServer { [body] request, reply in
            gate.wait()
            reply.serve(body, for: request)
        }
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        let (told, all) = (Told(), Told())
        let everything = try await client.watch(nil, all.receive)
        var request = DownloadRequest()
        request.start = false
        let download = try await client.download(server.url("/a.bin"), request)
        let watch = try await client.watch([download], told.receive)
        #expect(await told.states == ["paused"])
        try await client.resume(download)
        gate.open()
        _ = try await client.wait(for: download)
        // The answer to Wait comes after the signals of the end.
        let states = await told.states
        #expect(states.first == "paused" && states.contains("active") && states.last == "finished")
        #expect(await all.states.last == "finished")
        guard case .changed(let last)? = await told.last else { throw Missing() }
        #expect((last.received, last.path) == (40_000, "\(desk.downloads)/a.bin"))
        watch.stop()
        let count = await told.count
        try await client.remove(download)
        _ = try await client.list()
        #expect(await told.count == count)
        #expect(await all.last == .removed(download))
        everything.stop()
        await desk.close()
    }

    @Test func `reports retried downloads to a watch of all`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { request, reply in reply.respond(404) }
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        let told = Told()
        let watch = try await client.watch(nil, told.receive)
        let download = try await client.download(server.url("/a.bin"))
        await #expect(throws: ClientError.self) { _ = try await client.wait(for: download) }
        _ = try await client.list()
        let count = await told.count
        try await client.retry(download)
        await #expect(throws: ClientError.self) { _ = try await client.wait(for: download) }
        #expect(await eventually { await told.count > count })
        watch.stop()
        await desk.close()
    }

    @Test func `follows a download across a crash of the service`() async throws {
        let desk = await Desk()
        let gate = Gate()
        let server = ScriptedServer { [body] request, reply in
            gate.wait()
            reply.serve(body, for: request)
        }
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        let download = try await client.download(server.url("/a.bin"))
        let told = Told()
        let watch = try await client.watch([download], told.receive)
        #expect(await server.waitForRequests(1))
        kill(try #require(await desk.serviceProcess()), SIGKILL)
        // Only the watch starts the service again.
        #expect(await server.waitForRequests(2))
        gate.open()
        #expect(await eventually { await told.states.last == "finished" })
        watch.stop()
        await desk.close()
    }

    @Test func `follows a download across a crash of the service after another one was removed`() async throws {
        let desk = await Desk()
        let gate = Gate()
        defer { gate.open() }
        let server = ScriptedServer { [body] request, reply in
            gate.wait()
            reply.serve(body, for: request)
        }
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        var request = DownloadRequest()
        request.start = false
        let removed = try await client.download("http://127.0.0.1:1/", request)
        let download = try await client.download(server.url("/a.bin"))
        let told = Told()
        let watch = try await client.watch([removed, download], told.receive)
        #expect(await server.waitForRequests(1))
        try await client.remove(removed)
        #expect(await eventually { await told.updates.contains(.removed(removed)) })
        kill(try #require(await desk.serviceProcess()), SIGKILL)
        #expect(await server.waitForRequests(2))
        gate.open()
        #expect(await eventually { await told.states.last == "finished" })
        // The restarted service does not know the removed download, which is no news.
        #expect(await told.updates.count { $0 == .removed(removed) } == 1)
        watch.stop()
        await desk.close()
    }

    @Test func `waits for a tag across a crash of the service, and acknowledges`() async throws {
        let desk = await Desk()
        let gate = Gate()
        let server = ScriptedServer { [body] request, reply in
            if request.path == "/bad" { return reply.respond(404) }
            gate.wait()
            reply.serve(body, for: request)
        }
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        var request = DownloadRequest()
        request.tag = "t"
        request.activate = "org.example.App"
        let download = try await client.download(server.url("/a.bin"), request)
        let bad = try await client.download(server.url("/bad"), request)
        let early = await #expect(throws: ClientError.self) { try await client.acknowledge(download) }
        #expect((early?.cause, early?.errorName) == (.refused, .invalidState))
        async let counts = client.waitAll(DownloadQuery(tag: "t"))
        #expect(await server.waitForRequests(2))
        kill(try #require(await desk.serviceProcess()), SIGKILL)
        gate.open()
        #expect(try await counts == OutcomeCounts(finished: 1, failed: 1, cancelled: 0))
        for _ in 0..<2 { try await client.acknowledge(download) }
        #expect(try await client.waitAll(DownloadQuery(tag: "another")).allFinished)
        try await client.remove(bad)
        #expect(try await client.waitAll() == OutcomeCounts(finished: 1, failed: 0, cancelled: 0))
        await desk.close()
    }

    @Test func `reports its foreground app again to a restarted service`() async throws {
        let desk = await Desk()
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        let monitor = Child(["dbus-monitor", "--session", "--profile"], environment: desk.environment)
        #expect(await eventually { monitor.output.contains("NameLost") })
        func said() -> Int { monitor.output.split(separator: "\n").count { $0.hasPrefix("mc\t") && $0.hasSuffix("\tSetForeground") } }
        try await client.setForeground("org.example.App", true)
        #expect(await eventually { said() == 1 })
        for times in [2, 3] {
            let process = try #require(await desk.serviceProcess())
            kill(process, SIGKILL)
            #expect(await eventually { await desk.serviceProcess() == nil })
            _ = try await client.list()
            #expect(await eventually { said() == times })
        }
        try await client.setForeground("org.example.App", false)
        #expect(await eventually { said() == 4 })
        kill(try #require(await desk.serviceProcess()), SIGKILL)
        #expect(await eventually { await desk.serviceProcess() == nil })
        _ = try await client.list()
        _ = try await client.list()
        #expect(said() == 4)
        await desk.close()
    }

    @Test func `tells a missing download from a refusal`() async throws {
        let desk = await Desk()
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        let calls: [(DownloadReference) async throws -> Void] = [client.pause, client.resume, client.cancel, client.retry]
        for call in calls {
            let error = await #expect(throws: ClientError.self) { try await call(DownloadReference(number: 99)) }
            #expect(error?.cause == .unknownDownload)
        }
        var request = DownloadRequest()
        request.directory = "relative"
        let refused = await #expect(throws: ClientError.self) { _ = try await client.download("http://127.0.0.1/", request) }
        #expect((refused?.cause, refused?.errorName) == (.refused, .invalidOption))
        await desk.close()
    }

    @Test func `tells a missing service, one that cannot start, and a lost bus apart`() async throws {
        let desk = await Desk(hasService: false)
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        let absent = await #expect(throws: ClientError.self) { _ = try await client.list() }
        #expect(absent?.cause == .serviceUnavailable)
        await desk.bus.makeActivatable("org.todoku.Downloader1", "/bin/false")
        let broken = await #expect(throws: ClientError.self) { _ = try await client.wait(for: DownloadReference(number: 1)) }
        #expect(broken?.cause == .serviceUnavailable)
        #expect(broken?.message.hasPrefix("org.todoku.Downloader1 cannot be started: ") == true)
        await desk.bus.stop()
        let gone = await #expect(throws: ClientError.self) { _ = try await client.list() }
        #expect(gone?.cause == .busUnavailable)
        let never = await #expect(throws: ClientError.self) { _ = try await DownloaderClient.connect(to: desk.bus.address) }
        #expect(never?.cause == .busUnavailable)
    }

    @Test func `reports a lost bus also to a watch of the service that begins later`() async throws {
        let desk = await Desk(hasService: false)
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        let (before, after) = (ServiceTold(), ServiceTold())
        let first = await client.watchService(before.receive)
        // Otherwise, the loss could come while the watch still asks for the owner.
        #expect(await eventually { await before.news == [.absent] })
        await desk.bus.stop()
        #expect(await eventually { await before.news.last == .lost })
        let second = await client.watchService(after.receive)
        #expect(await after.news == [.lost])
        first.stop()
        second.stop()
    }

    private struct Missing: Error {}
}
