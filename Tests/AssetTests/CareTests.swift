internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// A manifest on a host other than this machine: the publisher is the proxy.
private let remote = "http://files.example.org/m.json"

@Suite(.timeLimit(.minutes(10))) struct `An asset that is checked without a call` {
    @Test func `at login is checked in each session, whatever has started the service`() async throws {
        let desk = try await Desk.start()
        _ = try await desk.register("maps", ["update": .string("login")])
        await desk.publisher.publish("1")
        let world = desk.running.world
        _ = await world.stop(desk.running.daemon)
        #expect(desk.publisher.requests(for: "/m.json") == 0, "the app that registers an asset decides about its first check")
        // Another session of the same user, in which some program calls the service first.
        let folders = world.environment.filter { $0.key == "HOME" || $0.key.hasPrefix("XDG_") && $0.key != "XDG_RUNTIME_DIR" }
        let next = try await Running.start(extra: folders)
        #expect(await eventually { desk.version(at: "\(desk.directory())/current") == "1" })
        _ = await next.world.stop(next.daemon)
    }

    @Test func `at login does not end in an error if another program has started the service first`() async throws {
        let desk = try await Desk.start()
        _ = try await desk.register("maps", ["update": .string("login")])
        #expect(await desk.running.world.run(ServiceWorld.todokud, "--if-pending").isClean)
    }

    @Test func `daily is checked for a timer, which starts the service only if a check is due`() async throws {
        let desk = try await Desk.start()
        await desk.publisher.publish("1")
        _ = try await desk.register("maps", ["update": .string("daily")])
        #expect(await eventually { desk.version(at: "\(desk.directory())/current") == "1" })
        let world = desk.running.world
        await world.bus.makeActivatable(BusName.service, "\(ServiceWorld.todokud) --idle-exit 1")
        #expect(await world.run(ServiceWorld.todokud, "--if-due").isClean)
        _ = await world.stop(desk.running.daemon)
        #expect(await world.run(ServiceWorld.todokud, "--if-due").isClean)
        #expect(await !world.bus.hasOwner(BusName.service))
        await desk.publisher.publish("2")
        let aged = await world.run(
            "python3", "-c",
            "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); "
                + "db.execute('UPDATE asset SET checked_at = 1, tried_at = 1'); db.commit()", "\(world.state)/todoku.db")
        #expect(aged.status == 0, "\(aged.errors)")
        #expect(await world.run(ServiceWorld.todokud, "--if-due").isClean)
        #expect(await eventually { desk.version(at: "\(desk.directory())/current") == "2" })
        // And it is not kept running.
        #expect(await world.bus.waitForOwner(BusName.service, present: false))
    }

    @Test func `waits for an unmetered network, and a call for the update does not`() async throws {
        let bus = await PrivateBus()
        let manager = try await StandInNetworkManager(on: bus.address, metered: 2)
        let desk = try await Desk(systemBus: bus)
        await desk.publisher.publish("1")
        let gate = desk.publisher.hold("/1.tar.gz")
        let asset = try await desk.register("maps", ["update": .string("daily")], url: remote)
        #expect(await desk.downloads(asset))
        await manager.set("Metered", 1)
        #expect(try await eventually { try await desk.client.get(Asset.status, at: asset) == "waiting-unmetered" })
        gate.open()
        #expect(try await desk.update(asset).0)
        #expect(desk.version(at: "\(desk.directory())/current") == "1")
        #expect(desk.publisher.server.requests.contains { Publisher.path(of: $0) == "/1.tar.gz" && $0.range != nil })
    }

    @Test func `whose check waits for an unmetered network is updated by a call`() async throws {
        let bus = await PrivateBus()
        let manager = try await StandInNetworkManager(on: bus.address, metered: 1)
        let desk = try await Desk(systemBus: bus)
        await desk.publisher.publish("1")
        let asset = try await desk.register("maps", ["update": .string("daily")], url: remote)
        #expect(try await desk.update(asset).0)
        #expect(desk.version(at: "\(desk.directory())/current") == "1")
        withExtendedLifetime(manager) {}
    }
}

