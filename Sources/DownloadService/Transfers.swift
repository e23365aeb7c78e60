internal import DBus
internal import DownloadModel
internal import DownloadStore
internal import DownloaderInterface
internal import EventLoop
internal import Logging
internal import TransferEngine

/// Between the model's decisions and what the engine and the pool do and tell.
extension Downloader {
    // MARK: To the engine

    func startTransfer(_ download: ManagedDownload) {
        guard let url = try? DownloadURL(download.record.url) else {
            // Checked when it was added; only a damaged database comes here.
            return advance(download, .attemptFailed(DownloadFailure(.invalidUrl, "The stored URL is damaged."), retryAt: nil))
        }
        let (record, options) = (download.record, download.record.options)
        var request = TransferRequest(number: record.number, url: url, directory: record.directory, partName: record.partName)
        request.headers = options.headers
        request.userAgent = options.userAgent
        request.referrer = options.referrer
        request.username = options.username
        request.password = options.password
        request.fileName = options.fileName
        request.expectedSize = options.size
        request.maxSize = options.maxSize
        request.hasChecksum = options.checksum != nil
        request.speedLimit = options.speedLimit
        request.stallTimeout = options.stallTimeout
        request.resume = record.resume
        request.mapPath = mapPath(of: download)
        request.ifExists = options.ifExists
        download.transfer = .running
        download.transferStarted = .now
        engine.start(request)
    }

    func stopTransfer(_ download: ManagedDownload) {
        guard download.transfer == .running else { return }
        download.transfer = .stopping
        engine.stop(download.number)
    }

    private func mapPath(of download: ManagedDownload) -> String { "\(mapFolder)/\(download.number)" }

    // MARK: From the engine

    func take(_ event: TransferEvent) {
        switch event {
        case .began(let number, let facts):
            if let download = download(number), download.transfer == .running { began(download, facts) }
        case .progress(let progress):
            for one in progress {
                guard let download = download(one.number), download.transfer == .running else { continue }
                download.received = one.received
                download.speed = one.speed
                announcer.progress(of: download, active: counts.active)
                toaster.progress(download)
            }
        case .checkpoint(let number, let resume):
            guard let download = download(number), download.transfer == .running else { return }
            save(resume, to: download)
            journal.append(.put(download.record))
        case .ended(let number, let end): ended(number, end)
        }
    }

    private func began(_ download: ManagedDownload, _ facts: TransferFacts) {
        announcer.flushProgress(of: download)
        download.received = facts.offset
        announcer.change(download) { record in
            record.fileName = facts.fileName
            record.mediaType = facts.mediaType
            record.total = facts.total
        }
        download.toldReceived = facts.offset
        if facts.offset > 0 || facts.discarded || download.hasToldBytes {
            download.hasToldBytes = facts.offset > 0
            journal.post(Download.resumedAt.message(from: download.path, (facts.offset, facts.total.wireTotal)))
        }
        announcer.schedulePropertiesSoon(download)
    }

    private func save(_ resume: ResumeData?, to download: ManagedDownload) {
        download.record.resume = resume
        download.record.received = resume?.written ?? 0
    }

    private func ended(_ number: DownloadNumber, _ end: TransferEnd) {
        guard let download = download(number) ?? leaving.removeValue(forKey: number) else { return }
        download.transfer = .none
        download.speed = 0
        toaster.stopped(download)
        let wasStopped = download.state != .active
        switch end {
        case .stopped(let resume):
            save(resume, to: download)
            if !wasStopped { journal.append(.put(download.record)) }  // the service is ending
        case .complete(let part) where wasStopped: save(part.resume, to: download)
        case .failed(_, _, let resume) where wasStopped: save(resume, to: download)
        case .nameTaken where wasStopped: break

        case .complete(let part):
            download.received = part.size
            announcer.change(download) { record in
                record.total = part.size
                record.received = part.size
                record.fileName = part.facts.fileName
                record.resume = part.resume
            }
            advance(download, .bodyComplete)
        case .failed(let failure, let madeProgress, let resume):
            let (retryAt, retriesUsed) = RetryPolicy.retryAt(
                record: download.record, failure: failure, madeProgress: madeProgress, now: .now, random: .random(in: 0..<1))
            announcer.flushProgress(of: download)
            save(resume, to: download)
            download.received = download.record.received
            announcer.change(download) { $0.retriesUsed = retriesUsed }
            log.debug(
                "attempt failed",
                metadata: [
                    "download": "\(number)", "error": "\(failure.name.rawValue)", "cause": "\(failure.message)",
                    "retry": "\(retryAt != nil)",
                ])
            advance(download, .attemptFailed(failure, retryAt: retryAt))
        case .nameTaken(let path):
            if download.record.options.ifExists == .skip {
                announcer.change(download) { $0.path = path }
                advance(download, .skipped)
            } else {
                advance(download, .attemptFailed(Self.alreadyExists(path), retryAt: nil))
            }
        }
        if wasStopped { stopped(download) }
    }

