internal import Desktop
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Sandboxes

/// The changes of the user and of the machine's owner to the permissions of Flatpak apps (flatpak-override(1)). They take effect for an
/// app's sandbox at its next start, and for its downloads at the next start of a transfer.
enum FlatpakOverrides {
    /// The installations of the user and of the machine.
    static let folders: (own: String, machine: String) = {
        let environment = processEnvironment()
        return (
            environment["FLATPAK_USER_DIR"] ?? "\(Folders.data(environment: environment))/flatpak",
            environment["FLATPAK_SYSTEM_DIR"] ?? "/var/lib/flatpak"
        )
    }()

    /// Whether the overrides let an app use the network, if its sandbox had the network when it called. Blocks.
    ///
    /// Later files win (flatpak, `flatpak_deploy_get_overrides`): first the machine's files, then the user's, each first for all apps, then
    /// for this one. A file that cannot be read is ignored.
    ///
    /// - Parameter app: an id for which `FlatpakInfo.isId` is true.
    static func allowNetwork(for app: String, in folders: (own: String, machine: String)) -> Bool {
        var isAllowed = true
        for folder in [folders.machine, folders.own] {
            for name in ["global", app] {
                guard let text = text(of: "\(folder)/overrides/\(name)"), let says = FlatpakInfo.network(in: text) else { continue }
                isAllowed = says
            }
        }
        return isAllowed
    }

    private static func text(of path: String) -> String? {
        let file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var status = stat()
        guard fstat(file, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return nil }
        return CallerInspection.readAll(file)
    }
}
