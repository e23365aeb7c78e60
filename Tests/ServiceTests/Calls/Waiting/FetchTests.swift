internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite struct `A download` {
    @Test func `comes down with its bytes, its name and the mode of a plain file`() async throws {
        let running = try await Running.start()
        let body = patternBytes(300_000)
        let server = ScriptedServer { request, reply in reply.serve(body, for: request, entityTag: "\"a\"") }
        let path = try await running.fetch(server.url("/report.pdf"))
        #expect(path == "\(running.world.folder)/report.pdf")
        #expect(readFile(path) == body)
        #expect(mode(of: path) == 0o644)
        #expect(running.world.files == ["report.pdf"])
        #expect(server.requests[0].field("Accept-Encoding") == "identity")
    }

    @Test func `starts the service by D-Bus activation`() async throws {
        let world = await ServiceWorld(activation: "--idle-exit 60")
        let server = ScriptedServer { request, reply in reply.serve(patternBytes(1000), for: request) }
        let client = try await world.client()
        #expect(await world.bus.hasOwner(BusName.service) == false)
        let path = try await client.download(server.url("/a.bin"), ["directory": .string(world.folder), "notify": .string("never")])
        #expect(path == ObjectPath("/org/todoku/Downloader1/download/1"))
        #expect(try await client.wait(path) == "\(world.folder)/a.bin")
        #expect(world.bytes("a.bin") == patternBytes(1000))
    }

    @Test func `lies in the default folder where none is named`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in reply.serve(patternBytes(10), for: request) }
        let path = try await running.client.download(server.url("/a.bin"), ["notify": .string("never")])
        let home = running.world.bus.folder("home")
        #expect(try await running.client.wait(path) == "\(home)/Downloads/a.bin")
        #expect(try await running.client.get(Manager.defaultDirectory) == "\(home)/Downloads")
    }

    @Test func `of unknown length has the total -1 and the fraction -1 until it is whole`() async throws {
        let running = try await Running.start()
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            reply.head(200, ["Transfer-Encoding": "chunked"])
            reply.chunk(patternBytes(50_000))
            gate.wait()
            reply.chunk(patternBytes(7))
            reply.chunk([])
        }
        let path = try await running.download(server.url("/stream"))
        #expect(await running.client.signals.until { $0.contains { $0.progress?.received == 50_000 } })
        #expect(try await running.client.get(Download.total, at: path) == -1)
        #expect(try await running.client.get(Download.fraction, at: path) == -1.0)
        #expect(try await running.client.get(Manager.total) == -1)
        #expect(try await running.client.get(Manager.fraction) == -1.0)
        let first = await running.client.signals.of(path).compactMap(\.progress).first
        #expect(first?.total == -1)
        gate.open()
        _ = try await running.client.wait(path)
        #expect(try await running.client.get(Download.total, at: path) == 50_007)
        #expect(try await running.client.get(Download.fraction, at: path) == 1.0)
    }

    @Test func `that is empty finishes`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200) }
        let path = try await running.download(server.url("/empty.txt"))
        #expect(readFile(try await running.client.wait(path)) == [])
        #expect(try await running.client.get(Download.fraction, at: path) == 1.0)
        #expect(await running.client.signals.has("AllEnded"))
        #expect(await running.client.signals.of(path).contains { $0.member == "Progress" } == false)
    }

    @Test func `whose body is encoded all the same is decoded, its total unknown`() async throws {
        let running = try await Running.start()
        let world = running.world
        let text = Array(String(repeating: "The quick brown fox jumps over the lazy dog. ", count: 2000).utf8)
        writeFile(world.bus.folder("body"), text)
        _ = await world.run("gzip", world.bus.folder("body"))
        let packed = try #require(readFile(world.bus.folder("body.gz")))
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            reply.head(200, ["Content-Encoding": "gzip", "ETag": "\"strong\""], length: packed.count)
            reply.send(packed.dropLast(20))
            gate.wait()
            reply.send(packed.suffix(20))
        }
        let path = try await running.download(server.url("/fox.txt"))
        #expect(await running.client.signals.has("Progress", at: path))
        #expect(try await running.client.get(Download.total, at: path) == -1)
        gate.open()
        #expect(readFile(try await running.client.wait(path)) == text)
        #expect(try await running.client.get(Download.total, at: path) == Int64(text.count))
    }

    @Test func `keeps its part file private and beside its place, and leaves none`() async throws {
        let running = try await Running.start()
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            reply.head(200, length: 60_000)
            reply.send(patternBytes(50_000))
            gate.wait()
            reply.send(patternBytes(10_000))
        }
        let path = try await running.download(server.url("/a.bin"))
        #expect(await running.client.signals.has("Progress", at: path))
        #expect(running.world.files == [running.world.partName(1)])
        #expect(mode(of: "\(running.world.folder)/\(running.world.partName(1))") == 0o600)
        #expect(mode(of: running.world.state) == 0o700)
        #expect(mode(of: "\(running.world.state)/todoku.db") == 0o600)
        gate.open()
        _ = try await running.client.wait(path)
        #expect(running.world.files == ["a.bin"])
        #expect(await eventually { listFolder("\(running.world.state)/segments") == [] })
    }

    @Test func `remembers where it came from, without credentials and query`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in reply.serve(patternBytes(10), for: request) }
        let url = "http://user:secret@127.0.0.1:\(server.port)/a.bin?key=hidden"
        let path = try await running.download(url)
        let file = try await running.client.wait(path)
        do throws(NoExtendedAttributes) {
            #expect(try extendedAttribute("user.xdg.origin.url", of: file) == server.url("/a.bin"))
        } catch {}  // a temporary folder without extended attributes
        #expect(try await running.client.get(Download.url, at: path) == server.url("/a.bin"))
        #expect(try await running.client.call(Download.getUrl, at: path, ()) == server.url("/a.bin?key=hidden"))
    }

    @Test func `opens its finished file for reading only`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in reply.serve(patternBytes(100), for: request) }
        let path = try await running.download(server.url("/a.bin"))
        _ = try await running.client.wait(path)
        let descriptor = try await running.client.call(Download.openFile, at: path, ()).take()
        defer { close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: 200)
        #expect(read(descriptor, &bytes, 200) == 100)
        #expect(Array(bytes.prefix(100)) == patternBytes(100))
        #expect(fcntl(descriptor, F_GETFL) & O_ACCMODE == O_RDONLY)
        #expect(fcntl(descriptor, F_GETFD) & FD_CLOEXEC != 0)
        unlink("\(running.world.folder)/a.bin")
        #expect(await thrown { try await running.client.call(Download.openFile, at: path, ()) }?.name == todokuError("NoSuchObject"))
    }
}

