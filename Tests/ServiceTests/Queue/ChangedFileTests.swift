internal import DBus
internal import DownloaderInterface
internal import TestSupport
internal import Testing

/// A server that sends another file than before, while bytes of the former file are held.
@Suite(.timeLimit(.minutes(10))) struct `A file that changes at its server` {
    private static let old = patternBytes(3_000_000)
    private static let new = patternBytes(2_000_000, seed: 9)

    /// A roll-out over several nodes: the second request is led to another file, and the third one to the first file again.
    @Test func `and changes back keeps the name and the type of its bytes`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let server = ScriptedServer { request, reply in
            switch (request.path, request.range) {
            case ("/latest", _): reply.respond(302, ["Location": request.number == 2 ? "/app-2.0.zip" : "/app-1.9.tar.gz"])
            case ("/app-2.0.zip", _):
                reply.head(200, ["ETag": "\"v2\"", "Content-Type": "application/zip"], length: Self.new.count)
                reply.send(Self.new[..<500_000])
                gate.wait()
            case (_, let range?):
                let part = "bytes \(range.first)-\(Self.old.count - 1)/\(Self.old.count)"
                reply.head(206, ["ETag": "\"v1\"", "Content-Range": part], length: Self.old.count - range.first)
                reply.send(Self.old[range.first...])
            default:
                reply.head(200, ["ETag": "\"v1\"", "Content-Type": "application/gzip"], length: Self.old.count)
                reply.send(Self.old[..<1_200_000])
                gate.wait()
            }
        }
        let running = try await Running.start()
        let (client, path) = (running.client, try await running.download(server.url("/latest")))
        #expect(await client.signals.until { $0.contains { $0.progress?.received == 1_200_000 } })
        try await client.pause(path)
        try await client.resume(path)
        #expect(await client.signals.until { $0.contains { $0.resumedAt?.offset == 0 } })
        #expect(try await client.get(Download.fileName, at: path) == "app-2.0.zip")
        try await client.pause(path)
        try await client.resume(path)
        #expect(readFile(try await client.wait(path)) == Self.old && running.world.files == ["app-1.9.tar.gz"])
        #expect(try await client.get(Download.mediaType, at: path) == "application/gzip")
        #expect(server.requests.last?.range?.first == 1_200_000)
        // The held bytes count again, and nobody has written them a second time.
        let seen = await client.signals.seen
        let change = try #require(seen.lastIndex { $0.resumedAt?.offset == 0 })
        let told = seen[change...].prefix { $0.resumedAt?.offset != 1_200_000 }.compactMap { $0.progress?.received }
        #expect(told.allSatisfy { $0 <= 500_000 }, "\(told)")
    }

    /// Each response for the whole new file is stopped long before it has as many bytes as are held.
    @Test func `is fetched from where the second transfer of its new bytes stopped`() async throws {
        let gate = Gate()
        defer { gate.open() }
        let server = ScriptedServer { request, reply in
            let (file, tag, count) = request.number == 0 ? (Self.old, "\"v1\"", 1_200_000) : (Self.new, "\"v2\"", 500_000)
            if request.field("If-Range") == "\"v2\"" { return reply.serve(Self.new, for: request, entityTag: "\"v2\"") }
            reply.head(200, ["ETag": tag], length: file.count)
            reply.send(file[..<count])
            gate.wait()
        }
        let running = try await Running.start()
        let (client, path) = (running.client, try await running.download(server.url("/file.bin")))
        #expect(await client.signals.until { $0.contains { $0.progress?.received == 1_200_000 } })
        for transfer in 1...2 {
            try await client.pause(path)
            try await client.resume(path)
            let hasCome = await client.signals.until { seen in
                let starts = seen.indices.filter { seen[$0].resumedAt?.offset == 0 }
                return starts.count == transfer && seen[(starts.last ?? 0)...].contains { $0.progress?.received == 500_000 }
            }
            #expect(hasCome)
        }
        try await client.pause(path)
        try await client.resume(path)
        #expect(readFile(try await client.wait(path)) == Self.new)
        #expect(server.requests.map { $0.range?.first } == [nil, 1_200_000, 1_200_000, 500_000])
    }
}
