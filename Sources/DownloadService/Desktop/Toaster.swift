internal import DBus
internal import Desktop
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Logging
internal import PartFiles
internal import Scheduling
internal import TransferEngine

/// Decides which toasts are shown, and carries out clicks on their buttons. The notifier shows the toasts on its own thread, so downloads
/// never wait for a toast.
@BusActor final class Toaster: DownloadObserver {
    /// A toast that is due some time after the end (option `notify-delay`).
    private struct Delayed {
        let toast: EndToast
        let owed: Scheduler.OwedToast
        let unlessInFront: String?
        let timer: Poller.Token
    }

    /// A toast that the notifier has neither shown nor refused yet.
    private struct Handed {
        let toast: EndToast
        /// The toast of an outcome is owed until it is shown or refused.
        let owed: Scheduler.OwedToast?
        /// The app that shows its outcomes itself while it is in front; nil: none does.
        let unlessInFront: String?
    }

    /// How long the end of the service waits for the desktop to take over toasts.
    private static let moment: Duration = .seconds(1)

    /// The number of the one toast for all downloads of the user that wait for room. No download has this number.
    private static let room = DownloadNumber(0)
    /// The numbers of such toasts for sandboxed apps. Each app has its own toast, because the toast carries the app's name. No download has
    /// these numbers either.
    private var rooms: [String: DownloadNumber] = [:]

    /// How long after startup the toasts of an earlier process wait, so that apps in front can report first.
    private static let firstWords: Duration = .seconds(1)

    /// How long, at most, a clickable toast keeps the service running.
    private let clickable: Duration
    private let session: Connection
    private lazy var notifier = Notifier { [session] in
        session
    } report: { [weak self] in
        self?.take($0)
    }
    private var texts = ToastTexts.japanese
    private let opener: Opener
    private let foreground: Foreground
    private let sound: Sound
    private let log: Logger
    private lazy var progress = ProgressToasts(notifier: notifier, list: list)
    /// The toasts on screen; clickable toasts with a timer.
    private var shown: [DownloadNumber: (toast: EndToast, timer: Poller.Token?)] = [:]
    /// The toasts on screen that keep the service running. Clicks on older toasts are answered while the service runs for another reason.
    private var keeping: Set<DownloadNumber> = [] { didSet { weigh() } }
    /// The toasts that the notifier has neither shown nor refused yet, in order. These toasts keep the service running, too.
    private var handed: [DownloadNumber: [Handed]] = [:] { didSet { weigh() } }
    private let lasting: LastingToasts
    /// The toasts that are being offered to the desktop, which has not answered yet.
    private var offered: [DownloadNumber: EndToast] = [:]
    /// The toasts that the desktop is known to have taken over.
    private var bequeathed: Set<DownloadNumber> = []
    private var delayed: [DownloadNumber: Delayed] = [:] { didSet { weigh() } }
    /// The downloads that wait for their user, with the number of the toast that says so. All downloads of the user, or of one sandboxed
    /// app, that wait for room share one toast. All members of a batch that wait for a link share one toast.
    private var waiting: [DownloadNumber: DownloadNumber] = [:]
    /// How many downloads each of these toasts is for.
    private var waiters: [DownloadNumber: Int] = [:]
    private let hold: IdleExit.Hold
    /// Called once the desktop has answered about all toasts that the ending service has offered, or after `moment`.
    private var handedOn: (() -> Void)?
    private let list: DownloadList
    private let events: any EventSink
    private let commands: Commands
    private let desktopWork: DesktopWork
    /// The apps that were in front when toasts that are not on screen yet were last checked.
    private var inFront: Set<String> = []

