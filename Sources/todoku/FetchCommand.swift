internal import ArgumentParser
internal import DownloadModel
internal import TodokuClient

struct FetchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "fetch", abstract: "Have the newest version of a file: download it where it has changed.",
        discussion: """
            Waits until it is there, and prints its path. Where the server has nothing newer than what the last fetch of the same brought, \
            and nobody has changed that file since, that is the one: run it as often as you like. A file that has changed goes beside the old \
            one unless --if-exists replace is said.

            The exit status is 0 whether or not something new has come; with --exit-code it is 4 where nothing has.

            EXAMPLES:
              todoku fetch https://example.org/list.txt
              feed=$(todoku fetch --if-exists replace https://example.org/feed.xml)
              if todoku fetch --quiet --exit-code -o list.txt --if-exists replace https://example.org/list.txt; then make; fi
            """)

    @Argument(help: ArgumentHelp("What to fetch; http or https.", valueName: "url"))
    var url: String

    @Flag(help: "End with 4 where nothing new has come.") var exitCode = false
    @OptionGroup(title: "Request") var request: RequestArguments
    @OptionGroup var output: OutputArguments
    @Flag(name: .shortAndLong, help: "Print errors only.") var quiet = false

    func validate() throws { try request.check(urls: [url]) }

    func run() throws {
        let request = Program.require(json: output.json) { () throws(CommandFailure) in try self.request.request() }
        Program.run(json: output.json) { client in
            do throws(ClientError) {
                let file = try await client.fetch(url, request)
                if output.json {
                    if !quiet { Output.write(file.json.text + "\n") }
                } else if !quiet {
                    Output.write(file.path + "\n")
                }
                return file.isNew || !exitCode ? .success : .unchanged
            } catch {
                guard error.isEnd else { throw error }
                return Program.report(CommandFailure(.ended, catalog.explanation(error), name: error.name), json: output.json)
            }
        }
    }
}

extension FetchedFile {
    var json: JSON { .object([("outcome", .string(isNew ? "new-data" : "no-data")), ("path", .string(path))]) }
}

extension ClientError {
    /// Whether the error is a failed download's, not a refusal of the call.
    fileprivate var isEnd: Bool {
        switch errorName {
        case nil, .invalidUrl, .unsupportedScheme, .invalidOption, .noSuchObject, .invalidState, .limitExceeded, .notAllowed, .storage:
            false
        default: true
        }
    }
}
