internal import Assets
internal import DownloadModel
internal import Testing

@Suite struct `An update` {
    @Test func `goes from the manifest over the download and the unpacking to the switch`() {
        let bench = Bench(Bench.record())
        #expect(bench.stage == .idle && bench.state.status(download: nil) == .notInstalled)
        let call = bench.update()
        #expect(bench.stage == .checking)
        bench.fetch(Bench.manifest("1"))
        #expect(bench.stage == .downloading)
        #expect(bench.actions.contains { if case .checkSpace(_, _, 5000) = $0 { true } else { false } })
        bench.addDownload()
        bench.happens(.downloadVerifies(Bench.key, bench.number))
        #expect(bench.stage == .verifying)
        bench.download()
        #expect(bench.stage == .extracting)
        bench.extract()
        #expect(bench.answers[call] == nil)
        let folder = bench.folder
        bench.switchLink()
        #expect(bench.answers[call] == .updated(isChanged: true, path: "/assets/maps/current"))
        #expect(bench.actions.contains(.ready(Bench.key, version: "1")))
        #expect(bench.stage == .ready && bench.record.installed?.folder == folder)
        bench.tidy()
        #expect(bench.record.removals.isEmpty && !bench.updater.hasWork)
        #expect(bench.state.status(download: nil) == .upToDate)
    }

    @Test func `of several callers is one`() {
        let bench = Bench(Bench.record())
        let calls = [bench.update(), bench.update()]
        #expect(bench.actions.isEmpty)
        bench.fetch(Bench.manifest("1"))
        let late = bench.update()
        #expect(bench.answers.isEmpty)
        bench.addDownload()
        bench.download()
        bench.extract()
        bench.switchLink()
        for call in calls + [late] { #expect(bench.answers[call] == .updated(isChanged: true, path: bench.record.path)) }
    }

    @Test func `changes nothing if the installed version is the latest`() {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("1"))
        let call = bench.update()
        bench.fetch(Bench.manifest("1"))
        #expect(bench.answers[call] == .updated(isChanged: false, path: bench.record.path))
        #expect(bench.stage == .ready)
    }

