internal import DBus
internal import Desktop
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Localization
internal import StatusNotifier
internal import TodokuClient

/// The tray: reads the service's state while a panel shows the tray, and carries out the user's clicks.
@BusActor final class Tray {
    /// Time between two overviews while bytes are received.
    static let lookInterval: Duration = .seconds(1)
    /// Least time between two overviews, whatever signals come.
    static let leastInterval: Duration = .milliseconds(500)
    /// How long the icon stays active after the last download ended.
    static let passiveDelay: Duration = .seconds(10)
    /// A wheel reports many steps at once; further steps within this time are ignored.
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
    private var assetWatch: Watch?
    private var assets: [AssetReference: AssetDescription] = [:]
    private var assetTimer: Poller.Token?
    private var isPresent = false
    private var overview: ServiceOverview?
    private var startsAtLogin = false
    private var failures: UnseenFailures
    /// When the last overview was begun; whether one is in flight; whether another must follow; and when it is scheduled.
    private var lastLook: ContinuousClock.Instant?
    private var isLooking = false
    private var wantsLook = false
    private var lookTimer: Poller.Token?
    private var idleTimer: Poller.Token?
    private var isPassive = true
    private var turn = 0
    private var drawn: (ring: ProgressRing, icon: IconPixmaps)?
    private var lastScroll: ContinuousClock.Instant?
    private let memory = MemoryRelease()

    /// - Parameters:
    ///   - connection: serves the item only.
    ///   - language: overrides the service's setting; nil: the setting applies.
    ///   - finish: ends the program with this status.
    init(_ client: DownloaderClient, on connection: Connection, language: Language?, finish: @escaping (Int32) -> Void) {
        (self.client, self.language, self.finish) = (client, language, finish)
        failures = UnseenFailures(since: WallTime(microseconds: wallClock()))
        let environment = processEnvironment()
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
        // GNOME's extension also reports `AboutToShow` when it loads the menu, each time the icon appears.
        menu.aboutToShow = { [unowned self] in if item.isFamiliar { wasOpened() } else if isPresent { look() } }
        readAutostart()
        restLater()
    }

    /// Gives memory back if the service is absent: then the tray rests until the next download, which may be hours later.
    private func restLater() { memory.later { [weak self] in self?.isPresent == false } }

    private static func ownProgram() -> String? {
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = readlink("/proc/self/exe", &buffer, buffer.count)
        return count > 0 ? String(decoding: buffer.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self) : nil
    }

    /// Whether panels will find our icon by name. If not, they would show a broken one.
    private static func findThemeIcon(_ environment: [String: String]) -> Bool {
        let home = environment["XDG_DATA_HOME"] ?? "\(Folders.home(environment))/.local/share"
        let system = environment["XDG_DATA_DIRS"].flatMap { $0.isEmpty ? nil : $0 } ?? "/usr/local/share:/usr/share"
        return ([home] + system.split(separator: ":").map(String.init)).contains { folder in
            access("\(folder)/icons/hicolor/scalable/apps/\(iconName).svg", R_OK) == 0
        }
    }

    // MARK: Reading the state

    /// Watches the service only while a panel exists, because the tray is invisible otherwise.
    private func panel(isThere: Bool) {
        menu.isWatched = isThere
        guard isThere else {
            if let assetTimer { Poller.shared.cancel(assetTimer) }
            assetTimer = nil
            watch?.stop()
            assetWatch?.stop()
            (watch, assetWatch, assets) = (nil, nil, [:])
            isPresent = false
            cancelLook()
            restLater()
            return
        }
        BusActor.spawn { [self] in
            let watch = await client.watchService { [weak self] news in BusActor.assumeIsolated { self?.take(news) } }
            if item.isRegistered, self.watch == nil { self.watch = watch } else { return watch.stop() }
            do throws(ClientError) {
                let assets = try await client.watchAssets { [weak self] news in BusActor.assumeIsolated { self?.take(news) } }
                if item.isRegistered, assetWatch == nil { assetWatch = assets } else { assets.stop() }
            } catch { complain(error) }
        }
    }

