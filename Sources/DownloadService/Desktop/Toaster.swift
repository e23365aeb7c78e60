internal import DBus
internal import Desktop
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Logging
internal import PartFiles
internal import Scheduling
internal import TransferEngine

/// Decides which toasts there are, and does what their buttons ask for; the Notifier shows them on its own thread. Downloads never wait for
/// it.
@BusActor final class Toaster {
    /// A toast that is to come a while after the end (option `notify-delay`).
    private struct Delayed {
        let toast: EndToast
        let owed: Ledger.OwedToast
        let app: String
        let policy: NotifyPolicy
        let timer: Poller.Token
    }

    /// For so long the end of the service waits for a desktop that is to take over its toasts.
    private static let moment: Duration = .seconds(1)

    /// The number of the one toast for all that wait for room: no download has it.
    private static let room = DownloadNumber(0)

    /// So much after a start the toasts come that an earlier process owes: apps in front say by then that they are.
    private static let firstWords: Duration = .seconds(1)

    /// For so long at most, a toast that can be clicked keeps the service.
    private let clickable: Duration
    private let notifier: Notifier
    private var texts = ToastTexts.japanese
    private let opener: Opener
    private let foreground: Foreground
    private let sound: Sound
    private let log: Logger
    let progress: ProgressToasts
    /// With a timer those that can be clicked.
    private var shown: [DownloadNumber: (toast: EndToast, timer: Poller.Token?)] = [:]
    /// Those of them that keep the service. A click on an older one is answered as long as the service is there for another reason.
    private var keeping: Set<DownloadNumber> = [] { didSet { weigh() } }
    /// Toasts handed to the notifier whose fate is not told yet, in order: they keep the service too. Those of ends are owed.
    private var handed: [DownloadNumber: [(toast: EndToast, owed: Ledger.OwedToast?)]] = [:] { didSet { weigh() } }
    private let lasting: LastingToasts
    /// Those that the desktop has taken over, as far as is known.
    private var bequeathed: Set<DownloadNumber> = []
    /// The object of a download or a batch; nil: it is off the list.
    var path: (DownloadNumber) -> ObjectPath? = { _ in nil }
    private var delayed: [DownloadNumber: Delayed] = [:] { didSet { weigh() } }
    /// Downloads that wait for their user, and the number of the toast that says so: for room all have one, for a link those of a batch.
    private var waiting: [DownloadNumber: DownloadNumber] = [:]
    /// How many of them each of these toasts is for.
    private var waiters: [DownloadNumber: Int] = [:]
    /// Tries a failed download, or what failed of a batch, again.
    var retry: ((DownloadNumber) -> Void)?
    private let hold: Residence.Hold
    /// What was owed was shown, or never will be.
    var settled: ((Ledger.OwedToast) -> Void)?
    /// What is not shown any more is owed still.
    var isEnding = false
    /// Called once the desktop has, or refuses, all that it was offered at the end.
    private var handedOn: (() -> Void)?
    /// Called when a click opens the file of a download.
    var opened: ((DownloadNumber) -> Void)?
    /// Which file a download ended with; nil: none that is known.
    var file: (DownloadNumber) -> FileIdentity? = { _ in nil }
    /// Does what a click asks for; it keeps the service as long.
    var start: ((@escaping @BusActor @Sendable () async -> Void) -> Void)?

    init(
        notifier: Notifier, opener: Opener, foreground: Foreground, lasting: LastingToasts, clickable: Duration, hold: Residence.Hold,
        log: Logger
    ) {
        (self.notifier, self.opener, self.foreground, self.lasting, self.hold) = (notifier, opener, foreground, lasting, hold)
        (self.clickable, self.log) = (clickable, log)
        sound = Sound { log.debug("a sound was not played", metadata: ["error": "\($0)"]) }
        progress = ProgressToasts(notifier: notifier)
    }

    /// The language of the toasts from now on.
    var language = Language.japanese {
        didSet {
            guard language != oldValue else { return }
            texts = ToastTexts(language)
            notifier.use(texts)
        }
    }

    /// The service stays while a toast of ours can still be clicked, or is on its way.
    private func weigh() { hold.isHeld = !keeping.isEmpty || !handed.isEmpty || !delayed.isEmpty }

    /// What a member says of toasts counts less than what its batch was given.
    private func isWanted(_ entry: LedgerEntry) -> Bool {
        if let batch = entry.batch?.record { return foreground.allows(batch.notify, of: batch.app) }
        return foreground.allows(entry.record.options.notify, of: entry.record.options.app)
    }

    // MARK: While it lasts

    /// Bytes have come.
    func progress(_ download: ManagedDownload) {
        let number = download.record.batch ?? download.number
        if !waiting.isEmpty { goesOn(download.number) }
        if isWanted(download.entry) { progress.take(download) } else { progress.leave(number) }
    }

