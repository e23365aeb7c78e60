internal import Desktop
internal import DownloadModel
internal import Glibc
internal import Sandboxes

/// What the user and the machine's owner have changed in the permissions of Flatpak apps (flatpak-override(1)). An app's sandbox takes the
/// changes from its next start; its downloads take them from the next start of a transfer.
enum FlatpakOverrides {
    /// The installations of the user and of the machine.
    static let folders: (own: String, machine: String) = {
        let environment = Folders.environment()
        return (
            environment["FLATPAK_USER_DIR"] ?? "\(Folders.data(environment: environment))/flatpak",
            environment["FLATPAK_SYSTEM_DIR"] ?? "/var/lib/flatpak"
        )
    }()

    /// Whether the overrides let an app use the network that had it when it called. Blocks.
    ///
    /// Later files win (flatpak, `flatpak_deploy_get_overrides`): of the machine and of the user, each for all apps and for this one. A
    /// file that cannot be read says nothing.
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
