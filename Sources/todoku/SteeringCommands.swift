internal import ArgumentParser
internal import DownloadModel
internal import Localization
internal import TodokuClient

/// The downloads that a command is about; a batch stands for all its members.
struct Targets: ParsableArguments {
    @Argument(help: ArgumentHelp("Number or object path of a download or batch, or APP/TOKEN.", valueName: "download"))
    var named: [Target] = []
    @Flag(name: .shortAndLong, help: "All of them.") var all = false
    @OptionGroup var output: OutputArguments

    func check() throws {
        if all, !named.isEmpty { throw ValidationError("--all goes without downloads named.") }
        if !all, named.isEmpty { throw ValidationError("Name a download by its number, or say --all.") }
    }
}

struct PauseCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pause", abstract: "Pause downloads; what is there is kept.",
        discussion: """
            --all also holds what is queued later, over restarts too, until ‘todoku resume --all’.

            EXAMPLES:
              todoku pause 7 8
              todoku pause "$(todoku batch urls.txt)"
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
            return await Program.each(targets.named, json: targets.output.json) { download throws(ClientError) in
                try await client.pause(download)
            } batch: { batch throws(ClientError) in
                try await client.pause(batch)
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
            return await Program.each(targets.named, json: targets.output.json) { download throws(ClientError) in
                try await client.resume(download)
            } batch: { batch throws(ClientError) in
                try await client.resume(batch)
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
            return await Program.each(targets.named, json: targets.output.json) { download throws(ClientError) in
                try await client.cancel(download)
            } batch: { batch throws(ClientError) in
                try await client.cancel(batch)
            }
        }
    }
}

struct RetryCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "retry", abstract: "Start failed or cancelled downloads again.",
        discussion: """
            They go on from the bytes that are still there. --all means those that failed, and not what was cancelled; a batch means those of its \
            that failed.

            EXAMPLES:
              todoku retry 7
              todoku retry --all
            """)
    @OptionGroup var targets: Targets
    func validate() throws { try targets.check() }

    func run() throws {
        Program.run(json: targets.output.json) { client in
            let named = targets.all ? try await client.list(DownloadQuery(states: [.failed])).map(Target.init) : targets.named
            return await Program.each(named, json: targets.output.json) { download throws(ClientError) in
                try await client.retry(download)
            } batch: { batch throws(ClientError) in
                for download in try await client.list(DownloadQuery(states: [.failed], batch: batch)) { try await client.retry(download) }
            }
        }
    }
}

struct RenewCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "renew", abstract: "Give a download a fresh link for the same file.",
        discussion: """
            It goes on from the bytes that are there; the server's validator still decides whether they may be kept. For one that waits with \
            needs-url (--renewable), or failed because its link had expired. What is not given here stays as it is where the link is of the same \
            server; what belonged to another server is not sent to this one.

            EXAMPLES:
              todoku renew 7 'https://example.org/file.iso?signature=new'
              todoku renew 7 -H 'Authorization: Bearer new' https://example.org/file.iso
              todoku renew 7 --user name --referrer https://example.org/ https://mirror.example.org/file.iso
            """)
    @Argument(help: ArgumentHelp("Number, APP/TOKEN or object path.", valueName: "download")) var download: DownloadReference
    @Argument(help: "The fresh link.") var url: String
    @Option(
        name: [.customShort("H"), .long], help: ArgumentHelp("A request header from now on; may be repeated.", valueName: "name: value"),
        transform: RequestArguments.parseHeader)
    var header: [HeaderField] = []
    @Option(help: ArgumentHelp("The page that led to the link (the header Referer).", valueName: "url"))
    var referrer: String?
    @OptionGroup var credentials: CredentialArguments
    @OptionGroup var output: OutputArguments

    func run() throws {
        let (username, password) = Program.require(json: output.json) { () throws(CommandFailure) in try credentials.read() }
        Program.run(json: output.json) { client in
            await Program.each([download], json: output.json) { download throws(ClientError) in
                try await client.replaceURL(
                    of: download, with: url, headers: header.isEmpty ? nil : header, referrer: referrer, username: username,
                    password: password)
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
        if targets.all || !targets.named.isEmpty { throw ValidationError("--ended goes without downloads named and without --all.") }
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
            let named =
                if ended {
                    try await client.list(.ended).map(Target.init)
                } else if targets.all {
                    try await client.list().map(Target.init)
                } else {
                    targets.named
                }
            return await Program.each(named, json: json) { download throws(ClientError) in
                if trash { try await client.trash(download) } else { try await client.remove(download, deleteFile: deleteFile) }
            } batch: { batch throws(ClientError) in
                if trash {
                    let finished = try await client.list(DownloadQuery(states: [.finished], batch: batch))
                    for download in finished { try await client.trash(download) }
                    // A batch is removed with its last member.
                    do throws(ClientError) { try await client.remove(batch) } catch
                        where error.cause == .unknownDownload && !finished.isEmpty
                    {}
                } else {
                    try await client.remove(batch, deleteFiles: deleteFile)
                }
            }
        }
    }
}

struct MoveCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "move", abstract: "Change a download's place in the queue, or its priority.",
        discussion: """
            Places are counted among the downloads of the same priority: 1 or “first” is the next to start. A higher priority goes before all places.

            EXAMPLES:
              todoku move 7 first
              todoku move 7 3
              todoku move --priority 10 7
            """)
    @Argument(help: ArgumentHelp("Number, APP/TOKEN or object path.", valueName: "download")) var download: DownloadReference
    @Argument(help: "A number from 1, “first” or “last”.") var place: Place?
    @Option(help: ArgumentHelp("The higher goes first; 0 where none was said.", valueName: "number")) var priority: Int32?
    @OptionGroup var output: OutputArguments

    func validate() throws {
        if place == nil, priority == nil { throw ValidationError("Say a place (a number from 1, “first” or “last”) or a --priority.") }
    }

    func run() throws {
        Program.run(json: output.json) { client in
            await Program.each([download], json: output.json) { download throws(ClientError) in
                if let priority { try await client.setPriority(priority, of: download) }
                if let place { try await client.move(download, to: place.position) }
            }
        }
    }
}
