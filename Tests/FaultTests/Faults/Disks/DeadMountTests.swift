internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    /// Mounts file systems in a namespace of the daemon's own. Without root, user namespaces or /dev/fuse, only the hangs of the shim are
    /// tested (`A disk that hangs`).
    @Suite(.enabled("this machine lets no test mount over /dev/fuse") { try await MemoryDisks.arePossible() })
    struct `A dead mount` {
        @Test func `affects its own downloads only, whatever was called on it last`() async throws {
            let report = await Report(
                "A dead mount",
                notes: """
                    A file system over FUSE stops answering with the first call of a kind. Another disk's download, a new caller and each further \
                    call for the folder are answered; what was to be written waits with destination after 30 s. Then it answers again, or the daemon \
                    is told to leave before. The same over eight connections, and from a server and two mirrors.
                    """)
            var cases =
                MemoryDisks.Operation.allCases.filter { ![.none, .heldWrite, .heldRead, .quota].contains($0) }
                .map { MountCase(operation: $0) }
                + [MountCase(operation: .write, isLeft: true), MountCase(operation: .rename, isLeft: true)]
            for way in [Way.several, .mirrors] { cases += [.write, .fsync].map { MountCase(operation: $0, way: way) } }
            cases.append(MountCase(operation: .rename, isLeft: true, way: .mirrors))
            try await runCases(cases, report, lanes: 5) { try await die($0, $1) }
            await report.finish(expecting: cases.map(\.row))
        }

        @Test func `and eighteen at once leave the healthy disk to the others`() async throws {
            let report = await Report(
                "Eighteen dead mounts",
                notes: "More than have threads of their own stop answering while each is written to; then they answer again.")
            try await runCases([ManyCase()], report) { _, lane in try await dieTogether(lane) }
            await report.finish()
        }

        @Test func `that forty downloads wait for holds no place of the others`() async throws {
            let report = await Report(
                "Forty downloads on a dead mount",
                notes: """
                    With the limits as they are, the mount dies under the first four of forty downloads into one folder. Another disk's download, \
                    queued last, is finished before 30 s; then the mount answers again.
                    """)
            try await runCases([QueueCase()], report) { _, lane in try await dieBeforeMany(lane) }
            await report.finish()
        }

        @Test func `is written by one transfer at a time, though the download is started again`() async throws {
            let report = await Report(
                "A mount that hangs in writes only",
                notes: "The folder answers, so the download is started again 30 s later; the write comes back while it is held back.")
            try await runCases([WriteCase()], report) { _, lane in try await holdWrite(lane) }
            await report.finish()
        }

        @Test func `affects only the download into a caller's descriptor, and closing that delays nobody`() async throws {
            let report = await Report(
                "A descriptor of a dead mount", notes: "The mount dies under DownloadToFd; close(2) waits there like any other call.")
            try await runCases([DescriptorCase()], report) { _, lane in try await sendDescriptor(lane) }
            await report.finish()
        }

        @Test func `holds a Metalink document: its caller is told, and others are answered`() async throws {
            let report = await Report(
                "A document on a dead mount",
                notes: """
                    No read of the documents of five calls is answered, then all are. (A mount that answers no close(2) would stop the bus \
                    itself, which closes its copy of the descriptor.)
                    """)
            try await runCases([DocumentCase()], report) { _, lane in try await readDocument(lane) }
            await report.finish(expecting: [DocumentCase().description])
        }

        @Test func `that answers an open after its caller was refused leaks no descriptor`() async throws {
            let report = await Report(
                "A late open",
                notes: "The mount of a finished file hangs during OpenFile for longer than the service waits. Then it answers the open.")
            try await runCases([OpenCase()], report) { _, lane in try await openLate(lane) }
            await report.finish(expecting: [OpenCase().description])
        }
    }
}

private struct MountCase: Sendable, CustomStringConvertible {
    let operation: MemoryDisks.Operation
    /// Whether the daemon is told to leave meanwhile.
    var isLeft = false
    var way = Way.one
    var description: String { "at \(operation.rawValue)\(isLeft ? ", and the daemon leaves" : "")\(way.rawValue)" }
    var row: String { (isLeft ? "the daemon leaves" : "it answers again") + way.rawValue }
}

private struct ManyCase: Sendable, CustomStringConvertible {
    var description: String { "eighteen" }
}

private struct QueueCase: Sendable, CustomStringConvertible {
    var description: String { "forty" }
}

