internal import Assets
internal import DownloadModel
internal import Testing

@Suite struct `A version that somebody has deleted` {
    private func lose(_ bench: Bench, isFolderThere: Bool) {
        bench.happens(.versionLost(Bench.key, folder: bench.record.installed!.folder, isFolderThere: isFolderThere))
    }

    @Test func `is not installed, and the next update installs it again`() {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("1"))
        let call = bench.update()
        lose(bench, isFolderThere: false)
        #expect(bench.state.status(download: nil) == .notInstalled && bench.record.installed == nil)
        bench.fetch(Bench.manifest("1"))
        #expect(bench.stage == .downloading)
        bench.addDownload()
        bench.download()
        bench.extract()
        bench.switchLink()
        bench.tidy()
        #expect(bench.answers[call] == .updated(isChanged: true, path: bench.record.path))
        #expect(bench.record.installed?.version == "1" && bench.record.previous == nil && bench.record.folders.count == 1)
    }

    @Test func `is what a check says is newer`() {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("1"))
        let call = bench.check()
        lose(bench, isFolderThere: false)
        bench.fetch(Bench.manifest("1"))
        #expect(bench.answers[call] == .checked(isNewer: true, latest: "1"))
        #expect(bench.state.status(download: nil) == .notInstalled)
    }

    @Test func `needs no download if only the link is gone`() {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("1"))
        let (call, folder) = (bench.update(), bench.record.installed!.folder)
        lose(bench, isFolderThere: true)
        #expect(bench.state.status(download: nil) == .notInstalled)
        bench.fetch(Bench.manifest("1"))
        #expect(bench.actions.contains(.switchLink(Bench.key, folder: folder)))
        bench.switchLink()
        bench.tidy()
        #expect(bench.answers[call] == .updated(isChanged: true, path: bench.record.path))
        #expect(bench.record.installed?.folder == folder && bench.record.folders == [folder])
    }

    @Test(arguments: [true, false]) func `leaves the version before it for a rollback`(isFolderThere: Bool) {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("1"))
        bench.install(Bench.manifest("2"))
        let previous = bench.record.previous
        bench.update()
        lose(bench, isFolderThere: isFolderThere)
        bench.fetch(Bench.manifest("2"))
        if !isFolderThere {
            bench.addDownload()
            bench.download()
            bench.extract()
        }
        bench.switchLink()
        bench.tidy()
        #expect(bench.record.installed?.version == "2" && bench.record.previous == previous && bench.record.folders.count == 2)
    }

    @Test func `is replaced by a newer one, and what is left of it is deleted`() {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("1"))
        bench.update()
        lose(bench, isFolderThere: true)
        bench.fetch(Bench.manifest("2"))
        bench.addDownload()
        bench.download()
        bench.extract()
        bench.switchLink()
        bench.tidy()
        #expect(bench.record.installed?.version == "2" && bench.record.folders.count == 1)
    }

    @Test func `before the switch to it is downloaded again`() {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("1"))
        bench.install(Bench.manifest("2"))
        bench.call { .rollback(Bench.key, $0) }
        bench.switchLink()
        let (call, folder) = (bench.update(forces: true), bench.record.left!.folder)
        bench.fetch(Bench.manifest("2"))
        #expect(bench.actions.contains(.switchLink(Bench.key, folder: folder)) && bench.record.pending?.unpacked == Bench.size)
        bench.happens(.versionLost(Bench.key, folder: folder, isFolderThere: false))
        #expect(bench.stage == .downloading && bench.answers[call] == nil)
        // What is left of it is deleted, so the new files need another name.
        #expect(bench.record.pending?.folder != folder && bench.record.left == nil && bench.record.pending?.unpacked == nil)
        #expect(bench.actions.contains(.remove(Bench.key, AssetRemoval(folder: folder, keepsFolder: false))))
        bench.tidy()
        bench.addDownload()
        bench.download()
        bench.extract()
        bench.switchLink()
        bench.tidy()
        #expect(bench.answers[call] == .updated(isChanged: true, path: bench.record.path))
        #expect(bench.record.installed?.version == "2" && bench.record.previous?.version == "1" && bench.record.folders.count == 2)
    }

    @Test func `before a rollback to it is no version to go back to any more`() {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("1"))
        bench.install(Bench.manifest("2"))
        let (call, folder) = (bench.call { .rollback(Bench.key, $0) }, bench.record.previous!.folder)
        bench.happens(.versionLost(Bench.key, folder: folder, isFolderThere: false))
        guard case .failed = bench.answers[call] else { return #expect(Bool(false)) }
        #expect(bench.record.installed?.version == "2" && bench.record.previous == nil && !bench.record.isRollingBack)
        #expect(bench.stage == .ready)
        #expect(bench.actions.contains(.remove(Bench.key, AssetRemoval(folder: folder, keepsFolder: false))))
    }

    @Test func `on each way to its switch is known by what was unpacked`() {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("1"))
        #expect(bench.record.installed?.size == Bench.size)
        bench.install(Bench.manifest("2"))
        #expect(bench.record.previous?.size == Bench.size)
        bench.update()
        lose(bench, isFolderThere: true)
        #expect(bench.record.left?.size == Bench.size)
        bench.fetch(Bench.manifest("2"))
        bench.restart()
        #expect(bench.record.pending?.unpacked == Bench.size && bench.record.pending?.step == .switching)
    }

    @Test func `again and again before the switch to it fails the update, and nothing is left of it`() {
        let bench = Bench(Bench.record())
        let call = bench.update()
        bench.fetch(Bench.manifest("1"))
        var folders: Set<String> = []
        for _ in 0...2 {
            bench.addDownload()
            bench.download()
            bench.extract()
            folders.insert(bench.folder)
            bench.happens(.versionLost(Bench.key, folder: bench.folder, isFolderThere: false))
            bench.tidy()
        }
        #expect(folders.count == 3 && bench.record.removals.isEmpty)
        guard case .failed(let failure) = bench.answers[call] else { return #expect(Bool(false), "\(bench.answers)") }
        #expect(failure.name == .interrupted)
    }

    @Test func `counts only while the manifest is fetched, and only if it is the installed one`() {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("1"))
        lose(bench, isFolderThere: false)
        bench.update()
        bench.happens(.versionLost(Bench.key, folder: "version-1", isFolderThere: false))
        #expect(bench.record.installed?.version == "1")
    }
}

