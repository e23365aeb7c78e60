internal import ArgumentParser
internal import EventLoop
internal import Localization
internal import TodokuClient

struct GetCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "get", abstract: "Download files, show the progress, and wait for the end.",
        discussion: """
            At a terminal each download has a progress bar. Elsewhere the command prints lines: NUMBER and one of queued, started, progress, \
            waiting, paused, extracting, finished, failed, cancelled, removed. There is no percentage if the server does not tell the size.

            Ctrl-C ends the command at once, and leaves the downloads to the service. “todoku cancel” cancels them.

            \(TakenNames.discussion)

            \(ExecArguments.discussion)

            EXAMPLES:
              todoku get https://example.org/file.iso
              todoku get --exec 'tar -tzf' https://example.org/a.tar.gz
              todoku get --exec 'mv "$1" /srv/incoming/' https://example.org/file.iso
              todoku get -o /tmp/page.html --if-exists replace https://example.org/
              todoku get --if-exists ask https://example.org/list.txt
              todoku get --checksum sha256:9f86d0… --retries 3 https://example.org/a.tar.gz
              todoku get --user me --password-file secret https://example.org/private.pdf
              todoku get --extract https://example.org/a.tar.gz
              todoku get --json https://example.org/1 https://example.org/2
            """)

    @Argument(help: ArgumentHelp("URL to download; http or https.", valueName: "url"))
    var urls: [String]

    @OptionGroup(title: "Request") var request: RequestArguments
    @OptionGroup var exec: ExecArguments
    @OptionGroup var output: OutputArguments
    @Flag(name: .shortAndLong, help: "Print errors only.") var quiet = false

    func validate() throws { try request.check(urls: urls, mayAsk: true) }

    func run() throws {
        let request = Program.require(json: output.json) { () throws(CommandFailure) in try self.request.request(for: urls) }
        Program.run(json: output.json, handlesInterrupt: true) { client in
            let display = Follower.display(json: output.json, quiet: quiet)
            let follower = Follower(client, display: display, exec: exec, json: output.json)
            let interrupt = Interrupt(follower)
            let (queued, refused) = try await queue(client, request, follower)
            let ended = queued.isEmpty ? .success : try await follower.follow(queued)
            interrupt.end()
            return ended.and(refused)
        }
    }

    /// Asks all questions, and then queues each URL. A refused URL does not stop the others; an unreachable service does.
    @BusActor private func queue(
        _ client: DownloaderClient, _ request: DownloadRequest, _ follower: Follower
    ) async throws -> ([DownloadReference], ExitStatus) {
        var queued: [DownloadReference] = []
        var status = ExitStatus.success
        let names = TakenNames(client, self.request, isQuiet: quiet || output.json)
        // A private download may end and leave the list while a later question is open.
        var requests: [DownloadRequest] = []
        for url in urls { requests.append(try await names.withAnswer(request, for: url)) }
        for (index, (url, request)) in zip(urls, requests).enumerated() {
            do throws(ClientError) {
                let download = try await client.download(url, request)
                if !queued.contains(download) { queued.append(download) }
                follower.queued(download)
            } catch {
                guard error.cause == .refused else { throw error }
                let failure = CommandFailure(error, about: url, number: index + 1, of: urls.count, mirrors: request.mirrors)
                status = status.and(Program.report(failure, json: output.json))
            }
        }
        return (queued, status)
    }
}

struct AddCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "add", abstract: "Queue downloads, print their numbers, and return.",
        discussion: """
            Once a number is printed, the download is saved on disk, and no crash loses it. A command for its end is an option of “todoku wait” \
            and “todoku watch”.

            EXAMPLES:
              todoku add https://example.org/file.iso
              todoku add --paused --priority -1 https://example.org/large.iso
              todoku add --app org.example.App --token chapter_1 https://example.org/1.mp3
              todoku wait "$(todoku add https://example.org/file.iso)"
            """)

    @OptionGroup var refusedExec: RefusedExecArguments

    @Argument(help: ArgumentHelp("URL to download; http or https.", valueName: "url"))
    var urls: [String]

    @OptionGroup(title: "Request") var request: RequestArguments
    @OptionGroup var output: OutputArguments
    @Flag(name: .shortAndLong, help: "Print errors only.") var quiet = false

    func validate() throws {
        if refusedExec.isGiven {
            throw ValidationError(
                catalog.text(
                    "todoku add does not wait for the end; use todoku get --exec COMMAND URL, or todoku wait --exec COMMAND DOWNLOAD."))
        }
        try request.check(urls: urls, mayAsk: true)
    }

    func run() throws {
        let request = Program.require(json: output.json) { () throws(CommandFailure) in try self.request.request(for: urls) }
        Program.run(json: output.json) { client in
            var status = ExitStatus.success
            let names = TakenNames(client, self.request, isQuiet: quiet || output.json)
            var isQueued = false
            for (index, url) in urls.enumerated() {
                do throws(ClientError) {
                    let download = try await client.download(url, try await names.withAnswer(request, for: url))
                    isQueued = true
                    if !quiet { Output.write((output.json ? download.json.text : download.description) + "\n") }
                } catch {
                    guard error.cause == .refused else { throw error }
                    let failure = CommandFailure(error, about: url, number: index + 1, of: urls.count, mirrors: request.mirrors)
                    status = status.and(Program.report(failure, json: output.json))
                }
            }
            // A download that is queued with --paused is not meant to start.
            if isQueued, request.start, !quiet { await PauseNotice(client).tell() }
            return status
        }
    }
}

extension DownloadReference {
    var json: JSON { .object([("download", .string(description)), ("object-path", .string(path))]) }
}
