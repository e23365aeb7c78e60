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
    static let face = Face<Downloader>(
        Manager.interface, xml: { InterfaceXML.element(of: Manager.interface) }, methods: methods, properties: properties,
        signals: [
            Manager.downloadAdded.name: Manager.downloadAdded.signature, Manager.downloadRemoved.name: Manager.downloadRemoved.signature,
            Manager.batchAdded.name: Manager.batchAdded.signature, Manager.batchRemoved.name: Manager.batchRemoved.signature,
            Manager.downloadEnded.name: Manager.downloadEnded.signature, Manager.allEnded.name: Manager.allEnded.signature,
        ], permits: { DocumentedErrors.permits($1, of: $0, in: Manager.interface) })

    @BusActor static func told(_ downloader: Downloader) -> [String: Variant] { face.values(of: downloader) { $0.isTold } }

    private static let methods: [Row<Downloader>] = [
        Row(Manager.download) { downloader, arguments, reply in
            try downloader.admission.admit(url: arguments.0, options: arguments.1, .path(reply))
        },
        Row(Manager.fetch) { downloader, arguments, reply in
            try downloader.admission.admit(url: arguments.0, options: arguments.1, .fetch(reply))
        },
        Row(Manager.downloadToFd) { downloader, arguments, reply in
            let descriptor = HeldDescriptor(adopting: arguments.1.take())
            try downloader.admission.admit(url: arguments.0, options: arguments.2, into: descriptor, .path(reply))
        },
        Row(
            Manager.downloadBatch,
            reading: { downloader, items, options, reply in try downloader.admission.admit(items, options: options, reply) }),
        Row(Manager.list) { downloader, filter, reply in
            try downloader.list(DownloadFilter(decoding: filter), reply)
        },
        Row(Manager.listBatches) { downloader, filter, reply in
            try downloader.listBatches(BatchFilter(decoding: filter), reply)
        },
        Row(Manager.describe) { downloader, arguments, reply in
            let wanted = Set(arguments.1)
            for name in arguments.1 where !DownloadFace.face.properties.contains(where: { $0.name == name }) {
                throw DBusError.unknownProperty("\(Download.interface) has no property \(shown(name))")
            }
            let rows = DownloadFace.face.properties.filter { wanted.isEmpty || wanted.contains($0.name) }.sorted { $0.name < $1.name }
            try downloader.describe(DownloadFilter(decoding: arguments.0), rows, reply)
        },
        Row(Manager.waitAll) { downloader, dictionary, reply in
            for key in ["after", "newest-first", "limit"] where dictionary[key] != nil {
                throw Refusal(.invalidOption, "WaitAll takes no filter key “\(key)”: it waits for all that match.")
            }
            try downloader.waitAll(DownloadFilter(decoding: dictionary), reply)
        },
        Row(Manager.setForeground) { downloader, arguments, reply in
            let (app, isInFront) = arguments
            if let own = reply.call.caller.app, own != app {
                throw Refusal(.notAllowed, "An app in a sandbox may not use the id of another app; its own is \(own).")
            }
            try downloader.foreground.set(app, isInFront, by: reply.call.sender)
            reply()
        },
        Row(Manager.pauseAll) { downloader, _, reply in
            try reply.refuseSandboxed("pause what others have queued")
            downloader.decide(.pauseAll)
            downloader.answerChange(reply)
        },
        Row(Manager.resumeAll) { downloader, _, reply in
            try reply.refuseSandboxed("resume what others have queued")
            downloader.decide(.resumeAll)
            downloader.answerChange(reply)
        },
        Row(Manager.cancelAll) { downloader, _, reply in
            try reply.refuseSandboxed("cancel what others have queued")
            downloader.decideOnMany {
                .cancelAll(answering: $0)
            } answer: {
                downloader.answerChange(reply)
            }
        },
        Row(Manager.clearEnded) { downloader, _, reply in
            try reply.refuseSandboxed("clear what others have queued")
            downloader.clearEnded(reply)
        },
        Row(Manager.setHostRule) { downloader, arguments, reply in
            try reply.refuseSandboxed("set the rules of hosts")
            let (host, rule) = (try HostRules.name(of: arguments.0), try HostRule(decoding: arguments.1))
            var rules = downloader.settings.hostRules
            try rules.set(host, rule)
            downloader.set { $0.hostRules = rules }
            downloader.answerChange(reply)
        },
        Row(Manager.listSlowedHosts) { downloader, _, reply in
            try reply.refuseSandboxed("see which hosts others use")
            try downloader.listSlowedHosts(reply)
        },
        Row(Manager.resetHost) { downloader, host, reply in
            try reply.refuseSandboxed("reset hosts")
            let name = try HostRules.name(of: host)
            downloader.decide(.resetHost(name))
            downloader.answerChange(reply)
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
        PropertyRow(Manager.diskReserve, { $0.settings.diskReserve.wire }) { downloader, value, reply in
            try reply.refuseSandboxed("change the settings")
            guard let reserve = DiskReserve(wire: value) else {
                throw Refusal(.invalidOption, "DiskReserve must be a number of bytes, or -1 for the automatic reserve, not \(value).")
            }
            downloader.set { $0.diskReserve = reserve }
            downloader.answerChange(reply)
        },
        PropertyRow(Manager.hostRules) { HostRuleTable($0.settings.hostRules.all) },
        PropertyRow(Manager.defaultDirectory, { $0.defaultDirectory }) { downloader, value, reply in
            try reply.refuseSandboxed("change the settings")
            try downloader.admission.setDefaultDirectory(value, reply)
        },
        PropertyRow(Manager.language, { $0.settings.language.rawValue }) { downloader, value, reply in
            try reply.refuseSandboxed("change the settings")
            let language = try choice(Language.self, value, of: "Language")
            downloader.set { $0.language = language }
            downloader.answerChange(reply)
        },
        PropertyRow(Manager.badge, { $0.settings.badge.rawValue }) { downloader, value, reply in
            try reply.refuseSandboxed("change the settings")
            let badge = try choice(BadgeContent.self, value, of: "Badge")
            downloader.set { $0.badge = badge }
            downloader.answerChange(reply)
        },
        PropertyRow(Manager.sandboxPrivate, { $0.settings.allowsPrivateFromSandbox }) { downloader, value, reply in
            try reply.refuseSandboxed("change the settings")
            downloader.set { $0.allowsPrivateFromSandbox = value }
            downloader.answerChange(reply)
        },
        PropertyRow(Manager.version) { _ in Service.version },
        PropertyRow(Manager.setAside) { $0.setAside },
        PropertyRow(Manager.salvaged) { $0.salvaged },
        PropertyRow(Manager.supportedOptions) { _ in OptionRow.all.map(\.key).sorted() },
    ]
}

