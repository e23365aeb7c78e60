internal import DBus
internal import Desktop
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Logging
internal import PartFiles
internal import Scheduling
internal import TransferEngine

/// Batches: added by one call and one commit, and controlled as one.
extension Downloader {
    /// Adds a batch. The answer, and a `DownloadAdded` for each member, follow when the whole batch is on disk.
    ///
    /// - Parameters:
    ///   - members: made by `Ledger.prepare`.
    ///   - paths: of the members, in the same order.
    ///   - places: of the members with a token, by path.
    func add(
        _ record: BatchRecord, _ members: PreparedMembers, _ paths: [ObjectPath], _ places: [String: Int],
        reply: Reply<(ObjectPath, [ObjectPath])>
    ) {
        let path = BusName.path(ofBatch: record.number)
        let entries = members.entries
        executor.add(record, members) { [self] _ in
            journal.post(reply.message((path, paths)))
            journal.post(Manager.batchAdded.message(from: BusName.managerPath, path))
            if let first = entries.first?.number {
                journal.postSeries(about: first, count: paths.count) {
                    Manager.downloadAdded.message(from: BusName.managerPath, paths[$0])
                }
            }
            log.info("batch added", metadata: ["batch": "\(record.number)", "downloads": "\(record.count)"])
        } entering: { [self] in
            track($0.record)
            callers.began($0.number)
        } entered: { [self] in
            settle(record.number)
        } undone: { [self] batch, refusal in
            for entry in entries where lively(entry.number) != nil { giveUp(entry, refusal) }
            settle(batch.number)  // forgets the tokens, too: no member has been tracked yet
            untrack(batch.number)?.giveUp(refusal)
            var undone = members
            BusActor.inSteps { undone.popLast() }
            return reply.message(failing: refusal)
        }
        guard let batch = ledger.batch(record.number) else { return }
        track(batch, places)
    }

    /// The last unfinished member of the batch has ended.
    func announceEnd(_ entry: LedgerBatch, _ outcomes: OutcomeCounts) -> (() -> Void)? {
        guard let batch = batch(entry.number) else { return nil }
        batch.announceEnd(outcomes)
        log.info(
            "batch ended",
            metadata: [
                "batch": "\(batch.number)", "finished": "\(outcomes.finished)", "failed": "\(outcomes.failed)",
                "cancelled": "\(outcomes.cancelled)",
            ])
        let end = BatchEnd(batch, outcomes)
        return { [self] in tell { $0.ended(entry, end, $1) } }
    }

    /// Removes `batch` and all its members from the list. `deletingFiles`: also deletes the files of finished members.
    func remove(_ batch: ManagedBatch, deletingFiles: Bool, _ reply: Reply<Void>) throws(Refusal) {
        batch.removing.append((reply, false))
        if deletingFiles { batch.deletesFiles = true }
        decide(.removeBatch(batch.entry))
        guard !batch.entry.isRemoved else { return }
        let last = batch.removing.removeLast()
        try callers.wait(last.reply, forRemovalOf: batch)
        batch.removing.append((last.reply, true))
    }

    /// Notes the file of `entry`, a member that leaves the list, if the files of `batch` are to be deleted.
    func noteFile(of entry: LedgerEntry, in batch: ManagedBatch) {
        guard batch.deletesFiles, entry.state == .finished, let path = entry.record.path else { return }
        batch.filesToDelete.append((path, entry.record.resume?.identity))
    }

    /// The last member of the batch has left the list.
    func removed(_ entry: LedgerBatch) {
        guard let batch = untrack(entry.number) else { return }
        tell { $0.removed(entry, $1) }
        journal.post(Manager.batchRemoved.message(from: BusName.managerPath, batch.path))
        callers.answered(batch.removing.filter(\.isCounted).map(\.reply.call.sender), batch.number)
        let (replies, files) = (batch.removing.map(\.reply), batch.filesToDelete)
        guard !files.isEmpty else {
            for reply in replies { journal.answer(reply, ()) }
            return
        }
        journal.afterCommit {
            // One disk job for each folder: most files of a batch lie in one folder, and each folder may be on another disk.
            BusActor.spawn {
                var refusals: [Refusal] = []
                for group in Dictionary(grouping: files, by: { $0.path[..<($0.path.lastIndex(of: "/") ?? $0.path.startIndex)] }).values {
                    let failed = await DiskPool.shared.value(at: .path(group[0].path), within: DiskPatience.files(group.count)) {
                        group.map { Commit.deleteFinished($0.path, identity: $0.identity) }.compactMap { result -> Refusal? in
                            if case .failure(let refusal) = result { refusal } else { nil }
                        }
                    }
                    refusals += failed ?? group.map { .silentDisk(of: $0.path) }
                }
                Self.answer(replies, refusals, of: files.count)
            }
        }
    }

