internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Logging

/// Calls the owners of ended downloads (option `activate`): `org.freedesktop.Application.ActivateAction`. The call starts an owner that
/// does not run.
///
/// The scheduler decides whether and when to call. At most `Limits.ownerCalls` calls are in flight, and one for each owner. So the owner of
/// 10,000 downloads is called for one end after the other, and a hanging owner delays no other owner.
///
/// A sandboxed app must not be able to start itself at will, by a dead URL or at a chosen time (`not-before`). Only a download that brought
/// a file starts the app, as often as `OwnerStarts` allows. Every other call reaches the app only while it runs.
@BusActor final class OwnerCalls {
    /// The name of the action (docs/dbus.md, "Apps that come and go").
    static let action = "download-ended"
    /// How long to wait for an answer. The bus continues to start the owner after that, and the call still reaches the owner.
    private static let patience: Duration = .seconds(25)
    /// How many more calls to a missing owner are dropped with the failed one, in one turn of the loop.
    private static let mostLetGo = 256
    /// How many owners that did not answer are remembered, so that each is logged once.
    private static let mostFailing = 1000

    /// The calls to make to one owner, in order.
    private struct Queue {
        var asks: [Ask] = []
        var head = 0

        mutating func next() -> Ask? {
            guard head < asks.count else { return nil }
            head += 1
            return asks[head - 1]
        }
    }

    private struct Ask {
        let download: ManagedDownload
        let isWanted: () -> Bool
    }

    private let connection: Connection
    private let log: Logger
    private let starts: OwnerStarts
    private var queues: [String: Queue] = [:] { didSet { hold.isHeld = !queues.isEmpty } }
    private let hold: IdleExit.Hold
    /// Owners whose next call may begin, in order.
    private var turns: [String] = []
    private var underWay = 0
    private var failing: Set<String> = []

    /// - Parameter hold: held while any call to an owner is in flight or queued.
    init(connection: Connection, starts: OwnerStarts, hold: IdleExit.Hold, log: Logger) {
        (self.connection, self.starts, self.hold, self.log) = (connection, starts, hold, log)
    }

    /// Calls the owner of `download` when its turn comes.
    ///
    /// - Parameter isWanted: whether the call must still be made; evaluated once, at its turn.
    func ask(for download: ManagedDownload, isWanted: @escaping () -> Bool) {
        guard let owner = download.record.options.activate else { return }
        if queues[owner] == nil { turns.append(owner) }
        queues[owner, default: Queue()].asks.append(Ask(download: download, isWanted: isWanted))
        takeTurns()
    }

    private func takeTurns() {
        while underWay < Limits.ownerCalls, !turns.isEmpty {
            let owner = turns.removeFirst()
            guard let download = nextWanted(of: owner) else {
                queues[owner] = nil
                continue
            }
            underWay += 1
            BusActor.spawn { [self] in
                let failure = await call(owner, download)
                underWay -= 1
                if let failure { recordFailure(owner, failure) } else { failing.remove(owner) }
                // An owner that could not be started is not tried again for each of its downloads: their calls are repeated at later times.
                if failure?.isNotThere == true, !download.record.options.isSandboxed {
                    for _ in 0..<Self.mostLetGo where nextWanted(of: owner) == nil { break }
                }
                turns.append(owner)
                takeTurns()
            }
        }
    }

    private func nextWanted(of owner: String) -> ManagedDownload? {
        while let ask = queues[owner]?.next() { if ask.isWanted() { return ask.download } }
        return nil
    }

    private func call(_ owner: String, _ download: ManagedDownload) async -> DBusError? {
        let end = download.state.endFailure
        let what = Variant.structure([
            .objectPath(download.path), .string(download.state.name), .string(download.record.path ?? ""),
            .string(end?.name.busName ?? ""),
        ])
        let options = download.record.options
        guard options.isSandboxed else { return await call(owner, what, download.number, starts: true) }
        let failure = await call(owner, what, download.number, starts: false)
        // Starts are counted by app, because an app may own several names below its own.
        guard let failure, failure.isNotThere, download.record.broughtFile, await starts.take(options.app) else { return failure }
        return await call(owner, what, download.number, starts: true)
    }

    /// - Parameter starts: whether the bus may start the owner for this call.
    private func call(_ owner: String, _ what: Variant, _ number: DownloadNumber, starts: Bool) async -> DBusError? {
        do throws(DBusError) {
            try await connection.call(
                Application.activateAction, on: owner, at: BusName.applicationPath(owner), (Self.action, [what], [:]),
                timeout: Self.patience, starts: starts)
            log.debug("the owner was called", metadata: ["download": "\(number)", "owner": "\(owner)"])
            return nil
        } catch { return error }
    }

    private func recordFailure(_ owner: String, _ error: DBusError) {
        if failing.count >= Self.mostFailing { failing = [] }
        guard failing.insert(owner).inserted else { return }
        log.notice(
            "an application with the option activate did not answer; it is called again later",
            metadata: ["owner": "\(owner)", "error": "\(error.name)"])
    }
}

extension DownloadRecord {
    /// Whether the end brought new bytes.
    fileprivate var broughtFile: Bool { state == .finished && !isUnchanged && received > 0 }
}

extension DBusError {
    /// Whether the name has no owner, and the bus could not start one.
    fileprivate var isNotThere: Bool {
        let bus = "org.freedesktop.DBus.Error."
        return name == bus + "ServiceUnknown" || name == bus + "NameHasNoOwner" || name.hasPrefix(bus + "Spawn.")
    }
}