    @Test func `does not go back to a version that was published before the installed one`() {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("2", timestamp: Bench.start))
        let call = bench.update()
        bench.fetch(Bench.manifest("1", timestamp: Bench.start + .seconds(-1)))
        #expect(bench.answers[call] == .updated(isChanged: false, path: bench.record.path))
        bench.install(Bench.manifest("3", timestamp: Bench.start))
        #expect(bench.record.installed?.version == "3")
        bench.install(Bench.manifest("2"))  // without a timestamp, another version counts as newer
        #expect(bench.record.installed?.version == "2")
    }

    @Test func `keeps the version before, and deletes the one before that`() {
        let bench = Bench(Bench.record())
        for version in ["1", "2", "3"] { bench.install(Bench.manifest(version)) }
        #expect(bench.record.installed?.version == "3" && bench.record.previous?.version == "2")
        #expect(bench.record.folders.count == 2)
    }

    @Test func `that finds too little room says how much is missing`() {
        let bench = Bench(Bench.record())
        let call = bench.update()
        bench.fetch(Bench.manifest("1"))
        bench.happens(.spaceChecked(Bench.key, bench.ticket!, missing: 2048))
        guard case .failed(let failure) = bench.answers[call] else { return #expect(Bool(false)) }
        #expect(failure.name == .diskFull && failure.message.contains("2.0 KiB more are needed") && failure.missingBytes == 2048)
        #expect(bench.stage == .failed)
    }

    @Test func `tries the mirrors one after another`() {
        let bench = Bench(Bench.record())
        let call = bench.update()
        bench.fetch(Bench.manifest("1", mirrors: ["https://b/1.zip", "https://c/1.zip"]))
        var urls: [String] = []
        for _ in 0..<3 {
            bench.happens(.spaceChecked(Bench.key, bench.ticket!, missing: 0))
            for case .startDownload(_, _, let url, _) in bench.actions { urls.append(url) }
            bench.addDownloadOnly()
            #expect(bench.answers[call] == nil)
            bench.download(.failed(failure))
        }
        #expect(urls == ["https://h/maps-1.zip", "https://b/1.zip", "https://c/1.zip"])
        #expect(bench.answers[call] == .failed(failure))
    }

    @Test(arguments: [.storage, .diskFull, .writeFailed, .permissionDenied] as [ErrorName])
    func `tries no mirror after a fault of this machine`(name: ErrorName) {
        let bench = Bench(Bench.record())
        let call = bench.update()
        bench.fetch(Bench.manifest("1", mirrors: ["https://b/1.zip"]))
        bench.addDownload()
        let fault = DownloadFailure(name, "The disk failed.")
        bench.download(.failed(fault))
        #expect(bench.answers[call] == .failed(fault))
    }

    @Test func `after a failure continues with the same download and the same folder`() {
        let bench = Bench(Bench.record())
        bench.update()
        bench.fetch(Bench.manifest("1"))
        bench.addDownload()
        let folder = bench.folder
        bench.download(.failed(failure))
        #expect(bench.stage == .failed && bench.record.failure == failure)
        let call = bench.update()
        bench.fetch(Bench.manifest("1"))
        #expect(bench.actions.contains(.resumeDownload(Bench.key, bench.number, retries: true)))
        bench.download()
        bench.extract(.failed(failure))
        #expect(bench.answers[call] == .failed(failure))
        bench.update()
        bench.fetch(Bench.manifest("1"))
        #expect(bench.stage == .extracting && bench.folder == folder)
    }

    @Test(
        arguments: [
            (.httpStatus, 403, false, true), (.httpStatus, 404, false, true), (.httpStatus, 429, true, false),
            (.httpStatus, 503, true, false), (.sizeMismatch, nil, false, true), (.network, nil, false, true), (.network, nil, true, false),
            (.checksumMismatch, nil, false, false), (.permissionDenied, nil, false, false),
        ] as [(ErrorName, UInt32?, Bool, Bool)])
    func `whose old download fails begins a new one, except after a passing failure, a wrong digest or a fault of this machine`(
        name: ErrorName, status: UInt32?, isRetryable: Bool, beginsAnew: Bool
    ) {
        let bench = Bench(Bench.record())
        bench.update()
        bench.fetch(Bench.manifest("1"))
        bench.addDownload()
        bench.download(.failed(failure))
        let call = bench.update()
        bench.fetch(Bench.manifest("1"))
        let refusal = DownloadFailure(name, "The server refused.", httpStatus: status, isRetryable: isRetryable)
        bench.download(.failed(refusal))
        #expect(bench.actions.contains { if case .checkSpace = $0 { true } else { false } } == beginsAnew)
        guard beginsAnew else { return #expect(bench.answers[call] == .failed(refusal)) }
        bench.addDownload()
        bench.download(.failed(refusal))
        #expect(bench.answers[call] == .failed(refusal), "the new one is refused, too")
    }

    @Test(
        arguments: [(["https://a/1.zip", "https://b/1.zip"], "https://b/1.zip"), (["https://a/1.zip"], "https://h/maps-1.zip")]
            as [([String], String)])
    func `continues at its mirror, wherever the manifest names it now, or else at the first URL`(mirrors: [String], url: String) {
        let bench = Bench(Bench.record())
        bench.update()
        bench.fetch(Bench.manifest("1", mirrors: ["https://b/1.zip"]))
        bench.addDownload()
        bench.download(.failed(failure))
        bench.addDownload()
        bench.download(.failed(failure))
        #expect(bench.record.pending?.url == "https://b/1.zip" && bench.stage == .failed)
        bench.update()
        bench.fetch(Bench.manifest("1", mirrors: mirrors))
        #expect(bench.actions.contains(.resumeDownload(Bench.key, bench.number, retries: true)))
        #expect(bench.record.pending?.url == url)
    }

    @Test func `is given up if the asset is registered with another key or manifest`() {
        for change in [{ $0.publicKey = [UInt8](repeating: 7, count: 32) }, { $0.manifestURL = "https://other/m.json" }]
            as [(inout AssetRecord) -> Void]
        {
            let bench = Bench(Bench.record())
            let call = bench.update()
            bench.fetch(Bench.manifest("1"))
            bench.addDownload()
            var record = Bench.record()
            change(&record)
            bench.call { .register(record, found: nil, $0) }
            guard case .failed(let failure) = bench.answers[call] else { return #expect(Bool(false)) }
            #expect(failure.name == .cancelled && bench.record.pending == nil && bench.stage == .cancelled)
            bench.download()
            #expect(bench.record.installed == nil, "the old manifest is not installed")
        }
    }

    @Test func `that is paused or checks keeps no process running, and its disk work does`() {
        let bench = Bench(Bench.record())
        bench.update()
        #expect(!bench.updater.hasWork, "the scheduler has the download of the manifest")
        bench.fetch(Bench.manifest("1"))
        #expect(bench.updater.hasWork)
        bench.addDownload()
        #expect(!bench.updater.hasWork, "the scheduler has the download of the archive")
        bench.download()
        #expect(bench.updater.hasWork)
    }

    @Test func `gives up what a failed one has left if the manifest names another version`() {
        let bench = Bench(Bench.record())
        bench.update()
        bench.fetch(Bench.manifest("1"))
        bench.addDownload()
        let (folder, number) = (bench.folder, bench.number)
        bench.download(.failed(failure))
        bench.update()
        bench.fetch(Bench.manifest("2"))
        #expect(bench.record.removals == [AssetRemoval(folder: folder, keepsFolder: false, download: number)])
        #expect(bench.folder != folder)
    }

    @Test func `gives up an archive that nobody can unpack`() {
        let bench = Bench(Bench.record())
        let call = bench.update()
        bench.fetch(Bench.manifest("1"))
        bench.addDownload()
        bench.download()
        let unusable = DownloadFailure(.extraction, "The archive is damaged.")
        bench.extract(.unusable(unusable))
        #expect(bench.answers[call] == .failed(unusable))
        #expect(bench.record.pending == nil)
        bench.tidy()
        #expect(bench.record.removals.isEmpty)
    }

    @Test func `downloads an archive that vanished again, but not for ever`() {
        let bench = Bench(Bench.record())
        let call = bench.update()
        bench.fetch(Bench.manifest("1"))
        for _ in 0..<3 {
            #expect(bench.answers[call] == nil)
            bench.addDownload()
            bench.download()
            bench.extract(.archiveLost)
        }
        guard case .failed = bench.answers[call] else { return #expect(Bool(false)) }
    }

    @Test func `that is cancelled leaves nothing, once the disk has stopped`() {
        let bench = Bench(Bench.record())
        let call = bench.update()
        bench.fetch(Bench.manifest("1"))
        bench.addDownload()
        bench.download()
        let (folder, number) = (bench.folder, bench.number)
        bench.call { .cancel(Bench.key, $0) }
        #expect(bench.actions.contains(.cancelExtraction(Bench.key, folder: folder)))
        guard case .failed(let failure) = bench.answers[call] else { return #expect(Bool(false)) }
        #expect(failure.name == .cancelled && bench.stage == .cancelled)
        #expect(!bench.actions.contains { if case .remove = $0 { true } else { false } })
        bench.happens(.extracted(Bench.key, folder: folder, .cancelled))
        #expect(bench.actions.contains(.remove(Bench.key, AssetRemoval(folder: folder, keepsFolder: false, download: number))))
        bench.tidy()
        #expect(bench.record.folders.isEmpty && !bench.updater.hasWork)
    }

    @Test func `cannot be cancelled while it switches`() {
        let bench = Bench(Bench.record())
        let call = bench.update()
        bench.fetch(Bench.manifest("1"))
        bench.addDownload()
        bench.download()
        bench.extract()
        let cancel = bench.call { .cancel(Bench.key, $0) }
        #expect(bench.answers[cancel] == .done && bench.answers[call] == nil)
        bench.switchLink()
        #expect(bench.answers[call] == .updated(isChanged: true, path: bench.record.path))
    }

    @Test func `goes on after a crash where it was`() {
        let bench = Bench(Bench.record())
        bench.update()
        bench.fetch(Bench.manifest("1"))
        bench.restart()
        #expect(bench.stage == .downloading)
        bench.addDownload()
        bench.restart()
        #expect(bench.actions.contains(.resumeDownload(Bench.key, bench.number, retries: true)))
        bench.download()
        bench.restart()
        #expect(bench.stage == .extracting)
        bench.extract()
        bench.restart()
        #expect(bench.actions.contains(.switchLink(Bench.key, folder: bench.folder)))
        bench.switchLink()
        bench.restart()
        #expect(bench.stage == .ready)
        #expect(bench.actions.contains { if case .remove = $0 { true } else { false } })
        bench.tidy()
        #expect(bench.record.removals.isEmpty)
    }

    @Test func `of an earlier process is not taken for the one that a call asks for`() {
        let bench = Bench(Bench.record())
        bench.update()
        bench.fetch(Bench.manifest("1"))
        bench.addDownload()
        bench.restart()
        let call = bench.update()
        bench.download()
        bench.extract()
        bench.switchLink()
        #expect(bench.record.installed?.version == "1" && bench.answers[call] == nil && bench.stage == .checking)
        bench.fetch(Bench.manifest("2"))
        bench.addDownload()
        bench.download(.failed(failure))
        #expect(bench.answers[call] == .failed(failure))
    }

    @Test func `calls the owner once a version is ready, and again after a restart if that failed`() {
        let bench = Bench(Bench.record { $0.options.activate = "org.example.App" })
        bench.install(Bench.manifest("1"))
        #expect(bench.record.owesCall)
        bench.happens(.ownerCalled(Bench.key, false))
        bench.restart()
        #expect(bench.actions.contains(.callOwner(Bench.key)))
        bench.happens(.ownerCalled(Bench.key, true))
        bench.restart()
        #expect(!bench.actions.contains(.callOwner(Bench.key)))
    }

    @Test func `does not call an owner that has not answered for a week`() {
        let bench = Bench(Bench.record { $0.options.activate = "org.example.App" })
        bench.install(Bench.manifest("1"))
        bench.happens(.ownerCalled(Bench.key, false))
        bench.now = bench.now + Limits.remindedAge + .seconds(-1)
        bench.restart()
        #expect(bench.actions.contains(.callOwner(Bench.key)))
        bench.happens(.ownerCalled(Bench.key, false))
        bench.now = bench.now + .seconds(1)
        bench.restart()
        #expect(!bench.actions.contains(.callOwner(Bench.key)) && !bench.record.owesCall)
    }
}

@Suite struct `A check` {
    @Test func `says whether there is a newer version, and ends in the stage before it`() {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("1"))
        let call = bench.check()
        #expect(bench.stage == .checking)
        bench.fetch(Bench.manifest("2"))
        #expect(bench.answers[call] == .checked(isNewer: true, latest: "2"))
        #expect(bench.stage == .ready && bench.state.status(download: nil) == .updateAvailable)
        let next = bench.check()
        bench.happens(.manifestFailed(Bench.key, bench.ticket!, failure))
        #expect(bench.answers[next] == .failed(failure))
        #expect(bench.stage == .ready)
    }

    @Test(arguments: [404, 410] as [UInt32]) func `finds that an asset is obsolete, and keeps it`(status: UInt32) {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("1"))
        bench.check()
        bench.happens(.manifestFailed(Bench.key, bench.ticket!, DownloadFailure(.httpStatus, "gone", httpStatus: status)))
        #expect(bench.state.status(download: nil) == .obsolete && bench.record.installed?.version == "1")
        bench.check()
        bench.fetch(Bench.manifest("1"))
        #expect(bench.state.status(download: nil) == .upToDate)
    }

    @Test func `becomes an update if one is asked for meanwhile`() {
        let bench = Bench(Bench.record())
        let (check, update) = (bench.check(), bench.update())
        bench.fetch(Bench.manifest("1"))
        #expect(bench.answers[check] == .checked(isNewer: true, latest: "1"))
        #expect(bench.answers[update] == nil && bench.stage == .downloading)
        let late = bench.check()
        #expect(bench.answers[late] == .checked(isNewer: true, latest: "1"))
    }

    @Test func `that is cancelled is answered, and its late manifest is ignored`() {
        let bench = Bench(Bench.record())
        let call = bench.check()
        let ticket = bench.ticket!
        bench.call { .cancel(Bench.key, $0) }
        guard case .failed(let failure) = bench.answers[call] else { return #expect(Bool(false)) }
        #expect(failure.name == .cancelled && bench.stage == .idle)
        bench.happens(.manifestFetched(Bench.key, ticket, Bench.manifest("1")))
        #expect(bench.actions.isEmpty && bench.record.latest == nil)
    }
}

@Suite struct `A rollback` {
    @Test func `leads back to the version before, which no update leaves until the manifest names another`() {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("1"))
        bench.install(Bench.manifest("2"))
        let call = bench.call { .rollback(Bench.key, $0) }
        bench.switchLink()
        #expect(bench.answers[call] == .rolledBack(path: bench.record.path))
        #expect(bench.record.installed?.version == "1" && bench.record.left?.version == "2")
        let update = bench.update()
        bench.fetch(Bench.manifest("2"))
        #expect(bench.answers[update] == .updated(isChanged: false, path: bench.record.path))
        bench.install(Bench.manifest("3"))
        #expect(bench.record.installed?.version == "3" && bench.record.previous?.version == "1" && bench.record.left == nil)
        #expect(bench.record.folders.count == 2)
    }

    @Test func `is taken back by an update with force, without a second download`() {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("1"))
        bench.install(Bench.manifest("2"))
        bench.call { .rollback(Bench.key, $0) }
        bench.switchLink()
        let call = bench.update(forces: true)
        bench.fetch(Bench.manifest("2"))
        #expect(bench.actions.contains { if case .switchLink = $0 { true } else { false } })
        bench.switchLink()
        bench.tidy()
        #expect(bench.answers[call] == .updated(isChanged: true, path: bench.record.path))
        #expect(bench.record.installed?.version == "2" && bench.record.previous?.version == "1" && bench.record.folders.count == 2)
    }

    @Test func `needs a version before, and no update under way`() {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("1"))
        let first = bench.call { .rollback(Bench.key, $0) }
        bench.install(Bench.manifest("2"))
        bench.update()
        let second = bench.call { .rollback(Bench.key, $0) }
        for call in [first, second] {
            guard case .refused(let refusal) = bench.answers[call] else { return #expect(Bool(false)) }
            #expect(refusal.name == .invalidState)
        }
    }

    @Test func `is finished after a crash`() {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("1"))
        bench.install(Bench.manifest("2"))
        bench.call { .rollback(Bench.key, $0) }
        bench.restart()
        #expect(bench.state.activity == .rollingBack)
        bench.switchLink()
        #expect(bench.record.installed?.version == "1")
    }
}

