internal import Assets
internal import DownloadModel
internal import Testing

/// What an event costs, counted in visits of assets.
@Suite struct `An event` {
    private static func key(_ number: Int) throws -> AssetKey {
        try AssetKey(app: "org.example.App\(number / 100)", name: "asset\(number)")
    }

    /// An updater of `count` assets that are checked daily and were checked just now.
    private static func updater(of count: Int) throws -> AssetUpdater {
        let records = try (0..<count).map { number in
            let key = try key(number)
            var options = DownloadOptions()
            options.app = key.app
            var record = AssetRecord(key: key, manifestURL: "https://h/\(number)", options: options, directory: "/assets/\(number)")
            (record.update, record.checkedAt) = (.daily, Bench.start)
            record.installed = AssetVersion(version: "1", folder: "version-\(number + 1)")
            return record
        }
        let updater = AssetUpdater(records, network: .open)
        _ = updater.turn([.begins(isLogin: false)], at: Bench.start)
        return updater
    }

    /// The visits of a check, an update, a refused registration and a caller that leaves, of the events of their host, and of what is asked
    /// after each.
    private static func visits(among count: Int) throws -> [Int] {
        let (updater, key) = (try updater(of: count), try key(3))
        var visits: [Int] = []
        func happens(_ event: AssetUpdater.Event) {
            let before = updater.assets.visits
            _ = updater.turn([event], at: Bench.start)
            _ = (updater.hasWork, updater.awaitsNetwork, updater.nextWake, updater.keys(of: key.app).count, updater.assets.count)
            visits.append(updater.assets.visits - before)
        }
        func ticket() -> AssetUpdater.Ticket {
            switch updater[key]?.activity {
            case .checking(let ticket), .checkingSpace(let ticket), .starting(let ticket): ticket
            default: AssetUpdater.Ticket(0)
            }
        }
        happens(.update(key, forces: false, AssetUpdater.CallNumber(1)))
        happens(.manifestFetched(key, ticket(), Bench.manifest("2")))
        happens(.spaceChecked(key, ticket(), missing: 0))
        happens(.downloadAdded(key, ticket(), DownloadNumber(1)))
        happens(.downloadEnded(key, DownloadNumber(1), .finished))
        happens(.extracted(key, folder: updater[key]?.record.pending?.folder ?? "", .whole(Bench.size)))
        happens(.switched(key, nil))
        var record = Bench.record()
        record.directory = "/assets/3"
        happens(.register(record, found: nil, AssetUpdater.CallNumber(2)))
        record.directory = "/elsewhere"
        happens(.register(record, found: "version-6", AssetUpdater.CallNumber(3)))
        happens(.update(key, forces: false, AssetUpdater.CallNumber(4)))
        happens(.callersLeft([AssetUpdater.CallNumber(4)]))
        for event in [.network(nil), .network(.open), .time] as [AssetUpdater.Event] { happens(event) }
        #expect(updater[key]?.record.installed?.version == "2" && updater[Bench.key] == nil)
        return visits
    }

    @Test func `visits as many assets among 10,000 as among ten`() throws {
        let visits = try Self.visits(among: 10)
        #expect(try Self.visits(among: 10_000) == visits)
        #expect(visits.allSatisfy { $0 < 100 }, "\(visits)")
    }

    @Test func `that comes when one check of 10,000 is due visits that one`() throws {
        let updater = try Self.updater(of: 10_000)
        let (key, before) = (try Self.key(7), updater.assets.visits)
        _ = updater.turn([.check(key, AssetUpdater.CallNumber(1))], at: Bench.start)
        guard case .checking(let ticket)? = updater[key]?.activity else { return #expect(Bool(false)) }
        // One second before all others are due.
        _ = updater.turn([.manifestFetched(key, ticket, Bench.manifest("1"))], at: Bench.start + .seconds(-1))
        let time = Bench.start + .seconds(24 * 3600 - 1)
        #expect(updater.nextWake == time)
        let actions = updater.turn([.time], at: time)
        #expect(actions.contains { if case .fetchManifest(key, _, true) = $0 { true } else { false } })
        #expect(updater.assets.visits - before < 100)
        #expect(updater.nextWake == Bench.start + .seconds(24 * 3600))
    }

    @Test func `that is repeated does not make the updater grow`() throws {
        let updater = try Self.updater(of: 1)
        let key = try Self.key(0)
        for _ in 0..<10_000 {
            _ = updater.turn([.check(key, AssetUpdater.CallNumber(1))], at: Bench.start)
            _ = updater.turn([.cancel(key, AssetUpdater.CallNumber(2))], at: Bench.start)
        }
        #expect(updater.instantsKept < 100)
    }
}
