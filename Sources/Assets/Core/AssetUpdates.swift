internal import DownloadModel

/// Checks, updates, rollbacks and cancellations.
extension AssetUpdater {
    // MARK: Calls

    func check(_ key: AssetKey, _ call: CallNumber) {
        guard let state = assets[key] else { return }
        switch state.activity {
        case _ where state.record.isLeaving: answer(.call(call), .refused(Self.isLeaving(key)))
        case .none, .rollingBack:
            guard state.activity == .none else { return answer(.call(call), .refused(isRollingBack(key))) }
            assets[key]?.checks.append(.call(call))
            assets[key]?.isBackground = false
            beginCheck(key)
        case .checking(let ticket):
            assets[key]?.checks.append(.call(call))
            raiseCheck(key, ticket)
        case .checkingSpace, .starting, .downloading, .verifying, .extracting, .switching, .deleting:
            let latest = state.record.pending?.manifest.version ?? state.record.latest ?? ""
            answer(.call(call), .checked(isNewer: true, latest: latest))
        }
    }

    func update(_ key: AssetKey, forces: Bool, _ caller: AssetCaller, now: WallTime) {
        guard let state = assets[key] else { return }
        guard !state.record.isLeaving else { return answer(caller, .refused(Self.isLeaving(key))) }
        guard state.activity != .rollingBack else { return answer(caller, .refused(isRollingBack(key))) }
        if state.isBackground { raise(key) }
        if state.isResumed {
            return modify(key) { state in
                state.nextUpdates.append(caller)
                state.nextForces = state.nextForces || forces
            }
        }
        assets[key]?.updates.append(caller)
        switch state.activity {
        case .none:
            modify(key) { ($0.wantsUpdate, $0.forces) = (true, forces) }
            beginCheck(key)
        case .checking:
            modify(key) { ($0.wantsUpdate, $0.forces) = (true, state.forces && state.wantsUpdate || forces) }
        default: break
        }
    }

    /// A call asks for the update that the service began by itself: it does not wait for an unmetered connection any more.
    private func raise(_ key: AssetKey) {
        assets[key]?.isBackground = false
        guard let state = assets[key] else { return }
        if state.record.pending?.isBackground == true { change(key) { $0.pending?.isBackground = false } }
        switch state.activity {
        case .checking(let ticket): raiseCheck(key, ticket)
        case .downloading(let number), .verifying(let number): actions.append(.raiseDownload(key, number))
        case .none, .checkingSpace, .starting, .extracting, .switching, .rollingBack, .deleting: break
        }
    }

    /// Fetches the manifest anew if its fetch waits for an unmetered connection.
    private func raiseCheck(_ key: AssetKey, _ ticket: Ticket) {
        guard assets[key]?.fetchesInBackground == true else { return }
        actions.append(.cancelFetch(key, ticket))
        beginCheck(key)
    }

    /// The update of an earlier process has ended: begins the one that calls have asked for since.
    private func beginNextUpdate(_ key: AssetKey) {
        guard let state = assets[key], state.isResumed else { return }
        guard !state.record.isLeaving else {
            modify(key) { ($0.isResumed, $0.nextUpdates) = (false, []) }
            return answer(state.nextUpdates, .refused(Self.isLeaving(key)))
        }
        modify(key) { state in
            (state.isResumed, state.updates, state.nextUpdates) = (false, state.nextUpdates, [])
            (state.forces, state.nextForces, state.wantsUpdate) = (state.nextForces, false, !state.updates.isEmpty)
        }
        if !state.nextUpdates.isEmpty { beginCheck(key) }
    }

    private func isRollingBack(_ key: AssetKey) -> Refusal { Refusal(.invalidState, "The asset \(key) is being rolled back.") }

    func updateAll(_ app: String, forces: Bool, _ call: CallNumber, now: WallTime) {
        let keys = keys(of: app)
        guard !keys.isEmpty else { return answer(.call(call), .allUpdated([])) }
        lastGroup &+= 1
        groups[lastGroup] = AssetGroup(call: call, waiting: keys, count: keys.count)
        let number = lastGroup
        for key in keys { update(key, forces: forces, .group(number, key), now: now) }
    }