    init(
        list: DownloadList, events: any EventSink, commands: Commands, desktopWork: DesktopWork, foreground: Foreground,
        session: Connection, opener: Opener, clickable: Duration, hold: IdleExit.Hold, log: Logger
    ) {
        (self.list, self.events, self.commands, self.desktopWork) = (list, events, commands, desktopWork)
        (self.foreground, self.session) = (foreground, session)
        (self.opener, self.hold) = (opener, hold)
        lasting = LastingToasts(connection: session, application: BusName.service)
        (self.clickable, self.log) = (clickable, log)
        sound = Sound { log.debug("a sound was not played", metadata: ["error": "\($0)"]) }
        // An earlier process may have handed over toasts, and no row records which. So the newest ended downloads count as handed over, and
        // their toasts are withdrawn with them. Desktops keep few toasts (GNOME Shell three for an application).
        bequeathed = Set(list.lastTold(most: 16))
        setLanguage()
    }

    private var language = Language.japanese

    private func setLanguage() {
        guard list.settings.language != language else { return }
        language = list.settings.language
        texts = ToastTexts(language)
        notifier.use(texts)
    }

    /// Keeps the service running while a toast can be clicked, is delayed, or is being passed to the notification server.
    private func weigh() { hold.isHeld = !keeping.isEmpty || !handed.isEmpty || !delayed.isEmpty }

    /// The option `notify` of a batch overrides those of its members.
    private func isWanted(_ entry: ScheduledDownload) -> Bool {
        if let batch = entry.batch?.record { return foreground.allows(batch.notify, of: batch.app) }
        return foreground.allows(entry.record.options.notify, of: entry.record.options.app)
    }

    // MARK: While a download runs

    func progressed(_ downloads: [ManagedDownload]) { for download in downloads { progressed(download) } }
    func extracts(_ downloads: [ManagedDownload]) { for download in downloads { progressed(download) } }

    private func progressed(_ download: ManagedDownload) {
        let number = download.record.batch ?? download.number
        if !waiting.isEmpty { goesOn(download.number) }
        // A batch is shown without the names of its members.
        let isShown = download.record.batch != nil || !download.record.options.isPrivate
        if isShown, isWanted(download.entry) { progress.take(download) } else { progress.leave(number) }
    }

    /// The transfer of `download` has ended.
    func stopped(_ download: ManagedDownload) { progress.stopped(download) }

    func decided() {
        setLanguage()
        progress.settle()
        dropUnwanted()
    }

    /// The download has a new state. If it waits for its user, one toast says so.
    func told(_ entry: ScheduledDownload) {
        guard case .waiting(let reason, _) = entry.state, reason == .needsUrl || reason == .diskSpace else {
            if waiting[entry.number] != nil, !waitsStill(entry) { goesOn(entry.number) }
            return
        }
        let record = entry.record
        let toast = reason == .diskSpace ? room(for: record.sandboxedApp) : entry.batch?.number ?? entry.number
        guard waiting[entry.number] != toast else { return }
        goesOn(entry.number)  // also if no toast says what it waits for now
        guard isWanted(entry) else { return }
        waiting[entry.number] = toast
        waiters[toast, default: 0] += 1
        guard waiters[toast] == 1 else { return }
        let isSilent = (entry.batch?.record.sound ?? record.options.sound).isEmpty
        var words = EndToast(
            number: toast, kind: .waiting(Remedy(for: reason, of: record)), summary: texts.waitingSummary(reason),
            body: texts.waitingBody(fileName: record.shownName, reason, missing: record.lastFailure?.missingBytes),
            icon: record.options.icon, sound: isSilent ? "" : nil, host: record.options.isPrivate ? nil : entry.host)
        words.sandboxedApp = record.sandboxedApp
        hand(words)
    }

    private func room(for sandboxedApp: String?) -> DownloadNumber {
        guard let sandboxedApp else { return Self.room }
        if let number = rooms[sandboxedApp] { return number }
        let number = DownloadNumber(UInt64.max -| UInt64(clamping: rooms.count))
        rooms[sandboxedApp] = number
        return number
    }

    /// Whether the download still waits for its user. A check for room interrupts the wait only for a moment. A pause does not end a wait
    /// for a link.
    private func waitsStill(_ entry: ScheduledDownload) -> Bool {
        waiting[entry.number] == room(for: entry.record.sandboxedApp)
            ? entry.state == .queued || entry.state == .active : entry.record.awaitsUrl
    }

