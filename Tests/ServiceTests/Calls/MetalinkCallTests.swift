internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

private let manager = BusName.managerPath.value

/// The elements of one file of a document.
private func element(_ name: String, _ inside: String) -> String { "<file name=\"\(name)\">\(inside)</file>\n" }

private func document(_ files: String) -> String { "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">\n\(files)</metalink>" }

extension Running {
    /// A file with `text` that the test has open.
    fileprivate func document(_ text: String, name: String = "list.meta4", _ flags: Int32 = O_RDONLY) -> OwnFile {
        writeFile(world.bus.folder(name), text.utf8)
        return OwnFile(world.bus.folder(name), flags)
    }

    fileprivate func metalink(_ text: String, _ more: [String: Variant] = [:]) async throws -> BatchAnswer {
        let file = document(text)
        defer { withExtendedLifetime(file) {} }
        return try await client.call(Manager.downloadMetalink, (file.wire, options(more)))
    }

    /// Counts the call in `sent` before anything else can run on the loop that sends it.
    @BusActor fileprivate func metalink(_ file: OwnFile, counting sent: Sent) async throws -> BatchAnswer {
        sent.count += 1
        return try await client.call(Manager.downloadMetalink, (file.wire, options()))
    }
}

extension DBusError {
    /// Whether the service has admitted a document whose fault is at its end. On a busy machine, reading such a long document may take
    /// longer than the service waits for a disk.
    fileprivate var isOfAdmittedDocument: Bool {
        name == todokuError("InvalidOption") || name == todokuError("PermissionDenied") && message.contains("did not answer within")
    }
}

/// How many calls have been sent.
@BusActor private final class Sent { var count = 0 }

@Suite(.timeLimit(.minutes(10))) struct `A Metalink document on the bus` {
    private let body = patternBytes(70_000)

    @Test func `queues its files as one batch, with names, sizes and checksums`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { [body] request, reply in reply.serve(body, for: request) }
        let sum = hexadecimal(await digest(of: body))
        let text = document(
            element(
                "folder/first.bin",
                """
                <size>70000</size><hash type="sha-256">\(sum)</hash><url priority="2">\(server.url("/second-choice"))</url>\
                <url priority="1">\(server.url("/other-name"))</url>
                """)
                + element("second.bin", "<url>\(server.url("/b"))</url>"))
        let (batch, paths) = try await running.metalink(text, ["tag": .string("release"), "title": .string("Release")])
        #expect(paths.count == 2)
        #expect(try await running.client.wait(batch: batch) == [2, 0, 0])
        #expect(running.world.files == ["first.bin", "second.bin"])
        #expect(readFile(running.file("first.bin")) == body)
        let first = try await running.client.all(paths[0])
        #expect(first["ProvedBy"]?.string == "checksum" && first["Tag"]?.string == "release")
        #expect(try await running.client.get(Batch.title, at: batch) == "Release")
        #expect(!server.requests.contains { $0.path == "/second-choice" })
        #expect(await eventually { openFiles(of: running.daemon.pid, below: running.world.bus.folder("list.meta4")) == 0 })
    }

    /// Of two files with one name, `skip` would leave out the second, `replace` would lose the first, and `fail` would refuse one.
    @Test(arguments: ["skip", "replace", "fail", "rename"])
    func `gives files of two folders different names, whatever if-exists says`(policy: String) async throws {
        let running = try await Running.start()
        let bodies = [patternBytes(70_000), patternBytes(60_000, seed: 2)]
        let server = ScriptedServer { request, reply in reply.serve(bodies[request.path == "/a" ? 0 : 1], for: request) }
        func file(_ folder: String, _ body: [UInt8]) async -> String {
            let sum = hexadecimal(await digest(of: body))
            return element(
                "\(folder)/data.bin",
                "<size>\(body.count)</size><hash type=\"sha-256\">\(sum)</hash><url>\(server.url("/\(folder)"))</url>")
        }
        let text = document(await file("a", bodies[0]) + file("b", bodies[1]))
        // The second time, with `skip`, all files exist.
        for _ in 0..<(policy == "skip" ? 2 : 1) {
            let (batch, paths) = try await running.metalink(text, ["if-exists": .string(policy)])
            #expect(try await running.client.wait(batch: batch) == [2, 0, 0])
            #expect(running.world.files.sorted() == ["data (1).bin", "data.bin"])
            for (path, (name, body)) in zip(paths, zip(["data.bin", "data (1).bin"], bodies)) {
                #expect(try await running.client.get(Download.path, at: path) == running.file(name))
                #expect(readFile(running.file(name)) == body)
            }
        }
    }

    @Test func `whose file has other bytes than its hash or its size fails that file alone`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { [body] request, reply in reply.serve(body, for: request) }
        let wrong = String(repeating: "00", count: 32)
        let (batch, paths) = try await running.metalink(
            document(
                element("a", "<hash type=\"sha-256\">\(wrong)</hash><url>\(server.url("/a"))</url>")
                    + element("b", "<size>1</size><url>\(server.url("/b"))</url>") + element("c", "<url>\(server.url("/c"))</url>")))
        #expect(try await running.client.wait(batch: batch) == [1, 2, 0])
        for (path, name) in zip(paths, ["ChecksumMismatch", "SizeMismatch"]) {
            #expect(await thrown { try await running.client.wait(path) }?.name == todokuError(name))
        }
        #expect(await eventually { running.world.files == ["c"] })  // part files are deleted once the end is on disk
    }

    @Test func `gives each file its mirrors`() async throws {
        let running = try await Running.start()
        let (good, dead) = (ScriptedServer { [body] request, reply in reply.serve(body, for: request) }, closedPort())
        let text = document(
            element(
                "a.bin",
                """
                <hash type="sha-256">\(hexadecimal(await digest(of: body)))</hash>\
                <url priority="2">\(good.url("/a"))</url><url priority="1">http://127.0.0.1:\(dead)/a</url>
                """))
        let (batch, paths) = try await running.metalink(text, ["retries": .uint32(0)])
        #expect(try await running.client.wait(batch: batch) == [1, 0, 0])
        #expect(readFile(running.file("a.bin")) == body)
        let sources = try await running.client.get(Download.sources, at: paths[0]).sources
        #expect(sources.map(\.url) == ["http://127.0.0.1:\(dead)/a", good.url("/a")])
        #expect(sources.map(\.left) == ["network", nil])
    }

    /// The URL of the document has another byte in its second piece.
    @Test func `gives each file the hashes of its pieces, which find the source with wrong bytes`() async throws {
        let running = try await Running.start()
        let bad = Array(body[..<40_000]) + [body[40_000] ^ 1] + Array(body[40_001...])
        let good = ScriptedServer { [body] request, reply in reply.serve(body, for: request) }
        let wrong = ScriptedServer { request, reply in reply.serve(bad, for: request) }
        let option = await pieceHashes(of: body, length: 32_768).split(separator: ":")
        let digests = stride(from: 0, to: option[2].utf8.count, by: 64).map { option[2].dropFirst($0).prefix(64) }
        let text = document(
            element(
                "a.bin",
                """
                <size>70000</size><pieces length="32768" type="sha-256">\(digests.map { "<hash>\($0)</hash>" }.joined())</pieces>\
                <url priority="1">\(wrong.url("/a"))</url><url priority="2">\(good.url("/a"))</url>
                """))
        let (batch, paths) = try await running.metalink(text, ["retries": .uint32(0)])
        #expect(try await running.client.wait(batch: batch) == [1, 0, 0])
        #expect(readFile(running.file("a.bin")) == body)
        #expect(try await running.client.get(Download.provedBy, at: paths[0]) == "pieces")
        #expect(try await running.client.get(Download.sources, at: paths[0]).sources.map(\.left) == ["wrong-bytes", nil])
        #expect(good.requests.map { $0.range?.first } == [32_768] && good.requests[0].range?.last == 65_535)
    }

    @Test func `is queued whole or not at all, and the error names the line`() async throws {
        let running = try await Running.start()
        let good = element("good", "<url>http://127.0.0.1:1/good</url>")
        for (text, name, reason) in [
            (document(good + element("bad", "<url>ftp://127.0.0.1/a</url>")), "InvalidOption", "line 3: the file “bad” has no URL"),
            (document(good + element("../bad", "")), "InvalidOption", "line 3: the file name “../bad” leads out of the folder"),
            ("<!DOCTYPE a [<!ENTITY b \"c\">]>\n" + document(good), "InvalidOption", "line 1: a document type"),
            ("", "InvalidOption", "no element found"), ("<a/>", "InvalidOption", "line 1: the first element is not “metalink”"),
            (document(""), "InvalidOption", "the document has no file"),
            (document(String(repeating: good, count: 10_001)), "LimitExceeded", "has more than 10000 files"),
            (
                document("<a xmlns=\"\(String(repeating: "n", count: 257))\"/>" + good), "LimitExceeded",
                "line 2: a namespace is longer than 256 bytes"
            ),
        ] {
            let error = await thrown { try await running.metalink(text, ["start": .bool(false)]) }
            #expect(error?.name == todokuError(name) && error?.message.hasPrefix("The Metalink document: ") == true, "\(error as Any)")
            #expect(error?.message.contains(reason) == true, "\(error as Any)")
        }
        // The batch refuses what the document could not know.
        let small = await thrown {
            try await running.metalink(
                document(good + element("big", "<size>11</size><url>http://127.0.0.1:1/b</url>")), ["max-size": .uint64(10)])
        }
        #expect(small?.name == todokuError("InvalidOption") && small?.message.hasPrefix("Item 1: Option size is larger") == true)
        let folder = await thrown { try await running.metalink(document(good), ["directory": .string("/no/such")]) }
        #expect(folder?.name == todokuError("InvalidOption") && folder?.message.contains("does not exist") == true, "\(folder as Any)")
        #expect(try await running.client.list().isEmpty)
        #expect(try await running.client.batchNumbers().isEmpty)
    }

    @Test func `may have 10,000 files`() async throws {
        let running = try await Running.start()
        let many = (0..<10_000).map { element("f\($0)", "<url>http://127.0.0.1:1/\($0)</url>") }.joined()
        let file = running.document(document(many))
        let (batch, paths) = try await running.client.call(
            Manager.downloadMetalink, (file.wire, running.options(["start": .bool(false)])))
        withExtendedLifetime(file) {}
        #expect(paths.count == 10_000 && Set(paths.map(\.value)).count == 10_000)
        #expect(try await running.client.counts(batch) == [10_000, 0, 0, 0])
        #expect(try await running.client.get(Download.url, at: paths[9_999]) == "http://127.0.0.1:1/9999")
    }

    @Test func `comes by a descriptor of a regular file that can be read`() async throws {
        let running = try await Running.start()
        let text = document(element("a", "<url>http://127.0.0.1:1/a</url>"))
        func refused(_ file: OwnFile, _ name: String, _ why: String) async {
            await refused(file.descriptor, name, why)
            withExtendedLifetime(file) {}
        }
        func refused(_ descriptor: Int32, _ name: String, _ why: String) async {
            let error = await thrown {
                try await running.client.call(Manager.downloadMetalink, (FileDescriptor(descriptor), running.options([:])))
            }
            #expect(error?.name == todokuError(name) && error?.message.contains(why) == true, "\(why): \(error as Any)")
        }
        writeFile(running.world.bus.folder("x"), text.utf8)
        let path = running.world.bus.folder("x")
        await refused(OwnFile(path, O_WRONLY), "InvalidOption", "writing only")
        await refused(OwnFile(path, Int32(0x200000)), "InvalidOption", "O_PATH")
        await refused(OwnFile(running.world.folder, O_RDONLY), "InvalidOption", "folder")
        await refused(OwnFile("/dev/null", O_RDONLY), "InvalidOption", "device")
        var pipes: [Int32] = [0, 0]
        #expect(pipe(&pipes) == 0)
        await refused(pipes[0], "InvalidOption", "pipe")
        for end in pipes { close(end) }
        let long = OwnFile(running.world.bus.folder("long"))
        #expect(ftruncate(long.descriptor, off_t(Limits.documentBytes + 1)) == 0)
        await refused(long, "LimitExceeded", "longer than 16.0 MiB")
        let file = OwnFile(path, O_RDONLY)
        for (key, value) in [
            ("filename", Variant.string("a")), ("checksum", .string("md5:00")), ("token", .string("a")), ("size", .uint64(1)),
            ("mirrors", .strings(["http://127.0.0.1:1/b"])),
        ] {
            let error = await thrown { try await running.client.call(Manager.downloadMetalink, (file.wire, [key: value])) }
            #expect(error?.name == todokuError("InvalidOption") && error?.message.contains("Option \(key)") == true, "\(error as Any)")
        }
        // Read from its first byte, wherever the position is; also from a memory file.
        let memory = OwnFile(adopting: makeMemoryFile())
        _ = Array(text.utf8).withUnsafeBytes { Glibc.write(memory.descriptor, $0.baseAddress, $0.count) }
        let (_, paths) = try await running.client.call(
            Manager.downloadMetalink, (memory.wire, running.options(["start": .bool(false)])))
        #expect(paths.count == 1)
        withExtendedLifetime((file, memory)) {}
        #expect(await eventually { openFiles(of: running.daemon.pid, below: path) == 0 })
    }

    /// The service sees the first call when all are on their way: calls that arrive one by one may find earlier documents read.
    @Test func `is one of four at most that are read at a time for one caller`() async throws {
        let running = try await Running.start()
        let comment = "<!--\(String(repeating: "a", count: 1000))-->\n"
        let bad = document(String(repeating: comment, count: 15_000) + element("bad", "<url>ftp://127.0.0.1/a</url>"))
        let (file, sent) = (running.document(bad), Sent())
        running.daemon.signal(SIGSTOP)
        let errors = try await withThrowingTaskGroup(of: DBusError?.self) { group in
            for _ in 0..<12 { group.addTask { await thrown { try await running.metalink(file, counting: sent) } } }
            #expect(await eventually { await sent.count == 12 })
            // The bus has passed the calls on once it has answered a later one.
            _ = try await running.client.connection.call(
                BusDaemon.nameHasOwner, on: BusDaemon.name, at: BusDaemon.path, BusName.service, timeout: .seconds(60))
            running.daemon.signal(SIGCONT)
            return try await group.reduce(into: []) { $0.append($1) }
        }
        let refused = errors.filter { $0?.name == todokuError("LimitExceeded") }
        #expect(refused.allSatisfy { $0?.message.hasPrefix("At most 4 documents of one caller, and 8 in all") == true })
        #expect(refused.count >= 1 && refused.count <= 8, "\(refused.count) of 12")
        #expect(errors.count { $0?.isOfAdmittedDocument == true } == 12 - refused.count, "\(errors)")
        withExtendedLifetime(file) {}
        // Documents that have been read do not count towards the limit.
        for number in 0..<5 {
            let text = document(element("a", "<url>http://127.0.0.1:1/\(number)</url>"))
            _ = try await running.metalink(text, ["start": .bool(false)])
        }
    }

    /// As for one caller. Three callers with four documents each stay within their own limits.
    @Test func `is one of eight at most that are read at a time in all`() async throws {
        let running = try await Running.start()
        let comment = "<!--\(String(repeating: "a", count: 1000))-->\n"
        let bad = document(String(repeating: comment, count: 15_000) + element("bad", "<url>ftp://127.0.0.1/a</url>"))
        let (file, sent) = (running.document(bad), Sent())
        var callers: [Running] = []
        for _ in 0..<3 {
            callers.append(Running(world: running.world, daemon: running.daemon, client: try await running.world.client()))
        }
        // The service identifies each caller at the first call. Calls of a caller who is identified late may find earlier documents read.
        for caller in callers { #expect(try await caller.client.list().isEmpty) }
        running.daemon.signal(SIGSTOP)
        defer { running.daemon.signal(SIGCONT) }
        let errors = try await withThrowingTaskGroup(of: DBusError?.self) { [callers] group in
            for number in 0..<12 {
                group.addTask { await thrown { try await callers[number % 3].metalink(file, counting: sent) } }
            }
            #expect(await eventually { await sent.count == 12 })
            for caller in callers {
                _ = try await caller.client.connection.call(
                    BusDaemon.nameHasOwner, on: BusDaemon.name, at: BusDaemon.path, BusName.service, timeout: .seconds(60))
            }
            running.daemon.signal(SIGCONT)
            return try await group.reduce(into: []) { $0.append($1) }
        }
        let refused = errors.filter { $0?.name == todokuError("LimitExceeded") }
        #expect(refused.allSatisfy { $0?.message.hasPrefix("At most 4 documents of one caller, and 8 in all") == true })
        #expect(refused.count >= 1 && refused.count <= 4, "\(refused.count) of 12")
        #expect(errors.count { $0?.isOfAdmittedDocument == true } == 12 - refused.count, "\(errors)")
        withExtendedLifetime(file) {}
    }

    @Test func `survives kill -9 once the call has answered`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { [body] request, reply in reply.serve(body, for: request) }
        let text = document(
            (0..<50).map { element("\($0).bin", "<size>70000</size><url>\(server.url("/\($0)"))</url>") }.joined())
        let (batch, _) = try await running.metalink(text)
        await running.world.kill(running.daemon)
        _ = await running.world.start()
        #expect(try await running.client.wait(batch: batch) == [50, 0, 0])
        #expect(running.world.files.count == 50)
    }

    @Test func `is queued by gdbus, which passes a descriptor by its number`() async throws {
        let running = try await Running.start()
        let path = running.world.bus.folder("doc")
        writeFile(path, document(element("a", "<url>http://127.0.0.1:1/a</url>")).utf8)
        let call = gdbusCall(manager, "\(Manager.interface).DownloadMetalink", ["handle 3", "{'start': <false>}"])
        let exit = await Child.run(["sh", "-c", "exec 3<\"$0\" \"$@\"", path] + call, environment: running.world.environment)
        #expect(exit.status == 0 && exit.output.contains("/batch/1"), "\(exit)")
    }
}
