public import DBus
public import EventLoop

/// Puts files into the desktop's trash: by the portal where it is there, else by gio(1). The trash itself is theirs to keep.
@BusActor public final class Trash {
    public enum Outcome: Equatable, Sendable {
        case trashed
        /// What gio says about it.
        case refused(String)
        /// There is neither a portal nor gio.
        case unavailable
    }

    /// For so long each of the two is waited for.
    private static let patience: Duration = .seconds(20)

    private let connection: Connection
    private let environment: [String: String]

    public init(connection: Connection, environment: [String: String] = Folders.environment()) {
        (self.connection, self.environment) = (connection, environment)
    }

    /// - Parameters:
    ///   - path: absolute.
    ///   - file: a descriptor of it, as of O_PATH; the caller's to close.
    public func put(_ path: String, _ file: FileDescriptor) async -> Outcome {
        if await FilePortal.isThere(on: connection), await FilePortal.trash(file, on: connection, within: Self.patience) { return .trashed }
        // What it says is part of a message on the bus, which is English.
        let environment = environment.merging(["LC_ALL": "C.UTF-8"]) { $1 }.filter { $0.key != "LANGUAGE" }
        let seconds = Int(Self.patience.components.seconds)
        // gio is killed before the wait for it ends.
        let result = await DiskPool.shared.value(at: .path(path), takesLong: true, within: Self.patience + .seconds(5)) { () -> Outcome in
            guard let gio = findProgram("gio", in: environment) else { return .unavailable }
            guard let end = runToEnd([gio, "trash", "--", path], environment: environment, seconds: seconds) else { return .unavailable }
            if end.status == 0 { return .trashed }
            // "gio: file:///…: Trashing on system internal mounts is not supported": what matters comes last.
            let reason = end.complaint.split(separator: ": ").last.map(String.init)
            return .refused(reason ?? "gio trash ended with status \(end.status)")
        }
        return result ?? .refused("the disk did not answer in time")
    }
}
