internal import DBus
internal import Desktop
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling

/// Decides the count and progress that dock icons show (option `desktop-id`, property `Badge`), from the scheduler's sums for each icon.
///
/// Updates at most twice a second, and only while a download is unfinished and a dock is running.
@BusActor final class DockIcons: DownloadObserver {
    private static let interval: Duration = .milliseconds(500)
    /// How long downloads must be unfinished before an icon shows them: short downloads mark no icon.
    private static let patience: Duration = .milliseconds(500)
    /// Our own icon. Downloads may name it, or no icon.
    private static let own: Set<DesktopID?> = [nil, DesktopID(BusName.service)]

    private let list: DownloadList
    private lazy var entries = LauncherEntries(session: session) { [weak self] in self?.dockChanged() }
    private let session: Connection
    private var begun: ContinuousClock.Instant?
    private var looked: ContinuousClock.Instant?
    private var timer: Poller.Token?
    private var shown: Set<DesktopID?> = []
    /// Icons whose progress has been shown by downloads, not by bytes. They keep counting by downloads, so that the progress does not jump.
    private var countedByDownloads: Set<String> = []

    init(list: DownloadList, session: Connection) { (self.list, self.session) = (list, session) }

    func decided() { changed() }
    func progressed(_ downloads: [ManagedDownload]) { changed() }
    func left() { entries.end() }

    /// Called after each decision of the scheduler, and with progress. Cheap without a dock.
    private func changed() {
        if !list.scheduler.hasIcons {
            begun = nil
            if shown.isEmpty { return stopLooking() }
        } else if begun == nil {
            begun = .now
            entries.watch()
        }
        guard entries.hasDock, timer == nil else { return }
        let due = max(looked.map { $0 + Self.interval } ?? .now, begun.map { $0 + Self.patience } ?? .now)
        if due <= .now { return look() }
        timer = Poller.shared.schedule(at: due) { [weak self] in
            self?.timer = nil
            self?.look()
        }
    }

    private func dockChanged() {
        guard !entries.hasDock else { return changed() }
        stopLooking()
        (shown, countedByDownloads) = ([], [])
    }

    private func stopLooking() {
        if let timer { Poller.shared.cancel(timer) }
        timer = nil
    }

    private func look() {
        guard entries.hasDock else { return }
        looked = .now
        let icons = list.scheduler.icons
        choose(from: icons)
        var tallies = icons.filter { shown.contains($0.key) }
        for download in list.lively where download.received != download.record.received && download.showsProgress {
            tallies[download.record.options.desktopID]?.take(received: download.received, of: download.record)
        }
        let named = Dictionary(tallies.map { ($0.key?.name ?? BusName.service, $0.value) }) { $0 + $1 }
        countedByDownloads.formIntersection(named.keys)
        entries.show(named.reduce(into: [:]) { $0[$1.key] = mark(of: $1.key, $1.value) })
    }

    /// Marked icons keep their marks. Other icons get a mark if there is room. Our own icon always has a mark.
    ///
    /// A paused download keeps its mark for ever, and an app in a sandbox may name any number of icons below its id. So such an app gets a
    /// few marks only.
    private func choose(from icons: [DesktopID?: ProgressTally]) {
        shown = shown.filter { icons[$0] != nil }
        guard shown.count < icons.count else { return }
        var marked = Set(shown.subtracting(Self.own).compactMap { $0 })
        var markedOfApp = Dictionary(grouping: marked) { list.scheduler.sandboxedApp(naming: $0) }
        for icon in Self.own where icons[icon] != nil { shown.insert(icon) }
        for case let icon? in icons.keys where !shown.contains(icon) {
            guard marked.count < Limits.dockIcons else { break }
            let app = list.scheduler.sandboxedApp(naming: icon)
            guard app == nil || markedOfApp[app, default: []].count < Limits.dockIconsOfSandboxedApp else { continue }
            markedOfApp[app, default: []].append(icon)
            marked.insert(icon)
            shown.insert(icon)
        }
    }

    private func mark(of icon: String, _ tally: ProgressTally) -> IconMark {
        var fraction = countedByDownloads.contains(icon) ? nil : tally.fractionOfBytes
        if fraction == nil {
            fraction = tally.fractionOfDownloads
            if fraction != nil { countedByDownloads.insert(icon) }
        }
        let count: Int64 =
            switch list.settings.badge {
            case .remaining: Int64(tally.remaining)
            case .percent: Int64(clamping: (fraction ?? 0) * 100)
            }
        return IconMark(count: count, progress: fraction)
    }
}

extension ManagedDownload {
    /// Whether the tallies of the scheduler include this download.
    var showsProgress: Bool { record.options.showProgress && entry.isEntered && !state.hasEnded }
}
