internal import DBus
internal import Desktop
internal import DownloadModel
internal import EventLoop
internal import Logging

/// Decides which toasts there are; the Notifier shows them on its own thread. Downloads never wait for it.
@BusActor final class Toaster {
    /// A progress toast is for what lasts longer than this, and is updated at most so often.
    private static let progressDelay: Duration = .seconds(2)
    private static let progressInterval: Duration = .milliseconds(500)

    /// For so long at most, a toast that can be clicked keeps the service.
    private let clickable: Duration
    private let notifier: Notifier
    private let texts = ToastTexts.japanese
    private let opener: Opener
    private let foreground: Foreground
    private let log: Logger
    private var shown: [DownloadNumber: (path: String, isFolder: Bool, timer: Poller.Token)] = [:]
    /// Those of them that keep the service. A click on an older one is answered as long as the service is there for another reason.
    private var keeping: Set<DownloadNumber> = []
    /// Toasts handed to the notifier whose fate is not told yet: they keep the service too.
    private var handed: [DownloadNumber: (path: String, isFolder: Bool)] = [:]
    private var progressing: Set<DownloadNumber> = []
    var changed: (() -> Void)?
    /// Called when a click opens the file of a download.
    var opened: ((DownloadNumber) -> Void)?

    init(notifier: Notifier, opener: Opener, foreground: Foreground, clickable: Duration, log: Logger) {
        (self.notifier, self.opener, self.foreground) = (notifier, opener, foreground)
        (self.clickable, self.log) = (clickable, log)
    }

    /// Whether a toast of ours can still be clicked, or is on its way.
    var keepsService: Bool { !keeping.isEmpty || !handed.isEmpty }

    /// Whether it is toasted: an app in front shows what happens itself.
    private func isWanted(_ policy: NotifyPolicy, of app: String) -> Bool {
        switch policy {
        case .always: true
        case .never: false
        case .background: !foreground.isInFront(app)
        }
    }

    func progress(_ download: ManagedDownload) {
        let options = download.record.options
        guard download.record.batch == nil else { return }  // a batch has one toast for all
        guard isWanted(options.notify, of: options.app) else { return stopped(download) }
        guard options.showProgress, let started = download.transferStarted else { return }
        let now = ContinuousClock.now
        guard now - started > Self.progressDelay else { return }
        if let last = download.progressToasted, now - last < Self.progressInterval { return }
        download.progressToasted = now
        progressing.insert(download.number)
        notifier.show(
            ProgressToast(
                number: download.number, fileName: download.record.fileName ?? "", received: download.received, total: download.total,
                icon: options.icon))
    }

    /// The download is not active any more.
    func stopped(_ download: ManagedDownload) {
        download.progressToasted = nil
        if progressing.remove(download.number) != nil { notifier.closeProgress(download.number) }
    }

    func ended(_ download: ManagedDownload) {
        stopped(download)
        let options = download.record.options
        guard download.record.batch == nil, isWanted(options.notify, of: options.app) else { return }
        let number = download.number
        let toast: EndToast
        switch download.state {
        // Nothing has come; or it is in the app's own file, where nobody can open it.
        case .finished where download.record.isUnchanged || download.record.isToDescriptor: return
        case .finished:
            let path = download.record.path ?? ""
            toast = EndToast(
                number: number, kind: .finished(path: path), summary: options.title ?? texts.finishedSummary,
                body: options.body ?? texts.finishedBody(fileName: Self.lastPart(path), size: download.record.total ?? 0),
                icon: options.icon, sound: options.sound, host: download.host)
            handed[number] = (path, false)
        case .failed(let failure):
            toast = EndToast(
                number: number, kind: .failed, summary: texts.failedSummary,
                body: texts.failedBody(fileName: download.record.fileName ?? redacted(download.record.url), failure: failure),
                icon: options.icon, sound: options.sound.isEmpty ? "" : nil, host: download.host)
        default: return
        }
        notifier.show(toast)
    }

    /// The one toast of a batch: that it is there, or that nothing of it came. What was cancelled altogether needs none, nor what was there
    /// already.
    func ended(_ end: BatchEnd) {
        let (record, outcomes) = (end.record, end.outcomes)
        guard isWanted(record.notify, of: record.app), end.hasNews || outcomes.failed > 0 else { return }
        let hasFailed = outcomes.finished == 0
        let counts = texts.batchBody(outcomes, size: end.size, failure: end.failure)
        if !hasFailed { handed[record.number] = (record.directory, true) }
        notifier.show(
            EndToast(
                number: record.number, kind: hasFailed ? .failed : .finishedBatch(folder: record.directory),
                summary: hasFailed ? texts.failedSummary : record.title ?? texts.batchSummary(outcomes),
                body: hasFailed ? counts : record.body ?? counts, icon: record.icon,
                sound: hasFailed && !record.sound.isEmpty ? nil : record.sound))
    }

    func removed(_ download: ManagedDownload) { stopped(download) }

    func take(_ event: ToastEvent) {
        switch event {
        case .shown(let number):
            guard let (path, isFolder) = handed.removeValue(forKey: number) else { return }
            let timer = Poller.shared.schedule(after: clickable) { [self] in
                keeping.remove(number)
                changed?()
            }
            shown[number] = (path, isFolder, timer)
            keeping.insert(number)
        case .action(let number, let action, let token):
            guard let (path, isFolder, _) = shown[number] else { return }
            log.debug("toast clicked", metadata: ["download": "\(number)", "action": "\(action)"])
            switch action {
            case _ where isFolder: BusActor.spawn { [opener] in _ = await opener.openFolder(path, activationToken: token) }
            case .open:
                opened?(number)
                BusActor.spawn { [opener] in _ = await opener.open(path, activationToken: token) }
            case .showFolder: BusActor.spawn { [opener] in _ = await opener.showInFolder(path, activationToken: token) }
            }
        case .closed(let number): forget(number)
        case .failed(let number): handed[number] = nil
        }
        changed?()
    }

    private func forget(_ number: DownloadNumber) {
        guard let (_, _, timer) = shown.removeValue(forKey: number) else { return }
        Poller.shared.cancel(timer)
        keeping.remove(number)
        changed?()
    }

    private static func lastPart(_ path: String) -> String { path.split(separator: "/").last.map(String.init) ?? path }
}
