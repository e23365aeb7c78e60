public import DBus
internal import DownloadModel
public import EventLoop
internal import Glibc

/// Opens finished files in the user's programs, and shows them in the file manager.
///
/// No single wait for another program or a disk exceeds `patience`.
@BusActor public final class Opener {
    /// The result of opening a file, folder or page.
    public enum Outcome: Equatable, Sendable {
        case opened
        /// The file manager was asked to show the file in its folder, or the folder itself; also for files that would run.
        case shown
        case failed
    }

    /// The longest wait for the file manager, the portal, or a disk.
    public static let patience: Duration = .seconds(10)
    /// How long to wait for an error of xdg-open(1). xdg-open may run as long as the program that it starts.
    private nonisolated static let complaintMilliseconds: Int32 = 2000

    private static let fileManager = "org.freedesktop.FileManager1"
    private static let fileManagerPath = ObjectPath("/org/freedesktop/FileManager1")
    private static let showItems = MethodOf(fileManager, "ShowItems", in: [String].self, String.self)
    private static let showFolders = MethodOf(fileManager, "ShowFolders", in: [String].self, String.self)

    /// The answer of the file manager.
    private enum Answer { case done, refused, silent }

    private let connection: Connection
    private let environment: [String: String]
    private let patience: Duration
    /// Whether programs are started by systemd, which has started this process, too.
    private let startsUnits: Bool
    /// Without a display, as when the service started before the session, only the portal can open windows.
    private let hasDisplay: Bool

    /// - Parameters:
    ///   - environment: the environment of started programs; by default that of this process.
    ///   - patience: the longest wait for another program.
    public init(
        connection: Connection, environment: [String: String] = processEnvironment(), patience: Duration = Opener.patience
    ) {
        (self.connection, self.environment, self.patience) = (connection, environment, patience)
        startsUnits = TransientUnit.isOurs(environment)
        hasDisplay = Self.hasDisplay(in: environment)
    }

    /// Whether the environment names a display on which programs can open windows.
    public nonisolated static func hasDisplay(in environment: [String: String]) -> Bool {
        ["WAYLAND_DISPLAY", "DISPLAY"].contains { environment[$0]?.isEmpty == false }
    }

    /// Opens the file at the absolute `path` with the user's program for its type.
    ///
    /// Programs, scripts, desktop entries, AppImages and disk images are never opened, but shown in their folder. If the file is gone, its
    /// folder is opened. An unpacked folder is opened itself.
    ///
    /// `activationToken` comes with the click from the notification server or the desktop, and lets the new window take
    /// the focus.
    ///
    /// - Parameters:
    ///   - isOurs: whether an open file is the intended one. If another file has its name, the folder is opened instead.
    ///   - byPortal: open only by the portal, as a sandboxed app could itself. Without a portal the file is shown in its folder.
    public func open(
        _ path: String, activationToken: String? = nil, byPortal: Bool = false, isOurs: @escaping @Sendable (Int32) -> Bool = { _ in true }
    ) async -> Outcome {
        switch await DiskPool.shared.value(at: .path(path), within: Self.patience, { FinishedFile.click(path, isOurs: isOurs) }) {
        case .opens where byPortal:
            if await askPortal(path, inFolder: false, activationToken, isOurs: isOurs) { return .opened }
            return await showInFolder(path, activationToken: activationToken)
        case .opens: break
        case .opensFolder: return await openFolder(path, activationToken: activationToken)
        case .isGone: return await openFolder(parent(of: path), activationToken: activationToken)
        case .shows, nil: return await showInFolder(path, activationToken: activationToken)
        }
        return await launch(path, activationToken) ? .opened : .failed
    }

    /// Shows the file in its folder: by the file manager's D-Bus interface, else by the portal, else by opening the folder.
    public func showInFolder(_ path: String, activationToken: String? = nil) async -> Outcome {
        let folder = parent(of: path)
        switch await ask(Self.showItems, path, activationToken) {
        case .done: return .shown
        case .refused:
            if await ask(Self.showFolders, folder, activationToken) == .done { return .shown }
            if await askPortal(path, inFolder: true, activationToken) { return .shown }
        case .silent: break  // the portal would call the same hanging file manager
        }
        return await start(folder, activationToken) ? .shown : .failed
    }

    /// Shows the contents of the folder at the absolute `path`, or of the nearest existing folder above it. Calls the file manager's D-Bus
    /// interface, else opens the folder.
    public func openFolder(_ path: String, activationToken: String? = nil) async -> Outcome {
        let folder = await DiskPool.shared.value(at: .path(path), within: Self.patience) { nearestFolder(to: path) } ?? path
        if await ask(Self.showFolders, folder, activationToken) == .done { return .shown }
        return await launch(folder, activationToken) ? .shown : .failed
    }

