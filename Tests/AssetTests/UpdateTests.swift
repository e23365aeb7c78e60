internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite(.timeLimit(.minutes(10))) struct `An asset` {
    @Test func `is updated from its manifest to a path that is ready, in the stages of the contract`() async throws {
        let desk = try await Desk.start()
        await desk.publisher.publish("1")
        let asset = try await desk.register()
        #expect(asset == ObjectPath("/org/todoku/Downloader1/asset/org_2eexample_2eApp/maps"))
        #expect(await desk.client.signals.has("AssetAdded"))
        #expect(try await desk.client.get(Asset.stage, at: asset) == "idle")
        #expect(try await desk.client.get(Asset.status, at: asset) == "not-installed")
        let (changed, path) = try await desk.update(asset)
        #expect(changed && path == "\(desk.directory())/current")
        #expect(desk.version(at: path) == "1")
        #expect(readFile("\(path)/parts/7") == Array("part 7 of 1".utf8))
        #expect(await desk.client.signals.has("Ready", at: asset))
        let stages = await desk.stages(asset)
        #expect(stages.first == "checking" && stages.last == "ready", "\(stages)")
        #expect(stages.filter { $0 != "verifying" } == ["checking", "downloading", "extracting", "ready"], "\(stages)")
        let ready = await desk.client.signals.of(asset).compactMap { Asset.ready.read($0.message) }
        #expect(ready.count == 1 && ready.first?.0 == "1" && ready.first?.1 == path)
        #expect(try await desk.client.get(Asset.installedVersion, at: asset) == "1")
        #expect(try await desk.client.get(Asset.latestVersion, at: asset) == "1")
        #expect(try await desk.client.get(Asset.status, at: asset) == "up-to-date")
        #expect(try await desk.client.get(Asset.path, at: asset) == path)
        #expect(await eventually { desk.leftovers(desk.directory()).isEmpty }, "\(listFolder(desk.directory()))")
        #expect(try await eventually { try await desk.client.list().isEmpty })
    }

    @Test func `keeps the version before, deletes older ones, and downloads nothing twice`() async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register()
        var path = ""
        for version in ["1", "2", "3"] {
            await desk.publisher.publish(version)
            path = try await desk.update(asset).1
            #expect(desk.version(at: path) == version)
        }
        #expect(await eventually { listFolder(desk.directory()).count == 3 }, "\(listFolder(desk.directory()))")
        let (changed, _) = try await desk.update(asset)
        #expect(!changed)
        for version in ["1", "2", "3"] { #expect(desk.publisher.requests(for: "/\(version).tar.gz") == 1) }
    }

    @Test func `is checked by a conditional request`() async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register()
        await desk.publisher.publish("1")
        #expect(try await desk.check(asset) == (true, "1"))
        #expect(try await desk.client.get(Asset.status, at: asset) == "not-installed")
        #expect(try await desk.check(asset) == (true, "1"))
        let requests = desk.publisher.server.requests.filter { $0.path == "/m.json" }
        #expect(requests.count == 2 && requests[0].field("If-None-Match") == nil && requests[1].field("If-None-Match") != nil)
        try await desk.update(asset)
        #expect(try await desk.check(asset) == (false, "1"))
        await desk.publisher.publish("2")
        #expect(try await desk.check(asset) == (true, "2"))
        #expect(try await desk.client.get(Asset.status, at: asset) == "update-available")
        #expect(await desk.stages(asset).last == "ready")
    }

    @Test func `whose manifest is behind a redirect has its archive beside the manifest, also after a 304`() async throws {
        let desk = try await Desk.start()
        let target = desk.publisher.url
        let front = ScriptedServer { _, reply in reply.respond(302, ["Location": target]) }
        let asset = try await desk.register(url: front.url("/latest/m.json"))
        await desk.publisher.publish("1")
        #expect(try await desk.check(asset) == (true, "1"))
        #expect(desk.version(at: try await desk.update(asset).1) == "1")
        let conditions = desk.publisher.server.requests.filter { $0.path == "/m.json" }.map { $0.field("If-None-Match") != nil }
        #expect(conditions == [false, true])
        #expect(front.requests.map(\.path) == ["/latest/m.json", "/latest/m.json"])
    }

    /// A 304 would not tell whether a public server has sent the manifest that is kept.
    @Test func `is checked by a plain request once after it was registered with another URL`() async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register()
        await desk.publisher.publish("1")
        #expect(try await desk.check(asset) == (true, "1"))
        for url in [desk.publisher.server.url("/other.json"), desk.publisher.url] { #expect(try await desk.register(url: url) == asset) }
        for _ in 0..<2 { #expect(try await desk.check(asset) == (true, "1")) }
        let conditions = desk.publisher.server.requests.map { $0.field("If-None-Match") != nil }
        #expect(conditions == [false, false, true])
    }

    @Test func `is updated once for several callers`() async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register()
        await desk.publisher.publish("1")
        let gate = desk.publisher.hold("/1.tar.gz")
        async let first = desk.update(asset)
        #expect(await desk.downloads(asset))
        // A call that came after the end of the update would change nothing. The answer to a later call of the same connection says that
        // the service has the second one.
        let second = Task { @BusActor in try await desk.client.call(Asset.update, at: asset, [:]) }
        _ = try await desk.client.get(Asset.stage, at: asset)
        gate.open()
        let answers = try await [first, second.value]
        #expect(answers.allSatisfy { $0.0 && desk.version(at: $0.1) == "1" })
        #expect(desk.publisher.requests(for: "/1.tar.gz") == 1)
    }

    @Test func `is rolled back, and not brought forward before the manifest names another version`() async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register()
        for version in ["1", "2"] {
            await desk.publisher.publish(version)
            try await desk.update(asset)
        }
        let path = try await desk.client.call(Asset.rollback, at: asset, ())
        #expect(desk.version(at: path) == "1")
        #expect(try await desk.update(asset).0 == false && desk.version(at: path) == "1")
        #expect(try await desk.update(asset, force: true).0 && desk.version(at: path) == "2")
        #expect(desk.publisher.requests(for: "/2.tar.gz") == 1)
        let path2 = try await desk.client.call(Asset.rollback, at: asset, ())
        #expect(desk.version(at: path2) == "1")
        await desk.publisher.publish("3")
        try await desk.update(asset)
        #expect(desk.version(at: path) == "3")
        #expect(
            await thrown { try await desk.client.call(Asset.check, at: asset, ["x": .bool(true)]) }?.name == todokuError("InvalidOption"))
    }

    @Test func `has no version before its first to roll back to`() async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register()
        let error = await thrown { try await desk.client.call(Asset.rollback, at: asset, ()) }
        #expect(error?.name == todokuError("InvalidState"), "\(error?.message ?? "")")
    }

    @Test func `may lie in a folder of the app’s own`() async throws {
        let desk = try await Desk.start()
        let folder = desk.running.world.folder
        let asset = try await desk.register("maps", ["directory": .string(folder)])
        await desk.publisher.publish("1")
        let (_, path) = try await desk.update(asset)
        #expect(path == "\(folder)/current" && desk.version(at: path) == "1")
    }

    @Test func `is found again by its app, also after a restart`() async throws {
        let desk = try await Desk.start()
        let assets = [try await desk.register("maps"), try await desk.register("voices")]
        #expect(try await desk.client.call(Manager.assets, Desk.app) == assets)
        #expect(try await desk.client.call(Manager.assets, "") == assets)
        #expect(try await desk.client.call(Manager.assets, "org.example.Other") == [])
        await desk.running.world.kill(desk.running.daemon)
        _ = await desk.running.world.start()
        #expect(try await desk.client.call(Manager.assets, Desk.app) == assets)
        #expect(try await desk.client.get(Asset.app, at: assets[1]) == Desk.app)
        #expect(try await desk.client.get(Asset.name, at: assets[1]) == "voices")
        #expect(try await desk.client.get(Asset.manifestUrl, at: assets[1]) == desk.publisher.url)
    }

    @Test func `is updated with all others of its app by one call`() async throws {
        let desk = try await Desk.start()
        let assets = [try await desk.register("a"), try await desk.register("b")]
        await desk.publisher.publish("1")
        let answer = try await desk.client.call(Manager.updateAssets, (Desk.app, [:]))
        #expect(answer.map { $0.fields.0 } == assets && answer.allSatisfy { $0.fields.1 })
        for name in ["a", "b"] { #expect(desk.version(at: "\(desk.directory(name))/current") == "1") }
        await desk.publisher.publish("2")
        _ = try await desk.client.call(
            Manager.registerAsset, (Desk.app, "b", desk.publisher.server.url("/none.json"), ["notify": .string("never")]))
        let error = await thrown { try await desk.client.call(Manager.updateAssets, (Desk.app, [:])) }
        #expect(error?.name == todokuError("HttpStatus") && error?.message.hasPrefix("1 of 2 assets were not updated. b:") == true)
        #expect(desk.version(at: "\(desk.directory("a"))/current") == "2" && desk.version(at: "\(desk.directory("b"))/current") == "1")
    }

    @Test func `tells how far its download and its unpacking are`() async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register()
        await desk.publisher.publish("1", size: 3_000_000)
        let gate = desk.publisher.hold("/1.tar.gz")
        async let answer = desk.update(asset)
        let hasTold = await desk.client.signals.until { seen in
            seen.contains { Asset.progress.read($0.message).map { $0.0 == "downloading" && $0.1 > 0 && $0.2 > 0 } ?? false }
        }
        gate.open()
        #expect(hasTold)
        _ = try await answer
    }

    @Test(arguments: [true, false]) func `ends with or without its data`(deletesData: Bool) async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register()
        for version in ["1", "2"] {
            await desk.publisher.publish(version)
            try await desk.update(asset)
        }
        try await desk.client.call(Manager.unregisterAsset, (asset, deletesData))
        #expect(await desk.client.signals.has("AssetRemoved"))
        #expect(try await desk.client.call(Manager.assets, "") == [])
        #expect(await thrown { try await desk.check(asset) }?.name == "org.freedesktop.DBus.Error.UnknownObject")
        if deletesData {
            #expect(!fileExists(desk.directory()))
            return
        }
        #expect(listFolder(desk.directory()).count == 2 && desk.version(at: "\(desk.directory())/current") == "2")
        // Registered again, it goes on from there.
        let again = try await desk.register()
        await desk.publisher.publish("3")
        try await desk.update(again)
        #expect(desk.version(at: "\(desk.directory())/current") == "3")
        // Programs may have the version open that the link led to: it stays until the next update but one.
        func has(_ version: String) -> Bool {
            listFolder(desk.directory()).contains { desk.version(at: "\(desk.directory())/\($0)") == version }
        }
        // The archive is deleted after the answer.
        #expect(await eventually { listFolder(desk.directory()).count == 3 }, "\(listFolder(desk.directory()))")
        #expect(has("2") && has("3"))
        await desk.publisher.publish("4")
        try await desk.update(again)
        #expect(await eventually { !has("2") }, "\(listFolder(desk.directory()))")
        #expect(await eventually { listFolder(desk.directory()).count == 3 }, "\(listFolder(desk.directory()))")
        #expect(has("3") && has("4"))
    }

    @Test func `is called for when a version is ready`() async throws {
        let desk = try await Desk.start()
        let owner = "org.example.Owner"
        let standIn = try await StandInOwner(on: desk.running.world.bus.address, owner)
        let asset = try await desk.register("maps", ["activate": .string(owner)])
        await desk.publisher.publish("1")
        let (_, path) = try await desk.update(asset)
        let terms: [Variant] = [.objectPath(asset), .string("1"), .string(path)]
        #expect(await eventually { await standIn.told == ["\([Variant.structure(terms)])"] })
    }

    /// The call about version 1 waits until the owner has answered another call. By then the asset is registered without `activate`, and
    /// version 2 is ready.
    @Test func `is called for after a call that was no longer wanted`() async throws {
        let desk = try await Desk.start()
        let owner = "org.example.Owner"
        let activate: [String: Variant] = ["activate": .string(owner)]
        let standIn = try await StandInOwner(on: desk.running.world.bus.address, owner)
        await standIn.hold()
        await desk.publisher.publish("1")
        let other = try await desk.register("voices", activate)
        let asset = try await desk.register("maps", activate)
        try await desk.update(other)
        #expect(await eventually { await standIn.told.count == 1 })
        try await desk.update(asset)
        _ = try await desk.register("maps")
        await desk.publisher.publish("2")
        try await desk.update(asset)
        // Calls are made in order: when the owner hears of this download, the turn of the call about version 1 is over.
        let path = try await desk.running.download(desk.publisher.url, activate)
        _ = try await desk.client.wait(path)
        await standIn.release()
        #expect(await eventually { await standIn.told.contains("\(path) finished") })

        _ = try await desk.register("maps", activate)
        await desk.publisher.publish("3")
        let (_, folder) = try await desk.update(asset)
        let terms: [Variant] = [.objectPath(asset), .string("3"), .string(folder)]
        #expect(await eventually { await standIn.told.contains("\([Variant.structure(terms)])") })
    }
}

