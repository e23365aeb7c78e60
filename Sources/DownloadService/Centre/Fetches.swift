internal import DBus
internal import DownloadModel
internal import DownloadStore
internal import DownloaderInterface
internal import EventLoop
internal import PartFiles
internal import Scheduling
internal import TransferEngine

// Fetch: calls that are answered when their download has ended, and the copies that it asks the server about.

extension Downloader {
    /// The Fetch under way that another call of the same wants to wait for; nil: there is none.
    func runningFetch(of key: CopyKey, like isSame: (DownloadRecord) -> Bool) -> LedgerEntry? {
        fetches[key]?.sorted().lazy.compactMap { self.ledger[$0] }.first { !$0.state.hasEnded && isSame($0.record) }
    }

    /// Takes what former Fetches of the same ended in off the list, so that one who polls does not fill it. Not what has a name of its
    /// caller's, nor what its owner is still to be told of.
    func removeFormerFetches(of key: CopyKey) {
        let former = (fetches[key] ?? []).sorted().compactMap { ledger[$0] }.filter { entry in
            let (record, options) = (entry.record, entry.record.options)
            return entry.state.hasEnded && options.token == nil && (options.activate == nil || record.isAcknowledged)
        }
        decide(former.map { .remove($0) })
    }

    /// Answers when `download` has ended; at once where it has.
    func answerFetch(_ reply: FetchReply, by download: ManagedDownload) {
        guard download.state.hasEnded else {
            do throws(Refusal) { try callers.wait(reply, for: download) } catch { reply.fail(error) }
            return
        }
        journal.post(Self.answer(reply, of: download))
    }

    /// The answer of a Fetch whose download has ended.
    static func answer(_ reply: FetchReply, of download: ManagedDownload) -> Message? {
        if let failure = download.state.endFailure { return reply.message(failing: failure) }
        let outcome = download.record.isUnchanged ? FetchOutcome.noData : .newData
        return reply.message((outcome.rawValue, download.record.path ?? ""))
    }

    // MARK: Copies

    /// Hands over the copy that `entry` is to be compared with; nil where none is known, or wanted.
    func findCopy(for entry: LedgerEntry, _ then: @escaping @BusActor (CopyHeld?) -> Void) {
        let record = entry.record
        guard record.options.onlyIfChanged else { return then(nil) }
        BusActor.spawn { [self] in then(await journal.copy(for: record.copyKey)) }
    }

    /// What is to be known of the file that `entry` ends with: how it looks, and what the server said of it, if this process heard that.
    func copy(of entry: LedgerEntry, at path: String, _ stamp: FileStamp?) -> CopyHeld? {
        let record = entry.record
        guard record.keepsCopy, let stamp, let name = path.pathComponents.last.map(String.init) else { return nil }
        return CopyHeld(
            key: record.copyKey, name: name, stamp: stamp, validators: download(entry.number)?.validators, mediaType: record.mediaType,
            checksum: record.options.checksum)
    }

    /// `copy`, with what was said of the same bytes now.
    func renewed(_ copy: CopyHeld, by entry: LedgerEntry) -> CopyHeld {
        var copy = copy
        copy.validators = download(entry.number)?.validators
        copy.mediaType = entry.record.mediaType
        copy.checksum = entry.record.options.checksum ?? copy.checksum
        return copy
    }
}

extension EndError {
    /// What `record` ended in, or waits for.
    init(of record: DownloadRecord) {
        self = (record.state.endFailure ?? record.lastFailure).map { EndError($0) } ?? EndError()
        if record.state == .finished, record.isUnchanged { details["unchanged"] = .bool(true) }
    }
}
