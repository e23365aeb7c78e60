internal import ArgumentParser
internal import DownloadModel
internal import Localization
internal import TodokuClient

struct FetchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "fetch", abstract: "Download a file if the server has a newer version, and print its path.",
        discussion: """
            Waits for the download and prints the path of the file. If the server has nothing newer than the last fetch of the same URL \
            into the same folder, and nobody has changed that file since, nothing is downloaded and its path is printed. So you can run \
            this command as often as you like. A newer file is saved beside the old one, or replaces it with --if-exists replace.

            The exit status is 0, whether or not the file is new. With --exit-code it is 4 if nothing new was downloaded.

            EXAMPLES:
              todoku fetch https://example.org/list.txt
              feed=$(todoku fetch --if-exists replace https://example.org/feed.xml)
              if todoku fetch --quiet --exit-code -o list.txt --if-exists replace https://example.org/list.txt; then make; fi
            """)

    @Argument(help: ArgumentHelp("URL of the file; http or https.", valueName: "url"))
    var url: String

    @Flag(help: "Exit with 4 if nothing new was downloaded.") var exitCode = false
    @OptionGroup(title: "Request") var request: RequestArguments
    @OptionGroup var output: OutputArguments
    @Flag(name: .shortAndLong, help: "Print errors only.") var quiet = false
    @OptionGroup var refusedExec: RefusedExecArguments

    func validate() throws {
        if refusedExec.isGiven {
            throw ValidationError(catalog.text("todoku fetch runs no command; write instead: COMMAND \"$(todoku fetch URL)\"."))
        }
        try request.check(urls: [url])
        if let option = request.optionsOfDownload.first {
            throw ValidationError(
                catalog.text(
                    "%1$s is not for todoku fetch, which compares the file with its last copy; use todoku get.", "--\(option)"))
        }
    }

    func run() throws {
        let request = Program.require(json: output.json) { () throws(CommandFailure) in try self.request.request(for: [url]) }
        Program.run(json: output.json) { client in
            if !quiet { await PauseNotice(client).tell() }
            do {
                let file = try await client.fetch(url, request)
                if output.json {
                    if !quiet { Output.write(file.json.text + "\n") }
                } else if !quiet {
                    Output.write(file.path + "\n")
                }
                return file.isNew || !exitCode ? .success : .unchanged
            } catch let error as ClientError {
                let failure = CommandFailure(error, about: url, number: 1, of: 1, mirrors: request.mirrors)
                guard await client.hasEnded(with: error) else { throw error.cause == .refused ? failure : CommandFailure(error) }
                return Program.report(
                    CommandFailure(.ended, catalog.explanation(error), name: error.name, about: failure.subject), json: output.json)
            }
        }
    }
}

extension FetchedFile {
    var json: JSON { .object([("outcome", .string(isNew ? "new-data" : "no-data")), ("path", .string(path))]) }
}

extension DownloaderClient {
    /// Whether a Fetch failed because its download has failed, and not because the call was refused.
    fileprivate func hasEnded(with error: ClientError) async -> Bool {
        if let isEnd = error.isEnd { return isEnd }
        let failed = try? await latest(100, of: DownloadQuery(states: [.failed]))
        return failed?.contains { $0.error?.name == error.name && $0.error?.message == error.message } ?? false
    }
}

extension ClientError {
    /// Whether the error is that of a failed download or update, and not a refusal of the call; nil: its name may be that of either.
    var isEnd: Bool? {
        switch errorName {
        case nil, .invalidUrl, .unsupportedScheme, .invalidOption, .noSuchObject, .invalidState, .limitExceeded, .storage: false
        case .alreadyExists, .notAllowed, .permissionDenied: nil
        default: true
        }
    }
}
