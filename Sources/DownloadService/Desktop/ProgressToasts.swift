internal import Desktop
internal import DownloadModel
internal import EventLoop
internal import Scheduling

/// The one progress toast for all running downloads. Only events of the engine and of extractions update it. Nothing is computed while no
/// server shows the toast.
///
/// A batch counts with its unfinished downloads, and with the bytes of all its members.
@BusActor final class ProgressToasts {
    private let notifier: Notifier
    private let list: DownloadList
    private var group = ProgressGroup()
    /// Batches whose member's transfer has ended. Until `settle`, it is unknown whether another member runs next.
    private var resting: Set<BatchNumber> = []
    /// Downloads whose transfer has ended, and whose archive is verified or unpacked now.
    private var unpacking: Set<DownloadNumber> = []

    init(notifier: Notifier, list: DownloadList) { (self.notifier, self.list) = (notifier, list) }

    /// Bytes of `download` have arrived, or more of its archive is unpacked.
    func take(_ download: ManagedDownload) {
        guard download.record.options.showProgress, notifier.wantsProgress, let started = download.transferStarted else { return }
        let now = ContinuousClock.now
        if download.state == .extracting, download.record.batch == nil { unpacking.insert(download.number) }
        if group.isDue(download.record.batch ?? download.number, since: started, at: now) { show(at: now) }
    }

    private func show(at now: ContinuousClock.Instant) {
        let parts = group.tell(at: now).compactMap { part($0) }
        if !parts.isEmpty { notifier.show(ProgressToast(parts, round: group.round)) }
    }

    /// The extraction of `entry` has begun or ended. The toast says at once that it has begun.
    func changedStage(_ entry: ScheduledDownload) {
        if entry.state == .extracting {
            if group.isTold(entry.number) { show(at: .now) }
        } else if let batch = entry.record.batch, group.contains(batch) {
            resting.insert(batch)
        }
    }

    private func part(_ number: DownloadNumber) -> ProgressToast.Part? {
        if let batch = list.batch(number) {
            let (received, total) = list.sums(of: batch)
            let count = batch.record.count
            var part = ProgressToast.Part(
                name: "", count: batch.entry.counts.remaining, received: received, total: total,
                ended: (count - min(count, batch.entry.counts.remaining), of: count), icon: batch.record.icon)
            // If a sandboxed app queued one member of a batch, it queued all members.
            part.sandboxedApp = batch.record.numbers.lazy.compactMap { [list] in list.scheduler[$0] }.first?.record.sandboxedApp
            return part
        }
        // The object may have been released after the transfer.
        let download = list.lively(number) ?? (list.scheduler[number]?.state.isEnding == true ? list.peek(number) : nil)
        return download.map {
            var part = ProgressToast.Part(
                name: $0.record.fileName ?? "", received: $0.received, total: $0.total, icon: $0.record.options.icon)
            part.sandboxedApp = $0.record.sandboxedApp
            if $0.state == .extracting { part.unpacked = $0.extracted ?? 0 }
            return part
        }
    }

    /// A transfer of `download` has ended.
    func stopped(_ download: ManagedDownload) {
        guard let batch = download.record.batch else {
            guard download.record.folderName != nil, group.contains(download.number) else { return leave(download.number) }
            unpacking.insert(download.number)
            return
        }
        if group.contains(batch) { resting.insert(batch) }
    }

    /// Removes each resting batch that has no running member and no member that starts by itself, and each download whose archive is no
    /// longer being verified or unpacked. Called after each turn of the scheduler.
    func settle() {
        for number in unpacking where !(list.scheduler[number]?.state.isEnding ?? false) {
            unpacking.remove(number)
            if list.scheduler[number]?.state != .active { leave(number) }
        }
        guard !resting.isEmpty else { return }
        for number in resting where list.batch(number)?.entry.counts.underWay ?? 0 == 0 { leave(number) }
        resting = []
    }

    /// Removes a download or batch that no longer runs, or must no longer be shown.
    func leave(_ number: DownloadNumber) { if group.stop(number) { notifier.closeProgress() } }

    func ended(_ number: DownloadNumber) {
        leave(number)
        group.forget(number)
    }

    func dismissed() { group.dismiss() }
}