    /// The download is not active any more.
    func stopped(_ download: ManagedDownload) { progress.stopped(download) }

    /// It has another state: where it waits for its user, that is said once.
    func told(_ entry: LedgerEntry) {
        guard case .waiting(let reason, _) = entry.state, reason == .needsUrl || reason == .diskSpace else {
            if waiting[entry.number] != nil, !waitsStill(entry) { goesOn(entry.number) }
            return
        }
        let record = entry.record
        let toast = reason == .diskSpace ? Self.room : entry.batch?.number ?? entry.number
        guard isWanted(entry), waiting[entry.number] != toast else { return }
        goesOn(entry.number)
        waiting[entry.number] = toast
        waiters[toast, default: 0] += 1
        guard waiters[toast] == 1 else { return }
        let isSilent = (entry.batch?.record.sound ?? record.options.sound).isEmpty
        var words = EndToast(
            number: toast, kind: .waiting(Remedy(for: reason, of: record)), summary: texts.waitingSummary(reason),
            body: texts.waitingBody(fileName: record.shownName, reason, missing: record.lastFailure?.missingBytes),
            icon: record.options.icon, sound: isSilent ? "" : nil, host: entry.host)
        // That for room is of all that wait.
        if toast != Self.room { words.sandboxedApp = record.sandboxedApp }
        hand(words)
    }

    /// A look for room takes it out of its wait for a moment; no pause brings a link.
    private func waitsStill(_ entry: LedgerEntry) -> Bool {
        waiting[entry.number] == Self.room ? entry.state == .queued || entry.state == .active : entry.record.awaitsUrl
    }

    /// What it waited for is there, or it waits no more. The toast goes with the last that it is for.
    private func goesOn(_ number: DownloadNumber) {
        guard let toast = waiting.removeValue(forKey: number), let count = waiters[toast] else { return }
        waiters[toast] = count > 1 ? count - 1 : nil
        if count == 1 { notifier.withdraw(toast) }
    }

    /// Takes back what is on screen, or is to be.
    private func withdraw(_ number: DownloadNumber) {
        if let waiting = delayed.removeValue(forKey: number) { Poller.shared.cancel(waiting.timer) }
        if shown[number] != nil || handed[number] != nil { notifier.withdraw(number) }
        takeFromDesktop(number)
    }

    private func takeFromDesktop(_ number: DownloadNumber) {
        if bequeathed.remove(number) != nil { lasting.take(away: "\(number)") }
    }

    /// It had ended, and goes on: what was said of its end is not true any more.
    func began(_ entry: LedgerEntry) {
        withdraw(entry.number)
        if let batch = entry.batch { withdraw(batch.number) }
    }

    // MARK: Ends

    func ended(_ download: ManagedDownload) {
        progress.ended(download.number)
        goesOn(download.number)
        if let owed = download.entry.owedToast { show(owed, of: download.entry, after: download.record.options.notifyDelay) }
    }

    private func show(_ owed: Ledger.OwedToast, of entry: LedgerEntry, after delay: Duration) {
        var toast = endToast(of: entry)
        toast.sandboxedApp = entry.record.sandboxedApp
        show(owed, toast, after: delay, of: entry.record.options.app, entry.record.options.notify)
    }

    private func endToast(of entry: LedgerEntry) -> EndToast {
        let (record, options) = (entry.record, entry.record.options)
        guard let failure = entry.state.failure else {
            let path = record.path ?? ""
            return EndToast(
                number: entry.number, kind: .finished(path: path), summary: options.title ?? texts.finishedSummary,
                body: options.body ?? texts.finishedBody(fileName: Self.lastPart(path), size: record.total ?? 0),
                icon: options.icon, sound: options.sound, host: entry.host)
        }
        return EndToast(
            number: entry.number, kind: .failed(Remedy(after: failure, of: record)), summary: texts.failedSummary,
            body: texts.failedBody(fileName: record.shownName, failure: failure),
            icon: options.icon, sound: options.sound.isEmpty ? "" : nil, host: entry.host)
    }

    /// - Parameter end: nil where no toast is owed.
    func ended(_ batch: LedgerBatch, _ end: BatchEnd?) {
        progress.ended(batch.number)
        // It may have gone on, or been removed, before its end was on disk.
        if let end, end.owed == batch.owedToast { show(end, after: end.delay) }
    }

    /// The one toast of a batch: that it is there, or that nothing of it came.
    private func show(_ end: BatchEnd, after delay: Duration) {
        let (record, outcomes) = (end.record, end.outcomes)
        let hasFailed = outcomes.finished == 0
        let counts = texts.batchBody(outcomes, size: end.size, failure: end.failure)
        var toast = EndToast(
            number: record.number, kind: hasFailed ? .failed(end.remedy) : .finishedBatch(folder: record.directory),
            summary: hasFailed ? texts.failedSummary : record.title ?? texts.batchSummary(outcomes),
            body: outcomes.failed > 0 ? counts : record.body ?? counts, icon: record.icon,
            sound: hasFailed && !record.sound.isEmpty ? nil : record.sound)
        toast.sandboxedApp = end.sandboxedApp
        show(end.owed, toast, after: delay, of: record.app, record.notify)
    }