    /// One asset of a call for several has ended.
    func answerGroup(_ number: UInt64, _ key: AssetKey, _ answer: Answer) {
        guard var group = groups[number] else { return }
        group.waiting.removeAll { $0 == key }
        switch answer {
        case .updated(let isChanged, let path): group.results.append(AppUpdate(key: key, isChanged: isChanged, path: path))
        default: group.failures.append((key, answer))
        }
        groups[number] = group.waiting.isEmpty ? nil : group
        guard group.waiting.isEmpty else { return }
        let failures = group.failures.sorted { $0.key < $1.key }
        guard let first = failures.first else {
            return self.answer(.call(group.call), .allUpdated(group.results.sorted { $0.key < $1.key }))
        }
        let words = "\(failures.count) of \(group.count) assets were not updated. \(first.key.name): "
        switch first.answer {
        case .failed(var failure):
            failure.message = "\(words)\(failure.message)"
            self.answer(.call(group.call), .failed(failure))
        case .refused(let refusal): self.answer(.call(group.call), .refused(Refusal(refusal.name, "\(words)\(refusal.message)")))
        default: self.answer(.call(group.call), .refused(Refusal(.invalidState, words)))
        }
    }

    func rollBack(_ key: AssetKey, _ call: CallNumber) {
        guard let state = assets[key] else { return }
        let refusal: Refusal? =
            if state.record.isLeaving {
                Self.isLeaving(key)
            } else if state.activity == .rollingBack {
                nil
            } else if state.activity != .none {
                Refusal(.invalidState, "The asset \(key) is being updated; wait for the end or cancel the update before a rollback.")
            } else if state.record.previous == nil {
                Refusal(.invalidState, "The asset \(key) has no version before the installed one.")
            } else {
                nil
            }
        if let refusal { return answer(.call(call), .refused(refusal)) }
        assets[key]?.rollbacks.append(.call(call))
        guard state.activity == .none, let previous = state.record.previous else { return }
        dropPending(key)
        change(key) { $0.isRollingBack = true }
        switchLink(key, to: previous.folder, .rollingBack)
    }

    func cancel(_ key: AssetKey, _ call: CallNumber) {
        abandon(key, DownloadFailure(.cancelled, "The update was cancelled."))
        answer(.call(call), .done)
    }

    /// Ends what is under way, and gives up what a failed update has left. A switch is one step, and is not stopped.
    func abandon(_ key: AssetKey, _ failure: DownloadFailure) {
        guard let state = assets[key] else { return }
        switch state.activity {
        case .switching, .rollingBack, .deleting: return
        case .none where state.record.pending == nil: return
        case .checking(let ticket):
            actions.append(.cancelFetch(key, ticket))
            answer(state.checks, .failed(failure))
            assets[key]?.checks = []
        case .extracting: if let folder = state.record.pending?.folder { actions.append(.cancelExtraction(key, folder: folder)) }
        case .none, .checkingSpace, .starting, .downloading, .verifying: break
        }
        let isUpdate = state.wantsUpdate || state.record.pending != nil
        assets[key]?.wantsUpdate = false
        assets[key]?.activity = .none
        dropPending(key)
        if isUpdate { change(key) { ($0.isCancelled, $0.failure) = (true, nil) } }
        answer(takeUpdates(key), .failed(failure))
        assets[key]?.isResumed = false
        actions.append(.tell(key))
        tidy(key)
    }

    // MARK: The manifest

    func beginCheck(_ key: AssetKey, isBackground: Bool = false) {
        guard assets[key] != nil else { return }
        let ticket = newTicket()
        assets[key]?.fetchesInBackground = isBackground
        set(key, .checking(ticket))
        actions.append(.fetchManifest(key, ticket, isBackground: isBackground))
    }

