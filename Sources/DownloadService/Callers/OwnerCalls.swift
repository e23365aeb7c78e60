internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Logging
internal import Scheduling

/// A call to the owner of something that has ended (option `activate`).
@BusActor protocol OwnerCall: Sendable {
    /// The well-known name that is called.
    var owner: String? { get }
    /// The options of the download or asset: they name the app and its sandbox.
    var options: DownloadOptions { get }
    /// The name of the action, and its parameter as of now.
    var action: String { get }
    var parameter: Variant { get }
    /// Whether a sandboxed owner that does not run may be started. `OwnerStarts` limits how often.
    var startsSandboxed: Bool { get }
    /// Names the download or asset in the log.
    var subject: String { get }
    /// Whether the call must still be made. Evaluated once, at its turn.
    func isWanted() -> Bool
    /// The call is over: the owner has answered, or the call has failed. A call that was no longer wanted at its turn counts as answered.
    func ended(isAnswered: Bool)
}

/// Calls the owners of ended downloads and of assets that are ready: `org.freedesktop.Application.ActivateAction`. The call starts an owner
/// that does not run.
///
/// The scheduler, or the updater of assets, decides whether and when to call. At most `Limits.ownerCalls` calls are in flight, and at most
/// one for each owner. So the ends of one owner are reported one after the other, even 10,000 of them. A hanging owner delays no other
/// owner while fewer than `Limits.ownerCalls` owners hang.
///
/// A sandboxed app counts as one owner, whichever of its names is called. Otherwise it could hang under many names, and take all calls.
///
/// A sandboxed app must not be able to start itself at will, by a dead URL or at a chosen time (`not-before`). Only a download that brought
/// a file starts the app, as often as `OwnerStarts` allows. Every other call reaches the app only while it runs.
@BusActor final class OwnerCalls {
    /// How long to wait for an answer. The bus continues to start the owner after that, and the call still reaches the owner.
    private static let patience: Duration = .seconds(25)
    /// How many more calls to a missing owner are dropped with the failed one, in one turn of the loop.
    private static let mostLetGo = 256
    /// How many owners that did not answer are remembered, so that each is logged once.
    private static let mostFailing = 1000

    /// The calls to make to one owner, or to one app in a sandbox, in order.
    private struct Queue {
        var asks: [Ask] = []
        var head = 0

        /// - Parameter owner: nil: any owner; otherwise the next call is taken only if it is a call to this owner.
        mutating func next(to owner: String?) -> Ask? {
            guard head < asks.count, owner.map({ $0 == asks[head].owner }) ?? true else { return nil }
            head += 1
            return asks[head - 1]
        }
    }

    private struct Ask {
        let owner: String
        let call: any OwnerCall
    }

    private let connection: Connection
    private let log: Logger
    private let starts: OwnerStarts
    /// By the name of the owner, or by the id of the app in a sandbox (`key`).
    private var queues: [String: Queue] = [:] { didSet { hold.isHeld = !queues.isEmpty } }
    private let hold: IdleExit.Hold
    /// The keys of queues whose next call may begin, in order.
    private var turns: [String] = []
    private var underWay = 0
    private var failing: Set<String> = []

    /// - Parameter hold: held while any call to an owner is in flight or queued.
    init(connection: Connection, starts: OwnerStarts, hold: IdleExit.Hold, log: Logger) {
        (self.connection, self.starts, self.hold, self.log) = (connection, starts, hold, log)
    }

    /// Makes the call when its turn comes.
    func ask(_ call: any OwnerCall) {
        guard let owner = call.owner else { return }
        let key = key(of: call, owner)
        if queues[key] == nil { turns.append(key) }
        queues[key, default: Queue()].asks.append(Ask(owner: owner, call: call))
        takeTurns()
    }

    private func key(of call: any OwnerCall, _ owner: String) -> String { call.options.isSandboxed ? call.options.app : owner }

    private func takeTurns() {
        while underWay < Limits.ownerCalls, !turns.isEmpty {
            let key = turns.removeFirst()
            guard let next = nextWanted(of: key) else {
                queues[key] = nil
                continue
            }
            underWay += 1
            BusActor.spawn { [self] in
                let (owner, call) = (next.owner, next.call)
                let failure = await self.call(owner, call)
                underWay -= 1
                call.ended(isAnswered: failure == nil)
                if let failure { recordFailure(owner, failure) } else { failing.remove(owner) }
                // An owner that could not be started is not tried again for each of its downloads: their calls are repeated at later times.
                if failure?.isNotThere == true, !call.options.isSandboxed {
                    for _ in 0..<Self.mostLetGo {
                        guard let dropped = nextWanted(of: key, to: owner) else { break }
                        dropped.call.ended(isAnswered: false)
                    }
                }
                turns.append(key)
                takeTurns()
            }
        }
    }

    /// The next call that is still wanted. Ends the calls before it.
    private func nextWanted(of key: String, to owner: String? = nil) -> Ask? {
        while let ask = queues[key]?.next(to: owner) {
            if ask.call.isWanted() { return ask }
            ask.call.ended(isAnswered: true)
        }
        return nil
    }

    private func call(_ owner: String, _ call: any OwnerCall) async -> DBusError? {
        let (action, parameter, subject) = (call.action, call.parameter, call.subject)
        guard call.options.isSandboxed else { return await make(owner, action, parameter, subject, starts: true) }
        let failure = await make(owner, action, parameter, subject, starts: false)
        // Starts are counted by app, because an app may own several names below its own.
        guard let failure, failure.isNotThere, call.startsSandboxed, await starts.take(call.options.app) else { return failure }
        return await make(owner, action, parameter, subject, starts: true)
    }

    /// - Parameter starts: whether the bus may start the owner for this call.
    private func make(_ owner: String, _ action: String, _ parameter: Variant, _ subject: String, starts: Bool) async -> DBusError? {
        do throws(DBusError) {
            try await connection.call(
                Application.activateAction, on: owner, at: BusName.applicationPath(owner), (action, [parameter], [:]),
                timeout: Self.patience, starts: starts)
            log.debug("the owner was called", metadata: ["of": "\(subject)", "owner": "\(owner)"])
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

/// The call about the end of a download.
@BusActor struct DownloadEndCall: OwnerCall {
    let download: ManagedDownload
    let executor: ServiceExecutor

    var owner: String? { options.activate }
    var options: DownloadOptions { download.record.options }
    /// docs/dbus.md, "Apps that come and go".
    var action: String { "download-ended" }
    var parameter: Variant {
        .structure([
            .objectPath(download.path), .string(download.state.name), .string(download.record.path ?? ""),
            .string(download.state.endFailure?.name.busName ?? ""),
        ])
    }
    var startsSandboxed: Bool { download.record.broughtFile }
    var subject: String { "download \(download.number)" }
    func isWanted() -> Bool { executor.beginOwnerCall(download.entry) }
    /// The app acknowledges the end itself; until then, the scheduler repeats the call.
    func ended(isAnswered: Bool) {}
}

extension DownloadRecord {
    /// Whether the end brought new bytes.
    fileprivate var broughtFile: Bool { state == .finished && !isUnchanged && received > 0 }
}
