internal import Assets
internal import DBus
internal import DownloadModel
internal import DownloadStore
internal import DownloaderInterface
internal import EventLoop
internal import Extraction
internal import Logging
internal import PartFiles
internal import Scheduling
internal import TransferEngine

/// Carries out the decisions of `AssetUpdater`: with downloads of the scheduler, on the disk, and on the bus. Every action waits until the
/// rows before it are on disk.
@BusActor final class AssetCentre: DownloadObserver {
    /// The waiting calls of one connection.
    private struct Caller {
        let subscription: Connection.Subscription
        var calls: Set<AssetUpdater.CallNumber> = []
    }

    /// The answer to a call, as a message.
    struct Call {
        let sender: String
        let message: (AssetUpdater.Answer) -> Message?
        let failing: (Refusal) -> Message?
    }

    /// The purpose of a download.
    enum Purpose: Equatable {
        case archive(AssetKey)
        case manifest(AssetKey, AssetUpdater.Ticket)
        case signature(AssetKey, AssetUpdater.Ticket, manifest: String, from: String)
        /// The download could not be removed because its file is being renamed.
        case removal(AssetKey, AssetRemoval)
        /// A fetch of a manifest or signature that no asset needs any longer. Its download could not be removed, because its file is being
        /// renamed.
        case discarded(file: String)

        /// Whether an asset waits for the file.
        var isWanted: Bool {
            switch self {
            case .archive, .manifest, .signature: true
            case .removal, .discarded: false
            }
        }
    }

    let updater: AssetUpdater
    let list: DownloadList
    let journal: Journal
    let admission: Admission
    let diskCalls: DiskCalls
    let executor: ServiceExecutor
    let connection: Connection
    let ownerCalls: OwnerCalls
    let folders: AssetFolders
    /// How part files are named.
    let partNames: PartNames
    /// The turns of all extractions.
    let turns: ExtractionTurns
    /// Whether hidden folders may be chosen (`--allow-hidden-folders`).
    let allowsHiddenFolders: Bool
    let log: Logger
    private let hold: IdleExit.Hold
    private let isLogin: Bool
    private lazy var alarm = WallAlarm { [weak self] in
        self?.decide(.time)
    } clockSet: { [weak self] _ in
        self?.decide(.clockSet)
    }

    private var todo: [AssetUpdater.Action] = []
    private var isPosting = false
    private var lastCall: UInt64 = 0
    private var calls: [AssetUpdater.CallNumber: Call] = [:]
    /// The connections whose calls wait for an answer.
    private var callers: [String: Caller] = [:]
    var purposes: [DownloadNumber: Purpose] = [:]
    /// The download of the manifest, or of its signature, that each asset fetches.
    var fetches: [AssetKey: DownloadNumber] = [:]
    /// The part file of the download that each asset has removed last. It is deleted only after a commit, perhaps later than all else of
    /// its version.
    var partsBeingDeleted: [AssetKey: String] = [:]
    /// Whether a public server has sent the manifest that the last check of an asset has brought; nil: the manifest has not changed.
    var publicManifests: [AssetKey: Bool] = [:]
    var places = AssetPlaces()
    /// The extractions that run or wait for their turn, by asset.
    var extractions: [AssetKey: (folder: String, control: ExtractionControl)] = [:]
    /// The properties as last announced.
    private var told: [AssetKey: [String: Variant]] = [:]
    private let toldProgress: AssetProgress
    /// The network condition that was last passed to the updater.
    private var network: NetworkCondition?
    /// The observers, set by `begin`.
    private var observers: [any DownloadObserver] = []

    init(
        _ updater: AssetUpdater, list: DownloadList, journal: Journal, admission: Admission, diskCalls: DiskCalls,
        executor: ServiceExecutor, connection: Connection, ownerCalls: OwnerCalls, folders: AssetFolders, partNames: PartNames,
        turns: ExtractionTurns, allowsHiddenFolders: Bool, isLogin: Bool, hold: IdleExit.Hold, log: Logger
    ) {
        (self.updater, self.list, self.journal, self.admission, self.executor) = (updater, list, journal, admission, executor)
        (self.diskCalls, self.connection, self.ownerCalls, self.folders) = (diskCalls, connection, ownerCalls, folders)
        (self.partNames, self.turns, self.allowsHiddenFolders) = (partNames, turns, allowsHiddenFolders)
        (self.isLogin, self.hold, self.log) = (isLogin, hold, log)
        toldProgress = AssetProgress { key, report in
            connection.send(
                Asset.progress.message(from: BusName.path(ofAsset: key), (report.stage, report.done, report.total.wireTotal)))
        }
        for state in updater.assets.values { told[state.record.key] = AssetFace.told(AssetObject(state.record.key, self)) }
    }

