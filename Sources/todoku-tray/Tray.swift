internal import DBus
internal import Desktop
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Localization
internal import StatusNotifier
internal import TodokuClient

/// The tray: looks at the service as long as a panel shows it, and carries out what is clicked.
@BusActor final class Tray {
    /// Between two looks while bytes come.
    static let lookInterval: Duration = .seconds(1)
    /// Between two looks at the least, however much is told.
    static let leastInterval: Duration = .milliseconds(500)
    /// For so long the icon stays when nothing is left to do.
    static let passiveDelay: Duration = .seconds(10)
    /// A wheel tells of many steps at once; for so long after one nothing more is taken.
    private static let scrollPause: Duration = .milliseconds(250)
    private static let iconName = "org.todoku.Downloader1"
    private static let attentionIcon = ProgressRing(sign: .attention, lit: .percent(100)).pixmaps

    private let client: DownloaderClient
    private let item: StatusNotifierItem
    private let menu: DBusMenu
    private let opener: Opener
    private let autostart: Autostart
    private let hasThemeIcon: Bool
    private let language: Language?
    private let finish: (Int32) -> Void

    private var watch: Watch?
    private var isPresent = false
    private var overview: ServiceOverview?
    private var startsAtLogin = false
    private var failures: UnseenFailures
    /// When the last look began; another one is under way, is wanted after it, or is scheduled.
    private var lastLook: ContinuousClock.Instant?
    private var isLooking = false
    private var wantsLook = false
    private var lookTimer: Poller.Token?
    private var idleTimer: Poller.Token?
    private var isPassive = true
    private var turn = 0
    private var drawn: (ring: ProgressRing, icon: IconPixmaps)?
    private var lastScroll: ContinuousClock.Instant?

    /// - Parameters:
    ///   - connection: for the item alone.
    ///   - language: whatever the service says; nil: as it says.
    ///   - finish: ends the program with this status.
    init(_ client: DownloaderClient, on connection: Connection, language: Language?, finish: @escaping (Int32) -> Void) {
        (self.client, self.language, self.finish) = (client, language, finish)
        failures = UnseenFailures(since: WallTime(microseconds: wallClock()))
        let environment = Folders.environment()
        opener = Opener(connection: connection, environment: environment)
        autostart = Autostart(
            environment: environment, home: Folders.home(environment), program: Self.ownProgram() ?? "todoku-tray")
        hasThemeIcon = Self.findThemeIcon(environment)
        menu = DBusMenu()
        menu.isWatched = false
        item = StatusNotifierItem("todoku-tray", on: connection, menu: menu, StatusNotifierItem.Appearance())
        show()
        item.registeredChanged = { [unowned self] in panel(isThere: $0) }
        item.received = { [unowned self] in take($0) }
        menu.opened = { [unowned self] in wasOpened() }
        // GNOME's extension says it also when it takes the menu in, as it does each time that the icon comes into sight.
        menu.aboutToShow = { [unowned self] in if item.isFamiliar { wasOpened() } else if isPresent { look() } }
        readAutostart()
    }

    private static func ownProgram() -> String? {
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = readlink("/proc/self/exe", &buffer, buffer.count)
        return count > 0 ? String(decoding: buffer.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self) : nil
    }

    /// Whether panels will find our icon by name; they show a broken one otherwise.
    private static func findThemeIcon(_ environment: [String: String]) -> Bool {
        let home = environment["XDG_DATA_HOME"] ?? "\(Folders.home(environment))/.local/share"
        let system = environment["XDG_DATA_DIRS"].flatMap { $0.isEmpty ? nil : $0 } ?? "/usr/local/share:/usr/share"
        return ([home] + system.split(separator: ":").map(String.init)).contains { folder in
            access("\(folder)/icons/hicolor/scalable/apps/\(iconName).svg", R_OK) == 0
        }
    }

    // MARK: Looking

