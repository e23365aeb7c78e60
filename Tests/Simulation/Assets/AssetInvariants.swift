// SPDX-License-Identifier: Apache-2.0
import Assets
import DownloadModel
import Scheduling

/// What must be true of assets.
extension AssetHost {
    // MARK: After every step

    func check() {
        checkDirectories()
        for state in updater.assets.values { check(state) }
        let archives = updater.assets.values.compactMap { state in state.record.pending?.download.map { ($0, state.record.key) } }
        if updater.archiveNumbers != Set(archives.map(\.0)) { fail("the downloads of updates are \(updater.archiveNumbers)") }
        // What is on disk is what the process knows, as soon as no row waits.
        guard !world.gate.isBusy else { return }
        for key in AssetMachine.keys where world.saved.assets[key] != updater[key]?.record {
            fail("the row of \(key) is \(world.saved.assets[key] as Any), and should be \(updater[key]?.record as Any)")
        }
    }

    /// The link leads to a whole version. What it led to before its last switch stays.
    private func checkDirectories() {
        for (path, directory) in machine.directories {
            if let link = directory.link, !directory.isBroken {
                guard let version = directory.versions[link] else {
                    fail("\(path)/current leads to \(link), which is not there")
                    continue
                }
                if version <= 0 { fail("\(path)/current leads to \(link), which is not whole") }
            }
            if let held = directory.held, directory.versions[held] == nil, !directory.deleted.contains(held) {
                fail("\(path)/\(held) is gone, and programs may use it until the next update but one")
            }
        }
    }

    private func check(_ state: AssetState) {
        let record = state.record
        let (key, site) = (record.key, AssetSite(key: record.key, directory: record.directory))
        let directory = directory(site)
        // An unregistration deletes the other versions.
        if record.isLeaving { change(site) { $0.held = nil } }
        for version in [record.installed, record.previous].compactMap({ $0 }) where !record.isLeaving {
            guard directory.versions[version.folder] != nil || directory.deleted.contains(version.folder) || record.failure != nil else {
                fail("version \(version.version) of \(key) is not in \(version.folder)")
                continue
            }
        }
        if state.activity == .none, !record.isLeaving, let installed = record.installed, !directory.isBroken, isIdle(site.directory) {
            if directory.link != installed.folder {
                fail("\(key)/current leads to \(directory.link as Any), and \(installed.folder) is installed")
            }
            if directory.versions[installed.folder] != Int(installed.version) {
                fail("\(installed.folder) of \(key) is not version \(installed.version)")
            }
        }
        checkDue(state)
        // A download of an update that is under way will be heard of.
        switch state.activity {
        case .downloading(let number), .verifying(let number):
            if purposes[number] != .archive(key), !world.gate.isBusy { fail("nobody hears of download \(number) of \(key)") }
        default: break
        }
    }

    /// No piece of work in the pool is about a directory.
    private func isIdle(_ directory: String) -> Bool {
        !world.pool.contains { work in
            guard case .asset(let work) = work else { return false }
            return work.directory == directory || work.folder?.hasPrefix(directory + "/") ?? false
        }
    }

    /// A check without a call that is due has begun, or waits for a network; and the alarm rings at the next one.
    private func checkDue(_ state: AssetState) {
        let (record, now) = (state.record, world.now)
        guard state.activity == .none, !record.isLeaving else { return }
        func after(_ time: WallTime?, _ pause: Duration) -> WallTime {
            guard let time, time <= now else { return WallTime(microseconds: 0) }
            return time + pause
        }
        let tried = after(record.triedAt, .seconds(3600))
        let due: WallTime? =
            switch record.update {
            case .manual: nil
            case .login: owesCheck.contains(record.key) ? tried : nil
            case .daily: max(tried, after(record.checkedAt, .seconds(86_400)))
            }
        guard let due else { return }
        if due <= now {
            if let network, network.reach == .online, !network.isMetered { fail("a check of \(record.key) is due, and does not begin") }
            if !updater.awaitsNetwork { fail("a check of \(record.key) is due, and nobody watches the network") }
        } else if alarm.map({ $0 > due }) ?? true {
            fail("the alarm of the assets is \(alarm as Any), and a check of \(record.key) is due at \(due)")
        }
    }

