internal import Desktop
internal import DownloadModel
internal import EventLoop
internal import Scheduling

/// The one progress toast for all running downloads. Only events of the engine update it. Nothing is computed while no server shows the
/// toast.
///
/// A batch counts with its unfinished downloads, and with the bytes of all its members.
@BusActor final class ProgressToasts {
    private let notifier: Notifier
    private let list: DownloadList
    private var group = ProgressGroup()
    /// Batches whose member's transfer has ended. Until `settle`, it is unknown whether another member runs next.
    private var resting: Set<BatchNumber> = []

    init(notifier: Notifier, list: DownloadList) { (self.notifier, self.list) = (notifier, list) }

    /// Bytes of `download` have arrived.
    func take(_ download: ManagedDownload) {
        guard download.record.options.showProgress, notifier.wantsProgress, let started = download.transferStarted else { return }
        let now = ContinuousClock.now
        guard group.isDue(download.record.batch ?? download.number, since: started, at: now) else { return }
        notifier.show(ProgressToast(group.tell(at: now).compactMap { part($0) }, round: group.round))
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
        return list.lively(number).map {
            var part = ProgressToast.Part(
                name: $0.record.fileName ?? "", received: $0.received, total: $0.total, icon: $0.record.options.icon)
            part.sandboxedApp = $0.record.sandboxedApp
            return part
        }
    }

    /// A transfer of `download` has ended.
    func stopped(_ download: ManagedDownload) {
        guard let batch = download.record.batch else { return leave(download.number) }
        if group.contains(batch) { resting.insert(batch) }
    }

    /// Removes each resting batch that has no running member and no member that starts by itself. Called after each turn of the scheduler.
    func settle() {
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