    /// Without a panel nobody sees it, so nothing is listened to.
    private func panel(isThere: Bool) {
        menu.isWatched = isThere
        guard isThere else {
            watch?.stop()
            watch = nil
            isPresent = false
            cancelLook()
            return
        }
        BusActor.spawn { [self] in
            let watch = await client.watchService { [weak self] news in BusActor.assumeIsolated { self?.take(news) } }
            if item.isRegistered, self.watch == nil { self.watch = watch } else { watch.stop() }
        }
    }

    private func take(_ news: ServiceNews) {
        guard item.isRegistered else { return }
        switch news {
        case .present:
            isPresent = true
            look()
        case .absent:
            isPresent = false
            cancelLook()
            show()
        case .changed: look()
        case .ended(let download, let state):
            if state == .failed { failures.insert(download) } else { failures.remove(download) }
            look()
        case .removed(let download):
            failures.remove(download)
            look()
        case .lost: finish(0)
        }
    }

    private func cancelLook() {
        if let lookTimer { Poller.shared.cancel(lookTimer) }
        (lookTimer, wantsLook) = (nil, false)
    }

    /// Looks at the service, soon.
    private func look() {
        guard !isLooking else {
            wantsLook = true
            return
        }
        let due = lastLook.map { $0 + Self.leastInterval } ?? .now
        if due <= .now { lookNow() } else { lookAgain(at: due) }
    }

    /// An earlier time than the one that was planned counts.
    private func lookAgain(at due: ContinuousClock.Instant) {
        if let lookTimer { Poller.shared.cancel(lookTimer) }
        lookTimer = Poller.shared.schedule(at: due) { [self] in
            lookTimer = nil
            lookNow()
        }
    }

    private func lookNow(starting: Bool = false) {
        if let lookTimer { Poller.shared.cancel(lookTimer) }
        (lookTimer, isLooking, wantsLook, lastLook) = (nil, true, false, .now)
        BusActor.spawn { [self] in
            // Whether the service runs is the watch's word alone: one that does not answer may only be slow.
            var isUnanswered = false
            do throws(ClientError) {
                if starting { _ = try await client.status() }
                if let found = try await client.overview() { take(found) } else { isUnanswered = true }
            } catch { complain(error) }
            isLooking = false
            turn += 1
            show()
            guard isPresent else { return }
            let begun = lastLook ?? .now
            if wantsLook {
                lookAgain(at: begun + Self.leastInterval)
            } else if item.isRegistered, isUnanswered || overview.map({ $0.status.active > 0 }) ?? false {
                lookAgain(at: begun + Self.lookInterval)
            }
        }
    }

    private func take(_ found: ServiceOverview) {
        overview = found
        failures.take(found)
    }

    // MARK: Showing

    private var trayLook: TrayLook { TrayLook(overview, isPresent: isPresent, unseenFailures: failures.count) }

    private func show() {
        let texts = TrayTexts(language ?? overview?.status.settings.language ?? .japanese)
        let look = trayLook
        keepActive(look)
        var appearance = StatusNotifierItem.Appearance()
        appearance.title = texts.title
        appearance.toolTip = ToolTip(title: texts.summary(look), text: texts.details(look))
        appearance.status = look.unseenFailures > 0 ? .needsAttention : isPassive ? .passive : .active
        appearance.icon = icon(look.ring(turn: turn))
        // It stands still: hosts read everything again for each change.
        if look.unseenFailures > 0 { appearance.attentionIcon = Self.attentionIcon }
        // A name is preferred to what we draw, so there is one only where nothing is drawn.
        if !look.isBusy, !look.isPaused, look.unseenFailures == 0, hasThemeIcon { appearance.iconName = Self.iconName }
        item.show(appearance)
        menu.show(TrayMenu(look: look, texts: texts, startsAtLogin: startsAtLogin) { [weak self] in self?.carryOut($0) }.items)
    }

    private func icon(_ ring: ProgressRing) -> IconPixmaps {
        if let drawn, drawn.ring == ring { return drawn.icon }
        let icon = ring.pixmaps
        drawn = (ring, icon)
        return icon
    }