@Suite struct `A registration` {
    @Test func `of the same asset changes it, but does not move it`() {
        let bench = Bench()
        let first = bench.call { .register(Bench.record(), found: nil, $0) }
        #expect(bench.answers[first] == .registered(Bench.key) && bench.actions.contains(.added(Bench.key)))
        let changed = Bench.record { $0.update = .daily }
        let second = bench.call { .register(changed, found: nil, $0) }
        #expect(bench.answers[second] == .registered(Bench.key) && bench.record.update == .daily)
        let third = bench.call { .register(Bench.record { $0.directory = "/elsewhere" }, found: nil, $0) }
        guard case .refused(let refusal) = bench.answers[third] else { return #expect(Bool(false)) }
        #expect(refusal.name == .alreadyExists)
    }

    @Test func `of another asset in the same folder is refused`() throws {
        let bench = Bench(Bench.record())
        var options = DownloadOptions()
        options.app = "org.example.Other"
        let other = AssetRecord(
            key: try AssetKey(app: "org.example.Other", name: "maps"), manifestURL: "https://h/x", options: options,
            directory: Bench.directory)
        let call = bench.call { .register(other, found: nil, $0) }
        guard case .refused(let refusal) = bench.answers[call] else { return #expect(Bool(false)) }
        #expect(refusal.name == .alreadyExists && refusal.message.contains("org.example.App/maps"))
    }

    @Test func `deletes the archive of an earlier update at once, also if there is no room for the new one`() {
        let bench = Bench(Bench.record())
        bench.update()
        bench.fetch(Bench.manifest("1"))
        bench.addDownload()
        let (folder, number) = (bench.folder, bench.number)
        bench.download(.failed(failure))
        bench.update()
        bench.fetch(Bench.manifest("2"))
        #expect(bench.actions.contains(.remove(Bench.key, AssetRemoval(folder: folder, keepsFolder: false, download: number))))
        bench.happens(.spaceChecked(Bench.key, bench.ticket!, missing: 10))
        #expect(bench.state.stage == .failed)
    }

    @Test func `deletes what an earlier one has left, once there is another version`() {
        let bench = Bench()
        bench.call { .register(Bench.record(), found: "version-7", $0) }
        bench.install(Bench.manifest("1"))
        #expect(bench.record.left?.folder == "version-7", "programs may have it open")
        bench.install(Bench.manifest("2"))
        #expect(!bench.record.folders.contains("version-7"))
    }

    @Test(arguments: [true, false]) func `ends with or without its data`(deletesData: Bool) {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("1"))
        bench.install(Bench.manifest("2"))
        let call = bench.call { .unregister(Bench.key, deletesData: deletesData, $0) }
        if deletesData {
            #expect(bench.actions.contains { if case .deleteData = $0 { true } else { false } })
            bench.happens(.dataDeleted(Bench.key, nil))
        } else {
            bench.tidy()  // the version before is of no use without a record
        }
        #expect(bench.answers[call] == .done && bench.updater[Bench.key] == nil && bench.rows.isEmpty)
        #expect(bench.actions.contains(.gone(Bench.key)))
    }

    @Test func `ends after the update that is under way was stopped`() {
        let bench = Bench(Bench.record())
        let update = bench.update()
        bench.fetch(Bench.manifest("1"))
        bench.addDownload()
        bench.download()
        let folder = bench.folder
        let call = bench.call { .unregister(Bench.key, deletesData: true, $0) }
        guard case .failed = bench.answers[update] else { return #expect(Bool(false)) }
        #expect(bench.answers[call] == nil)
        bench.happens(.extracted(Bench.key, folder: folder, .cancelled))
        bench.tidy()
        bench.happens(.dataDeleted(Bench.key, nil))
        #expect(bench.answers[call] == .done)
    }
}

@Suite struct `A check without a call` {
    static func began(_ bench: Bench) -> Bool { bench.actions.contains { if case .fetchManifest = $0 { true } else { false } } }

    @Test func `comes after a login, and waits for an unmetered network`() {
        let bench = Bench(Bench.record { $0.update = .login }, network: nil, isLogin: true)
        #expect(!Self.began(bench) && bench.updater.nextWake == nil)
        bench.happens(.network(NetworkCondition(reach: .online, isMetered: true)))
        #expect(!Self.began(bench))
        bench.happens(.network(.open))
        #expect(Self.began(bench))
        bench.fetch(Bench.manifest("1"))
        bench.happens(.spaceChecked(Bench.key, bench.ticket!, missing: 0))
        for case .startDownload(_, _, _, let pending) in bench.actions { #expect(pending.isBackground) }
        #expect(bench.stage == .downloading)
    }

    @Test func `comes once in a session, whatever has started the service`() {
        let bench = Bench(Bench.record { ($0.update, $0.checkedIn) = (.login, "a") }, session: "a")
        #expect(!Self.began(bench))
        bench.restart(session: "b")
        #expect(Self.began(bench))
        bench.fetch(Bench.manifest("1"))
        bench.restart(session: "b")
        #expect(!Self.began(bench))
    }

    @Test func `comes in a new session an hour after the last one at the earliest`() {
        let bench = Bench(Bench.record { ($0.update, $0.checkedIn) = (.login, "a") }, session: "b")
        bench.complete(Bench.manifest("1"))
        bench.restart(session: "c")
        #expect(!Self.began(bench))
        bench.now = bench.now + AssetRecord.checkPause
        bench.happens(.time)
        #expect(Self.began(bench))
    }

    @Test func `that found no network is remembered until there is one, also by a later process`() {
        let bench = Bench(Bench.record { $0.update = .login }, network: nil, isLogin: true, session: "a")
        #expect(!Self.began(bench) && bench.updater.awaitsNetwork && !bench.updater.hasWork)
        bench.restart(session: "a", network: nil)
        #expect(!Self.began(bench) && bench.updater.awaitsNetwork && !bench.updater.hasWork)
        bench.happens(.network(.open))
        #expect(Self.began(bench))
        bench.fetch(Bench.manifest("1"))
        #expect(!bench.updater.awaitsNetwork)
    }

    @Test func `comes at a login in a session that had one already`() {
        let bench = Bench(Bench.record { ($0.update, $0.checkedIn) = (.login, "a") }, network: nil, isLogin: true, session: "a")
        bench.restart(session: "a")
        #expect(Self.began(bench))
    }

    @Test func `that failed is not tried again within an hour, also by a later process`() {
        let bench = Bench(Bench.record { $0.update = .daily })
        bench.happens(.manifestFailed(Bench.key, bench.ticket!, failure))
        bench.restart()
        #expect(!Self.began(bench) && bench.updater.nextWake == bench.now + .seconds(3600))
        bench.now = bench.now + .seconds(3600)
        bench.restart()
        #expect(Self.began(bench))
    }

    @Test func `is remembered while nobody watches the network`() {
        let bench = Bench(Bench.record { ($0.update, $0.checkedAt) = (.daily, Bench.start) }, network: nil)
        #expect(bench.updater.nextWake == bench.now + .seconds(24 * 3600) && !bench.updater.awaitsNetwork)
        bench.now = bench.now + .seconds(24 * 3600)
        bench.happens(.time)
        #expect(bench.updater.awaitsNetwork && bench.updater.nextWake == nil)
    }

    @Test func `waits for no unmetered network any more once a call asks for the update`() {
        let bench = Bench(Bench.record { $0.update = .daily })
        let call = bench.update()
        #expect(bench.actions.contains { if case .fetchManifest(_, _, false) = $0 { true } else { false } })
        #expect(bench.actions.contains { if case .cancelFetch = $0 { true } else { false } })
        bench.update()
        #expect(!Self.began(bench), "one fetch is enough")
        bench.fetch(Bench.manifest("1"))
        #expect(bench.record.pending?.isBackground == false && bench.answers[call] == nil)
    }

    @Test func `raises its download if a call asks for the update`() {
        let bench = Bench(Bench.record { $0.update = .daily })
        bench.fetch(Bench.manifest("1"))
        bench.addDownload()
        #expect(bench.record.pending?.isBackground == true)
        bench.update()
        #expect(bench.actions.contains(.raiseDownload(Bench.key, bench.number)) && bench.record.pending?.isBackground == false)
        bench.update()
        #expect(!bench.actions.contains(.raiseDownload(Bench.key, bench.number)))
    }

    @Test func `is raised by a call for a check, but its update is not`() {
        let bench = Bench(Bench.record { $0.update = .daily })
        let call = bench.check()
        #expect(bench.actions.contains { if case .fetchManifest(_, _, false) = $0 { true } else { false } })
        bench.fetch(Bench.manifest("1"))
        #expect(bench.answers[call] == .checked(isNewer: true, latest: "1") && bench.record.pending?.isBackground == true)
    }

    @Test func `does not come after a start that is no login`() {
        let bench = Bench(Bench.record { $0.update = .login }, isLogin: false)
        #expect(!Self.began(bench))
    }

    @Test func `comes once a day`() {
        let bench = Bench(Bench.record { $0.update = .daily })
        #expect(Self.began(bench))
        bench.complete(Bench.manifest("1"))
        #expect(bench.updater.nextWake == bench.now + .seconds(24 * 3600))
        bench.now = bench.now + .seconds(24 * 3600 - 1)
        bench.happens(.time)
        #expect(!Self.began(bench))
        bench.now = bench.now + .seconds(1)
        bench.happens(.time)
        #expect(Self.began(bench))
        bench.happens(.manifestFailed(Bench.key, bench.ticket!, failure))
        #expect(bench.updater.nextWake == bench.now + .seconds(3600))
        bench.happens(.time)
        #expect(!Self.began(bench))
    }

    @Test func `comes when the clock is set back while the service runs`() {
        let bench = Bench(Bench.record { ($0.update, $0.checkedAt) = (.daily, Bench.start) })
        #expect(!Self.began(bench))
        bench.now = bench.now + .seconds(-365 * 24 * 3600)
        bench.happens(.clockSet)
        #expect(Self.began(bench))
    }

    @Test func `that waited for a network waits for its time again when the clock is set back`() {
        let bench = Bench(Bench.record { ($0.update, $0.checkedAt) = (.daily, Bench.start) }, network: nil)
        bench.now = Bench.start + .seconds(25 * 3600)
        bench.happens(.time)
        #expect(bench.updater.awaitsNetwork)
        bench.now = Bench.start + .seconds(23 * 3600)
        bench.happens(.clockSet)
        #expect(!bench.updater.awaitsNetwork && bench.updater.nextWake == Bench.start + .seconds(24 * 3600))
        bench.happens(.network(.open))
        #expect(!Self.began(bench))
        bench.now = Bench.start + .seconds(24 * 3600)
        bench.happens(.time)
        #expect(Self.began(bench))
    }

    @Test func `comes when the clock was set back`() {
        let bench = Bench(Bench.record { ($0.update, $0.checkedAt) = (.daily, Bench.start + .seconds(365 * 24 * 3600)) })
        #expect(Self.began(bench))
    }

    @Test func `does not come for an asset that is updated by hand`() {
        let bench = Bench(Bench.record(), isLogin: true)
        #expect(!Self.began(bench) && bench.updater.nextWake == nil)
    }
}

@Suite struct `An update of all assets of an application` {
    static func records() throws -> [AssetRecord] {
        try ["a", "b"].map { name in
            var options = DownloadOptions()
            options.app = Bench.key.app
            return AssetRecord(
                key: try AssetKey(app: Bench.key.app, name: name), manifestURL: "https://h/\(name)", options: options,
                directory: "/assets/\(name)")
        }
    }

    @Test func `is answered when all have ended`() throws {
        let bench = Bench()
        for record in try Self.records() { bench.call { .register(record, found: nil, $0) } }
        let call = bench.call { .updateAll(app: Bench.key.app, forces: false, $0) }
        let keys = bench.updater.keys(of: Bench.key.app)
        for key in keys { bench.bring(key, Bench.manifest("1")) }
        #expect(
            bench.answers[call]
                == .allUpdated(keys.map { AssetUpdater.AppUpdate(key: $0, isChanged: true, path: "/assets/\($0.name)/current") }))
    }

    @Test func `fails with the number of those that failed, and the others are updated`() throws {
        let bench = Bench()
        for record in try Self.records() { bench.call { .register(record, found: nil, $0) } }
        let call = bench.call { .updateAll(app: Bench.key.app, forces: false, $0) }
        let keys = bench.updater.keys(of: Bench.key.app)
        guard case .checking(let ticket) = bench.updater[keys[0]]?.activity else { return #expect(Bool(false)) }
        bench.happens(.manifestFailed(keys[0], ticket, failure))
        #expect(bench.answers[call] == nil)
        bench.bring(keys[1], Bench.manifest("1"))
        guard case .failed(let end) = bench.answers[call] else { return #expect(Bool(false)) }
        #expect(end.name == .network && end.message == "1 of 2 assets were not updated. a: The server is gone.")
        #expect(bench.updater[keys[1]]?.stage == .ready)
    }

    @Test func `of an application without assets is answered at once`() {
        let bench = Bench()
        let call = bench.call { .updateAll(app: "org.example.None", forces: false, $0) }
        #expect(bench.answers[call] == .allUpdated([]))
    }
}
