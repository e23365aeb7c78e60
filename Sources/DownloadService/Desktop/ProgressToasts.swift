internal import Desktop
internal import DownloadModel
internal import EventLoop
internal import Scheduling

/// The progress toast: one for all that is under way, driven by the news of the engine alone. Without a server that draws it, nothing is
/// worked out.
///
/// A batch counts as its downloads that have not ended, with the bytes of all of it.
@BusActor final class ProgressToasts {
    private let notifier: Notifier
    private var group = ProgressGroup()
    /// Batches of which a transfer has ended: another member may follow, or not.
    private var resting: Set<BatchNumber> = []

    init(notifier: Notifier) { self.notifier = notifier }

    /// Bytes of `download` have come.
    func take(_ download: ManagedDownload) {
        guard download.record.options.showProgress, notifier.wantsProgress, let started = download.transferStarted else { return }
        let now = ContinuousClock.now
        guard group.isDue(download.record.batch ?? download.number, since: started, at: now) else { return }
        let downloader = download.downloader
        notifier.show(ProgressToast(group.tell(at: now).compactMap { part($0, downloader) }, round: group.round))
    }

    private func part(_ number: DownloadNumber, _ downloader: Downloader) -> ProgressToast.Part? {
        if let batch = downloader.batch(number) {
            let (received, total) = batch.sums
            let count = batch.record.count
            var part = ProgressToast.Part(
                name: "", count: batch.entry.remaining, received: received, total: total,
                ended: (count - min(count, batch.entry.remaining), of: count), icon: batch.record.icon)
            // The members of a batch have one owner, or none that is in a sandbox.
            part.sandboxedApp = batch.record.numbers.lazy.compactMap { downloader.ledger[$0] }.first?.record.sandboxedApp
            return part
        }
        return downloader.lively(number).map {
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

    /// After what was decided about transfers that have ended: a batch of which nothing goes on by itself is not under way.
    func settle(_ downloader: Downloader) {
        guard !resting.isEmpty else { return }
        for number in resting where downloader.batch(number)?.entry.underWay ?? 0 == 0 { leave(number) }
        resting = []
    }

    /// Not under way, or not to be seen any more.
    func leave(_ number: DownloadNumber) { if group.stop(number) { notifier.closeProgress() } }

    func ended(_ number: DownloadNumber) {
        leave(number)
        group.forget(number)
    }

    func dismissed() { group.dismiss() }
}