    private func keepActive(_ look: TrayLook) {
        if look.isBusy || look.unseenFailures > 0 {
            if let idleTimer { Poller.shared.cancel(idleTimer) }
            (idleTimer, isPassive) = (nil, false)
        } else if !isPassive, idleTimer == nil {
            idleTimer = Poller.shared.schedule(after: Self.passiveDelay) { [self] in
                (idleTimer, isPassive) = (nil, true)
                show()
            }
        }
    }

    /// Reads it in the pool, and shows what has changed.
    private func readAutostart() {
        DiskPool.shared.perform(at: .path(autostart.path)) { [autostart] in
            autostart.isOn
        } then: { [weak self] isOn in
            guard let self, startsAtLogin != isOn else { return }
            startsAtLogin = isOn
            show()
        }
    }

    // MARK: Being clicked

    /// Somebody looks: what failed until now is no news any more.
    private func wasOpened() {
        readAutostart()
        markSeen()
        if isPresent {
            look()
        } else if !isLooking, overview.map({ $0.status.remaining > 0 }) ?? true {
            // Opened before the service was ever met, what came last and the settings are worth a start; later, what is left undone.
            lookNow(starting: true)
        }
    }

    private func markSeen() {
        let wasNews = failures.count > 0
        failures.see(overview)
        if wasNews { show() }
    }

    private func take(_ gesture: StatusNotifierItem.Gesture) {
        switch gesture {
        case .activate: carryOut(.openDownloadFolder)
        case .secondaryActivate:
            let look = trayLook
            // By a slip of the finger nothing is to be held that nobody sees.
            if look.isPaused { carryOut(.resumeAll) } else if look.isBusy { carryOut(.pauseAll) }
        case .scroll(let delta, false): scroll(delta)
        case .contextMenu, .scroll: break
        }
    }

    private func scroll(_ delta: Int32) {
        let look = trayLook
        guard delta != 0, look.isBusy, lastScroll.map({ .now - $0 >= Self.scrollPause }) ?? true else { return }
        lastScroll = .now
        if let limit = SpeedSteps.next(after: look.speedLimit, faster: delta > 0) { carryOut(.limitSpeed(limit)) }
    }

    private func carryOut(_ wish: TrayWish) {
        let token = item.takeActivationToken()
        markSeen()
        BusActor.spawn { [self] in
            do throws(ClientError) {
                switch wish {
                case .pause(let download): try await client.pause(download)
                case .resume(let download): try await client.resume(download)
                case .cancel(let download): try await client.cancel(download)
                case .retry(let download): try await client.retry(download)
                case .pauseAll: try await client.pauseAll()
                case .resumeAll: try await client.resumeAll()
                case .limitSpeed(let limit): try await client.set(.speedLimit(limit))
                case .open(let path): await open(path, token)
                case .openDownloadFolder: await openDownloadFolder(token)
                case .startAtLogin(let isOn): setAutostart(isOn)
                case .quit: finish(0)
                }
            } catch { complain(error) }
            if isPresent { look() }
        }
    }

    private func open(_ path: String, _ token: String?) async {
        if await opener.open(path, activationToken: token) == .failed { complain("“\(path)” cannot be opened") }
    }

    private func openDownloadFolder(_ token: String?) async {
        let folder = overview?.status.settings.defaultDirectory ?? ""
        let path = folder.isEmpty ? Folders.downloads() : folder
        if await opener.openFolder(path, activationToken: token) == .failed { complain("“\(path)” cannot be opened") }
    }

    private func setAutostart(_ isOn: Bool) {
        DiskPool.shared.perform(at: .path(autostart.path)) { [autostart] in
            autostart.set(isOn)
        } then: { [weak self] isDone in
            guard let self else { return }
            if !isDone { complain("“\(autostart.path)” cannot be written") }
            readAutostart()
        }
    }

    private func complain(_ error: ClientError) {
        // The end of the session is told by the connection.
        if error.cause != .busUnavailable { complain(error.message) }
    }

    private func complain(_ message: String) { Main.say("todoku-tray: \(message)\n", to: STDERR_FILENO) }
}
