internal import DBus
internal import Desktop
internal import DownloaderInterface
public import EventLoop
internal import Glibc
internal import PushInterface

/// The state of the service on disk, for programs that copy, delete or replace it.
public enum StateFiles {
    /// The absolute path of the folder with the database.
    public static var folder: String { "\(Folders.state())/todoku" }
    /// The absolute path of the folder of todoku-push.
    static var pushFolder: String { "\(folder)/push" }

    /// A free name beside the database for the copy that a reset or a restore keeps: `backup-YYYYMMDD-HHMMSS.db` (UTC). The draft of a
    /// copy that was interrupted keeps its name from the next one.
    public static func backupPath() -> String {
        var now = time(nil)
        var parts = tm()
        gmtime_r(&now, &parts)
        var text = [CChar](repeating: 0, count: 32)
        let count = strftime(&text, text.count, "%Y%m%d-%H%M%S", &parts)
        let stamp = String(decoding: text.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
        let first = "\(folder)/backup-\(stamp)"
        let free = (1...1000).lazy.map { $0 == 1 ? "\(first).db" : "\(first)-\($0).db" }.first {
            !Paths.exists($0) && !Paths.exists("\($0).new")
        }
        return free ?? "\(first).db"
    }
}

/// Why the service could not be ended.
public struct ServiceHolds: Error, CustomStringConvertible, Sendable {
    /// One English sentence.
    public let description: String
}

/// Ends the programs that keep their state in files, so that the files can be replaced. The bus starts each again with the next call.
@BusActor public enum ServiceEnd {
    /// The service may take as long. todoku-push waits up to fifteen seconds for its disks.
    nonisolated static let patience = EndPatience.longest

    /// The folder in which the running service keeps its database, as its environment says; nil: it does not run, or cannot be seen.
    public static func folder() async -> String? {
        guard let connection = try? await Connection.anotherToSession(within: BusProbe.patience) else { return nil }
        guard let number = await BusProbe(connection).process(of: BusName.service) else { return nil }
        let observed = await Pool.programs.value(within: BusProbe.patience) { ObservedProcess(number) }
        guard let environment = observed?.environment else { return nil }
        return "\(Folders.state(environment: environment))/todoku"
    }

    /// Ends todoku-push, and then the service, which it would start again.
    public static func end() async throws(ServiceHolds) {
        try await end(Push.busName, of: "todoku-push")
        try await end(BusName.service, of: "todokud")
    }

    /// Sends SIGTERM to the owner of the name, and waits until the name is free. Does nothing if the name has no owner, or there is no bus.
    private static func end(_ name: String, of program: String) async throws(ServiceHolds) {
        guard let connection = try? await Connection.anotherToSession(within: BusProbe.patience) else { return }
        let bus = BusProbe(connection)
        guard await bus.owner(of: name) != nil else { return }
        guard let number = await bus.process(of: name) else {
            throw ServiceHolds(description: "The bus does not tell which process owns \(name).")
        }
        let observed = await Pool.programs.value(within: BusProbe.patience) { ObservedProcess(number) }
        guard let process = observed, process.program?.split(separator: "/").last.map(String.init) == program else {
            throw ServiceHolds(description: "\(observed?.text ?? "A program") owns \(name), but is not \(program); end it first.")
        }
        guard let id = Int32(exactly: number), kill(id, SIGTERM) == 0 || errno == ESRCH else {
            throw ServiceHolds(description: "\(process.text) cannot be ended: \(String(cString: strerror(errno))).")
        }
        guard await isFree(name, on: bus) else {
            throw ServiceHolds(description: "\(process.text) has not ended within \(patience.components.seconds) seconds.")
        }
    }

    /// Waits until the name has no owner.
    private static func isFree(_ name: String, on bus: BusProbe) async -> Bool {
        let waiting = NameWait()
        // The subscription comes first: an end between the two would be missed otherwise.
        let subscription = bus.connection.watchOwner(of: name) { owner in if owner == nil { waiting.end(true) } }
        defer { bus.connection.unsubscribe(subscription) }
        if await bus.owner(of: name) == nil { return true }
        return await withCheckedContinuation { continuation in waiting.begin(continuation, within: patience) }
    }
}

/// Waits for an event or a deadline, whichever comes first.
@BusActor private final class NameWait {
    private var continuation: CheckedContinuation<Bool, Never>?
    private var timer: Poller.Token?
    private var hasEnded = false

    func begin(_ continuation: CheckedContinuation<Bool, Never>, within patience: Duration) {
        guard !hasEnded else { return continuation.resume(returning: true) }
        self.continuation = continuation
        timer = Poller.shared.scheduleAwake(after: patience) { [self] in end(false) }
    }

    func end(_ isFree: Bool) {
        hasEnded = true
        if let timer { Poller.shared.cancel(timer) }
        timer = nil
        continuation?.resume(returning: isFree)
        continuation = nil
    }
}
