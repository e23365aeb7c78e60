internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Logging
internal import Scheduling

/// Adds admitted downloads and batches to the list.
extension Admission {
    /// Adds `record`. The answer follows when the record is on disk. The answer to a Fetch waits for the end of the download; later calls
    /// of the same Fetch may share the download.
    ///
    /// - Parameters:
    ///   - answer: nil: no call has asked for the download.
    ///   - undone: called if the record could not be saved.
    func add(_ record: DownloadRecord, answer: Answer?, undone: @escaping (Refusal) -> Void = { _ in }) {
        let path = BusName.path(of: record)
        executor.add(record) { [self] entry in
            if case .path(let reply)? = answer { journal.answerSaved(reply.message(path)) }
            journal.post(Manager.downloadAdded.message(from: BusName.managerPath, path), before: record.number)
            guard !entry.isRemoved else { return }
            let url = record.options.isPrivate ? "" : redacted(record.url)
            log.info("download added", metadata: ["download": "\(record.number)", "url": "\(url)"])
            callers.began(record.number)
        } entered: { [self] _ in
            if record.isFetch, record.options.token == nil { removeFormerFetches(of: record.copyKey) }
        } undone: { [self] entry, refusal in
            giveUp(entry, refusal)
            undone(refusal)
            if case .path(let reply)? = answer { return reply.message(failing: refusal) }
            return nil
        }
        list.track(record)
        if case .fetch(let reply)? = answer, let download = list.download(record.number) { answerFetch(reply, by: download) }
    }

    /// Drops a download whose row could not be saved, and answers the calls that wait for it.
    private func giveUp(_ entry: ScheduledDownload, _ refusal: Refusal) {
        if let download = list.lively(entry.number) {
            for reply in callers.release(download) { reply.fail(refusal) }
            let waiting = download.waiting
            download.waiting = []
            callers.answered(waiting.map(\.call.sender), entry.number)
            for reply in waiting { reply.fail(refusal) }
        }
        list.untrack(entry)
    }

    /// Fails the calls that wait for a batch that could not be saved.
    private func giveUp(_ batch: ManagedBatch, _ refusal: Refusal) {
        let replies = batch.waiting
        batch.waiting = []
        callers.answered(replies.map(\.call.sender), batch.number)
        for reply in replies { reply.fail(refusal) }
    }

    /// Adds a batch. The answer, and a `DownloadAdded` for each member, follow when the whole batch is on disk.
    ///
    /// - Parameters:
    ///   - members: made by `Scheduler.prepare`.
    ///   - paths: of the members, in the same order.
    ///   - places: of the members with a token, by path.
    func add(
        _ record: BatchRecord, _ members: PreparedMembers, _ paths: [ObjectPath], _ places: [String: Int],
        reply: Reply<(ObjectPath, [ObjectPath])>
    ) {
        let path = BusName.path(ofBatch: record.number)
        let entries = members.entries
        executor.add(record, members) { [self] _ in
            journal.answerSaved(reply.message((path, paths)))
            journal.post(Manager.batchAdded.message(from: BusName.managerPath, path))
            if let first = entries.first?.number {
                journal.postSeries(about: first, count: paths.count) {
                    Manager.downloadAdded.message(from: BusName.managerPath, paths[$0])
                }
            }
            log.info("batch added", metadata: ["batch": "\(record.number)", "downloads": "\(record.count)"])
        } entering: { [self] in
            list.track($0.record)
            callers.began($0.number)
        } entered: { [self] in
            list.settle(record.number)
        } undone: { [self] batch, refusal in
            for entry in entries where list.lively(entry.number) != nil { giveUp(entry, refusal) }
            list.settle(batch.number)  // forgets the tokens, too: no member has been tracked yet
            if let object = list.untrack(batch.number) { giveUp(object, refusal) }
            var undone = members
            BusActor.inSteps { undone.popLast() }
            return reply.message(failing: refusal)
        }
        guard let batch = list.scheduler.batch(record.number) else { return }
        list.track(batch, places)
    }
}
