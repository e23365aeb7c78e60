internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite(.timeLimit(.minutes(10))) struct `The download of an asset` {
    /// The values of `Download` as announced.
    private func told(_ desk: Desk, _ asset: ObjectPath) async -> [String] {
        await desk.client.signals.of(asset).compactMap { $0.changed?[Asset.download.name] }.compactMap { ObjectPath($0)?.value }
    }

    @Test func `is named while it is there: of the manifest, then of the archive`() async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register()
        #expect(try await desk.client.get(Asset.download, at: asset) == ObjectPath("/"))
        await desk.publisher.publish("1")
        let gate = desk.publisher.hold("/1.tar.gz")
        async let answer = desk.update(asset)
        #expect(
            await desk.client.signals.until { seen in
                seen.contains { Asset.progress.read($0.message).map { $0.0 == "downloading" && $0.1 > 0 } ?? false }
            })
        let download = try await desk.client.get(Asset.download, at: asset)
        let name = try await desk.client.get(Download.fileName, at: download)
        #expect(name.hasPrefix("version-") && name.hasSuffix(".archive"), "\(name)")
        #expect(try await desk.client.get(Download.received, at: download) > 0)
        // Whoever pauses it pauses the update.
        try await desk.client.pause(download)
        #expect(try await eventually { try await desk.client.get(Asset.status, at: asset) == "paused" })
        try await desk.client.resume(download)
        gate.open()
        #expect(try await answer.0)
        #expect(try await eventually { try await desk.client.get(Asset.download, at: asset) == ObjectPath("/") })
        let told = await told(desk, asset)
        #expect(told.count >= 3 && told[0] != "/" && told[0] != download.value && told.contains(download.value), "\(told)")
        #expect(await eventually { await self.told(desk, asset).last == "/" })
    }

    @Test(arguments: [1, 2] as [UInt32]) func `uses as many connections as the asset says`(connections: UInt32) async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register("maps", ["connections": .uint32(connections)])
        // Of a file of less than 8 MiB, a download without the option never asks for a part.
        await desk.publisher.publish("1", size: 8_000_000, count: 1)
        let gate = desk.publisher.hold("/1.tar.gz")
        defer { gate.open() }
        async let answer = desk.update(asset)
        #expect(await eventually { desk.publisher.requests(for: "/1.tar.gz") >= Int(connections) })
        gate.open()
        #expect(try await answer.0)
        if connections == 1 { #expect(desk.publisher.requests(for: "/1.tar.gz") == 1) }
    }

    @Test func `may not have more connections than any download`() async throws {
        let desk = try await Desk.start()
        let refusal = await thrown { try await desk.register("maps", ["connections": .uint32(17)]) }
        #expect(refusal?.name == todokuError("InvalidOption"))
        #expect(refusal?.message.contains("connections") == true, "\(refusal?.message ?? "")")
    }

    @Test func `stays named after it has failed`() async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register("maps", ["retries": .uint32(0)])
        await desk.publisher.publish("1")
        desk.publisher.answer("/1.tar.gz", with: 404)
        #expect(await thrown { try await desk.update(asset) }?.name == todokuError("HttpStatus"))
        let download = try await desk.client.get(Asset.download, at: asset)
        #expect(try await desk.client.get(Download.state, at: download) == "failed")
    }

    @Test(.enabled("only root can mount a small disk") { await SmallDisk.isPossible() })
    func `that is retried before its failure is on disk continues with its bytes`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let isDone = try await SmallDisk.withDisk(bytes: 4 << 20) { disk in
            let daemon = await world.start(extra: ["XDG_STATE_HOME": disk.path])
            let desk = Desk(running: Running(world: world, daemon: daemon, client: client))
            let asset = try await desk.register("maps", ["retries": .uint32(0)])
            await desk.publisher.publish("1")
            let gate = desk.publisher.hold("/1.tar.gz")
            defer { gate.open() }
            async let update = desk.update(asset)
            #expect(await desk.downloads(asset))
            let download = try await client.get(Asset.download, at: asset)
            disk.fill(leaving: 0)
            #expect(await client.isRefusedStorage())
            // The connection is lost, and the next request is refused.
            desk.publisher.answer("/1.tar.gz", with: 404)
            gate.open()
            #expect(try await eventually { try await client.get(Download.state, at: download) == "failed" })
            desk.publisher.answer("/1.tar.gz", with: nil)
            #expect(await thrown { try await client.retry(download) }?.name == todokuError("Storage"))
            #expect(try await client.get(Download.state, at: download) != "failed")
            for name in listFolder(disk.path) where name.hasPrefix("filler") { unlink("\(disk.path)/\(name)") }
            #expect(try await update.0)
            let requests = desk.publisher.server.requests.filter { Publisher.path(of: $0) == "/1.tar.gz" }
            #expect(requests.count == 3 && requests.last?.range != nil, "\(requests.map(\.range))")
            return true
        }
        #expect(isDone == true)
    }

    @Test func `into a hidden folder waits for room, and does not ask the server at each check of the folder`() async throws {
        let home = TemporaryFolder()
        let desk = Desk(running: try await Running.start(extra: ["XDG_DATA_HOME": home.makeFolder(".data")]))
        let (client, archive) = (desk.client, "/1.tar.gz")
        func reason(_ download: ObjectPath) async throws -> String { try await client.get(Download.waitReason, at: download) }
        await desk.publisher.publish("1")
        desk.publisher.answer(archive, with: 503)
        let asset = try await desk.register()
        async let answer = desk.update(asset)
        #expect(await eventually { desk.publisher.requests(for: archive) > 0 })
        let download = try await client.get(Asset.download, at: asset)
        try await client.set(Manager.diskReserve, .max)
        desk.publisher.answer(archive, with: nil)
        #expect(try await eventually { try await reason(download) == "disk-space" })
        let requests = desk.publisher.requests(for: archive)
        // Each check looks at all folders. Once the second folder is found, at least one check of the asset's folder has ended.
        for name in ["once", "twice"] {
            let folder = desk.running.world.bus.folder.makeFolder(name)
            let other = try await desk.running.download(desk.publisher.url, ["directory": .string(folder), "start": .bool(false)])
            #expect(rmdir(folder) == 0)
            try await client.resume(other)
            #expect(try await eventually { try await reason(other) == "destination" })
            #expect(mkdir(folder, 0o755) == 0)
            #expect(try await eventually { try await reason(other) == "disk-space" })
        }
        #expect(try await reason(download) == "disk-space")
        #expect(desk.publisher.requests(for: archive) == requests)
        try await client.set(Manager.diskReserve, 0)
        #expect(try await answer.0)
        #expect(desk.publisher.requests(for: archive) == requests + 1)
    }

    @Test(.enabled("only root can mount a small disk") { await SmallDisk.isPossible() })
    func `from a mirror needs no room beside the bytes of the source that has failed`() async throws {
        let isDone = try await SmallDisk.withDisk(bytes: 4 << 20) { disk in
            let desk = try await Desk.start()
            let client = desk.client
            try await client.set(Manager.diskReserve, 0)
            let asset = try await desk.register("maps", ["retries": .uint32(0), "directory": .string(disk.path)])
            // The archive and its files need 3.8 MB, and the disk has 4.2 MB.
            let name = await desk.publisher.archive("1", size: 1_900_000, count: 1)
            let digest = await desk.publisher.digest(name)
            let bytes = try #require(readFile(desk.publisher.folder(name)))
            writeFile(desk.publisher.folder("mirror.tar.gz"), bytes)
            let sizes = #""size": \#(bytes.count), "unpacked-size": 1900100"#
            desk.publisher.manifest(
                #"{"version": "1", "url": "\#(name)", "sha256": "\#(digest)", \#(sizes), "mirrors": ["mirror.tar.gz"]}"#)
            let gate = desk.publisher.hold("/\(name)")
            defer { gate.open() }
            async let update = desk.update(asset)
            #expect(await desk.downloads(asset))
            let download = try await client.get(Asset.download, at: asset)
            #expect(try await eventually { try await client.get(Download.received, at: download) >= 900_000 })
            // The connection is lost, and the next request is refused.
            desk.publisher.answer("/\(name)", with: 404)
            gate.open()
            #expect(try await update.0)
            #expect(desk.publisher.requests(for: "/mirror.tar.gz") == 1 && desk.version(at: "\(disk.path)/current") == "1")
            return true
        }
        #expect(isDone == true)
    }

    @Test(.enabled("only root can mount a small disk") { await SmallDisk.isPossible() })
    func `needs no room beside the bytes of an earlier version, which are being deleted`() async throws {
        let isDone = try await SmallDisk.withDisk(bytes: 4 << 20) { disk in
            let desk = try await Desk.start()
            let client = desk.client
            try await client.set(Manager.diskReserve, 0)
            let asset = try await desk.register("maps", ["retries": .uint32(0), "directory": .string(disk.path)])
            // The archive and its files need 3.8 MB, and the disk has 4.2 MB.
            func publish(_ version: String) async {
                await desk.publisher.publish(version, size: 1_900_000, count: 1, more: #", "unpacked-size": 1900100"#)
            }
            await publish("1")
            let gate = desk.publisher.hold("/1.tar.gz")
            defer { gate.open() }
            async let failure = thrown { try await desk.update(asset) }
            #expect(await desk.downloads(asset))
            let download = try await client.get(Asset.download, at: asset)
            #expect(try await eventually { try await client.get(Download.received, at: download) >= 900_000 })
            // The connection is lost, and the next request is refused.
            desk.publisher.answer("/1.tar.gz", with: 404)
            gate.open()
            #expect(await failure?.name == todokuError("HttpStatus"))
            let part = try #require(listFolder(disk.path).first { $0.hasSuffix(".part") })
            await publish("2")
            let next = desk.publisher.hold("/2.tar.gz")
            defer { next.open() }
            async let update = desk.update(asset)
            #expect(await eventually { desk.publisher.requests(for: "/2.tar.gz") == 1 && !fileExists("\(disk.path)/\(part)") })
            next.open()
            #expect(try await update.0)
            #expect(desk.version(at: "\(disk.path)/current") == "2")
            return true
        }
        #expect(isDone == true)
    }

    @Test(arguments: [false, true]) func `makes the default folder again that somebody has deleted`(restarts: Bool) async throws {
        let desk = try await Desk.start()
        let (world, archive) = (desk.running.world, "/1.tar.gz")
        await desk.publisher.publish("1")
        desk.publisher.answer(archive, with: 503)
        let asset = try await desk.register()
        async let failure = thrown { try await desk.update(asset) }
        #expect(await eventually { desk.publisher.requests(for: archive) > 0 })
        if restarts { await world.kill(desk.running.daemon) }
        // A retry may make a folder again while rm is deleting.
        #expect(await eventually { await Child.run(["rm", "-r", world.bus.folder("data/todoku/assets")]).status == 0 })
        desk.publisher.answer(archive, with: nil)
        if restarts { _ = await world.start() }
        #expect(await failure == nil || restarts)
        #expect(await eventually(within: .seconds(180)) { desk.version(at: "\(desk.directory())/current") == "1" })
    }

    @Test(arguments: [true, false]) func `succeeds once its manifest names the right size and URL`(isSizeWrong: Bool) async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register("maps", ["retries": .uint32(0)])
        let name = await desk.publisher.archive("1")
        let digest = await desk.publisher.digest(name)
        let size = try #require(readFile(desk.publisher.folder(name))).count
        // A page in place of the archive, with the status 200.
        writeFile(desk.publisher.folder("moved.html"), "<h1>Not found</h1>".utf8)
        func publish(_ url: String, _ size: Int) {
            desk.publisher.manifest(#"{"version": "1", "url": "\#(url)", "sha256": "\#(digest)", "size": \#(size)}"#)
        }
        publish(isSizeWrong ? name : "moved.html", isSizeWrong ? size + 1 : size)
        #expect(await thrown { try await desk.update(asset) }?.name == todokuError("SizeMismatch"))
        publish(name, size)
        #expect(try await desk.update(asset).0)
        #expect(desk.version(at: "\(desk.directory())/current") == "1")
    }

    @Test func `that failed continues with its bytes, at the URL and with the header fields of now`() async throws {
        let desk = try await Desk.start()
        func register(_ key: String) async throws -> ObjectPath {
            try await desk.register("maps", ["retries": .uint32(0), "headers": .dictionary([("X-Key", key)])])
        }
        let asset = try await register("old")
        await desk.publisher.publish("1", size: 2_000_000)
        let gate = desk.publisher.hold("/1.tar.gz")
        defer { gate.open() }
        async let failed = thrown { try await desk.update(asset) }
        #expect(await desk.downloads(asset))
        // The connection is lost, and the next request is refused.
        desk.publisher.answer("/1.tar.gz", with: 404)
        gate.open()
        #expect(await failed?.name == todokuError("HttpStatus"))
        let requests = desk.publisher.requests(for: "/1.tar.gz")
        writeFile(desk.publisher.folder("moved.tar.gz"), try #require(readFile(desk.publisher.folder("1.tar.gz"))))
        let manifest = String(decoding: try #require(readFile(desk.publisher.folder("m.json"))), as: UTF8.self)
        desk.publisher.manifest(manifest.replacing("1.tar.gz", with: "moved.tar.gz"))
        #expect(try await register("new") == asset)
        #expect(try await desk.update(asset).0)
        let moved = desk.publisher.server.requests.filter { $0.path == "/moved.tar.gz" }
        #expect(moved.first?.range.map { $0.first > 0 } ?? false, "\(moved.map(\.range))")
        #expect(!moved.isEmpty && moved.allSatisfy { $0.field("X-Key") == "new" })
        #expect(desk.publisher.requests(for: "/1.tar.gz") == requests, "the former URL is not asked again")
    }

    @Test func `that failed is retried through the proxy of now`() async throws {
        let (desk, former) = (try await Desk.start(), Publisher())
        await desk.publisher.publish("1")
        former.manifest(String(decoding: try #require(readFile(desk.publisher.folder("m.json"))), as: UTF8.self))
        former.answer("/1.tar.gz", with: 500)
        func register(_ proxy: Publisher) async throws -> ObjectPath {
            let options: [String: Variant] = ["retries": .uint32(0), "proxy": .string("http://127.0.0.1:\(proxy.server.port)")]
            return try await desk.register("maps", options, url: "http://maps.example/m.json")
        }
        let asset = try await register(former)
        #expect(await thrown { try await desk.update(asset) }?.name == todokuError("HttpStatus"))
        #expect(try await register(desk.publisher) == asset)
        #expect(try await desk.update(asset).0)
        #expect(former.requests(for: "/1.tar.gz") == 1)
        #expect(desk.version(at: "\(desk.directory())/current") == "1")
    }

    @Test func `is told up to its last byte, before the next stage, and so is the extraction`() async throws {
        let desk = try await Desk.start()
        await desk.publisher.publish("1")
        let asset = try await desk.register()
        try await desk.update(asset)
        #expect(await desk.client.signals.has("Ready", at: asset))
        let size = try #require(readFile(desk.publisher.folder("1.tar.gz"))).count
        var (stage, last) = ("", [String: UInt64]())
        for signal in await desk.client.signals.of(asset) {
            if let next = Asset.stageChanged.read(signal.message) { stage = next }
            guard let (told, done, total) = Asset.progress.read(signal.message) else { continue }
            #expect(told == stage && total == Int64(size))
            last[told] = done
        }
        // The library that unpacks need not read the archive's last bytes.
        #expect(last["downloading"] == UInt64(size) && last["extracting"].map { $0 > 0 } == true, "\(last)")
    }

    @Test func `that begins anew after its verification is downloading again, and tells how far it is`() async throws {
        let desk = try await Desk.start()
        let (client, archive) = (desk.client, "/1.tar.gz")
        let asset = try await desk.register()
        await desk.publisher.publish("1")
        let gate = desk.publisher.hold(archive)
        defer { gate.open() }
        async let failure = thrown { try await desk.update(asset) }
        #expect(await desk.downloads(asset))
        let download = try await client.get(Asset.download, at: asset)
        try await client.pause(download)
        #expect(try await eventually { try await client.get(Asset.status, at: asset) == "paused" })
        // From now on, the end of the file is another one. These two bytes leave the entity tag of the publisher as it is, so the bytes of
        // both responses are joined. Their digest is wrong, and the download begins anew.
        let right = try #require(readFile(desk.publisher.folder("1.tar.gz")))
        let found = right.indices.dropLast().last { right[$0] < 255 && right[$0 + 1] >= 31 }
        let place = try #require(found)
        var wrong = right
        wrong[place] += 1
        wrong[place + 1] -= 31
        writeFile(desk.publisher.folder("1.tar.gz"), wrong)
        try await client.resume(download)
        #expect(await eventually { desk.publisher.requests(for: archive) == 3 })
        #expect(try await eventually { try await client.get(Asset.stage, at: asset) == "downloading" })
        await client.signals.forget()
        #expect(await desk.downloads(asset))
        gate.open()
        #expect(await failure?.name == todokuError("ChecksumMismatch"))
        let ranges = desk.publisher.server.requests.filter { $0.path == archive }.map(\.range)
        #expect(ranges.count == 3 && ranges[1] != nil && ranges[2] == nil, "\(ranges)")
    }

    @Test func `goes through the proxy of the asset, with its credentials, also to another server than the manifest's`() async throws {
        let desk = try await Desk.start()
        let name = await desk.publisher.archive("1")
        let digest = await desk.publisher.digest(name)
        desk.publisher.manifest(#"{"version": "1", "url": "http://archive.example/\#(name)", "sha256": "\#(digest)"}"#)
        let proxy = "http://me:p%40w@127.0.0.1:\(desk.publisher.server.port)"
        let options: [String: Variant] = ["proxy": .string(proxy), "headers": .dictionary([("X-Key", "k")])]
        let asset = try await desk.register("maps", options, url: "http://maps.example/m.json")
        #expect(desk.version(at: try await desk.update(asset).1) == "1")
        let requests = desk.publisher.server.requests
        #expect(requests.map(\.target) == ["http://maps.example/m.json", "http://archive.example/1.tar.gz"])
        #expect(requests.allSatisfy { $0.field("Proxy-Authorization") == "Basic bWU6cEB3" })
        #expect(requests.map { $0.field("X-Key") } == ["k", nil])
    }

    @Test func `has the cookies of the asset that are for its host`() async throws {
        let (desk, other) = (try await Desk.start(), Publisher())
        let name = await other.archive("1")
        let digest = await other.digest(name)
        desk.publisher.manifest(#"{"version": "1", "url": "\#(other.server.otherURL("/\(name)"))", "sha256": "\#(digest)"}"#)
        let cookies = [("127.0.0.1", "own"), ("localhost", "there")].map { "\($0)\tFALSE\t/\tFALSE\t4102444800\t\($1)\t1" }
        let asset = try await desk.register("maps", ["cookies": .strings(cookies)])
        #expect(try await desk.update(asset).0)
        #expect(desk.publisher.server.requests.map { $0.field("Cookie") } == ["own=1"])
        #expect(other.server.requests.map { $0.field("Cookie") } == ["there=1"])
    }
}
