internal import DBus
internal import Desktop
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Localization
internal import Logging
internal import Scheduling

/// Decides which downloads KDE shows as jobs: downloads that take long. A batch is one job. The buttons of a job pause, resume and cancel.
///
/// A download without a progress toast has no job either. Its app is in front and shows the progress itself, or has asked for quiet.
@BusActor final class DesktopJobs: DownloadObserver {
    /// A download that ends within this time gets no job. Plasma delays a job for another half second.
    private static let delay: Duration = .milliseconds(1500)
    private static let interval: Duration = .milliseconds(500)
    /// How long the job of a download that does not run stays: the user can resume the download there.
    private static let stay: Duration = .seconds(600)

    /// The phase of a job. A change is shown at once.
    private enum Phase { case running, waiting, checking, unpacking, resting }

    private struct Shown {
        let begun: ContinuousClock.Instant
        var updated: ContinuousClock.Instant
        var phase = Phase.running
        /// Removes the job once its download has not run for `stay`.
        var timer: Poller.Token?
    }

    private let list: DownloadList
    private let events: any EventSink
    private let foreground: Foreground
    private let log: Logger
    private lazy var views = JobViews(session: session, icon: BusName.service) { [weak self] key, wish in
        self?.take(wish, DownloadNumber(key))
    } servedChanged: { [weak self] in
        self?.weigh()
    }
    private let hold: IdleExit.Hold
    private let session: Connection
    private var shown: [DownloadNumber: Shown] = [:] { didSet { weigh() } }
    private var catalog = Catalog(.japanese)

    init(
        list: DownloadList, events: any EventSink, foreground: Foreground, session: Connection, hold: IdleExit.Hold, log: Logger
    ) {
        (self.list, self.events, self.foreground) = (list, events, foreground)
        (self.session, self.hold, self.log) = (session, hold, log)
    }

    /// The user can resume a resting download in its job. The job would vanish with the service, so the service stays.
    private func weigh() { hold.isHeld = !shown.isEmpty && views.isServed && shown.contains { $0.value.phase == .resting } }

    // MARK: Reports

    func started(_ download: ManagedDownload) {
        guard let batch = download.record.batch.flatMap({ list.batch($0) }) else { return }
        if batch.begun == nil { batch.begun = .now }
        progress(download)
    }

    func progressed(_ downloads: [ManagedDownload]) { for download in downloads { progress(download) } }
    func extracts(_ downloads: [ManagedDownload]) { for download in downloads { progress(download) } }

    private func progress(_ download: ManagedDownload) {
        let number = download.record.batch ?? download.number
        guard isWanted(number) else { return take(away: number, finished: false) }
        // Such a member neither shows nor removes the job of its batch, which the other members share.
        guard download.record.options.showProgress else { return }
        let now = ContinuousClock.now
        if let one = shown[number] {
            if now - one.updated >= Self.interval { update(number) }
            return
        }
        let begun = download.record.batch.map { list.batch($0)?.begun } ?? download.transferStarted
        guard let begun, now - begun > Self.delay else { return }
        views.watch()
        guard views.isServed, makeRoom() else { return }
        shown[number] = Shown(begun: begun, updated: now)
        update(number)
    }

    /// If an ended batch is retried, its time begins again with the next transfer.
    func ends(_ batch: ManagedBatch, _ outcomes: OutcomeCounts) { batch.begun = nil }

    func decided() {
        for (number, one) in shown {
            let phase = phase(number)
            // `progress` removes the job of an app in front, but a download that does not run makes no progress.
            if phase != nil, !isWanted(number) { take(away: number, finished: false) } else if one.phase != phase { update(number) }
        }
    }

    func left() { views.end() }

    // MARK: Jobs

    /// Whether a job of this download or batch may exist. A batch is shown without the names of its members.
    private func isWanted(_ number: DownloadNumber) -> Bool {
        if let batch = list.scheduler.batch(number)?.record { return foreground.allows(batch.notify, of: batch.app) }
        guard let entry = list.scheduler[number], !entry.record.options.isPrivate else { return false }
        return foreground.allows(entry.record.options.notify, of: entry.record.options.app)
    }

    /// The phase of a download or batch; nil: it has ended or is off the list.
    private func phase(_ number: DownloadNumber) -> Phase? {
        if let batch = list.scheduler.batch(number) {
            return batch.hasEnded ? nil : batch.counts.resting == batch.counts.remaining ? .resting : .running
        }
        guard let state = list.scheduler[number]?.state, !state.hasEnded else { return nil }
        switch state {
        case _ where state.rests: return .resting
        case .waiting: return .waiting
        case .verifying, .committing: return .checking
        case .extracting: return .unpacking
        default: return .running
        }
    }