@BusActor private func dieBeforeMany(_ lane: Lane) async throws -> Verdict {
    let (place, disks) = (Place(), try await MemoryDisks(1, stoppedAt: .write))
    defer { disks.goOn() }
    var verdict = Verdict(row: "forty", name: "forty")
    let (dead, body, gate) = ("\(disks.paths[0])/below", Bodies.large, Gate())
    let server = ScriptedServer { request, reply in
        if request.path.hasPrefix("/dead") { gate.wait() }
        reply.serve(body, for: request, entityTag: "\"v1\"")
    }
    defer { gate.open() }
    if let ending = await lane.start(place, on: disks) {
        verdict.wrong.append("it did not start: \(ending.errors)")
        return verdict
    }
    // Below the mount, finding the disk of the folder hangs, too.
    verdict.expect(mkdir("/proc/\(lane.pid ?? 0)/root\(dead)", 0o777) == 0, "no folder could be made: \(String(cString: strerror(errno)))")
    var paths: [ObjectPath] = []
    for number in 0..<40 {
        paths.append(try await lane.download(server.url("/dead-\(number)"), ["directory": .string(dead), "notify": .string("never")]))
    }
    guard case .success(let healthy) = await ask(server.url("/healthy.bin"), in: place.files, lane) else {
        verdict.wrong.append("the healthy folder was refused")
        return verdict
    }
    verdict.expect(await server.waitForRequests(4), "not as many were begun as may be active")
    // The mount answers until the gate is open.
    let begun = ContinuousClock.now
    gate.open()
    verdict.expect(await eventually { disks.hang }, "nothing was written")
    await finish(healthy, "healthy.bin", body, place, lane, &verdict)
    verdict.note = "the healthy disk's file came after \((ContinuousClock.now - begun).components.seconds) s"
    verdict.expect("the healthy disk's file", took: ContinuousClock.now - begun, lessThan: .seconds(30))
    disks.goOn()
    try await finishAll(paths, body, lane, &verdict)
    await lane.end(SIGTERM)
    return verdict
}

private struct WriteCase: Sendable, CustomStringConvertible {
    var description: String { "a write" }
}

@BusActor private func holdWrite(_ lane: Lane) async throws -> Verdict {
    let (place, disks) = (Place(), try await MemoryDisks(1, stoppedAt: .heldWrite))
    defer { disks.release() }
    var verdict = Verdict(row: "a write", name: "a write")
    let body = Bodies.large
    let server = ScriptedServer { request, reply in reply.serve(body, for: request, entityTag: "\"v1\"") }
    if let ending = await lane.start(place, on: disks) {
        verdict.wrong.append("it did not start: \(ending.errors)")
        return verdict
    }
    let path = try await lane.download(server.url("/a"), ["directory": .string(disks.paths[0]), "notify": .string("never")])
    var last: Described?
    for (state, reason) in [("active", ""), ("waiting", "destination"), ("active", "")] {
        let isSo = try await eventually(within: .seconds(90)) {
            last = try await lane.describe()[path.value]
            return last?.state == state && last?.waitReason == reason
        }
        verdict.expect(isSo, "it is \(last?.state ?? "gone") \(last?.waitReason ?? "") instead of \(state) \(reason)")
    }
    verdict.waits += 1
    let asked = server.requests.count
    verdict.expect(asked == 1, "while the first transfer hung the server was asked \(asked) times")
    disks.release()
    let end = try await lane.settle([path])[path.value]
    verdict.expect(end?.state == "finished", "it is \(end.map { "\($0.state) \($0.waitReason) \($0.error.message)" } ?? "gone")")
    verdict.expect(holds(end?.path, body, lane), "it holds wrong bytes")
    verdict.right += 1
    await lane.end(SIGTERM)
    return verdict
}

private struct DescriptorCase: Sendable, CustomStringConvertible {
    var description: String { "a descriptor" }
}

