internal import DownloadModel
internal import DownloadStore
internal import EventLoop
internal import Logging
internal import PartFiles
internal import Sandboxes
internal import Scheduling
internal import TransferEngine

/// Connects the decisions of the scheduler with the engine and the disk pool.
extension Downloader {
    // MARK: To the engine

    func startTransfer(_ entry: ScheduledDownload) {
        list.download(entry.number)?.validators = nil
        let (directory, descriptor) = (entry.record.directory, descriptors[entry.number])
        if descriptor == nil, silentFolders.contains(directory) {
            return BusActor.spawn { [self] in startTransfer(entry, nil, on: nil) }
        }
        DiskPool.shared.locate(descriptor.map { .descriptor($0.number) } ?? .path(directory), within: DiskPatience.folder) { [self] disk in
            if disk == nil, descriptor == nil { silentFolders.insert(directory) }
            checkNetwork(of: entry) { [self] failure in
                if let failure {
                    return decide(.transferEnded(entry.number, .failed(failure, madeProgress: false, entry.record.resume)))
                }
                findCopy(for: entry) { [self] in startTransfer(entry, $0, on: disk) }
            }
        }
    }

    /// Passes to `done` the reason why the download of a sandboxed app may not use the network; nil: it may.
    private func checkNetwork(of entry: ScheduledDownload, then done: @escaping @BusActor @Sendable (DownloadFailure?) -> Void) {
        let (options, folders) = (entry.record.options, FlatpakOverrides.folders)
        guard options.isSandboxed, FlatpakInfo.isId(options.app) else { return done(nil) }
        let app = options.app
        DiskPool.shared.perform(at: .path(folders.own), within: DiskPatience.folder) {
            FlatpakOverrides.allowNetwork(for: app, in: folders)
        } then: {
            switch $0 {
            case true?: done(nil)
            case false?:
                done(
                    DownloadFailure(
                        .notAllowed,
                        "The network was taken from the sandbox of \(app) (flatpak override), so nothing is downloaded for it. "
                            + "Allow it there, then retry."))
            case nil:
                done(
                    DownloadFailure(
                        .permissionDenied, "The folder \(folders.own) does not answer, so the rules for \(app) are not known.", wait: .retry
                    ))
            }
        }
    }