@Suite(.timeLimit(.minutes(10))) struct `An installed version` {
    @Test func `that somebody has deleted is not installed, and comes back with the next update`() async throws {
        let desk = try await Desk.start()
        await desk.publisher.publish("1")
        let asset = try await desk.register()
        let (_, path) = try await desk.update(asset)
        let archives = { desk.publisher.requests(for: "/1.tar.gz") }
        // The archive is deleted after the answer. Nothing else may delete while rm does, which counts a vanished file as an error.
        func isTidy() async -> Bool { await eventually { listFolder(desk.directory()).count == 2 } }
        #expect(await isTidy(), "\(listFolder(desk.directory()))")
        #expect(await Child.run(["sh", "-c", "rm -r \"$0\"/version-*", desk.directory()]).status == 0)
        #expect(try await desk.check(asset) == (true, "1"))
        #expect(try await desk.client.get(Asset.status, at: asset) == "not-installed")
        #expect(try await desk.client.get(Asset.installedVersion, at: asset) == "")
        #expect(try await desk.update(asset).0 && desk.version(at: path) == "1" && archives() == 2)
        #expect(try await desk.update(asset).0 == false)
        // Without the link, the version itself is still there.
        #expect(unlink(path) == 0)
        #expect(try await desk.update(asset).0 && desk.version(at: path) == "1" && archives() == 2)
        // And if the whole directory is gone, which the service has made.
        #expect(await isTidy(), "\(listFolder(desk.directory()))")
        #expect(await Child.run(["rm", "-r", desk.running.world.bus.folder("data/todoku/assets")]).status == 0)
        #expect(try await desk.update(asset).0 && desk.version(at: path) == "1" && archives() == 3)
        #expect(await isTidy(), "\(listFolder(desk.directory()))")
    }

    @Test func `comes back also where the path of the data folder has superfluous slashes and dots`() async throws {
        let folder = TemporaryFolder()
        folder.makeFolder(".data")
        let desk = Desk(running: try await Running.start(extra: ["XDG_DATA_HOME": "\(folder.path)//./.data"]))
        await desk.publisher.publish("1")
        let asset = try await desk.register()
        let (_, path) = try await desk.update(asset)
        #expect(desk.version(at: path) == "1")
        // The archive is deleted after the answer.
        #expect(await eventually { listFolder(String(path.dropLast("/current".count))).count == 2 })
        #expect(await Child.run(["rm", "-r", folder(".data/todoku/assets")]).status == 0)
        #expect(try await desk.update(asset).0)
        #expect(desk.version(at: folder(".data/todoku/assets/\(Desk.app)/maps/current")) == "1")
    }

    /// The link is in the place of the asset's folder, or of the folder of its app.
    @Test(arguments: ["/maps", ""])
    func `behind a link to another disk is deleted with its asset once the disk is there, and the link stays`(name: String) async throws {
        let desk = try await Desk.start()
        let folder = desk.running.world.bus.folder
        let (disk, link) = (folder.makeFolder("disk"), folder("data/todoku/assets/\(Desk.app)\(name)"))
        #expect(await Child.run(["sh", "-c", "mkdir -p \"${1%/*}\" && ln -s \"$0\" \"$1\"", disk, link]).status == 0)
        await desk.publisher.publish("1")
        let asset = try await desk.register()
        try await desk.update(asset)
        #expect(desk.version(at: "\(desk.directory())/current") == "1" && !listFolder(disk).isEmpty)
        #expect(rename(disk, "\(disk)-away") == 0)
        let error = await thrown { try await desk.client.call(Manager.unregisterAsset, (asset, true)) }
        #expect(error?.name == todokuError("WriteFailed") && error?.message.contains("is not there") == true, "\(error as Any)")
        #expect(rename("\(disk)-away", disk) == 0)
        #expect(desk.version(at: "\(desk.directory())/current") == "1")
        try await desk.client.call(Manager.unregisterAsset, (asset, true))
        #expect(listFolder(disk) == [] && fileExists(link))
        #expect(try await desk.client.call(Manager.assets, "") == [])
    }

    /// The service could make the folder that the link leads to, as it could in an empty mount point.
    @Test(arguments: ["/maps", ""])
    func `behind a link to a disk that is away stays installed, and no folder is made in the place of the disk`(name: String) async throws {
        let desk = try await Desk.start()
        let (client, folder) = (desk.client, desk.running.world.bus.folder)
        let (disk, link) = (folder.makeFolder("disk"), folder("data/todoku/assets/\(Desk.app)\(name)"))
        #expect(await Child.run(["sh", "-c", "mkdir -p \"${1%/*}\" && ln -s \"$0\" \"$1\"", disk, link]).status == 0)
        await desk.publisher.publish("1")
        let asset = try await desk.register()
        let (_, path) = try await desk.update(asset)
        // The archive is deleted after the answer.
        #expect(await eventually { listFolder(desk.directory()).count == 2 })
        #expect(rename(disk, "\(disk)-away") == 0)
        #expect(try await desk.check(asset) == (false, "1"))
        #expect(try await client.get(Asset.installedVersion, at: asset) == "1")
        #expect(await thrown { try await desk.register() }?.name == todokuError("InvalidOption"))
        await desk.publisher.publish("2")
        async let answer = desk.update(asset)
        #expect(
            try await eventually {
                let download = try await client.get(Asset.download, at: asset)
                // The download of the manifest may leave the list between the two calls.
                return (try? await client.get(Download.waitReason, at: download)) == "destination"
            })
        #expect(!fileExists(disk))
        #expect(rename("\(disk)-away", disk) == 0)
        #expect(try await answer.0 && desk.version(at: path) == "2")
        // The service still knows the version before, which was there all the time.
        #expect(try await client.call(Asset.rollback, at: asset, ()) == path && desk.version(at: path) == "1")
        #expect(desk.publisher.requests(for: "/1.tar.gz") == 1)
    }

    /// The folder that the link at `path` leads to.
    private func folder(of path: String) -> String? { realpath(path, nil).map { String(cString: $0) } }

    /// Deletes some files of the version in `folder`.
    private func damage(_ folder: String) {
        for name in ["parts/3", "data.bin"] { #expect(unlink("\(folder)/\(name)") == 0) }
    }

    private func isWhole(_ path: String, _ desk: Desk) -> Bool {
        listFolder("\(path)/parts").count == 20 && readFile("\(path)/data.bin")?.count == 200_000
    }

    @Test func `half of which was deleted, and the link to it, is downloaded again`() async throws {
        let desk = try await Desk.start()
        await desk.publisher.publish("1")
        let asset = try await desk.register()
        let (_, path) = try await desk.update(asset)
        damage(path)
        #expect(unlink(path) == 0)
        #expect(try await desk.update(asset).0 && desk.version(at: path) == "1" && isWhole(path, desk))
        #expect(desk.publisher.requests(for: "/1.tar.gz") == 2)
        // The half is gone.
        #expect(await eventually { listFolder(desk.directory()).count == 2 }, "\(listFolder(desk.directory()))")
        // One file less, and as many bytes.
        let whole = try #require(folder(of: path))
        #expect(unlink("\(path)/parts/3") == 0 && unlink(path) == 0)
        writeFile("\(whole)/parts/4", "part 3 of 1part 4 of 1".utf8)
        #expect(try await desk.update(asset).0 && isWhole(path, desk))
    }

    @Test func `that a rollback has left, and of which files were deleted, is downloaded again`() async throws {
        let desk = try await Desk.start()
        await desk.publisher.publish("1")
        let asset = try await desk.register()
        let (_, path) = try await desk.update(asset)
        await desk.publisher.publish("2")
        try await desk.update(asset)
        let second = try #require(folder(of: path))
        _ = try await desk.client.call(Asset.rollback, at: asset, ())
        damage(second)
        #expect(try await desk.update(asset, force: true).0 && desk.version(at: path) == "2" && isWhole(path, desk))
        #expect(desk.publisher.requests(for: "/2.tar.gz") == 2)
    }

    @Test func `before the installed one, of which files were deleted, is none to go back to`() async throws {
        let desk = try await Desk.start()
        await desk.publisher.publish("1")
        let asset = try await desk.register()
        let (_, path) = try await desk.update(asset)
        let first = try #require(folder(of: path))
        await desk.publisher.publish("2")
        try await desk.update(asset)
        damage(first)
        let error = await thrown { try await desk.client.call(Asset.rollback, at: asset, ()) }
        #expect(error?.name == todokuError("Interrupted") && error?.message.contains("files are missing") == true, "\(error as Any)")
        #expect(desk.version(at: path) == "2" && isWhole(path, desk))
        #expect(await eventually { !fileExists(first) })
        #expect(await thrown { try await desk.client.call(Asset.rollback, at: asset, ()) }?.name == todokuError("InvalidState"))
    }

    @Test func `before the installed one, to which its app has added a file, is one to go back to`() async throws {
        let desk = try await Desk.start()
        await desk.publisher.publish("1")
        let asset = try await desk.register()
        let (_, path) = try await desk.update(asset)
        writeFile("\(path)/cache", "of the app".utf8)
        await desk.publisher.publish("2")
        try await desk.update(asset)
        #expect(try await desk.client.call(Asset.rollback, at: asset, ()) == path)
        #expect(desk.version(at: path) == "1" && isWhole(path, desk) && fileExists("\(path)/cache"))
    }

    @Test func `of a row that knows no size is downloaded again if the link is gone, and is one to go back to`() async throws {
        let desk = try await Desk.start()
        await desk.publisher.publish("1")
        let asset = try await desk.register()
        let (_, path) = try await desk.update(asset)
        await desk.publisher.publish("2")
        try await desk.update(asset)
        let world = desk.running.world
        _ = await world.stop(desk.running.daemon)
        let aged = await world.run(
            "python3", "-c",
            "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); "
                + "db.execute('UPDATE asset SET installed_entries = NULL, previous_bytes = NULL'); db.commit()", "\(world.state)/todoku.db")
        #expect(aged.status == 0, "\(aged.errors)")
        _ = await world.start()
        #expect(unlink(path) == 0)
        #expect(try await desk.update(asset).0 && desk.version(at: path) == "2" && desk.publisher.requests(for: "/2.tar.gz") == 2)
        _ = try await desk.client.call(Asset.rollback, at: asset, ())
        #expect(desk.version(at: path) == "1" && isWhole(path, desk))
    }

    @Test func `of an earlier registration, of which files were deleted, is not installed; the update brings it whole`() async throws {
        let desk = try await Desk.start()
        await desk.publisher.publish("1")
        var asset = try await desk.register()
        let (_, path) = try await desk.update(asset)
        try await desk.client.call(Manager.unregisterAsset, (asset, false))
        damage(path)
        asset = try await desk.register()
        #expect(try await desk.client.get(Asset.installedVersion, at: asset) == "")
        #expect(try await desk.update(asset).0 && desk.version(at: path) == "1" && isWhole(path, desk))
        #expect(desk.publisher.requests(for: "/1.tar.gz") == 2)
    }

    @Test func `on a disk that is away is deleted once the disk is back`() async throws {
        let desk = try await Desk.start()
        await desk.publisher.publish("1")
        let (folder, away) = (desk.running.world.bus.folder.makeFolder("disk"), desk.running.world.bus.folder("away"))
        let asset = try await desk.register("maps", ["directory": .string(folder)])
        try await desk.update(asset)
        #expect(rename(folder, away) == 0)
        let error = await thrown { try await desk.client.call(Manager.unregisterAsset, (asset, true)) }
        #expect(error?.name == todokuError("WriteFailed") && error?.message.contains("nothing was deleted") == true, "\(error as Any)")
        #expect(try await desk.client.call(Manager.assets, "") == [asset])
        #expect(desk.version(at: "\(away)/current") == "1")
        #expect(rename(away, folder) == 0)
        #expect(try await desk.client.get(Asset.installedVersion, at: asset) == "1")
        try await desk.client.call(Manager.unregisterAsset, (asset, true))
        #expect(listFolder(folder).isEmpty)
        #expect(try await desk.client.call(Manager.assets, "").isEmpty)
    }
}

