internal import Assets
internal import DownloadModel
internal import Testing

@Suite struct `An asset that is registered again` {
    @Test(arguments: [true, false]) func `with another URL is not judged by the manifest of the former one`(isGone: Bool) {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("1"))
        bench.check()
        if isGone {
            let failure = DownloadFailure(.httpStatus, "It is gone.", httpStatus: 410)
            bench.happens(.manifestFailed(Bench.key, bench.ticket!, failure))
        } else {
            bench.fetch(Bench.manifest("2"))
        }
        let status = isGone ? AssetStatus.obsolete : .updateAvailable
        bench.call { .register(Bench.record { $0.publicKey = [UInt8](repeating: 7, count: 32) }, found: nil, $0) }
        #expect(bench.state.status(download: nil) == status, "this URL has said so")
        bench.call { .register(Bench.record { $0.manifestURL = "https://other/m.json" }, found: nil, $0) }
        #expect(bench.state.status(download: nil) == .upToDate && bench.record.latest == nil && bench.record.installed?.version == "1")
        bench.restart()
        #expect(bench.state.status(download: nil) == .upToDate)
        bench.check()
        bench.fetch(Bench.manifest("3"))
        #expect(bench.state.status(download: nil) == .updateAvailable)
    }

    @Test func `remembers whether a public server has named its archive, until its URL is another`() {
        let bench = Bench(Bench.record())
        func fetch(isPublic: Bool?) {
            bench.check()
            bench.happens(.manifestFetched(Bench.key, bench.ticket!, Bench.manifest("1"), isPublic: isPublic))
        }
        for isPublic in [true, false, true] {
            fetch(isPublic: isPublic)
            fetch(isPublic: nil)
            bench.call { .register(Bench.record { $0.options.isNamedByPublicServer = !isPublic }, found: nil, $0) }
            bench.restart()
            #expect(bench.record.options.isNamedByPublicServer == isPublic)
        }
        bench.call { .register(Bench.record { $0.manifestURL = "https://192.168.1.2/m.json" }, found: nil, $0) }
        #expect(bench.record.options.isNamedByPublicServer == nil)
    }

    @Test func `with another URL is due for its daily check`() {
        let bench = Bench(Bench.record { $0.update = .daily })
        bench.complete(Bench.manifest("1"))
        bench.now = bench.now + AssetRecord.checkPause
        bench.call { .register(Bench.record { $0.update = .daily }, found: nil, $0) }
        #expect(bench.stage == .ready, "it was checked an hour ago")
        bench.call {
            .register(
                Bench.record {
                    $0.update = .daily
                    $0.manifestURL = "https://other/m.json"
                }, found: nil, $0)
        }
        #expect(bench.stage == .checking)
    }

    @Test(arguments: [0, 900_000_000_000_000] as [UInt64])
    func `finds its version also if the clock was not set when it was installed`(microseconds: UInt64) throws {
        let bench = Bench(Bench.record())
        bench.now = WallTime(microseconds: microseconds)
        bench.install(Bench.manifest("1"))
        let folder = try #require(bench.record.installed?.folder)
        #expect(AssetRecord.isFoundFolder(folder), "\(folder)")
        bench.call { .unregister(Bench.key, deletesData: false, $0) }
        bench.tidy()
        #expect(bench.updater[Bench.key] == nil)
        bench.now = WallTime(microseconds: microseconds + 1)
        bench.call { .register(Bench.record(), found: folder, $0) }
        bench.update()
        bench.fetch(Bench.manifest("2"))
        #expect(bench.record.pending.map { $0.folder != folder && AssetRecord.isFoundFolder($0.folder) } == true)
    }
}