@Suite(.timeLimit(.minutes(10))) struct `An update that cannot succeed` {
    private func failure(_ desk: Desk, _ asset: ObjectPath) async -> DBusError? { await thrown { try await desk.update(asset) } }

    @Test(arguments: [
        (#"{"version": "2"}"#, "“url” is missing"), ("nonsense", "line 1"),
        (#"{"version": "2", "url": "2.tar.gz", "sha256": "12"}"#, "“sha256”"),
    ]) func `because of its manifest says which field is wrong, and the old version stays`(text: String, words: String) async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register()
        await desk.publisher.publish("1")
        let (_, path) = try await desk.update(asset)
        desk.publisher.manifest(text)
        let error = await failure(desk, asset)
        #expect(error?.name == todokuError("Manifest") && error?.message.contains(words) == true, "\(error?.message ?? "")")
        #expect(desk.version(at: path) == "1")
        #expect(try await desk.client.get(Asset.stage, at: asset) == "failed")
        #expect(try await desk.client.get(Asset.error, at: asset).name == todokuError("Manifest"))
        await desk.publisher.publish("2")
        #expect(try await desk.update(asset).0 && desk.version(at: path) == "2")
        #expect(try await desk.client.get(Asset.error, at: asset).name == "")
    }

    @Test func `because the bytes are others leaves nothing of them`() async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register()
        await desk.publisher.publish("1", sha256: String(repeating: "0", count: 64))
        #expect(await failure(desk, asset)?.name == todokuError("ChecksumMismatch"))
        #expect(await eventually { listFolder(desk.directory()).isEmpty }, "\(listFolder(desk.directory()))")
    }

    @Test func `because the archive is none is Extraction, and leaves nothing`() async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register()
        writeFile(desk.publisher.folder("x"), "<!doctype html>".utf8)
        desk.publisher.manifest(#"{"version": "1", "url": "x", "sha256": "\#(await desk.publisher.digest("x"))"}"#)
        let error = await failure(desk, asset)
        #expect(error?.name == todokuError("Extraction") && error?.message.contains("a web page") == true, "\(error?.message ?? "")")
        #expect(await eventually { listFolder(desk.directory()).isEmpty }, "\(listFolder(desk.directory()))")
    }

    @Test func `because the manifest is too long is TooLarge`() async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register()
        desk.publisher.manifest(String(repeating: " ", count: 70_000))
        #expect(await failure(desk, asset)?.name == todokuError("TooLarge"))
    }

    @Test(arguments: [404, 410]) func `because the manifest is gone is obsolete, and keeps what is installed`(status: Int) async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register()
        await desk.publisher.publish("1")
        let (_, path) = try await desk.update(asset)
        desk.publisher.answer("/m.json", with: status)
        #expect(await thrown { try await desk.check(asset) }?.name == todokuError("HttpStatus"))
        #expect(try await desk.client.get(Asset.status, at: asset) == "obsolete")
        #expect(desk.version(at: path) == "1")
        desk.publisher.answer("/m.json", with: nil)
        _ = try await desk.check(asset)
        #expect(try await desk.client.get(Asset.status, at: asset) == "up-to-date")
    }

    @Test func `takes the next mirror`() async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register("maps", ["retries": .uint32(0)])
        await desk.publisher.publish("1", more: #", "mirrors": ["none.tar.gz", "copy.tar.gz"]"#)
        writeFile(desk.publisher.folder("copy.tar.gz"), readFile(desk.publisher.folder("1.tar.gz"))!)
        desk.publisher.answer("/1.tar.gz", with: 500)
        let (_, path) = try await desk.update(asset)
        #expect(desk.version(at: path) == "1")
        #expect(desk.publisher.requests(for: "/none.tar.gz") == 1 && desk.publisher.requests(for: "/copy.tar.gz") == 1)
    }

    @Test func `because it is cancelled leaves nothing, and the next one begins anew`() async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register()
        await desk.publisher.publish("1")
        let gate = desk.publisher.hold("/1.tar.gz")
        async let error = failure(desk, asset)
        #expect(await desk.client.signals.until { seen in seen.contains { Asset.progress.read($0.message) != nil } })
        try await desk.client.call(Asset.cancel, at: asset, ())
        #expect(await error?.name == todokuError("Cancelled"))
        #expect(try await desk.client.get(Asset.stage, at: asset) == "cancelled")
        #expect(await eventually { listFolder(desk.directory()).isEmpty }, "\(listFolder(desk.directory()))")
        gate.open()
        #expect(try await desk.update(asset).0)
        #expect(desk.version(at: "\(desk.directory())/current") == "1")
    }
}