extension Downloader {
    func answerChange(_ reply: Reply<Void>) { journal.answer(reply, ()) }

    /// Sums over the unfinished downloads. The total is known only if the total of each download is. The ledger sums up the saved bytes;
    /// running downloads may have more.
    var sums: (received: ByteCount, total: ByteCount?, speed: Speed) {
        var sums = (received: ledger.received, total: ledger.total, speed: Speed(0))
        for download in lively where !download.state.hasEnded {
            sums.received = sums.received &+ download.received &- download.record.received
            sums.speed +|= download.speed
        }
        return sums
    }

    /// Answers `reply` when all downloads have ended that `filter` matches at the call and that the caller may see. Downloads queued later
    /// do not count.
    func waitAll(_ filter: DownloadFilter, _ reply: Reply<(UInt32, UInt32, UInt32)>) throws(Refusal) {
        let batch = try filter.batch.map { (path) throws(Refusal) in try named(path, for: reply.call.caller) }
        let group = WaitGroup(filter, callers.nextTick(), reply)
        try callers.wait(group, of: self)
        var walk: Ledger.Walk
        var (app, tag): (String?, String?) = (nil, nil)
        if let batch {
            walk = ledger.walk(batch)
        } else if filter == DownloadFilter(), reply.call.caller == .user {
            // The count is known without a look at each of a hundred thousand downloads.
            group.gather(open: ledger.order.count)
            walk = ledger.walkOfEnded()
        } else {
            (app, tag) = (filter.app ?? reply.call.caller.app, filter.tag)
            walk = ledger.walk(app: app, tag: tag)
        }
        do throws(Refusal) {
            try journal.write { [self] in
                let step = StepTime()
                repeat {
                    for _ in 0..<Self.portion {
                        guard let number = walk.next() else {
                            finish(group, reply)
                            return true
                        }
                        guard let entry = ledger.listed(number, app: app, tag: tag),
                            entry.state.hasEnded || filter.mayMatch(entry, in: ledger), let download = peek(number)
                        else { continue }
                        group.gather(download, liveSince: callers.liveTick(of: number))
                    }
                } while !step.isOver
                return false
            }
        } catch {
            callers.forget(group)
            throw error
        }
    }

    /// How many downloads are looked at between two looks at the clock.
    fileprivate static let portion = 100

    private func finish(_ group: WaitGroup, _ reply: Reply<(UInt32, UInt32, UInt32)>) {
        do throws(Refusal) {
            // Through the journal: an end that is not on disk yet has not been announced.
            if try callers.endGathering(group) { journal.post(group.answer) }
        } catch { reply.fail(error) }
    }