    /// Call after the scheduler has begun.
    ///
    /// - Parameter observers: in the order in which they are called.
    func begin(telling observers: [any DownloadObserver]) {
        self.observers = observers
        removeFormerManifests()
        sweepManifests()
        decide(.begins(isLogin: isLogin, session: connection.busID))
    }

    // MARK: Decisions

    func decide(_ event: AssetUpdater.Event) {
        todo += updater.turn([event], at: .now)
        guard !isPosting else { return }
        isPosting = true
        while !todo.isEmpty {
            let actions = todo
            todo = []
            for action in actions { post(action) }
        }
        isPosting = false
        hold.isHeld = updater.hasWork || !calls.isEmpty
        for observer in observers { observer.assetsDecided() }
        alarm.set(microseconds: updater.nextWake?.microseconds)
    }

    /// Lets the updater decide about a call, which is answered once: with `Storage` if the queue cannot be saved meanwhile.
    ///
    /// - Throws: `LimitExceeded` beyond 256 waiting calls of one connection; `Storage` if the journal is full.
    func decide<Out>(
        _ reply: Reply<Out>, _ read: @escaping (AssetUpdater.Answer) -> Out?,
        _ event: (AssetUpdater.CallNumber) -> AssetUpdater.Event
    ) throws(Refusal) {
        if journal.isFull { throw journal.refusal }
        let sender = reply.call.sender
        guard (callers[sender]?.calls.count ?? 0) < Limits.waitingCallsPerConnection else {
            throw Refusal(.limitExceeded, "At most \(Limits.waitingCallsPerConnection) calls of one connection may wait.")
        }
        lastCall &+= 1
        let number = AssetUpdater.CallNumber(lastCall)
        calls[number] = Call(sender: sender) { answer in
            switch answer {
            case .refused(let refusal): reply.message(failing: refusal)
            case .failed(let failure): reply.message(failing: Refusal(failure.name, failure.message))
            default: read(answer).flatMap { reply.message($0) }
            }
        } failing: {
            reply.message(failing: $0)
        }
        decide(event(number))
        // Most calls are answered by now, and their callers need not be watched.
        guard calls[number] != nil else { return }
        watch(sender, number)
        // The work that leads to the answer waits for rows, and the rows may wait for room on the queue's disk.
        if !journal.gate.isClear {
            journal.gate.post(success: { nil }, failure: { [self] refusal in giveUp(number, refusal) })
        }
    }

    /// Removes a waiting call, which is answered now; nil: the call is answered already, or its caller has left.
    private func removeCall(_ number: AssetUpdater.CallNumber) -> Call? {
        guard let call = calls.removeValue(forKey: number) else { return nil }
        callers[call.sender]?.calls.remove(number)
        if let caller = callers[call.sender], caller.calls.isEmpty {
            callers[call.sender] = nil
            connection.unsubscribe(caller.subscription)
        }
        return call
    }

    /// The queue cannot be saved, so the call is answered with the error. What it has asked for continues once the queue can be saved.
    private func giveUp(_ number: AssetUpdater.CallNumber, _ refusal: Refusal) -> Message? {
        guard let call = removeCall(number) else { return nil }
        decide(.callersLeft([number]))
        return call.failing(refusal)
    }

    private func watch(_ sender: String, _ number: AssetUpdater.CallNumber) {
        var caller =
            callers[sender]
            ?? Caller(subscription: connection.watchOwner(of: sender) { [weak self] owner in if owner == nil { self?.left(sender) } })
        caller.calls.insert(number)
        callers[sender] = caller
    }

    /// A connection has left the bus: drops its calls. What they have asked for continues.
    private func left(_ sender: String) {
        guard let caller = callers.removeValue(forKey: sender) else { return }
        connection.unsubscribe(caller.subscription)
        for number in caller.calls { calls[number] = nil }
        decide(.callersLeft(caller.calls))
    }