    /// - Parameter disk: the disk that the transfer writes to; nil: the disk does not answer.
    private func startTransfer(_ entry: ScheduledDownload, _ copy: CachedCopy?, on disk: DiskKey?) {
        let (record, options) = (entry.record, entry.record.options)
        guard entry.work == .running, !scheduler.conditions.isEnding, let download = list.download(entry.number) else {
            return decide(.transferEnded(record.number, .stopped(record.resume)))
        }
        guard let url = try? DownloadURL(record.url) else {
            // The URL was checked when it was added: only a damaged database gets here.
            let failure = DownloadFailure(.invalidUrl, "The stored URL is damaged; give a new one with ReplaceUrl, or remove the download.")
            return decide(.transferEnded(record.number, .failed(failure, madeProgress: false, nil)))
        }
        var request = TransferRequest(
            number: record.number, url: url, directory: record.directory, partName: partNames.name(of: record.number))
        request.allowsHiddenFolders = allowsHidden(in: record.directory)
        (request.sources, request.mixesSources) = (sources(of: record, url), record.mixesSources)
        request.firstSource = request.sources.firstIndex { $0.url.text == record.firstURL } ?? 0
        request.headers = options.headers
        setCookies.transferBegins(record.number)
        request.cookies = setCookies[record.number] ?? options.cookies.map(\.line)
        request.userAgent = options.userAgent
        request.referrer = options.referrer
        request.username = options.username
        request.password = options.password
        request.proxy = options.proxy?.choice
        // An older version may have written the row under other rules, or another program may have changed it.
        request.fileName = options.fileName.flatMap { FileName.isBare($0) ? $0 : FileName.safe($0) }
        (request.knownName, request.knownType) = (record.fileName, record.mediaType)
        request.expectedSize = options.size
        request.maxSize = options.maxSize
        request.expectedType = options.expectType
        request.hasChecksum = options.provesFile
        request.pieces = options.usablePieceHashes
        let mirrors = record.mirrors
        (request.findsMirrors, request.mirrorCount) = (options.findsMirrors, UInt32(clamping: mirrors.count))
        request.foundMirrorBytes = mirrors.dropFirst(options.mirrors.count).reduce(0) { $0 +| $1.utf8.count }
        request.checksum = options.checksum
        request.speedLimit = options.speedLimit
        // Bytes of several responses did not have the right checksum: do not mix them again.
        request.connections = record.hasStartedOver ? 1 : options.connections
        request.keepsSourcesApart = record.hasStartedOver
        request.stallTimeout = options.stallTimeout
        request.refusesPrivate = options.refusesPrivate(scheduler.settings)
        request.isNamedByPublicServer = options.isNamedByPublicServer ?? false
        request.allowsDowngrade = options.allowsDowngrade
        (request.resume, request.otherRepresentations) = (record.resume, entry.otherRepresentations)
        request.mapPath = record.isToDescriptor ? nil : mapPath(of: record.number)
        request.ifExists = options.ifExists
        request.extract = options.extract
        request.diskReserve = scheduler.settings.diskReserve
        (request.ordinal, request.tellsSent) = (entry.request.ordinal, scheduler.isPaced(entry.request))
        request.mustShare = scheduler.mustShare(entry.request)
        request.copy = copy
        if let bytes = options.postData {
            request.body = RequestBody(bytes, type: options.postType)
            (request.resume, request.mapPath, request.connections) = (nil, nil, 1)
        }
        request.descriptor = descriptors[record.number]
        if request.descriptor?.isInMemory == true { request.maxSize = min(options.maxSize ?? .max, Limits.memoryFileBytes) }
        download.rewind()
        download.transferStarted = .now
        tell { $0.started(download) }
        engine.start(request, on: disk)
    }

    /// The URL and the mirrors; empty if there are no mirrors. Every mirror was checked when it was added: only a damaged database has a
    /// mirror that cannot be read.
    private func sources(of record: DownloadRecord, _ url: DownloadURL) -> [TransferSource] {
        let mirrors = record.mirrors
        return record.knownSources.enumerated().compactMap { place, source in
            let mirror = place == 0 ? nil : mirrors.firstIndex(of: source.url).map { UInt32(clamping: $0) }
            guard let sourceURL = place == 0 ? url : try? DownloadURL(source.url) else { return nil }
            let isFound = mirror.map { $0 >= UInt32(clamping: record.options.mirrors.count) } ?? false
            return TransferSource(
                sourceURL, mirror: mirror, isFound: isFound, received: source.received, hasWrongBytes: source.left == .wrongBytes)
        }
    }

    private func mapPath(of number: DownloadNumber) -> String { "\(mapFolder)/\(number)" }

    // MARK: From the engine

    func take(_ event: TransferEvent) { CrashMarks.working(on: event.number?.value ?? 0) { carryOut(event) } }