    /// The batch that a filter names.
    fileprivate func named(_ path: ObjectPath, for caller: CallerIdentity) throws(Refusal) -> LedgerBatch {
        guard let batch = batch(at: path.value, for: caller) else {
            throw Refusal(.noSuchObject, "Filter key batch: there is no batch \(shown(path.value)).")
        }
        return batch.entry
    }

    /// Answers with the downloads that `filter` matches.
    func list(_ filter: DownloadFilter, _ reply: Reply<[ObjectPath]>) throws(Refusal) {
        let search = try DownloadSearch(filter, in: self, for: reply.call.caller)
        try journal.write {
            guard search.goOn(StepTime()) else { return false }
            reply(search.found.map(\.path))
            return true
        }
    }

    /// Answers with the origins that refused requests.
    func listSlowedHosts(_ reply: Reply<[String: [String: Variant]]>) throws(Refusal) {
        let paces = ledger.slowedOrigins(now: .now)
        var rest = paces.keys.sorted(by: >)
        let answer = LongAnswer(reply)
        try journal.write {
            let step = StepTime()
            while let origin = rest.popLast() {
                if let pace = paces[origin] { answer.append(origin, SlowedHost(pace).dictionary) }
                if step.isOver { return false }
            }
            answer.send()
            return true
        }
    }

    /// Answers with the downloads that `filter` matches, each with those of its properties that are in `rows`.
    func describe(
        _ filter: DownloadFilter, _ rows: [PropertyRow<ManagedDownload>], _ reply: Reply<[Structure<ObjectPath, [String: Variant]>]>
    ) throws(Refusal) {
        let search = try DownloadSearch(filter, in: self, for: reply.call.caller)
        var described = 0
        let answer = LongAnswer(reply)
        try journal.write {
            let step = StepTime()
            guard search.goOn(step) else { return false }
            while described < search.found.count {
                if step.isOver { return false }
                DownloadFace.face.describe(search.found[described], at: search.found[described].path, rows, in: answer)
                described += 1
            }
            answer.send()
            return true
        }
    }
}

/// Looks in steps for the downloads that a filter matches and that a caller may see: unfinished ones in queue order, then ended ones,
/// oldest first. Or all of these in reverse.
@BusActor private final class DownloadSearch {
    private let filter: DownloadFilter
    private let downloader: Downloader
    private let caller: CallerIdentity
    private let (app, tag): (String?, String?)
    private var walk: Ledger.Walk
    /// The number in the key `after`, until the search has passed it.
    private var after: DownloadNumber?
    private(set) var found: [ManagedDownload] = []
    private var isOver = false

    /// - Throws: `NoSuchObject` for the key `after` or `batch`.
    init(_ filter: DownloadFilter, in downloader: Downloader, for caller: CallerIdentity) throws(Refusal) {
        (self.filter, self.downloader, self.caller) = (filter, downloader, caller)
        var after: DownloadRecord?
        if let path = filter.after {
            guard let download = downloader.download(at: path.value, for: caller) else {
                throw Refusal(.noSuchObject, "Filter key after: there is no download \(path).")
            }
            after = download.record
        }
        self.after = after?.number
        let batch = try filter.batch.map { (path) throws(Refusal) in try downloader.named(path, for: caller) }
        // The download in the key `after` may belong to another app or batch, or to none. Then the narrower list does not contain it.
        if let batch, after == nil || after?.batch == batch.number {
            (app, tag) = (nil, nil)
            walk = downloader.ledger.walk(batch, isReversed: filter.isNewestFirst)
        } else {
            app = filter.app == after?.options.app ?? filter.app ? filter.app : nil
            tag = filter.tag == after?.options.tag ?? filter.tag ? filter.tag : nil
            walk = downloader.ledger.walk(app: app, tag: tag, isReversed: filter.isNewestFirst)
        }
    }

    /// - Returns: whether the search is over.
    func goOn(_ step: StepTime) -> Bool {
        while !isOver {
            if step.isOver { return false }
            for _ in 0..<Downloader.portion where !isOver { look() }
        }
        return true
    }

    private func look() {
        guard let number = walk.next() else { return isOver = true }
        guard let entry = downloader.ledger.listed(number, app: app, tag: tag) else { return }
        if let after {
            if number == after { self.after = nil }
            return
        }
        guard filter.mayMatch(entry, in: downloader.ledger), let download = downloader.peek(number), caller.owns(download),
            filter.matches(download)
        else { return }
        found.append(download)
        isOver = found.count == filter.limit
    }
}

/// - Throws: `InvalidOption`, naming the property and its values.
private func choice<C: RawRepresentable & CaseIterable>(_: C.Type, _ value: String, of property: String) throws(Refusal) -> C
where C.RawValue == String {
    if let choice = C(rawValue: value) { return choice }
    throw Refusal(
        .invalidOption, "\(property) must be one of \(C.allCases.map(\.rawValue).joined(separator: ", ")), not “\(shown(value))”.")
}
