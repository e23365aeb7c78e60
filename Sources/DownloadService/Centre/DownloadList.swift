internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling

/// The downloads and batches on the list: their scheduler, their objects on the bus, and the paths, tokens and fetches that name them.
///
/// Every part of the service may look up downloads and batches here. Only the executor changes the scheduler. Only the executor's host and
/// the parts that add downloads track and untrack objects.
@BusActor final class DownloadList {
    let scheduler: Scheduler
    /// The XDG download folder.
    private let downloadFolder: String
    /// The objects that know more than the scheduler: the objects of running downloads, and of downloads with waiting calls or unsent
    /// signals. For other downloads, an object is made when needed and then released.
    private var downloads: [DownloadNumber: ManagedDownload] = [:]
    private(set) var batches = NumberTable<ManagedBatch>()
    private(set) var tokens = TokenTable()
    /// The downloads that `Fetch` has added, by fetch key.
    private var fetches = KeyTable<CopyKey, NumberSet>()
    /// For each download in `fetches`, the key as it was added. A fresh link changes the URL, but not the key.
    private var fetchKeys = NumberTable<CopyKey>()

    /// - Parameter downloadFolder: the XDG download folder, read once at startup, because the bus thread must not wait for a disk.
    init(_ restored: Restored, downloadFolder: String) {
        (scheduler, self.downloadFolder) = (restored.scheduler, downloadFolder)
        for entry in restored.sought { track(entry.record) }
        for batch in scheduler.batches.values { track(batch) }
    }

    // MARK: Looking

    var settings: Settings { scheduler.settings }
    var counts: StateCounts { scheduler.counts }

    /// The folder of downloads without the option `directory`.
    var defaultDirectory: String { settings.defaultDirectory.isEmpty ? downloadFolder : settings.defaultDirectory }

    /// The object of a download, which is kept so that its changes are not lost.
    func download(_ number: DownloadNumber) -> ManagedDownload? {
        if let download = downloads[number] { return download }
        let download = peek(number)
        downloads[number] = download
        return download
    }

    /// The kept object of a download; nil: the scheduler knows everything about the download.
    func lively(_ number: DownloadNumber) -> ManagedDownload? { downloads[number] }

    /// The kept objects.
    var lively: some Collection<ManagedDownload> { downloads.values }

    /// The object of a download, for reading or announcing only. It may not be kept, so other changes to it may be lost.
    func peek(_ number: DownloadNumber) -> ManagedDownload? {
        downloads[number] ?? scheduler[number].map { ManagedDownload($0, in: scheduler) }
    }

    /// As `peek`, for a download that may be off the list.
    func object(of entry: ScheduledDownload) -> ManagedDownload { downloads[entry.number] ?? ManagedDownload(entry, in: scheduler) }

    func batch(_ number: BatchNumber) -> ManagedBatch? { batches[number] }

    /// Sums over the unfinished downloads. The total is known only if the total of each download is. The scheduler sums up the saved bytes;
    /// running downloads may have more.
    var sums: (received: ByteCount, total: ByteCount?, speed: Speed) {
        var sums = (received: scheduler.received, total: scheduler.total, speed: Speed(0))
        for download in lively where !download.state.hasEnded {
            sums.received = sums.received &+ download.received &- download.record.received
            sums.speed +|= download.speed
        }
        return sums
    }

    /// The bytes of all members. A failed or cancelled member adds the bytes that it keeps to both sums, because its other bytes never
    /// arrive.
    func sums(of batch: ManagedBatch) -> (received: ByteCount, total: ByteCount?) {
        var sums = (received: batch.record.removedBytes, total: ByteCount?(batch.record.removedBytes))
        for member in scheduler.members(of: batch.entry) {
            let record = member.record
            let held = lively(member.number)?.received ?? record.received
            let received = member.state == .finished ? record.total ?? held : held
            sums.received &+= received
            let total = member.state.hasEnded ? received : record.total ?? record.options.size
            if let sum = sums.total, let total {
                let (value, overflow) = sum.addingReportingOverflow(total)
                sums.total = overflow ? nil : value
            } else {
                sums.total = nil
            }
        }
        return sums
    }

    // MARK: By path

    /// The download at an object path: by number, or by token.
    func download(at path: String) -> ManagedDownload? {
        if let number = tokens[path] { return peek(number) }
        guard path.hasPrefix(BusName.downloadsPath + "/") else { return nil }
        let text = path.dropFirst(BusName.downloadsPath.utf8.count + 1)
        guard let value = UInt64(text), String(value) == text else { return nil }
        return peek(DownloadNumber(value))
    }