    /// Opens a file or folder by xdg-open(1), else by the portal. Without a display the portal comes first.
    private func launch(_ path: String, _ token: String?) async -> Bool {
        if !hasDisplay, await askPortal(path, inFolder: false, token) { return true }
        if await start(path, token) { return true }
        return hasDisplay ? await askPortal(path, inFolder: false, token) : false
    }

    private func ask(_ method: MethodOf<([String], String), Void>, _ path: String, _ token: String?) async -> Answer {
        do throws(DBusError) {
            try await connection.call(
                method, on: Self.fileManager, at: Self.fileManagerPath, ([fileURI(of: path)], token ?? ""), timeout: patience)
            return .done
        } catch { return error.name == "org.freedesktop.DBus.Error.NoReply" ? .silent : .refused }
    }

    private func askPortal(
        _ path: String, inFolder: Bool, _ token: String?, isOurs: @escaping @Sendable (Int32) -> Bool = { _ in true }
    ) async -> Bool {
        guard await FilePortal.isThere(on: connection) else { return false }
        // Check and pass on the same descriptor, because another file may have taken the name since.
        let opened = await DiskPool.shared.value(at: .path(path), within: Self.patience, late: closeLate) {
            let descriptor = Glibc.open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
            guard descriptor >= 0, !isOurs(descriptor) else { return descriptor }
            close(descriptor)
            return -1
        }
        guard let descriptor = opened, descriptor >= 0 else { return false }
        defer { DiskPool.shared.close(descriptor) }  // on a network file system close(2) may wait
        return await FilePortal.open(FileDescriptor(descriptor), inFolder: inFolder, token: token, on: connection, within: patience)
    }

    /// Opens an http or https page in the user's browser: by xdg-open(1), else by the portal. Without a display the portal comes first.
    ///
    /// - Parameter byPortal: open only by the portal, as a sandboxed app could itself.
    public func openPage(_ page: String, activationToken: String? = nil, byPortal: Bool = false) async -> Outcome {
        guard page.hasPrefix("http://") || page.hasPrefix("https://") else { return .failed }
        if byPortal || !hasDisplay, await askPortal(page: page, activationToken) { return .opened }
        if byPortal { return .failed }
        if await start(page, activationToken) { return .opened }
        guard hasDisplay, await askPortal(page: page, activationToken) else { return .failed }
        return .opened
    }

    private func askPortal(page: String, _ token: String?) async -> Bool {
        guard await FilePortal.isThere(on: connection) else { return false }
        return await FilePortal.open(page, token: token, on: connection, within: patience)
    }

    /// Runs `xdg-open`, detached from this process. Where systemd has started this process, `xdg-open` becomes a unit of its own, because a
    /// child would inherit what binds this process; else it gets a session of its own. False if it could not run or soon reported an error.
    ///
    /// - Parameter what: an absolute path, or a checked URL, so that xdg-open cannot read it as an option.
    private func start(_ what: String, _ token: String?) async -> Bool {
        guard what.hasPrefix("/") || what.hasPrefix("http") else { return false }
        var environment = environment
        for key in ["XDG_ACTIVATION_TOKEN", "DESKTOP_STARTUP_ID"] { environment[key] = token }
        let final = environment
        if startsUnits {
            let found = await Pool.programs.value(within: Self.patience) { findProgram("xdg-open", in: final) }
            guard let program = found.flatMap({ $0 }) else { return false }
            let outcome = await TransientUnit.run(
                [program, what], environment: final, on: connection, within: patience,
                complaint: .milliseconds(Self.complaintMilliseconds))
            return outcome == .started
        }
        return await Pool.programs.value(within: Self.patience) {
            guard let program = findProgram("xdg-open", in: final) else { return false }
            return runDetached([program, what], environment: final, watchedFor: Self.complaintMilliseconds)
        } ?? false
    }
}

/// Closes a descriptor that was opened after its caller had stopped waiting.
@Sendable private func closeLate(_ descriptor: Int32) { if descriptor >= 0 { DiskPool.shared.close(descriptor) } }

/// Compares bytes, because Swift joins a slash and a following combining mark into one character.
private func parent(of path: String) -> String {
    let folder = path.utf8.lastIndex(of: UInt8(ascii: "/")).map { String(path[..<$0]) } ?? ""
    return folder.isEmpty ? "/" : folder
}

/// `path`, or the nearest existing folder above it.
private func nearestFolder(to path: String) -> String {
    var path = path
    var status = stat()
    while path != "/", stat(path, &status) != 0 || status.st_mode & S_IFMT != S_IFDIR { path = parent(of: path) }
    return path
}
