internal import DownloadModel
internal import Localization
internal import TodokuClient

/// The tray's texts in one language.
struct TrayTexts {
    private let catalog: Catalog
    init(_ language: Language) { catalog = Catalog(language) }

    /// Between facts on one line.
    private static let dot = " · "
    private static let longestName = 44

    // MARK: The whole

    var title: String { catalog.text("Downloads") }

    /// "3 downloading · 45 %": for a host that shows one line only.
    func summary(_ look: TrayLook) -> String {
        switch look.activity {
        case .idle: return look.unseenFailures > 0 ? failures(look.unseenFailures) : catalog.text("No downloads")
        case .downloading(let count):
            return joined([
                catalog.text("%1$s downloading", "%1$s downloading", count: UInt64(count)), look.percent.map { catalog.percent($0) },
            ])
        case .waiting(let count): return catalog.text("%1$s waiting", "%1$s waiting", count: UInt64(count))
        case .checking(let count): return catalog.text("%1$s checking", "%1$s checking", count: UInt64(count))
        case .unpacking(let count): return catalog.text("%1$s unpacking", "%1$s unpacking", count: UInt64(count))
        case .updating(let count): return catalog.text("%1$s updating", "%1$s updating", count: UInt64(count))
        case .paused(let count): return catalog.text("%1$s paused", "%1$s paused", count: UInt64(count))
        case .held(let count):
            return joined([
                catalog.text("Everything is paused"),
                count > 0 ? catalog.text("%1$s download left", "%1$s downloads left", count: UInt64(count)) : nil,
            ])
        }
    }

    /// "2.1 MiB/s · 3 min left" and further facts; empty if there are none.
    func details(_ look: TrayLook) -> String {
        var facts: [String?] = []
        if case .downloading = look.activity { facts = [catalog.speed(look.speed), look.timeLeft.map(left)] }
        if look.speedLimit > 0, look.activity != .idle {
            facts.append(catalog.text("at most %1$s", catalog.speed(look.speedLimit)))
        }
        if look.unseenFailures > 0, look.activity != .idle { facts.append(failures(look.unseenFailures)) }
        return joined(facts)
    }

    /// `summary` and `details` on one line, for the menu.
    func line(_ look: TrayLook) -> String { joined([summary(look), details(look)]) }

    private func failures(_ count: Int) -> String { catalog.text("%1$s failed", "%1$s failed", count: UInt64(count)) }

    private func joined(_ facts: [String?]) -> String { facts.compactMap { $0 }.filter { !$0.isEmpty }.joined(separator: Self.dot) }

    /// "40 s left", "3 min left", "1 h 5 min left": rounded up.
    func left(_ duration: Duration) -> String {
        let seconds = max(1, duration.components.seconds + (duration.components.attoseconds > 0 ? 1 : 0))
        return catalog.text("%1$s left", catalog.duration(.seconds(seconds < 60 ? seconds : (seconds + 59) / 60 * 60)))
    }

    // MARK: One download

    /// "photos.zip — 45 % · 1.2 MiB/s".
    func line(_ download: DownloadDescription) -> String { "\(name(download)) — \(state(download))" }

    /// "photos.zip — failed · try again": the entry of a failed download.
    func retryLine(_ download: DownloadDescription) -> String {
        let offer = joined([state(download), catalog.text("try again")])
        return "\(name(download)) — \(offer)"
    }

    func name(_ download: DownloadDescription) -> String { Self.shortened(download.displayName, to: Self.longestName) }

    /// "levels 2026.11 — downloading · 45 %": the asset in place of its download.
    ///
    /// - Parameter download: its download, if known.
    func line(_ asset: AssetDescription, _ download: DownloadDescription?) -> String {
        // The watch reports no progress that was made before it began.
        let fraction = asset.progress?.fraction ?? (asset.stage == .downloading ? download?.fraction : nil)
        let percent = fraction.map { catalog.percent(Int(clamping: $0 * 100)) }
        let stage: String
        switch (asset.stage, download?.state) {
        case (.checking, _): stage = catalog.text("checking for a new version")
        case (.downloading, .waiting): stage = reason(download?.waitReason)
        case (.downloading, .paused): stage = catalog.text("paused")
        case (.downloading, _): stage = catalog.text("downloading")
        case (.verifying, _): stage = catalog.text("checking")
        case (.extracting, _): stage = catalog.text("unpacking")
        default: stage = asset.stage.name
        }
        return "\(name(asset)) — \(joined([stage, percent]))"
    }

    /// "levels 2026.11 — failed · try again".
    func retryLine(_ asset: AssetDescription) -> String {
        let offer = joined([catalog.text("failed"), catalog.text("try again")])
        return "\(name(asset)) — \(offer)"
    }

    private func name(_ asset: AssetDescription) -> String {
        let isNamed = asset.stage != .checking && !asset.latestVersion.isEmpty
        // The publisher chooses the version, which may hold marks that change the direction of the whole line.
        return Self.shortened(isNamed ? "\(asset.name) \(shown(asset.latestVersion))" : asset.name, to: Self.longestName)
    }

    private func state(_ download: DownloadDescription) -> String {
        let percent = download.fraction.map { catalog.percent(Int(clamping: $0 * 100)) }
        switch download.state {
        case .active: return joined([percent ?? catalog.size(download.received), catalog.speed(download.speed)])
        case .verifying: return catalog.text("checking")
        case .extracting: return joined([catalog.text("unpacking"), download.extracted.map { catalog.percent(Int(clamping: $0 * 100)) }])
        case .queued: return catalog.text("queued")
        case .paused: return joined([catalog.text("paused"), percent])
        case .waiting: return reason(download.waitReason)
        case .finished: return catalog.size(download.received)
        case .failed: return catalog.text("failed")
        case .cancelled: return catalog.text("cancelled")
        case .other(let name): return name
        }
    }

    private func reason(_ word: String?) -> String {
        switch word {
        case "retry": catalog.text("trying again soon")
        case "offline": catalog.text("offline")
        case "metered": catalog.text("waiting for an unmetered connection")
        case "disk-space": catalog.text("waiting for disk space")
        case "destination": catalog.text("waiting for its folder")
        case "needs-url": catalog.text("waiting for a new link")
        case "not-before": catalog.text("waiting for its time")
        case "paused-all": catalog.text("paused")
        default: catalog.text("waiting")
        }
    }

    /// At most `length` characters, with an ellipsis in the middle: the start and the end say most about a file.
    static func shortened(_ name: String, to length: Int) -> String {
        guard name.count > length else { return name }
        let tail = length / 3
        return name.prefix(length - tail - 1) + "…" + name.suffix(tail)
    }

    // MARK: Entries

    var pause: String { catalog.text("Pause") }
    var resume: String { catalog.text("Resume") }
    var cancel: String { catalog.text("Cancel") }
    var pauseAll: String { catalog.text("Pause all") }
    var resumeAll: String { catalog.text("Resume all") }
    var recent: String { catalog.text("Recent downloads") }
    var openFolder: String { catalog.text("Open the download folder") }
    var speedLimit: String { catalog.text("Speed limit") }
    var noLimit: String { catalog.text("No limit") }
    var startAtLogin: String { catalog.text("Start at login") }
    var quit: String { catalog.text("Quit") }
    func more(_ count: Int) -> String { catalog.text("… and %1$s more", "… and %1$s more", count: UInt64(count)) }
    func limit(_ speed: Speed) -> String { catalog.speed(speed) }
}
