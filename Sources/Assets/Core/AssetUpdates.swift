internal import DownloadModel

/// The way of an update: its manifest, the room it needs, its download, its extraction.
extension AssetUpdater {
    // MARK: The manifest

    func beginCheck(_ key: AssetKey, isBackground: Bool = false) {
        guard assets[key] != nil else { return }
        let ticket = newTicket()
        assets[key]?.fetchesInBackground = isBackground
        set(key, .checking(ticket))
        actions.append(.fetchManifest(key, ticket, isBackground: isBackground))
    }

    func manifestFetched(_ key: AssetKey, _ manifest: AssetManifest, isPublic: Bool?, now: WallTime) {
        guard let state = assets[key] else { return }
        let (wantsUpdate, forces) = (state.wantsUpdate, state.forces)
        assets[key]?.activity = .none
        modify(key) { ($0.owesCheck, $0.wantsUpdate, $0.forces) = (false, false, false) }
        change(key) { record in
            (record.latest, record.latestTimestamp, record.isObsolete) = (manifest.version, manifest.timestamp, false)
            (record.checkedAt, record.checkedIn) = (now, session)
            if let isPublic { record.options.isNamedByPublicServer = isPublic }
            if let skipped = record.skipped, !skipped.isSameBytes(as: manifest.version) { record.skipped = nil }
        }
        guard let record = assets[key]?.record else { return }
        answer(state.checks, .checked(isNewer: record.isNewer(manifest, forces: false), latest: manifest.version))
        assets[key]?.checks = []
        guard wantsUpdate else { return actions.append(.tell(key)) }
        guard record.isNewer(manifest, forces: forces) else {
            dropPending(key)
            change(key) { ($0.failure, $0.isCancelled) = (nil, false) }
            answer(takeUpdates(key), .updated(isChanged: false, path: record.path))
            actions.append(.tell(key))
            return tidy(key)
        }
        plan(key, manifest, now: now)
        // Before a download, delete the archive of an earlier version, because the new archive may need the room. A switch begins before
        // deletions, because none may change its folder meanwhile.
        if assets[key]?.record.pending?.step == .downloading { tidy(key) }
        proceed(key)
        tidy(key)
    }

    /// Makes the pending update that brings the version of `manifest`: the one that has failed before, if it is of this version.
    private func plan(_ key: AssetKey, _ manifest: AssetManifest, now: WallTime) {
        guard let state = assets[key] else { return }
        let record = state.record
        if let pending = record.pending, !pending.manifest.isSameVersion(as: manifest) { dropPending(key) }
        change(key) { record in
            (record.failure, record.isCancelled) = (nil, false)
            if record.pending != nil {
                record.pending?.isRunning = true
                record.pending?.renew(by: manifest)
            } else if let left = record.left, left.sha256 == manifest.sha256, left.version.isSameBytes(as: manifest.version) {
                record.pending = PendingUpdate(manifest: manifest, folder: left.folder, step: .switching)
                record.pending?.unpacked = left.size
            } else {
                record.pending = PendingUpdate(manifest: manifest, folder: newFolder(&record))
            }
            record.pending?.isBackground = state.isBackground
        }
        modify(key) { ($0.restarts, $0.stuck) = (0, []) }
        modify(key) { ($0.source, $0.failedSources) = (0, []) }
    }

    /// A name that no folder of the asset has had, also if an earlier registration of it has ended.
    func newFolder(_ record: inout AssetRecord) -> String {
        // A later registration finds only names with as many digits as an instant after September 2001. The clock may not be set yet.
        let instant = now.microseconds < AssetRecord.leastInstant ? now.microseconds +| AssetRecord.leastInstant : now.microseconds
        record.lastFolder = max(instant, record.lastFolder +| 1)
        return "version-\(record.lastFolder)"
    }

    func manifestFailed(_ key: AssetKey, _ failure: DownloadFailure) {
        guard let state = assets[key] else { return }
        assets[key]?.checks = []
        answer(state.checks, .failed(failure))
        if let status = failure.httpStatus, status == 404 || status == 410 { change(key) { $0.isObsolete = true } }
        guard state.wantsUpdate else { return set(key, .none) }
        fail(key, failure)
    }

    // MARK: The update

    /// Begins the next step of the pending update. Its row is saved.
    func proceed(_ key: AssetKey) {
        guard let pending = assets[key]?.record.pending else { return }
        switch pending.step {
        case .downloading:
            if let number = pending.download {
                assets[key]?.isOldDownload = true
                set(key, .downloading(number))
                actions.append(.resumeDownload(key, number, retries: true))
            } else {
                checkSpace(key, pending)
            }
        case .extracting:
            assets[key]?.busy.insert(pending.folder)
            set(key, .extracting)
            actions.append(.extract(key, folder: pending.folder, pending.manifest))
        case .switching: switchLink(key, to: pending.folder, .switching)
        }
    }

