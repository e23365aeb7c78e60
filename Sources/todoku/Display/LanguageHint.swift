internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Localization
internal import TodokuClient

/// Tells people whose session is not Japanese, once, how to change the language of toasts and tray.
enum LanguageHint {
    /// Call after a command has succeeded. Says nothing to programs. Says nothing either if the file that remembers the hint cannot be
    /// made, because the hint would then come each time.
    @BusActor static func tell(_ client: DownloaderClient, json: Bool) async {
        guard !json, Terminal.current != nil, Terminal.errorsAreSeen, Catalog(.auto).spoken != .japanese else { return }
        guard !CommandLine.arguments.contains(where: { $0 == "-q" || $0 == "--quiet" }) else { return }
        // Each rehearsal has a state folder of its own, and shows no toast.
        guard getenv("TODOKU_REHEARSAL_SCENARIO") == nil else { return }
        guard let folder = stateFolder({ getenv($0).map { String(cString: $0) } }), !LocalPath.exists(file(in: folder)) else { return }
        guard let language = try? await client.status().settings.language else { return }
        // Somebody who has chosen a language knows how to.
        guard makeFile(in: folder), language == .japanese else { return }
        Output.complain(
            catalog.text("toasts and tray are in Japanese; “todoku settings language auto” makes them follow your session's language"))
    }

    /// `$XDG_STATE_HOME`, else `$HOME/.local/state` (XDG Base Directory Specification 0.8); nil: neither is an absolute path.
    static func stateFolder(_ variable: (String) -> String?) -> String? {
        if let folder = variable("XDG_STATE_HOME"), folder.hasPrefix("/") { return folder }
        return variable("HOME").flatMap { $0.hasPrefix("/") ? "\($0)/.local/state" : nil }
    }

    private static func file(in folder: String) -> String { "\(folder)/todoku/language-hint" }

    /// - Returns: false if the file exists, or cannot be made.
    private static func makeFile(in folder: String) -> Bool {
        for path in [folder, "\(folder)/todoku"] { mkdir(path, 0o700) }  // usually the service has made both
        let descriptor = open(file(in: folder), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { return false }
        close(descriptor)
        return true
    }
}
