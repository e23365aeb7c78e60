internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite(.timeLimit(.minutes(10))) struct `An update that is killed` {
    /// Kills the service at `stage` of the update from version 1 to version 2, and looks what the next one makes of it.
    @Test(arguments: ["checking", "downloading", "extracting", "ready"])
    func `leads to the old version or to the new one, and the next service goes on`(stage: String) async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register()
        await desk.publisher.publish("1")
        let (_, path) = try await desk.update(asset)
        await desk.publisher.publish("2", size: 4_000_000, count: 400)
        await desk.client.signals.forget()
        let gate = desk.publisher.hold("/2.tar.gz")
        if stage != "downloading" { gate.open() }
        let client = desk.client
        let call = Task { try? await desk.update(asset) }
        let hasCome = await client.signals.until { seen in
            seen.contains { seen in
                stage == "downloading"
                    ? Asset.progress.read(seen.message).map { $0.1 > 0 } ?? false : Asset.stageChanged.read(seen.message) == stage
            }
        }
        #expect(hasCome)
        if stage == "downloading" {
            // A kill may cost 1 MiB. So the half that the server sends, of more than 2 MB, must have come before.
            let download = try await client.get(Asset.download, at: asset)
            #expect(try await eventually { try await client.get(Download.received, at: download) >= 2_000_000 })
        }
        await desk.running.world.kill(desk.running.daemon)
        _ = await call.value
        let between = desk.version(at: path)
        #expect(between == "1" || between == "2", "\(between ?? "nothing")")
        #expect(readFile("\(path)/parts/3") == Array("part 3 of \(between ?? "")".utf8))
        gate.open()
        _ = await desk.running.world.start()
        _ = try await desk.update(asset)
        #expect(desk.version(at: path) == "2" && readFile("\(path)/parts/399") == Array("part 399 of 2".utf8))
        #expect(try await client.get(Asset.installedVersion, at: asset) == "2")
        #expect(
            await eventually { listFolder(desk.directory()).count == 3 && desk.leftovers(desk.directory()).isEmpty },
            "\(listFolder(desk.directory()))")
        #expect(try await eventually { try await client.list().isEmpty })
        if stage == "downloading" {
            // What had come is not fetched again.
            let ranges = desk.publisher.server.requests.filter { $0.path == "/2.tar.gz" }.compactMap(\.range)
            #expect(ranges.first.map { $0.first > 0 } ?? false, "\(desk.publisher.server.requests.map(\.path))")
        }
    }

    @Test func `keeps the archive that it was unpacking from a disk that is away`() async throws {
        let desk = try await Desk.start()
        let (asset, folder, version) = try await failedWithoutDisk(desk)
        _ = try await desk.update(asset)
        #expect(desk.version(at: "\(folder)/current") == version)
        #expect(desk.publisher.requests(for: "/\(version).tar.gz") == 1)
    }

    @Test(arguments: [true, false]) func `downloads the archive again that another program has changed`(isCut: Bool) async throws {
        let desk = try await Desk.start()
        let (asset, folder, version) = try await failedWithoutDisk(desk)
        let archive = "\(folder)/\(try #require(listFolder(folder).first { $0.hasSuffix(".archive") }))"
        let bytes = try #require(readFile(archive))
        writeFile(archive, isCut ? Array(bytes[..<(bytes.count / 2)]) : Array("<!doctype html>".utf8))
        let (isChanged, path) = try await desk.update(asset)
        #expect(isChanged && desk.version(at: path) == version)
        #expect(readFile("\(path)/data.bin")?.count == 8_000_000 && listFolder("\(path)/parts").count == 3000)
        #expect(
            await eventually { desk.leftovers(folder).isEmpty && !listFolder(folder).contains { $0.hasSuffix(".archive") } },
            "\(listFolder(folder))")
    }

    /// Kills the service while it unpacks an update, and starts it while the disk is away. So the update fails, and leaves its archive to
    /// the next one. At the end the disk is back.
    ///
    /// - Returns: the asset, its folder on that disk, and the version that was not unpacked to its end.
    private func failedWithoutDisk(_ desk: Desk) async throws -> (asset: ObjectPath, folder: String, version: String) {
        let (folder, away) = (desk.running.world.bus.folder.makeFolder("disk"), desk.running.world.bus.folder("away"))
        let asset = try await desk.register("maps", ["directory": .string(folder)])
        let version = try #require(await killedUnpacking(desk, asset, into: folder))
        #expect(rename(folder, away) == 0)
        _ = await desk.running.world.start()
        let client = desk.client
        #expect(try await eventually { try await client.get(Asset.stage, at: asset) == "failed" })
        #expect(rename(away, folder) == 0)
        return (asset, folder, version)
    }

    /// Updates, and kills the service while it unpacks. On a busy machine a kill may come after the unpacking. Then the next version is
    /// tried.
    ///
    /// - Returns: the version that was not unpacked to its end. The service does not run.
    private func killedUnpacking(_ desk: Desk, _ asset: ObjectPath, into folder: String) async throws -> String? {
        var daemon = desk.running.daemon
        for version in (1...20).map(String.init) {
            await desk.publisher.publish(version, size: 8_000_000, count: 3000)
            await desk.client.signals.forget()
            let call = Task { try? await desk.update(asset) }
            #expect(await desk.client.signals.until { $0.contains { Asset.stageChanged.read($0.message) == "extracting" } })
            await desk.running.world.kill(daemon)
            _ = await call.value
            if desk.version(at: "\(folder)/current") != version { return version }
            daemon = await desk.running.world.start()
        }
        return nil
    }

    /// Kills the service again and again at any moment, while versions are published, updated, cancelled and rolled back.
    @Test func `again and again never leaves a mixture, and nothing behind`() async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register()
        await desk.publisher.publish("0", size: 300_000, count: 60)
        let (_, path) = try await desk.update(asset)
        var (daemon, random) = (desk.running.daemon, SeededRandom(11))
        for round in 1...12 {
            await desk.publisher.publish("\(round)", size: 300_000, count: 60)
            let client = desk.client
            let kind = Int.random(in: 0..<4, using: &random)
            let call = Task {
                switch kind {
                case 0: _ = try? await client.call(Asset.rollback, at: asset, ())
                default: _ = try? await desk.update(asset)
                }
                if kind == 1 { try? await client.call(Asset.cancel, at: asset, ()) }
            }
            await pause(milliseconds: Int.random(in: 0...120, using: &random))
            await desk.running.world.kill(daemon)
            _ = await call.value
            let version = desk.version(at: path)
            #expect(version != nil)
            for index in [0, 31, 59] { #expect(readFile("\(path)/parts/\(index)") == Array("part \(index) of \(version ?? "")".utf8)) }
            daemon = await desk.running.world.start()
        }
        await desk.publisher.publish("last")
        _ = try await desk.update(asset)
        #expect(desk.version(at: path) == "last")
        #expect(
            await eventually { listFolder(desk.directory()).count <= 3 && desk.leftovers(desk.directory()).isEmpty },
            "\(listFolder(desk.directory()))")
        #expect(try await eventually { try await desk.client.list().isEmpty })
    }
}

