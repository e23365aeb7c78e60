internal import DBus
internal import Desktop
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Logging

/// Decides which toasts there are, and does what their buttons ask for; the Notifier shows them on its own thread. Downloads never wait for it.
@BusActor final class Toaster {
    /// A toast that is to come a while after the end (option `notify-delay`).
    private struct Delayed {
        let toast: EndToast
        let owed: Ledger.OwedToast
        let app: String
        let policy: NotifyPolicy
        let timer: Poller.Token
    }

    /// So much after a start the toasts come that an earlier process owes: apps in front say by then that they are.
    private static let firstWords: Duration = .seconds(1)

    /// For so long at most, a toast that can be clicked keeps the service.
    private let clickable: Duration
    private let notifier: Notifier
    private var texts = ToastTexts.japanese
    private let opener: Opener
    private let foreground: Foreground
    private let sound = Sound()
    private let log: Logger
    let progress: ProgressToasts
    private var shown: [DownloadNumber: (toast: EndToast, timer: Poller.Token)] = [:]
    /// Those of them that keep the service. A click on an older one is answered as long as the service is there for another reason.
    private var keeping: Set<DownloadNumber> = []
    /// Toasts handed to the notifier whose fate is not told yet, in order: they keep the service too. Those of ends are owed.
    private var handed: [DownloadNumber: [(toast: EndToast, owed: Ledger.OwedToast?)]] = [:]
    private let lasting: LastingToasts
    /// Those that the desktop has taken over.
    private var bequeathed: Set<DownloadNumber> = []
    /// The object of a download or a batch; nil: it is off the list.
    var path: (DownloadNumber) -> ObjectPath? = { _ in nil }
    private var delayed: [DownloadNumber: Delayed] = [:]
    /// Downloads that wait for room. One toast is for all of them.
    private var roomless: Set<DownloadNumber> = []
    private var roomToast: DownloadNumber?
    /// Downloads that wait for a fresh link, and batches of which one has: each is told of once.
    private var linkless: Set<DownloadNumber> = []
    /// Tries a failed download, or what failed of a batch, again.
    var retry: ((DownloadNumber) -> Void)?
    var changed: (() -> Void)?
    /// What was owed was shown, or never will be.
    var settled: ((Ledger.OwedToast) -> Void)?
    /// What is not shown any more is owed still.
    var isEnding = false
    /// Called when a click opens the file of a download.
    var opened: ((DownloadNumber) -> Void)?

