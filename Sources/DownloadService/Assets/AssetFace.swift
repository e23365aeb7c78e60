internal import Assets
internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling

/// An asset on the bus.
@BusActor final class AssetObject {
    let key: AssetKey
    let centre: AssetCentre

    init(_ key: AssetKey, _ centre: AssetCentre) { (self.key, self.centre) = (key, centre) }

    fileprivate var state: AssetState? { centre.updater[key] }
    fileprivate var status: AssetStatus {
        let download = state?.record.pending?.download.flatMap { centre.list.scheduler[$0]?.state }
        return state?.status(download: download) ?? .notInstalled
    }

    /// The download of the archive, or of the manifest.
    fileprivate var download: ObjectPath {
        let isChecking = if case .checking = state?.activity { true } else { false }
        let number = isChecking ? centre.fetches[key] : state?.record.pending?.download
        return number.flatMap { centre.list.peek($0)?.path } ?? ObjectPath("/")
    }
}

/// `org.todoku.Asset1`: one asset on the bus.
enum AssetFace {
    static let face = Face<AssetObject>(
        Asset.interface, xml: { InterfaceXML.element(of: Asset.interface) }, methods: methods, properties: properties,
        signals: [
            Asset.stageChanged.name: Asset.stageChanged.signature, Asset.progress.name: Asset.progress.signature,
            Asset.ready.name: Asset.ready.signature,
        ], permits: { DocumentedErrors.permits($1, of: $0, in: Asset.interface) })

    @BusActor static func told(_ object: AssetObject) -> [String: Variant] { face.values(of: object) { $0.isTold } }

    private static let methods: [Row<AssetObject>] = [
        Row(Asset.check) { object, options, reply in
            try SandboxRules.checkNetwork(of: reply.call.caller)
            if let key = options.keys.sorted().first { throw Refusal(.invalidOption, "Check has no option “\(shown(key))”.") }
            try object.centre.decide(reply) { answer in
                if case .checked(let isNewer, let latest) = answer { (isNewer, latest) } else { nil }
            } _: {
                .check(object.key, $0)
            }
        },
        Row(Asset.update) { object, options, reply in
            try SandboxRules.checkNetwork(of: reply.call.caller)
            let forces = try forces(options, of: "Update")
            try object.centre.decide(reply) { answer in
                if case .updated(let isChanged, let path) = answer { (isChanged, path) } else { nil }
            } _: {
                .update(object.key, forces: forces, $0)
            }
        },
        Row(Asset.rollback) { object, _, reply in
            try object.centre.decide(reply) { answer in
                if case .rolledBack(let path) = answer { path } else { nil }
            } _: {
                .rollback(object.key, $0)
            }
        },
        Row(Asset.cancel) { object, _, reply in
            try object.centre.decide(reply) { answer in
                if case .done = answer { () } else { nil }
            } _: {
                .cancel(object.key, $0)
            }
        },
    ]

    private static let properties: [PropertyRow<AssetObject>] = [
        PropertyRow(Asset.app) { $0.key.app },
        PropertyRow(Asset.name) { $0.key.name },
        PropertyRow(Asset.manifestUrl) { $0.state.map { redacted($0.record.manifestURL) } ?? "" },
        PropertyRow(Asset.installedVersion) { $0.state?.record.installed?.version ?? "" },
        PropertyRow(Asset.latestVersion) { $0.state?.record.latest ?? "" },
        PropertyRow(Asset.stage) { $0.state?.stage.rawValue ?? "" },
        PropertyRow(Asset.status) { $0.status.rawValue },
        PropertyRow(Asset.path) { $0.state?.record.path ?? "" },
        PropertyRow(Asset.download) { $0.download },
        PropertyRow(Asset.error) { $0.state?.record.failure.map { EndError($0) } ?? EndError() },
    ]

    /// The option `force` of an update.
    ///
    /// - Throws: `InvalidOption` for any other key, or another type.
    static func forces(_ options: [String: Variant], of method: String) throws(Refusal) -> Bool {
        for key in options.keys.sorted() where key != "force" {
            throw Refusal(.invalidOption, "\(method) has no option “\(shown(key))”; it takes force.")
        }
        guard let value = options["force"] else { return false }
        guard let forces = value.bool else { throw Refusal(.invalidOption, "Option force takes the type b, not \(value.type.prefix(64)).") }
        return forces
    }
}