    private func carryOut(_ event: TransferEvent) {
        switch event {
        case .asks(let id, let url, let question, let isAnswered, let sharing):
            decide(.asks(id, host: url.host, origin: url.origin, isAnswered: isAnswered, sharing: sharing, question: question))
        case .moved(let id, let failure): decide(.moved(id, failure))
        case .sources(let number, let sources):
            guard let download = list.download(number) else { return }
            decide(.sources(download.entry, sources))
            tell { $0.progressed([download]) }
        case .cookies(let number, let lines):
            guard let entry = scheduler[number], !entry.state.hasEnded else { return }
            setCookies.keep(lines, for: number)
        case .sent(let id, let time): decide(.sent(id, at: time))
        case .shares(let id, let connection): decide(.shares(id, connection: connection))
        case .joined(let id): decide(.joined(id))
        case .over(let id, let failure): decide(.over(id, failure))
        case .stalled(let id, let isStalled): decide(.stalled(id, isStalled))
        case .diskStalled(let number, let isStalled): decide(.diskStalled(number, isStalled))
        case .began(let id, let facts): began(id, facts)
        case .bodyDropped(let number, let held):
            if let download = list.download(number), download.entry.work != .idle {
                tell { $0.rewinds(download) }
                download.holdAgain(held.offset)
            }
            decide(.bodyDropped(number, Scheduler.Response(held)))
        case .progress(let progress):
            var (moved, grown): ([ManagedDownload], [DownloadNumber]) = ([], [])
            for one in progress {
                guard let download = list.download(one.number), download.entry.work == .running else { continue }
                download.received = one.received
                download.speed = one.speed
                download.connections = one.connections
                download.sources = one.sources
                moved.append(download)
                if one.received >= FileSize.leastLarge, download.entry.record.total == nil, !download.entry.isKnownLarge {
                    grown.append(one.number)
                }
            }
            tell { $0.progressed(moved) }
            for number in grown { decide(.grewLarge(number)) }
        case .checkpoint(let number, let resume):
            guard let download = list.download(number) else { return }
            decide(.checkpoint(download.entry, resume))
        case .ended(let number, let end, let id): ended(number, end, by: id)
        }
    }

    private func began(_ id: RequestID, _ facts: TransferFacts) {
        let download = list.download(id.download).flatMap { $0.entry.work == .running ? $0 : nil }
        if let download {
            tell { $0.rewinds(download) }
            download.received = facts.offset
        }
        decide(.began(id, Scheduler.Response(facts)))
        if let download { tell { $0.responded(download, facts) } }
    }

    private func ended(_ number: DownloadNumber, _ end: TransferEnd, by id: RequestID?) {
        if let download = list.download(number) {
            (download.speed, download.connections, download.toldConnections, download.sources) = (0, 1, 1, [])
            if case .complete(let part) = end, download.state == .active { download.received = part.size }
            tell { $0.stopped(download) }
        }
        let outcome: TransferOutcome
        switch end {
        case .complete(let part):
            let resume =
                part.resume
                ?? ResumeData(written: part.size, total: part.size, validator: nil, identity: part.identity, mirror: part.mirror)
            outcome = .complete(size: part.size, fileName: part.facts.fileName, resume)
            list.download(number)?.validators = part.validators
        case .failed(let failure, let madeProgress, let resume):
            let isPrivate = scheduler[number]?.record.options.isPrivate ?? true
            log.debug(
                "attempt failed",
                metadata: ["download": "\(number)", "error": "\(failure.name.rawValue)", "cause": "\(isPrivate ? "" : failure.message)"])
            outcome = .failed(failure, madeProgress: madeProgress, resume)
        case .stopped(let resume): outcome = .stopped(resume)
        case .nameTaken(let path): outcome = .nameTaken(path: path)
        case .unchanged(let copy): outcome = .unchanged(copy)
        }
        decide(.transferEnded(number, outcome, by: id))
    }

    // MARK: In the pool

    func verify(_ entry: ScheduledDownload) {
        if entry.record.isToDescriptor { return verifyDescriptor(entry) }
        findCopy(for: entry) { [self] in verify(entry, $0) }
    }

    private func verify(_ entry: ScheduledDownload, _ copy: CachedCopy?) {
        let record = entry.record
        guard let expected = record.resume?.identity else { return decide(.partLost(entry)) }
        let (map, allowHidden, part) = (
            mapPath(of: entry.number), allowsHidden(in: record.directory), partNames.name(of: entry.number)
        )
        let replaced = record.options.ifExists == .replace ? record.finalName : nil
        let traits = record.folderName == nil ? FileTraits(origin: origin(of: record), replaced: replaced) : nil
        let watch = watchEnding(of: entry)
        DiskPool.shared.perform(at: .path(record.directory), takesLong: true) {
            CrashMarks.working(on: record.number.value) {
                let verification = Commit.verify(
                    directory: record.directory, partName: part, identity: expected, size: record.received,
                    checksum: record.options.checksum, digest: record.statedDigest, expectedSize: record.options.size, mapPath: map,
                    allowHidden: allowHidden, traits: traits)
                guard case .proved = verification, let copy, copy.stamp.size == record.received else { return verification }
                return Commit.isCopy(directory: record.directory, partName: part, of: copy) ? .unchanged(copy) : verification
            }
        } then: { [self] in
            watch.end()
            verified(entry, $0)
        }
    }

