internal import ArgumentParser
internal import DownloadModel
internal import Localization
internal import TodokuClient

/// Which downloads a steering command is for.
struct Targets: ParsableArguments {
    @Argument(help: ArgumentHelp("Number, APP/TOKEN or object path.", valueName: "download")) var downloads: [DownloadReference] = []
    @Flag(name: .shortAndLong, help: "All of them.") var all = false
    @OptionGroup var output: OutputArguments

    func check() throws {
        if all, !downloads.isEmpty { throw ValidationError("--all goes without downloads named.") }
        if !all, downloads.isEmpty { throw ValidationError("Name a download by its number, or say --all.") }
    }
}

struct PauseCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pause", abstract: "Pause downloads; what is there is kept.",
        discussion: """
            --all also holds what is queued later, over restarts too, until ‘todoku resume --all’.

            EXAMPLES:
              todoku pause 7 8
              todoku pause --all
            """)
    @OptionGroup var targets: Targets
    func validate() throws { try targets.check() }

    func run() throws {
        Program.run(json: targets.output.json) { client in
            if targets.all {
                try await client.pauseAll()
                return .success
            }
            return await Program.each(targets.downloads, json: targets.output.json) { download throws(ClientError) in
                try await client.pause(download)
            }
        }
    }
}

struct ResumeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "resume", abstract: "Go on with paused downloads.",
        discussion: """
            --all ends ‘todoku pause --all’; what was paused by its number stays paused.

            EXAMPLES:
              todoku resume 7
              todoku resume --all
            """)
    @OptionGroup var targets: Targets
    func validate() throws { try targets.check() }

    func run() throws {
        Program.run(json: targets.output.json) { client in
            if targets.all {
                try await client.resumeAll()
                return .success
            }
            return await Program.each(targets.downloads, json: targets.output.json) { download throws(ClientError) in
                try await client.resume(download)
            }
        }
    }
}

struct CancelCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cancel", abstract: "End downloads and delete what has come of them.",
        discussion: """
            EXAMPLES:
              todoku cancel 7
              todoku cancel --all
            """)
    @OptionGroup var targets: Targets
    func validate() throws { try targets.check() }

    func run() throws {
        Program.run(json: targets.output.json) { client in
            if targets.all {
                try await client.cancelAll()
                return .success
            }
            return await Program.each(targets.downloads, json: targets.output.json) { download throws(ClientError) in
                try await client.cancel(download)
            }
        }
    }
}

struct RetryCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "retry", abstract: "Start failed or cancelled downloads again.",
        discussion: """
            They go on from the bytes that are still there. --all means those that failed, and not what was cancelled.

            EXAMPLES:
              todoku retry 7
              todoku retry --all
            """)
    @OptionGroup var targets: Targets
    func validate() throws { try targets.check() }

    func run() throws {
        Program.run(json: targets.output.json) { client in
            let downloads = targets.all ? try await client.list(DownloadQuery(states: [.failed])) : targets.downloads
            return await Program.each(downloads, json: targets.output.json) { download throws(ClientError) in
                try await client.retry(download)
            }
        }
    }
}

struct RenewCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "renew", abstract: "Give a download a fresh link for the same file.",
        discussion: """
            It goes on from the bytes that are there; the server's validator still decides whether they may be kept. For one that waits with \
            needs-url (--renewable), or failed because its link had expired.

            EXAMPLES:
              todoku renew 7 'https://example.org/file.iso?signature=new'
              todoku renew 7 -H 'Authorization: Bearer new' https://example.org/file.iso
            """)
    @Argument(help: ArgumentHelp("Number, APP/TOKEN or object path.", valueName: "download")) var download: DownloadReference
    @Argument(help: "The fresh link.") var url: String
    @Option(
        name: [.customShort("H"), .long], help: ArgumentHelp("A request header from now on; may be repeated.", valueName: "name: value"),
        transform: RequestArguments.parseHeader)
    var header: [HeaderField] = []
    @OptionGroup var output: OutputArguments

    func run() throws {
        Program.run(json: output.json) { client in
            await Program.each([download], json: output.json) { download throws(ClientError) in
                try await client.replaceURL(of: download, with: url, headers: header)
            }
        }
    }
}

struct RemoveCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "remove", abstract: "Take downloads off the list.",
        discussion: """
            Finished files stay, unless --trash or --delete-file is said. What has not ended is cancelled first.

            EXAMPLES:
              todoku remove 7
              todoku remove --ended
              todoku remove --trash 7
              todoku remove --delete-file 7 8
            """)
    @OptionGroup var targets: Targets
    @Flag(help: "All that has ended.") var ended = false
    @Flag(help: "Delete the finished file too.") var deleteFile = false
    @Flag(help: "Put the finished file into the desktop's trash.") var trash = false

    func validate() throws {
        if trash, deleteFile { throw ValidationError("--trash goes without --delete-file.") }
        guard ended else { return try targets.check() }
        if targets.all || !targets.downloads.isEmpty { throw ValidationError("--ended goes without downloads named and without --all.") }
    }

    func run() throws {
        let json = targets.output.json
        Program.run(json: json) { client in
            if ended, !deleteFile, !trash {
                let count = try await client.clearEnded()
                if json {
                    Output.write(JSON.object([("removed", .unsigned(UInt64(count)))]).text + "\n")
                } else {
                    Output.write(catalog.text("%1$s download removed", "%1$s downloads removed", count: UInt64(count)) + "\n")
                }
                return .success
            }
            let downloads =
                if ended { try await client.list(.ended) } else if targets.all { try await client.list() } else { targets.downloads }
            return await Program.each(downloads, json: json) { download throws(ClientError) in
                if trash { try await client.trash(download) } else { try await client.remove(download, deleteFile: deleteFile) }
            }
        }
    }
}
