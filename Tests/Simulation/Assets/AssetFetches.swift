// SPDX-License-Identifier: Apache-2.0
import Assets
import DownloadModel
import Scheduling

/// The downloads of assets: manifests, their signatures, and archives. As in the service's `AssetDownloads`.
extension AssetHost {
    private func manifestName(_ key: AssetKey) -> String { "\(key.app) \(key.name).json" }
    private func signatureName(_ key: AssetKey) -> String { "\(key.app) \(key.name).sig" }

    // MARK: The manifest

    func fetch(_ key: AssetKey, _ ticket: AssetUpdater.Ticket, isBackground: Bool, signatureOf manifest: String? = nil) {
        guard let state = updater[key], state.activity == .checking(ticket) else { return }
        let (url, name) =
            manifest == nil ? (state.record.manifestURL, manifestName(key)) : (state.record.manifestURL + ".sig", signatureName(key))
        var options = state.record.options
        (options.fileName, options.directory, options.ifExists) = (name, AssetMachine.manifests, .replace)
        (options.notify, options.showProgress, options.activate) = (.never, false, nil)
        (options.deadline, options.onlyIfChanged) = (.seconds(120), true)
        if isBackground { makeBackground(&options) }
        removeFormer(url, name, of: state.record)
        let number = add(url, options, isFetch: true) { [self] _, refusal in
            decide(.manifestFailed(key, ticket, DownloadFailure(refusal.name, refusal.message)))
        }
        guard let number else { return decide(.manifestFailed(key, ticket, DownloadFailure(.storage, "full"))) }
        purposes[number] = manifest.map { .signature(key, ticket, manifest: $0) } ?? .manifest(key, ticket)
        fetches[key] = number
    }

    func manifestEnded(_ key: AssetKey, _ ticket: AssetUpdater.Ticket, _ entry: ScheduledDownload) {
        let record = entry.record
        takeOffList(entry)
        guard let asset = updater[key], asset.activity == .checking(ticket), let site = site(key) else { return }
        guard record.state == .finished, let path = record.path else {
            return decide(.manifestFailed(key, ticket, record.state.failure ?? DownloadFailure(.cancelled, "cancelled")))
        }
        guard !asset.record.publicKey.isEmpty else { return add(.read(site, ticket, manifest: path, signature: nil)) }
        fetch(key, ticket, isBackground: !record.options.allowsMetered, signatureOf: path)
    }

    func signatureEnded(_ key: AssetKey, _ ticket: AssetUpdater.Ticket, _ manifest: String, _ entry: ScheduledDownload) {
        let record = entry.record
        takeOffList(entry)
        guard updater[key]?.activity == .checking(ticket), let site = site(key) else { return }
        guard record.state == .finished, let path = record.path else {
            var failure = record.state.failure ?? DownloadFailure(.cancelled, "cancelled")
            if failure.name == .httpStatus { failure = DownloadFailure(.signature, "The manifest has no signature.") }
            return decide(.manifestFailed(key, ticket, failure))
        }
        add(.read(site, ticket, manifest: manifest, signature: path))
    }

    func cancelFetch(_ key: AssetKey, _ ticket: AssetUpdater.Ticket) {
        guard let number = fetches.removeValue(forKey: key), let purpose = purposes[number] else { return }
        switch purpose {
        case .manifest(_, ticket), .signature(_, ticket, manifest: _): discard(number)
        default: break
        }
    }

    /// Takes a fetch off the list that nobody waits for, at its end if its file is being renamed.
    private func discard(_ number: DownloadNumber) {
        guard let file = world.scheduler[number]?.record.options.fileName, !removeDownload(number) else { return }
        purposes[number] = .discarded(file: file)
    }

    func discardedEnded(_ file: String, _ entry: ScheduledDownload) {
        takeOffList(entry)
        deleteManifests([file])
    }

    /// Takes the fetches of manifests off the list that an earlier process has left.
    func removeFormerManifests() {
        for (number, key) in fetchKeys.sorted(by: { $0.key < $1.key }) where key.directory == AssetMachine.manifests { discard(number) }
    }