    func watchEnding(of entry: ScheduledDownload) -> EndingWatch {
        let directory = entry.record.directory
        return EndingWatch(directory) { [self] in
            let words = "The disk of \(directory) does not answer; the download ends when it does."
            decide(.endingDelayed(entry, DownloadFailure(.writeFailed, words)))
        }
    }

    func verified(_ entry: ScheduledDownload, _ verification: Verification) {
        switch verification {
        case .proved(let identity, let otherDigest):
            if let otherDigest {
                log.warning(
                    "the file matches its checksum, but not the digest that the server stated",
                    metadata: ["download": "\(entry.number)", "stated": "\(otherDigest)"])
            }
            decide(.verified(entry, identity))
        case .unchanged(let copy): decide(.foundUnchanged(entry, renewed(copy, by: entry)))
        case .lost: decide(.partLost(entry))
        case .failed(let failure): decide(.endingFailed(entry, failure))
        }
    }

    /// The URL to store with the finished file as its origin; nil: the download is private, so no origin is stored.
    private func origin(of record: DownloadRecord) -> String? {
        record.options.isPrivate ? nil : list.peek(record.number)?.redactedUrl ?? redacted(record.url)
    }

    func commit(_ entry: ScheduledDownload) {
        let (record, origin, map) = (entry.record, origin(of: entry.record), mapPath(of: entry.number))
        if record.isToDescriptor { return decide(.committed(entry, path: "")) }
        if record.folderName != nil { return nameFolder(of: entry) }
        guard let identity = record.resume?.identity else { return decide(.partLost(entry)) }
        let (part, allowHidden) = (partNames.name(of: entry.number), allowsHidden(in: record.directory))
        let watch = watchEnding(of: entry)
        DiskPool.shared.perform(at: .path(record.directory), takesLong: true) {
            CrashMarks.working(on: record.number.value) {
                // Take the stamp before the file has a name under which other programs may write to it.
                let stamp = record.stamp(at: "\(record.directory)/\(part)")
                let outcome = Commit.commit(
                    directory: record.directory, partName: part, identity: identity, name: record.finalName,
                    policy: record.options.ifExists, origin: origin, mapPath: map, allowHidden: allowHidden)
                return (outcome, stamp)
            }
        } then: { [self] (outcome: CommitOutcome, stamp: FileStamp?) in
            watch.end()
            finishCommit(entry, outcome, stamp)
        }
    }

    private func finishCommit(_ entry: ScheduledDownload, _ outcome: CommitOutcome, _ stamp: FileStamp?) {
        switch outcome {
        case .committed(let path): decide(.committed(entry, path: path, copy: copy(of: entry, at: path, stamp)))
        case .skipped(let path): decide(.committed(entry, path: path, skipped: true))
        case .lost: decide(.partLost(entry))
        case .failed(let failure): decide(.endingFailed(entry, failure))
        case .unsettled(let path): settleCommit(entry, path)
        }
    }

    /// The file has its name, but the disk could not save the folder. The download is neither finished nor failed until the disk can.
    private func settleCommit(_ entry: ScheduledDownload, _ path: String) {
        log.warning("the folder of a finished file could not be flushed: trying again", metadata: ["download": "\(entry.number)"])
        Poller.shared.schedule(after: .seconds(2)) { [self] in findCommitted(entry, isNamed: true) }
    }