@BusActor private func sendDescriptor(_ lane: Lane) async throws -> Verdict {
    let (place, disks) = (Place(), try await MemoryDisks(1, stoppedAt: .none))
    defer { disks.goOn() }
    var verdict = Verdict(row: "a descriptor", name: "a descriptor")
    let body = Bodies.large
    let gate = Gate()
    let server = ScriptedServer { request, reply in
        if request.path == "/its-file" { gate.wait() }
        reply.serve(body, for: request, entityTag: "\"v1\"")
    }
    defer { gate.open() }
    if let ending = await lane.start(place, on: disks) {
        verdict.wrong.append("it did not start: \(ending.errors)")
        return verdict
    }
    let process = "/proc/\(lane.pid ?? 0)"
    // Another program calls, because close(2) on this mount would block us too. gdbus may not learn the types of the arguments in time.
    let call = """
        exec gdbus call --address "$2" --timeout 60 --dest \(BusName.service) --object-path \(BusName.managerPath) \
            --method \(Manager.interface).DownloadToFd "$0" 'handle 3' '@a{sv} {}' 3<>"$1"
        """
    let caller = await Child.run(
        ["sh", "-c", call, server.url("/its-file"), "\(process)/root\(disks.paths[0])/its-file", lane.address])
    guard caller.status == 0, let path = try await lane.describe().keys.first else {
        verdict.wrong.append("the call failed: \(caller.errors)")
        return verdict
    }
    verdict.expect(await server.waitForRequests(1), "nothing was asked for")
    verdict.expect(await disks.stop(), "the mount still answers")
    gate.open()
    await liveOn(disks.paths[0], server, body, place, lane, &verdict)
    var last: Described?
    let isTold = try await eventually(within: .seconds(90)) {
        last = try await lane.describe()[path]
        return last?.hasEnded ?? true
    }
    verdict.expect(isTold && last?.state == "failed", "it is \(last?.state ?? "gone")")
    verdict.tell(last?.error.message ?? "", "its owner")
    verdict.expect(await lane.answersNewcomer(), "a new caller was not answered after its end")
    verdict.expect(openFiles(process, "its-file") > 0, "the descriptor was closed before the transfer that writes it has come back")
    disks.goOn()
    verdict.expect(await eventually { openFiles(process, "its-file") == 0 }, "the service still holds the descriptor")
    verdict.right += 1
    await lane.end(SIGTERM)
    return verdict
}

private struct DocumentCase: Sendable, CustomStringConvertible {
    var description: String { "a document" }
}

@BusActor private func readDocument(_ lane: Lane) async throws -> Verdict {
    let (place, disks) = (Place(), try await MemoryDisks(1, stoppedAt: .heldRead))
    defer { disks.release() }
    var verdict = Verdict(row: "a document", name: "a document")
    let body = Bodies.large
    let server = ScriptedServer { request, reply in reply.serve(body, for: request, entityTag: "\"v1\"") }
    if let ending = await lane.start(place, on: disks) {
        verdict.wrong.append("it did not start: \(ending.errors)")
        return verdict
    }
    let process = "/proc/\(lane.pid ?? 0)"
    let text = """
        <metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="listed.bin"><url>\(server.url("/listed.bin"))</url></file></metalink>
        """
    // Each caller has a document of its own, because open(2) waits for a read of the same file that is under way.
    let documents = (0..<6).map { "\(process)/root\(disks.paths[0])/\($0)-list.meta4" }
    for document in documents { writeFile(document, text.utf8) }
    let call = """
        exec gdbus call --address "$1" --timeout 60 --dest \(BusName.service) --object-path \(BusName.managerPath) \
            --method \(Manager.interface).DownloadMetalink 'handle 3' "{'directory': <'\(place.files)'>, 'notify': <'never'>}" 3<"$0"
        """
    let callers = documents.dropLast().map { Child(["sh", "-c", call, $0, lane.address]) }
    let path = try await lane.download(server.url("/healthy.bin"), ["directory": .string(place.files), "notify": .string("never")])
    await finish(path, "healthy.bin", body, place, lane, &verdict)
    verdict.expect(await lane.answersNewcomer(), "a new caller was not answered")
    for caller in callers {
        let exit = await caller.wait()
        verdict.tell(exit.errors.split(separator: "\n").joined(separator: " "), "the caller")
        verdict.expect(exit.status != 0 && exit.errors.contains("did not answer within 10 seconds"), "the caller was told “\(exit.errors)”")
    }
    verdict.expect(try await lane.describe().count == 1, "what was refused is there")
    disks.release()
    verdict.expect(await eventually { openFiles(process, "-list.meta4") == 0 }, "the service still holds the document")
    // What hung does not count towards the documents that may be read at a time.
    let later = await Child.run(["sh", "-c", call, documents[5], lane.address])
    verdict.expect(later.status == 0, "afterwards a document was refused: \(later.errors)")
    let all = try await lane.settle(try await lane.describe().keys.map { ObjectPath($0) })
    verdict.expect(all.count == 2 && all.values.allSatisfy { fileHolds($0.path, body) }, "the files are \(all.values.map(\.state))")
    verdict.right += 1
    await lane.end(SIGTERM)
    return verdict
}

