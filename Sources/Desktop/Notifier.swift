public import DownloadModel
public import EventLoop

/// Toasts through libnotify, on a thread of their own that starts with the first one.
///
/// Called from the bus loop; nothing waits. Order is kept. While a call to the server is under way, perhaps for 25 s, progress is merged
/// and end toasts wait, bounded (`ToastQueue`). Without libnotify, session bus or server, end toasts are reported as `failed` and that is all.
public actor Notifier {
    /// A call that took longer means that the server hangs. libnotify's own limit is 25 s.
    static let slowCall: Duration = .seconds(5)
    /// How long progress toasts are left out after a slow call, or where there is no server.
    static let progressPause: Duration = .seconds(60)
    /// How long a progress toast stays without news: one of a service that was killed goes away by itself.
    static let progressMilliseconds: Int32 = 30_000
    /// Most toasts that can be clicked at a time; beyond it the oldest stays on screen, but its click is not told.
    static let mostClickable = 64
    /// How long `shutDown` waits for progress toasts to go off the screen.
    static let shutDownWait: Duration = .seconds(1)
    /// Our desktop entry's name, without `.desktop`.
    private static let desktopEntry = "org.todoku.Downloader1"

    private struct Progress {
        let notification: Notification
        let serial: UInt64
        let owner: String
        var body: String
    }

    private struct Clickable {
        let notification: Notification
        let number: DownloadNumber
        let owner: String
        let actions: [(key: String, action: ToastAction)]
    }

    /// The bus loop's side.
    @BusActor private final class Outbox {
        var queue = ToastQueue()
        var isDelivering = false
        var finished: [@BusActor () -> Void] = []
        var texts: ToastTexts
        nonisolated init(texts: ToastTexts) { self.texts = texts }
    }

    private nonisolated let outbox: Outbox
    private nonisolated let loop: LoopExecutor
    private nonisolated let notifyLoop: NotifyLoop
    private nonisolated let report: @BusActor @Sendable (ToastEvent) -> Void

    private var texts: ToastTexts
    private var session: NotifySession?
    private var server: ToastServer?
    private var slowUntil = ContinuousClock.now
    private var serial: UInt64 = 0
    private var progress: [DownloadNumber: Progress] = [:]
    /// Downloads whose progress toast the user has put away: it does not come back.
    private var dismissed: Set<DownloadNumber> = []
    private var clickable: [UInt64: Clickable] = [:]

    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    /// - Parameter report: called on the bus loop, in the order of events.
    public init(texts: ToastTexts = .japanese, report: @escaping @BusActor @Sendable (ToastEvent) -> Void) {
        self.texts = texts
        outbox = Outbox(texts: texts)
        self.report = report
        let notifyLoop = NotifyLoop()
        self.notifyLoop = notifyLoop
        loop = LoopExecutor(wake: { notifyLoop.wake() }) { loop in
            startThread("todoku-notify") {
                notifyLoop.begin()
                loop.run { block in notifyLoop.turn(block: block, of: loop) }
            }
        }
    }

    // MARK: The bus loop's side

    /// The texts of toasts that are shown from now on.
    @BusActor public func use(_ texts: ToastTexts) { outbox.texts = texts }

    /// Shows or updates the progress toast of a download, where the server draws it well.
    @BusActor public func show(_ toast: ProgressToast) {
        outbox.queue.add(toast, at: .now)
        deliver()
    }

    /// Takes the progress toast of a download off the screen, if there is one.
    @BusActor public func closeProgress(_ number: DownloadNumber) {
        outbox.queue.closeProgress(number)
        deliver()
    }

    /// Closes the progress toast and shows how the download ended; always a new toast.
    @BusActor public func show(_ toast: EndToast) {
        if let dropped = outbox.queue.add(toast) { tell(.failed(dropped.number)) }
        deliver()
    }

    /// Shows nothing more and closes progress toasts; end toasts stay on screen. `finished` is called when that is done, or after
    /// `shutDownWait`: a server that hangs does not hold up an exit.
    @BusActor public func shutDown(finished: @escaping @BusActor @Sendable () -> Void = {}) {
        outbox.queue.finish()
        outbox.finished.append(finished)
        deliver()
        if outbox.isDelivering { Poller.shared.schedule(after: Self.shutDownWait) { self.finish() } } else { finish() }
    }

    @BusActor private func finish() {
        let waiting = outbox.finished
        outbox.finished = []
        for finished in waiting { finished() }
    }

    @BusActor private func deliver() {
        guard !outbox.isDelivering, !outbox.queue.isEmpty else { return }
        outbox.isDelivering = true
        BusActor.spawn { [self] in await deliverAll() }
    }

    @BusActor private func deliverAll() async {
        while let delivery = outbox.queue.next() {
            let gate = await perform(delivery, outbox.texts)
            outbox.queue.set(gate)
            // Without libnotify the thread has ended, and nothing may be sent to it again.
            if gate == .absent { for number in outbox.queue.dropAll() { tell(.failed(number)) } }
        }
        outbox.isDelivering = false
        finish()
    }

    private nonisolated func tell(_ event: ToastEvent) { BusActor.spawn { [report] in report(event) } }

    // MARK: The notify thread's side

    private func perform(_ delivery: ToastDelivery, _ texts: ToastTexts) -> ProgressGate {
        self.texts = texts
        guard notifyLoop.isLoaded else {
            if case .end(let toast) = delivery { tell(.failed(toast.number)) }
            return .absent
        }
        switch delivery {
        case .progress(let toast): return update(toast)
        case .closeProgress(let number): takeAway(number)
        case .closeAllProgress: for number in progress.keys { takeAway(number) }
        case .end(let toast): if !present(toast) { tell(.failed(toast.number)) }
        }
        return gate
    }

    private var gate: ProgressGate {
        if slowUntil > .now { return .closed(until: slowUntil) }
        guard let server else { return .open }
        return server.drawsProgress ? .open : .closedUntilServerChanges
    }

    private func update(_ toast: ProgressToast) -> ProgressGate {
        guard slowUntil <= .now else { return gate }
        guard let server = findServer() else { return .closed(until: .now + Self.progressPause) }
        guard server.drawsProgress, !dismissed.contains(toast.number) else { return gate }
        let summary = server.summary(texts.progressSummary)
        let body = server.body(texts.progressBody(toast))
        let icon = toast.icon ?? "folder-download"
        if let shown = progress[toast.number] {
            guard shown.body != body else { return gate }
            shown.notification.update(summary: summary, body: body, icon: icon)
            progress[toast.number]?.body = body
        } else {
            guard let notification = session?.makeNotification(summary: summary, body: body, icon: icon) else { return gate }
            serial += 1
            notification.set(category: "transfer", urgency: .low, milliseconds: Self.progressMilliseconds)
            notification.setHint("desktop-entry", Self.desktopEntry)
            notification.setHint("suppress-sound", true)
            notification.connectClosed(for: self, serial)
            progress[toast.number] = Progress(notification: notification, serial: serial, owner: server.owner, body: body)
        }
        guard let notification = progress[toast.number]?.notification else { return gate }
        notification.setHint("value", toast.percent.map { Int32($0) })
        if !timed({ notification.show() }) { progress[toast.number] = nil }
        return gate
    }

    private func takeAway(_ number: DownloadNumber) {
        dismissed.remove(number)
        guard let shown = progress.removeValue(forKey: number), shown.owner == session?.serverOwner() else { return }
        timed { shown.notification.close() }
    }

    private func present(_ toast: EndToast) -> Bool {
        guard let server = findServer() else { return false }
        let (category, usualIcon, usualSound) =
            switch toast.kind {
            case .finished, .finishedBatch: ("transfer.complete", "folder-download", "complete-download")
            case .failed: ("transfer.error", "dialog-error", "dialog-error")
            }
        let notification = session?.makeNotification(
            summary: server.summary(toast.summary), body: server.body(toast.body), icon: toast.icon ?? usualIcon)
        guard let notification else { return false }
        notification.set(category: category, urgency: .normal, milliseconds: -1)
        notification.setHint("desktop-entry", Self.desktopEntry)
        let sound = toast.sound ?? usualSound
        if sound.isEmpty { notification.setHint("suppress-sound", true) } else { notification.setHint("sound-name", sound) }
        if let host = toast.host { notification.setHint("x-kde-origin-name", host) }
        switch toast.kind {
        case .finished(let path), .finishedBatch(let path): notification.setHint("x-kde-urls", one: fileUri(path))
        case .failed: break
        }
        serial += 1
        let actions = server.actions(for: toast.kind)
        for (key, action) in actions {
            notification.addAction(key, label: action == .open ? texts.open : texts.showFolder, for: self, serial)
        }
        if !actions.isEmpty { notification.connectClosed(for: self, serial) }
        guard timed({ notification.show() }) else { return false }
        guard !actions.isEmpty else { return true }
        if clickable.count >= Self.mostClickable, let oldest = clickable.keys.min() { forget(oldest) }
        clickable[serial] = Clickable(notification: notification, number: toast.number, owner: server.owner, actions: actions)
        tell(.shown(toast.number))
        return true
    }

    /// The server that runs now; asks the bus each time and the server once. nil where there is none, or it does not answer.
    private func findServer() -> ToastServer? {
        if session == nil { session = NotifySession(for: self) }
        guard let session else { return nil }
        let owner = session.serverOwner()
        if let owner, let server, server.owner == owner { return server }
        if let server { serverChanged(from: server.owner) }
        guard let (name, vendor) = timed({ session.serverInformation() }) else { return nil }
        let capabilities = timed { session.serverCapabilities() }
        server = session.serverOwner().map { ToastServer(owner: $0, name: name, vendor: vendor, capabilities: capabilities) }
        return server
    }

    @discardableResult private func timed<R>(_ call: () -> R) -> R {
        let start = ContinuousClock.now
        let result = call()
        if start.duration(to: .now) > Self.slowCall { slowUntil = .now + Self.progressPause }
        return result
    }

    private func forget(_ serial: UInt64) {
        if let toast = clickable.removeValue(forKey: serial) { tell(.closed(toast.number)) }
    }

    // MARK: What the server tells

    /// A server that was there or a new one: toasts of the server `owner` are gone, and their numbers mean nothing to the next.
    func serverChanged(from owner: String) {
        if server?.owner == owner { server = nil }
        progress = progress.filter { $0.value.owner != owner }
        for (serial, toast) in clickable.sorted(by: { $0.key < $1.key }) where toast.owner == owner { forget(serial) }
        slowUntil = .now
        BusActor.spawn { [outbox] in outbox.queue.set(.open) }
    }

    /// The first click counts: GNOME tells one click once per update of the toast.
    func actionInvoked(_ serial: UInt64, key: String, token: String?) {
        guard let toast = clickable[serial], let action = toast.actions.first(where: { $0.key == key })?.action else { return }
        tell(.action(toast.number, action, activationToken: token))
        forget(serial)
    }

    func notificationClosed(_ serial: UInt64, byUser: Bool) {
        if let (number, _) = progress.first(where: { $0.value.serial == serial }) {
            progress[number] = nil
            if byUser { dismissed.insert(number) }
        }
        forget(serial)
    }
}
