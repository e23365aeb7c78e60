internal import DBus
internal import EventLoop

/// The desktop portal (xdg-desktop-portal), as far as it opens files and pages. Callers do not start the portal for this purpose: without a
/// portal, programs open files.
enum FilePortal {
    static let name = "org.freedesktop.portal.Desktop"
    private static let path = ObjectPath("/org/freedesktop/portal/desktop")
    private static let openURI = "org.freedesktop.portal.OpenURI"
    private static let openFile = MethodOf(
        openURI, "OpenFile", in: String.self, FileDescriptor.self, [String: Variant].self, out: ObjectPath.self)
    private static let openDirectory = MethodOf(
        openURI, "OpenDirectory", in: String.self, FileDescriptor.self, [String: Variant].self, out: ObjectPath.self)
    private static let openPage = MethodOf(openURI, "OpenURI", in: String.self, String.self, [String: Variant].self, out: ObjectPath.self)

    @BusActor static func isThere(on session: Connection) async -> Bool {
        (try? await session.call(BusDaemon.nameHasOwner, on: BusDaemon.name, at: BusDaemon.path, name)) ?? false
    }

    /// Opens the file, or shows it in its folder if `inFolder`. False if the portal refuses or does not answer.
    @BusActor static func open(
        _ file: FileDescriptor, inFolder: Bool, token: String?, on session: Connection, within patience: Duration
    ) async -> Bool {
        let options: [String: Variant] = token.map { ["activation_token": .string($0)] } ?? [:]
        let method = inFolder ? openDirectory : openFile
        return (try? await session.call(method, on: name, at: path, ("", file, options), timeout: patience)) != nil
    }

    /// Opens an http or https page. False if the portal refuses or does not answer.
    @BusActor static func open(_ page: String, token: String?, on session: Connection, within patience: Duration) async -> Bool {
        let options: [String: Variant] = token.map { ["activation_token": .string($0)] } ?? [:]
        return (try? await session.call(openPage, on: name, at: path, ("", page, options), timeout: patience)) != nil
    }
}