@Suite(.timeLimit(.minutes(10))) struct `An asset that is kept current` {
    @Test func `is updated at login without a call`() async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register("maps", ["update": .string("login")])
        await desk.publisher.publish("1")
        #expect(await desk.running.world.stop(desk.running.daemon).status == 0)
        await desk.client.signals.forget()
        _ = await desk.running.world.start(["--if-pending"])
        #expect(await desk.client.signals.has("Ready", at: asset))
        #expect(desk.version(at: "\(desk.directory())/current") == "1")
    }

    @Test func `is updated at login by a service that the bus has started`() async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register("maps", ["update": .string("login")])
        await desk.publisher.publish("1")
        let world = desk.running.world
        #expect(await world.stop(desk.running.daemon).status == 0)
        await desk.client.signals.forget()
        await world.bus.makeActivatable(BusName.service, "\(ServiceWorld.todokud) --idle-exit 3600")
        let systemd = try await StandInSystemd(on: world.bus.address)
        #expect(await world.run(ServiceWorld.todokud, "--if-pending").isClean)
        #expect(await desk.client.signals.has("Ready", at: asset))
        #expect(desk.version(at: "\(desk.directory())/current") == "1")
        withExtendedLifetime(systemd) {}
    }

    @Test func `is not updated by a start that is no login`() async throws {
        let desk = try await Desk.start()
        let asset = try await desk.register("maps", ["update": .string("login")])
        await desk.publisher.publish("1")
        #expect(await desk.running.world.stop(desk.running.daemon).status == 0)
        _ = await desk.running.world.start()
        #expect(try await desk.client.get(Asset.status, at: asset) == "not-installed")
        #expect(desk.publisher.requests(for: "/m.json") == 0)
    }

    @Test func `is updated as soon as it is registered to be so daily`() async throws {
        let desk = try await Desk.start()
        await desk.publisher.publish("1")
        let asset = try await desk.register("maps", ["update": .string("daily")])
        #expect(await desk.client.signals.has("Ready", at: asset))
    }
}

