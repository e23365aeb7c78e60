internal import DBus
internal import DownloadModel
internal import DownloaderInterface

/// `org.freedesktop.Application` on the manager's object: lets the desktop start us, and pass on clicks. Sandboxed apps may not use it:
/// they could open files outside their sandbox, for which the portal asks the user.
enum ApplicationFace {
    static let face = Face<ApplicationActions>(
        Application.interface, xml: { InterfaceXML.element(of: Application.interface) },
        methods: [
            Row(Application.activate) { actions, platform, reply in
                try reply.refuseSandboxed("open files outside of its sandbox")
                try actions.activate(activationToken(in: platform), reply)
            },
            Row(Application.open) { actions, arguments, reply in
                try reply.refuseSandboxed("open files outside of its sandbox; call Download instead")
                try actions.open(arguments.0, activationToken(in: arguments.1), reply)
            },
            Row(Application.activateAction) { actions, arguments, reply in
                try reply.refuseSandboxed("open files outside of its sandbox; call the methods of its own downloads")
                try actions.perform(arguments.0, arguments.1, activationToken(in: arguments.2), reply)
            },
        ])

    /// Most bytes of a token that is passed on.
    private static let longestToken = 1024

    /// The token with which the started program may take the focus. Desktops may put anything into the platform data, so malformed tokens
    /// are ignored.
    private static func activationToken(in platform: [String: Variant]) -> String? {
        ["activation-token", "desktop-startup-id"].lazy.compactMap { platform[$0]?.string }
            .first { !$0.isEmpty && $0.utf8.count <= longestToken && !$0.utf8.contains { $0 < 0x20 } }
    }
}