    /// Somebody has deleted a version, or the link to it.
    func versionLost(_ key: AssetKey, _ folder: String, isFolderThere: Bool) {
        guard let state = assets[key] else { return }
        switch state.activity {
        case .checking:
            guard let installed = state.record.installed, installed.folder == folder else { return }
            installedLost(key, installed, isFolderThere)
        case .switching where state.record.pending?.folder == folder:
            assets[key]?.busy.remove(folder)
            change(key) { record in
                // What is left of the folder is in the way of another try.
                record.addRemoval(folder, keepsFolder: false, download: record.pending?.download)
                if record.left?.folder == folder { record.left = nil }
                let name = newFolder(&record)
                if var pending = record.pending {
                    (pending.folder, pending.step, pending.download, pending.unpacked) = (name, .downloading, nil, nil)
                    record.pending = pending
                }
            }
            tidy(key)
            let failure = DownloadFailure(
                .interrupted, "The new version, or some of its files, was deleted before it was switched to; update again.")
            if state.record.isLeaving { fail(key, failure) } else { downloadAgain(key, failure) }
            afterSwitch(key)
        case .rollingBack where state.record.previous?.folder == folder:
            let failure = DownloadFailure(
                .interrupted, "The version before was deleted, or files are missing in it; the installed version stays.")
            rollbackSwitched(key, state.record, failure)
            change(key) { record in
                record.previous = nil
                record.addRemoval(folder, keepsFolder: false)
            }
            afterSwitch(key)
        default: break
        }
    }

    /// The update that may follow installs the version again, without a download if only the link is gone.
    private func installedLost(_ key: AssetKey, _ installed: AssetVersion, _ isFolderThere: Bool) {
        change(key) { record in
            record.installed = nil
            guard isFolderThere else { return }
            if let old = record.left?.folder { record.addRemoval(old, keepsFolder: false) }
            record.left = installed
        }
        actions.append(.tell(key))
        tidy(key)
    }

