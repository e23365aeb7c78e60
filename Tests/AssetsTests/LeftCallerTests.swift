internal import Assets
internal import DownloadModel
internal import Testing

@Suite struct `A call whose caller has left` {
    /// The callers of `calls` leave.
    private func leave(_ bench: Bench, _ calls: UInt64...) { bench.happens(.callersLeft(Set(calls.map(AssetUpdater.CallNumber.init)))) }

    private func downloading() -> (Bench, call: UInt64) {
        let bench = Bench(Bench.record())
        let call = bench.update()
        bench.fetch(Bench.manifest("1"))
        bench.addDownload()
        return (bench, call)
    }

    private func finish(_ bench: Bench) {
        bench.download()
        bench.extract()
        bench.switchLink()
        bench.tidy()
    }

    @Test func `for an update is not answered, and the update continues`() {
        let (bench, call) = downloading()
        let other = bench.update()
        leave(bench, call)
        #expect(bench.actions.isEmpty && bench.state.hasCallers && bench.stage == .downloading)
        finish(bench)
        #expect(bench.answers[call] == nil && bench.answers[other] == .updated(isChanged: true, path: bench.record.path))
        #expect(bench.record.installed?.version == "1" && !bench.state.hasCallers)
    }

    /// An app connects, asks, and leaves, again and again, while the download of the archive is paused.
    @Test func `is kept nowhere`() {
        let (bench, first) = downloading()
        leave(bench, first)
        for _ in 0..<3 {
            let all = bench.call { .updateAll(app: Bench.key.app, forces: false, $0) }
            leave(bench, bench.update(), all)
        }
        #expect(!bench.state.hasCallers)
        finish(bench)
        #expect(bench.answers.isEmpty && bench.record.installed?.version == "1")
    }

    @Test func `for a check, a rollback or an unregistration is not answered, and each of these continues`() {
        let bench = Bench(Bench.record())
        bench.install(Bench.manifest("1"))
        bench.install(Bench.manifest("2"))
        let check = bench.check()
        leave(bench, check)
        bench.fetch(Bench.manifest("3"))
        #expect(bench.record.latest == "3")
        let rollback = bench.call { .rollback(Bench.key, $0) }
        leave(bench, rollback)
        bench.switchLink()
        #expect(bench.record.installed?.version == "1")
        bench.tidy()
        let unregistration = bench.call { .unregister(Bench.key, deletesData: true, $0) }
        leave(bench, unregistration)
        bench.happens(.dataDeleted(Bench.key, nil))
        #expect(bench.updater[Bench.key] == nil)
        for call in [check, rollback, unregistration] { #expect(bench.answers[call] == nil) }
    }

    @Test func `for the next update, while that of an earlier process continues, begins it all the same`() {
        let (bench, _) = downloading()
        bench.restart()
        leave(bench, bench.update(forces: true))
        finish(bench)
        #expect(bench.record.installed?.version == "1" && bench.stage == .checking)
        bench.fetch(Bench.manifest("2"))
        #expect(bench.stage == .downloading && !bench.state.hasCallers)
    }

    @Test func `for a registration during a switch is not answered, and the registration counts`() {
        let (bench, _) = downloading()
        bench.download()
        bench.extract()
        let key = [UInt8](repeating: 7, count: 32)
        let call = bench.call { .register(Bench.record { $0.publicKey = key }, found: nil, $0) }
        leave(bench, call)
        bench.switchLink()
        #expect(bench.record.installed?.version == "1" && bench.record.publicKey == key && bench.answers[call] == nil)
    }
}
