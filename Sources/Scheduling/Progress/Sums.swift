public import DownloadModel

/// Sums over all unfinished downloads, updated with each change of a record, so that nothing walks through 100,000 downloads.
final class Sums {
    typealias Summand = ProgressTally.Summand

    private(set) var all = ProgressTally()
    /// The tallies by icon (option `desktop-id`, else ours), while an icon has an unfinished download. Omits downloads that show no
    /// progress.
    private var ours = ProgressTally()
    private var others: [DesktopID: ProgressTally] = [:]
    /// The app in a sandbox that has named an icon of `others`.
    private var sandboxedApps: [DesktopID: String] = [:]

    /// `entry` counts from now on, with the values of its record.
    func add(_ entry: ScheduledDownload) {
        remove(entry)
        let summand = Self.summand(of: entry.record)
        entry.summand = summand
        all.add(summand)
        tally(entry) { $0.add(summand) }
    }

    func remove(_ entry: ScheduledDownload) {
        guard let summand = entry.summand else { return }
        entry.summand = nil
        all.remove(summand)
        tally(entry) { $0.remove(summand) }
    }

    /// A counted `entry` has ended. A cancelled download counts as if it had never been queued.
    func end(_ entry: ScheduledDownload) {
        guard let summand = entry.summand else { return }
        entry.summand = nil
        all.remove(summand)
        let record = entry.record
        tally(entry) {
            $0.remove(summand)
            if record.state != .cancelled { $0.end(bytes: record.state == .finished ? record.total ?? record.received : record.received) }
        }
    }

    /// `entry` had ended in `state`, and counts again from the next `add` on.
    func revive(_ entry: ScheduledDownload, from state: DownloadState) {
        guard entry.record.options.showProgress, state != .cancelled else { return }
        if let id = entry.record.options.desktopID {
            others[id]?.revive(bytes: entry.record.received)
        } else {
            ours.revive(bytes: entry.record.received)
        }
        entry.batch?.progress.revive(bytes: entry.record.received)
    }

    func update(_ entry: ScheduledDownload) {
        guard let before = entry.summand else { return }
        let now = Self.summand(of: entry.record)
        guard now != before else { return }
        entry.summand = now
        all.change(from: before, to: now)
        tally(entry) { $0.change(from: before, to: now) }
    }

    /// A tally without unfinished downloads starts again from zero.
    private func tally(_ entry: ScheduledDownload, _ change: (inout ProgressTally) -> Void) {
        guard entry.record.options.showProgress else { return }
        if let id = entry.record.options.desktopID {
            change(&others[id, default: ProgressTally()])
            if entry.record.options.isSandboxed { sandboxedApps[id] = entry.record.options.app }
            if others[id]?.remaining == 0 { (others[id], sandboxedApps[id]) = (nil, nil) }
        } else {
            change(&ours)
            if ours.remaining == 0 { ours = ProgressTally() }
        }
        guard let batch = entry.batch else { return }
        change(&batch.progress)
        if batch.progress.remaining == 0 { batch.progress = ProgressTally() }
    }

    var hasIcons: Bool { ours.remaining > 0 || !others.isEmpty }

    var icons: [DesktopID?: ProgressTally] {
        var icons: [DesktopID?: ProgressTally] = ours.remaining > 0 ? [nil: ours] : [:]
        for (id, tally) in others { icons[id] = tally }
        return icons
    }

    func sandboxedApp(naming icon: DesktopID) -> String? { sandboxedApps[icon] }

    static func summand(of record: DownloadRecord) -> Summand {
        Summand(received: record.received, total: record.total ?? record.options.size)
    }
}

extension Scheduler {
    /// Bytes of all unfinished downloads, at their last saved checkpoints.
    public var received: ByteCount { sums.all.bytes.received }

    /// Total size of all unfinished downloads; nil if a size is unknown, or if the sum does not fit.
    public var total: ByteCount? { sums.all.bytes.total }

    /// The progress for each icon (nil: ours). Includes the downloads that ended while the icon had an unfinished download.
    public var icons: [DesktopID?: ProgressTally] { sums.icons }
    public var hasIcons: Bool { sums.hasIcons }
    /// The app in a sandbox that has named one of `icons`; nil: only programs outside of sandboxes have.
    public func sandboxedApp(naming icon: DesktopID) -> String? { sums.sandboxedApp(naming: icon) }
}
