internal import ArgumentParser
internal import DownloadModel
internal import Localization
internal import TodokuClient

struct WatchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "watch", abstract: "Show the progress of downloads.",
        discussion: """
            With downloads named, ends when they have, by their outcomes. Without, shows everything, also what is queued later, until Ctrl-C. \
            Ctrl-C never touches the downloads.

            EXAMPLES:
              todoku watch
              todoku watch 7 8
              todoku watch --json | jq .state
            """)

    @Argument(help: ArgumentHelp("Number, APP/TOKEN or object path.", valueName: "download")) var downloads: [DownloadReference] = []
    @OptionGroup var output: OutputArguments

    func run() throws {
        Program.run(json: output.json) { client in
            for download in downloads {
                do throws(ClientError) { _ = try await client.describe(download) } catch { throw CommandFailure(error, about: download) }
            }
            let follower = Follower(client, display: Follower.display(json: output.json, quiet: false))
            return try await follower.follow(downloads.isEmpty ? nil : downloads)
        }
    }
}

struct WaitCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "wait", abstract: "Wait until downloads have ended.",
        discussion: """
            Prints the path of each file, in the order named. With --app or --tag instead of names: waits for all of these that are on the \
            list now, and prints how many finished, failed and were cancelled, those that had ended before included. There is no limit to \
            the time; should the service go away meanwhile, it is started again.

            EXAMPLES:
              todoku wait 7
              todoku wait "$(todoku add https://example.org/file.iso)" && echo here
              todoku wait --app org.example.App --tag update
            """)

    @Argument(help: ArgumentHelp("Number, APP/TOKEN or object path.", valueName: "download")) var downloads: [DownloadReference] = []
    @Option(help: ArgumentHelp("All of this application.", valueName: "id")) var app: String?
    @Option(help: "All with this tag.") var tag: String?
    @OptionGroup var output: OutputArguments
    @Flag(name: .shortAndLong, help: "Print errors only.") var quiet = false

    func validate() throws {
        let isGroup = app != nil || tag != nil
        if isGroup, !downloads.isEmpty { throw ValidationError("--app and --tag go without downloads named.") }
        if !isGroup, downloads.isEmpty { throw ValidationError("Name a download by its number, or say --app or --tag.") }
    }

    func run() throws {
        Program.run(json: output.json) { client in
            if app != nil || tag != nil {
                let counts = try await client.waitAll(DownloadQuery(app: app, tag: tag))
                if !quiet { Output.write(Self.text(counts, json: output.json)) }
                return counts.allFinished ? .success : .ended
            }
            var status = ExitStatus.success
            for download in downloads {
                do throws(ClientError) {
                    let path = try await client.wait(for: download)
                    guard !quiet else { continue }
                    if output.json {
                        let members: [(String, JSON)] = [("download", .string(download.description)), ("path", .string(path))]
                        Output.write(JSON.object(members).text + "\n")
                    } else {
                        Output.write(path + "\n")
                    }
                } catch {
                    var failure = CommandFailure(error, about: download)
                    // Refused are: a download that is not there, too many waiting calls. All else is what it ended in.
                    if error.cause == .refused, error.errorName != .limitExceeded {
                        failure = CommandFailure(
                            .ended,
                            catalog.text("download %1$s did not finish: %2$s", "\(download)", catalog.explanation(error)), name: error.name)
                    }
                    status = status.and(Program.report(failure, json: output.json))
                }
            }
            return status
        }
    }

    private static func text(_ counts: OutcomeCounts, json: Bool) -> String {
        guard json else {
            return catalog.text(
                "%1$s finished, %2$s failed, %3$s cancelled", catalog.count(counts.finished), catalog.count(counts.failed),
                catalog.count(counts.cancelled)) + "\n"
        }
        let members = [("finished", counts.finished), ("failed", counts.failed), ("cancelled", counts.cancelled)]
        return JSON.object(members.map { ($0.0, .unsigned(UInt64($0.1))) }).text + "\n"
    }
}
