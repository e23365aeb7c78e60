internal import DBus
internal import Desktop
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling

/// Decides what icons in docks show (option `desktop-id`, property `Badge`): counts and progress of what the ledger sums up by icon.
///
/// Looks twice a second at most, only while something has not ended, and only while there is a dock.
@BusActor final class DockIcons {
    private static let interval: Duration = .milliseconds(500)
    /// For so long there must be something before it is shown: what ends at once marks no icon.
    private static let patience: Duration = .milliseconds(500)

    private unowned let downloader: Downloader  // the centre, which owns this
    private lazy var entries = LauncherEntries(session: session) { [weak self] in self?.dockChanged() }
    private let session: Connection
    private var begun: ContinuousClock.Instant?
    private var looked: ContinuousClock.Instant?
    private var timer: Poller.Token?
    private var shown: Set<DesktopID?> = []
    /// Those whose progress has been shown by downloads, not by bytes: it stays so, that it does not jump.
    private var countedByDownloads: Set<String> = []

    init(_ downloader: Downloader, session: Connection) { (self.downloader, self.session) = (downloader, session) }

    /// After each decision of the ledger, and with progress. Cheap where there is no dock.
    func changed() {
        if !downloader.ledger.hasIcons {
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

    func end() { entries.end() }

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
        let icons = downloader.ledger.icons
        // Those that have a mark keep it; others come when there is room.
        shown = shown.filter { icons[$0] != nil }
        if shown.count < Limits.dockIcons {
            shown.formUnion(icons.keys.lazy.filter { [shown] icon in !shown.contains(icon) }.prefix(Limits.dockIcons - shown.count))
        }
        var tallies = icons.filter { shown.contains($0.key) }
        for download in downloader.lively where download.received != download.record.received && download.showsProgress {
            tallies[download.record.options.desktopID]?.take(received: download.received, of: download.record)
        }
        // Ours may be named, or left out.
        let named = Dictionary(tallies.map { ($0.key?.name ?? BusName.service, $0.value) }) { $0 + $1 }
        countedByDownloads.formIntersection(named.keys)
        entries.show(named.reduce(into: [:]) { $0[$1.key] = mark(of: $1.key, $1.value) })
    }

    private func mark(of icon: String, _ tally: ProgressTally) -> IconMark {
        var fraction = countedByDownloads.contains(icon) ? nil : tally.fractionOfBytes
        if fraction == nil {
            fraction = tally.fractionOfDownloads
            if fraction != nil { countedByDownloads.insert(icon) }
        }
        let count: Int64 =
            switch downloader.settings.badge {
            case .remaining: Int64(tally.remaining)
            case .percent: Int64(clamping: (fraction ?? 0) * 100)
            }
        return IconMark(count: count, progress: fraction)
    }
}

extension ManagedDownload {
    /// Whether the ledger's tallies have it.
    var showsProgress: Bool { record.options.showProgress && entry.isEntered && !state.hasEnded }
}