    private func post(_ action: AssetUpdater.Action) {
        switch action {
        case .save(let record): journal.gate.append(.putAsset(record))
        case .delete(let key): journal.gate.append(.removeAsset(key))
        case .answer(let number, let answer):
            guard let call = removeCall(number) else { return }
            if journal.gate.isClear {
                if let message = call.message(answer) { connection.send(message) }
            } else {
                journal.gate.post(success: { call.message(answer) }, failure: { call.failing($0) })
            }
        default: journal.afterCommit { [self] in perform(action) }
        }
    }

    private func perform(_ action: AssetUpdater.Action) {
        switch action {
        case .save, .delete, .answer: break
        case .added(let key):
            told[key] = AssetFace.told(AssetObject(key, self))
            connection.send(Manager.assetAdded.message(from: BusName.managerPath, BusName.path(ofAsset: key)))
        case .gone(let key):
            (told[key], fetches[key], publicManifests[key], partsBeingDeleted[key]) = (nil, nil, nil, nil)
            toldProgress.forget(key)
            places.release(key)
            forgetManifests(of: key)
            connection.send(Manager.assetRemoved.message(from: BusName.managerPath, BusName.path(ofAsset: key)))
        case .tell(let key): tell(key)
        case .ready(let key, let version): ready(key, version)
        case .fetchManifest(let key, let ticket, let isBackground): fetchManifest(key, ticket, isBackground: isBackground)
        case .cancelFetch(let key, let ticket): cancelFetch(key, ticket)
        case .checkSpace(let key, let ticket, let needed): checkSpace(key, ticket, needed)
        case .startDownload(let key, let ticket, let url, let pending): startDownload(key, ticket, url, pending)
        case .resumeDownload(let key, let number, let retries): resumeDownload(key, number, retries: retries)
        case .raiseDownload(let key, let number): raiseDownload(key, number)
        case .removeDownload(let number): _ = removeDownload(number)
        case .extract(let key, let folder, let manifest): extract(key, folder, manifest)
        case .cancelExtraction(let key, let folder): cancelExtraction(key, folder)
        case .switchLink(let key, let folder): switchLink(key, folder)
        case .remove(let key, let removal): remove(key, removal)
        case .deleteData(let key, let folders): deleteData(key, folders)
        case .callOwner(let key): callOwner(key)
        }
    }

    // MARK: The bus

    /// Announces the stage and the properties that have changed.
    func tell(_ key: AssetKey) {
        guard updater[key] != nil else { return }
        let values = AssetFace.told(AssetObject(key, self))
        let changed = values.filter { name, value in told[key]?[name].map { !$0.isSameBytes(as: value) } ?? true }
        guard !changed.isEmpty else { return }
        told[key] = values
        let path = BusName.path(ofAsset: key)
        if let stage = changed[Asset.stage.name]?.string {
            toldProgress.flush(key)
            connection.send(Asset.stageChanged.message(from: path, stage))
        }
        connection.send(Standard.propertiesChanged.message(from: path, (Asset.interface, changed, [])))
    }

    /// A report of a stage that is over comes too late, and is dropped.
    func progress(_ key: AssetKey, _ stage: AssetStage, _ done: ByteCount, of total: ByteCount?) {
        guard updater[key]?.stage == stage else { return }
        toldProgress.report(AssetProgress.Report(stage: stage.rawValue, done: done, total: total), of: key)
    }

    private func ready(_ key: AssetKey, _ version: String) {
        guard let record = updater[key]?.record else { return }
        log.info("an asset is ready", metadata: ["asset": "\(key)", "version": "\(version)"])
        connection.send(Asset.ready.message(from: BusName.path(ofAsset: key), (version, record.path)))
        for observer in observers { observer.ready(record) }
    }

    private func callOwner(_ key: AssetKey) {
        guard let record = updater[key]?.record, record.options.activate != nil else { return decide(.ownerCalled(key, true)) }
        ownerCalls.ask(AssetReadyCall(key: key, options: record.options, centre: self))
    }

    /// Whether a download is one of an asset: of its archive, its manifest or its signature.
    func hasDownload(_ number: DownloadNumber) -> Bool {
        updater.asset(ofArchive: number) != nil || purposes[number]?.isWanted == true
    }

