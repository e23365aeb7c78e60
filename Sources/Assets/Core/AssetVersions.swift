internal import DownloadModel

/// What happens to versions on the disk: the link leads to one, one is lost, one is given up and deleted.
extension AssetUpdater {
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
        guard let state = assets[key], let record = state.nextRegistration else { return }
        modify(key) { ($0.nextRegistration, $0.registering) = (nil, []) }
        register(record, found: nil, state.registering)
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

    // MARK: Losses

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

    // MARK: Deletion

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

    // MARK: The owner

    func callOwner(_ key: AssetKey) {
        guard assets[key]?.isCallingOwner == false else { return modify(key) { $0.owesAnotherCall = true } }
        assets[key]?.isCallingOwner = true
        actions.append(.callOwner(key))
    }

    func ownerCalled(_ key: AssetKey, _ isDone: Bool) {
        guard let state = assets[key], state.isCallingOwner else { return }
        modify(key) { ($0.isCallingOwner, $0.owesAnotherCall) = (false, false) }
        if state.owesAnotherCall { return callOwner(key) }
        if isDone { change(key) { $0.owesCall = false } }
    }
}
