public import DBus
public import EventLoop
internal import Glibc

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
        let number = file.number
        // gio is killed before the wait for it ends.
        let result = await DiskPool.shared.value(at: .path(path), takesLong: true, within: Self.patience + .seconds(5)) { () -> Outcome in
            guard let gio = findProgram("gio", in: environment) else { return .unavailable }
            guard let end = runToEnd([gio, "trash", "--", path], environment: environment, seconds: seconds) else { return .unavailable }
            // gio goes by the path, at which there may be another file by now: ours has to be the one that has moved.
            if end.status == 0 {
                return Self.hasLeft(path, number) ? .trashed : .refused("another file had taken its name, and is now in the trash")
            }
            // "gio: file:///…: Trashing on system internal mounts is not supported": what matters comes last.
            let reason = end.complaint.split(separator: ": ").last.map(String.init)
            return .refused(reason ?? "gio trash ended with status \(end.status)")
        }
        return result ?? .refused("the disk did not answer in time")
    }

    /// Whether the open file lies in a trash now (Desktop Trash specification: in its folder `files`), or is deleted. Only what has
    /// certainly stayed outside of any is said to have: who lists no descriptors in `/proc` is believed.
    private nonisolated static func hasLeft(_ path: String, _ descriptor: Int32) -> Bool {
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX) + 1)
        let count = readlink("/proc/self/fd/\(descriptor)", &buffer, buffer.count - 1)
        guard count > 0 else { return true }
        let place = String(decoding: buffer[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
        if place.hasSuffix(" (deleted)") { return true }
        let folders = place.split(separator: "/").dropLast()
        return place != path && folders.last == "files" && folders.dropLast().contains { $0.hasPrefix("Trash") || $0.hasPrefix(".Trash") }
    }
}
