internal import ArgumentParser
internal import EventLoop
internal import Glibc
internal import TodokuClient

/// For commands that print.
struct OutputArguments: ParsableArguments {
    @Flag(help: "Print JSON, also for errors: an object with the member “error”.")
    var json = false
}

/// Runs a command's body on the main thread's loop, with a client, and ends the program by its status.
enum Program {
    static func run(json: Bool, _ body: @escaping @BusActor @Sendable (DownloaderClient) async throws -> ExitStatus) -> Never {
        BusActor.runMain {
            do {
                finish(try await body(try await DownloaderClient.connect()))
            } catch {
                finish(report(error, json: json))
            }
        }
        exit(ExitStatus.refused.rawValue)
    }

    /// What must be had before the loop runs; ends the program without it.
    static func require<R>(json: Bool, _ body: () throws(CommandFailure) -> R) -> R {
        do throws(CommandFailure) { return try body() } catch { finish(report(error, json: json)) }
    }

    static func finish(_ status: ExitStatus) -> Never { exit(status.rawValue) }

    /// Says why: one sentence on standard error or, for JSON, an object on standard output.
    @discardableResult
    static func report(_ error: any Error, json: Bool) -> ExitStatus {
        let failure =
            switch error {
            case let failure as CommandFailure: failure
            case let error as ClientError: CommandFailure(error)
            default: CommandFailure(.refused, "\(error)")
            }
        if json { Output.write(failure.json.text + "\n") } else { Output.complain(failure.message) }
        return failure.status
    }

    /// Does `body` for each of `downloads`, going on where one is refused.
    static func each(
        _ downloads: [DownloadReference], json: Bool, _ body: @BusActor (DownloadReference) async throws(ClientError) -> Void
    ) async -> ExitStatus {
        var status = ExitStatus.success
        for download in downloads {
            do throws(ClientError) {
                try await body(download)
            } catch {
                status = status.and(report(CommandFailure(error, about: download), json: json))
            }
        }
        return status
    }
}
