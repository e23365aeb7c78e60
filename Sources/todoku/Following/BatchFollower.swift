internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Localization
internal import TodokuClient

/// Follows a batch to its end and shows its counts: one line on a terminal, redrawn each second; lines for a log; or JSON.
@BusActor final class BatchFollower: Interruptible {
    /// Time between two requests for the batch's state.
    private static let interval: Duration = .seconds(1)

    private let client: DownloaderClient
    private let batch: BatchReference
    private let json: Bool
    private let isQuiet: Bool
    private var timer: Poller.Token?
    private var isOver = false
    private var shown: BatchDescription?
    /// Bytes of the line that is on the terminal now; 0: none.
    private var width = 0

    init(_ client: DownloaderClient, _ batch: BatchReference, json: Bool, isQuiet: Bool) {
        (self.client, self.batch, self.json, self.isQuiet) = (client, batch, json, isQuiet)
    }

    /// Queues a batch, prints its number and, if `waits`, follows it to its end. SIGINT must be blocked: Ctrl-C ends the program at any
    /// moment. If that is before the answer of `queue`, the batch may be queued.
    static func run(
        _ client: DownloaderClient, json: Bool, isQuiet: Bool, waits: Bool,
        queue: @BusActor () async throws -> QueuedBatch
    ) async throws -> ExitStatus {
        let batch: QueuedBatch
        do {
            let signals = SignalSource([SIGINT]) { _ in Program.finish(.interrupted) }
            defer { withExtendedLifetime(signals) {} }
            batch = try await queue()
        }
        let follower = BatchFollower(client, batch.reference, json: json, isQuiet: isQuiet)
        follower.queued(batch.downloads)
        guard waits else { return .success }
        let interrupt = Interrupt(follower)
        defer { interrupt.end() }
        return try await follower.follow()
    }

    /// Prints that `downloads` are queued as this batch.
    func queued(_ downloads: [DownloadReference]) {
        guard !isQuiet else { return }
        guard json else { return Output.write("\(batch)\n") }
        Output.write(
            JSON.object([
                ("batch", .string(batch.description)), ("object-path", .string(batch.path)),
                ("downloads", .array(downloads.map { .string($0.description) })),
            ]).text + "\n")
    }

    /// - Returns: the exit status for the outcomes.
    func follow() async throws -> ExitStatus {
        await look()
        let outcomes: OutcomeCounts
        do { outcomes = try await client.wait(for: batch) } catch {
            stop()
            guard let error = error as? ClientError, error.cause == .unknownDownload else { throw error }
            throw CommandFailure(.ended, catalog.text("batch %1$s was removed", "\(batch)"), name: error.name)
        }
        stop()
        try await tell(outcomes)
        return outcomes.allFinished ? .success : .ended
    }

    private func tell(_ outcomes: OutcomeCounts) async throws(ClientError) {
        var failed: [DownloadDescription] = []
        do throws(ClientError) {
            if outcomes.failed > 0 { failed = try await client.describe(DownloadQuery(states: [.failed], batch: batch)) }
        } catch {
            // The batch may have been removed meanwhile.
            guard error.errorName == .noSuchObject else { throw error }
        }
        if json {
            for download in failed { Output.write(JSON.object([("event", .string("failed"))] + download.json).text + "\n") }
            if !isQuiet {
                let counts: [(String, JSON)] = [
                    ("finished", .unsigned(UInt64(outcomes.finished))), ("failed", .unsigned(UInt64(outcomes.failed))),
                    ("cancelled", .unsigned(UInt64(outcomes.cancelled))),
                ]
                let head: [(String, JSON)] = [("event", .string("ended")), ("batch", .string(batch.description))]
                Output.write(JSON.object(head + counts).text + "\n")
            }
            return
        }
        for download in failed {
            Output.complain(download.complaint)
        }
        if !isQuiet { Output.write("\(batch) ended \(words.outcomes(outcomes, always: true))\n") }
    }

    private var words: Catalog { Terminal.current == nil ? plainCatalog : catalog }

    /// "40 of 100 finished, 2 failed  12.3 MiB of 29.0 MiB  42 %".
    nonisolated static func text(_ batch: BatchDescription, _ catalog: Catalog = todoku.catalog) -> String {
        var others = batch.outcomes
        others.finished = 0
        let finished = catalog.text("%1$s of %2$s finished", catalog.count(batch.outcomes.finished), catalog.count(batch.count))
        var text = catalog.list([finished, others.allFinished ? nil : catalog.outcomes(others)])
        text += "  \(catalog.size(batch.received, of: batch.total))"
        if let fraction = batch.fraction { text += "  \(catalog.percent(Int(clamping: fraction * 100)))" }
        return text
    }

    // MARK: Showing

    private func look() async {
        guard !isOver, !isQuiet else { return }
        // If the service went away, the call that waits for the batch starts it again.
        if let now = try? await client.describe(batch), !isOver { show(now) }
        guard !isOver else { return }
        timer = Poller.shared.schedule(after: Self.interval) { [weak self] in
            BusActor.spawn { await self?.look() }
        }
    }

    private func show(_ now: BatchDescription) {
        guard now != shown else { return }
        let before = shown
        shown = now
        if json {
            Output.write(JSON.object([("event", .string("changed"))] + now.json).text + "\n")
        } else if let terminal = Terminal.current {
            let line = TerminalText.cut(
                catalog.text("batch %1$s", "\(batch)") + "  " + Self.text(now), to: terminal.columns - 1, ellipsis: "...")
            Output.write("\r\u{1b}[K" + line)
            width = line.utf8.count
        } else if before?.outcomes != now.outcomes {
            Output.write("\(batch) progress \(Self.text(now, words))\n")
        }
    }

    private func stop() {
        isOver = true
        if let timer { Poller.shared.cancel(timer) }
        clear()
    }

    private func clear() {
        if width > 0, Terminal.current != nil { Output.write("\r\u{1b}[K") }
        width = 0
    }

    // MARK: Ctrl-C

    var farewell: String? {
        if isOver { return nil }
        return catalog.text(
            "the batch continues in the background; “todoku watch %1$s” shows it, and “todoku cancel %1$s” cancels it",
            "\(batch)")
    }

    func leave() { clear() }
}

extension BatchDescription {
    var json: [(String, JSON)] {
        [
            ("batch", .string(reference.description)), ("object-path", .string(reference.path)), ("title", .string(title)),
            ("remaining", .unsigned(UInt64(remaining))), ("finished", .unsigned(UInt64(outcomes.finished))),
            ("failed", .unsigned(UInt64(outcomes.failed))), ("cancelled", .unsigned(UInt64(outcomes.cancelled))),
            ("received", .unsigned(received)), ("total", JSON(total)), ("fraction", JSON(fraction)),
        ]
    }
}