    private func take(_ news: AssetNews) {
        guard item.isRegistered else { return }
        switch news {
        case .changed(let asset):
            let before = assets.updateValue(asset, forKey: asset.reference)
            var same = before
            same?.progress = asset.progress
            guard same == asset else { return asset.stage.isUnderWay || before?.stage.isUnderWay == true ? show() : () }
            // Only the progress has changed: draw it at most once in each `lookInterval`.
            guard assetTimer == nil else { return }
            assetTimer = Poller.shared.schedule(after: Self.lookInterval) { [weak self] in
                self?.assetTimer = nil
                self?.show()
            }
        case .removed(let asset): if assets.removeValue(forKey: asset)?.stage.isUnderWay == true { show() }
        case .absent: assets = [:]
        case .lost: break  // the service's watch ends the program
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
            restLater()
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

    /// Reads the overview soon.
    private func look() {
        guard !isLooking else {
            wantsLook = true
            return
        }
        let due = lastLook.map { $0 + Self.leastInterval } ?? .now
        if due <= .now { lookNow() } else { lookAgain(at: due) }
    }

    /// Reads the overview at `due`, which replaces a later time.
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
            // Only the watch tells whether the service runs: a service that does not answer may just be slow.
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

    private var trayLook: TrayLook {
        TrayLook(
            overview, assets: assets.values.sorted { $0.reference.path < $1.reference.path }, isPresent: isPresent,
            unseenFailures: failures.count)
    }

    private func show() {
        let texts = TrayTexts(language ?? overview?.status.settings.language ?? .japanese)
        let look = trayLook
        keepActive(look)
        var appearance = StatusNotifierItem.Appearance()
        appearance.title = texts.title
        appearance.toolTip = ToolTip(title: texts.summary(look), text: texts.details(look))
        appearance.status = look.unseenFailures > 0 ? .needsAttention : isPassive ? .passive : .active
        appearance.icon = icon(look.ring(turn: turn))
        // The icon is static, because hosts read everything again at each change.
        if look.unseenFailures > 0 { appearance.attentionIcon = Self.attentionIcon }
        // Hosts prefer the name to our pixmaps, so set it only while nothing must be drawn.
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

    /// Reads the autostart entry in the pool, and updates the menu if it changed.
    private func readAutostart() {
        DiskPool.shared.perform(at: .path(autostart.path)) { [autostart] in
            autostart.isOn
        } then: { [weak self] isOn in
            guard let self, startsAtLogin != isOn else { return }
            startsAtLogin = isOn
            show()
        }
    }

    // MARK: Clicks

    /// The user opened the menu: earlier failures are no longer news.
    private func wasOpened() {
        readAutostart()
        markSeen()
        if isPresent {
            look()
        } else if !isLooking, overview.map({ $0.status.remaining > 0 }) ?? true {
            // Start the service only if it has not been seen yet, to show recent downloads and the settings, or if it left downloads
            // undone.
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
            // Ignore a middle click while nothing is running.
            if look.isPaused { carryOut(.resumeAll) } else if look.isBusy { carryOut(.pauseAll) }
        case .scroll(let delta, false): scroll(delta)
        case .contextMenu, .scroll: break
        }
    }

    private func scroll(_ delta: Int32) {
        let look = trayLook
        guard delta != 0, look.isBusy, lastScroll.map({ .now - $0 >= Self.scrollPause }) ?? true else { return }
        lastScroll = .now
        // Whoever turns the wheel has seen the icon, but no failure.
        if let limit = SpeedSteps.next(after: look.speedLimit, faster: delta > 0) { carryOut(.limitSpeed(limit), isClick: false) }
    }

    private func carryOut(_ wish: TrayWish, isClick: Bool = true) {
        let token = item.takeActivationToken()
        if isClick { markSeen() }
        BusActor.spawn { [self] in
            do throws(ClientError) {
                switch wish {
                case .pause(let download): try await client.pause(download)
                case .resume(let download): try await client.resume(download)
                case .cancel(let download): try await client.cancel(download)
                case .retry(let download): try await client.retry(download)
                // The answer comes with the end of the update; the watch tells its stages.
                case .update(let asset): BusActor.spawn { [client] in _ = try? await client.update(asset) }
                case .cancelUpdate(let asset): try await client.cancel(asset)
                case .pauseAll: try await client.pauseAll()
                case .resumeAll: try await client.resumeAll()
                case .limitSpeed(let limit): try await client.set(.speedLimit(limit))
                case .open(let download, let path): try await open(download, path, token)
                case .openDownloadFolder: await openDownloadFolder(token)
                case .startAtLogin(let isOn): setAutostart(isOn)
                case .quit: finish(0)
                }
            } catch { complain(error) }
            if isPresent { look() }
        }
    }

    /// Has the service open the file. Only the service knows whether `path` is still the downloaded file, and which app queued it.
    private func open(_ download: DownloadReference, _ path: String, _ token: String?) async throws(ClientError) {
        do throws(ClientError) { try await client.open(download, inFolder: false, activationToken: token) } catch {
            // The environment of the service may name no display.
            if await opener.showInFolder(path, activationToken: token) == .failed { throw error }
        }
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
        // The connection reports the end of the session.
        if error.cause != .busUnavailable { complain(error.message) }
    }

    private func complain(_ message: String) { Main.say("todoku-tray: \(message)\n", to: STDERR_FILENO) }
}
