internal import ArgumentParser
internal import DownloadModel
internal import EventLoop
internal import Localization
internal import TodokuClient

/// The downloads on which a command acts; a batch stands for all its members.
struct Targets: ParsableArguments {
    @Argument(help: .targets, completion: Target.completion, transform: TargetList.parse) private var lists: [TargetList] = []
    @Flag(name: .shortAndLong, help: "All downloads.") var all = false
    @OptionGroup var output: OutputArguments

    var named: [Target] { lists.targets }

    func check() throws {
        if all, !named.isEmpty { throw ValidationError(catalog.text("--all cannot be combined with named downloads.")) }
        if !all, named.isEmpty { throw ValidationError(catalog.text("Name a download by its number, or give --all.")) }
    }
}

struct PauseCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pause", abstract: "Pause downloads and keep their bytes.",
        discussion: """
            --all also pauses downloads that are queued later. It lasts, even after a restart, until ‘todoku resume --all’.

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
        commandName: "resume", abstract: "Resume paused downloads.",
        discussion: """
            --all ends ‘todoku pause --all’. Downloads that were paused by number stay paused.

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
            var refused: [DownloadReference] = []
            let status = await Program.each(targets.named, json: targets.output.json) { download throws(ClientError) in
                do throws(ClientError) { try await client.resume(download) } catch {
                    if error.errorName == .invalidState { refused.append(download) }
                    throw error
                }
            } batch: { batch throws(ClientError) in
                try await client.resume(batch)
            }
            // With --json, standard error has nothing but the error.
            let explained = targets.output.json ? [] : refused
            for download in explained where try await [.failed, .cancelled].contains(client.describe(download).state) {
                Output.complain(catalog.text("“todoku retry %1$s” starts it again", "\(download)"))
            }
            if status == .success { await PauseNotice(client).tell() }
            return status
        }
    }
}