    private func checkSpace(_ key: AssetKey, _ pending: PendingUpdate) {
        let ticket = newTicket()
        set(key, .checkingSpace(ticket))
        actions.append(.checkSpace(key, ticket, needed: pending.manifest.neededRoom))
    }

    func spaceChecked(_ key: AssetKey, missing: ByteCount) {
        guard let pending = assets[key]?.record.pending, let directory = assets[key]?.record.directory else { return }
        guard missing == 0 else {
            return fail(
                key,
                DownloadFailure(
                    .diskFull,
                    """
                    There is not enough room in \(directory) for the archive and its files: \(HumanText.size(missing)) more are needed; free \
                    some, then update again.
                    """, missingBytes: missing))
        }
        let ticket = newTicket()
        assets[key]?.activity = .starting(ticket)
        let url = pending.manifest.source(at: assets[key]?.source ?? 0)
        actions.append(.startDownload(key, ticket, url: url, pending))
    }

    func downloadAdded(_ key: AssetKey, _ ticket: Ticket, _ number: DownloadNumber) {
        // The update was cancelled meanwhile.
        guard assets[key]?.activity == .starting(ticket) else { return actions.append(.removeDownload(number)) }
        let source = assets[key]?.source ?? 0
        assets[key]?.isOldDownload = false
        change(key) { record in
            record.pending?.download = number
            record.pending?.source = source
        }
        set(key, .downloading(number))
    }

    func downloadEnded(_ key: AssetKey, _ number: DownloadNumber, _ end: DownloadEnd) {
        guard let pending = assets[key]?.record.pending else { return }
        switch end {
        case .finished:
            change(key) { $0.pending?.step = .extracting }
            proceed(key)
        case .failed(let failure): downloadFailed(key, pending, failure)
        case .cancelled: abandon(key, DownloadFailure(.cancelled, "The download of the update was cancelled."))
        case .lost:
            downloadAgain(key, DownloadFailure(.interrupted, "The download of the update was removed; update again."))
        }
    }

    /// Tries the next mirror, from its first byte.
    private func downloadFailed(_ key: AssetKey, _ pending: PendingUpdate, _ failure: DownloadFailure) {
        let isOfThisMachine =
            failure.wait == .diskSpace || failure.wait == .destination
            || [.storage, .diskFull, .writeFailed, .permissionDenied].contains(failure.name)
        // The download of an earlier update may have options that are out of date, so a new one is tried first. After a retryable failure,
        // the bytes stay. A wrong digest proves that the server has another file, which is not fetched twice.
        let mayBeOutdated = !failure.isRetryable && failure.name != .checksumMismatch
        if assets[key]?.isOldDownload == true, mayBeOutdated, !isOfThisMachine {
            assets[key]?.source = 0
            return checkSpace(key, pending)
        }
        assets[key]?.failedSources.insert(pending.source)
        let next = pending.manifest.sources.indices.first { assets[key]?.failedSources.contains($0) == false }
        guard !isOfThisMachine, let next else { return fail(key, failure) }
        assets[key]?.source = next
        checkSpace(key, pending)
    }

    /// The archive or its download has vanished.
    func downloadAgain(_ key: AssetKey, _ failure: DownloadFailure) {
        guard let state = assets[key], let pending = state.record.pending else { return }
        guard state.restarts < Self.mostRestarts else { return fail(key, failure) }
        assets[key]?.restarts = state.restarts +| 1
        checkSpace(key, pending)
    }

    func extracted(_ key: AssetKey, _ folder: String, _ end: ExtractionEnd) {
        guard let state = assets[key] else { return }
        assets[key]?.busy.remove(folder)
        defer {
            tidy(key)
            leave(key)
        }
        guard state.activity == .extracting, let pending = state.record.pending, pending.folder == folder else { return }
        switch end {
        case .whole(let size):
            change(key) { record in
                record.pending?.step = .switching
                record.pending?.unpacked = size
            }
            proceed(key)
        case .failed(let failure): fail(key, failure)
        case .unusable(let failure):
            dropPending(key)
            fail(key, failure)
        case .archiveLost:
            change(key) { $0.pending?.step = .downloading }
            downloadAgain(key, DownloadFailure(.interrupted, "The archive of the update was removed or changed; update again."))
        case .cancelled: fail(key, DownloadFailure(.interrupted, "Unpacking was interrupted; update again."))
        }
    }

    // MARK: Its failure

    /// The update has failed. What is there stays for the next one.
    func fail(_ key: AssetKey, _ failure: DownloadFailure) {
        change(key) { record in
            record.pending?.isRunning = false
            (record.failure, record.isCancelled) = (failure, false)
        }
        // A later check without a call must not bring the version that a rollback has left.
        modify(key) { ($0.wantsUpdate, $0.forces) = (false, false) }
        set(key, .none)
        answer(assets[key]?.updates ?? [], .failed(failure))
        assets[key]?.updates = []
        beginNextUpdate(key)
    }
}
