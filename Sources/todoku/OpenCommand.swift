internal import ArgumentParser
internal import Glibc
internal import Localization
internal import TodokuClient

struct OpenCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "open", abstract: "Open a finished file, or its folder, with the desktop's program (xdg-open).",
        discussion: """
            Without a download named the service does what a click on its icon does: it opens the file whose toast was not clicked yet, or \
            shows what came last in its folder; with --folder it opens the download folder.

            EXAMPLES:
              todoku open 7
              todoku open --folder 7
              todoku open
              todoku open --folder
            """)

    @Argument(help: ArgumentHelp("Number, APP/TOKEN or object path.", valueName: "download")) var download: DownloadReference?
    @Flag(name: .shortAndLong, help: "Open the folder that it is in; without a download, the download folder.") var folder = false
    @OptionGroup var output: OutputArguments

    func run() throws {
        Program.run(json: output.json) { client in
            guard let download else {
                let token = Self.environment("XDG_ACTIVATION_TOKEN") ?? Self.environment("DESKTOP_STARTUP_ID")
                if folder { try await client.openFolder(activationToken: token) } else { try await client.activate(activationToken: token) }
                return .success
            }
            let description: DownloadDescription
            do throws(ClientError) { description = try await client.describe(download) } catch {
                throw CommandFailure(error, about: download)
            }
            guard description.state == .finished, let path = description.path else {
                throw CommandFailure(
                    .refused,
                    catalog.text("download %1$s is %2$s, so there is no file to open", "\(download)", catalog.state(description.state)))
            }
            let target = folder ? LocalPath.folder(of: path) : path
            guard LocalPath.exists(target) else { throw CommandFailure(.refused, catalog.text("“%1$s” is not there any more", target)) }
            let status = try Self.spawn(["xdg-open", target])
            guard status == 0 else {
                throw CommandFailure(.refused, catalog.text("xdg-open could not open “%1$s” (exit status %2$s)", target, String(status)))
            }
            return .success
        }
    }

    private static func environment(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }

    /// Runs a program to its end, with no signal blocked.
    private static func spawn(_ arguments: [String]) throws(CommandFailure) -> Int32 {
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
        let argv = arguments.map { strdup($0) } + [nil]
        defer { for pointer in argv { free(pointer) } }
        var pid: pid_t = 0
        let result = posix_spawnp(&pid, arguments[0], nil, &attributes, argv, environ)
        guard result == 0 else {
            throw CommandFailure(
                .refused, catalog.text("cannot run %1$s (package xdg-utils): %2$s", arguments[0], String(cString: strerror(result))))
        }
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0, errno == EINTR {}
        let signal = status & 0x7f
        return signal == 0 ? (status >> 8) & 0xff : 128 + signal
    }
}
