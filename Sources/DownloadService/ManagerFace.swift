internal import DBus
internal import DownloadModel
internal import DownloadStore
internal import DownloaderInterface
internal import EventLoop

/// `org.todoku.Downloader1`: the service as a whole on the bus.
enum ManagerFace {
    static let face = Face<Downloader>(
        Manager.interface, xml: { InterfaceXML.element(of: Manager.interface) }, methods: methods, properties: properties,
        signals: [
            Manager.downloadAdded.name: Manager.downloadAdded.signature, Manager.downloadRemoved.name: Manager.downloadRemoved.signature,
            Manager.downloadEnded.name: Manager.downloadEnded.signature, Manager.allEnded.name: Manager.allEnded.signature,
        ])

    @BusActor static func told(_ downloader: Downloader) -> [String: Variant] { face.values(of: downloader) { $0.isTold } }

    private static let methods: [Row<Downloader>] = [
        Row(Manager.download) { downloader, arguments, reply in
            try downloader.admission.admit(url: arguments.0, options: arguments.1, reply)
        },
        Row(Manager.downloadBatch) { downloader, arguments, reply in
            try downloader.admission.admit(arguments.0.map(\.fields), options: arguments.1, reply)
        },
        Row(Manager.list) { downloader, filter, reply in
            reply(try downloader.matching(DownloadFilter(decoding: filter), for: reply.call.caller).map(\.path))
        },
        Row(Manager.describe) { downloader, arguments, reply in
            let wanted = Set(arguments.1)
            for name in arguments.1 where !DownloadFace.face.properties.contains(where: { $0.name == name }) {
                throw DBusError.unknownProperty("\(Download.interface) has no property \(shown(name))")
            }
            let found = try downloader.matching(DownloadFilter(decoding: arguments.0), for: reply.call.caller)
            reply(
                found.map { download in
                    Structure(download.path, DownloadFace.face.values(of: download) { wanted.isEmpty || wanted.contains($0.name) })
                })
        },
        Row(Manager.pauseAll) { downloader, _, reply in
            try reply.refuseSandboxed("pause what others have queued")
            downloader.decide { ledger, now in ledger.pauseAll(now: now) }
            downloader.answerChange(reply)
        },
        Row(Manager.resumeAll) { downloader, _, reply in
            try reply.refuseSandboxed("resume what others have queued")
            downloader.decide { ledger, now in ledger.resumeAll(now: now) }
            downloader.answerChange(reply)
        },
        Row(Manager.cancelAll) { downloader, _, reply in
            try reply.refuseSandboxed("cancel what others have queued")
            downloader.decide { ledger, now in ledger.applyToAll(.cancel, now: now) }
            downloader.answerChange(reply)
        },
        Row(Manager.clearEnded) { downloader, _, reply in
            try reply.refuseSandboxed("clear what others have queued")
            let count = downloader.clearEnded()
            downloader.journal.answer(reply, count)
        },
    ]

    private static let properties: [PropertyRow<Downloader>] = [
        PropertyRow(Manager.remaining) { $0.counts.remaining },
        PropertyRow(Manager.active) { $0.counts.active },
        PropertyRow(Manager.queued) { $0.counts.notStarted },
        PropertyRow(Manager.received) { $0.sums.received },
        PropertyRow(Manager.total) { $0.sums.total.wireTotal },
        PropertyRow(Manager.fraction) { downloader in
            let sums = downloader.sums
            return wireFraction(received: sums.received, total: sums.total)
        },
        PropertyRow(Manager.speed) { $0.sums.speed },
        PropertyRow(Manager.paused) { $0.settings.paused },
        PropertyRow(Manager.maxActive, { $0.settings.maxActive }) { downloader, value, reply in
            try reply.refuseSandboxed("change the settings")
            downloader.set { $0.maxActive = value }
            downloader.answerChange(reply)
        },
        PropertyRow(Manager.maxPerHost, { $0.settings.maxPerHost }) { downloader, value, reply in
            try reply.refuseSandboxed("change the settings")
            downloader.set { $0.maxPerHost = value }
            downloader.answerChange(reply)
        },
        PropertyRow(Manager.speedLimit, { $0.settings.speedLimit }) { downloader, value, reply in
            try reply.refuseSandboxed("change the settings")
            downloader.set { $0.speedLimit = value }
            downloader.answerChange(reply)
        },
        PropertyRow(Manager.defaultDirectory, { $0.defaultDirectory }) { downloader, value, reply in
            try reply.refuseSandboxed("change the settings")
            try downloader.admission.setDefaultDirectory(value, reply)
        },
        PropertyRow(Manager.version) { _ in Service.version },
        PropertyRow(Manager.setAside) { $0.setAside },
        PropertyRow(Manager.supportedOptions) { _ in OptionKey.allCases.map(\.rawValue).sorted() },
    ]
}

extension Downloader {
    func answerChange(_ reply: Reply<Void>) {
        journal.answer(reply, ())
        residenceChanged?()
    }

    /// Sums over what has not ended; the total is known only if each one's is.
    var sums: (received: ByteCount, total: ByteCount?, speed: Speed) {
        var sums = (received: ByteCount(0), total: ByteCount?(0), speed: Speed(0))
        for number in ledger.order.ordered {
            guard let download = download(number) else { continue }
            sums.received += download.received
            sums.speed += download.speed
            if let sum = sums.total, let total = download.total {
                let (value, overflow) = sum.addingReportingOverflow(total)
                sums.total = overflow ? nil : value
            } else {
                sums.total = nil
            }
        }
        return sums
    }

    /// What `filter` asks for and `caller` may see: what has not ended in queue order, then what has, oldest first.
    func matching(_ filter: DownloadFilter, for caller: CallerIdentity) throws(Refusal) -> [ManagedDownload] {
        var result: [ManagedDownload] = []
        var isPast = true
        var after: DownloadNumber?
        if let path = filter.after {
            guard let download = download(at: path.value, for: caller) else {
                throw Refusal(.noSuchObject, "Filter key after: there is no download \(path).")
            }
            after = download.number
            isPast = false
        }
        var numbers: [DownloadNumber]?
        if let path = filter.batch {
            guard let batch = batch(at: path.value, for: caller) else {
                throw Refusal(.noSuchObject, "Filter key batch: there is no batch \(shown(path.value)).")
            }
            numbers = ledger.orderedMembers(of: batch.entry)
        }
        for number in numbers ?? ledger.order.ordered + ledger.ended.ordered {
            guard isPast else {
                isPast = number == after
                continue
            }
            guard let download = download(number), caller.owns(download) else { continue }
            if let app = filter.app, app != download.record.options.app { continue }
            if let tag = filter.tag, tag != download.record.options.tag { continue }
            if let states = filter.states, !states.contains(download.state.name) { continue }
            result.append(download)
            if result.count == filter.limit { break }
        }
        return result
    }
}