    private func removeFormer(_ url: String, _ name: String, of record: AssetRecord) {
        let key = CopyKey(app: record.options.app, url: url, directory: AssetMachine.manifests, wantedName: name)
        for entry in fetched(key) { discard(entry.number) }
    }

    private func fetched(_ key: CopyKey) -> [ScheduledDownload] {
        fetchKeys.filter { $0.value == key }.keys.sorted().compactMap { world.scheduler[$0] }
    }

    /// Deletes what was fetched for an asset that is not registered any more.
    func forgetManifests(of key: AssetKey) { deleteManifests([manifestName(key), signatureName(key)]) }

    /// The name of a manifest or signature; nil: the path is another file's.
    static func manifestFile(_ path: String) -> String? {
        path.hasPrefix(AssetMachine.manifests + "/") ? String(path.dropFirst(AssetMachine.manifests.utf8.count + 1)) : nil
    }

    private var wantedManifests: Set<String> {
        Set(updater.assets.values.flatMap { [manifestName($0.record.key), signatureName($0.record.key)] })
    }

    /// Deletes these manifests and signatures, except those of registered assets, and those that are being renamed.
    func deleteManifests(_ names: [String]) {
        let wanted = wantedManifests
        let names = names.filter { !wanted.contains($0) && !purposes.values.contains(.discarded(file: $0)) }
        if !names.isEmpty { add(.deleteManifests(names)) }
    }

    // MARK: The archive

    func startDownload(_ key: AssetKey, _ ticket: AssetUpdater.Ticket, _ url: String, _ pending: PendingUpdate) {
        guard let state = updater[key], state.activity == .starting(ticket) else { return }
        checkFresh(key, pending)
        var options = state.record.options
        (options.fileName, options.directory) = (AssetRecord.archive(of: pending.folder), state.record.directory)
        (options.ifExists, options.notify, options.activate) = (.replace, .never, nil)
        (options.checksum, options.size) = (plant == .gullible ? nil : pending.manifest.sha256, pending.manifest.size)
        if state.record.pending?.isBackground ?? pending.isBackground { makeBackground(&options) }
        if let old = pending.download, archive(old, of: pending.folder, in: state.record) != nil { removeDownload(old) }
        let number = add(url, options, isFetch: false) { [self] number, refusal in
            let failure = DownloadFailure(refusal.name, refusal.message)
            decide(.downloadRefused(key, ticket, failure))
            decide(.downloadEnded(key, number, .failed(failure)))
        }
        guard let number else { return decide(.downloadRefused(key, ticket, DownloadFailure(.storage, "full"))) }
        world.wanted[number] = Int(pending.manifest.version)
        purposes[number] = .archive(key)
        decide(.downloadAdded(key, ticket, number))
    }

    private func makeBackground(_ options: inout DownloadOptions) {
        options.allowsMetered = false
        options.priority = min(options.priority -| 1, -1)
    }

    private func isInBackground(_ entry: ScheduledDownload, of record: AssetRecord) -> Bool {
        var background = record.options
        makeBackground(&background)
        return entry.record.options.allowsMetered == background.allowsMetered && entry.record.options.priority == background.priority
    }

    func raiseDownload(_ key: AssetKey, _ number: DownloadNumber) {
        guard let record = updater[key]?.record, let folder = record.pending?.folder, let entry = archive(number, of: folder, in: record)
        else { return }
        setNetworkUse(of: entry, to: record.options)
    }

    private func setNetworkUse(of entry: ScheduledDownload, to options: DownloadOptions) {
        let former = entry.record.options
        if former.allowsMetered != options.allowsMetered { world.decide(.setAllowsMetered(entry, options.allowsMetered)) }
        if former.priority != options.priority { world.decide(.setPriority(entry, options.priority)) }
    }

