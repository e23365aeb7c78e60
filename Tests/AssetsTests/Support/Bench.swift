internal import Assets
internal import DownloadModel
internal import Testing

/// An updater with one asset, and the host's side by hand: each verb is one turn with one event.
final class Bench {
    static let start = WallTime(microseconds: 1_700_000_000_000_000)
    static let key: AssetKey = {
        do { return try AssetKey(app: "org.example.App", name: "maps") } catch { preconditionFailure("\(error)") }
    }()
    static let directory = "/assets/maps"
    /// What an extraction makes.
    static let size = FolderSize(entries: 10, bytes: 4000)

    private(set) var updater: AssetUpdater
    var now = Bench.start
    /// The actions of the last turn, and of all turns.
    private(set) var actions: [AssetUpdater.Action] = []
    private(set) var answers: [UInt64: AssetUpdater.Answer] = [:]
    private var lastCall: UInt64 = 0
    private var lastDownload: UInt64 = 100
    /// What the next process finds.
    private(set) var rows: [AssetKey: AssetRecord] = [:]

    init(_ records: AssetRecord..., network: NetworkCondition? = .open, isLogin: Bool = false, session: String = "") {
        updater = AssetUpdater(records, network: network)
        for record in records { rows[record.key] = record }
        happens(.begins(isLogin: isLogin, session: session))
    }

    /// The process dies, and another one begins with the rows that are on disk.
    func restart(isLogin: Bool = false, session: String = "", network: NetworkCondition? = .open) {
        updater = AssetUpdater(rows.values.sorted { $0.key < $1.key }, network: network)
        happens(.begins(isLogin: isLogin, session: session))
    }

    func happens(_ event: AssetUpdater.Event) {
        actions = updater.turn([event], at: now)
        for action in actions {
            switch action {
            case .save(let record): rows[record.key] = record
            case .delete(let key): rows[key] = nil
            case .answer(let call, let answer):
                #expect(answers[call.value] == nil, "the call \(call.value) is answered twice")
                answers[call.value] = answer
            default: break
            }
        }
    }

    /// Makes a call; returns its number.
    @discardableResult func call(_ make: (AssetUpdater.CallNumber) -> AssetUpdater.Event) -> UInt64 {
        lastCall += 1
        happens(make(AssetUpdater.CallNumber(lastCall)))
        return lastCall
    }

    @discardableResult func update(forces: Bool = false) -> UInt64 { call { .update(Self.key, forces: forces, $0) } }
    @discardableResult func check() -> UInt64 { call { .check(Self.key, $0) } }

    var state: AssetState { updater[Self.key]! }
    var record: AssetRecord { state.record }
    var stage: AssetStage { state.stage }

    // MARK: The host's answers to what is under way

    var ticket: AssetUpdater.Ticket? {
        switch state.activity {
        case .checking(let ticket), .checkingSpace(let ticket), .starting(let ticket): ticket
        default: nil
        }
    }

    var number: DownloadNumber { DownloadNumber(lastDownload) }
    var folder: String { record.pending?.folder ?? record.previous?.folder ?? "" }

    func fetch(_ manifest: AssetManifest) { happens(.manifestFetched(Self.key, ticket!, manifest)) }
    func addDownload() {
        happens(.spaceChecked(Self.key, ticket!, missing: 0))
        addDownloadOnly()
    }
    func addDownloadOnly() {
        lastDownload += 1
        happens(.downloadAdded(Self.key, ticket!, number))
    }
    func download(_ end: AssetUpdater.DownloadEnd = .finished) { happens(.downloadEnded(Self.key, number, end)) }
    func extract(_ end: AssetUpdater.ExtractionEnd = .whole(size)) { happens(.extracted(Self.key, folder: folder, end)) }
    func switchLink(_ failure: DownloadFailure? = nil) { happens(.switched(Self.key, failure)) }

    /// Deletes all that is to be deleted.
    func tidy() {
        while let removal = actions.lazy.compactMap({ if case .remove(_, let removal) = $0 { removal } else { nil } }).first {
            let rest = actions.filter { $0 != .remove(Self.key, removal) }
            happens(.removed(Self.key, removal, isGone: true))
            actions += rest
        }
    }

    /// Brings `manifest` from the call to the end.
    func install(_ manifest: AssetManifest, forces: Bool = false) {
        update(forces: forces)
        complete(manifest)
    }

    /// Brings `manifest`, which is being fetched, to the end.
    func complete(_ manifest: AssetManifest) {
        fetch(manifest)
        addDownload()
        download()
        extract()
        switchLink()
        tidy()
    }

    /// Brings `manifest` to the asset `key`, whose manifest is being fetched.
    func bring(_ key: AssetKey, _ manifest: AssetManifest) {
        func ticket() -> AssetUpdater.Ticket? {
            switch updater[key]?.activity {
            case .checking(let ticket), .checkingSpace(let ticket), .starting(let ticket): ticket
            default: nil
            }
        }
        happens(.manifestFetched(key, ticket()!, manifest))
        happens(.spaceChecked(key, ticket()!, missing: 0))
        lastDownload += 1
        happens(.downloadAdded(key, ticket()!, number))
        happens(.downloadEnded(key, number, .finished))
        happens(.extracted(key, folder: updater[key]?.record.pending?.folder ?? "", .whole(Bench.size)))
        happens(.switched(key, nil))
    }

    static func record(_ change: (inout AssetRecord) -> Void = { _ in }) -> AssetRecord {
        var options = DownloadOptions()
        options.app = key.app
        var record = AssetRecord(key: key, manifestURL: "https://h/maps.json", options: options, directory: directory)
        change(&record)
        return record
    }

    static func manifest(_ version: String, timestamp: WallTime? = nil, mirrors: [String] = []) -> AssetManifest {
        AssetManifest(
            version: version, url: "https://h/maps-\(version).zip", sha256: digest(version), size: 1000, unpackedSize: 4000,
            timestamp: timestamp, mirrors: mirrors)
    }

    static func digest(_ text: String) -> Checksum {
        Checksum(.sha256, digest: Array((text + String(repeating: "-", count: 32)).utf8.prefix(32)))!
    }
}

let failure = DownloadFailure(.network, "The server is gone.")
