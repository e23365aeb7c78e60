internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// A file of the test, with or without a name; closed with its last reference.
final class OwnFile: Sendable {
    let descriptor: Int32

    init(_ path: String, _ flags: Int32 = O_RDWR | O_CREAT) {
        descriptor = open(path, flags | O_CLOEXEC, 0o600)
        precondition(descriptor >= 0, "\(path): \(String(cString: strerror(errno)))")
    }

    init(adopting descriptor: Int32) {
        precondition(descriptor >= 0, "\(String(cString: strerror(errno)))")
        self.descriptor = descriptor
    }

    deinit { close(descriptor) }

    var wire: FileDescriptor { FileDescriptor(descriptor) }

    var bytes: [UInt8] {
        var status = stat()
        fstat(descriptor, &status)
        var bytes = [UInt8](repeating: 0, count: Int(status.st_size))
        return pread(descriptor, &bytes, bytes.count, 0) == bytes.count ? bytes : []
    }
}

/// memfd_create(2), which glibc declares only with _GNU_SOURCE.
func makeMemoryFile() -> Int32 {
    typealias Create = @convention(c) (UnsafePointer<CChar>, UInt32) -> Int32
    guard let symbol = dlsym(nil, "memfd_create") else { preconditionFailure("there is no memfd_create") }
    return unsafeBitCast(symbol, to: Create.self)("todoku-test", 1)  // MFD_CLOEXEC
}

private let quiet = patient(["notify": .string("never")])

extension Running {
    fileprivate func write(
        _ url: String, into file: FileDescriptor, _ more: [String: Variant] = [:], by other: Client? = nil
    ) async throws -> ObjectPath {
        try await (other ?? client).call(Manager.downloadToFd, (url, file, quiet.merging(more) { $1 }))
    }

    /// How many descriptors of callers' files the daemon holds.
    fileprivate var held: Int { openFiles(of: daemon.pid, below: world.folder) }
}

