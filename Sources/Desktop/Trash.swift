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

    /// Neither goes by the path that the file once had: the portal is given the file, and gio its name, in its folder.
    ///
    /// - Parameters:
    ///   - path: absolute; its disk is the one that is waited for.
    ///   - file: a descriptor of the file, as of O_PATH; the caller's to close.
    ///   - folder: a descriptor of its folder, likewise. It stays open until this returns; the pool has a duplicate.
    ///   - name: of the file in it.
    public func put(_ path: String, _ file: FileDescriptor, in folder: FileDescriptor, name: String) async -> Outcome {
        if await FilePortal.isThere(on: connection), await FilePortal.trash(file, on: connection, within: Self.patience) { return .trashed }
        // What it says is part of a message on the bus, which is English.
        let environment = environment.merging(["LC_ALL": "C.UTF-8"]) { $1 }.filter { !["LANGUAGE", "PWD"].contains($0.key) }
        let seconds = Int(Self.patience.components.seconds)
        let (number, folder) = (fcntl(file.number, F_DUPFD_CLOEXEC, 0), fcntl(folder.number, F_DUPFD_CLOEXEC, 0))
        // gio is killed before the wait for it ends.
        let result = await DiskPool.shared.value(at: .path(path), takesLong: true, within: Self.patience + .seconds(5)) { () -> Outcome in
            defer { for descriptor in [number, folder] where descriptor >= 0 { close(descriptor) } }
            guard let gio = findProgram("gio", in: environment) else { return .unavailable }
            guard Self.isThere(number, folder, name) else { return .refused("it was moved away meanwhile") }
            let place = Self.place(of: number)
            // gio asks the kernel by which path it has come to this folder, wherever that was moved: nobody else's link is followed. PWD
            // would have the old path.
            let trash = runToEnd([gio, "trash", "--", "./\(name)"], in: folder, environment: environment, seconds: seconds)
            guard let end = trash else { return .unavailable }
            // In the folder another file may have come by that name: ours has to be the one that has moved.
            if end.status == 0 {
                return Self.hasLeft(place, number) ? .trashed : .refused("another file had its name by then, and is in the trash")
            }
            // "gio: file:///…: Trashing on system internal mounts is not supported": what matters comes last.
            let reason = end.complaint.split(separator: ": ").last.map(String.init)
            return .refused(reason ?? "gio trash ended with status \(end.status)")
        }
        return result ?? .refused("the disk did not answer in time")
    }

    /// Whether the open file still has this name in its folder.
    private nonisolated static func isThere(_ file: Int32, _ folder: Int32, _ name: String) -> Bool {
        var (own, there) = (stat(), stat())
        return fstat(file, &own) == 0 && fstatat(folder, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && own.st_dev == there.st_dev
            && own.st_ino == there.st_ino
    }

    /// Where the open file lies, as the kernel has it; "" where `/proc` does not tell.
    private nonisolated static func place(of descriptor: Int32) -> String {
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX) + 1)
        let count = readlink("/proc/self/fd/\(descriptor)", &buffer, buffer.count - 1)
        return count > 0 ? String(decoding: buffer[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self) : ""
    }

    /// Whether the open file lies in a trash now (Desktop Trash specification: in its folder `files`), or is deleted. Only what has
    /// certainly stayed outside of any is said to have: who lists no descriptors in `/proc` is believed.
    ///
    /// - Parameter former: where it lay before.
    private nonisolated static func hasLeft(_ former: String, _ descriptor: Int32) -> Bool {
        let place = place(of: descriptor)
        if place.isEmpty || place.hasSuffix(" (deleted)") { return true }
        let folders = place.split(separator: "/").dropLast()
        return place != former && folders.last == "files" && folders.dropLast().contains { $0.hasPrefix("Trash") || $0.hasPrefix(".Trash") }
    }
}
