internal import Assets
internal import DBus
internal import Desktop
internal import DownloadModel
internal import DownloadStore
internal import DownloaderInterface
public import EventLoop
internal import Glibc
public import Logging
internal import PartFiles
internal import Sandboxes
internal import Scheduling
internal import TransferEngine

/// The options of the service program.
public struct ServiceOptions: Sendable {
    /// Exit at once if nothing is left to do (used at login). Where systemd runs the session, have the bus start the service.
    public var ifPending = false
    /// Only have the bus start the service, if a check of an asset is due (used by a timer).
    public var ifDue = false
    /// Accept hidden folders (a component with a leading dot) as destinations.
    public var allowsHiddenFolders = false
    /// How long the service keeps running without a reason.
    public var idle: Duration = .seconds(30)
    /// How long, at most, a clickable toast keeps the service running.
    public var clickable: Duration = .seconds(600)
    public var logger = Logger(label: "todokud")
    public init() {}
}

/// The service: creates and connects its parts, and runs them until the end.
@BusActor public final class Service {
    public nonisolated static let version = "0.1.0"
    /// How long the last calls may take once the bus may start the next process, which waits for this one (`Store.longestEnd`).
    private static let lastCalls: Duration = .seconds(5)
    /// How long the last calls are handled in one turn of the loop. Between turns, their changes are saved, and `giveUp` counts seconds.
    private static let lastCallsInTurn: Duration = .milliseconds(100)

    private let options: ServiceOptions
    private let connection: Connection
    private let gate: CallerGate
    private let admission: Admission
    private let commands: Commands
    private let diskCalls: DiskCalls
    private let store: Store
    private let journal: Journal
    private let engine: Engines
    private let toaster: Toaster
    private let assets: AssetCentre
    private let downloader: Downloader
    private let tree: Tree
    private let culprits: Culprits
    private let observers: [any DownloadObserver]
    private let owedToasts: [Scheduler.OwedToast]
    private let idleExit: IdleExit
    private var signals: SignalSource?
    private var isEnding = false
    /// When the end no longer waits for the work on calls.
    private var workEnd = SuspendingClock.now
    /// False once the name is released: the bus may have started the next process.
    private var hasName = true
    private var ended: (Int32) -> Void = { _ in }

    /// Runs the service until it ends.
    ///
    /// - Returns: the exit status: 0 after a normal end, 1 if the service could not start, 2 if another process owns the name.
    public static func run(_ options: ServiceOptions) async -> Int32 {
        let log = options.logger
        let folder = "\(Folders.state())/todoku"
        if options.ifPending, !Store.hasPending(folder: folder) { return 0 }
        do throws(DBusError) {
            let connection = try Connection.session()
            if options.ifDue { return await startIfDue(connection, folder, log) }
            if options.ifPending, await startByBusAtLogin(connection, folder, log) { return 0 }
            connection.hold()
            guard try connection.requestName(BusName.service) else {
                // Another program has called the service since the login. The running service does the pending work.
                if options.ifPending { return 0 }
                log.error("another todokud runs on this bus already")
                return 2
            }
            let store = Store(folder: folder)
            let intake = Intake()
            let opening: StoreOpening
            do throws(StoreError) { opening = try await store.open { intake.take($0) } } catch {
                log.error("the service cannot start", metadata: ["cause": "\(error)"])
                connection.refuse(DBusError(ErrorName.storage.busName, "\(error)"), leaving: BusName.service)
                return 1
            }
            let restored = await intake.finish()
            if let aside = opening.setAside, !opening.isSetAsideEarlier {
                let salvaged = opening.salvaged
                log.warning(
                    salvaged == nil
                        ? "the database was damaged and has been set aside; nothing in it can be read, so the queue starts empty"
                        : salvaged?.mayHaveLost == true
                            ? "the database was damaged and has been set aside; all readable downloads were saved, others may be lost"
                            : "the log of the database was damaged; both have been set aside, and all downloads were saved",
                    metadata: ["file": "\(aside)", "saved": "\(salvaged?.downloads ?? 0)"])
            }
            var actual = options
            if takeLogin(in: folder) { actual.ifPending = true }
            let culprits = Culprits("\(folder)/crashes")
            let service = Service(
                actual, connection: connection, store: store, opening, restored, intake.assets, folder: folder, culprits)
            service.sweepMaps("\(folder)/segments")
            return await service.serve()
        } catch {
            if SignalSource.isEndPending { return 0 }
            log.error("no session bus", metadata: ["cause": "\(error.message)"])
            return 1
        }
    }

