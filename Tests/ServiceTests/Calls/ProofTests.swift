internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// `Repr-Digest`, `Digest` and the property `ProvedBy`, through the service.
@Suite(.timeLimit(.minutes(10))) struct `What proves a file` {
    private static let file = patternBytes(2_000_000)
    private static let changed = patternBytes(2_000_000, seed: 9)

    private func stated(_ bytes: [UInt8]) async -> String { "sha-256=:\(base64(await digest(of: bytes))):" }

    private func isProved(_ path: ObjectPath, by proof: String, _ client: Client) async throws -> Bool {
        try await client.get(Download.provedBy, at: path) == proof
    }

    @Test func `is the checksum, the server's digest, the length, or nothing`() async throws {
        let running = try await Running.start()
        let sum = await digest(of: Self.file)
        let (right, old) = ("sha-256=:\(base64(sum)):", "MD5=AAAA,sha-256=\(base64(sum))")
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/repr": reply.serve(Self.file, for: request, fields: ["Repr-Digest": "md5=:AA==:", "Repr-Digest": right])
            case "/digest": reply.serve(Self.file, for: request, fields: ["Digest": old])
            case "/length": reply.serve(Self.file, for: request, fields: ["Repr-Digest": "sha-256=\(base64(sum))", "Digest": "MD5=AAAA"])
            default:
                reply.head(200, ["Transfer-Encoding": "chunked"])
                reply.chunk(Self.file)
                reply.chunk([])
            }
        }
        let checksum = Variant.string("sha256:" + hexadecimal(sum))
        for (name, options, proof) in [
            ("repr", [:], "repr-digest"), ("digest", [:], "repr-digest"), ("repr", ["checksum": checksum], "checksum"),
            ("length", [:], "length"), ("chunked", [:], ""), ("chunked", ["size": .uint64(2_000_000)], "length"),
            ("chunked", ["checksum": checksum], "checksum"),
        ] as [(String, [String: Variant], String)] {
            let path = try await running.download(server.url("/\(name)"), options)
            #expect(readFile(try await running.client.wait(path)) == Self.file)
            #expect(try await isProved(path, by: proof, running.client), "\(name)")
            // `ProvedBy` is told with the end.
            let told = await running.client.signals.of(path).compactMap { $0.changed?["ProvedBy"]?.string }
            #expect(told == (proof.isEmpty ? [] : [proof]), "\(name): \(told)")
        }
    }

    @Test(arguments: ["Repr-Digest", "Content-Digest", "Digest"])
    func `that differs from it fails the download, with both digests`(name: String) async throws {
        let running = try await Running.start()
        let (stated, own, other) = (
            await stated(Self.changed), hexadecimal(await digest(of: Self.file)), hexadecimal(await digest(of: Self.changed))
        )
        // RFC 3230 writes the digest without colons.
        let value = name == "Digest" ? stated.filter { $0 != ":" } : stated
        let server = ScriptedServer { _, reply in reply.respond(200, ["ETag": "\"1\"", name: value], body: Self.file) }
        let path = try await running.download(server.url("/a"))
        let error = await thrown { try await running.client.wait(path) }
        #expect(error?.name == todokuError("ChecksumMismatch") && error.map(isSentence) == true)
        #expect(error?.message.contains("the file has sha256:\(own), and the server stated sha256:\(other)") == true, "\(error as Any)")
        #expect(try await isProved(path, by: "", running.client))
        #expect(await eventually { running.world.files == [] })
        #expect(server.requests.count == 1)
    }

    /// The server states one digest with each response: that of another file. The download is paused after 1,200,000 bytes.
    @Test func `that differs from two parts, and then from the whole file, fails the download`() async throws {
        let running = try await Running.start()
        let (stated, own, other) = (
            await stated(Self.changed), hexadecimal(await digest(of: Self.file)), hexadecimal(await digest(of: Self.changed))
        )
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else {
                return reply.serve(Self.file, for: request, entityTag: "\"1\"", fields: ["Content-Digest": stated])
            }
            reply.head(200, ["ETag": "\"1\"", "Accept-Ranges": "bytes"], length: Self.file.count)
            reply.send(Self.file[..<1_200_000])
        }
        let path = try await running.download(server.url("/a"))
        #expect(await running.client.signals.until { seen in seen.contains { ($0.progress?.received ?? 0) >= 1_200_000 } })
        try await running.client.pause(path)
        #expect(await running.client.signals.isIn("paused", path))
        try await running.client.resume(path)
        let error = await thrown { try await running.client.wait(path) }
        #expect(error?.name == todokuError("ChecksumMismatch"))
        #expect(error?.message.contains("the file has sha256:\(own), and the server stated sha256:\(other)") == true, "\(error as Any)")
        #expect(server.requests.map { $0.range?.first } == [nil, 1_200_000, 1_200_000, nil])
        #expect(await eventually { running.world.files == [] })
    }

    @Test func `is the caller's checksum, even if the server states another digest`() async throws {
        let running = try await Running.start(["--log-level", "warning"])
        let (stated, sum) = (await stated(Self.changed), hexadecimal(await digest(of: Self.file)))
        let server = ScriptedServer { request, reply in reply.serve(Self.file, for: request, fields: ["Repr-Digest": stated]) }
        let path = try await running.download(server.url("/a"), ["checksum": .string("sha256:\(sum)")])
        #expect(readFile(try await running.client.wait(path)) == Self.file)
        #expect(try await isProved(path, by: "checksum", running.client))
        #expect(await eventually { running.daemon.errors.contains("not the digest that the server stated") })
        // The checksum fails a file that has the server's digest.
        let other = hexadecimal(await digest(of: Self.changed))
        let right = await self.stated(Self.file)
        let agreeing = ScriptedServer { request, reply in reply.serve(Self.file, for: request, fields: ["Repr-Digest": right]) }
        let error = await thrown { try await running.fetch(agreeing.url("/b"), ["checksum": .string("sha256:\(other)")]) }
        #expect(error?.name == todokuError("ChecksumMismatch"))
    }

    /// The server names the digest once, and sends the rest of another file. The digest must outlive the process that heard it.
    @Test func `is the digest of the first response, also after kill -9`() async throws {
        let file = patternBytes(6_000_000)
        let stated = await stated(file)
        let server = ScriptedServer { request, reply in
            switch request.number {
            case 0:
                reply.head(200, ["ETag": "\"1\"", "Repr-Digest": stated], length: file.count)
                reply.send(file[..<3_000_000])
            case 1:
                var damaged = file
                damaged[5_999_999] ^= 1
                reply.serve(damaged, for: request, entityTag: "\"1\"")
            default: reply.serve(file, for: request, entityTag: "\"1\"", fields: ["Repr-Digest": stated])
            }
        }
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start()
        let path = try await client.download(server.url("/a"), ["directory": .string(world.folder), "notify": .string("never")])
        #expect(await client.signals.until { seen in seen.contains { ($0.progress?.received ?? 0) >= 3_000_000 } })
        // Progress does not wait for the disk. The answer to a change does, and what the response said was to be saved before it.
        try await client.set(Download.priority, at: path, 1)
        await world.kill(daemon)
        _ = await world.start()
        #expect(readFile(try await client.wait(path)) == file)
        #expect(try await isProved(path, by: "repr-digest", client))
        // The file of two responses was wrong, so it was fetched once more from 0.
        let starts = server.requests.map { $0.range?.first }
        #expect(starts.count == 3 && starts[0] == nil && (starts[1] ?? 0) > 0 && starts[2] == nil, "\(starts)")
    }

    /// A paused download whose row is changed to that of one that was whole when its process died.
    @Test(arguments: [true, false]) func `is compared with a file that was whole before a crash`(isRight: Bool) async throws {
        let stated = await stated(Self.file)
        let server = ScriptedServer { _, reply in
            reply.head(200, ["ETag": "\"1\"", "Repr-Digest": stated], length: Self.file.count)
            reply.send(Self.file[..<1_900_000])
        }
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start()
        let path = try await client.download(server.url("/a"), ["directory": .string(world.folder), "notify": .string("never")])
        #expect(await client.signals.until { seen in seen.contains { ($0.progress?.received ?? 0) >= 1_900_000 } })
        try await client.pause(path)
        #expect(await client.signals.isIn("paused", path))
        _ = await world.stop(daemon)
        let rest = isRight ? Self.file[1_900_000...] : Self.changed[1_900_000...]
        let part = open("\(world.folder)/\(world.partName(1))", O_WRONLY | O_CLOEXEC)
        let count = Array(rest).withUnsafeBytes { pwrite(part, $0.baseAddress, $0.count, 1_900_000) }
        close(part)
        #expect(count == 100_000)
        let changed = await world.run(
            "sqlite3", "\(world.state)/todoku.db",
            """
            UPDATE download SET state = 'verifying', received = 2000000; UPDATE course SET is_whole = 1;
            SELECT resume_digest FROM course;
            """)
        let own = hexadecimal(await digest(of: Self.file))
        #expect(changed.output == "sha256:\(own)\n", "\(changed)")
        _ = await world.start()
        if isRight {
            #expect(readFile(try await client.wait(path)) == Self.file)
        } else {
            #expect(await thrown { try await client.wait(path) }?.name == todokuError("ChecksumMismatch"))
        }
        #expect(try await isProved(path, by: isRight ? "repr-digest" : "", client))
        #expect(server.requests.count == 1)
    }

    @Test func `stays known after a restart, and the command shows it`() async throws {
        let stated = await stated(Self.file)
        let server = ScriptedServer { request, reply in reply.serve(Self.file, for: request, fields: ["Repr-Digest": stated]) }
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start()
        let path = try await client.download(server.url("/a"), ["directory": .string(world.folder), "notify": .string("never")])
        _ = try await client.wait(path)
        _ = await world.stop(daemon)
        _ = await world.start()
        #expect(try await isProved(path, by: "repr-digest", client))
        let describe = try await client.call(Manager.describe, ([:], ["ProvedBy"]))
        #expect(describe.first?.fields.1["ProvedBy"]?.string == "repr-digest")
    }

    @Test func `of a cached copy is what proved it when it was downloaded`() async throws {
        let running = try await Running.start()
        let stated = await stated(Self.file)
        let server = ScriptedServer { request, reply in
            // A 304 says nothing of the bytes.
            if request.field("If-None-Match") == "\"1\"" { return reply.head(304, ["ETag": "\"1\"", "Repr-Digest": "sha-256=:AAAA:"]) }
            reply.serve(Self.file, for: request, entityTag: request.path == "/a" ? "\"1\"" : nil, fields: ["Repr-Digest": stated])
        }
        for name in ["a", "b"] {
            for answer in ["new-data", "no-data"] {
                let token: [String: Variant] = ["app": .string("org.example.App"), "token": .string("\(name)_\(answer.prefix(2))")]
                let fetched = try await running.client.call(Manager.fetch, (server.url("/\(name)"), running.options(token)))
                #expect(fetched.0 == answer && readFile(fetched.1) == Self.file)
                let path = try #require(try await running.client.list(["newest-first": .bool(true), "limit": .uint32(1)]).first)
                #expect(try await isProved(path, by: "repr-digest", running.client), "\(name) \(answer)")
            }
        }
        #expect(server.requests.map { $0.field("If-None-Match") } == [nil, "\"1\"", nil, nil])
    }

    @Test func `of a file that existed already is nothing`() async throws {
        let running = try await Running.start()
        let stated = await stated(Self.file)
        let server = ScriptedServer { request, reply in reply.serve(Self.file, for: request, fields: ["Repr-Digest": stated]) }
        writeFile("\(running.world.folder)/a", "mine".utf8)
        let path = try await running.download(server.url("/a"), ["if-exists": .string("skip")])
        _ = try await running.client.wait(path)
        #expect(try await isProved(path, by: "", running.client))
    }

    @Test func `of a caller's own file is the digest, if the file can be read`() async throws {
        let running = try await Running.start()
        let (right, wrong) = (await stated(Self.file), await stated(Self.changed))
        let server = ScriptedServer { request, reply in
            reply.serve(Self.file, for: request, fields: ["Repr-Digest": request.path == "/right" ? right : wrong])
        }
        for (name, flags, proof) in [
            ("right", O_RDWR, "repr-digest"), ("right", O_WRONLY, "length"), ("wrong", O_WRONLY, "length"), ("wrong", O_RDWR, nil),
        ] as [(String, Int32, String?)] {
            let file = OwnFile("\(running.world.folder)/mine", flags | O_CREAT)
            let path = try await running.client.call(
                Manager.downloadToFd, (server.url("/\(name)"), file.wire, ["notify": .string("never")]))
            if let proof {
                _ = try await running.client.wait(path)
                #expect(try await isProved(path, by: proof, running.client), "\(name)")
                #expect(readFile("\(running.world.folder)/mine") == Self.file)
            } else {
                #expect(await thrown { try await running.client.wait(path) }?.name == todokuError("ChecksumMismatch"))
                #expect(await eventually { readFile("\(running.world.folder)/mine") == [] })
            }
        }
    }

    @Test func `of an unpacked archive is what proved the archive`() async throws {
        let running = try await Running.start()
        let archive = [UInt8](repeating: 0, count: 1024)  // a tar without entries
        let stated = await stated(archive)
        let server = ScriptedServer { request, reply in reply.serve(archive, for: request, fields: ["Repr-Digest": stated]) }
        let path = try await running.download(server.url("/a.tar"), ["extract": .bool(true)])
        _ = try await running.client.wait(path)
        #expect(try await isProved(path, by: "repr-digest", running.client))
    }
}