    /// A transfer that was told to stop has: what it left is saved or thrown away, and a later turn may start the next.
    private func stopped(_ download: ManagedDownload) {
        if download.discardsWhenStopped {
            download.discardsWhenStopped = false
            download.record.resume = nil
            discard(download)
        } else if !download.isRemoved {
            announcer.flushProgress(of: download)
            download.received = download.record.received
            download.toldReceived = min(download.toldReceived, download.received)
            journal.append(.put(download.record))
        }
        schedule()
        residenceChanged?()
    }

    private static func alreadyExists(_ path: String) -> DownloadFailure {
        DownloadFailure(.alreadyExists, "\(path) exists already, and the option if-exists is “fail”.")
    }

    // MARK: In the pool

    func verify(_ download: ManagedDownload) {
        let record = download.record
        Pool.shared.perform {
            Commit.verify(
                directory: record.directory, partName: record.partName, checksum: record.options.checksum, expectedSize: record.options.size
            )
        } then: { [self] result in
            guard download.state == .verifying, !download.isRemoved else { return }
            switch result {
            case .success(let identity):
                // By its inode the file is found again if the service dies between the rename and the row.
                download.record.resume = ResumeData(
                    written: download.received, total: download.record.total, validator: record.resume?.validator, identity: identity)
                advance(download, .verified)
            case .failure(let failure): advance(download, .commitFailed(failure))
            }
        }
    }

    func commit(_ download: ManagedDownload) {
        guard download.state == .committing else { return }
        let (record, origin, map) = (download.record, redacted(download.record.url), mapPath(of: download))
        Pool.shared.perform {
            Commit.commit(
                directory: record.directory, partName: record.partName, name: record.fileName ?? "download",
                policy: record.options.ifExists,
                origin: origin, mapPath: map)
        } then: { [self] outcome in
            finishCommit(download, outcome)
        }
    }

    private func finishCommit(_ download: ManagedDownload, _ outcome: CommitOutcome) {
        switch outcome {
        case .committed(let path):
            announcer.change(download) { $0.path = path }
            advance(download, .committed)
        case .skipped(let path):
            announcer.change(download) { $0.path = path }
            advance(download, .skipped)
        case .failed(let failure): advance(download, .commitFailed(failure))
        }
    }

    /// After a restart in the middle of a commit: the rename has happened, or it has not, or somebody has taken the part file away.
    func findCommitted(_ download: ManagedDownload) {
        let record = download.record
        guard let resume = record.resume else { return advance(download, .partLost) }
        Pool.shared.perform {
            Commit.found(
                directory: record.directory, partName: record.partName, name: record.fileName ?? "download", identity: resume.identity,
                size: record.total)
        } then: { [self] found in
            if let path = found.path {
                finishCommit(download, .committed(path: path))
            } else if found.isPartThere {
                commit(download)
            } else {
                download.record.resume = nil
                advance(download, .partLost)
            }
        }
    }

    /// Deletes the part file and its written map, once no transfer writes them.
    func discard(_ download: ManagedDownload) {
        guard download.transfer == .none else {
            download.discardsWhenStopped = true
            return
        }
        if case .queued = download.state, !download.isRemoved { return }  // retried meanwhile: the bytes are wanted again
        let (directory, part, map) = (download.record.directory, download.record.partName, mapPath(of: download))
        download.isDiscarding = true
        Pool.shared.perform {
            Commit.discard(directory: directory, partName: part, mapPath: map)
        } then: { [self] _ in
            download.isDiscarding = false
            download.record.resume = nil
            download.received = 0
            download.toldReceived = 0
            if !download.isRemoved { journal.append(.put(download.record)) }
            schedule()
            residenceChanged?()
        }
    }
}