    /// Creates the folder of the written maps; without it, only checkpoints count. If the folder exists, deletes the maps that are no
    /// longer needed: of finished and cancelled downloads, and of downloads that left the list just before a crash.
    private func sweepMaps(_ folder: String) {
        if mkdir(folder, 0o700) == 0 { return }
        for name in folderNames(folder) ?? [] where name.first?.isNumber == true {
            // A map is named NUMBER, or NUMBER.next while it replaces another.
            let state = UInt64(name.prefix { $0.isNumber }).flatMap { downloader.scheduler[DownloadNumber($0)]?.state }
            if state.map({ $0.hasEnded && $0.failure == nil }) ?? true { unlink("\(folder)/\(name)") }
        }
    }

    private init(
        _ options: ServiceOptions, connection: Connection, store: Store, _ opening: StoreOpening, _ restored: Restored,
        _ records: [AssetRecord], folder: String, _ culprits: Culprits
    ) {
        let log = options.logger
        let idleExit = IdleExit(connection: connection, name: BusName.service, idle: options.idle)
        let hidden = options.allowsHiddenFolders
        let list = DownloadList(restored, downloadFolder: Folders.downloads())
        let updater = AssetUpdater(records)
        journal = Journal(
            store: store, opening, scheduler: list.scheduler, assets: updater, hold: idleExit.makeHold(), log: log,
            unsentBytes: { connection.outgoingBytes },
            send: { connection.send($0) })
        var configuration = EngineConfiguration(version: Self.version)
        let proxies = DesktopProxies(connection: connection)
        configuration.desktopProxy = { await proxies.choice(for: $0) }
        let descriptors = Descriptors(hold: idleExit.makeHold())
        let ownerCalls = OwnerCalls(
            connection: connection, starts: OwnerStarts("\(folder)/starts"), hold: idleExit.makeHold(), log: log)
        let assetFolders = AssetFolders(dataHome: Folders.data(), state: folder)
        downloader = Downloader(
            list: list, journal: journal, descriptors: descriptors, ownerCalls: ownerCalls, configuration: configuration, home: folder,
            partNames: opening.partNames, allowsHiddenFolders: hidden, assetFolders: assetFolders, hold: idleExit.makeHold(), log: log)
        engine = downloader.engine
        let executor = downloader.executor
        let callers = Callers(connection: connection, list: list, hold: idleExit.makeHold())
        let foreground = Foreground(connection: connection, scheduler: list.scheduler, events: executor, hold: idleExit.makeHold())
        admission = Admission(
            list: list, executor: executor, journal: journal, callers: callers, descriptors: descriptors, allowsHiddenFolders: hidden,
            hold: idleExit.makeHold(), log: log)
        let desktopWork = DesktopWork(dataHome: Folders.data(), hold: idleExit.makeHold())
        diskCalls = DiskCalls(hold: idleExit.makeHold())
        assets = AssetCentre(
            updater, list: list, journal: journal, admission: admission, diskCalls: diskCalls, executor: executor,
            connection: connection, ownerCalls: ownerCalls, folders: assetFolders, partNames: opening.partNames,
            turns: downloader.extractions.turns, allowsHiddenFolders: hidden, isLogin: options.ifPending, hold: idleExit.makeHold(),
            log: log)
        commands = Commands(
            list: list, executor: executor, journal: journal, callers: callers, admission: admission, foreground: foreground,
            assets: assets, diskCalls: diskCalls, desktopWork: desktopWork, engine: engine,
            unwantedFolders: downloader.unwantedFolders, allowsHiddenFolders: hidden, hold: idleExit.makeHold())
        let opener = Opener(connection: connection)
        let actions = ApplicationActions(
            list: list, commands: commands, admission: admission, desktopWork: desktopWork, opener: opener)
        tree = Tree(commands, actions)
        toaster = Toaster(
            list: list, events: executor, commands: commands, desktopWork: desktopWork, foreground: foreground, session: connection,
            opener: opener, clickable: options.clickable, hold: idleExit.makeHold(), log: log)
        observers = [
            Announcer(list: list, journal: journal, callers: callers, manager: commands) { connection.outgoingBytes },
            commands, callers, foreground, toaster, assets,
            SystemEvents(
                scheduler: list.scheduler, assets: updater, events: executor, journal: journal, engine: engine, session: connection,
                log: log),
            FolderProbe(list: list, events: executor, allowsHidden: downloader.allowsHidden(in:)),
            DockIcons(list: list, session: connection),
            DesktopJobs(
                list: list, events: executor, foreground: foreground, session: connection, hold: idleExit.makeHold(), log: log),
            culprits,
        ]
        let asking = idleExit.makeHold()
        gate = CallerGate {
            Refusal(.limitExceeded, $0).dbusError
        } asks: {
            asking.isHeld = $0
        } inspect: {
            CallerInspection.finding($0, arrival: $1)
        }
        connection.guardCalls(by: gate)
        self.idleExit = idleExit
        (self.options, self.connection, self.store) = (options, connection, store)
        owedToasts = restored.owedToasts
        self.culprits = culprits
    }