@Suite(.timeLimit(.minutes(10))) struct `An update whose caller has left` {
    @Test func `does not keep the service while it is paused, and continues once it is resumed`() async throws {
        let desk = try await Desk.start()
        let world = desk.running.world
        let asset = try await desk.register()
        await desk.publisher.publish("1")
        let gate = desk.publisher.hold("/1.tar.gz")
        defer { gate.open() }
        _ = await world.stop(desk.running.daemon)
        let daemon = await world.start(["--idle-exit", "30"])
        let caller = Child(
            gdbusCall(asset.value, "\(Asset.interface).Update", [noOptions], timeout: 600), environment: world.environment)
        #expect(await desk.downloads(asset))
        let download = try await desk.client.get(Asset.download, at: asset)
        try await desk.client.pause(download)
        #expect(try await eventually { try await desk.client.get(Asset.status, at: asset) == "paused" })
        caller.signal(SIGKILL)
        #expect(await eventually(within: .seconds(120)) { !daemon.isRunning })
        _ = await world.start()
        gate.open()
        try await desk.client.resume(download)
        #expect(await eventually { desk.version(at: "\(desk.directory())/current") == "1" })
    }
}

@Suite(.timeLimit(.minutes(10))) struct `A call about an asset` {
    /// The work that answers these calls waits for rows, so it waits for room on the disk. The caller does not.
    @Test(.enabled("only root can mount a small disk") { await SmallDisk.isPossible() })
    func `while the disk of the queue is full is refused, and is done once there is room`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let isDone = try await SmallDisk.withDisk(bytes: 4 << 20) { disk in
            let daemon = await world.start(extra: ["XDG_STATE_HOME": disk.path])
            let desk = Desk(running: Running(world: world, daemon: daemon, client: client))
            let (former, checked) = (try await desk.register("former"), try await desk.register("checked"))
            let (leaving, updated) = (try await desk.register("leaving"), try await desk.register("updated"))
            for version in ["1", "2"] {
                await desk.publisher.publish(version)
                try await desk.update(former)
            }
            func version(_ name: String) -> String? { desk.version(at: "\(desk.directory(name))/current") }
            let requests = desk.publisher.requests(for: "/m.json")
            disk.fill(leaving: 0)
            #expect(await client.isRefusedStorage())
            async let rollback = thrown { try await client.call(Asset.rollback, at: former, ()) }
            async let check = thrown { try await client.call(Asset.check, at: checked, [:]) }
            async let unregister = thrown { try await client.call(Manager.unregisterAsset, (leaving, true)) }
            async let update = thrown { try await client.call(Asset.update, at: updated, [:]) }
            let refusals = await [rollback, check, unregister, update].map { $0?.name }
            #expect(refusals == Array(repeating: todokuError("Storage"), count: 4))
            #expect(await thrown { try await client.call(Manager.updateAssets, (Desk.app, [:])) }?.name == todokuError("Storage"))
            #expect(version("former") == "2" && version("updated") == nil && desk.publisher.requests(for: "/m.json") == requests)
            for name in listFolder(disk.path) where name.hasPrefix("filler") { unlink("\(disk.path)/\(name)") }
            #expect(await eventually { version("former") == "1" && version("updated") == "2" && version("checked") == "2" })
            #expect(try await eventually { try await client.call(Manager.assets, Desk.app).count == 3 })
            #expect(try await eventually { try await client.get(Asset.installedVersion, at: former) == "1" })
            #expect(try await desk.check(former) == (false, "2"))
            #expect(await daemon.stop().status == 0)
            return true
        }
        #expect(isDone == true)
    }
}