    init(
        notifier: Notifier, opener: Opener, foreground: Foreground, lasting: LastingToasts, clickable: Duration, log: Logger
    ) {
        (self.notifier, self.opener, self.foreground, self.lasting) = (notifier, opener, foreground, lasting)
        (self.clickable, self.log) = (clickable, log)
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

    /// Whether a toast of ours can still be clicked, or is on its way.
    var keepsService: Bool { !keeping.isEmpty || !handed.isEmpty || !delayed.isEmpty }

    /// What a member says of toasts counts less than what its batch was given.
    private func isWanted(_ entry: LedgerEntry) -> Bool {
        if let batch = entry.batch?.record { return foreground.allows(batch.notify, of: batch.app) }
        return foreground.allows(entry.record.options.notify, of: entry.record.options.app)
    }

    // MARK: While it lasts

    /// Bytes have come.
    func progress(_ download: ManagedDownload) {
        let number = download.record.batch ?? download.number
        if !roomless.isEmpty || !linkless.isEmpty { goesOn(download.number) }
        if isWanted(download.entry) { progress.take(download) } else { progress.leave(number) }
    }

    /// The download is not active any more.
    func stopped(_ download: ManagedDownload) { progress.stopped(download) }

    /// It has another state: where it waits for its user, that is said once.
    func told(_ entry: LedgerEntry) {
        guard case .waiting(let reason, _) = entry.state, reason == .needsUrl || reason == .diskSpace, isWanted(entry) else { return }
        let (record, number) = (entry.record, entry.batch?.number ?? entry.number)
        let isNews: Bool
        if reason == .needsUrl {
            isNews = linkless.insert(number).inserted
        } else {
            isNews = roomless.isEmpty
            roomless.insert(entry.number)
        }
        guard isNews else { return }
        if reason == .diskSpace { roomToast = number }
        let isSilent = (entry.batch?.record.sound ?? record.options.sound).isEmpty
        hand(
            EndToast(
                number: number, kind: .waiting(Remedy(for: reason, of: record)), summary: texts.waitingSummary(reason),
                body: texts.waitingBody(fileName: record.shownName, reason, missing: record.lastFailure?.missingBytes),
                icon: record.options.icon, sound: isSilent ? "" : nil, host: entry.host))
    }

    /// What it waited for is there, or it waits no more. Of a batch another member may wait for a link still.
    private func goesOn(_ number: DownloadNumber) {
        if roomless.remove(number) != nil, roomless.isEmpty, let toast = roomToast {
            roomToast = nil
            notifier.withdraw(toast)
        }
        if linkless.remove(number) != nil { notifier.withdraw(number) }
    }

    /// Takes back what is on screen, or is to be.
    private func withdraw(_ number: DownloadNumber) {
        if let waiting = delayed.removeValue(forKey: number) { Poller.shared.cancel(waiting.timer) }
        if shown[number] != nil || handed[number] != nil { notifier.withdraw(number) }
        takeFromDesktop(number)
        changed?()
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
        show(owed, endToast(of: entry), after: delay, of: entry.record.options.app, entry.record.options.notify)
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
        goesOn(batch.number)
        // It may have gone on, or been removed, before its end was on disk.
        if let end, end.owed == batch.owedToast { show(end, after: end.delay) }
    }

    /// The one toast of a batch: that it is there, or that nothing of it came.
    private func show(_ end: BatchEnd, after delay: Duration) {
        let (record, outcomes) = (end.record, end.outcomes)
        let hasFailed = outcomes.finished == 0
        let counts = texts.batchBody(outcomes, size: end.size, failure: end.failure)
        let toast = EndToast(
            number: record.number, kind: hasFailed ? .failed(end.remedy) : .finishedBatch(folder: record.directory),
            summary: hasFailed ? texts.failedSummary : record.title ?? texts.batchSummary(outcomes),
            body: hasFailed ? counts : record.body ?? counts, icon: record.icon,
            sound: hasFailed && !record.sound.isEmpty ? nil : record.sound)
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
        changed?()
    }

    private func hand(_ toast: EndToast, _ owed: Ledger.OwedToast? = nil) {
        handed[toast.number, default: []].append((toast, owed))
        notifier.show(toast)
        changed?()
    }

    private func settle(_ owed: Ledger.OwedToast) {
        settled?(owed)
        changed?()
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
        changed?()
    }

    /// The app is in front: it shows itself what its toasts were to say.
    func cameToFront(_ app: String) {
        for (number, waiting) in delayed where waiting.app == app && waiting.policy == .background {
            delayed[number] = nil
            Poller.shared.cancel(waiting.timer)
            settled?(waiting.owed)
        }
        changed?()
    }

    // MARK: What the notifier tells

    func take(_ event: ToastEvent) {
        switch event {
        case .shown(let number, let isClickable):
            guard let (toast, owed) = handedOver(number) else { break }
            if let owed { settled?(owed) }
            guard isClickable else { break }
            if let (_, timer) = shown[number] { Poller.shared.cancel(timer) }
            let timer = Poller.shared.schedule(after: clickable) { [self] in
                bequeath(number)
            }
            shown[number] = (toast, timer)
            keeping.insert(number)
        case .action(let number, let action, let token):
            guard let (toast, _) = shown[number] else { return }
            log.debug("toast clicked", metadata: ["download": "\(number)", "action": "\(action)"])
            perform(action, of: number, toast.kind, token)
        case .closed(let number): forget(number)
        case .failed(let number): if let owed = handedOver(number)?.owed, !isEnding { settled?(owed) }
        case .progressDismissed: progress.dismissed()
        case .sounds(let name): sound.play(name)
        }
        changed?()
    }

    /// Nobody has clicked it for long, and it keeps the service no more: where the desktop can start us by a click, it answers for it from now on.
    private func bequeath(_ number: DownloadNumber) {
        guard let toast = shown[number]?.toast, let path = path(number) else {
            keeping.remove(number)
            changed?()
            return
        }
        let actions: [(ApplicationAction, String)] =
            switch toast.kind {
            case .finished: [(.open, texts.open), (.showFolder, texts.showFolder)]
            case .finishedBatch: [(.open, texts.open)]
            case .failed(.retry): [(.retry, texts.label(of: .retry))]
            case .failed, .waiting: []
            }
        BusActor.spawn { [self] in
            let isTaken = await lasting.put(
                "\(number)", title: toast.summary, body: toast.body, actions: actions.map { ($0.rawValue, $1, path) })
            // It may have been clicked, or taken back, meanwhile.
            if isTaken, shown[number] == nil { lasting.take(away: "\(number)") }
            if isTaken, shown[number] != nil {
                bequeathed.insert(number)
                notifier.withdraw(number)
            }
            keeping.remove(number)
            changed?()
        }
    }

    private func perform(_ action: ToastAction, of number: DownloadNumber, _ kind: EndToast.Kind, _ token: String?) {
        switch (kind, action) {
        case (.finished(let path), .open):
            opened?(number)
            BusActor.spawn { [opener] in _ = await opener.open(path, activationToken: token) }
        case (.finished(let path), .showFolder): BusActor.spawn { [opener] in _ = await opener.showInFolder(path, activationToken: token) }
        case (.finishedBatch(let folder), _), (.failed(.freeSpace(let folder)), _), (.waiting(.freeSpace(let folder)), _):
            BusActor.spawn { [opener] in _ = await opener.openFolder(folder, activationToken: token) }
        case (.failed(.newLink(let page)), _), (.waiting(.newLink(let page)), _):
            BusActor.spawn { [opener] in _ = await opener.openPage(page, activationToken: token) }
        case (.failed(.retry), _): retry?(number)
        default: break
        }
    }

    private func handedOver(_ number: DownloadNumber) -> (toast: EndToast, owed: Ledger.OwedToast?)? {
        guard var toasts = handed.removeValue(forKey: number) else { return nil }
        let first = toasts.removeFirst()
        if !toasts.isEmpty { handed[number] = toasts }
        return first
    }

    private func forget(_ number: DownloadNumber) {
        guard let (_, timer) = shown.removeValue(forKey: number) else { return }
        Poller.shared.cancel(timer)
        keeping.remove(number)
        changed?()
    }

    private static func lastPart(_ path: String) -> String { path.split(separator: "/").last.map(String.init) ?? path }
}

extension Downloader {
    /// A click on the toast of its failure asked for it. A batch: all that failed of it.
    func retryByClick(_ number: DownloadNumber) {
        let entries = ledger[number].map { [$0] } ?? ledger.batch(number).map { ledger.members(of: $0) } ?? []
        decide { ledger, now in
            for entry in entries {
                guard let failure = entry.state.failure, failure.name != .storage else { continue }
                _ = try? ledger.apply(.retry, to: entry, now: now)  // it is too late where somebody else has
            }
            ledger.schedule(now: now)
        }
        residenceChanged?()
    }
}

extension DownloadRecord {
    /// The file's name, or where it was to come from.
    fileprivate var shownName: String { fileName ?? redacted(url) }
}
