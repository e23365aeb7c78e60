internal import ArgumentParser
internal import DownloadModel
internal import Glibc
internal import Localization
internal import TodokuClient

struct OpenCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "open", abstract: "Open a finished file, or show it in its folder, as a click on its toast does.",
        discussion: """
            The service opens the file with the desktop's program for its type. It never starts a program, script or desktop entry, but shows \
            it in its folder. If the file no longer exists, its folder opens.

            Without a download, the service does what a click on its icon does: it opens the file whose toast was not clicked yet, or shows the \
            newest file in its folder. With --folder it opens the download folder. For a batch, the folder of its first finished file opens.

            EXAMPLES:
              todoku open 7
              todoku open --folder 7
              todoku open
              todoku open --folder
            """)

    @Argument(help: .targets, completion: Target.completion, transform: Target.parse) var target: Target?
    @Flag(name: .shortAndLong, help: "Show the file in its folder; without a download, open the download folder.") var folder = false
    @OptionGroup var output: OutputArguments

    func run() throws {
        Program.run(json: output.json) { client in
            let token = Self.environment("XDG_ACTIVATION_TOKEN") ?? Self.environment("DESKTOP_STARTUP_ID")
            guard let target else {
                if folder { try await client.openFolder(activationToken: token) } else { try await client.activate(activationToken: token) }
                return .success
            }
            var unfinished: BatchReference?
            do throws(TargetError) {
                try await target.reach { download throws(ClientError) in
                    _ = try await client.describe(download)  // `open` refuses an unknown download otherwise than other calls
                    try await client.open(download, inFolder: folder, activationToken: token)
                } batch: { batch throws(ClientError) in
                    _ = try await client.describe(batch)
                    guard let first = try await client.list(DownloadQuery(states: [.finished], batch: batch)).first else {
                        unfinished = batch
                        return
                    }
                    try await client.open(first, inFolder: true, activationToken: token)
                }
            } catch { throw CommandFailure(error) }
            guard let batch = unfinished else { return .success }
            throw CommandFailure(
                .refused, catalog.text("no download of batch %1$s has finished", "\(batch)"), name: ErrorName.invalidState.busName,
                about: .batch(batch))
        }
    }

    private static func environment(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }
}
