internal import Assets
internal import DownloadModel
internal import Testing

/// Every stage with every event: what the asset does afterwards. Where the table has no row, the event changes nothing.
@Suite struct `Each stage with each event` {
    static let stages = [
        "idle", "ready", "failed", "cancelled", "checking", "checkingForUpdate", "checkingSpace", "starting", "downloading", "verifying",
        "extracting", "switching", "rollingBack", "deleting",
    ]
    static let events = [
        "register", "unregister", "unregisterDeleting", "check", "update", "updateAll", "rollback", "cancel", "manifest", "manifestSame",
        "manifestFailed", "room", "noRoom", "added", "refused", "verifies", "continues", "finished", "downloadFailed", "downloadCancelled",
        "downloadLost", "whole", "extractionFailed", "unusable", "archiveLost", "extractionCancelled", "switched", "switchFailed",
        "removed", "dataDeleted", "dataNotDeleted", "ownerCalled", "callersLeft", "network", "time", "ends",
    ]

    /// The stages that are not those before the event.
    static let table: [String: [String: String]] = [
        "idle": [
            "unregister": "gone", "unregisterDeleting": "deleting", "check": "checking", "update": "checking", "updateAll": "checking",
        ],
        "ready": [
            "unregister": "ready", "unregisterDeleting": "deleting", "check": "checking", "update": "checking", "updateAll": "checking",
            "rollback": "rollingBack",
        ],
        "failed": [
            "unregister": "cancelled", "unregisterDeleting": "cancelled", "check": "checking", "update": "checking",
            "updateAll": "checking", "cancel": "cancelled",
        ],
        "cancelled": [
            "unregister": "gone", "unregisterDeleting": "deleting", "check": "checking", "update": "checking", "updateAll": "checking",
        ],
        "checking": [
            "unregister": "gone", "unregisterDeleting": "deleting", "cancel": "idle", "manifest": "idle", "manifestSame": "idle",
            "manifestFailed": "idle",
        ],
        "checkingForUpdate": [
            "unregister": "cancelled", "unregisterDeleting": "deleting", "cancel": "cancelled", "manifest": "checkingSpace",
            "manifestSame": "ready", "manifestFailed": "failed",
        ],
        "checkingSpace": [
            "unregister": "cancelled", "unregisterDeleting": "cancelled", "cancel": "cancelled", "room": "starting", "noRoom": "failed",
        ],
        "starting": [
            "unregister": "cancelled", "unregisterDeleting": "cancelled", "cancel": "cancelled", "added": "downloading",
            "refused": "failed",
        ],
        "downloading": [
            "unregister": "cancelled", "unregisterDeleting": "cancelled", "cancel": "cancelled", "verifies": "verifying",
            "finished": "extracting", "downloadFailed": "failed", "downloadCancelled": "cancelled", "downloadLost": "checkingSpace",
        ],
        "verifying": [
            "unregister": "cancelled", "unregisterDeleting": "cancelled", "cancel": "cancelled", "continues": "downloading",
            "finished": "extracting", "downloadFailed": "failed", "downloadCancelled": "cancelled", "downloadLost": "checkingSpace",
        ],
        "extracting": [
            "unregister": "cancelled", "unregisterDeleting": "cancelled", "cancel": "cancelled", "whole": "switching",
            "extractionFailed": "failed", "unusable": "failed", "archiveLost": "checkingSpace", "extractionCancelled": "failed",
        ],
        "switching": ["switched": "ready", "switchFailed": "failed"],
        "rollingBack": ["switched": "ready", "switchFailed": "ready"],
        "deleting": ["dataDeleted": "gone", "dataNotDeleted": "failed"],
    ]

    @Test(arguments: stages) func `leads where the table says`(stage: String) throws {
        for event in Self.events {
            let bench = Self.bench(in: stage)
            #expect(Self.name(of: bench) == (stage == "checkingForUpdate" ? "checking" : stage), "the test does not reach \(stage)")
            let before = bench.rows
            Self.raise(event, bench)
            let expected = Self.table[stage]?[event] ?? (stage == "checkingForUpdate" ? "checking" : stage)
            #expect(Self.name(of: bench) == expected, "\(stage) after \(event)")
            // What is saved is what the updater knows.
            #expect(bench.rows[Bench.key] == bench.updater[Bench.key]?.record, "\(stage) after \(event)")
            if Self.table[stage]?[event] == nil, !["register", "updateAll", "update", "check", "rollback", "cancel"].contains(event),
                stage != "switching", stage != "rollingBack", stage != "deleting"
            {
                #expect(bench.rows == before, "\(stage) after \(event)")
            }
        }
    }

