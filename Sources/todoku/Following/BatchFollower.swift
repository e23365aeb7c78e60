internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Localization
internal import TodokuClient

/// Follows a batch to its end and shows its counts: on a terminal, redrawn each second; in lines for a log; or as JSON.
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
    private var told = ToldWaits()
    /// The members that have failed, which are named at the end.
    private let failures: EndedMembers
    /// The lines that are on the terminal now; the cursor is on the line below them.
    private var lines: [String] = []

    init(_ client: DownloaderClient, _ batch: BatchReference, json: Bool, isQuiet: Bool) {
        (self.client, self.batch, self.json, self.isQuiet) = (client, batch, json, isQuiet)
        failures = EndedMembers(client, of: batch, in: [.failed])
    }

    /// Queues a batch, prints its number and, if `waits`, follows it to its end. SIGINT must be blocked: Ctrl-C ends the program at any
    /// moment. If that is before the answer of `queue`, the batch may be queued.
    static func run(
        _ client: DownloaderClient, json: Bool, isQuiet: Bool, waits: Bool,
        queue: @BusActor () async throws -> QueuedBatch
    ) async throws -> ExitStatus {
        let follower: BatchFollower
        do {
            let signals = SignalSource([SIGINT]) { _ in Program.finish(.interrupted) }
            defer { withExtendedLifetime(signals) {} }
            let batch = try await queue()
            follower = BatchFollower(client, batch.reference, json: json, isQuiet: isQuiet)
            follower.queued(batch.downloads)
            if !waits {
                if !isQuiet { await PauseNotice(client).tell(about: DownloadQuery(batch: batch.reference)) }
                return .success
            }
        }
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
            throw CommandFailure(.ended, catalog.text("batch %1$s was removed", "\(batch)"), name: error.name, about: .batch(batch))
        }
        stop()
        try await tell(outcomes)
        return outcomes.allFinished ? .success : .ended
    }

    private func tell(_ outcomes: OutcomeCounts) async throws(ClientError) {
        let failed = try await outcomes.failed > 0 ? failures.all() : []
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
            Output.complain(download.complaint, colour: Colour(download.state))
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
        guard !isOver else { return }
        // If the service went away, the call that waits for the batch starts it again.
        if let now = try? await client.describe(batch), !isOver {
            await failures.look(now.outcomes.failed)
            // A batch that has moved since the last look does not wait.
            let idle = now == shown ? await idleMember() : nil
            if !isOver, !isQuiet { show(now, idle) }
        }
        guard !isOver else { return }
        timer = Poller.shared.schedule(after: Self.interval) { [weak self] in
            BusActor.spawn { await self?.look() }
        }
    }

    /// A member that explains why the batch makes no progress, with the limits that its reason may need.
    private struct Idle {
        let member: DownloadDescription
        let limits: ServiceLimits?
    }

    /// The first member that waits, else the first one that is queued or paused; nil: a member is under way.
    private func idleMember() async -> Idle? {
        do throws(ClientError) {
            let underWay: Set<DownloadDescription.State> = [.active, .verifying, .extracting]
            if try await client.first(of: DownloadQuery(states: underWay, batch: batch)) != nil { return nil }
            for state in [DownloadDescription.State.waiting, .queued, .paused] {
                guard let member = try await client.first(of: DownloadQuery(states: [state], batch: batch)) else { continue }
                return Idle(member: member, limits: try await ServiceLimits.needed(by: [member], client))
            }
        } catch {}  // the next look asks again
        return nil
    }

    private func show(_ now: BatchDescription, _ idle: Idle?) {
        let before = shown
        shown = now
        if now != before { told.moved() }
        if json {
            if now != before { Output.write(JSON.object([("event", .string("changed"))] + now.json).text + "\n") }
            if let member = idle?.member, member.state == .waiting, told.isNew(member) {
                Output.write(JSON.object([("event", .string("waiting"))] + member.json).text + "\n")
            }
        } else if let terminal = Terminal.current {
            let text = catalog.text("batch %1$s", "\(batch)") + "  " + Self.text(now)
            let columns = terminal.columns - 1
            var drawn = [TerminalText.cut(text, to: columns, ellipsis: "...")]
            if let idle {
                let reason = TerminalText.plain(Self.reason(idle, of: batch))
                drawn = TerminalText.hanging(reason, behind: text, to: columns, rows: terminal.rows -| 1, ellipsis: "...")
            }
            guard drawn != lines else { return }
            let colour = Terminal.hasColour ? idle.flatMap { Colour($0.member.state) } : nil
            Output.write(terminal.erasing(lines.map(TerminalText.width)) + drawn.map { (colour?.paint($0) ?? $0) + "\n" }.joined())
            lines = drawn
        } else {
            if before?.outcomes != now.outcomes { Output.write("\(batch) progress \(Self.text(now, words))\n") }
            if let idle, told.isNew(idle.member) { Output.write(TerminalText.plain("\(batch) \(Self.words(idle))") + "\n") }
        }
    }

    /// "waiting: everything is paused; “todoku resume --all” resumes it".
    private static func reason(_ idle: Idle, of batch: BatchReference) -> String {
        guard idle.member.state == .paused else { return Reason(idle.member, idle.limits).sentence }
        return catalog.text("%1$s: %2$s", catalog.state(.paused), catalog.text("“todoku resume %1$s” resumes it", "\(batch)"))
    }

    /// "waiting retry until 14:03:07: The server refused the connection.": words for scripts, as for a download.
    private static func words(_ idle: Idle) -> String {
        switch idle.member.state {
        case .waiting: WaitLine.text(idle.member, idle.limits)
        case .queued: "queued: \(Reason(idle.member, idle.limits, plainCatalog).detail)"
        default: idle.member.state.name
        }
    }

    private func stop() {
        isOver = true
        if let timer { Poller.shared.cancel(timer) }
        clear()
    }

    private func clear() {
        if !lines.isEmpty, let terminal = Terminal.current { Output.write(terminal.erasing(lines.map(TerminalText.width))) }
        lines = []
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