    private func show(_ owed: Ledger.OwedToast, _ toast: EndToast, after delay: Duration, of app: String, _ policy: NotifyPolicy) {
        // It came to the front while the end was brought to disk.
        guard foreground.allows(policy, of: app) else { return settle(owed) }
        guard delay > .zero else { return hand(toast, owed) }
        let number = toast.number
        let timer = Poller.shared.schedule(after: delay) { [self] in
            delayed[number] = nil
            if foreground.allows(policy, of: app) { hand(toast, owed) } else { settle(owed) }
        }
        delayed[number] = Delayed(toast: toast, owed: owed, app: app, policy: policy, timer: timer)
    }

    private func hand(_ toast: EndToast, _ owed: Ledger.OwedToast? = nil) {
        handed[toast.number, default: []].append((toast, owed))
        notifier.show(toast)
    }

    private func settle(_ owed: Ledger.OwedToast) {
        settled?(owed)
    }

    /// Shows what an earlier process owed, at its time where that is still to come.
    func resume(_ all: [Ledger.OwedToast], _ downloader: Downloader, now: WallTime) {
        for owed in all {
            func rest(of delay: Duration, _ app: String, _ policy: NotifyPolicy) -> Duration {
                // Of a clock that was set back since, no more is left than there was.
                max(min(delay - (now - owed.end), delay), policy == .background && !app.isEmpty ? Self.firstWords : .zero)
            }
            if let entry = downloader.ledger[owed.number], entry.owedToast == owed {
                let options = entry.record.options
                show(owed, of: entry, after: rest(of: options.notifyDelay, options.app, options.notify))
            } else if let batch = downloader.batch(owed.number), let end = BatchEnd(batch, batch.entry.outcomes), end.owed == owed {
                show(end, after: rest(of: end.delay, end.record.app, end.record.notify))
            }
        }
    }

    /// It is off the list.
    func removed(_ number: DownloadNumber) {
        progress.ended(number)
        goesOn(number)
        takeFromDesktop(number)
        guard let waiting = delayed.removeValue(forKey: number) else { return }
        Poller.shared.cancel(waiting.timer)
    }

    /// The app is in front: it shows itself what its toasts were to say.
    func cameToFront(_ app: String) {
        for (number, waiting) in delayed where waiting.app == app && waiting.policy == .background {
            delayed[number] = nil
            Poller.shared.cancel(waiting.timer)
            settled?(waiting.owed)
        }
    }

    // MARK: What the notifier tells

    func take(_ event: ToastEvent) {
        switch event {
        case .shown(let number, let isClickable):
            guard let (toast, owed) = handedOver(number) else { break }
            if let owed { settled?(owed) }
            forget(number)
            shown[number] = (toast, nil)
            guard isClickable else { break }
            shown[number]?.timer = Poller.shared.schedule(after: clickable) { [self] in bequeath(number) }
            keeping.insert(number)
        case .action(let number, let action, let token):
            guard let (toast, _) = shown[number] else { return }
            log.debug("toast clicked", metadata: ["download": "\(number)", "action": "\(action)"])
            perform(action, of: number, toast, token)
        case .closed(let number): forget(number)
        case .failed(let number):
            log.debug("toast not shown", metadata: ["download": "\(number)"])
            if let owed = handedOver(number)?.owed, !isEnding { settled?(owed) }
        case .progressDismissed: progress.dismissed()
        case .sounds(let name): sound.play(name)
        }
    }

    /// Nobody has clicked it for long, and it keeps the service no more: where the desktop can start us by a click, it answers for it from
    /// now on.
    private func bequeath(_ number: DownloadNumber) {
        // The desktop would have it as ours, or its click as the app's: one of an app in a sandbox is not handed over.
        guard let toast = shown[number]?.toast, toast.sandboxedApp == nil, let path = path(number) else { return release(number) }
        // As for the toast itself: what has failed is not tried again by a click that was meant to put it away.
        let (click, buttons): (ApplicationAction?, [(ApplicationAction, ToastAction)]) =
            switch toast.kind {
            case .finished: (.open, [(.showFolder, .showFolder)])
            case .finishedBatch: (.open, [])
            case .failed(.retry): (nil, [(.retry, .retry)])
            case .failed, .waiting: (nil, [])
            }
        BusActor.spawn { [self] in
            let isTaken = await lasting.put(
                "\(number)", title: toast.summary, body: toast.body, about: path, click: click?.rawValue,
                buttons: buttons.map { ($0.rawValue, texts.label(of: $1)) })
            // It may have been clicked, or taken back, meanwhile, and another may be in its place.
            guard shown[number]?.toast == toast else {
                if isTaken { lasting.take(away: "\(number)") }
                return
            }
            if isTaken {
                bequeathed.insert(number)
                notifier.withdraw(number)
            }
            release(number)
        }
    }