@Suite(.timeLimit(.minutes(10))) struct `A download into a descriptor` {
    @Test func `writes the file, from its first byte on, and releases it`() async throws {
        let running = try await Running.start()
        let body = patternBytes(2_500_000)
        let server = ScriptedServer { request, reply in reply.serve(body, for: request, entityTag: "\"1\"", type: "image/png") }
        var file: OwnFile? = OwnFile(running.file("mine"))
        _ = [UInt8](repeating: 9, count: 3_000_000).withUnsafeBytes { Glibc.write(file!.descriptor, $0.baseAddress, $0.count) }
        #expect(lseek(file!.descriptor, 7, SEEK_SET) == 7)
        let path = try await running.write(
            server.url("/a.bin"), into: file!.wire, ["checksum": .string("sha1:" + sha1(body)), "size": .uint64(2_500_000)])
        #expect(try await running.client.wait(path) == "")
        #expect(file!.bytes == body)
        #expect(lseek(file!.descriptor, 0, SEEK_CUR) == 7)
        let all = try await running.client.all(path)
        #expect(all["State"]?.string == "finished" && all["Path"]?.string == "" && all["FileName"]?.string == "a.bin")
        #expect(all["Received"]?.uint64 == 2_500_000 && all["MediaType"]?.string == "image/png")
        let signals = await running.client.signals.of(path)
        #expect(signals.compactMap { Download.finished.read($0.message) } == [""])
        #expect(await thrown { try await running.client.call(Download.openFile, at: path, ()) }?.name == todokuError("InvalidState"))
        #expect(running.world.files == ["mine"])
        #expect(await eventually { running.held == 0 })
        // The file has no name, and the caller has closed its own descriptor meanwhile.
        file = OwnFile(running.file("nameless"))
        unlink(running.file("nameless"))
        let other = dup(file!.descriptor)
        let second = try await running.write(
            server.url("/b"), into: file!.wire, ["token": .string("t"), "app": .string("org.example.App")])
        file = nil
        #expect(try await running.client.wait(second) == "")
        #expect(lseek(other, 0, SEEK_END) == 2_500_000)
        close(other)
        try await running.client.remove(path, deletingFile: true)
        #expect(running.world.files == ["mine"])
        #expect(await eventually { running.held == 0 })
    }

    private func sha1(_ bytes: [UInt8]) -> String {
        let folder = TemporaryFolder("todoku-sum")
        writeFile(folder("x"), bytes)
        let pipe = popen("sha1sum < '\(folder("x"))'", "r")
        defer { pclose(pipe) }
        var line = [CChar](repeating: 0, count: 128)
        fgets(&line, 128, pipe)
        return String(decoding: line.prefix(40).map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    @Test func `accepts only regular files that it can write from the start`() async throws {
        let running = try await Running.start()
        func refused(_ descriptor: Int32, _ why: String, _ options: [String: Variant] = [:]) async {
            let error = await thrown { try await running.write("http://127.0.0.1:1/a", into: FileDescriptor(descriptor), options) }
            #expect(error?.name == todokuError("InvalidOption") && error?.message.contains(why) == true, "\(why): \(error as Any)")
        }
        func refused(_ file: OwnFile, _ why: String) async { await refused(file.descriptor, why) }
        writeFile(running.file("a"), "old".utf8)
        let path = running.file("a")
        await refused(OwnFile(path, O_RDONLY), "reading only")
        await refused(OwnFile(path, O_WRONLY | O_APPEND), "O_APPEND")
        await refused(OwnFile(path, Int32(0x200000)), "O_PATH")
        await refused(OwnFile(running.world.folder, O_RDONLY), "folder")
        await refused(OwnFile("/dev/null", O_RDWR), "device")
        var pipes: [Int32] = [-1, -1]
        #expect(pipe(&pipes) == 0)
        await refused(pipes[1], "pipe")
        var sockets: [Int32] = [-1, -1]
        #expect(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &sockets) == 0)
        await refused(sockets[0], "socket")
        for descriptor in pipes + sockets { close(descriptor) }
        let writable = OwnFile(path, O_WRONLY)
        await refused(writable.descriptor, "reading", ["checksum": .string("md5:" + String(repeating: "0", count: 32))])
        for (key, value) in [
            ("directory", Variant.string("/tmp")), ("filename", .string("x")), ("if-exists", .string("rename")),
            ("only-if-changed", .bool(false)),
        ] { await refused(writable.descriptor, "Option \(key) ", [key: value]) }
        #expect(await thrown { try await running.write("ftp://h/", into: writable.wire) }?.name == todokuError("UnsupportedScheme"))
        #expect(readFile(path) == Array("old".utf8))
        #expect(try await running.client.list() == [])
        #expect(await eventually { running.held == 0 })
    }

    @Test func `resumes after a lost connection, and restarts if the file is another`() async throws {
        let running = try await Running.start()
        let body = patternBytes(3_000_000)
        let changed = patternBytes(2_000_000, seed: 2)
        let server = ScriptedServer { request, reply in
            switch (request.path, request.number) {
            case (_, 0), ("/other", 2):
                reply.head(200, ["ETag": "\"1\"", "Accept-Ranges": "bytes"], length: body.count)
                reply.send(body[..<1_700_000])
                reply.close()
            case ("/other", _): reply.serve(changed, for: request, entityTag: "\"2\"")
            default: reply.serve(body, for: request, entityTag: "\"1\"")
            }
        }
        let file = OwnFile(running.file("mine"))
        let path = try await running.write(server.url("/a"), into: file.wire)
        #expect(try await running.client.wait(path) == "")
        #expect(file.bytes == body)
        #expect(server.requests.count == 2)
        #expect(server.requests[1].range?.first == 1_700_000 && server.requests[1].field("If-Range") == "\"1\"")
        #expect(await running.client.signals.of(path).compactMap(\.resumedAt?.offset) == [1_700_000])

        let second = try await running.write(server.url("/other"), into: file.wire)
        #expect(try await running.client.wait(second) == "")
        #expect(file.bytes == changed)
        #expect(await running.client.signals.of(second).compactMap(\.resumedAt?.offset) == [0])
        #expect(await eventually { running.held == 0 })
    }

    @Test func `pauses and resumes, and leaves an empty file if it is cancelled or fails`() async throws {
        let running = try await Running.start()
        let body = patternBytes(2_000_000)
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/gone": reply.respond(404)
            case "/short":
                reply.head(200, length: 100)
                reply.send("x")
                reply.close()
            default:
                guard request.range == nil else { return reply.serve(body, for: request, entityTag: "\"1\"") }
                reply.head(200, ["ETag": "\"1\"", "Accept-Ranges": "bytes"], length: body.count)
                reply.send(body[..<1_000_000])
                gate.wait()
            }
        }
        let file = OwnFile(running.file("mine"))
        let path = try await running.write(server.url("/a"), into: file.wire)
        #expect(await running.client.signals.until { $0.contains { ($0.progress?.received ?? 0) >= 1_000_000 } })
        try await running.client.pause(path)
        #expect(await eventually { running.held == 1 })
        try await running.client.resume(path)
        #expect(try await running.client.wait(path) == "")
        #expect(file.bytes == body)
        #expect(server.requests.last?.range?.first == 1_000_000)

        // Nothing was received, so the caller's content stays.
        let failing = try await running.write(server.url("/gone"), into: file.wire)
        #expect(await thrown { try await running.client.wait(failing) }?.name == todokuError("HttpStatus"))
        #expect(file.bytes == body)
        let again = await thrown { try await running.client.retry(failing) }
        #expect(again?.name == todokuError("InvalidState") && again?.message.contains("DownloadToFd") == true)
        let renewed = await thrown { try await running.client.call(Download.replaceUrl, at: failing, (server.url("/a"), [:])) }
        #expect(renewed?.name == todokuError("InvalidState"))

        let cancelled = try await running.write(server.url("/b"), into: file.wire)
        #expect(await running.client.signals.has("Progress", at: cancelled))
        try await running.client.cancel(cancelled)
        #expect(await eventually { file.bytes.isEmpty && running.held == 0 })
        let expired = try await running.write(server.url("/short"), into: file.wire, ["deadline": .uint64(1500)])
        #expect(await thrown { try await running.client.wait(expired) }?.name == todokuError("Expired"))
        #expect(await eventually { file.bytes.isEmpty && running.held == 0 })
        #expect(running.world.files == ["mine"])
        let wrong = try await running.write(
            server.url("/a"), into: file.wire, ["checksum": .string("md5:" + String(repeating: "0", count: 32)), "start": .bool(false)])
        gate.open()
        try await running.client.remove(wrong)
        #expect(await eventually { running.held == 0 })
    }

    @Test func `that is wrong by its checksum is emptied`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "some bytes") }
        let file = OwnFile(running.file("mine"))
        let path = try await running.write(
            server.url("/a"), into: file.wire, ["checksum": .string("md5:" + String(repeating: "0", count: 32))])
        #expect(await thrown { try await running.client.wait(path) }?.name == todokuError("ChecksumMismatch"))
        #expect(await eventually { file.bytes.isEmpty && running.held == 0 })
    }

    @Test func `fails where somebody else writes the same file, and where the disk is full`() async throws {
        let running = try await Running.start()
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            if request.path == "/large" { return reply.head(200, length: 1 << 60) }
            reply.head(200, length: 100)
            reply.send(patternBytes(50))
            gate.wait()
            reply.send(patternBytes(50))
        }
        let file = OwnFile(running.file("mine"))
        let path = try await running.write(server.url("/a"), into: file.wire)
        #expect(await eventually { file.bytes.count == 50 })
        #expect(ftruncate(file.descriptor, 1000) == 0)
        gate.open()
        #expect(await thrown { try await running.client.wait(path) }?.name == todokuError("WriteFailed"))
        let large = try await running.write(server.url("/large"), into: file.wire)
        #expect(await thrown { try await running.client.wait(large) }?.name == todokuError("DiskFull"))
        #expect(await eventually { running.held == 0 })
    }

    @Test func `ends Interrupted with the service, told or killed, and keeps the service from exiting`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            reply.head(200, length: 10)
            gate.wait()
        }
        defer { gate.open() }
        let file = OwnFile("\(world.folder)/mine")
        func add(_ options: [String: Variant]) async throws -> ObjectPath {
            try await client.call(Manager.downloadToFd, (server.url("/a"), file.wire, quiet.merging(options) { $1 }))
        }
        // A paused download keeps the service.
        let (first, paused) = try await world.startLeaving { try await add(["start": .bool(false)]) }
        var daemon = first
        await pause(milliseconds: 33_000)
        #expect(daemon.isRunning)
        let active = try await add([:])
        #expect(await server.waitForRequests(1))
        await world.kill(daemon)
        #expect(await client.signals.count("Completed") == 0)
        daemon = await world.start()
        for path in [paused, active] {
            let error = await thrown { try await client.wait(path) }
            #expect(error?.name == todokuError("Interrupted"))
            #expect(await client.signals.has("Completed", at: path))
            #expect(await thrown { try await client.retry(path) }?.name == todokuError("InvalidState"))
        }
        #expect(await client.signals.seen.compactMap(\.ended?.error) == [todokuError("Interrupted"), todokuError("Interrupted")])
        // A service that is told to end announces the failure before it ends.
        let third = try await add([:])
        #expect(await server.waitForRequests(2))
        let waiting = Task { @BusActor in await thrown { try await client.wait(third) } }
        #expect(await client.signals.isIn("active", third))
        // Calls of one connection arrive in their order: behind this answer, the service has the Wait.
        await BusActor.run {}
        _ = try await client.get(Manager.remaining)
        #expect(await world.stop(daemon).status == 0)
        let told = await waiting.value
        #expect(told?.name == todokuError("Interrupted"))
        daemon = await world.start()
        #expect(try await client.get(Download.error, at: third).name == todokuError("Interrupted"))
        #expect(await client.signals.seen.count { $0.ended?.path == third } == 1)
        #expect(try await client.get(Manager.remaining) == 0)
    }

    @Test(arguments: [false, true])
    func `that is refused leaves no descriptor behind, whatever it is refused for`(isSandboxed: Bool) async throws {
        let running = try await Running.start()
        let sandbox = isSandboxed ? await Sandbox(running.world) : nil
        let client = try await sandbox?.client() ?? running.client
        let file = OwnFile(running.file("mine"))
        // The value is nested deeper than the service reads. The descriptor comes before this unreadable dictionary.
        var deep = Variant.string("x")
        for _ in 0..<40 { deep = .variant(deep) }
        var bad: [(name: String, url: String, options: [String: Variant])] = [
            ("InvalidArgs", "http://127.0.0.1:1/", ["metadata": deep]), ("UnsupportedScheme", "ftp://h/", [:]),
            ("InvalidOption", "http://127.0.0.1:1/", ["no-such-option": .bool(true)]),
            ("InvalidOption", "http://127.0.0.1:1/", ["filename": .string("x")]),
        ]
        if isSandboxed { bad.append(("NotAllowed", "http://127.0.0.1:1/", ["app": .string("org.example.Other")])) }
        let missing = MethodOf(Manager.interface, "NoSuchMethod", in: FileDescriptor.self)
        let mistyped = MethodOf(Manager.interface, "DownloadToFd", in: FileDescriptor.self)
        let unknown = MethodOf("org.example.Nothing", "Take", in: FileDescriptor.self)
        let before = listFolder("/proc/\(running.daemon.pid)/fd").count
        for _ in 0..<100 {
            for (name, url, options) in bad {
                let error = await thrown { try await running.write(url, into: file.wire, options, by: client) }
                #expect(error?.name == todokuError(name) || error?.name.hasSuffix("LimitsExceeded") == true, "\(name): \(error as Any)")
            }
            for method in [missing, mistyped, unknown] {
                for path in [BusName.managerPath, ObjectPath("/org/todoku/nothing")] {
                    #expect(await thrown { try await client.call(method, at: path, file.wire) } != nil)
                }
            }
        }
        #expect(await eventually { running.held == 0 })
        // A leak is 100 descriptors at least. A service that has just started may still open some of its own.
        #expect(listFolder("/proc/\(running.daemon.pid)/fd").count <= before + 50)
    }

    @Test func `of a caller that leaves, or that cannot be identified, leaves no descriptor behind`() async throws {
        let running = try await Running.start()
        let file = OwnFile(running.file("mine"))
        let nobody = await Sandbox(running.world, info: "[Application]\n")
        let before = listFolder("/proc/\(running.daemon.pid)/fd").count
        let client = try await nobody.client()
        for round in 0..<100 {
            let error = await thrown { try await running.write("http://127.0.0.1:1/", into: file.wire, by: client) }
            #expect(error?.name == todokuError("NotAllowed"), "\(error as Any)")
            // The gate asks the bus about the new connection of each round, and half of them have left by then.
            let connection = try await running.world.client().connection
            try await connection.tell(
                Manager.downloadToFd, on: BusName.service, at: BusName.managerPath,
                ("http://127.0.0.1:1/", file.wire, ["no-such-option": .bool(true)]))
            await connection.flush()
            if round.isMultiple(of: 2) { _ = try await running.client.list() }
        }
        #expect(await eventually { running.held == 0 })
        #expect(try await running.client.list() == [])
        #expect(listFolder("/proc/\(running.daemon.pid)/fd").count <= before + 50)
    }

    @Test func `and one that OpenFile gave are closed by their owners, on both sides`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let path = try await running.download(server.url("/a"))
        _ = try await running.client.wait(path)
        for _ in 0..<100 {
            let file = try await running.client.call(Download.openFile, at: path, ())
            var byte: UInt8 = 0
            #expect(read(file.number, &byte, 1) == 1 && byte == UInt8(ascii: "x"))
        }
        #expect(await eventually { running.held == 0 })
        // The bus thread may still hold the last answer, with its descriptor, when the call has returned.
        #expect(await eventually { openFiles(of: getpid(), below: running.world.folder) == 0 })
    }

    @Test func `in memory takes a bounded amount of memory`() async throws {
        let running = try await Running.start()
        let gate = Gate()
        defer { gate.open() }
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/small": reply.respond(200, text: "hello")
            case "/large": reply.head(200, length: 1 << 40)
            case "/endless":
                reply.head(200, ["Transfer-Encoding": "chunked"])
                let piece = [UInt8](repeating: 7, count: 4 << 20)
                for _ in 0..<65 { reply.chunk(piece) }
                gate.wait()
            default:
                reply.head(200, length: 10)
                gate.wait()
            }
        }
        func memory() -> OwnFile { OwnFile(adopting: makeMemoryFile()) }
        /// Downloads into a new file, which is open until the call is answered.
        func write(_ path: String) async throws -> ObjectPath {
            let file = memory()
            defer { withExtendedLifetime(file) {} }
            return try await running.write(server.url(path), into: file.wire)
        }
        let small = memory()
        _ = try await running.client.wait(try await running.write(server.url("/small"), into: small.wire))
        #expect(small.bytes == Array("hello".utf8))
        for path in ["/large", "/endless"] {
            let file = memory()
            let download = try await running.write(server.url(path), into: file.wire)
            let error = await thrown { try await running.client.wait(download) }
            #expect(error?.name == todokuError("TooLarge"), "\(path): \(error as Any)")
            #expect(await eventually { file.bytes.isEmpty })
        }
        var held: [ObjectPath] = []
        // The descriptor of an ended download is released once the truncation of its file is on disk.
        #expect(
            await eventually {
                while held.count < Limits.memoryDescriptorsPerCaller, let path = try? await write("/wait") { held.append(path) }
                return held.count == Limits.memoryDescriptorsPerCaller
            })
        let refused = await thrown { try await write("/wait") }
        #expect(refused?.name == todokuError("LimitExceeded") && refused?.message.contains("memory") == true, "\(refused as Any)")
        // Files on a disk have their own limits.
        let mine = OwnFile(running.file("mine"))
        try await running.client.cancel(try await running.write(server.url("/wait"), into: mine.wire))
        for path in held { try await running.client.cancel(path) }
        #expect(await eventually { (try? await running.client.wait(held[0])) == nil && running.held == 0 })
        #expect(await eventually { (try? await write("/small")) != nil })
    }

    @Test func `has a limit for a connection, and for all together`() async throws {
        let running = try await Running.start()
        let file = OwnFile(running.file("mine"))
        let (waiting, error): ([String: Variant], String) = (["start": .bool(false)], todokuError("LimitExceeded"))
        var paths: [ObjectPath] = []
        for _ in 0..<Limits.descriptorsPerCaller { paths.append(try await running.write("http://127.0.0.1:1/", into: file.wire, waiting)) }
        #expect(await eventually { running.held == Limits.descriptorsPerCaller })  // as below, for the last message
        #expect(await thrown { try await running.write("http://127.0.0.1:1/", into: file.wire, waiting) }?.name == error)
        try await running.client.cancel(paths[0])
        #expect(await eventually { running.held == Limits.descriptorsPerCaller - 1 })
        _ = try await running.write("http://127.0.0.1:1/", into: file.wire, waiting)
        var all = Limits.descriptorsPerCaller
        while all < Limits.descriptors {
            let other = try await running.world.client()
            for _ in 0..<min(Limits.descriptorsPerCaller, Limits.descriptors - all) {
                _ = try await running.write("http://127.0.0.1:1/", into: file.wire, waiting, by: other)
                all += 1
            }
        }
        let last = try await running.world.client()
        #expect(await thrown { try await running.write("http://127.0.0.1:1/", into: file.wire, waiting, by: last) }?.name == error)
        #expect(await eventually { running.held == Limits.descriptors })  // the message's own descriptor is closed after the answer
        try await running.client.call(Manager.cancelAll, ())
        #expect(await eventually { running.held == 0 })
        #expect(try await running.client.get(Manager.remaining) == 0)
    }

    @Test func `with a token is the same for the same file only`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let (file, other) = (OwnFile(running.file("mine")), OwnFile(running.file("other")))
        let options: [String: Variant] = ["app": .string("org.example.App"), "token": .string("t"), "start": .bool(false)]
        let path = try await running.write(server.url("/a"), into: file.wire, options)
        #expect(try await running.write(server.url("/a"), into: file.wire, options) == path)
        #expect(await thrown { try await running.write(server.url("/a"), into: other.wire, options) }?.name == todokuError("AlreadyExists"))
        let plain = await thrown { try await running.client.download(server.url("/a"), options) }
        #expect(plain?.name == todokuError("AlreadyExists"))
        try await running.client.resume(path)
        #expect(try await running.client.wait(path) == "")
        #expect(try await running.write(server.url("/a"), into: file.wire, options) == path)
        #expect(await thrown { try await running.write(server.url("/a"), into: other.wire, options) }?.name == todokuError("AlreadyExists"))
        #expect(await eventually { running.held == 0 })
    }

    @Test func `continues without its caller`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "hello") }
        // A foreign program, which has ended when the file arrives.
        let method = "\(Manager.interface).DownloadToFd"
        let call = gdbusCall(BusName.managerPath.value, method, [server.url("/a"), "handle 3", "{'start': <false>}"])
        let answer = await Child.run(
            ["sh", "-c", "exec 3<>\"$0\" \"$@\"", running.file("mine")] + call, environment: running.world.environment)
        #expect(answer.output == "(objectpath '\(BusName.downloadsPath)/1',)\n", "\(answer)")
        let path = BusName.path(of: DownloadNumber(1))
        try await running.client.resume(path)
        #expect(try await running.client.wait(path) == "")
        #expect(running.world.bytes("mine") == Array("hello".utf8))
    }
}
