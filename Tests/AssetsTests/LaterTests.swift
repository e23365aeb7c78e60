internal import Assets
internal import DownloadModel
internal import Testing

@Suite struct `The owner of an asset` {
    @Test(arguments: [true, false]) func `hears of a version that came while the owner was called about the one before`(answers: Bool) {
        let bench = Bench(Bench.record { $0.options.activate = "org.example.App" })
        bench.install(Bench.manifest("1"))
        bench.install(Bench.manifest("2"))
        // The answer to the call about version 1.
        bench.happens(.ownerCalled(Bench.key, answers))
        #expect(bench.actions.contains(.callOwner(Bench.key)) && bench.record.owesCall)
        bench.happens(.ownerCalled(Bench.key, true))
        #expect(!bench.actions.contains(.callOwner(Bench.key)) && !bench.record.owesCall && !bench.updater.hasWork)
    }
}

@Suite struct `An update with force` {
    @Test(arguments: [true, false]) func `that failed or was cancelled does not make a later check take a rollback back`(fails: Bool) {
        let bench = Bench(Bench.record { ($0.update, $0.checkedAt) = (.daily, Bench.start) })
        bench.install(Bench.manifest("1"))
        bench.install(Bench.manifest("2"))
        bench.call { .rollback(Bench.key, $0) }
        bench.switchLink()
        bench.update(forces: true)
        if fails {
            bench.happens(.manifestFailed(Bench.key, bench.ticket!, failure))
        } else {
            bench.call { .cancel(Bench.key, $0) }
        }
        bench.now = bench.now + AssetRecord.checkInterval
        bench.happens(.time)
        #expect(bench.stage == .checking)
        bench.fetch(Bench.manifest("2"))
        #expect(bench.stage == .ready && bench.record.pending == nil && bench.record.installed?.version == "1")
    }
}