    // MARK: At actions

    /// The host can carry out the action, and its row is on disk.
    func checkAction(_ action: AssetUpdater.Action) {
        switch action {
        case .fetchManifest(let key, let ticket, _) where updater[key]?.activity == .checking(ticket):
            if world.saved.assets[key] == nil { fail("\(key) is checked, and is not on disk") }
        case .startDownload(let key, let ticket, _, _) where updater[key]?.activity == .starting(ticket):
            if world.saved.assets[key] == nil { fail("\(key) is downloaded, and is not on disk") }
        case .extract(let key, let folder, _):
            guard let record = updater[key]?.record, record.pending?.folder == folder, !record.isLeaving else { return }
            if world.saved.assets[key]?.pending?.step != .extracting { fail("\(folder) of \(key) is unpacked before that is on disk") }
        case .switchLink(let key, let folder):
            guard let saved = world.saved.assets[key] else { return fail("\(key) is switched, and is not on disk") }
            let isUpdate = saved.pending?.step == .switching && saved.pending?.folder == folder
            let isRollback = saved.isRollingBack && saved.previous?.folder == folder
            if !isUpdate, !isRollback { fail("\(key) is switched to \(folder) before that is on disk") }
        case .remove(let key, let removal):
            guard let record = updater[key]?.record, let saved = world.saved.assets[key] else {
                return fail("\(removal.folder) of \(key) is deleted, and nobody knows the asset")
            }
            if !saved.removals.contains(where: { $0.folder == removal.folder }) {
                fail("\(removal.folder) of \(key) is deleted before that is on disk")
            }
            let versions = [record.installed, record.previous, record.pending.map { AssetVersion($0) }]
            if !removal.keepsFolder, versions.contains(where: { $0?.folder == removal.folder }) {
                fail("\(removal.folder) of \(key) is deleted, and is in use")
            }
        case .deleteData(let key, _):
            if world.saved.assets[key].map({ !$0.isLeaving || !$0.deletesData }) ?? true {
                fail("the data of \(key) are deleted before that is on disk")
            }
        default: break
        }
    }

    /// A manifest is fetched without a call. Such checks keep their distance, also over a restart.
    ///
    /// - Returns: when this check began; nil: it is the one before, with another URL.
    func checkDue(_ key: AssetKey) -> WallTime? {
        guard let record = updater[key]?.record, let tried = record.triedAt, tried == world.now else { return nil }
        tell("a check of \(key) is due")
        if let last = machine.lastDue[key], last <= tried, tried - last < .seconds(3600) {
            fail("\(key) is checked at \(tried), and was at \(last)")
        }
        if record.update == .login, record.checkedIn == session, !isLogin { fail("\(key) is checked twice in a session") }
        if record.update == .daily, !machine.hasJumped, let last = record.checkedAt, tried - last < .seconds(86_400) {
            fail("\(key) is checked at \(tried), and was read at \(last)")
        }
        return tried
    }

    /// A download begins anew only if the bytes of the version are not on the disk.
    func checkFresh(_ key: AssetKey, _ pending: PendingUpdate) {
        guard let record = updater[key]?.record, world.disk.isFolderThere else { return }
        let site = AssetSite(key: key, directory: record.directory)
        let path = site.archive(of: pending.folder)
        if let archive = world.disk.finals[path], archive.content.version == Int(pending.manifest.version) {
            fail("version \(pending.manifest.version) of \(key) is downloaded again, and its archive is there")
        }
        if let left = record.left, left.sha256 == pending.manifest.sha256, directory(site).versions[left.folder] != nil {
            fail("version \(pending.manifest.version) of \(key) is downloaded again, and is in \(left.folder)")
        }
    }

