public import DBus
public import DownloadModel
public import EventLoop

/// Shows toasts through libnotify, on its own thread, which starts with the first toast.
///
/// Call from the bus loop; no call blocks. Toasts keep their order. A call to the server may take 25 s. Meanwhile progress is merged, and
/// end toasts wait in a bounded `ToastQueue`.
/// If no server accepts an end toast, the next server shows the toast. After `patience` without any server the toast is reported as
/// `failed`.
/// Without a session bus, or with a server but without libnotify, an end toast fails at once.
///
/// `ToastServerPresence` knows on the bus loop whether a server is running. Without a server this thread does not start, and nothing polls.
public actor Notifier {
    /// The server hangs if a call takes longer. libnotify's own limit is 25 s.
    static let slowCall: Duration = .seconds(5)
    /// How long progress toasts are suppressed after a slow call or without a server.
    public static let progressPause: Duration = .seconds(60)
    /// How long an end toast waits for a server.
    public static let patience: Duration = .seconds(60)
    /// The shortest pause before a silent server is tried again.
    static let shortestPause: Duration = .seconds(2)
    /// The shortest time between two sounds. Of many simultaneous ends only one is heard.
    static let soundInterval: Duration = .seconds(1)
    /// How long a progress toast stays without an update. The toast of a killed service disappears by itself.
    static let progressMilliseconds: Int32 = 30_000
    /// Most end toasts whose clicks are tracked. The oldest toast beyond that stays on screen, but its click has no effect.
    static let mostShown = 64
    /// How long `shutDown` waits for the progress toast to close, and for the result of the toast in flight.
    static let shutDownWait: Duration = .seconds(2)
    /// Our desktop entry's name, without `.desktop`.
    private static let desktopEntry = "org.todoku.Downloader1"

    private struct Progress {
        let notification: Notification
        let serial: UInt64
        let owner: String
        let round: UInt64
        /// The sandboxed app that queued all downloads of this toast; nil: none or several.
        let sandboxedApp: String?
        let app: SandboxedApp?
        var texts: (summary: String, body: String)
    }

    private struct Shown {
        let notification: Notification
        let number: DownloadNumber
        let owner: String
        let actions: [(key: String, action: ToastAction)]
    }

    /// The state on the bus loop.
    @BusActor private final class Outbox {
        var queue = ToastQueue()
        var presence: ToastServerPresence?
        var isDelivering = false
        var finished: [@BusActor () -> Void] = []
        var expiry: Poller.Token?
        /// The download whose end toast is in flight, and whether that toast was withdrawn meanwhile.
        var current: DownloadNumber?
        var isCurrentWithdrawn = false
        var texts: ToastTexts
        nonisolated init(texts: ToastTexts) { self.texts = texts }
    }

    /// The result of sending an end toast.
    private enum Fate {
        case shown, failed
        /// No server answered, so the toast was not sent.
        case unsent
        /// The toast was sent to the server with this unique name, which may or may not show it.
        case unanswered(owner: String)
    }

    private nonisolated let outbox: Outbox
    private nonisolated let patience: Duration
    private nonisolated let pause: Duration
    private nonisolated let connect: @BusActor @Sendable () -> Connection?
    private nonisolated let loop: LoopExecutor
    private nonisolated let notifyLoop: NotifyLoop
    private nonisolated let report: @BusActor @Sendable (ToastEvent) -> Void

    private var texts: ToastTexts
    private var session: NotifySession?
    private var server: ToastServer?
    private var slowUntil = ContinuousClock.now
    private var serial: UInt64 = 0
    private var progress: Progress?
    /// The round of the progress toast that the user dismissed.
    private var dismissedRound: UInt64?
    /// End toasts on screen, by serial.
    private var shown: [UInt64: Shown] = [:]
    /// Withdrawn toasts that are still on screen: they are closed at `slowUntil`.
    private var overdue: [Shown] = []
    private var soundedAt: ContinuousClock.Instant?

    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    /// - Parameters:
    ///   - pause: how long a server is spared calls that nobody waits for, after one that took longer than `slowCall`.
    ///   - connect: returns a connection to the session bus, called with the first toast; nil: no session bus.
    ///   - report: called on the bus loop, in the order of events.
    public init(
        texts: ToastTexts = .japanese, patience: Duration = Notifier.patience, pause: Duration = Notifier.progressPause,
        connect: @escaping @BusActor @Sendable () -> Connection?,
        report: @escaping @BusActor @Sendable (ToastEvent) -> Void
    ) {
        (self.texts, self.patience, self.pause, self.connect) = (texts, patience, pause, connect)
        outbox = Outbox(texts: texts)
        self.report = report
        let notifyLoop = NotifyLoop()
        self.notifyLoop = notifyLoop
        loop = LoopExecutor(wake: { notifyLoop.wake() }) { loop in
            startThread("todoku-notify") {
                notifyLoop.begin()
                loop.run { block in
                    notifyLoop.turn(block: block, of: loop)
                    return .now
                }
            }
        }
    }

    // MARK: On the bus loop

    /// Sets the texts of all later toasts.
    @BusActor public func use(_ texts: ToastTexts) { outbox.texts = texts }

    /// Whether a progress toast would be shown now, as far as the bus loop knows.
    @BusActor public var wantsProgress: Bool { outbox.queue.wantsProgress(at: .now) }

    /// Shows or updates the progress toast, if the server draws progress well.
    @BusActor public func show(_ toast: ProgressToast) {
        outbox.queue.add(toast, at: .now)
        deliver()
    }

    /// Closes the progress toast, if any.
    @BusActor public func closeProgress() {
        outbox.queue.closeProgress()
        deliver()
    }

    /// Shows how a download ended, or why it waits for its user. Always a new toast.
    @BusActor public func show(_ toast: EndToast) {
        if let dropped = outbox.queue.add(toast, until: .now + patience) { tell(.failed(dropped.number)) }
        deliver()
    }

    /// Withdraws the end toast of `number`, shown or queued, because the toast is out of date.
    @BusActor public func withdraw(_ number: DownloadNumber) {
        for _ in 0..<outbox.queue.withdraw(number) { tell(.failed(number)) }
        if outbox.current == number { outbox.isCurrentWithdrawn = true }
        deliver()
    }

    /// Stops showing toasts, and closes the progress toast. End toasts stay on screen.
    ///
    /// - Parameter finished: called when the progress toast is closed and all reports are made. Called after `shutDownWait` at the
    ///   latest, so that a hanging server does not delay the exit.
    @BusActor public func shutDown(finished: @escaping @BusActor @Sendable () -> Void = {}) {
        outbox.queue.finish()
        outbox.finished.append(finished)
        deliver()
        if outbox.isDelivering { Poller.shared.schedule(after: Self.shutDownWait) { self.finish() } } else { finish() }
    }

    @BusActor private func finish() {
        guard !outbox.finished.isEmpty else { return }
        let waiting = outbox.finished
        outbox.finished = []
        // Call `finished` after all reports: only spawned bodies keep their order among each other.
        BusActor.spawn { for finished in waiting { finished() } }
    }

    @BusActor private func deliver() {
        guard !outbox.isDelivering, !outbox.queue.isEmpty else { return }
        guard let presence = presence() else { return failAll() }
        switch presence.isThere {
        case true?:
            outbox.isDelivering = true
            BusActor.spawn { [self] in await deliverAll() }
        // Ask the bus again if an end toast waits, because a server may have become activatable, which no signal reports.
        case false? where !outbox.queue.hasEnd: keepForServer()
        default:
            presence.ask { [self] answer in
                switch answer {
                case .there: deliver()
                case .missing: keepForServer()
                case .noBus: failAll()
                }
            }
        }
    }

    @BusActor private func presence() -> ToastServerPresence? {
        if let presence = outbox.presence { return presence }
        outbox.presence = connect().map { connection in
            ToastServerPresence(on: connection) { [weak self] isThere in
                guard let self else { return }
                if isThere { return serverCame() }
                // No server is left to retry.
                outbox.queue.serverLeft()
                awaitExpiry()
            }
        }
        return outbox.presence
    }

    /// There is no server: keeps end toasts for the next one, and drops the rest.
    @BusActor private func keepForServer() {
        for dropped in outbox.queue.keepForServer() { tell(.failed(dropped.number)) }
        awaitExpiry()
    }

    @BusActor private func failAll() { for number in outbox.queue.dropAll() { tell(.failed(number)) } }

    @BusActor private func deliverAll() async {
        while outbox.presence?.isThere == true, let delivery = outbox.queue.next() {
            if case .end(let toast, _) = delivery { (outbox.current, outbox.isCurrentWithdrawn) = (toast.number, false) }
            let (gate, fate) = await perform(delivery, outbox.texts)
            outbox.queue.set(gate)
            if case .end(let toast, let until) = delivery { settle(toast, until, fate) }
            // `.absent`: the notify thread has ended, because libnotify is missing or the service exits.
            if gate == .absent { failAll() }
        }
        outbox.isDelivering = false
        finish()
        deliver()  // the server may have gone with toasts left in the queue
    }

    @BusActor private func settle(_ toast: EndToast, _ until: ContinuousClock.Instant, _ fate: Fate) {
        outbox.current = nil
        switch fate {
        case .shown: outbox.queue.serverAnswered()
        case .failed: tell(.failed(toast.number))
        case .unsent where outbox.isCurrentWithdrawn, .unanswered where outbox.isCurrentWithdrawn: tell(.failed(toast.number))
        case .unsent:
            // No signal tells when a stalled server answers again. So retry after half of the remaining time, repeatedly.
            let now = ContinuousClock.now
            let half = (until - now) / 2
            hold(toast, until, again: outbox.presence?.isThere != true ? nil : half > Self.shortestPause ? now + half : until)
        case .unanswered(let owner):
            // The next server may have come while the toast was in flight.
            let isReplaced = outbox.presence?.owner.map { $0 != owner } ?? false
            hold(toast, until, again: isReplaced ? .now : nil)
        }
    }

    @BusActor private func hold(_ toast: EndToast, _ until: ContinuousClock.Instant, again: ContinuousClock.Instant?) {
        if let dropped = outbox.queue.hold(toast, until: until, again: again) { tell(.failed(dropped.number)) }
        awaitExpiry()
    }

    @BusActor private func awaitExpiry() {
        if let timer = outbox.expiry { Poller.shared.cancel(timer) }
        outbox.expiry = outbox.queue.expiry.map { time in
            Poller.shared.schedule(at: time) { [self] in
                outbox.expiry = nil
                for toast in outbox.queue.expire(at: .now) { tell(.failed(toast.number)) }
                outbox.queue.tryAgain(at: .now)
                awaitExpiry()
                deliver()
            }
        }
    }

    @BusActor private func serverCame() {
        outbox.queue.serverCame()
        deliver()
    }

    private nonisolated func tell(_ event: ToastEvent) { BusActor.spawn { [report] in report(event) } }

    // MARK: On the notify thread

    private func perform(_ delivery: ToastDelivery, _ texts: ToastTexts) -> (ProgressGate, Fate) {
        self.texts = texts
        guard notifyLoop.isLoaded else { return (.absent, .failed) }
        var fate = Fate.shown
        switch delivery {
        case .progress(let toast): return (update(toast), fate)
        case .closeProgress: takeAwayProgress()
        case .end(let toast, let until): fate = until > .now ? present(toast) : .failed
        case .withdraw(let number): takeAway(number)
        }
        return (gate, fate)
    }

    private var gate: ProgressGate {
        if slowUntil > .now { return .closed(until: slowUntil) }
        guard let server else { return .open }
        return server.drawsProgress ? .open : .closedUntilServerChanges
    }

    private func update(_ toast: ProgressToast) -> ProgressGate {
        guard slowUntil <= .now else { return gate }
        guard let server = findServer() else { return .closed(until: .now + Self.progressPause) }
        guard server.drawsProgress, toast.round != dismissedRound else { return gate }
        // A server keeps the name and desktop entry of a toast, so a toast of another app must be a new toast.
        if let progress, progress.sandboxedApp != toast.sandboxedApp { takeAwayProgress() }
        let app = progress == nil ? toast.sandboxedApp.map { SandboxedApp($0, locale: texts.locale) } : progress?.app
        let summary = server.summary(texts.progressSummary(toast))
        let body = server.body(texts.progressBody(toast), of: app)
        let icon = toast.icon ?? "folder-download"
        if let progress {
            guard progress.texts != (summary, body) else { return gate }
            progress.notification.update(summary: summary, body: body, icon: icon)
            self.progress?.texts = (summary, body)
        } else {
            guard let notification = session?.makeNotification(summary: summary, body: body, icon: icon) else { return gate }
            serial += 1
            notification.set(category: "transfer", urgency: .low, milliseconds: Self.progressMilliseconds)
            if let app { notification.setAppName(server.summary(app.name)) }
            notification.setHint("desktop-entry", app?.entry ?? Self.desktopEntry)
            notification.setHint("suppress-sound", true)
            notification.setHint("transient", true)  // keep the toast out of the server's history
            notification.connectClosed(for: self, serial)
            progress = Progress(
                notification: notification, serial: serial, owner: server.owner, round: toast.round, sandboxedApp: toast.sandboxedApp,
                app: app,
                texts: (summary, body))
        }
        guard let notification = progress?.notification else { return gate }
        notification.setHint("value", toast.percent.map { Int32(clamping: $0) })
        if !timed({ notification.show() }) { progress = nil }
        return gate
    }

    private func takeAwayProgress() {
        guard let gone = progress else { return }
        progress = nil
        guard gone.owner == session?.serverOwner() else { return }
        timed { gone.notification.close() }
    }

    /// Closes the earlier end toast of a download. A click on that toast is no longer reported, because its outcome is out of date.
    private func takeAway(_ number: DownloadNumber) {
        guard let (serial, toast) = shown.first(where: { $0.value.number == number }) else { return }
        forget(serial)
        guard let server, server.traits.takesAway, toast.owner == session?.serverOwner() else { return }
        guard slowUntil > .now else { return timed { toast.notification.close() } }
        // A call to a server that hangs would delay all toasts by 25 s.
        overdue.append(toast)
        if overdue.count == 1 { closeOverdueLater() }
    }

    private func closeOverdueLater() {
        let time = slowUntil
        BusActor.spawn { [weak self] in
            Poller.shared.schedule(at: time) { BusActor.spawn { await self?.closeOverdue() } }
        }
    }

    private func closeOverdue() {
        while slowUntil <= .now, let toast = overdue.popLast() {
            if toast.owner == session?.serverOwner() { timed { toast.notification.close() } }
        }
        if !overdue.isEmpty { closeOverdueLater() }
    }

    private func present(_ toast: EndToast) -> Fate {
        guard let server = findServer() else { return session?.isClosed ?? true ? .failed : .unsent }
        let (category, usualIcon, usualSound) =
            switch toast.kind {
            case .finished, .finishedBatch: ("transfer.complete", "folder-download", "complete-download")
            case .failed: ("transfer.error", "dialog-error", "dialog-error")
            case .waiting: ("transfer.error", "dialog-warning", "dialog-warning")
            }
        let app = toast.sandboxedApp.map { SandboxedApp($0, locale: texts.locale) }
        let notification = session?.makeNotification(
            summary: server.summary(toast.summary), body: server.body(toast.body, of: app), icon: toast.icon ?? usualIcon)
        guard let notification else { return .failed }
        if let app { notification.setAppName(server.summary(app.name)) }
        takeAway(toast.number)
        notification.set(category: category, urgency: .normal, milliseconds: -1)
        notification.setHint("desktop-entry", app?.entry ?? Self.desktopEntry)
        let sound = toast.sound ?? usualSound
        let isHeard = !sound.isEmpty && soundedAt.map { .now - $0 >= Self.soundInterval } ?? true
        let isOurs = server.traits.sounds == .ours
        if !sound.isEmpty { notification.setHint("sound-name", sound) }
        if isOurs || !isHeard { notification.setHint("suppress-sound", true) }
        if let host = toast.host { notification.setHint("x-kde-origin-name", host) }
        switch toast.kind {
        case .finished(let path), .finishedBatch(let path): notification.setHint("x-kde-urls", one: fileURI(of: path))
        case .failed, .waiting: break
        }
        serial += 1
        let actions = server.actions(for: toast.kind)
        for (key, action) in actions { notification.addAction(key, label: texts.label(of: action), for: self, serial) }
        notification.connectClosed(for: self, serial)
        guard timed({ notification.show() }) else { return .unanswered(owner: server.owner) }
        if isHeard {
            soundedAt = .now
            if isOurs { tell(.sounds(sound)) }
        }
        if shown.count >= Self.mostShown, let oldest = shown.keys.min() { forget(oldest) }
        shown[serial] = Shown(notification: notification, number: toast.number, owner: server.owner, actions: actions)
        tell(.shown(toast.number, isClickable: !actions.isEmpty))
        return .shown
    }

    /// The running server; asks the bus each time, and a new server once for its details. nil if there is none, or it does not answer.
    private func findServer() -> ToastServer? {
        if session == nil { session = NotifySession(for: self) }
        guard let session else { return nil }
        if let owner = session.serverOwner(), let server, server.owner == owner { return server }
        if let server { serverChanged(from: server.owner) }
        guard let (name, vendor) = timed({ session.serverInformation() }), let owner = session.serverOwner(),
            let capabilities = timed({ session.serverCapabilities(of: owner) })
        else { return nil }
        server = ToastServer(owner: owner, name: name, vendor: vendor, capabilities: capabilities)
        return server
    }

    @discardableResult private func timed<R>(_ call: () -> R) -> R {
        let start = ContinuousClock.now
        let result = call()
        if start.duration(to: .now) > Self.slowCall { slowUntil = .now + pause }
        return result
    }

    private func forget(_ serial: UInt64) {
        if let toast = shown.removeValue(forKey: serial) { tell(.closed(toast.number)) }
    }

    // MARK: Reports from the server

    /// The server `owner` has gone (empty: there was none), or `next` has replaced it. The toasts of `owner` are void, because their
    /// numbers mean nothing to the next server.
    func serverChanged(from owner: String, to next: String = "") {
        if server?.owner == owner { server = nil }
        if progress?.owner == owner { progress = nil }
        overdue.removeAll { $0.owner == owner }
        for (serial, toast) in shown.sorted(by: { $0.key < $1.key }) where toast.owner == owner { forget(serial) }
        slowUntil = .now
        // The bus loop releases the held toasts itself, perhaps before this thread hears of the new server.
        // So reopen the gate, which this thread may have closed since.
        if !next.isEmpty { BusActor.spawn { [self] in outbox.queue.set(.open) } }
    }

    /// Only the first click counts: GNOME Shell reports one click once per update of the toast.
    func actionInvoked(_ serial: UInt64, key: String, token: String?) {
        guard let toast = shown[serial], let action = toast.actions.first(where: { $0.key == key })?.action else { return }
        tell(.action(toast.number, action, activationToken: token))
        forget(serial)
    }

    func notificationClosed(_ serial: UInt64, byUser: Bool) {
        if let gone = progress, gone.serial == serial {
            progress = nil
            if byUser {
                dismissedRound = gone.round
                tell(.progressDismissed)
            }
        }
        forget(serial)
    }
}