private struct OpenCase: Sendable, CustomStringConvertible {
    var description: String { "an open" }
}

@BusActor private func openLate(_ lane: Lane) async throws -> Verdict {
    let (place, disks) = (Place(), try await MemoryDisks(1, stoppedAt: .none))
    defer { disks.goOn() }
    var verdict = Verdict(row: "an open", name: "an open")
    let body = Bodies.large
    let server = ScriptedServer { request, reply in reply.serve(body, for: request, entityTag: "\"v1\"") }
    if let ending = await lane.start(place, on: disks) {
        verdict.wrong.append("it did not start: \(ending.errors)")
        return verdict
    }
    let process = "/proc/\(lane.pid ?? 0)"
    let path = try await lane.download(server.url("/late.bin"), ["directory": .string(disks.paths[0]), "notify": .string("never")])
    let end = try await lane.settle([path])[path.value]
    verdict.expect(holds(end?.path, body, lane), "it is \(end?.state ?? "gone"), \(end?.path ?? "")")
    verdict.expect(await eventually { openFiles(process, "late.bin") == 0 }, "the service holds the finished file")
    verdict.expect(await disks.stop(), "the mount still answers")
    let asked = ContinuousClock.now
    do throws(DBusError) {
        try await lane.openFile(path)
        verdict.wrong.append("a file on the dead mount was opened")
    } catch {
        verdict.tell(error.message, "the caller")
        verdict.expect(error.message.contains("did not answer"), "the caller was told “\(error.message)”")
    }
    // A call for a file is refused after 10 s, and callers wait for 25 s.
    verdict.expect("the call", took: ContinuousClock.now - asked, lessThan: .seconds(25))
    // The mount answers the open, and stops again when the service closes the file: otherwise nothing shows that the open has returned.
    disks.stopAtClose()
    disks.goOn()
    verdict.expect(await eventually { disks.hang }, "the service did not close the file that was opened late")
    verdict.expect(openFiles(process, "late.bin") == 0, "the service still holds the descriptor")
    verdict.expect(await lane.answersNewcomer(), "a new caller was not answered during the close")
    disks.goOn()
    verdict.right += 1
    await lane.end(SIGTERM)
    return verdict
}

/// How many open descriptors a process has of files with this name.
private func openFiles(_ process: String, _ name: String) -> Int {
    listFolder("\(process)/fd").count { number in
        var bytes = [CChar](repeating: 0, count: 4096)
        let count = readlink("\(process)/fd/\(number)", &bytes, bytes.count)
        return count > 0 && String(decoding: bytes.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self).hasSuffix(name)
    }
}

/// Waits until all of `paths` have ended: each is finished, and holds `body`.
@BusActor private func finishAll(_ paths: [ObjectPath], _ body: [UInt8], _ lane: Lane, _ verdict: inout Verdict) async throws {
    let all = try await lane.settle(paths)
    for path in paths {
        let end = all[path.value]
        verdict.expect(
            end?.state == "finished", "\(path.value) is \(end.map { "\($0.state) \($0.waitReason) \($0.error.message)" } ?? "gone")")
        verdict.expect(holds(end?.path, body, lane), "\(end?.path ?? "it") holds wrong bytes")
        verdict.right += 1
    }
}

