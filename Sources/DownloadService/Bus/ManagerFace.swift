internal import DBus
internal import DownloadModel
internal import DownloadStore
internal import DownloaderInterface
internal import EventLoop
internal import PartFiles
internal import Scheduling
internal import TransferEngine

/// `org.todoku.Downloader1`: the service as a whole on the bus.
enum ManagerFace {
    static let face = Face<Commands>(
        Manager.interface, xml: { InterfaceXML.element(of: Manager.interface) }, methods: methods, properties: properties,
        signals: [
            Manager.downloadAdded.name: Manager.downloadAdded.signature, Manager.downloadRemoved.name: Manager.downloadRemoved.signature,
            Manager.batchAdded.name: Manager.batchAdded.signature, Manager.batchRemoved.name: Manager.batchRemoved.signature,
            Manager.downloadEnded.name: Manager.downloadEnded.signature, Manager.allEnded.name: Manager.allEnded.signature,
            Manager.assetAdded.name: Manager.assetAdded.signature, Manager.assetRemoved.name: Manager.assetRemoved.signature,
        ], permits: { DocumentedErrors.permits($1, of: $0, in: Manager.interface) })

    @BusActor static func told(_ commands: Commands) -> [String: Variant] { face.values(of: commands) { $0.isTold } }

    private static let methods: [Row<Commands>] = [
        Row(Manager.download) { commands, arguments, reply in
            try commands.admission.admit(url: arguments.0, options: arguments.1, .path(reply))
        },
        Row(Manager.fetch) { commands, arguments, reply in
            try commands.admission.admit(url: arguments.0, options: arguments.1, .fetch(reply))
        },
        Row(Manager.downloadToFd) { commands, arguments, reply in
            let descriptor = HeldDescriptor(adopting: arguments.1.take())
            try commands.admission.admit(url: arguments.0, options: arguments.2, into: descriptor, .path(reply))
        },
        Row(
            Manager.downloadBatch,
            reading: { commands, items, options, reply in try commands.admission.admit(items, options: options, reply) }),
        Row(Manager.downloadMetalink) { commands, arguments, reply in
            let descriptor = HeldDescriptor(adopting: arguments.0.take())
            try commands.admission.admit(metalink: descriptor, options: arguments.1, reply)
        },
        Row(Manager.list) { commands, filter, reply in
            try commands.list(DownloadFilter(decoding: filter), reply)
        },
        Row(Manager.listBatches) { commands, filter, reply in
            try commands.listBatches(BatchFilter(decoding: filter), reply)
        },
        Row(Manager.describe) { commands, arguments, reply in
            let wanted = Set(arguments.1)
            for name in arguments.1 where !DownloadFace.readable.properties.contains(where: { $0.name == name }) {
                throw DBusError.unknownProperty("\(Download.interface) has no property \(shown(name))")
            }
            let rows = DownloadFace.readable.properties.filter { wanted.isEmpty || wanted.contains($0.name) }.sorted { $0.name < $1.name }
            try commands.describe(DownloadFilter(decoding: arguments.0), rows, reply)
        },
        Row(Manager.waitAll) { commands, dictionary, reply in
            for key in ["after", "newest-first", "limit"] where dictionary[key] != nil {
                throw Refusal(.invalidOption, "WaitAll takes no filter key “\(key)”: it waits for all that match.")
            }
            try commands.waitAll(DownloadFilter(decoding: dictionary), reply)
        },
        Row(Manager.setForeground) { commands, arguments, reply in
            let (app, isInFront) = arguments
            if let own = reply.call.caller.app, own != app {
                throw Refusal(.notAllowed, "An app in a sandbox may not use the id of another app; its own is \(own).")
            }
            try commands.foreground.set(app, isInFront, by: reply.call.sender)
            reply()
        },
        Row(Manager.pauseAll) { commands, _, reply in
            try reply.refuseSandboxed("pause what others have queued")
            commands.events.decide(.pauseAll)
            commands.answerChange(reply)
        },
        Row(Manager.resumeAll) { commands, _, reply in
            try reply.refuseSandboxed("resume what others have queued")
            commands.events.decide(.resumeAll)
            commands.answerChange(reply)
        },
        Row(Manager.cancelAll) { commands, _, reply in
            try reply.refuseSandboxed("cancel what others have queued")
            try commands.changeMany(for: reply.call) {
                .cancelAll(answering: $0)
            } answer: {
                commands.answerChange(reply)
            }
        },
        Row(Manager.clearEnded) { commands, _, reply in
            try reply.refuseSandboxed("clear what others have queued")
            try commands.clearEnded(reply)
        },
        Row(Manager.setHostRule) { commands, arguments, reply in
            try reply.refuseSandboxed("set the rules of hosts")
            let (host, rule) = (try HostRules.name(of: arguments.0), try HostRule(decoding: arguments.1))
            var rules = commands.list.settings.hostRules
            try rules.set(host, rule)
            commands.set { $0.hostRules = rules }
            commands.answerChange(reply)
        },
        Row(Manager.listSlowedHosts) { commands, _, reply in
            try reply.refuseSandboxed("see which hosts others use")
            try commands.listSlowedHosts(reply)
        },
        Row(Manager.resetHost) { commands, host, reply in
            try reply.refuseSandboxed("reset hosts")
            let name = try HostRules.name(of: host)
            commands.events.decide(.resetHost(name))
            commands.answerChange(reply)
        },
        Row(Manager.registerAsset) { commands, arguments, reply in
            try commands.assets.register(arguments.0, arguments.1, arguments.2, arguments.3, reply)
        },
        Row(Manager.unregisterAsset) { commands, arguments, reply in
            try commands.assets.unregister(arguments.0, deletesData: arguments.1, reply)
        },
        Row(Manager.assets) { commands, app, reply in reply(commands.assets.paths(of: app, for: reply.call.caller)) },
        Row(Manager.updateAssets) { commands, arguments, reply in
            try commands.assets.updateAll(arguments.0, arguments.1, reply)
        },
    ]