    private func serve() async -> Int32 {
        await withCheckedContinuation { continuation in
            ended = { status in continuation.resume(returning: status) }
            signals = SignalSource(SignalSource.endSignals) { [self] _ in end(status: 0) }
            connection.onDisconnect = { [self] in
                options.logger.notice("the session bus is gone: exiting")
                end(status: 0)
            }
            connection.export(tree)
            culprits.keep { downloader.scheduler[$0].map { !$0.state.hasEnded } ?? false }
            downloader.begin(crashed: culprits.repeated, owed: owedToasts, observers: observers)
            assets.begin(telling: observers)
            idleExit.begin { [weak self] reason in
                self?.options.logger.info("leaving", metadata: ["reason": "\(reason)"])
                if case .nameNotReleased = reason {} else { self?.hasName = false }
                self?.end(status: 0)
            }
        }
    }

    /// Stops and checkpoints the active downloads, saves them, and ends; they resume at the next start.
    private func end(status: Int32) {
        guard !isEnding else { return }
        isEnding = true
        workEnd = .now.advanced(by: EndPatience.calls)
        downloader.end()
        giveUp(status, after: EndPatience.saving)
        toaster.handOn { [self] in shutDown(status) }
    }

    /// Exits after `seconds`, without the time of `waitsForWork`. A pause of this process counts as one second, because a pause does not
    /// show that a disk is silent.
    private func giveUp(_ status: Int32, after seconds: Int) {
        Poller.shared.schedule(after: .seconds(1)) { [self] in
            let left = waitsForWork ? EndPatience.saving : seconds -| 1
            guard left <= 0 else { return giveUp(status, after: left) }
            options.logger.warning("the disk did not answer in time: exiting")
            finish(status)
        }
    }

    private func shutDown(_ status: Int32) {
        engine.shutDown { [self] in
            journal.afterCommit { [self] in
                // A toast that the notification server is accepting just now must not be shown again at the next start.
                toaster.shutDown { [self] in
                    whenCallsAreTaken(by: .now.advanced(by: hasName ? DiskPatience.folder : .zero)) { [self] in leaveBus(status) }
                }
            }
        }
    }

    /// Whether a received call is in progress: the service identifies its caller, works on the call, or deletes files.
    private var isTakingCalls: Bool { gate.isAsking || isWorking || commands.isDeleting }

    /// Whether the service admits downloads, changes many downloads, writes a long answer, or waits for a disk before it answers. If the
    /// disk does not answer, the service refuses the call after some seconds.
    private var isWorking: Bool {
        admission.hold.isHeld || downloader.scheduler.hasBulkChanges || journal.gate.hasLongAnswers || diskCalls.areWaiting
    }

    /// Whether the end waits for the work on calls. Once the name is released, only `lastCalls` are left, because the next process waits.
    private var waitsForWork: Bool { isWorking && hasName && .now < workEnd }

    /// Calls `done` once no call is in progress. After `deadline`, only `waitsForWork` delays `done`.
    private func whenCallsAreTaken(by deadline: ContinuousClock.Instant, _ done: @escaping @BusActor () -> Void) {
        guard isTakingCalls, waitsForWork || .now < deadline else { return done() }
        Poller.shared.schedule(after: .milliseconds(2)) { [self] in whenCallsAreTaken(by: deadline, done) }
    }

    /// Releases the bus name while calls can still be saved. Every call that was sent to us before is answered, and the bus starts a new
    /// process for later calls.
    private func leaveBus(_ status: Int32) {
        do throws(DBusError) { try connection.releaseName(BusName.service) } catch {
            options.logger.notice("the bus name could not be released", metadata: ["cause": "\(error.message)"])
        }
        hasName = false
        takeLastCalls(by: .now.advanced(by: Self.lastCalls), status)
    }

    /// Closes once the calls that were sent to us before the release are answered, at the latest after `deadline`. Calls to the unique name
    /// may come without end. The bus answers the calls that are left with `NoReply`.
    private func takeLastCalls(by deadline: ContinuousClock.Instant, _ status: Int32) {
        // Also answers the calls of callers that have been identified meanwhile.
        let areAllHandled = connection.dispatchArrived(for: Self.lastCallsInTurn)
        guard isTakingCalls || !areAllHandled, .now < deadline else { return journal.afterCommit { [self] in close(status) } }
        Poller.shared.schedule(after: .milliseconds(2)) { [self] in takeLastCalls(by: deadline, status) }
    }

    private func close(_ status: Int32) {
        journal.end()
        BusActor.spawn { [self] in
            await store.close()
            finish(status)
        }
    }

    private func finish(_ status: Int32) {
        alarm(15)  // ends the process even if the bus has stopped reading
        downloader.leave()
        idleExit.startSuccessor()
        connection.flush()
        ended(status)
        ended = { _ in }
    }
}