@Suite(.timeLimit(.minutes(10))) struct `The folder of an asset` {
    @Test func `is not that of another one by another path, also while nothing is installed`() async throws {
        let desk = try await Desk.start()
        let folder = desk.running.world.bus.folder.makeFolder("data-of-one")
        let alias = desk.running.world.bus.folder("alias")
        #expect(symlink(folder, alias) == 0)
        let one = try await desk.register("one", ["directory": .string(folder)])
        for path in [alias, "\(folder)/../data-of-one", "\(alias)/."] {
            let error = await thrown { try await desk.register("two", ["directory": .string(path)]) }
            #expect(
                error?.name == todokuError("AlreadyExists") && error?.message.contains("org.example.App/one") == true, "\(error as Any)")
        }
        // Another process knows no folder before it is used.
        await desk.running.world.kill(desk.running.daemon)
        _ = await desk.running.world.start()
        await desk.publisher.publish("1")
        let two = try await desk.register("two", ["directory": .string(alias)])
        let refused = await thrown { try await desk.update(one) }
        #expect(refused?.name == todokuError("AlreadyExists") && refused?.message.contains("org.example.App/two") == true)
        #expect(try await desk.update(two).0)
        try await desk.client.call(Manager.unregisterAsset, (two, true))
        #expect(try await desk.update(one).0 && desk.version(at: "\(folder)/current") == "1")
    }

    @Test func `is that of the asset whose version the link leads to, also if no process since has used the folder`() async throws {
        let desk = try await Desk.start()
        let world = desk.running.world
        let folder = world.bus.folder.makeFolder("data-of-one")
        let alias = world.bus.folder("alias")
        #expect(symlink(folder, alias) == 0)
        let one = try await desk.register("one", ["directory": .string(folder)])
        await world.kill(desk.running.daemon)
        let second = await world.start()
        await desk.publisher.publish("1")
        let two = try await desk.register("two", ["directory": .string(alias)])
        #expect(try await desk.update(two).0)
        await world.kill(second)
        _ = await world.start()
        await desk.publisher.publish("2")
        let refused = await thrown { try await desk.update(one) }
        #expect(refused?.name == todokuError("AlreadyExists") && refused?.message.contains("org.example.App/two") == true)
        #expect(desk.version(at: "\(alias)/current") == "1")
        #expect(try await desk.update(two).0 && desk.version(at: "\(alias)/current") == "2")
    }
}

