internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// What the service asks of the machine for its work. None of these numbers depends on how fast the machine is, so a change that makes the
/// service dearer fails here. docs/performance.md says what the service costs beside its peers.
@Suite(.serialized, .timeLimit(.minutes(20)), .disabled(if: underSanitizer() != nil, "a sanitizer replaces malloc"))
struct `The costs of the service` {
    @Test func `a call allocates little`() async throws {
        let desk = try await CostDesk()
        // A download that is active would cost something ten times a second, however slow the calls are.
        let path = try await desk.running.download(desk.server.url("/never"), ["start": .bool(false)])
        let get = try await desk.costs(of: 1000) { _ = try await desk.running.client.get(Manager.version) }
        let all = try await desk.costs(of: 1000) { _ = try await desk.running.client.all(path) }
        print("costs: Get \(get); GetAll \(all)")
        // The calls follow one another, so each has its own wait, receive and send, however busy the machine is.
        #expect(get.allocations <= 45 && all.allocations <= 45 && get.calls <= 5 && all.calls <= 5, "Get: \(get); GetAll: \(all)")
    }

    /// The service makes an object for each download that it looks at.
    @Test func `a search by an app in a sandbox looks at no download of another app`() async throws {
        let desk = try await CostDesk()
        let sandbox = await Sandbox(desk.running.world)
        let client = try await sandbox.client()
        #expect(try await client.list() == [])
        let (count, other) = (2000, "org.example.Other")
        try await desk.queue(count, app: other)
        #expect(await desk.running.client.signals.has("DownloadAdded", count: count))
        for filter in [[:], ["app": .string(other)]] as [[String: Variant]] {
            let list = try await desk.costs(of: 10) { _ = try await client.list(filter) }
            let wait = try await desk.costs(of: 10) { _ = try await client.call(Manager.waitAll, filter) }
            print("costs: in a sandbox, List \(list); WaitAll \(wait)")
            #expect(max(list.allocations, wait.allocations) < Double(count) / 4, "\(filter): List: \(list); WaitAll: \(wait)")
        }
        await sandbox.stop()
    }

    @Test func `a small file needs few system calls, flushes, allocations and signals`() async throws {
        let desk = try await CostDesk()
        try await desk.batch(of: 100)
        let (count, before, begun) = (500, await desk.running.client.signals.seen.count, ContinuousClock.now)
        let costs = try await desk.costs(of: 1) { try await desk.batch(of: count) } / count
        let signals = await desk.running.client.signals.seen.dropFirst(before)
        // The manager and the batch tell their counts at most four times a second each, the batch its end, too.
        let seconds = (ContinuousClock.now - begun) / .seconds(1)
        let counts = signals.count { $0.changed != nil && !$0.path.contains("/download/") }
        #expect(Double(counts) <= 8 * seconds + 8, "\(counts) in \(seconds) s")
        // A download that takes longer than a quarter of a second reports what it has before its end, too.
        let timed = signals.count { $0.member == "Progress" || $0.changed != nil && $0.state != "finished" } - counts
        let others = Double(signals.count - counts - timed) / Double(count)
        print("costs: a small file \(costs), signals \(others), \(counts) of counts, and \(timed) of \(count) files that took long")
        // Each of these signals is sent by one call, and costs as much memory as the answer to a GetAll.
        let more = Double(timed + counts) / Double(count)
        // The disk decides how many files share a commit and the flush of their folder, so the bound of the flushes allows for a disk on
        // which none do.
        #expect(costs.files <= 46 && costs.flushes <= 5.5, "\(costs)")
        // With reads, writes and waits. strace(1) counts 96 calls, and counts those of libc itself too.
        #expect(costs.calls <= 96 + 2 * more, "\(costs), \(more) more signals")
        #expect(costs.sockets <= 14 + more && costs.allocations <= 720 + 65 * more, "\(costs), \(more) more signals")
        #expect(others <= 5.1 && timed <= 5 * count)
    }

