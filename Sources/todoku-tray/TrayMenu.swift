internal import DownloadModel
internal import EventLoop
internal import StatusNotifier
internal import TodokuClient

/// A user's action in the menu or on the icon.
enum TrayWish: Equatable, Sendable {
    case pause(DownloadReference)
    case resume(DownloadReference)
    case cancel(DownloadReference)
    case retry(DownloadReference)
    case update(AssetReference)
    case cancelUpdate(AssetReference)
    /// `path`: the absolute path of the finished file.
    case open(DownloadReference, path: String)
    case pauseAll
    case resumeAll
    case openDownloadFolder
    case limitSpeed(Speed)
    case startAtLogin(Bool)
    case quit
}

/// The menu for the tray's state. Pure.
struct TrayMenu {
    let look: TrayLook
    let texts: TrayTexts
    let startsAtLogin: Bool
    let wish: @BusActor @Sendable (TrayWish) -> Void

    var items: [MenuItem] {
        var head = MenuItem("summary", texts.line(look))
        head.isEnabled = false
        var items = [head]
        if !look.current.isEmpty || !look.assets.isEmpty {
            items.append(.separator("above-current"))
            items += look.assets.map(updating)
            items += look.current.map(running)
            if look.moreCurrent > 0 {
                var more = MenuItem("more", texts.more(look.moreCurrent))
                more.isEnabled = false
                items.append(more)
            }
        }
        items.append(.separator("above-all"))
        var all = entry("all", look.isPaused ? texts.resumeAll : texts.pauseAll, look.isPaused ? .resumeAll : .pauseAll)
        all.iconName = look.isPaused ? "media-playback-start" : "media-playback-pause"
        items.append(all)
        if !look.recent.isEmpty {
            var recent = MenuItem("recent", texts.recent)
            recent.children = look.recent.map(ended)
            items.append(recent)
        }
        var folder = entry("folder", texts.openFolder, .openDownloadFolder)
        folder.iconName = "folder-open"
        items.append(folder)
        items.append(.separator("above-settings"))
        items.append(speedLimit)
        var login = entry("login", texts.startAtLogin, .startAtLogin(!startsAtLogin))
        login.toggle = .check(startsAtLogin)
        items.append(login)
        items.append(entry("quit", texts.quit, .quit))
        return items
    }

    private func entry(_ key: String, _ label: String, _ wish: TrayWish) -> MenuItem {
        let carryOut = self.wish
        return MenuItem(key, label) { carryOut(wish) }
    }

    private func running(_ download: DownloadDescription) -> MenuItem {
        let (reference, key) = (download.reference, download.reference.path)
        var item = MenuItem(key, texts.line(download))
        item.children = [
            steer(download, key),
            entry(key + "/cancel", texts.cancel, .cancel(reference)),
        ]
        return item
    }

    /// The entry that pauses or resumes a download.
    private func steer(_ download: DownloadDescription, _ key: String) -> MenuItem {
        let reference = download.reference
        let go: (label: String, wish: TrayWish) =
            switch (download.state, download.waitReason) {
            case (.paused, _): (texts.resume, .resume(reference))
            // A download that is paused with all others cannot be resumed alone.
            case (_, "paused-all"): (texts.resumeAll, .resumeAll)
            default: (texts.pause, .pause(reference))
            }
        return entry(key + "/go", go.label, go.wish)
    }

    private func updating(_ asset: AssetDescription) -> MenuItem {
        let key = asset.reference.path
        let download = look.downloads.first { $0.reference == asset.download }
        var item = MenuItem(key, texts.line(asset, download))
        if let download, asset.stage == .downloading { item.children.append(steer(download, key)) }
        item.children.append(entry(key + "/cancel", texts.cancel, .cancelUpdate(asset.reference)))
        return item
    }

    /// A click opens the file, or retries the download. No submenu, because GNOME shows no submenu inside another.
    private func ended(_ download: DownloadDescription) -> MenuItem {
        let key = "recent" + download.reference.path
        if let asset = look.owners[download.reference] { return entry(key, texts.retryLine(asset), .update(asset.reference)) }
        if download.state == .failed { return entry(key, texts.retryLine(download), .retry(download.reference)) }
        if let path = download.path { return entry(key, texts.line(download), .open(download.reference, path: path)) }
        // It was downloaded into a caller's descriptor.
        var item = MenuItem(key, texts.line(download))
        item.isEnabled = false
        return item
    }

    private var speedLimit: MenuItem {
        var limits = [0] + SpeedSteps.offered
        if !limits.contains(look.speedLimit) { limits.append(look.speedLimit) }
        limits.sort { ($0 == 0 ? .max : $0) > ($1 == 0 ? .max : $1) }
        var menu = MenuItem("limit", texts.speedLimit)
        menu.children = limits.map { limit in
            var item = entry("limit/\(limit)", limit == 0 ? texts.noLimit : texts.limit(limit), .limitSpeed(limit))
            item.toggle = .radio(limit == look.speedLimit)
            return item
        }
        return menu
    }
}