    /// Makes room for a new job: at the limit, removes the job of a download that is not running.
    ///
    /// - Returns: whether one more job is allowed now.
    private func makeRoom() -> Bool {
        guard shown.count >= Limits.desktopJobs else { return true }
        guard let number = shown.filter({ $0.value.phase == .resting }).keys.min() else { return false }
        take(away: number, finished: false)
        return true
    }

    private func take(away number: DownloadNumber, finished: Bool) {
        guard let one = shown.removeValue(forKey: number) else { return }
        if let timer = one.timer { Poller.shared.cancel(timer) }
        views.end(number.value, finished: finished)
    }

    /// Shows the job of `number` with its present values.
    private func update(_ number: DownloadNumber) {
        guard var one = shown[number] else { return }
        guard let phase = phase(number) else { return take(away: number, finished: hasFinished(number)) }
        if (phase == .resting) != (one.timer != nil) {
            if let timer = one.timer { Poller.shared.cancel(timer) }
            one.timer =
                phase == .resting
                ? Poller.shared.schedule(after: Self.stay) { [weak self] in self?.take(away: number, finished: false) } : nil
        }
        (one.phase, one.updated) = (phase, .now)
        shown[number] = one
        if catalog.language != list.settings.language { catalog = Catalog(list.settings.language) }
        views.applicationName = catalog.text("Todoku")
        var content = JobContent()
        content.isSuspended = phase == .resting
        switch phase {
        case .waiting: content.message = catalog.text("Waiting")
        case .checking: content.message = catalog.text("Checking the file")
        case .unpacking: content.message = catalog.text("Unpacking the archive")
        case .running, .resting: break
        }
        content.elapsed = .now - one.begun
        if let batch = list.batch(number) { describe(batch, &content) } else { describe(number, &content) }
        views.show(number.value, content)
    }

    private func hasFinished(_ number: DownloadNumber) -> Bool {
        if let batch = list.scheduler.batch(number) { return batch.outcomes.allFinished }
        return list.scheduler[number]?.state == .finished
    }

    private func describe(_ number: DownloadNumber, _ content: inout JobContent) {
        guard let download = list.peek(number) else { return }
        let record = download.record
        content.title = catalog.text("Downloading")
        (content.received, content.total, content.speed) = (download.received, download.total, download.speed)
        if let total = download.total, total > 0 { content.fraction = Double(download.received) / Double(total) }
        if download.state == .extracting { content.fraction = download.extracted ?? 0 }
        content.source = (catalog.text("Source"), download.redactedUrl)
        guard !record.isToDescriptor else { return }
        let name = record.fileName ?? download.redactedUrl.pathComponents.last.map(String.init) ?? ""
        content.destination = (catalog.text("Destination"), "\(record.directory)/\(name)")
        content.folder = record.directory
    }

    private func describe(_ batch: ManagedBatch, _ content: inout JobContent) {
        var tally = batch.entry.progress
        for download in list.lively where download.entry.batch === batch.entry && download.showsProgress {
            content.speed +|= download.speed
            if download.received != download.record.received { tally.take(received: download.received, of: download.record) }
        }
        let outcomes = batch.entry.outcomes
        let ended = UInt64(outcomes.finished) + UInt64(outcomes.failed) + UInt64(outcomes.cancelled)
        content.title = catalog.text("Downloading")
        (content.received, content.total) = tally.bytes
        content.fraction = tally.fractionOfDownloads
        content.files = (ended, ended + UInt64(batch.entry.counts.remaining))
        guard !batch.record.directory.isEmpty else { return }
        content.destination = (catalog.text("Destination"), batch.record.directory)
        content.folder = batch.record.directory
    }

    // MARK: Clicks

    private func take(_ wish: JobViews.Wish, _ number: DownloadNumber) {
        guard shown[number] != nil else { return }
        let event: DownloadEvent =
            switch wish {
            case .suspend: .pause
            case .resume: .resume
            case .cancel: .cancel
            }
        log.debug("job clicked", metadata: ["download": "\(number)", "wish": "\(wish)"])
        // PauseAll holds all downloads, and only ResumeAll releases one of them.
        if event == .resume, list.settings.paused { events.decide(.resumeAll) }
        if let batch = list.scheduler.batch(number) {
            events.decide(.steerBatch(batch, event))
        } else if let entry = list.scheduler[number] {
            events.decide(.steer(entry, event))  // a click that comes too late is refused without an answer
        }
        update(number)
    }
}