    private static func answer(_ replies: [Reply<Void>], _ refusals: [Refusal], of count: Int) {
        for reply in replies {
            if let first = refusals.first {
                let others = refusals.count > 1 ? " \(refusals.count) files of \(count) are still there." : ""
                reply.fail(Refusal(first.name, first.message + others))
            } else {
                reply()
            }
        }
    }

    /// Answers with the object paths of the batches that match and that the caller may see: oldest first, or newest first if the filter
    /// says so. Looks at them in steps.
    ///
    /// - Throws: `NoSuchObject` if `after` is no batch that the caller may see.
    func listBatches(_ filter: BatchFilter, _ reply: Reply<[ObjectPath]>) throws(Refusal) {
        let caller = reply.call.caller
        var last: BatchNumber?
        if let after = filter.after {
            guard let batch = batch(at: after.value, for: caller) else {
                throw Refusal(.noSuchObject, "Filter key after: there is no batch \(shown(after.value)).")
            }
            last = batch.number
        }
        var walk = batches.walk(isReversed: filter.isNewestFirst)
        var found: [ObjectPath] = []
        try journal.write { [self] in
            let step = StepTime()
            while found.count < filter.limit, let number = walk.next() {
                if let batch = batch(number), caller.owns(batch), (filter.app ?? batch.record.app) == batch.record.app,
                    (filter.hasEnded ?? batch.entry.hasEnded) == batch.entry.hasEnded,
                    last.map({ filter.isNewestFirst ? number < $0 : number > $0 }) ?? true
                {
                    found.append(BusName.path(ofBatch: number))
                }
                if step.isOver { return false }
            }
            reply(found)
            return true
        }
    }

    /// The batch at an object path.
    func batch(at path: String) -> ManagedBatch? {
        guard path.hasPrefix(BusName.batchesPath + "/") else { return nil }
        let text = path.dropFirst(BusName.batchesPath.utf8.count + 1)
        guard let value = UInt64(text), String(value) == text else { return nil }
        return batch(BatchNumber(value))
    }

    /// The batch at an object path, if `caller` may see it.
    func batch(at path: String, for caller: CallerIdentity) -> ManagedBatch? {
        batch(at: path).flatMap { caller.owns($0) ? $0 : nil }
    }
}

/// The facts for the toast of a batch, as of its end.
struct BatchEnd {
    let owed: Ledger.OwedToast
    let record: BatchRecord
    let outcomes: OutcomeCounts
    /// The size of the finished files.
    let size: ByteCount
    /// The failure of the first failed member; nil if any member finished.
    let failure: DownloadFailure?
    /// What the user can do about `failure`.
    let remedy: Remedy?
    /// The time from the end to the toast: the longest that a member asks for.
    let delay: Duration
    /// The sandboxed app that queued the batch; nil: none did.
    let sandboxedApp: String?

    /// nil if no toast is owed.
    @BusActor init?(_ batch: ManagedBatch, _ outcomes: OutcomeCounts) {
        guard let owed = batch.entry.owedToast else { return nil }
        (self.owed, record, self.outcomes) = (owed, batch.record, outcomes)
        let members = batch.downloader.ledger.members(of: batch.entry)
        size = members.lazy.filter { $0.state == .finished }.reduce(record.removedBytes) {
            $0 &+ ($1.record.total ?? $1.record.received)
        }
        delay = members.lazy.map(\.record.options.notifyDelay).max() ?? .zero
        sandboxedApp = members.lazy.compactMap(\.record.sandboxedApp).first
        let failed = outcomes.finished > 0 ? nil : members.lazy.compactMap { entry in entry.state.failure.map { ($0, entry.record) } }.first
        (failure, remedy) = (failed?.0, failed.flatMap { Remedy(after: $0.0, of: $0.1) })
    }
}