    func resumeDownload(_ key: AssetKey, _ number: DownloadNumber, retries: Bool) {
        guard let record = updater[key]?.record, let folder = record.pending?.folder, let entry = archive(number, of: folder, in: record)
        else {
            return decide(.downloadEnded(key, number, .lost))
        }
        if record.pending?.isBackground == false, isInBackground(entry, of: record) { raiseDownload(key, number) }
        switch entry.state {
        case .finished: return decide(.downloadEnded(key, number, .finished))
        case .failed(let failure):
            guard retries else { return decide(.downloadEnded(key, number, .failed(failure))) }
            guard retry(entry, for: record) else { return decide(.downloadEnded(key, number, .lost)) }
        case .cancelled: return decide(.downloadEnded(key, number, retries ? .lost : .cancelled))
        default: break
        }
        purposes[number] = .archive(key)
    }

    /// Retries the failed download of an archive, with the URL of now; false: it must begin anew.
    private func retry(_ entry: ScheduledDownload, for record: AssetRecord) -> Bool {
        guard let pending = record.pending, let url = try? DownloadURL(pending.url), pending.manifest.size == entry.record.options.size
        else { return false }
        var options = record.options
        if pending.isBackground { makeBackground(&options) }
        setNetworkUse(of: entry, to: options)
        return world.renew(entry, FreshLink(url))
    }

    /// The download of an archive; nil: it is gone, or a row names another download.
    func archive(_ number: DownloadNumber, of folder: String, in record: AssetRecord) -> ScheduledDownload? {
        world.scheduler[number].flatMap { entry in
            entry.record.options.fileName == AssetRecord.archive(of: folder) && entry.record.directory == record.directory ? entry : nil
        }
    }

    /// Adds a download, as a call would; nil: the journal is full.
    private func add(
        _ url: String, _ options: DownloadOptions, isFetch: Bool, undone: @escaping (DownloadNumber, Refusal) -> Void
    ) -> DownloadNumber? {
        if world.isJournalFull { return nil }
        let number = world.nextNumber
        world.nextNumber = DownloadNumber(number.value + 1)
        var record = DownloadRecord(
            number: number, url: url, options: options, directory: options.directory ?? "", state: .paused, queuedAt: world.now,
            position: DownloadQueue.position(of: number))
        record.state = record.obstacle(now: world.now, paused: world.scheduler.settings.paused)
        record.isFetch = isFetch
        if isFetch { fetchKeys[number] = record.copyKey }
        tell("add \(number) for an asset: \(url)")
        world.executor.add(record) { [world] entry in
            if !entry.isRemoved { world.checkSaved(entry) }
            world.send(.added(number))
        } entered: { [self] _ in
            if isFetch { removeFormerFetches(of: record.copyKey) }
        } undone: { [self] _, refusal in
            purposes[number] = nil
            undone(number, refusal)
            return nil
        }
        return number
    }

    private func removeFormerFetches(of key: CopyKey) { for entry in fetched(key) where entry.state.hasEnded { takeOffList(entry) } }

    @discardableResult private func takeOffList(_ entry: ScheduledDownload) -> Bool {
        let wasRemoved = !world.removals.insert(entry.number).inserted
        if world.decide(.remove(entry)) == nil { return true }
        if !wasRemoved { world.removals.remove(entry.number) }
        return false
    }

    /// Takes a download off the list. Nothing more is said about it.
    ///
    /// - Returns: false if its file is being renamed: it ends first.
    @discardableResult func removeDownload(_ number: DownloadNumber) -> Bool {
        purposes[number] = nil
        return world.scheduler[number].map(takeOffList) ?? true
    }

    func remove(_ key: AssetKey, _ removal: AssetRemoval) {
        guard let record = updater[key]?.record, let site = site(key) else { return }
        if plant != .messy, let number = removal.download, archive(number, of: removal.folder, in: record) != nil, !removeDownload(number) {
            purposes[number] = .removal(key, removal)
            return
        }
        add(.remove(site, removal, phase: 0, nil))
    }
}