    /// The download no longer waits for its user. The last such download withdraws the toast.
    private func goesOn(_ number: DownloadNumber) {
        guard let toast = waiting.removeValue(forKey: number), let count = waiters[toast] else { return }
        waiters[toast] = count > 1 ? count - 1 : nil
        if count == 1 { notifier.withdraw(toast) }
    }

    /// Withdraws a toast that is on screen, is being passed to the notification server, or is delayed.
    private func withdraw(_ number: DownloadNumber) {
        if let waiting = delayed.removeValue(forKey: number) { Poller.shared.cancel(waiting.timer) }
        if shown[number] != nil || handed[number] != nil { notifier.withdraw(number) }
        takeFromDesktop(number)
    }

    private func takeFromDesktop(_ number: DownloadNumber) {
        if bequeathed.remove(number) != nil { lasting.take(away: "\(number)") }
    }

    func changed(_ change: Scheduler.Change) {
        // The toast of an end is wrong once the download has been restarted.
        let entry = change.entry
        if (change.before.state == .extracting) != (entry.state == .extracting) { progress.changedStage(entry) }
        guard change.before.state.hasEnded, !entry.state.hasEnded else { return }
        withdraw(entry.number)
        // While a member waits, the batch has not ended, and its toast is about the wait.
        if let batch = entry.batch, waiters[batch.number] == nil { withdraw(batch.number) }
    }

    // MARK: Ends

    func ended(_ download: ManagedDownload, _ owed: Scheduler.OwedToast?) {
        progress.ended(download.number)
        goesOn(download.number)
        // The download may have been restarted or removed before its end was on disk. It may also have ended again, with another toast.
        guard let owed, owed == download.entry.owedToast else { return }
        show(owed, of: download.entry, after: download.record.options.notifyDelay)
    }

    private func show(_ owed: Scheduler.OwedToast, of entry: ScheduledDownload, after delay: Duration) {
        var toast = endToast(of: entry)
        (toast.sandboxedApp, toast.identity) = (entry.record.sandboxedApp, entry.record.resume?.identity)
        show(owed, toast, after: delay, of: entry.record.options.app, entry.record.options.notify)
    }

    private func endToast(of entry: ScheduledDownload) -> EndToast {
        let (record, options) = (entry.record, entry.record.options)
        if options.isPrivate { return texts.privateToast(of: entry) }
        guard let failure = entry.state.failure else {
            let path = record.path ?? ""
            let (name, size) = (Self.lastPart(path), record.total ?? 0)
            return EndToast(
                number: entry.number, kind: .finished(path: path), summary: options.title ?? texts.finishedSummary,
                body: options.body
                    ?? (record.isUnpacked && record.resume != nil  // else the folder existed already (`skip`)
                        ? texts.unpackedBody(folderName: name, size: size) : texts.finishedBody(fileName: name, size: size)),
                icon: options.icon, sound: options.sound, host: entry.host)
        }
        return EndToast(
            number: entry.number, kind: .failed(Remedy(after: failure, of: record)), summary: texts.failedSummary,
            body: texts.failedBody(fileName: record.shownName, failure: failure),
            icon: options.icon, sound: options.sound.isEmpty ? "" : nil, host: entry.host)
    }

    func ended(_ batch: ScheduledBatch, _ end: BatchEnd?) {
        progress.ended(batch.number)
        // The batch may have been restarted or removed before its end was on disk.
        if let end, end.owed == batch.owedToast { show(end, after: end.delay) }
    }

    /// Shows the one toast of a batch, which says that its files have arrived, or that no file has.
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