    func manifestFetched(_ key: AssetKey, _ manifest: AssetManifest, now: WallTime) {
        guard let state = assets[key] else { return }
        let (wantsUpdate, forces) = (state.wantsUpdate, state.forces)
        assets[key]?.activity = .none
        modify(key) { ($0.owesCheck, $0.wantsUpdate, $0.forces) = (false, false, false) }
        change(key) { record in
            (record.latest, record.latestTimestamp, record.isObsolete) = (manifest.version, manifest.timestamp, false)
            (record.checkedAt, record.checkedIn) = (now, session)
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
        // The archive of an earlier version takes the room that this one may need. A switch comes first: it needs its folder.
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
                record.pending?.manifest = manifest
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

    /// A name that no folder of the asset has had.
    private func newFolder(_ record: inout AssetRecord) -> String {
        record.lastFolder = max(now.microseconds, record.lastFolder +| 1)
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
        let sources = pending.manifest.sources
        let source = assets[key]?.source ?? 0
        let url = sources.indices.contains(source) ? sources[source] : pending.manifest.url
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
        let isOfThisMachine = failure.wait == .diskSpace || failure.wait == .destination || failure.name == .storage
        // A server refuses the URL or the credentials of an earlier update. Those of now are tried first.
        if assets[key]?.isOldDownload == true, let status = failure.httpStatus, (400..<500).contains(status) {
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
    private func downloadAgain(_ key: AssetKey, _ failure: DownloadFailure) {
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
            downloadAgain(key, DownloadFailure(.interrupted, "The archive of the update was removed; update again."))
        case .cancelled: fail(key, DownloadFailure(.interrupted, "Unpacking was interrupted; update again."))
        }
    }

    // MARK: The switch

    func switchLink(_ key: AssetKey, to folder: String, _ activity: AssetActivity) {
        assets[key]?.busy.insert(folder)
        set(key, activity)
        actions.append(.switchLink(key, folder: folder))
    }

    func switched(_ key: AssetKey, _ failure: DownloadFailure?, now: WallTime) {
        guard let state = assets[key] else { return }
        switch state.activity {
        case .switching: updateSwitched(key, state.record, failure, now: now)
        case .rollingBack: rollbackSwitched(key, state.record, failure)
        default: return
        }
        afterSwitch(key)
    }

    private func afterSwitch(_ key: AssetKey) {
        tidy(key)
        leave(key)
        guard let waiting = assets[key]?.registrations, !waiting.isEmpty else { return }
        assets[key]?.registrations = []
        for (record, call) in waiting { register(record, found: nil, call) }
    }

    private func updateSwitched(_ key: AssetKey, _ before: AssetRecord, _ failure: DownloadFailure?, now: WallTime) {
        guard let pending = before.pending else { return }
        assets[key]?.busy.remove(pending.folder)
        if let failure { return fail(key, failure) }
        change(key) { record in
            // If the installed version was lost, the version before it is the only one to go back to.
            let previous = record.installed ?? record.previous
            // The version that the link led to at the registration, whose number nobody knows. Programs may have it open, so it stays until
            // the next update.
            let found = previous == nil && record.left?.version.isEmpty == true && record.left?.folder != pending.folder
            let kept = found ? record.left : nil
            for old in [record.previous, record.left].compactMap({ $0?.folder })
            where old != pending.folder && old != previous?.folder && old != kept?.folder {
                record.addRemoval(old, keepsFolder: false)
            }
            record.addRemoval(pending.folder, keepsFolder: true, download: pending.download)
            record.previous = previous?.folder == pending.folder ? nil : previous
            record.installed = AssetVersion(pending)
            (record.left, record.skipped, record.pending) = (kept, nil, nil)
            (record.failure, record.isCancelled) = (nil, false)
            (record.owesCall, record.readyAt) = (record.options.activate != nil, now)
        }
        // A folder that the link led to could not be deleted before.
        modify(key) { ($0.activity, $0.stuck) = (.none, []) }
        actions += [.tell(key), .ready(key, version: pending.manifest.version)]
        answer(assets[key]?.updates ?? [], .updated(isChanged: true, path: before.path))
        assets[key]?.updates = []
        if assets[key]?.record.owesCall ?? false { callOwner(key) }
        beginNextUpdate(key)
    }

    private func rollbackSwitched(_ key: AssetKey, _ before: AssetRecord, _ failure: DownloadFailure?) {
        guard let previous = before.previous else { return }
        let callers = assets[key]?.rollbacks ?? []
        assets[key]?.rollbacks = []
        assets[key]?.busy.remove(previous.folder)
        assets[key]?.activity = .none
        change(key) { record in
            record.isRollingBack = false
            guard failure == nil else { return }
            if let old = record.left?.folder { record.addRemoval(old, keepsFolder: false) }
            (record.left, record.skipped) = (record.installed, record.installed?.version)
            (record.installed, record.previous) = (previous, nil)
            (record.failure, record.isCancelled) = (nil, false)
        }
        actions.append(.tell(key))
        answer(callers, failure.map { .failed($0) } ?? .rolledBack(path: before.path))
    }

    // MARK: Ends

    /// The update has failed. What is there stays for the next one.
    func fail(_ key: AssetKey, _ failure: DownloadFailure) {
        change(key) { record in
            record.pending?.isRunning = false
            (record.failure, record.isCancelled) = (failure, false)
        }
        assets[key]?.wantsUpdate = false
        set(key, .none)
        answer(assets[key]?.updates ?? [], .failed(failure))
        assets[key]?.updates = []
        beginNextUpdate(key)
    }

    /// Gives up the pending update, with all that it has left.
    func dropPending(_ key: AssetKey) {
        guard let pending = assets[key]?.record.pending else { return }
        change(key) { record in
            record.pending = nil
            let isVersion = [record.installed, record.previous, record.left].contains { $0?.folder == pending.folder }
            record.addRemoval(pending.folder, keepsFolder: isVersion, download: pending.download)
        }
    }

    /// Deletes what is to be deleted, as far as the disk does not work on it.
    func tidy(_ key: AssetKey) {
        guard let state = assets[key] else { return }
        for removal in state.record.removals where !state.busy.contains(removal.folder) && !state.stuck.contains(removal) {
            assets[key]?.busy.insert(removal.folder)
            actions.append(.remove(key, removal))
        }
    }

    func removed(_ key: AssetKey, _ removal: AssetRemoval, isGone: Bool) {
        guard assets[key]?.busy.remove(removal.folder) != nil else { return }
        if isGone {
            change(key) { record in record.removals.removeAll { $0 == removal } }
        } else {
            assets[key]?.stuck.insert(removal)
        }
        // The removal may be another by now.
        tidy(key)
        leave(key)
    }

    func callOwner(_ key: AssetKey) {
        guard assets[key]?.isCallingOwner == false else { return }
        assets[key]?.isCallingOwner = true
        actions.append(.callOwner(key))
    }

    func ownerCalled(_ key: AssetKey, _ isDone: Bool) {
        guard assets[key]?.isCallingOwner == true else { return }
        assets[key]?.isCallingOwner = false
        if isDone { change(key) { $0.owesCall = false } }
    }
}
