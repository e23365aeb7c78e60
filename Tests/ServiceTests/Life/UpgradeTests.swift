internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// Package managers rename a new program over the old one, also while the service runs. They restart nothing (docs/packaging.md).
@Suite struct `An upgrade` {
    @Test func `leaves the queue to the old program, which unpacks too, and to the new one after the old one's end`() async throws {
        let folder = TemporaryFolder("todoku-upgrade")
        let program = folder("todokud")
        // By a process of its own: while a thread of this one has the file open for writing, nobody could start it.
        #expect(await Child.run(["cp", ServiceWorld.todokud, program]).status == 0)
        folder.makeFolder("tree")
        writeFile(folder("tree/readme"), "hello".utf8)
        #expect(await Child.run(["tar", "-C", folder("tree"), "-czf", folder("tree.tar.gz"), "."]).status == 0)
        let archive = try #require(readFile(folder("tree.tar.gz")))

        let body = patternBytes(300_000)
        let (first, second) = (Gate(), Gate())
        let server = ScriptedServer { request, reply in
            if request.path == "/tree.tar.gz" { return reply.serve(archive, for: request, entityTag: "\"tree\"") }
            guard request.range == nil else { return reply.serve(body, for: request, entityTag: "\"v1\"") }
            reply.head(200, ["ETag": "\"v1\""], length: body.count)
            reply.send(body[..<200_000])
            if request.path == "/first.bin" { first.wait() } else { second.wait() }
            reply.send(body[200_000...])
        }
        let world = await ServiceWorld(names: [BusName.service: "\(program) --idle-exit 3600"])
        let client = try await world.client()
        let options: [String: Variant] = ["directory": .string(world.folder), "notify": .string("never")]
        let early = try await client.download(server.url("/first.bin"), options)
        #expect(await client.signals.until { $0.contains { $0.path == early.value && $0.progress?.received == 200_000 } })
        let old = try #require(await world.bus.process(of: BusName.service))

        #expect(await Child.run(["cp", ServiceWorld.todokud, folder("new")]).status == 0)
        #expect(rename(folder("new"), program) == 0)
        #expect(programFile(old).hasSuffix("/todokud (deleted)"), "\(programFile(old))")
        first.open()
        #expect(readFile(try await client.wait(early)) == body)
        let packed = try await client.download(server.url("/tree.tar.gz"), options.merging(["extract": .bool(true)]) { $1 })
        let unpacked = try await client.wait(packed)
        #expect(readFile("\(unpacked)/readme") == Array("hello".utf8))
        let late = try await client.download(server.url("/second.bin"), options)
        #expect(await client.signals.until { $0.contains { $0.path == late.value && $0.progress?.received == 200_000 } })
        #expect(await world.bus.process(of: BusName.service) == old)

        #expect(await world.bus.end(BusName.service, by: SIGTERM))
        #expect(try await client.get(Download.state, at: early) == "finished")
        let new = try #require(await world.bus.process(of: BusName.service))
        #expect(new != old && programFile(new).hasSuffix("/todokud"), "\(programFile(new))")
        #expect(readFile(try await client.wait(late)) == body)
        second.open()
        #expect(server.requests.last?.range?.first == 200_000)
    }
}

/// The file that a process runs, as proc_pid_exe(5) tells it.
private func programFile(_ process: Int32) -> String {
    var target = [CChar](repeating: 0, count: Int(PATH_MAX))
    let count = readlink("/proc/\(process)/exe", &target, target.count)
    return String(decoding: target.prefix(max(0, count)).map { UInt8(bitPattern: $0) }, as: UTF8.self)
}
