internal import DBus
internal import DownloadModel
internal import DownloaderInterface
public import EventLoop
public import Logging
internal import PushInterface
internal import Sandboxes

/// How the program runs.
public struct PushOptions: Sendable {
    /// Exit at once if no app has registered (used at login).
    public var ifRegistered = false
    /// How long the program stays without a reason to.
    public var idle: Duration = .seconds(30)
    /// The folder of registrations and messages.
    public var folder: String
    public var logger = Logger(label: "todoku-push")
    public init(folder: String) { self.folder = folder }
}

/// The push program: creates and connects its parts, and runs them until the end.
@BusActor public final class PushProgram {
    public nonisolated static let version = "0.1.0"

    private let connection: Connection
    private let store: PushStore
    private let registry: Registry
    private let link: DistributorLink
    private let deliveries: Deliveries
    private let push: PushObject
    private let tree: PushTree
    private let idleExit: IdleExit
    private let log: Logger
    private var signals: SignalSource?
    private var ended: (Int32) -> Void = { _ in }

    /// Runs the program until it ends.
    ///
    /// - Returns: the exit status: 0 after a normal end, 1 if the program could not start, 2 if another process owns the name.
    public static func run(_ options: PushOptions) async -> Int32 {
        let log = options.logger
        if options.ifRegistered, !PushStore.hasRegistrations(folder: options.folder) { return 0 }
        do throws(DBusError) {
            let connection = try Connection.session()
            connection.hold()
            guard try connection.requestName(Push.busName) else {
                // At login, the bus may have started another one already.
                if options.ifRegistered { return 0 }
                log.error("another todoku-push runs on this bus already")
                return 2
            }
            let idleExit = IdleExit(connection: connection, name: Push.busName, idle: options.idle)
            let store = PushStore(folder: options.folder, hold: idleExit.makeHold())
            let content: PushStore.Content
            do throws(Refusal) {
                // The bus may have started this process while ‘todoku reset’ or an earlier one still writes.
                try store.takeLock()
                content = try store.open()
            } catch {
                log.error("the program cannot start", metadata: ["cause": "\(error.message)"])
                connection.refuse(error.dbusError, leaving: Push.busName)
                return 1
            }
            for path in content.damaged { log.warning("a file is damaged, and is left alone", metadata: ["file": "\(path)"]) }
            return await PushProgram(options, connection: connection, store: store, idleExit: idleExit, content).serve(content)
        } catch {
            if SignalSource.isEndPending { return 0 }
            log.error("no session bus", metadata: ["cause": "\(error.message)"])
            return 1
        }
    }

    private init(
        _ options: PushOptions, connection: Connection, store: PushStore, idleExit: IdleExit, _ content: PushStore.Content
    ) {
        log = options.logger
        (self.connection, self.store, self.idleExit) = (connection, store, idleExit)
        let registry = Registry(content.registrations, starts: content.starts, store: store)
        self.registry = registry
        link = DistributorLink(
            connection: connection, registry: registry, setting: content.settings["distributor"]?.string ?? "",
            hold: idleExit.makeHold(), log: log)
        deliveries = Deliveries(
            connection: connection, registry: registry, store: store, files: PushedFiles(hold: idleExit.makeHold(), log: log),
            apps: PushedApps(connection: connection, registry: registry), hold: idleExit.makeHold(), log: log)
        push = PushObject(
            registry: registry, link: link, deliveries: deliveries, store: store, connection: connection, hold: idleExit.makeHold())
        tree = PushTree(push, ConnectorObject(link: link, deliveries: deliveries))
        let asking = idleExit.makeHold()
        connection.guardCalls(
            by: CallerGate {
                Refusal(.limitExceeded, $0).dbusError
            } asks: {
                asking.isHeld = $0
            } inspect: {
                CallerInspection.finding($0, arrival: $1)
            })
    }

    private func serve(_ content: PushStore.Content) async -> Int32 {
        await withCheckedContinuation { continuation in
            ended = { status in continuation.resume(returning: status) }
            signals = SignalSource(SignalSource.endSignals) { [self] _ in end() }
            connection.onDisconnect = { [self] in
                log.notice("the session bus is gone: exiting")
                end()
            }
            connection.export(tree)
            let starting = idleExit.makeHold()
            starting.isHeld = true
            BusActor.spawn { [self] in
                await link.begin(telling: push)
                starting.isHeld = false
            }
            deliveries.begin(content.messages)
            idleExit.begin { [weak self] reason in
                self?.log.info("leaving", metadata: ["reason": "\(reason)"])
                self?.end()
            }
        }
    }

    /// Ends once the last changes are on disk. Files in progress continue in the service, and the next start requests them again.
    private func end() {
        let finish = ended
        ended = { _ in }
        BusActor.spawn { [self] in
            registry.noteCounts()
            try? await store.commit()
            idleExit.startSuccessor()
            connection.flush()
            finish(0)
        }
    }
}