@BusActor private func die(_ test: MountCase, _ lane: Lane) async throws -> Verdict {
    let (place, disks) = (Place(), try await MemoryDisks(1, stoppedAt: test.operation))
    defer { disks.goOn() }
    var verdict = Verdict(row: test.row, name: "\(test)")
    let (dead, body) = (disks.paths[0], Bodies.large)
    let server = ScriptedServer { request, reply in reply.serve(body, for: request, entityTag: "\"v1\"") }
    if let ending = await lane.start(place, on: disks) {
        verdict.wrong.append("it did not start: \(ending.errors)")
        return verdict
    }
    let servers = CaseServers(body, test.way, name: "dead.bin")
    let several = try await servers.options(place)
    let asked = ContinuousClock.now
    let first = await ask(servers.url, in: dead, lane, several)
    verdict.expect("the first call", took: ContinuousClock.now - asked, lessThan: .seconds(15))
    var mine: ObjectPath?
    switch first {
    case .success(let path): mine = path
    case .failure(let error): verdict.tell(error.message, "the caller")
    }
    guard await eventually({ disks.hang }) else {
        verdict.wasMet = false
        return verdict
    }
    await liveOn(dead, server, body, place, lane, &verdict)
    if test.isLeft {
        let left = ContinuousClock.now
        _ = await lane.leaves(within: .seconds(120))
        verdict.expect("the exit", took: ContinuousClock.now - left, lessThan: .seconds(40))
        disks.goOn()
        let ending = await lane.end(SIGTERM)
        verdict.expect(ending.status == 0, "it left with \(ending.status): \(ending.errors.suffix(300))")
        // Where the first write hangs, the daemon has left before any further response.
        if test.operation != .write { servers.expectSeveral(&verdict) }
        return verdict
    }
    if let mine {
        var last: Described?
        let isTold = try await eventually(within: .seconds(90)) {
            last = try await lane.describe()[mine.value]
            return last?.error.message.contains("does not answer") == true && ["verifying", "waiting"].contains(last?.state)
        }
        verdict.expect(isTold, "it is \(last?.state ?? "gone") \(last?.waitReason ?? "") \(last?.error.message ?? "")")
        verdict.waits += 1
        verdict.tell(last?.error.message ?? "", "its owner")
        disks.goOn()
        let all = try await lane.settle([mine])
        let end = all[mine.value]
        verdict.expect(end?.state == "finished", "it is \(end.map { "\($0.state) \($0.waitReason) \($0.error.message)" } ?? "gone")")
        verdict.expect(holds(end?.path, body, lane), "\(end?.path ?? "it") holds wrong bytes")
        servers.expectSeveral(&verdict)
        verdict.right += 1
    } else {
        disks.goOn()
    }
    // The folder can be used again like any other.
    switch await ask(server.url("/later.bin"), in: dead, lane) {
    case .success(let path):
        let end = try await lane.settle([path])[path.value]
        verdict.expect(holds(end?.path, body, lane), "afterwards it is \(end?.state ?? "gone"), \(end?.path ?? "")")
        verdict.right += 1
    case .failure(let error): verdict.wrong.append("afterwards the folder was refused: \(error.message)")
    }
    await lane.end(SIGTERM)
    return verdict
}

@BusActor private func dieTogether(_ lane: Lane) async throws -> Verdict {
    let (place, disks) = (Place(), try await MemoryDisks(18, stoppedAt: .write))
    defer { disks.goOn() }
    var verdict = Verdict(row: "eighteen", name: "eighteen")
    let (body, gate) = (Bodies.large, Gate())
    let server = ScriptedServer { request, reply in
        if request.path.hasPrefix("/dead") { gate.wait() }
        reply.serve(body, for: request, entityTag: "\"v1\"")
    }
    defer { gate.open() }
    if let ending = await lane.start(place, on: disks) {
        verdict.wrong.append("it did not start: \(ending.errors)")
        return verdict
    }
    try await lane.set("MaxActive", .uint32(0))
    try await lane.set("MaxPerHost", .uint32(0))
    var paths: [ObjectPath] = []
    for (number, folder) in disks.paths.enumerated() {
        paths.append(try await lane.download(server.url("/dead-\(number)"), ["directory": .string(folder), "notify": .string("never")]))
    }
    verdict.expect(await server.waitForRequests(18), "not all were begun")
    gate.open()
    verdict.expect(await eventually { disks.hang }, "nothing was written")
    await liveOn(disks.paths[17], server, body, place, lane, &verdict)
    for folder in disks.paths.prefix(3) { await liveOn(folder, server, body, Place(), lane, &verdict) }
    var all: [String: Described] = [:]
    let isTold = try await eventually(within: .seconds(90)) {
        all = try await lane.describe()
        return paths.allSatisfy { all[$0.value]?.waitReason == "destination" }
    }
    verdict.expect(isTold, "they are \(paths.map { all[$0.value].map { "\($0.state) \($0.waitReason)" } ?? "gone" })")
    if isTold { verdict.waits += paths.count }
    // 18 dead disks with 8 threads each, the threads of the healthy disk, 18 engines, and the loops. No flush begins on a dead disk.
    let threads = listFolder("/proc/\(lane.pid ?? 0)/task").count
    verdict.expect(threads < 200, "\(threads) threads")
    verdict.note = "\(threads) threads"
    disks.goOn()
    try await finishAll(paths, body, lane, &verdict)
    await lane.end(SIGTERM)
    return verdict
}