@Suite(.timeLimit(.minutes(10))) struct `The download of a failed update` {
    @Test func `is not cleared away, and the next update continues with its bytes`() async throws {
        let desk = try await Desk.start()
        await desk.publisher.publish("1")
        let gate = desk.publisher.hold("/1.tar.gz")
        let asset = try await desk.register("maps", ["retries": .uint32(0)])
        async let error = thrown { try await desk.update(asset) }
        #expect(await desk.downloads(asset))
        // The connection is lost in the middle, and then the server refuses to continue.
        desk.publisher.answer("/1.tar.gz", with: 404)
        gate.open()
        #expect(await error?.name == todokuError("HttpStatus"))
        let downloads = try await desk.client.list()
        try #require(downloads.count == 1)
        #expect(try await desk.client.call(Manager.clearEnded, ()) == 0)
        for refused in [
            await thrown { try await desk.client.remove(downloads[0]) },
            await thrown { try await desk.client.call(Download.trash, at: downloads[0], ()) },
        ] {
            #expect(refused?.name == todokuError("InvalidState") && refused?.message.contains("org.example.App/maps") == true)
        }
        #expect(try await desk.client.list() == downloads)
        desk.publisher.answer("/1.tar.gz", with: nil)
        #expect(try await desk.update(asset).0 && desk.version(at: "\(desk.directory())/current") == "1")
        #expect(desk.publisher.server.requests.last?.range != nil)
    }
}
