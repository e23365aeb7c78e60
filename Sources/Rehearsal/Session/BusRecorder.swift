internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop

/// Gets every message of the private bus, and keeps the facts of the report.
@BusActor final class BusRecorder {
    // Bounds, because a command could send messages without end.
    private static let mostMembers = 1000
    private static let mostErrors = 100
    private static let mostDownloads = 10_000
    private static let mostPending = 10_000
    private static let mostWaits = 100
    private static let mostEnds = 100

    private struct CallID: Hashable {
        let caller: String
        let serial: UInt32
    }

    /// The connection of the rehearsal itself, whose calls do not count.
    private let ownName: String
    private(set) var calls: [RehearsalReport.Call] = []
    private(set) var downloads: [RehearsalReport.Download] = []
    private(set) var serviceStarts = 0
    /// The unique name of the service; nil while it does not run.
    private var service: String?
    private var callPlaces: [String: Int] = [:]
    private var downloadPlaces: [String: Int] = [:]
    /// The calls that have no answer yet, with their places in `calls`.
    private var pending: [CallID: Int] = [:]
    /// The error message in the last `Completed` of a download, until the signal `DownloadEnded` tells the outcome.
    private var completed: [String: String] = [:]
    /// The downloads whose `State` says that they have ended, until the signal `DownloadEnded` comes.
    private var openEnds: Set<String> = []
    var hasOpenEnds: Bool { !openEnds.isEmpty }
    private var isStopped = false
    private var reached: (@BusActor () -> Void)?

    /// Called when the service reports progress: with the number of bytes that it has of the file.
    var progress: (@BusActor (UInt64) -> Void)?
    /// Called when a download waits: with the reason.
    var waits: (@BusActor (String) -> Void)?
    /// Called when a download has failed.
    var fails: (@BusActor () -> Void)?

    init(ownName: String) { self.ownName = ownName }

    /// Calls `reached` with the next call of `NameHasOwner` by `ownName`. By then, all messages sent before it are recorded.
    func setFence(_ reached: @escaping @BusActor () -> Void) { self.reached = reached }

    /// Records nothing more.
    func stop() { isStopped = true }

    func record(_ message: Message) {
        guard !isStopped else { return }
        switch message.kind {
        case .call: recordCall(message)
        case .reply, .error: recordAnswer(message)
        case .signal: recordSignal(message)
        }
    }

    private func recordCall(_ message: Message) {
        if message.sender == ownName {
            guard message.member == BusDaemon.nameHasOwner.name, let reached else { return }
            self.reached = nil
            return reached()
        }
        let isForService = message.destination == BusName.service || service != nil && message.destination == service
        let id = CallID(caller: message.sender, serial: message.serial)
        // The bus shows a call that starts the service twice: when it comes, and when it passes the call on.
        guard isForService, pending[id] == nil, message.wantsReply || service != nil else { return }
        let member = Self.name(message)
        if callPlaces[member] == nil {
            guard calls.count < Self.mostMembers else { return }
            callPlaces[member] = calls.count
            calls.append(RehearsalReport.Call(member: member))
        }
        guard let place = callPlaces[member] else { return }
        calls[place].count +|= 1
        if message.wantsReply, pending.count < Self.mostPending { pending[id] = place }
    }

    /// A method's name. If the interface is not one of ours, the interface's last word comes first.
    private static func name(_ message: Message) -> String {
        let interface = message.interface
        guard !interface.isEmpty, !interface.hasPrefix("org.todoku.") else { return message.member }
        return "\(interface.split(separator: ".").last ?? "").\(message.member)"
    }

    private func recordAnswer(_ message: Message) {
        let id = CallID(caller: message.destination, serial: message.replySerial)
        guard let place = pending.removeValue(forKey: id), let error = message.error else { return }
        guard calls[place].errors[error.name] != nil || calls[place].errors.count < Self.mostErrors else { return }
        calls[place].errors[error.name, default: 0] +|= 1
    }

    private func recordSignal(_ message: Message) {
        if let (name, _, owner) = BusDaemon.nameOwnerChanged.read(message), name == BusName.service, message.sender == BusDaemon.name {
            service = owner.isEmpty ? nil : owner
            // A service that was killed between the two signals never sends the second one, not even after its next start.
            openEnds = []
            if service != nil { serviceStarts +|= 1 }
            return
        }
        guard let service, message.sender == service else { return }
        if let (_, received, _) = Download.progress.read(message) {
            progress?(received)
        } else if let (interface, changed, _) = Standard.propertiesChanged.read(message) {
            guard interface == Download.interface else { return }
            if let reason = changed[Download.waitReason.name]?.string, !reason.isEmpty { note(wait: reason, of: message.path) }
            if let state = changed[Download.state.name]?.string { note(state: state, of: message.path) }
        } else if let path = Manager.downloadAdded.read(message) {
            _ = place(of: path.value)
        } else if let (_, text, _) = Download.completed.read(message) {
            if place(of: message.path) != nil { completed[message.path] = text }
        } else if let (path, outcome, error) = Manager.downloadEnded.read(message) {
            let text = completed.removeValue(forKey: path.value) ?? ""
            openEnds.remove(path.value)
            if !error.isEmpty { fails?() }
            guard let index = place(of: path.value), downloads[index].ends.count < Self.mostEnds else { return }
            downloads[index].ends.append(RehearsalReport.End(outcome: outcome, error: error, message: text))
        }
    }

    private func note(state: String, of path: String) {
        if !["finished", "failed", "cancelled"].contains(state) {
            openEnds.remove(path)
        } else if openEnds.count < Self.mostDownloads {
            openEnds.insert(path)
        }
    }

    private func note(wait reason: String, of path: String) {
        if let index = place(of: path), downloads[index].waits.last != reason, downloads[index].waits.count < Self.mostWaits {
            downloads[index].waits.append(reason)
        }
        waits?(reason)
    }

    /// The place of a download in `downloads`; nil: there are too many. The signal `DownloadAdded` may have been lost in a crash.
    private func place(of path: String) -> Int? {
        if let known = downloadPlaces[path] { return known }
        guard downloads.count < Self.mostDownloads else { return nil }
        downloadPlaces[path] = downloads.count
        downloads.append(RehearsalReport.Download(path: path))
        return downloads.count &- 1
    }
}
