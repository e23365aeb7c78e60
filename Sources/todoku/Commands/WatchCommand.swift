internal import ArgumentParser
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Localization
internal import TodokuClient

struct WatchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "watch", abstract: "Show the progress of downloads.",
        discussion: """
            With named downloads, the command exits when they have ended, and its exit status tells their outcomes. A batch alone has one \
            line with its counts. Without a name, the command shows all downloads, also those queued later, until Ctrl-C. Ctrl-C never \
            affects the downloads.

            \(ExecArguments.discussion) With --exec, a batch has a line for each of its downloads.

            EXAMPLES:
              todoku watch
              todoku watch --exec clamscan --exec-failed 'notify-send "$TODOKU_MESSAGE"'
              todoku watch 7 8
              todoku watch --json | jq .state
            """)

    @Argument(help: .targets, completion: Target.completion, transform: TargetList.parse) private var lists: [TargetList] = []
    @OptionGroup var exec: ExecArguments
    @OptionGroup var output: OutputArguments

    func run() throws {
        let targets = lists.targets
        Program.run(json: output.json, handlesInterrupt: true) { client in
            let (downloads, batch) = try await Self.find(targets, client)
            // A batch alone has one line with its counts.
            if targets.count == 1, !exec.isGiven, let batch {
                let follower = BatchFollower(client, batch, json: output.json, isQuiet: false)
                let interrupt = Interrupt(follower)
                defer { interrupt.end() }
                return try await follower.follow()
            }
            let display = Follower.display(json: output.json, quiet: false)
            let follower = Follower(client, display: display, exec: exec, json: output.json)
            let interrupt = Interrupt(follower)
            defer { interrupt.end() }
            return try await follower.follow(targets.isEmpty ? nil : downloads)
        }
    }

    /// The downloads that are named, those of batches included, and the batch that is named last. Until the answers are there, Ctrl-C ends
    /// the program and prints nothing.
    @BusActor private static func find(
        _ targets: [Target], _ client: DownloaderClient
    ) async throws -> (downloads: [DownloadReference], batch: BatchReference?) {
        let signals = SignalSource([SIGINT]) { _ in Program.finish(.interrupted) }
        defer { withExtendedLifetime(signals) {} }
        var (downloads, batch) = ([DownloadReference](), BatchReference?.none)
        for target in targets {
            do throws(TargetError) {
                try await target.reach { download throws(ClientError) in
                    _ = try await client.describe(download)
                    downloads.append(download)
                } batch: { reference throws(ClientError) in
                    _ = try await client.describe(reference)
                    batch = reference
                    downloads += try await client.list(DownloadQuery(batch: reference))
                }
            } catch { throw CommandFailure(error) }
        }
        return (downloads, batch)
    }
}

struct WaitCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "wait", abstract: "Wait until downloads have ended.",
        discussion: """
            Prints the path of each file, in the order of the arguments. For a batch it prints how many downloads finished, failed and were \
            cancelled. With --app or --tag it waits for all matching downloads that are on the list now, and prints the same counts, which \
            include downloads that had already ended.

            There is no time limit. If the service exits meanwhile, the command starts it again.

            \(ExecArguments.discussion) For a batch, they run once all its downloads have ended.

            EXAMPLES:
              todoku wait 7
              todoku wait --exec 'sha256sum' 7 8
              todoku wait "$(todoku add https://example.org/file.iso)" && echo here
              todoku wait --app org.example.App --tag update
            """)

    @Argument(help: .targets, completion: Target.completion, transform: TargetList.parse) private var lists: [TargetList] = []
    @Option(help: ArgumentHelp("Wait for all downloads of this application.", valueName: "id")) var app: String?
    @Option(help: "Wait for all downloads with this tag.") var tag: String?
    @OptionGroup var exec: ExecArguments
    @OptionGroup var output: OutputArguments
    @Flag(name: .shortAndLong, help: "Print errors only.") var quiet = false

    private var named: [Target] { lists.targets }

    func validate() throws {
        let isGroup = app != nil || tag != nil
        if isGroup, exec.isGiven {
            throw ValidationError(catalog.text("--exec needs named downloads; “todoku watch --exec” is for all."))
        }
        if isGroup, !named.isEmpty { throw ValidationError(catalog.text("--app and --tag cannot be combined with named downloads.")) }
        if !isGroup, named.isEmpty { throw ValidationError(catalog.text("Name a download by its number, or give --app or --tag.")) }
    }

    func run() throws {
        Program.run(json: output.json) { client in
            if app != nil || tag != nil {
                let query = DownloadQuery(app: app, tag: tag)
                if !quiet { await PauseNotice(client).tell(about: query) }
                let counts = try await client.waitAll(query)
                if !quiet { Output.write(Self.text(counts, json: output.json)) }
                return counts.allFinished ? .success : .ended
            }
            let commands = exec.isGiven ? EndCommands(exec, json: output.json) : nil
            let notice = quiet ? nil : PauseNotice(client)
            let waits = named.map { TargetWait(for: $0, client, notice: notice, collects: exec.isGiven) }
            // The service refuses more waiting calls of one connection.
            let most = Limits.waitingCallsPerConnection
            for wait in waits.prefix(most) { wait.begin() }
            var status = ExitStatus.success
            for (index, wait) in waits.enumerated() {
                do throws(CommandFailure) { status = status.and(tell(try await wait.answer())) } catch {
                    status = status.and(Program.report(error, json: output.json))
                }
                if let next = waits.dropFirst(index).dropFirst(most).first { next.begin() }
                if let commands {
                    for download in wait.ended { commands.add(download) }
                    status = status.and(await commands.finish())
                }
            }
            return status
        }
    }

    private func tell(_ answer: TargetWait.Answer) -> ExitStatus {
        switch answer {
        case .path(let path, let download):
            let members: [(String, JSON)] = [("download", .string(download.description)), ("path", .string(path))]
            if !quiet { Output.write((output.json ? JSON.object(members).text : path) + "\n") }
            return .success
        case .counts(let counts, let batch):
            if !quiet { Output.write(Self.text(counts, of: batch, json: output.json)) }
            return counts.allFinished ? .success : .ended
        }
    }

    private static func text(_ counts: OutcomeCounts, of batch: BatchReference? = nil, json: Bool) -> String {
        guard json else {
            return catalog.text(
                "%1$s finished, %2$s failed, %3$s cancelled", catalog.count(counts.finished), catalog.count(counts.failed),
                catalog.count(counts.cancelled)) + "\n"
        }
        let members = [("finished", counts.finished), ("failed", counts.failed), ("cancelled", counts.cancelled)]
        let batch: [(String, JSON)] = batch.map { [("batch", .string("\($0)"))] } ?? []
        return JSON.object(batch + members.map { ($0.0, .unsigned(UInt64($0.1))) }).text + "\n"
    }
}