    // MARK: What happens to downloads and to the network

    func decided() {
        guard list.scheduler.conditions.network != network else { return }
        network = list.scheduler.conditions.network
        decide(.network(network))
    }

    func changed(_ change: Scheduler.Change) {
        let entry = change.entry
        guard let purpose = purposes[entry.number], case .archive(let key) = purpose else { return }
        switch entry.state {
        case .verifying: decide(.downloadVerifies(key, entry.number))
        case .queued, .waiting, .active, .paused: if updater[key]?.stage == .verifying { decide(.downloadContinues(key, entry.number)) }
        case .extracting, .committing, .finished, .failed, .cancelled: break
        }
    }

    func told(_ entry: ScheduledDownload) {
        guard let purpose = purposes[entry.number], case .archive(let key) = purpose else { return }
        makeDefaultDirectory(of: key, for: entry)
        tell(key)
    }

    func progressed(_ downloads: [ManagedDownload]) {
        guard !purposes.isEmpty else { return }
        for download in downloads {
            guard let purpose = purposes[download.number], case .archive(let key) = purpose else { continue }
            progress(key, .downloading, download.received, of: download.total)
        }
    }

    func responded(_ download: ManagedDownload, _ facts: TransferFacts) {
        if case .manifest(let key, _)? = purposes[download.number] { publicManifests[key] = !facts.isFromPrivate }
    }

    func stopped(_ download: ManagedDownload) {
        // The last bytes came after the engine's last report.
        if download.received > 0 { progressed([download]) }
    }

    func ended(_ download: ManagedDownload, _ owed: Scheduler.OwedToast?) {
        guard let purpose = purposes[download.number] else { return }
        // Somebody has retried the download before its end was on disk: its next end counts.
        if !download.state.hasEnded, purpose.isWanted { return }
        purposes[download.number] = nil
        switch purpose {
        case .archive(let key): decide(.downloadEnded(key, download.number, AssetUpdater.DownloadEnd(download.state)))
        case .manifest(let key, let ticket): manifestEnded(key, ticket, download)
        case .signature(let key, let ticket, let manifest, let base): signatureEnded(key, ticket, manifest, base, download)
        case .removal(let key, let removal): remove(key, removal)
        case .discarded(let file):
            executor.decide(.remove(download.entry))
            deleteManifests([file])
        }
    }

    func removed(_ entry: ScheduledDownload) {
        guard let purpose = purposes.removeValue(forKey: entry.number) else { return }
        switch purpose {
        case .archive(let key): decide(.downloadEnded(key, entry.number, .lost))
        case .manifest(let key, let ticket), .signature(let key, let ticket, _, _):
            decide(.manifestFailed(key, ticket, DownloadFailure(.cancelled, "The download of the manifest was removed.")))
        case .removal(let key, let removal): remove(key, removal)
        case .discarded(let file): deleteManifests([file])
        }
    }

    /// The service ends: nothing starts any more, and extractions stop at their next chunk. The next start continues them.
    func left() {
        decide(.ends)
        for extraction in extractions.values { extraction.control.cancel() }
    }
}

/// The call about a version that is ready. A sandboxed app is not started: it must not be able to start itself by publishing versions.
@BusActor struct AssetReadyCall: OwnerCall {
    let key: AssetKey
    let options: DownloadOptions
    let centre: AssetCentre

    private var record: AssetRecord? { centre.updater[key]?.record }
    var owner: String? { options.activate }
    /// The name in docs/assets.md.
    var action: String { "asset-ready" }
    var parameter: Variant {
        .structure([
            .objectPath(BusName.path(ofAsset: key)), .string(record?.installed?.version ?? ""), .string(record?.path ?? ""),
        ])
    }
    var startsSandboxed: Bool { false }
    var subject: String { "asset \(key)" }
    func isWanted() -> Bool { record?.owesCall ?? false }
    func ended(isAnswered: Bool) { centre.decide(.ownerCalled(key, isAnswered)) }
}

extension AssetUpdater.DownloadEnd {
    init(_ state: DownloadState) {
        switch state {
        case .finished: self = .finished
        case .failed(let failure): self = .failed(failure)
        case .cancelled: self = .cancelled
        default: self = .lost
        }
    }
}