    // MARK: At answers

    func checkAnswer(_ call: AssetUpdater.CallNumber, _ answer: AssetUpdater.Answer) {
        switch answer {
        case .registered(let key):
            // It may have been unregistered since, in the same commit, and registered again.
            if world.saved.assets[key] == nil, registrations[call] == unregistrations[key, default: 0] {
                fail("\(key) is told to be registered, and is not on disk")
            }
        case .updated(true, let path), .rolledBack(let path):
            let directory = machine.directories[String(path.dropLast(AssetRecord.link.utf8.count + 1))]
            guard let directory, !directory.isBroken, updater.assets.values.contains(where: { $0.record.path == path }) else { return }
            if directory.link == nil { fail("\(path) is told to be ready, and is not there") }
        default: break
        }
    }

    // MARK: At the end

    /// Nothing is under way: nothing is left behind.
    func checkRest() {
        if updater.hasWork { fail("the updater has work, though all assets are at rest") }
        for state in updater.assets.values where state.hasCallers { fail("the updater keeps calls about \(state.record.key)") }
        if !machine.unanswered.isEmpty { fail("the calls \(machine.unanswered.map(\.value).sorted()) are never answered") }
        for state in updater.assets.values where state.activity != .none { fail("\(state.record.key) never ends: \(state.activity)") }
        let records = updater.assets.values.map(\.record)
        for (path, directory) in machine.directories where !directory.isLeftAlone {
            let record = records.first { $0.directory == path }
            // What could not be deleted is still in the row.
            let wanted = (record?.folders ?? []).union(directory.released).union(directory.link.map { [$0] } ?? [])
            for folder in directory.versions.keys.sorted() where !wanted.contains(folder) { fail("\(path)/\(folder) lies about") }
            let unfinished = Set([record?.pending?.folder].compactMap { $0 } + (record?.removals.map(\.folder) ?? []))
            for folder in directory.unfinished.keys.sorted() where !unfinished.contains(folder) {
                fail("what was unpacked of \(path)/\(folder) lies about")
            }
            let archives = Set(unfinished.map { "\(path)/\(AssetRecord.archive(of: $0))" })
            for file in world.disk.finals.keys.sorted() where file.hasPrefix(path + "/") && !archives.contains(file) {
                fail("\(file) lies about")
            }
        }
        for file in world.disk.finals.keys.sorted() where file.hasPrefix(AssetMachine.manifests + "/") {
            if !records.contains(where: { file.hasPrefix("\(AssetMachine.manifests)/\($0.key.app) \($0.key.name).") }) {
                fail("\(file) lies about")
            }
        }
        for entry in world.scheduler.entries.values {
            let record = entry.record
            if record.directory == AssetMachine.manifests { fail("download \(entry.number) of a manifest is left") }
            guard record.directory.hasPrefix("/a/") else { continue }
            if updater.asset(ofArchive: entry.number) == nil { fail("download \(entry.number) of \(record.directory) is left") }
        }
    }

    /// All have been asked to update, and nothing was in their way.
    func checkCurrent(hasPublished: Bool) {
        for record in updater.assets.values.map(\.record) {
            let latest = "\(machine.publications[record.key]?.version ?? 0)"
            if hasPublished, record.installed?.version != latest {
                fail("\(record.key) is version \(record.installed?.version as Any) after an update to \(latest): \(record.failure as Any)")
            }
            if let failure = record.failure { fail("the update of \(record.key) has failed: \(failure.message)") }
            if machine.directories[record.directory]?.isBroken ?? true { fail("\(record.path) does not lead to a version after an update") }
            if !record.removals.isEmpty { fail("\(record.key) has still to delete \(record.removals)") }
            if record.pending != nil { fail("the update of \(record.key) is still there") }
        }
    }
}
