internal import ArgumentParser
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Localization
internal import TodokuClient

/// Options of all commands that print.
struct OutputArguments: ParsableArguments {
    @Flag(help: "Print JSON; an error is an object with the member “error”.")
    var json = false
}

/// Runs a command's body with a client on the main thread's loop, and exits with its status.
enum Program {
    static let version = "0.1.0"

    /// - Parameters:
    ///   - subject: what an error of the client is about, for JSON; nil: the error says it, or is about nothing.
    ///   - handlesInterrupt: whether `body` handles Ctrl-C. Then SIGINT is blocked once the client is connected.
    static func run(
        json: Bool, about subject: CommandFailure.Subject? = nil, handlesInterrupt: Bool = false,
        _ body: @escaping @BusActor @Sendable (DownloaderClient) async throws -> ExitStatus
    ) -> Never {
        BusActor.runMain {
            do {
                // Connecting blocks this thread until the bus answers. Nothing is queued yet, so Ctrl-C may end the program.
                let client = try await DownloaderClient.connect()
                if handlesInterrupt { SignalSource.block([SIGINT]) }  // block before the first other thread starts
                await SlowAnswer.watch(client)
                let status = try await body(client)
                if status == .success { await LanguageHint.tell(client, json: json) }
                finish(status)
            } catch let error as ClientError {
                finish(report(CommandFailure(error, about: subject), json: json))
            } catch {
                finish(report(error, json: json))
            }
        }
        exit(ExitStatus.refused.rawValue)
    }

    /// Runs `body` before the loop starts, and ends the program if it fails.
    static func require<R>(json: Bool, _ body: () throws(CommandFailure) -> R) -> R {
        do throws(CommandFailure) { return try body() } catch { finish(report(error, json: json)) }
    }

    static func finish(_ status: ExitStatus) -> Never { exit(status.rawValue) }

    /// Reports an error: one sentence on standard error or, for JSON, an object on standard output.
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

    /// Calls `body` for each of `downloads`. A failure is reported, and the next one is tried.
    static func each(
        _ downloads: [DownloadReference], json: Bool, _ body: @BusActor (DownloadReference) async throws(ClientError) -> Void
    ) async -> ExitStatus {
        await each(downloads.map { Target($0) }, json: json, body, batch: { _ in })
    }

    /// Calls `body` for each download in `targets`, and `whole` for each batch. A failure is reported, and the next one is tried.
    ///
    /// - Parameters:
    ///   - hasParents: whether the command has the option --parents.
    ///   - url: the command's argument that is a URL; nil: it has none.
    static func each(
        _ targets: [Target], json: Bool, hasParents: Bool = false, url: String? = nil,
        _ body: @BusActor (DownloadReference) async throws(ClientError) -> Void,
        batch whole: @BusActor (BatchReference) async throws(ClientError) -> Void
    ) async -> ExitStatus {
        var status = ExitStatus.success
        for target in targets {
            do throws(TargetError) { try await target.reach(body, batch: whole) } catch {
                var failure = CommandFailure(error)
                if hasParents { failure = failure.namingParents(error.error) }
                if let url { failure = failure.suggestingScheme(for: url) }
                status = status.and(report(failure, json: json))
            }
        }
        return status
    }
}

extension DownloaderClient {
    /// The batch's members that have not ended, in queue order.
    ///
    /// - Throws: `invalidState` if all have ended, as the service does about a single download.
    func remaining(of batch: BatchReference) async throws(ClientError) -> [DownloadDescription] {
        _ = try await describe(batch)  // about a missing batch, the list's error names the key of the filter
        var query = DownloadQuery.remaining
        query.batch = batch
        let members = try await describe(query)
        guard !members.isEmpty else {
            let message = catalog.text("A batch that has ended cannot be changed.")
            throw ClientError(.refused, name: ErrorName.invalidState.busName, message: message)
        }
        return members
    }
}

/// Calls `body` for one member of a batch. A member that has ended or was removed since the batch was read is skipped.
@BusActor func unlessEnded(_ body: @BusActor () async throws(ClientError) -> Void) async throws(ClientError) {
    do throws(ClientError) { try await body() } catch {
        guard error.cause == .unknownDownload || error.errorName == .invalidState else { throw error }
    }
}

extension Target {
    /// Calls `body` for the download, or `whole` for the batch. A number is tried as a download's first. If there is neither a download
    /// nor a batch with a number, the error names a download.
    @BusActor func reach<R>(
        _ body: @BusActor (DownloadReference) async throws(ClientError) -> R,
        batch whole: @BusActor (BatchReference) async throws(ClientError) -> R
    ) async throws(TargetError) -> R {
        if let download {
            do throws(ClientError) { return try await body(download) } catch {
                guard error.cause == .unknownDownload, batch != nil else { throw TargetError(error, about: download) }
            }
        }
        guard let batch else { preconditionFailure("a target names something") }
        do throws(ClientError) { return try await whole(batch) } catch {
            if let download, error.cause == .unknownDownload { throw TargetError(error, about: download) }
            throw TargetError(error, about: batch)
        }
    }
}