@Suite(.timeLimit(.minutes(10))) struct `A signed manifest` {
    /// Makes a key; returns its public half.
    private func makeKey(_ folder: TemporaryFolder) async -> [UInt8] {
        let made = await Child.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", folder("key.pem")])
        #expect(made.status == 0, "\(made.errors)")
        let shown = await Child.run(["openssl", "pkey", "-in", folder("key.pem"), "-pubout", "-outform", "DER", "-out", folder("key.der")])
        #expect(shown.status == 0, "\(shown.errors)")
        return Array((readFile(folder("key.der")) ?? []).suffix(32))
    }

    private func sign(_ folder: TemporaryFolder) async {
        let signed = await Child.run(
            ["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", folder("key.pem"), "-in", folder("m.json"), "-out", folder("m.json.sig")])
        #expect(signed.status == 0, "\(signed.errors)")
    }

    @Test func `is used only with the signature of its bytes by the key that was registered`() async throws {
        let desk = try await Desk.start()
        let folder = desk.publisher.folder
        let key = await makeKey(folder)
        let asset = try await desk.register("maps", ["public-key": .array(of: "y", key.map { .byte($0) })])
        await desk.publisher.publish("1")
        let missing = await thrown { try await desk.update(asset) }
        #expect(missing?.name == todokuError("Signature"), "\(missing?.message ?? "")")
        await sign(folder)
        let (_, path) = try await desk.update(asset)
        #expect(desk.version(at: path) == "1")
        await desk.publisher.publish("2")  // the signature is still that of version 1
        let wrong = await thrown { try await desk.update(asset) }
        #expect(wrong?.name == todokuError("Signature"), "\(wrong?.message ?? "")")
        #expect(desk.version(at: path) == "1" && desk.publisher.requests(for: "/2.tar.gz") == 0)
        await sign(folder)
        #expect(try await desk.update(asset).0 && desk.version(at: path) == "2")
    }
}

