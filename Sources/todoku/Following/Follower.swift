internal import DownloadModel
internal import EventLoop
internal import Localization
internal import TodokuClient

/// Follows downloads to their end, and passes changes to a display.
@BusActor final class Follower: Interruptible {
    private let client: DownloaderClient
    private let display: any ProgressDisplay
    private let commands: EndCommands?
    private var latest: [DownloadReference: DownloadDescription] = [:]
    private var order: [DownloadReference] = []
    private var pending: Set<DownloadReference> = []
    private var isEndless = false
    private var status = ExitStatus.success
    private var failure: ClientError?
    private var waiting: CheckedContinuation<Void, Never>?
    private var watch: Watch?
    /// Updates that wait, in their order, for the limits that explain the first of them.
    private var held: [DownloadUpdate] = []
    private var isAsking = false
    private var asked: ContinuousClock.Instant?
    /// How long the service's limits are taken as known. Many downloads may begin to wait for their host at once.
    private static let limitsLast: Duration = .seconds(1)
    /// The next look at downloads that stay queued.
    private var queueTimer: Poller.Token?
    private var isOver = false
    /// The time up to the first look at downloads that are queued. Most downloads start at once.
    private static let shortestQueue: Duration = .milliseconds(500)
    /// The time between two looks at the reason. The limits may change meanwhile.
    private static let queueLooks: Duration = .seconds(5)

    /// - Parameter exec: the user's commands for the downloads that end.
    init(_ client: DownloaderClient, display: any ProgressDisplay, exec: ExecArguments, json: Bool) {
        (self.client, self.display) = (client, display)
        commands = exec.isGiven ? EndCommands(exec, json: json, display: display) : nil
    }

    static func display(json: Bool, quiet: Bool) -> any ProgressDisplay {
        if quiet { return QuietDisplay(json: json) }
        if json { return JSONDisplay() }
        return Terminal.current == nil ? PlainDisplay() : LiveDisplay(utf8: Terminal.isUTF8)
    }

    /// The downloads that have not ended, in the order of the command line.
    var remaining: [DownloadReference] { order.filter(pending.contains) }

    /// Notes a download that was just queued.
    func queued(_ download: DownloadReference) {
        guard pending.insert(download).inserted else { return }
        order.append(download)
        display.queued(download)
    }

    /// Follows `downloads` until all have ended; nil: follows all downloads without an end. A download that has left the list counts as
    /// removed.
    ///
    /// - Returns: the exit status for their outcomes.
    /// - Throws: `ClientError` if they can no longer be followed.
    func follow(_ downloads: [DownloadReference]?) async throws -> ExitStatus {
        isEndless = downloads == nil
        for download in downloads ?? [] where pending.insert(download).inserted { order.append(download) }
        // The client calls on its own thread, which is this program's loop.
        let watch = try await client.watch(downloads.map { _ in [] }) { [weak self] update in
            BusActor.assumeIsolated { self?.receive(update) }
        }
        self.watch = watch
        for download in order { try await watch.add(download) }
        display.begin(isEndless: isEndless)
        await withCheckedContinuation { continuation in
            // Check inside this body: the last download may end between a check before it and this point.
            if failure == nil, isEndless || !pending.isEmpty { waiting = continuation } else { continuation.resume() }
        }
        stopLooks()
        watch.stop()
        if let commands { status = status.and(await commands.finish()) }
        display.end()
        if let failure { throw failure }
        return status
    }

    var farewell: String? { remaining.isEmpty ? nil : Interrupt.sentence(remaining) }

    func leave() { display.end() }

    /// Passes an update on; first asks for the service's limits if the update needs them.
    private func receive(_ update: DownloadUpdate) {
        held.append(update)
        if !isAsking { takeHeld() }
    }

    private func takeHeld() {
        let updates = held
        held = []
        for (index, update) in updates.enumerated() {
            if needsLimits(update) {
                held = Array(updates.dropFirst(index))
                return askLimits()
            }
            take(update)
        }
    }

    private func askLimits() {
        isAsking = true
        BusActor.spawn { [self] in
            // Without an answer, the reason is told without the limits.
            var explained = Array(latest.values)
            for update in held { if case .changed(let download) = update { explained.append(download) } }
            if let limits = try? await ServiceLimits(client, explaining: explained) { display.learned(limits) }
            (asked, isAsking) = (.now, false)
            takeHeld()
        }
    }

    private func needsLimits(_ update: DownloadUpdate) -> Bool {
        guard display.explainsWaits, case .changed(let download) = update, Reason.isForHost(download) else { return false }
        let before = latest[download.reference]
        if before?.state == download.state, before?.waitReason == download.waitReason { return false }
        return asked.map { .now - $0 > Self.limitsLast } ?? true
    }

    private func lookAtQueue(after delay: Duration) {
        guard queueTimer == nil, !isOver else { return }
        queueTimer = Poller.shared.schedule(after: delay) { [weak self] in
            BusActor.spawn { await self?.explainQueue() }
        }
    }

    /// Tells why downloads are still queued. One call serves all of them.
    private func explainQueue() async {
        func shown() -> [DownloadDescription] { latest.values.filter { !$0.state.hasEnded } }
        if shown().contains(where: { $0.state == .queued }) {
            let limits = try? await ServiceLimits(client, explaining: shown())
            guard !isOver else { return }
            if let limits {
                display.learned(limits)
                // Of two numbers, the longer one is greater.
                func place(_ path: String) -> (Int, String) { (path.utf8.count, path) }
                let queued = shown().filter { $0.state == .queued }.sorted { place($0.reference.path) < place($1.reference.path) }
                for download in queued { display.staysQueued(download) }
            }
        }
        queueTimer = nil
        if shown().contains(where: { $0.state == .queued }) { lookAtQueue(after: Self.queueLooks) }
    }

    private func stopLooks() {
        isOver = true
        if let queueTimer { Poller.shared.cancel(queueTimer) }
        queueTimer = nil
    }

    private func take(_ update: DownloadUpdate) {
        switch update {
        case .changed(let description):
            let before = latest.updateValue(description, forKey: description.reference)
            display.changed(description, before: before)
            if description.state == .queued, display.explainsWaits { lookAtQueue(after: Self.shortestQueue) }
            guard description.state.hasEnded else { return }
            if isEndless { latest[description.reference] = nil }
            guard pending.remove(description.reference) != nil || isEndless && before?.state.hasEnded != true else { return }
            commands?.add(description)
            if description.state != .finished { status = status.and(.ended) }
        case .removed(let download):
            let before = latest.removeValue(forKey: download)
            if before?.state.hasEnded != true { display.removed(download) }
            if pending.remove(download) != nil { status = status.and(.ended) }
        case .lost(let error):
            failure = error
            return release()
        }
        if pending.isEmpty, !isEndless { release() }
    }

    private func release() {
        waiting?.resume()
        waiting = nil
    }
}