    private func show(_ owed: Scheduler.OwedToast, _ toast: EndToast, after delay: Duration, of app: String, _ policy: NotifyPolicy) {
        // The app may have come to the front while the end was being saved.
        guard foreground.allows(policy, of: app) else { return settle(owed) }
        let silencer = policy == .background ? app : nil
        guard delay > .zero else { return hand(toast, owed, unlessInFront: silencer) }
        let number = toast.number
        let timer = Poller.shared.schedule(after: delay) { [self] in
            delayed[number] = nil
            if foreground.allows(policy, of: app) { hand(toast, owed, unlessInFront: silencer) } else { settle(owed) }
        }
        delayed[number] = Delayed(toast: toast, owed: owed, unlessInFront: silencer, timer: timer)
    }

    private func hand(_ toast: EndToast, _ owed: Scheduler.OwedToast? = nil, unlessInFront app: String? = nil) {
        handed[toast.number, default: []].append(Handed(toast: toast, owed: owed, unlessInFront: app))
        notifier.show(toast)
    }

    /// Says that a new version of an asset is ready, unless its app is in front.
    func ready(_ asset: AssetRecord) {
        let options = asset.options
        guard let version = asset.installed?.version, foreground.allows(options.notify, of: options.app) else { return }
        var toast = EndToast(
            number: commands.admission.takeNumbers(1), kind: .finishedBatch(folder: asset.path),
            summary: options.title ?? texts.assetSummary, body: options.body ?? "\(asset.key.name) \(DownloadModel.shown(version))",
            icon: options.icon, sound: options.sound)
        toast.sandboxedApp = options.isSandboxed ? options.app : nil
        hand(toast, unlessInFront: options.notify == .background ? options.app : nil)
    }

    private func settle(_ owed: Scheduler.OwedToast) {
        events.decide(.toastSettled(owed))
    }

    /// Shows the toasts that an earlier process owes. A delayed toast waits for the rest of its delay.
    func owed(_ all: [Scheduler.OwedToast]) {
        let now = WallTime.now
        for owed in all {
            func rest(of delay: Duration, _ app: String, _ policy: NotifyPolicy) -> Duration {
                // If the clock was set back, the rest must not exceed the whole delay.
                max(min(delay - (now - owed.end), delay), policy == .background && !app.isEmpty ? Self.firstWords : .zero)
            }
            if let entry = list.scheduler[owed.number], entry.owedToast == owed {
                let options = entry.record.options
                show(owed, of: entry, after: rest(of: options.notifyDelay, options.app, options.notify))
            } else if let batch = list.batch(owed.number), let end = BatchEnd(batch, batch.entry.outcomes, in: list.scheduler),
                end.owed == owed
            {
                show(end, after: rest(of: end.delay, end.record.app, end.record.notify))
            }
        }
    }

    func removed(_ entry: ScheduledDownload) { removed(entry.number, byItself: entry.hasLeftByItself) }
    func removed(_ batch: ManagedBatch) { removed(batch.number, byItself: batch.entry.hasLeftByItself) }

    /// The download or batch has left the list.
    ///
    /// - Parameter byItself: because it is private. It may have left before its delayed toast, which is still shown.
    private func removed(_ number: DownloadNumber, byItself: Bool) {
        progress.ended(number)
        goesOn(number)
        takeFromDesktop(number)
        guard !byItself, let waiting = delayed.removeValue(forKey: number) else { return }
        Poller.shared.cancel(waiting.timer)
    }

    /// Drops the toasts of apps that have come to the front, because these show their outcomes themselves: toasts that are delayed, or that
    /// no server has shown yet.
    private func dropUnwanted() {
        let apps = foreground.apps
        guard apps != inFront else { return }
        inFront = apps
        func isInFront(_ app: String?) -> Bool { app.map { apps.contains($0) } ?? false }
        for (number, waiting) in delayed where isInFront(waiting.unlessInFront) {
            delayed[number] = nil
            Poller.shared.cancel(waiting.timer)
            settle(waiting.owed)
        }
        for (number, toasts) in handed where toasts.contains(where: { isInFront($0.unlessInFront) }) { notifier.withdraw(number) }
    }

    // MARK: Events of the notifier