@Suite(.timeLimit(.minutes(10))) struct `A registration` {
    @Test(
        arguments: [
            ("", "maps", [:], "InvalidOption"), (Desk.app, "../x", [:], "InvalidOption"),
            (Desk.app, "maps", ["what": .bool(true)], "InvalidOption"),
            (Desk.app, "maps", ["filename": .string("a")], "InvalidOption"),
            (Desk.app, "maps", ["update": .string("hourly")], "InvalidOption"),
            (Desk.app, "maps", ["update": .bool(true)], "InvalidOption"), (Desk.app, "maps", ["public-key": .string("x")], "InvalidOption"),
            (Desk.app, "maps", ["public-key": .array(of: "y", [.byte(1)])], "InvalidOption"),
            (Desk.app, "maps", ["directory": .string("/nowhere")], "InvalidOption"),
        ] as [(String, String, [String: Variant], String)])
    func `is refused if anything in it is wrong`(app: String, name: String, options: [String: Variant], error: String) async throws {
        let desk = try await Desk.start()
        let refused = await thrown {
            try await desk.client.call(Manager.registerAsset, (app, name, "https://h/m.json", options))
        }
        #expect(refused?.name == todokuError(error), "\(refused?.message ?? "")")
        #expect(try await desk.client.call(Manager.assets, "") == [])
    }

    @Test func `of a URL that is none is refused`() async throws {
        let desk = try await Desk.start()
        #expect(await thrown { try await desk.register(url: "ftp://h/x") }?.name == todokuError("UnsupportedScheme"))
        #expect(await thrown { try await desk.register(url: "x") }?.name == todokuError("InvalidUrl"))
    }

    @Test(arguments: ["release-5", "version-2", "Documents"])
    func `refuses a folder whose link is not of an asset, and touches nothing there`(target: String) async throws {
        let desk = try await Desk.start()
        let folder = desk.running.world.bus.folder.makeFolder("site")
        writeFile("\(desk.running.world.bus.folder.makeFolder("site/\(target)"))/page", "mine".utf8)
        #expect(symlink(target, "\(folder)/current") == 0)
        let error = await thrown { try await desk.register("maps", ["directory": .string(folder)]) }
        #expect(error?.name == todokuError("AlreadyExists") && error?.message.contains("/current leads to ") == true, "\(error as Any)")
        #expect(try await desk.client.call(Manager.assets, Desk.app).isEmpty)
        #expect(readFile("\(folder)/current/page") == Array("mine".utf8))
    }

    @Test func `refuses a folder of another asset under another path`() async throws {
        let desk = try await Desk.start()
        let folder = desk.running.world.bus.folder.makeFolder("data-of-one")
        await desk.publisher.publish("1")
        let (_, path) = try await desk.update(try await desk.register("one", ["directory": .string(folder)]))
        let alias = desk.running.world.bus.folder("alias")
        #expect(symlink(folder, alias) == 0)
        #expect(await thrown { try await desk.register("two", ["directory": .string(alias)]) } != nil)
        #expect(desk.version(at: path) == "1")
    }

    @Test func `refuses an app’s hundred-and-first asset, also while the others are being registered`() async throws {
        let desk = try await Desk.start()
        let refused = await withTaskGroup(of: DBusError?.self) { group in
            for number in 0...100 {
                group.addTask { await thrown { try await desk.register("maps-\(number)") } }
            }
            return await group.reduce(into: [DBusError]()) { if let error = $1 { $0.append(error) } }
        }
        #expect(refused.map(\.name) == [todokuError("LimitExceeded")], "\(refused)")
        #expect(try await desk.client.call(Manager.assets, Desk.app).count == 100)
    }

    @Test func `may be repeated with other options, and not with another folder`() async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register()
        #expect(try await desk.register("maps", [:], url: "https://h/other.json") == asset)
        #expect(try await desk.client.get(Asset.manifestUrl, at: asset) == "https://h/other.json")
        let error = await thrown { try await desk.register("maps", ["directory": .string(desk.running.world.folder)]) }
        #expect(error?.name == todokuError("AlreadyExists"))
    }

    @Test func `shows no credentials, and sends them to the manifest’s server only`() async throws {
        let desk = try await Desk.start()
        let other = Publisher()
        _ = await other.archive("1")
        let digest = await other.digest("1.tar.gz")
        desk.publisher.manifest(#"{"version": "1", "url": "\#(other.server.otherURL("/1.tar.gz"))", "sha256": "\#(digest)"}"#)
        let url = desk.publisher.url.replacing("http://", with: "http://me:secret@") + "?token=hidden"
        let asset = try await desk.register("maps", ["headers": .dictionary([("X-Key", "k")])], url: url)
        #expect(try await desk.client.get(Asset.manifestUrl, at: asset) == desk.publisher.url)
        try await desk.update(asset)
        let manifest = try #require(desk.publisher.server.requests.first)
        #expect(manifest.field("X-Key") == "k")
        let archive = try #require(other.server.requests.first)
        #expect(archive.field("Authorization") == nil && archive.field("X-Key") == nil)
    }
}
