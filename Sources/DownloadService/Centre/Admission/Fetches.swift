internal import DBus
internal import DownloadModel
internal import DownloadStore
internal import DownloaderInterface
internal import EventLoop
internal import PartFiles
internal import Scheduling
internal import TransferEngine

// Fetch: calls that are answered when their download has ended, and the cached copies that conditional requests compare with.

extension Admission {
    /// Removes the ended downloads of earlier Fetches of `key` from the list, so that a caller who polls does not fill it. A download stays
    /// if it has a token, or if its owner has yet to acknowledge the end.
    func removeFormerFetches(of key: CopyKey) {
        let former = list.fetched(key).filter { entry in
            let (record, options) = (entry.record, entry.record.options)
            return entry.state.hasEnded && options.token == nil && (options.activate == nil || record.reminders.isAcknowledged)
        }
        executor.decide(former.map { .remove($0) })
    }

    /// Answers once `download` has ended.
    func answerFetch(_ reply: FetchReply, by download: ManagedDownload) {
        guard download.state.hasEnded else {
            do throws(Refusal) { try callers.wait(reply, for: download) } catch { reply.fail(error) }
            return
        }
        journal.answerEnd(reply, isHeld: journal.gate.isWaiting(download.number), reply.message(endOf: download))
    }
}

extension FetchReply {
    /// The answer of a Fetch whose download has ended.
    @BusActor func message(endOf download: ManagedDownload) -> Message? {
        if let failure = download.state.endFailure { return message(failing: failure) }
        let outcome = download.record.isUnchanged ? FetchOutcome.noData : .newData
        return message((outcome.rawValue, download.record.path ?? ""))
    }
}

extension Downloader {
    /// Passes the cached copy to compare `entry` with to `then`; nil: no copy is known, or the download has no use for one.
    func findCopy(for entry: ScheduledDownload, _ then: @escaping @BusActor (CachedCopy?) -> Void) {
        let record = entry.record
        guard record.options.onlyIfChanged else { return then(nil) }
        BusActor.spawn { [self] in then(await journal.copy(for: record.copyKey)) }
    }

    /// The cached copy of the file that `entry` ends with: its stamp, and the server's validators if this process received them.
    func copy(of entry: ScheduledDownload, at path: String, _ stamp: FileStamp?) -> CachedCopy? {
        let record = entry.record
        guard record.keepsCopy, let stamp, let name = path.pathComponents.last.map(String.init) else { return nil }
        return CachedCopy(
            key: record.copyKey, name: name, stamp: stamp, validators: list.download(entry.number)?.validators, mediaType: record.mediaType,
            checksum: record.options.checksum, proof: record.proof)
    }

    /// `copy` with the validators that the server now sends for the same bytes.
    func renewed(_ copy: CachedCopy, by entry: ScheduledDownload) -> CachedCopy {
        var copy = copy
        copy.validators = list.download(entry.number)?.validators
        copy.mediaType = entry.record.mediaType
        copy.checksum = entry.record.options.checksum ?? copy.checksum
        // The bytes are equal, so the proof of either copy counts.
        let proofs = [copy.proof, entry.record.proofOfVerification]
        copy.proof = FileProof.allCases.first { proofs.contains($0) }
        return copy
    }
}

extension EndError {
    /// The failure with which `record` ended, or after which it waits.
    init(of record: DownloadRecord) {
        self = (record.state.endFailure ?? record.lastFailure).map { EndError($0) } ?? EndError()
        if record.state == .finished, record.isUnchanged { details["unchanged"] = .bool(true) }
    }
}