@Suite(.timeLimit(.minutes(10))) struct `An app in a sandbox` {
    @Test func `registers assets of its own, and sees no others`() async throws {
        let desk = try await Desk.start()
        try await desk.client.set(Manager.sandboxPrivate, true)
        let other = try await desk.client.call(
            Manager.registerAsset, ("org.example.Other", "maps", desk.publisher.url, ["notify": .string("never")]))
        let sandbox = await Sandbox(desk.running.world, app: Desk.app)
        let client = try await sandbox.client()
        await desk.publisher.publish("1")
        let asset = try await client.call(
            Manager.registerAsset, (Desk.app, "maps", desk.publisher.url, ["notify": .string("never")]))
        #expect(try await client.call(Manager.assets, "") == [asset])
        let (_, path) = try await client.call(Asset.update, at: asset, [:])
        #expect(path == "\(desk.directory())/current" && desk.version(at: path) == "1")
        for refused in [
            await thrown { try await client.call(Manager.registerAsset, ("org.example.Other", "x", desk.publisher.url, [:])) },
            await thrown {
                try await client.call(
                    Manager.registerAsset, (Desk.app, "x", desk.publisher.url, ["directory": .string(desk.running.world.folder)]))
            },
            await thrown { try await client.call(Manager.updateAssets, ("org.example.Other", [:])) },
        ] { #expect(refused?.name == todokuError("NotAllowed"), "\(refused?.message ?? "")") }
        #expect(await thrown { try await client.call(Manager.unregisterAsset, (other, true)) }?.name == todokuError("NoSuchObject"))
        #expect(await thrown { try await client.call(Asset.check, at: other, [:]) }?.name == "org.freedesktop.DBus.Error.UnknownObject")
    }

    @Test func `resumes the download of its asset, which it has paused`() async throws {
        let desk = try await Desk.start()
        try await desk.client.set(Manager.sandboxPrivate, true)
        let sandbox = await Sandbox(desk.running.world, app: Desk.app)
        let client = try await sandbox.client()
        await desk.publisher.publish("1", size: 2_000_000)
        let gate = desk.publisher.hold("/1.tar.gz")
        defer { gate.open() }
        let asset = try await client.call(Manager.registerAsset, (Desk.app, "maps", desk.publisher.url, Desk.quiet))
        async let answer = client.call(Asset.update, at: asset, [:], timeout: .seconds(180))
        #expect(await desk.downloads(asset))
        let download = try await client.get(Asset.download, at: asset)
        try await client.pause(download)
        #expect(try await eventually { try await client.get(Asset.status, at: asset) == "paused" })
        gate.open()
        try await client.resume(download)
        #expect(try await answer.0)
        #expect(desk.version(at: "\(desk.directory())/current") == "1")
        await sandbox.stop()
    }
}
