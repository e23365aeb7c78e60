internal import DBus
internal import DownloadModel
internal import DownloaderInterface

/// `org.freedesktop.Application` on the manager's object: how the desktop starts us, and hands clicks on. It is not for apps in a sandbox:
/// with it they could have files opened outside of theirs, for which the portal asks the user.
enum ApplicationFace {
    static let face = Face<Downloader>(
        Application.interface, xml: { InterfaceXML.element(of: Application.interface) },
        methods: [
            Row(Application.activate) { downloader, platform, reply in
                try reply.refuseSandboxed("open files outside of its sandbox")
                try downloader.clicks?.activate(activationToken(in: platform), reply)
            },
            Row(Application.open) { downloader, arguments, reply in
                try reply.refuseSandboxed("open files outside of its sandbox; call Download instead")
                try downloader.clicks?.open(arguments.0, activationToken(in: arguments.1), reply)
            },
            Row(Application.activateAction) { downloader, arguments, reply in
                try reply.refuseSandboxed("open files outside of its sandbox; call the methods of its own downloads")
                try downloader.clicks?.perform(arguments.0, arguments.1, activationToken(in: arguments.2), reply)
            },
        ])

    /// Most bytes of a token that are handed on.
    private static let longestToken = 1024

    /// What lets the program that is started take the focus. Platform data is whatever the desktop likes: what is odd in it is left out.
    private static func activationToken(in platform: [String: Variant]) -> String? {
        ["activation-token", "desktop-startup-id"].lazy.compactMap { platform[$0]?.string }
            .first { !$0.isEmpty && $0.utf8.count <= longestToken && !$0.utf8.contains { $0 < 0x20 } }
    }
}