    private static let properties: [PropertyRow<Commands>] = [
        PropertyRow(Manager.remaining) { $0.list.counts.remaining },
        PropertyRow(Manager.active) { $0.list.counts.active },
        PropertyRow(Manager.queued) { $0.list.counts.notStarted },
        PropertyRow(Manager.received) { $0.list.sums.received },
        PropertyRow(Manager.total) { $0.list.sums.total.wireTotal },
        PropertyRow(Manager.fraction) { commands in
            let sums = commands.list.sums
            return wireFraction(received: sums.received, total: sums.total)
        },
        PropertyRow(Manager.speed) { $0.list.sums.speed },
        PropertyRow(Manager.paused) { $0.list.settings.paused },
        PropertyRow(Manager.maxActive, { $0.list.settings.maxActive }) { commands, value, reply in
            try reply.refuseSandboxed("change the settings")
            commands.set { $0.maxActive = value }
            commands.answerChange(reply)
        },
        PropertyRow(Manager.maxPerHost, { $0.list.settings.maxPerHost }) { commands, value, reply in
            try reply.refuseSandboxed("change the settings")
            commands.set { $0.maxPerHost = value }
            commands.answerChange(reply)
        },
        PropertyRow(Manager.speedLimit, { $0.list.settings.speedLimit }) { commands, value, reply in
            try reply.refuseSandboxed("change the settings")
            commands.set { $0.speedLimit = value }
            commands.answerChange(reply)
        },
        PropertyRow(Manager.diskReserve, { $0.list.settings.diskReserve.wire }) { commands, value, reply in
            try reply.refuseSandboxed("change the settings")
            guard let reserve = DiskReserve(wire: value) else {
                throw Refusal(.invalidOption, "DiskReserve must be a number of bytes, or -1 for the automatic reserve, not \(value).")
            }
            commands.set { $0.diskReserve = reserve }
            commands.answerChange(reply)
        },
        PropertyRow(Manager.hostRules) { HostRuleTable($0.list.settings.hostRules.all) },
        PropertyRow(Manager.defaultDirectory, { $0.list.defaultDirectory }) { commands, value, reply in
            try reply.refuseSandboxed("change the settings")
            try commands.setDefaultDirectory(value, reply)
        },
        PropertyRow(Manager.language, { $0.list.settings.language.rawValue }) { commands, value, reply in
            try reply.refuseSandboxed("change the settings")
            let language = try choice(Language.self, value, of: "Language")
            commands.set { $0.language = language }
            commands.answerChange(reply)
        },
        PropertyRow(Manager.badge, { $0.list.settings.badge.rawValue }) { commands, value, reply in
            try reply.refuseSandboxed("change the settings")
            let badge = try choice(BadgeContent.self, value, of: "Badge")
            commands.set { $0.badge = badge }
            commands.answerChange(reply)
        },
        PropertyRow(Manager.sandboxPrivate, { $0.list.settings.allowsPrivateFromSandbox }) { commands, value, reply in
            try reply.refuseSandboxed("change the settings")
            commands.set { $0.allowsPrivateFromSandbox = value }
            commands.answerChange(reply)
        },
        PropertyRow(Manager.version) { _ in Service.version },
        PropertyRow(Manager.setAside) { $0.journal.setAside },
        PropertyRow(Manager.salvaged) { $0.journal.salvaged },
        PropertyRow(Manager.supportedOptions) { _ in OptionRow.all.map(\.key).sorted() },
    ]
}

/// - Throws: `InvalidOption`, naming the property and its values.
private func choice<C: RawRepresentable & CaseIterable>(_: C.Type, _ value: String, of property: String) throws(Refusal) -> C
where C.RawValue == String {
    if let choice = C(rawValue: value) { return choice }
    throw Refusal(
        .invalidOption, "\(property) must be one of \(C.allCases.map(\.rawValue).joined(separator: ", ")), not “\(shown(value))”.")
}
