internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    /// An unpacked folder on a disk where the deletion of one file in it takes as long as the test wants.
    @Suite struct `A folder that is deleted slowly` {
        @Test func `is off its name when Remove answers, and is deleted behind the answer by a service that stays for it`() async throws {
            let folder = try await SlowFolder()
            defer { folder.gate.open() }
            // A download that waits for its server keeps the next service from ending before the deletion is held.
            let active = try await folder.beginActive()
            await folder.lane.end(SIGTERM)
            try await folder.start(idleExit: 8)
            let path = try await folder.unpack()
            folder.place.hold(true)
            try await folder.remove(path)
            #expect(listFolder(folder.place.files).map(SlowFolder.isLeftover) == [true], "\(listFolder(folder.place.files))")
            #expect(await eventually { folder.place.held == 1 })
            try await folder.lane.cancel(active)
            // Without the deletion, the service would end after 8 s.
            #expect(await !eventually(within: .seconds(12)) { await !folder.lane.isRunning }, "it ended before the deletion did")
            folder.place.hold(false)
            #expect(await eventually { listFolder(folder.place.files).isEmpty }, "\(listFolder(folder.place.files))")
            #expect(await eventually { await !folder.lane.isRunning }, "it stays after the deletion")
            #expect(await folder.lane.end(SIGTERM).status == 0)
        }

        @Test func `has an answer to Remove in time, although the deletion of its archive hangs`() async throws {
            let folder = try await SlowFolder()
            await folder.lane.end(SIGTERM)
            try await folder.start(holding: ".part")
            folder.place.hold(true)
            defer { folder.place.hold(false) }
            let path = try await folder.finish()
            #expect(await eventually { folder.place.held == 1 }, "the archive is not being deleted")
            var refusal = "none"
            do { try await folder.remove(path) } catch { refusal = "\(error)" }
            #expect(refusal.contains("did not answer within 10 seconds"), "\(refusal)")
            folder.place.hold(false)
            #expect(await eventually { listFolder(folder.place.files).isEmpty }, "\(listFolder(folder.place.files))")
            await folder.lane.end(SIGTERM)
        }

        @Test func `whose deletion is interrupted by a kill is deleted by the next process`() async throws {
            let folder = try await SlowFolder()
            let path = try await folder.unpack()
            folder.place.hold(true)
            try await folder.remove(path)
            #expect(await eventually { folder.place.held == 1 })
            await folder.lane.end(SIGKILL)
            folder.place.hold(false)
            #expect(listFolder(folder.place.files).map(SlowFolder.isLeftover) == [true], "\(listFolder(folder.place.files))")
            try await folder.start()
            #expect(await eventually { listFolder(folder.place.files).isEmpty }, "\(listFolder(folder.place.files))")
            #expect(try await folder.lane.describe().isEmpty)
            await folder.lane.end(SIGTERM)
        }
    }
}

extension `The fault campaign` {
    @Suite struct `A file that is deleted slowly` {
        @Test func `is deleted, and Remove answers, before a service that is told to end has gone`() async throws {
            #expect(try await inTime { try await removeBeforeEnd() }, "each time, the deletion was released too late")
        }

        /// - Returns: false: the service may have given up the deletion before the test released it. The service waits at most 5 s.
        private func removeBeforeEnd() async throws -> Bool {
            let place = Place()
            let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
            let lane = try await Lane(try await Shim.compiled())
            let ending = await lane.start(place, more: ["FAULTSHIM_HOLD_DELETION": "slow.bin"])
            try #require(ending == nil, "\(ending?.errors ?? "")")
            let options: [String: Variant] = ["directory": .string(place.files), "notify": .string("never")]
            let path = try await lane.download(server.url("/slow.bin"), options)
            #expect(try await lane.settle([path])[path.value]?.state == "finished")
            place.hold(true)
            let begun = ContinuousClock.now
            async let removed: Void = lane.connection.call(
                Download.remove, on: BusName.service, at: path, true, timeout: .seconds(60))
            #expect(await eventually { place.held == 1 })
            let hasLeft = await lane.leaves(within: .seconds(1))
            place.hold(false)
            guard ContinuousClock.now - begun < .seconds(4) else {
                _ = try? await removed
                await lane.end(SIGKILL)
                return false
            }
            #expect(!hasLeft, "it left before the deletion")
            try await removed
            #expect(listFolder(place.files).isEmpty, "\(listFolder(place.files))")
            #expect(await lane.end(SIGTERM).status == 0)
            return true
        }
    }
}

@BusActor private final class SlowFolder {
    let lane: Lane
    let place = Place()
    /// The server answers the download of `beginActive` when this gate opens.
    let gate = Gate()
    private let server: ScriptedServer

    /// Starts a service.
    init() async throws {
        lane = try await Lane(try await Shim.compiled())
        let folder = TemporaryFolder("todoku-shelf")
        folder.makeFolder("tree")
        for number in 0..<20 { writeFile(folder("tree/\(number)"), "hello".utf8) }
        let packing = await Child.run(["tar", "-C", folder("tree"), "-czf", folder("tree.tar.gz"), "."])
        #expect(packing.status == 0, "\(packing.errors)")
        let archive = try #require(readFile(folder("tree.tar.gz")))
        server = ScriptedServer { [gate] request, reply in
            if request.path == "/active" { gate.wait() }
            reply.serve(archive, for: request, entityTag: "\"1\"")
        }
        try await start()
    }

    /// Starts a service whose deletion of one file, whose name ends with `end`, waits while `place` holds it. With nothing to do, the
    /// service ends after `idleExit` seconds.
    func start(holding end: String = "13", idleExit: Int = 3600) async throws {
        let ending = await lane.start(place, more: ["FAULTSHIM_HOLD_DELETION": end], idleExit: idleExit)
        try #require(ending == nil, "\(ending?.errors ?? "")")
    }

    /// Adds a download that stays active, also in the next service.
    func beginActive() async throws -> ObjectPath {
        let other = place.folder.makeFolder("other")
        return try await lane.download(server.url("/active"), ["directory": .string(other), "notify": .string("never")])
    }

    /// Returns the download, which is finished.
    func finish() async throws -> ObjectPath {
        let options: [String: Variant] = ["directory": .string(place.files), "notify": .string("never"), "extract": .bool(true)]
        let path = try await lane.download(server.url("/tree.tar.gz"), options)
        let end = try await lane.settle([path])[path.value]
        try #require(end?.state == "finished", "\(end?.error.message ?? "gone")")
        return path
    }

    /// Returns the download, whose archive is deleted.
    func unpack() async throws -> ObjectPath {
        let path = try await finish()
        // What belongs to the download is deleted behind its end.
        #expect(await eventually { listFolder(place.files) == ["tree"] }, "\(listFolder(place.files))")
        #expect(listFolder("\(place.files)/tree").count == 20)
        return path
    }

    func remove(_ path: ObjectPath) async throws {
        try await lane.connection.call(Download.remove, on: BusName.service, at: path, true, timeout: .seconds(60))
    }

    /// Whether it is a name that nobody but the service uses: the folder is off its own.
    nonisolated static func isLeftover(_ name: String) -> Bool { name.hasPrefix(".todoku-") }
}