    @Test func `a MiB allocates nothing that lasts, and needs few system calls`() async throws {
        let desk = try await CostDesk()
        try await desk.running.fetch(desk.server.url("/large"))
        // One recv(2) takes what has arrived: 512 KiB where the server is fast, 16 KiB where it gets little of the processor. So the bound
        // of the calls for sockets is wide. The engine allocates, and calls for files, once for all bytes that it finds in a turn. The
        // number of turns depends less on the machine. A service that does too much for each MiB does so in each download.
        func isLittle(_ costs: Costs, _ reports: Double) -> Bool {
            costs.sockets <= 70 + reports && costs.allocations <= 70 + 65 * reports && costs.files <= 10 && costs.flushes <= 1
        }
        let (costs, reports) = try await repeated { () async throws -> (costs: Costs, reports: Double) in
            let before = await desk.running.client.signals.seen.count
            let costs = try await desk.costs(of: 1) { try await desk.running.fetch(desk.server.url("/large")) } / CostDesk.mebibytes
            // Ten times a second, a download that takes long reports what it has. Each report costs as much as one of a small file.
            let reports = Double(await desk.running.client.signals.seen.count - before) / Double(CostDesk.mebibytes)
            print("costs: a MiB \(costs), signals \(reports)")
            return (costs, reports)
        } until: {
            isLittle($0.costs, $0.reports)
        }
        #expect(isLittle(costs, reports), "\(costs), \(reports) signals")
    }

    /// The server sends some 13 MB a second on each connection.
    @Test(arguments: [("/patient", 0, 2), ("/paced", 6, 6)] as [(String, UInt32, Int)])
    func `connections receive at most one percent more than the file, whether six are asked for or their number is automatic`(
        path: String, connections: UInt32, requests: Int
    ) async throws {
        let size = Double(CostDesk.mebibytes << 20)
        // If a thread of the server gets no processor for three seconds, another connection fetches the same bytes, too. A division that
        // wastes bytes does so in each download.
        let (costs, all) = try await repeated { () async throws -> (costs: Costs, requests: [ScriptedServer.Request]) in
            let desk = try await CostDesk()
            let costs = try await desk.costs(of: 1) {
                try await desk.running.fetch(desk.server.url(path), ["connections": .uint32(connections)])
            }
            print("costs: \(costs.bytes - size) extra bytes with \(desk.server.requests.count) connections")
            return (costs, desk.server.requests)
        } until: {
            $0.costs.bytes <= size * 1.01
        }
        let ranges = all.count { $0.range != nil }
        #expect(costs.bytes >= size && costs.bytes <= size * 1.01, "\(costs)")
        // Without a further range, nothing would be divided, and the bytes above would show nothing.
        #expect(all.count >= requests && ranges == all.count - 1, "\(ranges) ranges in \(all.count) requests")
    }

    /// The measured peak is 24 MiB (docs/performance.md): 3.3 MiB of anonymous memory, and code of libraries. The libraries differ between
    /// machines, so the bound is 36 MiB. With a buffer for the whole file, the peak would be above 64 MiB.
    @Test func `a download has a small peak of memory, however large its file is`() async throws {
        let desk = try await CostDesk()
        let (running, pid) = (desk.running, desk.running.daemon.pid)
        let path = try await running.download(desk.server.url("/large"))
        var anonymous: UInt64 = 0
        let hasCome = await eventually {
            anonymous = max(anonymous, memory(pid, "RssAnon") ?? 0)
            return fileExists("\(running.world.folder)/large")
        }
        #expect(hasCome)
        _ = try await running.client.wait(path)
        let peak = try #require(memory(pid, "VmHWM"))
        print("costs: the peak of a download \(peak >> 10) KiB, of it anonymous \(anonymous >> 10) KiB")
        #expect(peak <= 36 << 20 && anonymous > 0 && anonymous <= 5 << 20, "\(peak) bytes, of them anonymous \(anonymous)")
    }

