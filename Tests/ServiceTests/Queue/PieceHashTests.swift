internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// The option `piece-hashes`, through the service.
@Suite(.timeLimit(.minutes(10))) struct `Piece hashes on the bus` {
    private static let file = patternBytes(3_000_000)
    private static let length = 262_144

    /// The file with another byte at `place`.
    private static func damaged(_ place: Int) -> [UInt8] {
        var bytes = file
        bytes[place] ^= 0xFF
        return bytes
    }

    private func options(_ world: ServiceWorld, _ mirrors: [String] = []) async -> [String: Variant] {
        [
            "directory": .string(world.folder), "notify": .string("never"), "size": .uint64(3_000_000), "mirrors": .strings(mirrors),
            "piece-hashes": .string(await pieceHashes(of: Self.file, length: Self.length)), "connections": .uint32(1),
        ]
    }

    @Test func `prove the file, and say so`() async throws {
        let server = ScriptedServer { request, reply in reply.serve(Self.file, for: request) }
        let running = try await Running.start()
        let path = try await running.client.download(server.url("/a.bin"), await options(running.world))
        #expect(readFile(try await running.client.wait(path)) == Self.file)
        #expect(try await running.client.get(Download.provedBy, at: path) == "pieces")
        #expect(server.requests.count == 1)
    }

    @Test func `prove the file against a digest that the server states wrongly`() async throws {
        let stated = "sha-256=:\(base64(await digest(of: Self.damaged(0)))):"
        let server = ScriptedServer { request, reply in reply.serve(Self.file, for: request, fields: ["Repr-Digest": stated]) }
        let running = try await Running.start()
        let path = try await running.client.download(server.url("/a.bin"), await options(running.world))
        #expect(readFile(try await running.client.wait(path)) == Self.file)
        #expect(try await running.client.get(Download.provedBy, at: path) == "pieces")
    }

    /// Neither a kill nor the other mirror's validator brings the wrong bytes back.
    @Test func `find the mirror with wrong bytes, which is not asked again after kill -9`() async throws {
        #expect(try await inTime { try await findWrongBytes() }, "each time, the source was left before it had sent all its bytes")
    }

    /// - Returns: false if the wrong piece was found before the bytes behind it had come, as where the server stands still between them.
    private func findWrongBytes() async throws -> Bool {
        let (gate, bad) = (Gate(), Self.damaged(300_000))
        defer { gate.open() }
        let main = ScriptedServer { request, reply in
            reply.head(200, ["ETag": "\"v1\"", "Accept-Ranges": "bytes"], length: bad.count)
            reply.send(bad[..<1_500_000])
            gate.wait()
        }
        let mirror = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            gate.wait()
        }
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start()
        let path = try await client.download(main.url("/a.bin"), await options(world, [mirror.url("/m")]))
        // The mirror is asked for the wrong piece, and says nothing.
        #expect(await eventually { mirror.requests.count == 1 })
        #expect(await eventually { (try? await client.get(Download.sources, at: path).sources.map(\.left)) == ["wrong-bytes", nil] })
        guard try await client.get(Download.sources, at: path).sources.map(\.received) == [1_500_000, 0] else { return false }
        try await client.waitUntilSaved(path)
        await world.kill(daemon)
        _ = await world.start()
        #expect(readFile(try await client.wait(path)) == Self.file)
        gate.open()
        #expect(main.requests.count == 1, "never asked again")
        #expect(mirror.requests.map { $0.range?.first } == [262_144, 262_144, 1_500_000])
        #expect(try await client.get(Download.sources, at: path).sources.map(\.left) == ["wrong-bytes", nil])
        #expect(try await client.get(Download.provedBy, at: path) == "pieces")
        return true
    }

    @Test func `that stay wrong fail the download, and nothing is left`() async throws {
        let bad = Self.damaged(2_999_999)
        let server = ScriptedServer { request, reply in reply.serve(bad, for: request, entityTag: "\"v1\"") }
        let running = try await Running.start()
        let path = try await running.client.download(server.url("/a.bin"), await options(running.world))
        let error = await thrown { try await running.client.wait(path) }
        #expect(error?.name == todokuError("ChecksumMismatch"), "\(error as Any)")
        #expect(error?.message.contains("the bytes 2883584 to 2999999 have sha256:") == true, "\(error as Any)")
        #expect(await eventually { running.world.files.isEmpty })
        #expect(server.requests.map { $0.range?.first } == [nil, 2_883_584])
    }

    @Test func `go into a caller's open file, which must be open for reading, too`() async throws {
        let bad = Self.damaged(0)
        let server = ScriptedServer { request, reply in
            reply.serve(request.number == 0 ? bad : Self.file, for: request, entityTag: "\"v1\"")
        }
        let running = try await Running.start()
        var options = await options(running.world)
        options["directory"] = nil
        writeFile(running.world.bus.folder("own"), [])
        for (flags, isTaken) in [(O_WRONLY, false), (O_RDWR, true)] {
            let file = OwnFile(running.world.bus.folder("own"), flags)
            let answer = await thrown {
                let path = try await running.client.call(Manager.downloadToFd, (server.url("/a"), file.wire, options))
                _ = try await running.client.wait(path)
            }
            #expect(answer == nil ? isTaken : !isTaken && answer?.name == todokuError("InvalidOption"), "\(answer as Any)")
        }
        #expect(readFile(running.world.bus.folder("own")) == Self.file && server.requests.map { $0.range?.first } == [nil, 0])
    }

    @Test func `are refused if they do not cover the size`() async throws {
        let running = try await Running.start()
        for (change, fault) in [
            (["size": nil], "Option piece-hashes needs the option size."),
            (
                ["size": .uint64(4_000_000)],
                "Option piece-hashes has 12 digests of pieces of 262144 bytes, which do not make 4000000 bytes."
            ),
        ] as [([String: Variant?], String)] {
            var options = await options(running.world)
            for (key, value) in change { options[key] = value }
            let error = await thrown { try await running.client.download("http://127.0.0.1:1/a", options) }
            #expect(error?.name == todokuError("InvalidOption") && error?.message == fault, "\(error as Any)")
        }
    }
}