    static func name(of bench: Bench) -> String {
        guard let state = bench.updater[Bench.key] else { return "gone" }
        return switch state.activity {
        case .none: state.stage.rawValue
        case .checking: "checking"
        case .checkingSpace: "checkingSpace"
        case .starting: "starting"
        case .downloading: "downloading"
        case .verifying: "verifying"
        case .extracting: "extracting"
        case .switching: "switching"
        case .rollingBack: "rollingBack"
        case .deleting: "deleting"
        }
    }

    /// A bench whose asset is in `stage`, by the way that leads there.
    static func bench(in stage: String) -> Bench {
        let bench = Bench(Bench.record())
        if ["ready", "checkingForUpdate", "rollingBack"].contains(stage) {
            bench.install(Bench.manifest("1"))
            bench.install(Bench.manifest("2"))
        }
        switch stage {
        case "idle", "ready": break
        case "checking": bench.check()
        case "rollingBack": bench.call { .rollback(Bench.key, $0) }
        case "deleting": bench.call { .unregister(Bench.key, deletesData: true, $0) }
        default:
            bench.update()
            if stage == "checkingForUpdate" { break }
            bench.fetch(Bench.manifest("3"))
            if stage == "checkingSpace" { break }
            if stage == "starting" {
                bench.happens(.spaceChecked(Bench.key, bench.ticket!, missing: 0))
                break
            }
            bench.addDownload()
            if stage == "downloading" { break }
            if stage == "verifying" {
                bench.happens(.downloadVerifies(Bench.key, bench.number))
                break
            }
            if stage == "failed" {
                bench.download(.failed(failure))
                break
            }
            if stage == "cancelled" {
                bench.call { .cancel(Bench.key, $0) }
                bench.tidy()
                break
            }
            bench.download()
            if stage == "extracting" { break }
            bench.extract()
        }
        return bench
    }

    static func raise(_ event: String, _ bench: Bench) {
        let (key, ticket) = (Bench.key, bench.ticket ?? AssetUpdater.Ticket(999))
        switch event {
        case "register": bench.call { .register(Bench.record(), found: nil, $0) }
        case "unregister": bench.call { .unregister(key, deletesData: false, $0) }
        case "unregisterDeleting": bench.call { .unregister(key, deletesData: true, $0) }
        case "check": bench.check()
        case "update": bench.update()
        case "updateAll": bench.call { .updateAll(app: key.app, forces: false, $0) }
        case "rollback": bench.call { .rollback(key, $0) }
        case "cancel": bench.call { .cancel(key, $0) }
        case "manifest": bench.happens(.manifestFetched(key, ticket, Bench.manifest("3")))
        case "manifestSame": bench.happens(.manifestFetched(key, ticket, Bench.manifest("2")))
        case "manifestFailed": bench.happens(.manifestFailed(key, ticket, failure))
        case "room": bench.happens(.spaceChecked(key, ticket, missing: 0))
        case "noRoom": bench.happens(.spaceChecked(key, ticket, missing: 1))
        case "added":
            if case .starting = bench.state.activity {
                bench.addDownloadOnly()
            } else {
                bench.happens(.downloadAdded(key, ticket, DownloadNumber(77)))
            }
        case "refused": bench.happens(.downloadRefused(key, ticket, failure))
        case "verifies": bench.happens(.downloadVerifies(key, bench.number))
        case "continues": bench.happens(.downloadContinues(key, bench.number))
        case "finished": bench.download(.finished)
        case "downloadFailed": bench.download(.failed(failure))
        case "downloadCancelled": bench.download(.cancelled)
        case "downloadLost": bench.download(.lost)
        case "whole": bench.extract()
        case "extractionFailed": bench.extract(.failed(failure))
        case "unusable": bench.extract(.unusable(failure))
        case "archiveLost": bench.extract(.archiveLost)
        case "extractionCancelled": bench.extract(.cancelled)
        case "switched": bench.switchLink()
        case "switchFailed": bench.switchLink(failure)
        case "removed": bench.happens(.removed(key, AssetRemoval(folder: "version-1", keepsFolder: false), isGone: true))
        case "dataDeleted": bench.happens(.dataDeleted(key, nil))
        case "dataNotDeleted": bench.happens(.dataDeleted(key, failure))
        case "ownerCalled": bench.happens(.ownerCalled(key, true))
        case "callersLeft": bench.happens(.callersLeft(Set((0...99).map { AssetUpdater.CallNumber($0) })))
        case "network": bench.happens(.network(.open))
        case "time": bench.happens(.time)
        default: bench.happens(.ends)
        }
    }
}