@Suite struct `The name of a file` {
    @Test(
        arguments: [
            ("attachment; filename=\"plain.zip\"", "plain.zip"),
            ("attachment; filename=\"fallback.zip\"; filename*=UTF-8''%E5%86%99%E7%9C%9F.zip", "写真.zip"),
            ("attachment; filename=\"報告書.pdf\"", "報告書.pdf"),
            ("attachment; filename=\"../../etc/passwd\"", "passwd"),
            ("attachment; filename=\"..\\\\..\\\\boot.ini\"", "boot.ini"),
            ("attachment; filename=\".hidden\"", "hidden"),
            ("attachment; filename*=UTF-8''..%2F..%2F.bashrc", "bashrc"),
            ("inline", "from url.bin"),
        ] as [(String, String)])
    func `comes from Content-Disposition, made safe, else from the URL`(field: String, name: String) async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, ["Content-Disposition": field], text: "x") }
        let path = try await running.download(server.url("/folder/from%20url.bin?query=1"))
        #expect(try await running.client.wait(path) == "\(running.world.folder)/\(name)")
        #expect(running.world.files == [name])
        #expect(try await running.client.get(Download.fileName, at: path) == name)
    }

    @Test func `in Shift_JIS is read`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in
            reply.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Disposition: attachment; filename=\"")
            reply.send([0x8e, 0xca, 0x90, 0x5e] as [UInt8])  // 写真
            reply.send(".zip\"\r\n\r\nx")
        }
        #expect(try await running.fetch(server.url("/a")) == "\(running.world.folder)/写真.zip")
    }

    @Test func `is what the caller says`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, ["Content-Disposition": "attachment; filename=other"], text: "x") }
        #expect(try await running.fetch(server.url("/a"), ["filename": .string("わたしの.bin")]) == "\(running.world.folder)/わたしの.bin")
    }

    @Test func `taken by another under each policy`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in reply.serve(patternBytes(100), for: request) }
        let (world, client) = (running.world, running.client)
        writeFile("\(world.folder)/a.bin", [1, 2, 3])
        #expect(try await running.fetch(server.url("/a.bin")) == "\(world.folder)/a (1).bin")
        #expect(world.bytes("a.bin") == [1, 2, 3])

        let skipped = try await running.download(server.url("/a.bin"), ["if-exists": .string("skip")])
        #expect(try await client.wait(skipped) == "\(world.folder)/a.bin")
        #expect(try await client.get(Download.error, at: skipped) == EndError(details: ["unchanged": .bool(true)]))
        #expect(world.bytes("a.bin") == [1, 2, 3])

        let failed = try await running.download(server.url("/a.bin"), ["if-exists": .string("fail")])
        let error = await thrown { try await client.wait(failed) }
        #expect(error?.name == todokuError("AlreadyExists"))
        #expect(error?.message.contains("\(world.folder)/a.bin") == true)
        #expect(try await client.get(Download.state, at: failed) == "failed")

        #expect(try await running.fetch(server.url("/a.bin"), ["if-exists": .string("replace")]) == "\(world.folder)/a.bin")
        #expect(world.bytes("a.bin") == patternBytes(100))
        // The part files of the other two are deleted once their ends are on disk.
        #expect(await eventually { world.files == ["a (1).bin", "a.bin"] })
    }

    @Test func `is free again for each of many that want the same`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in reply.serve(Array(request.target.utf8), for: request) }
        for index in 0..<10 { _ = try await running.download(server.url("/same.txt?\(index)")) }
        #expect(await running.client.signals.has("DownloadEnded", count: 10))
        #expect(Set(running.world.files) == Set(["same.txt"] + (1...9).map { "same (\($0)).txt" }))
        let contents = Set(running.world.files.compactMap { running.world.bytes($0) })
        #expect(contents.count == 10)
    }
}
