internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Logging

/// Calls the owners of downloads that have ended (option `activate`), which starts them: `org.freedesktop.Application.ActivateAction`.
///
/// Whether and when a call is made is the ledger's to say. Here at most `Limits.ownerCalls` are under way, and of one owner one: the ends
/// of 10,000 downloads come to their owner one after the other, and an owner that hangs holds up nobody else.
///
/// An app in a sandbox must not have itself started at will: by a URL that is dead, at an instant (`not-before`). It is started for what
/// brought it a file only, and as often as `OwnerStarts` lets it. Every other call reaches it while it runs, and starts nothing.
@BusActor final class OwnerCalls {
    /// The name of the action (docs/dbus.md, "Apps that come and go").
    static let action = "download-ended"
    /// For so long an answer is awaited. The bus goes on starting the owner after that too, and the call reaches it.
    private static let patience: Duration = .seconds(25)
    /// So many calls to an owner that is not there are let go with the one that failed, in one turn of the loop.
    private static let mostLetGo = 256
    /// So many owners that did not answer are remembered, so that each is logged once.
    private static let mostBlamed = 1000

    /// The calls that are asked for of one owner, in order.
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
    private let hold: Residence.Hold
    /// Owners whose next call may begin, in order.
    private var turns: [String] = []
    private var underWay = 0
    private var blamed: Set<String> = []

    /// - Parameter hold: held while any owner is called, or is to be called.
    init(connection: Connection, starts: OwnerStarts, hold: Residence.Hold, log: Logger) {
        (self.connection, self.starts, self.hold, self.log) = (connection, starts, hold, log)
    }

    /// Has the owner of `download` called when its turn comes.
    ///
    /// - Parameter isWanted: asked then, once: whether the call is still to be made.
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
                if let failure { blame(owner, failure) } else { blamed.remove(owner) }
                // What cannot be started is not started for each of its downloads: they come again at their later times.
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
        // The bound is the app's: it may have names below its own.
        guard let failure, failure.isNotThere, download.record.broughtFile, await starts.take(options.app) else { return failure }
        return await call(owner, what, download.number, starts: true)
    }

    /// - Parameter starts: whether the bus may start the owner for it.
    private func call(_ owner: String, _ what: Variant, _ number: DownloadNumber, starts: Bool) async -> DBusError? {
        do throws(DBusError) {
            try await connection.call(
                Application.activateAction, on: owner, at: BusName.applicationPath(owner), (Self.action, [what], [:]),
                timeout: Self.patience, starts: starts)
            log.debug("the owner was called", metadata: ["download": "\(number)", "owner": "\(owner)"])
            return nil
        } catch { return error }
    }

    private func blame(_ owner: String, _ error: DBusError) {
        if blamed.count >= Self.mostBlamed { blamed = [] }
        guard blamed.insert(owner).inserted else { return }
        log.notice(
            "an application with the option activate did not answer; it is called again later",
            metadata: ["owner": "\(owner)", "error": "\(error.name)"])
    }
}

extension DownloadRecord {
    /// Whether its end brought bytes that were not there before.
    fileprivate var broughtFile: Bool { state == .finished && !isUnchanged && received > 0 }
}

extension DBusError {
    /// Nobody has the name, and nothing could be started for it.
    fileprivate var isNotThere: Bool {
        let bus = "org.freedesktop.DBus.Error."
        return name == bus + "ServiceUnknown" || name == bus + "NameHasNoOwner" || name.hasPrefix(bus + "Spawn.")
    }
}