    func take(_ event: ToastEvent) {
        switch event {
        case .shown(let number, let isClickable):
            guard let first = handedOver(number) else { break }
            if let owed = first.owed { settle(owed) }
            forget(number)
            shown[number] = (first.toast, nil)
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
            if let owed = handedOver(number)?.owed, !list.scheduler.conditions.isEnding { settle(owed) }
        case .progressDismissed: progress.dismissed()
        case .sounds(let name): sound.play(name)
        }
    }

    /// The click grace period is over, so the toast no longer keeps the service running. Hands the toast to the desktop, if a click there
    /// can start us.
    private func bequeath(_ number: DownloadNumber) {
        // Never hand over the toast of a sandboxed app: the desktop would show it as ours, or send its click to the app.
        guard let (toast, timer) = shown[number], toast.sandboxedApp == nil, let path = path(of: number) else { return release(number) }
        // A desktop that hangs does not keep the service running. Its late answer counts nevertheless. Only the timer tells this toast from
        // an equal one of a later end.
        Poller.shared.scheduleAwake(after: LastingToasts.patience) { [self] in if shown[number]?.timer == timer { release(number) } }
        // After a second offer of the toast, its answer would come when the toast is closed, and delete the only copy.
        guard offered[number] != toast else { return }
        offered[number] = toast
        // A plain click retries nothing, on our toast or on the desktop's, because the user may have clicked to dismiss the toast.
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
            if offered[number] == toast { offered[number] = nil }
            // Meanwhile the toast may have been clicked, withdrawn or replaced. Another offer of this number has replaced the copy.
            guard shown[number]?.toast == toast else {
                if isTaken, offered[number] == nil { lasting.take(away: "\(number)") }
                return
            }
            if isTaken {
                bequeathed.insert(number)
                notifier.withdraw(number)
            }
            release(number)
        }
    }

    /// The toast no longer keeps the service running.
    private func release(_ number: DownloadNumber) {
        keeping.remove(number)
        if keeping.isEmpty { endHandingOn() }
    }

    /// The service ends, so only the desktop can answer clicks on its toasts: hands them over. Calls `then` when the desktop has answered,
    /// or after `moment`.
    func handOn(then: @escaping () -> Void) {
        guard !keeping.isEmpty else { return then() }
        handedOn = then
        Poller.shared.schedule(after: Self.moment) { [self] in endHandingOn() }
        for number in keeping.sorted() { bequeath(number) }
    }

    /// Closes progress toasts, and waits for the answer about the toast in flight.
    func shutDown(then: @escaping @BusActor @Sendable () -> Void) { notifier.shutDown(finished: then) }

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
            commands.noteOpened(number)
            work = { [opener] in
                await opener.open(path, activationToken: token, byPortal: isSandboxed) { Commit.proof($0, toast.identity) != .other }
            }
        case (.finished(let path), .showFolder): work = { [opener] in await opener.showInFolder(path, activationToken: token) }
        case (.finishedBatch(let folder), _), (.failed(.freeSpace(let folder)), _), (.waiting(.freeSpace(let folder)), _):
            work = { [opener] in await opener.openFolder(folder, activationToken: token) }
        case (.failed(.newLink(let page)), _), (.waiting(.newLink(let page)), _):
            work = { [opener] in await opener.openPage(page, activationToken: token, byPortal: isSandboxed) }
        case (.failed(.retry), _):
            commands.retryByClick(number)
            return
        default: return
        }
        desktopWork.start { [log] in
            guard await work() == .failed else { return }
            log.notice("a click opened nothing: no program could be started", metadata: ["download": "\(number)", "action": "\(action)"])
        }
    }

    /// The object of a download or batch; nil: it is off the list.
    private func path(of number: DownloadNumber) -> ObjectPath? { list.peek(number)?.path ?? list.batch(number)?.path }

    private func handedOver(_ number: DownloadNumber) -> Handed? {
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

extension DownloadRecord {
    /// The sandboxed app that queued the download; nil: none did.
    var sandboxedApp: String? { options.isSandboxed ? options.app : nil }
}