struct CancelCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cancel", abstract: "Cancel downloads and delete their bytes.",
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
            A download resumes from the bytes that are still on disk. --all retries every failed download, but no cancelled one. A batch \
            stands for its failed downloads.

            EXAMPLES:
              todoku retry 7
              todoku retry --all
            """)
    @OptionGroup var targets: Targets
    func validate() throws { try targets.check() }

    func run() throws {
        Program.run(json: targets.output.json) { client in
            let named = targets.all ? try await client.list(DownloadQuery(states: [.failed])).map(Target.init) : targets.named
            var isRetried = false
            let status = await Program.each(named, json: targets.output.json) { download throws(ClientError) in
                try await client.retry(download)
                isRetried = true
            } batch: { batch throws(ClientError) in
                try await client.retry(batch)
                isRetried = true
            }
            if isRetried { await PauseNotice(client).tell() }
            return status
        }
    }
}

struct RenewCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "renew", abstract: "Give a download a fresh link for the same file.",
        discussion: """
            For a download that waits for a fresh link (needs-url, option --renewable), or failed because its link expired. It resumes from \
            the bytes on disk if the server's validator shows that the file is the same. If the link leads to the same server, an option \
            that is not given here keeps its value. Values that belong to another server are not sent to the new one.

            EXAMPLES:
              todoku renew 7 'https://example.org/file.iso?signature=new'
              todoku renew 7 -H 'Authorization: Bearer new' https://example.org/file.iso
              todoku renew 7 --user name --referrer https://example.org/ https://mirror.example.org/file.iso
            """)
    @Argument(
        help: ArgumentHelp("Number, APP/TOKEN or object path.", valueName: "download"), completion: Target.completion,
        transform: Target.parse)
    var target: Target
    @Argument(help: "The fresh link.") var url: String
    @Option(
        name: [.customShort("H"), .long],
        help: ArgumentHelp("A request header for the new link; may be repeated.", valueName: "name: value"))
    var header: [String] = []
    @Option(help: ArgumentHelp("Replace the cookies by those of a file.", valueName: "file"), completion: .file())
    var loadCookies: String?
    @Option(help: ArgumentHelp("The page that led to the link (the header Referer).", valueName: "url"))
    var referrer: String?
    @OptionGroup var credentials: CredentialArguments
    @OptionGroup var output: OutputArguments

    func validate() throws {
        try RequestArguments.check(header)
        try credentials.checkInput(beside: loadCookies)
    }

    func run() throws {
        let headers = header.isEmpty ? nil : header.compactMap { RequestArguments.header($0) }
        let (username, password) = Program.require(json: output.json) { () throws(CommandFailure) in try credentials.read() }
        let cookies = Program.require(json: output.json) { () throws(CommandFailure) in
            try loadCookies.map { file throws(CommandFailure) in try RequestArguments.cookies(in: file, for: [url]) }
        }
        Program.run(json: output.json) { client in
            var named: BatchReference?
            let status = await Program.each([target], json: output.json, url: url) { download throws(ClientError) in
                try await client.replaceURL(
                    of: download, with: url, headers: headers, cookies: cookies, referrer: referrer,
                    username: username, password: password)
            } batch: { reference throws(ClientError) in
                _ = try await client.describe(reference)
                named = reference
            }
            guard let batch = named else {
                if status == .success { await PauseNotice(client).tell() }
                return status
            }
            throw CommandFailure(
                .usage,
                catalog.text("%1$s is a batch, and a link belongs to one download; “todoku list --batch %1$s” lists them", "\(batch)"),
                about: .batch(batch))
        }
    }
}

struct RemoveCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "remove", abstract: "Take downloads off the list.",
        discussion: """
            Finished files stay on disk, unless --trash or --delete-file is given. Unfinished downloads are cancelled first.

            EXAMPLES:
              todoku remove 7
              todoku remove --ended
              todoku remove --trash 7
              todoku remove --delete-file 7 8
            """)
    @OptionGroup var targets: Targets
    @Flag(help: "All downloads that have ended.") var ended = false
    @Flag(help: "Delete the finished file too.") var deleteFile = false
    @Flag(help: "Put the finished file into the desktop's trash.") var trash = false

    func validate() throws {
        if trash, deleteFile { throw ValidationError(catalog.text("%1$s cannot be combined with %2$s.", "--trash", "--delete-file")) }
        guard ended else { return try targets.check() }
        if targets.all || !targets.named.isEmpty {
            throw ValidationError(catalog.text("--ended cannot be combined with named downloads or --all."))
        }
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
            var ofMembers = ExitStatus.success
            let status = await Program.each(named, json: json) { download throws(ClientError) in
                if trash { try await client.trash(download) } else { try await client.remove(download, deleteFile: deleteFile) }
            } batch: { batch throws(ClientError) in
                guard trash else { return try await client.remove(batch, deleteFiles: deleteFile) }
                _ = try await client.describe(batch)  // about a missing batch, the list's error names the key of the filter
                let finished = try await client.list(DownloadQuery(states: [.finished], batch: batch))
                let trashed = try await Self.trash(finished, json: json, client)
                ofMembers = ofMembers.and(trashed)
                guard trashed == .success else { return }
                // A batch is removed with its last member.
                do throws(ClientError) { try await client.remove(batch) } catch
                    where error.cause == .unknownDownload && !finished.isEmpty
                {}
            }
            return status.and(ofMembers)
        }
    }

    /// Moves the files of a batch to the trash. A file that cannot be moved is reported, and does not keep the others from the trash.
    @BusActor private static func trash(
        _ finished: [DownloadReference], json: Bool, _ client: DownloaderClient
    ) async throws(ClientError) -> ExitStatus {
        var status = ExitStatus.success
        for download in finished {
            do throws(ClientError) { try await client.trash(download) } catch {
                if error.cause == .unknownDownload { continue }  // removed since the batch was read
                guard error.cause == .refused else { throw error }
                status = status.and(Program.report(CommandFailure(TargetError(error, about: download)), json: json))
            }
        }
        return status
    }
}

struct MoveCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "move", abstract: "Change a download's place in the queue, or its priority.",
        discussion: """
            A place counts among the downloads of the same priority: 1 or “first” is the next to start. A download of a higher priority \
            starts before all of them. The downloads of a batch keep their order.

            EXAMPLES:
              todoku move 7 first
              todoku move 7 3
              todoku move --priority 10 7
            """)
    @Argument(help: .targets, completion: Target.completion, transform: Target.parse) var target: Target
    @Argument(help: "A number from 1, “first” or “last”.", transform: Place.parse) var place: Place?
    @Option(
        parsing: .unconditional, help: ArgumentHelp("A higher number starts first; 0 by default.", valueName: "number"),
        transform: RequestArguments.parsePriority)
    var priority: Int32?
    @OptionGroup var output: OutputArguments

    func validate() throws {
        if place == nil, priority == nil {
            throw ValidationError(catalog.text("Give a place (a number from 1, “first” or “last”) or --priority."))
        }
    }

    func run() throws {
        Program.run(json: output.json) { client in
            await Program.each([target], json: output.json) { download throws(ClientError) in
                if let priority { try await client.setPriority(priority, of: download) }
                if let place { try await client.move(download, to: place.position) }
            } batch: { batch throws(ClientError) in
                let members = try await client.remaining(of: batch)
                if let priority {
                    for member in members {
                        try await unlessEnded { () throws(ClientError) in
                            try await client.setPriority(priority, of: member.reference)
                        }
                    }
                }
                if let place { try await Self.move(members.map { ($0.reference, priority ?? $0.priority) }, to: place, client) }
            }
        }
    }

    /// Moves the members of a batch to `place` and the places after it, in their order.
    @BusActor private static func move(
        _ members: [(reference: DownloadReference, priority: Int32)], to place: Place, _ client: DownloaderClient
    ) async throws(ClientError) {
        func move(_ member: DownloadReference, to position: UInt32) async throws(ClientError) {
            try await unlessEnded { () throws(ClientError) in try await client.move(member, to: position) }
        }
        // Each member goes before the one behind it. None goes to the end meanwhile, so no other download starts in its place.
        if place.position == 0 {
            for member in members.reversed() { try await move(member.reference, to: 0) }
            return
        }
        // All go to the end first: a member that leaves a place before `place` would shift those that are there already.
        for member in members { try await move(member.reference, to: .max) }
        if place.position == .max { return }
        // Each priority counts its places from 0.
        var next: [Int32: UInt32] = [:]
        for member in members {
            let position = next[member.priority, default: place.position]
            try await move(member.reference, to: position)
            next[member.priority] = position +| 1
        }
    }
}

struct ChangeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "change", abstract: "Change a download's folder, or whether it may use a metered connection.",
        discussion: """
            The folder can change while the download is queued, waits or is paused, and no byte of its file is on disk. A batch stands for \
            its unfinished downloads. ‘todoku move’ changes the place and the priority, and ‘todoku limit’ the speed.

            EXAMPLES:
              todoku change --directory ~/Videos 7
              todoku change --not-metered 7 8
              todoku change --metered org.example.App/chapter_1
            """)

    @Argument(help: .targets, completion: Target.completion, transform: TargetList.parse) private var lists: [TargetList] = []
    @Option(name: .shortAndLong, help: "Folder of the file.", completion: .directory) var directory: String?
    @Flag(name: [.customShort("p"), .long], help: "Make the folder, if it is missing.") var parents = false
    @Flag(help: "Allow metered connections.") var metered = false
    @Flag(help: "Do not use a metered connection; wait for another.") var notMetered = false
    @OptionGroup var output: OutputArguments

    func validate() throws {
        if lists.isEmpty { throw ValidationError(catalog.text("Name a download by its number.")) }
        if metered, notMetered { throw ValidationError(catalog.text("%1$s cannot be combined with %2$s.", "--metered", "--not-metered")) }
        if directory == nil, !metered, !notMetered {
            throw ValidationError(catalog.text("Give --directory, --metered or --not-metered."))
        }
        if parents, directory == nil { throw ValidationError(catalog.text("%1$s needs %2$s.", "--parents", "--directory")) }
    }

    func run() throws {
        let folder = Program.require(json: output.json) { () throws(CommandFailure) -> String? in
            guard let directory else { return nil }
            let folder = try LocalPath.absolute(directory)
            if parents { try LocalPath.makeFolder(folder) }
            return folder
        }
        let allowsMetered: Bool? = metered ? true : notMetered ? false : nil
        Program.run(json: output.json) { client in
            var ofMembers = ExitStatus.success
            let status = await Program.each(lists.targets, json: output.json, hasParents: true) { download throws(ClientError) in
                try await Self.change(download, folder, allowsMetered, client)
            } batch: { batch throws(ClientError) in
                // A download that cannot change does not keep the others from changing. Each reason is told once.
                var others: [String: UInt64] = [:]
                for member in try await client.remaining(of: batch).map(\.reference) {
                    do throws(ClientError) { try await Self.change(member, folder, allowsMetered, client) } catch {
                        if error.cause == .unknownDownload { continue }
                        if !output.json, let count = others[error.message] {
                            others[error.message] = count +| 1
                            continue
                        }
                        others[error.message] = 0
                        let failure = CommandFailure(error.naming(member), about: .download(member)).namingParents(error)
                        ofMembers = ofMembers.and(Program.report(failure, json: output.json))
                    }
                }
                let untold = others.values.reduce(0, +|)
                if untold > 0 {
                    Output.complain(
                        catalog.text(
                            "the same of %1$s other download of batch %2$s", "the same of %1$s other downloads of batch %2$s",
                            count: untold, "\(batch)"))
                }
            }
            return status.and(ofMembers)
        }
    }

    @BusActor private static func change(
        _ download: DownloadReference, _ folder: String?, _ allowsMetered: Bool?, _ client: DownloaderClient
    ) async throws(ClientError) {
        if let folder { try await client.setDirectory(folder, of: download) }
        if let allowsMetered { try await client.setAllowsMetered(allowsMetered, of: download) }
    }
}