@Suite struct `The status` {
    @Test func `after a rollback is up-to-date, because an update would change nothing`() {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("1"))
        bench.install(Bench.manifest("2"))
        bench.call { .rollback(Bench.key, $0) }
        bench.switchLink()
        #expect(bench.state.status(download: nil) == .upToDate)
        let call = bench.check()
        bench.fetch(Bench.manifest("2"))
        #expect(bench.answers[call] == .checked(isNewer: false, latest: "2"))
        #expect(bench.state.status(download: nil) == .upToDate)
        bench.check()
        bench.fetch(Bench.manifest("3"))
        #expect(bench.state.status(download: nil) == .updateAvailable)
    }

    @Test func `with a latest version that was published before the installed one is up-to-date`() {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("2", timestamp: Bench.start))
        bench.check()
        bench.fetch(Bench.manifest("1", timestamp: Bench.start + .seconds(-1)))
        #expect(bench.state.status(download: nil) == .upToDate)
    }
}

@Suite struct `An unregistration with its data` {
    @Test func `of a folder that is away says so, and the asset stays as it was`() {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("1"))
        let before = bench.record
        let call = bench.call { .unregister(Bench.key, deletesData: true, $0) }
        let away = DownloadFailure(.writeFailed, "The folder is not there.")
        bench.happens(.dataDeleted(Bench.key, away, isUntouched: true))
        #expect(bench.answers[call] == .failed(away))
        #expect(bench.record.installed == before.installed && !bench.record.isLeaving && bench.record.removals.isEmpty)
        let again = bench.call { .unregister(Bench.key, deletesData: true, $0) }
        bench.happens(.dataDeleted(Bench.key, nil))
        #expect(bench.answers[again] == .done && bench.updater[Bench.key] == nil)
    }
}

@Suite struct `A registration with another key during a switch` {
    private func switching() -> Bench {
        let bench = Bench(Bench.record())
        bench.update()
        bench.fetch(Bench.manifest("1"))
        bench.addDownload()
        bench.download()
        bench.extract()
        return bench
    }

    private static let other = Bench.record { $0.publicKey = [UInt8](repeating: 7, count: 32) }

    @Test func `is answered after the switch, so that no version of the old key comes after the answer`() {
        let bench = switching()
        let call = bench.call { .register(Self.other, found: nil, $0) }
        let next = bench.call { .register(Bench.record(), found: nil, $0) }
        #expect(bench.answers[call] == nil && bench.answers[next] == nil && bench.record.publicKey.isEmpty)
        bench.switchLink()
        #expect(bench.answers[call] == .registered(Bench.key) && bench.answers[next] == .registered(Bench.key))
        #expect(bench.record.installed?.version == "1" && bench.record.publicKey.isEmpty, "the last registration counts")
    }

    @Test func `gives up an update whose switch has failed`() {
        let bench = switching()
        let call = bench.call { .register(Self.other, found: nil, $0) }
        bench.switchLink(failure)
        #expect(bench.answers[call] == .registered(Bench.key))
        #expect(bench.record.pending == nil && bench.record.publicKey == Self.other.publicKey)
        #expect(!bench.actions.contains { if case .switchLink = $0 { true } else { false } })
    }

    @Test func `is refused if the asset is unregistered meanwhile`() {
        let bench = switching()
        let leaving = bench.call { .unregister(Bench.key, deletesData: true, $0) }
        let call = bench.call { .register(Self.other, found: nil, $0) }
        bench.switchLink()
        bench.tidy()
        bench.happens(.dataDeleted(Bench.key, nil))
        #expect(bench.answers[leaving] == .done)
        guard case .refused(let refusal) = bench.answers[call] else { return #expect(Bool(false), "\(bench.answers)") }
        #expect(refusal.name == .invalidState)
    }
}