    /// The download at an object path, if `caller` may see it. Until its row is on disk, nobody may: the call that adds it has no answer
    /// yet, and may still be refused.
    func download(at path: String, for caller: CallerIdentity) -> ManagedDownload? {
        download(at: path).flatMap { $0.entry.isEntered && caller.owns($0) ? $0 : nil }
    }

    /// The batch at an object path.
    private func batch(at path: String) -> ManagedBatch? {
        guard path.hasPrefix(BusName.batchesPath + "/") else { return nil }
        let text = path.dropFirst(BusName.batchesPath.utf8.count + 1)
        guard let value = UInt64(text), String(value) == text else { return nil }
        return batch(BatchNumber(value))
    }

    /// The batch at an object path, if `caller` may see it; not before its row is on disk.
    func batch(at path: String, for caller: CallerIdentity) -> ManagedBatch? {
        batch(at: path).flatMap { $0.entry.isEntered && caller.owns($0) ? $0 : nil }
    }

    /// The download whose token makes this path.
    func holder(of path: ObjectPath) -> ScheduledDownload? { tokens[path.value].flatMap { scheduler[$0] } }

    // MARK: By fetch key

    /// The unfinished Fetch that a repeated call can wait for; nil if none exists.
    func runningFetch(of key: CopyKey, like isSame: (DownloadRecord) -> Bool) -> ScheduledDownload? {
        fetched(key).first { !$0.state.hasEnded && isSame($0.record) }
    }

    /// The downloads that `Fetch` has added for `key`, oldest first.
    func fetched(_ key: CopyKey) -> [ScheduledDownload] { (fetches[key]?.sorted() ?? []).compactMap { scheduler[$0] } }

    /// The downloads into `directory` that `Fetch`, or an asset, has added.
    func fetched(in directory: String) -> [ScheduledDownload] {
        fetches.keys.filter { $0.directory.isSameBytes(as: directory) }.flatMap { fetched($0) }
    }

    // MARK: Changing

    /// Indexes a download of the scheduler by its path, if the path contains a token, and by its fetch key.
    func track(_ record: DownloadRecord) {
        guard record.options.token != nil || record.isFetch, scheduler[record.number] != nil else { return }
        tokens.insert(record)
        guard record.isFetch else { return }
        fetchKeys[record.number] = record.copyKey
        fetches.insert(record.number, at: record.copyKey)
    }

    private func track(_ batch: ScheduledBatch) { batches[batch.number] = ManagedBatch(batch) }

    /// Makes the object of a new batch. Its members are tracked in slices, before `settle`.
    ///
    /// - Parameter places: of the members with a token, by path.
    func track(_ batch: ScheduledBatch, _ places: [String: Int]) {
        track(batch)
        tokens.insert(batch.number, places)
    }

    func settle(_ batch: BatchNumber) { tokens.settle(batch) }

    @discardableResult func untrack(_ number: BatchNumber) -> ManagedBatch? {
        let batch = batches.removeValue(for: number)
        batch?.stop()
        return batch
    }

    func untrack(_ entry: ScheduledDownload) {
        tokens.remove(entry.record)
        if entry.record.isFetch, let key = fetchKeys.removeValue(for: entry.number) { fetches.remove(entry.number, at: key) }
        guard let download = downloads.removeValue(forKey: entry.number) else { return }
        if let timer = download.propertiesTimer { Poller.shared.cancel(timer) }
        download.propertiesTimer = nil
    }

    /// Releases the object if the scheduler knows everything about its download.
    func forget(_ number: DownloadNumber) {
        if let download = downloads[number], download.isDispensable { downloads[number] = nil }
    }
}

extension DownloadList {
    /// The newest downloads and batches whose end may have had a toast, at most `most` of each.
    func lastTold(most: Int) -> [DownloadNumber] {
        let downloads = scheduler.ended.ordered.reversed().prefix(16 * most).filter { number in
            scheduler[number].map { $0.batch == nil && $0.record.options.notify != .never } ?? false
        }
        var walk = batches.walk(isReversed: true)
        let newest = (0..<16 * most).compactMap { _ in walk.next() }
        let ofBatches = newest.filter { number in batch(number).map { $0.entry.hasEnded && $0.record.notify != .never } ?? false }
        return Array(downloads.prefix(most)) + ofBatches.prefix(most)
    }
}