    /// It keeps the service no more.
    private func release(_ number: DownloadNumber) {
        keeping.remove(number)
        if keeping.isEmpty { endHandingOn() }
    }

    /// The service ends: nobody will answer for what can be clicked still but the desktop. `then` is called once that has it, or shortly.
    func handOn(then: @escaping () -> Void) {
        guard !keeping.isEmpty else { return then() }
        handedOn = then
        Poller.shared.schedule(after: Self.moment) { [self] in endHandingOn() }
        for number in keeping.sorted() { bequeath(number) }
    }

    private func endHandingOn() {
        let then = handedOn
        handedOn = nil
        then?()
    }

    private func perform(_ action: ToastAction, of number: DownloadNumber, _ toast: EndToast, _ token: String?) {
        let work: @BusActor @Sendable () async -> Opener.Outcome
        let isSandboxed = toast.sandboxedApp != nil
        switch (toast.kind, action) {
        case (.finished(let path), .open):
            opened?(number)
            let identity = file(number)
            work = { [opener] in
                await opener.open(path, activationToken: token, byPortal: isSandboxed) { Commit.isFinished($0, identity) }
            }
        case (.finished(let path), .showFolder): work = { [opener] in await opener.showInFolder(path, activationToken: token) }
        case (.finishedBatch(let folder), _), (.failed(.freeSpace(let folder)), _), (.waiting(.freeSpace(let folder)), _):
            work = { [opener] in await opener.openFolder(folder, activationToken: token) }
        case (.failed(.newLink(let page)), _), (.waiting(.newLink(let page)), _):
            work = { [opener] in await opener.openPage(page, activationToken: token, byPortal: isSandboxed) }
        case (.failed(.retry), _):
            retry?(number)
            return
        default: return
        }
        start? { [log] in
            guard await work() == .failed else { return }
            log.notice("a click opened nothing: no program could be started", metadata: ["download": "\(number)", "action": "\(action)"])
        }
    }

    /// What ended before this process began may have been handed over by one before it, which nobody has written down: of the newest, what
    /// was is taken back with them. Desktops keep few (GNOME Shell three of an application).
    func inherit(from downloader: Downloader) { bequeathed = Set(downloader.lastTold(most: 16)) }

    private func handedOver(_ number: DownloadNumber) -> (toast: EndToast, owed: Ledger.OwedToast?)? {
        guard var toasts = handed.removeValue(forKey: number) else { return nil }
        let first = toasts.removeFirst()
        if !toasts.isEmpty { handed[number] = toasts }
        return first
    }

    private func forget(_ number: DownloadNumber) {
        guard let (_, timer) = shown.removeValue(forKey: number) else { return }
        if let timer { Poller.shared.cancel(timer) }
        release(number)
    }

    private static func lastPart(_ path: String) -> String { path.pathComponents.last.map(String.init) ?? path }
}

extension Downloader {
    /// A click on the toast of its failure asked for it. A batch: all that failed of it.
    ///
    /// - Returns: whether there was anything to be tried again; it is too late where somebody else has.
    @discardableResult func retryByClick(_ number: DownloadNumber) -> Bool {
        let entries = ledger[number].map { [$0] } ?? ledger.batch(number).map { ledger.members(of: $0) } ?? []
        let failed = entries.filter { $0.state.failure.map { $0.name != .storage } ?? false }
        decide { ledger, now in
            for entry in failed { _ = try? ledger.apply(.retry, to: entry, now: now) }
            ledger.schedule(now: now)
        }
        return !failed.isEmpty
    }

    /// The newest downloads and batches, at most so many of each, of whose end there may have been a toast.
    func lastTold(most: Int) -> [DownloadNumber] {
        let downloads = ledger.ended.ordered.reversed().prefix(16 * most).filter { number in
            ledger[number].map { $0.batch == nil && $0.record.options.notify != .never } ?? false
        }
        let ofBatches = batches.values.filter { $0.entry.hasEnded && $0.record.notify != .never }.map(\.number).sorted(by: >)
        return Array(downloads.prefix(most)) + ofBatches.prefix(most)
    }
}

extension DownloadRecord {
    /// Whose it is, where an app in a sandbox queued it.
    var sandboxedApp: String? { options.isSandboxed ? options.app : nil }

    /// The file's name, or where it was to come from.
    fileprivate var shownName: String { fileName ?? redacted(url) }
}