    /// The measured memory is 0.65 KiB (docs/performance.md); `Benchmarks/reach` measures it for 100,000 downloads. The service gives the
    /// memory of the call and of the signals back to the kernel when it rests. On a busy machine, the bus may need half a minute
    /// for 10,000 signals.
    @Test func `a download that has not started takes at most a kibibyte`() async throws {
        let desk = try await CostDesk()
        func anonymous() throws -> UInt64 { try #require(memory(desk.running.daemon.pid, "RssAnon")) }
        try await desk.queue(1000)
        let (count, before) = (10_000, try anonymous())
        try await desk.queue(count)
        var after = before
        let isSmall = try await eventually(within: .seconds(120)) {
            after = try anonymous()
            return after <= before + UInt64(count * 1024)
        }
        print("costs: a download that has not started \((after - min(after, before)) / UInt64(count)) bytes")
        #expect(isSmall, "\(before) bytes, then \(after)")
    }

    /// The receive buffers of the first downloads are larger than those of later ones, so ten are active before the first measurement.
    /// The bound is far above the counted 33 KiB, because a busy machine lets the slow server's bytes pile up. They then fill the
    /// buffers, as those of a faster server do: 99 KiB (docs/performance.md).
    @Test func `a further active download takes little memory`() async throws {
        let desk = try await CostDesk()
        try await desk.running.client.set(Manager.maxActive, 60)
        try await desk.running.client.set(Manager.maxPerHost, 0)
        func anonymous() throws -> UInt64 { try #require(memory(desk.running.daemon.pid, "RssAnon")) }
        try await desk.beginSlowly(1...10)
        let before = try anonymous()
        try await desk.beginSlowly(11...60)
        let after = try anonymous()
        let each = (after - min(after, before)) / 50
        print("costs: a further active download \(each >> 10) KiB")
        #expect(each <= 128 << 10, "\(before) bytes, then \(after)")
    }

    /// A busy machine may delay the work of an end beyond a short measurement in which nothing woke the service. What the service does in
    /// the minute after an end shows after each end.
    @Test func `nothing wakes it after an end, and hardly anything in the minute after it`() async throws {
        let desk = try await CostDesk()
        var later: [Double] = []
        for number in 1...3 where later.allSatisfy({ $0 > 2 }) {
            later.append(try await wakeUps(desk, afterEndOf: "/small/\(number)"))
        }
        #expect(later.contains { $0 <= 2 }, "wake-ups in fifty seconds each: \(later)")
    }

    /// A wake-up at regular times would show in each short measurement, and a rare one in few. The long one covers the rest of the minute.
    ///
    /// - Returns: the wake-ups in the long measurement.
    private func wakeUps(_ desk: CostDesk, afterEndOf path: String) async throws -> Double {
        try await desk.running.fetch(desk.server.url(path))
        var seen: [Double] = []
        repeat {
            let before = desk.read()
            await pause(milliseconds: 2000)
            seen.append((desk.read() - before).waits)
        } while seen.last != 0 && seen.count < 30
        print("costs: wake-ups in two seconds each \(seen)")
        #expect(seen.last == 0, "wake-ups in two seconds each: \(seen)")
        let before = desk.read()
        await pause(milliseconds: 50_000)
        let later = (desk.read() - before).waits
        print("costs: \(later) wake-ups in the fifty seconds after that")
        return later
    }

    /// The code of the program and of some forty libraries is most of its memory. A download needs little of it again.
    @Test func `its code leaves memory when it rests, and comes back`() async throws {
        let desk = try await CostDesk()
        func code() throws -> UInt64 { try #require(memory(desk.running.daemon.pid, "RssFile")) }
        // The service does not rest while this download is active, however late the test looks.
        try await desk.beginSlowly(1...1)
        try await desk.running.fetch(desk.server.url("/small/1"))
        let used = try code()
        try await desk.running.client.call(Manager.cancelAll, ())
        #expect(await eventually { (try? code()).map { $0 < used / 2 } ?? false }, "\(used) bytes")
        print("costs: code in memory \(used >> 10) KiB, at rest \(try code() >> 10) KiB")
        try await desk.running.fetch(desk.server.url("/small/2"))
    }
}

/// Counts by `Tests/FaultShim/costshim.c`, in its order.
private struct Costs: CustomStringConvertible {
    var values: [Double]

    var allocations: Double { values[0] }
    var files: Double { values[1] }
    var sockets: Double { values[3] }
    /// System calls, as far as they are counted.
    var calls: Double { values[1...5].reduce(0, +) }
    var flushes: Double { values[2] }
    var waits: Double { values[5] }
    /// Received by TCP connections.
    var bytes: Double { values[6] }

    static let names = ["allocations", "calls for files", "flushes", "calls for sockets", "reads and writes", "waits", "bytes"]
    var description: String {
        zip(Self.names, values).map { "\($0) \(($1 * 10).rounded() / 10)" }.joined(separator: ", ")
    }

    static func - (one: Costs, other: Costs) -> Costs { Costs(values: zip(one.values, other.values).map { $0 - $1 }) }
    static func / (costs: Costs, count: Int) -> Costs { Costs(values: costs.values.map { $0 / Double(count) }) }
}

/// A service that counts its costs, and a server with files for it.
private final class CostDesk: Sendable {
    static let mebibytes = 64

    let running: Running
    let server: ScriptedServer
    private let folder: TemporaryFolder

    init() async throws {
        let folder = TemporaryFolder("todoku-costs")
        self.folder = folder
        let (small, large, further) = (patternBytes(16 << 10), patternBytes(Self.mebibytes << 20), Gate())
        server = ScriptedServer { request, reply in
            switch request.path {
            case "/large": reply.serve(large, for: request, entityTag: "\"1\"")
            // "/patient": before a further range is requested, the first response is so slow that a measurement has time for the request.
            case "/paced", "/patient":
                let first = request.range?.first ?? 0
                if first > 0 { further.open() }
                let end = min(large.count, (request.range?.last ?? large.count) + 1)
                reply.head(
                    request.range == nil ? 200 : 206,
                    ["ETag": "\"1\"", "Accept-Ranges": "bytes", "Content-Range": "bytes \(first)-\(end - 1)/\(large.count)"],
                    length: end - first)
                for place in stride(from: first, to: end, by: 40_000) {
                    guard reply.send(large[place..<min(end, place + 40_000)]) else { return }
                    poll(nil, 0, request.path == "/patient" && !further.isOpen ? 10 : 3)
                }
            case "/slow":
                reply.head(200, ["ETag": "\"1\""], length: 4 << 20)
                for place in stride(from: 0, to: 4 << 20, by: 4096) {
                    guard reply.send(large[place..<place + 4096]) else { return }
                    poll(nil, 0, 100)
                }
            default: reply.serve(small, for: request, entityTag: "\"1\"")
            }
        }
        let object = folder("costshim.so")
        let compiled = await Child.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", object, "\(repository)/Tests/FaultShim/costshim.c"])
        try #require(compiled.status == 0, "\(compiled.errors)")
        writeFile(folder("page"), [UInt8](repeating: 0, count: 4096))
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start(extra: ["LD_PRELOAD": object, "COSTSHIM_SHARED": folder("page")])
        running = Running(world: world, daemon: daemon, client: client)
        try #require(read().allocations > 0, "nothing is counted")
    }

    func read() -> Costs {
        let page = readFile(folder("page")) ?? []
        return Costs(values: page.withUnsafeBytes { $0.bindMemory(to: UInt64.self).prefix(Costs.names.count).map { Double($0) } })
    }

    /// The costs of one call of `body`, on average.
    func costs(of count: Int, _ body: () async throws -> Void) async throws -> Costs {
        let before = read()
        for _ in 0..<count { try await body() }
        return (read() - before) / count
    }

    /// Begins downloads from a slow server, and waits until each has received bytes.
    func beginSlowly(_ numbers: ClosedRange<Int>) async throws {
        var paths: [String] = []
        for number in numbers { paths.append(try await running.download(server.url("/slow?\(number)")).value) }
        let wanted = Set(paths)
        #expect(await running.client.signals.until { seen in wanted.isSubset(of: seen.filter { $0.progress != nil }.map(\.path)) })
    }

    /// Queues so many downloads, which do not start.
    func queue(_ count: Int, app: String? = nil) async throws {
        let items = (0..<count).map { Structure(server.url("/queued/\($0)"), [String: Variant]()) }
        var options: [String: Variant] = ["directory": .string(running.world.folder), "notify": .string("never"), "start": .bool(false)]
        if let app { options["app"] = .string(app) }
        let (_, paths) = try await running.client.call(Manager.downloadBatch, (items, options), timeout: .seconds(180))
        #expect(paths.count == count)
    }

    /// Downloads so many small files in a batch, to the end.
    func batch(of count: Int) async throws {
        let items = (0..<count).map { Structure(server.url("/small/\($0)"), [String: Variant]()) }
        let (batch, _) = try await running.client.call(Manager.downloadBatch, (items, running.options()))
        let (finished, _, _) = try await running.client.call(Batch.wait, at: batch, [:], timeout: .seconds(180))
        #expect(finished == UInt32(count))
    }
}