    /// After an interrupted commit, finds out whether the rename has happened, has not happened, or another program has removed the part
    /// file.
    ///
    /// - Parameter isNamed: this process has seen the file under its name.
    func findCommitted(_ entry: ScheduledDownload, isNamed: Bool = false) {
        let (record, map, part) = (entry.record, mapPath(of: entry.number), partNames.name(of: entry.number))
        if record.folderName != nil { return nameFolder(of: entry, mayBeNamed: true) }
        guard let resume = record.resume else { return decide(.partLost(entry)) }
        // The file had its final name before its stamp is taken, so another program may have written it. The server's validators no longer
        // apply.
        list.download(entry.number)?.validators = nil
        let watch = watchEnding(of: entry)
        DiskPool.shared.perform(at: .path(record.directory)) {
            CrashMarks.working(on: record.number.value) {
                let found = Commit.found(
                    directory: record.directory, partName: part, name: record.finalName, identity: resume.identity,
                    size: record.total, mapPath: map, isNamed: isNamed)
                guard case .committed(let path) = found else { return (found, nil) }
                return (found, record.stamp(at: path))
            }
        } then: { [self] (found: FoundCommit, stamp: FileStamp?) in
            watch.end()
            switch found {
            case .committed(let path): finishCommit(entry, .committed(path: path), stamp)
            case .unsettled(let path): settleCommit(entry, path)
            case .partThere: commit(entry)
            case .lost: decide(.partLost(entry))
            case .unreachable(let failure): unreachable(entry, failure, isNamed: isNamed)
            }
        }
    }

    /// The folder of the final name is missing, or cannot be opened for now. Only the open folder tells whether the rename has happened.
    private func unreachable(_ entry: ScheduledDownload, _ failure: DownloadFailure, isNamed: Bool) {
        guard failure.wait != nil || failure.isShortage else { return decide(.endingFailed(entry, failure)) }
        decide(.endingDelayed(entry, failure))
        Poller.shared.schedule(after: .seconds(10)) { [self] in findCommitted(entry, isNamed: isNamed) }
    }

    // MARK: Deleting

    /// Deletes a part file, its written map, and what an extraction of it has left. No transfer may be writing them. If the call that has
    /// removed the download also deletes its unpacked folder, that folder is deleted with them.
    ///
    /// - Parameter directory: the download may have left this folder for another.
    func sweep(_ number: DownloadNumber, _ directory: String) {
        guard let deletion = unwantedFolders.take(number, in: directory) else { return discard(number, directory) }
        let (folder, part) = (deletion.folder, partNames.name(of: number))
        DiskPool.shared.perform(at: .path(directory)) {
            CrashMarks.working(on: number.value) { Archives.takeBack(folder, directory: directory, part: part) }
        } then: { [self] end in
            deletion.answer(end.answer)
            if end.mayDiscard { discard(number, directory) } else { decide(.swept(number, directory: directory, isGone: true)) }
        }
    }

    private func discard(_ number: DownloadNumber, _ directory: String) {
        let (part, isOurs) = (partNames.name(of: number), assetFolders.contains(directory))
        let map = list.scheduler.hasLeft(directory, number) ? nil : mapPath(of: number)
        // A download that is off the list may have left a large folder, and no retry waits for its deletion.
        DiskPool.shared.perform(at: .path(directory), takesLong: list.scheduler[number] == nil) {
            CrashMarks.working(on: number.value) {
                let isGone = Commit.discard(directory: directory, partName: part, mapPath: map, isOurs: isOurs)
                return Archives.discard(directory: directory, part: part) && isGone
            }
        } then: { [self] isGone in
            decide(.swept(number, directory: directory, isGone: isGone))
            // In another folder, a transfer may be writing.
            if !list.scheduler.hasLeft(directory, number) { list.peek(number)?.rewind() }
        }
    }
}

extension DownloadRecord {
    /// The stamp of the record's file at `path`; nil if no cached copy is kept. Blocks.
    fileprivate func stamp(at path: String) -> FileStamp? {
        guard keepsCopy, let identity = resume?.identity else { return nil }
        return Commit.stamp(of: path, identity: identity)
    }
}
