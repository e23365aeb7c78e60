internal import Assets
internal import DownloadModel
internal import EventLoop
internal import Extraction
internal import Logging
internal import PartFiles
internal import Scheduling

/// The downloads of assets: manifests, their signatures, and archives. Each is on the list like any other.
extension AssetCentre {
    /// The longest time that a check takes, including waits.
    private static let patience: Duration = .seconds(120)

    private func manifestName(_ key: AssetKey) -> String { "\(key.app) \(key.name).json" }
    private func signatureName(_ key: AssetKey) -> String { "\(key.app) \(key.name).sig" }

    // MARK: The manifest

    func fetchManifest(_ key: AssetKey, _ ticket: AssetUpdater.Ticket, isBackground: Bool) {
        lookForInstalled(key) { [self] in fetchManifestOnly(key, ticket, isBackground: isBackground) }
    }

    private func fetchManifestOnly(_ key: AssetKey, _ ticket: AssetUpdater.Ticket, isBackground: Bool) {
        guard let state = updater[key], state.activity == .checking(ticket) else { return }
        let folder = folders.manifests
        DiskPool.shared.perform(at: .path(folder), within: DiskPatience.folder) {
            Destination.check(folder, allowHidden: true, create: true)
        } then: { [self] result in
            switch result ?? .failure(.silentFolder(folder)) {
            case .failure(let refusal): decide(.manifestFailed(key, ticket, DownloadFailure(refusal.name, refusal.message)))
            case .success:
                publicManifests[key] = nil
                fetch(key, ticket, state.record.manifestURL, manifestName(key), ManifestText.mostBytes, isBackground: isBackground)
            }
        }
    }

    private func fetch(
        _ key: AssetKey, _ ticket: AssetUpdater.Ticket, _ url: String, _ name: String, _ most: Int, isBackground: Bool,
        as purpose: Purpose? = nil
    ) {
        guard let state = updater[key], state.activity == .checking(ticket) else { return }
        var options = state.record.options
        (options.fileName, options.directory, options.ifExists) = (name, folders.manifests, .replace)
        (options.notify, options.showProgress, options.activate) = (.never, false, nil)
        (options.maxSize, options.deadline) = (ByteCount(clamping: most), Self.patience)
        // A 304 does not tell which server has sent the manifest that is kept.
        options.onlyIfChanged = purpose != nil || options.isNamedByPublicServer != nil
        // The app has named the URL of the manifest.
        options.isNamedByPublicServer = nil
        if isBackground { Self.makeBackground(&options) }
        do throws(Refusal) {
            let url = try DownloadURL(url)
            removeFormer(url.text, name, of: state.record)
            let number = try add(url, options, isFetch: true) { [self] _, refusal in
                decide(.manifestFailed(key, ticket, DownloadFailure(refusal.name, refusal.message)))
            }
            purposes[number] = purpose ?? .manifest(key, ticket)
            fetches[key] = number
            journal.afterCommit { [self] in tell(key) }
        } catch {
            decide(.manifestFailed(key, ticket, DownloadFailure(error.name, error.message)))
        }
    }

    func manifestEnded(_ key: AssetKey, _ ticket: AssetUpdater.Ticket, _ download: ManagedDownload) {
        let record = download.record
        executor.decide(.remove(download.entry))
        guard let asset = updater[key], asset.activity == .checking(ticket) else { return }
        guard record.state == .finished, let path = record.path, let base = try? DownloadURL(record.source ?? record.url) else {
            return decide(.manifestFailed(key, ticket, record.state.endFailure ?? DownloadFailure(.cancelled, "The check was cancelled.")))
        }
        guard !asset.record.publicKey.isEmpty else { return read(key, ticket, path, base, signature: nil) }
        guard let signature = try? Self.signatureURL(of: asset.record.manifestURL) else {
            return decide(.manifestFailed(key, ticket, DownloadFailure(.signature, "The manifest has no URL for its signature.")))
        }
        fetch(
            key, ticket, signature, signatureName(key), PartFiles.Signature.length, isBackground: asset.fetchesInBackground,
            as: .signature(key, ticket, manifest: path, from: base.text))
    }

    /// The URL of the signature: `.sig` appended to the path, and the same query.
    static func signatureURL(of manifest: String) throws(Refusal) -> String {
        let url = try DownloadURL(manifest)
        return url.redacted + ".sig" + (url.query.map { "?\($0)" } ?? "")
    }

    func signatureEnded(_ key: AssetKey, _ ticket: AssetUpdater.Ticket, _ manifest: String, _ base: String, _ download: ManagedDownload) {
        let record = download.record
        executor.decide(.remove(download.entry))
        guard updater[key]?.activity == .checking(ticket) else { return }
        guard record.state == .finished, let path = record.path, let base = try? DownloadURL(base) else {
            var failure = record.state.endFailure ?? DownloadFailure(.cancelled, "The check was cancelled.")
            if failure.name == .httpStatus || failure.name == .tooLarge {
                // Report a missing signature, not a missing manifest.
                failure = DownloadFailure(.signature, "The manifest has no signature: \(failure.message)")
            }
            return decide(.manifestFailed(key, ticket, failure))
        }
        read(key, ticket, manifest, base, signature: path)
    }

    private func read(_ key: AssetKey, _ ticket: AssetUpdater.Ticket, _ path: String, _ base: DownloadURL, signature: String?) {
        let publicKey = updater[key]?.record.publicKey ?? []
        DiskPool.shared.perform(at: .path(path), within: DiskPatience.file) {
            AssetFiles.manifest(at: path, from: base, signature: signature, publicKey: publicKey)
        } then: { [self] result in
            switch result {
            case .success(let manifest)?: decide(.manifestFetched(key, ticket, manifest, isPublic: publicManifests[key]))
            case .failure(let failure)?: decide(.manifestFailed(key, ticket, failure))
            case nil:
                let refusal = Refusal.silentDisk(of: path)
                decide(.manifestFailed(key, ticket, DownloadFailure(refusal.name, refusal.message)))
            }
        }
    }

    func cancelFetch(_ key: AssetKey, _ ticket: AssetUpdater.Ticket) {
        guard let number = fetches.removeValue(forKey: key), let purpose = purposes[number] else { return }
        switch purpose {
        case .manifest(_, ticket), .signature(_, ticket, manifest: _, from: _): discard(number)
        default: break
        }
    }

    /// Takes a fetch that no asset waits for off the list. If its file is being renamed, the fetch leaves the list at its end.
    private func discard(_ number: DownloadNumber) {
        guard let file = list.scheduler[number]?.record.options.fileName, !removeDownload(number) else { return }
        purposes[number] = .discarded(file: file)
    }

    /// Takes the fetches of manifests that an earlier process has left off the list.
    func removeFormerManifests() { for entry in list.fetched(in: folders.manifests) { discard(entry.number) } }

    private func removeFormer(_ url: String, _ name: String, of record: AssetRecord) {
        let key = CopyKey(app: record.options.app, url: url, directory: folders.manifests, wantedName: name)
        for entry in list.fetched(key) { discard(entry.number) }
    }

    /// The names of the manifests and signatures of all assets.
    private var wantedManifests: Set<String> {
        Set(updater.assets.values.flatMap { [manifestName($0.record.key), signatureName($0.record.key)] })
    }

    /// Deletes the manifest and the signature of an asset that is no longer registered.
    func forgetManifests(of key: AssetKey) { deleteManifests([manifestName(key), signatureName(key)]) }

    /// Deletes the manifests and signatures of assets that are no longer registered, as an earlier process may have left them. Called at
    /// startup, when the service waits for the disk of the state folder anyway.
    func sweepManifests() {
        deleteManifests(OwnFiles.names(in: folders.manifests))
    }

    /// Deletes these manifests and signatures, except files of registered assets and files that are being renamed.
    func deleteManifests(_ names: [String]) {
        guard !names.isEmpty else { return }
        let wanted = wantedManifests
        let names = names.filter { !wanted.contains($0) && !purposes.values.contains(.discarded(file: $0)) }
        guard !names.isEmpty else { return }
        let folder = folders.manifests
        DiskPool.shared.perform(at: .path(folder)) {
            OwnFiles.delete(names, in: folder)
        } then: { _ in
        }
    }

    // MARK: The archive

    func startDownload(_ key: AssetKey, _ ticket: AssetUpdater.Ticket, _ text: String, _ pending: PendingUpdate) {
        guard let state = updater[key], state.activity == .starting(ticket) else { return }
        do throws(Refusal) {
            // A call may have come since the updater decided.
            var wanted = pending
            wanted.isBackground = state.record.pending?.isBackground ?? pending.isBackground
            let (url, options) = try archiveRequest(text, of: wanted, in: state.record)
            if let old = pending.download, archive(old, of: pending.folder, in: state.record) != nil { _ = removeDownload(old) }
            let number = try add(url, options, isFetch: false) { [self] number, refusal in
                let failure = DownloadFailure(refusal.name, refusal.message)
                decide(.downloadRefused(key, ticket, failure))
                decide(.downloadEnded(key, number, .failed(failure)))
            }
            purposes[number] = .archive(key)
            decide(.downloadAdded(key, ticket, number))
        } catch {
            decide(.downloadRefused(key, ticket, DownloadFailure(error.name, error.message)))
        }
    }

    /// The request for the archive at `text`, with the options of the registration.
    ///
    /// - Throws: if the URL is invalid, or may not be asked.
    private func archiveRequest(
        _ text: String, of pending: PendingUpdate, in record: AssetRecord
    ) throws(Refusal) -> (DownloadURL, DownloadOptions) {
        var options = record.options
        (options.fileName, options.directory) = (AssetRecord.archive(of: pending.folder), record.directory)
        (options.ifExists, options.notify, options.activate) = (.replace, .never, nil)
        (options.checksum, options.size) = (pending.manifest.sha256, pending.manifest.size)
        if pending.isBackground { Self.makeBackground(&options) }
        let (url, manifest) = (try DownloadURL(text), try DownloadURL(record.manifestURL))
        // Credentials and header fields are for the manifest's server only. A cookie names its hosts. The proxy serves all requests.
        if url.origin != manifest.origin {
            let (cookies, proxy) = (options.cookies, options.proxy)
            options.forgetSecrets()
            (options.referrer, options.cookies, options.proxy, options.hasForgottenSecrets) = (nil, cookies, proxy, false)
        }
        // As for redirects: a public server must not send us to the router. The engine checks names. A row of an earlier version does not
        // tell which server has sent the manifest, so only an address in its URL counts as private.
        let isNamedByPublicServer = options.isNamedByPublicServer ?? !manifest.isHostLiteralPrivate
        options.isNamedByPublicServer = isNamedByPublicServer
        guard !isNamedByPublicServer || !url.isHostLiteralPrivate else {
            throw Refusal(.notAllowed, "The manifest is on a public server, and names an archive at the private address \(url.host).")
        }
        try options.checkAddress(of: url, list.settings)
        return (url, options)
    }

    /// An update that nobody has asked for uses no metered connection, and comes after requested updates.
    private static func makeBackground(_ options: inout DownloadOptions) {
        options.allowsMetered = false
        options.priority = min(options.priority -| 1, -1)
    }

    /// Whether the download of an archive still has the options of an update that nobody has asked for.
    private static func isInBackground(_ entry: ScheduledDownload, of record: AssetRecord) -> Bool {
        var background = record.options
        makeBackground(&background)
        return entry.record.options.allowsMetered == background.allowsMetered && entry.record.options.priority == background.priority
    }

    /// Gives the download of an archive the options of its asset, because a call has asked for it.
    func raiseDownload(_ key: AssetKey, _ number: DownloadNumber) {
        guard let record = updater[key]?.record, let folder = record.pending?.folder, let entry = archive(number, of: folder, in: record)
        else { return }
        setNetworkUse(of: entry, to: record.options)
    }

    private func setNetworkUse(of entry: ScheduledDownload, to options: DownloadOptions) {
        let former = entry.record.options
        if former.allowsMetered != options.allowsMetered { executor.decide(.setAllowsMetered(entry, options.allowsMetered)) }
        if former.priority != options.priority { executor.decide(.setPriority(entry, options.priority)) }
    }

    func resumeDownload(_ key: AssetKey, _ number: DownloadNumber, retries: Bool) {
        guard let record = updater[key]?.record, let folder = record.pending?.folder, let entry = archive(number, of: folder, in: record)
        else {
            return decide(.downloadEnded(key, number, .lost))
        }
        // An earlier process may have ended after a call had asked for the update, and before the download was raised. Values that a person
        // has set stay.
        if record.pending?.isBackground == false, Self.isInBackground(entry, of: record) { raiseDownload(key, number) }
        switch entry.state {
        case .finished: return decide(.downloadEnded(key, number, .finished))
        case .failed(let failure):
            guard retries else { return decide(.downloadEnded(key, number, .failed(failure))) }
            guard retry(entry, for: record) else { return decide(.downloadEnded(key, number, .lost)) }
        case .cancelled: return decide(.downloadEnded(key, number, retries ? .lost : .cancelled))
        default: break
        }
        purposes[number] = .archive(key)
        // At startup, the download may have found before that its folder is missing.
        makeDefaultDirectory(of: key, for: entry)
    }

    /// Retries the failed download of an archive. Its bytes stay. It gets the URL and the credentials of now, because its row may have lost
    /// its credentials since it failed. Its use of metered connections also becomes that of now: a call may have begun it, and an update
    /// without a call may continue it.
    ///
    /// - Returns: false if the download must begin anew, because its size has changed, or its URL is refused.
    private func retry(_ entry: ScheduledDownload, for record: AssetRecord) -> Bool {
        guard let pending = record.pending, let (url, options) = try? archiveRequest(pending.url, of: pending, in: record),
            options.size == entry.record.options.size
        else { return false }
        setNetworkUse(of: entry, to: options)
        var link = FreshLink(url)
        (link.headers, link.cookies, link.referrer) = (options.headers, options.cookies, options.referrer ?? "")
        (link.username, link.password, link.proxy) = (options.username, options.password, options.proxy)
        link.isNamedByPublicServer = options.isNamedByPublicServer
        return executor.decide(.replaceUrl(entry, link)) == nil
    }

    /// The download of an archive; nil: the download is gone, or a damaged row names another download.
    private func archive(_ number: DownloadNumber, of folder: String, in record: AssetRecord) -> ScheduledDownload? {
        list.scheduler[number].flatMap { entry in
            let isArchive =
                entry.record.options.fileName.isSameBytes(as: AssetRecord.archive(of: folder))
                && entry.record.directory.isSameBytes(as: record.directory)
            return isArchive ? entry : nil
        }
    }

    /// Adds a download, as a call would.
    ///
    /// - Parameter undone: called if the row could not be saved.
    private func add(
        _ url: DownloadURL, _ options: DownloadOptions, isFetch: Bool, undone: @escaping (DownloadNumber, Refusal) -> Void
    ) throws(Refusal) -> DownloadNumber {
        try options.checkAddress(of: url, list.settings)
        if journal.isFull { throw journal.refusal }
        let wanted = Admission.Wanted(url: url, options: options)
        var record = admission.makeRecord(wanted, options.directory ?? "", number: admission.takeNumbers(1), now: .now)
        record.isFetch = isFetch
        admission.add(record, answer: nil) { [self] refusal in
            purposes[record.number] = nil
            undone(record.number, refusal)
        }
        return record.number
    }

    /// Takes a download off the list, without any further report about it.
    ///
    /// - Returns: false if its file is being renamed: then the download must end first.
    func removeDownload(_ number: DownloadNumber) -> Bool {
        purposes[number] = nil
        guard let entry = list.scheduler[number] else { return true }
        return executor.decide(.remove(entry)) == nil
    }

    // MARK: The disk

    func checkSpace(_ key: AssetKey, _ ticket: AssetUpdater.Ticket, _ needed: ByteCount) {
        guard let record = updater[key]?.record else { return }
        let (directory, isDefault, reserve) = (record.directory, isDefaultDirectory(of: record), list.settings.diskReserve)
        // The next download replaces the one that has failed, whose part file is then deleted.
        let failed = record.pending.flatMap { pending in
            pending.download.flatMap { archive($0, of: pending.folder, in: record) }
        }
        // The files of earlier versions are being deleted.
        let downloads = [[failed?.number], record.removals.map(\.download)].flatMap { $0 }.compactMap { $0 }
        let archives = record.removals.map { AssetRecord.archive(of: $0.folder) }
        var files = Set(downloads.map { partNames.name(of: $0) } + archives)
        if let part = partsBeingDeleted[key] { files.insert(part) }
        DiskPool.shared.perform(at: .path(directory), within: DiskPatience.folder) {
            [files] () -> (missing: ByteCount, use: AssetFiles.Use) in
            // Somebody may have deleted our folder since the registration.
            AssetFiles.makeAgain(directory, isDefault: isDefault)
            let missing = AssetFiles.shortage(in: directory, needed: needed, deleting: files, reserve)
            return (missing, AssetFiles.use(of: directory))
        } then: { [self] found in
            // An asset that was unregistered meanwhile would keep the folder from all others.
            guard updater[key]?.activity == .checkingSpace(ticket) else { return }
            if let failure = claim(found?.use, of: directory, for: key) { return decide(.spaceRefused(key, ticket, failure)) }
            // If the disk does not answer, the download will wait for it.
            decide(.spaceChecked(key, ticket, missing: found?.missing ?? 0))
        }
    }

    /// Makes the directory of an asset if the download of its archive waits for it and the service has chosen it: nobody else would make
    /// it again.
    func makeDefaultDirectory(of key: AssetKey, for entry: ScheduledDownload) {
        guard case .waiting(.destination, _) = entry.state, let record = updater[key]?.record, isDefaultDirectory(of: record)
        else { return }
        let directory = record.directory
        DiskPool.shared.perform(at: .path(directory), within: DiskPatience.folder) {
            AssetFiles.makeAgain(directory, isDefault: true)
        } then: { _ in
        }
    }

    func extract(_ key: AssetKey, _ folder: String, _ manifest: AssetManifest) {
        guard let record = updater[key]?.record else { return }
        let (directory, isDefault) = (record.directory, isDefaultDirectory(of: record))
        let (reserve, control) = (list.settings.diskReserve, ExtractionControl())
        extractions[key] = (folder, control)
        let ended: @BusActor @Sendable (AssetUpdater.ExtractionEnd) -> Void = { [self] end in
            if control.progress.read > 0 { tell(key, of: control) }
            if extractions[key]?.control === control { extractions[key] = nil }
            ConfinementLog.tell(control, log)
            decide(.extracted(key, folder: folder, end))
        }
        claimFolder(of: key) { [self] in
            guard !control.isCancelled else { return ended(.cancelled) }
            turns.add(control, in: directory) { [self] in
                watch(key, control)
                DiskPool.shared.perform(at: .path(directory), takesLong: true) {
                    AssetFiles.extract(folder, in: directory, isDefault: isDefault, manifest, reserve, control)
                } then: { [self] end in
                    turns.ended(control)
                    ended(end)
                }
            }
        } refused: {
            ended(.failed($0))
        }
    }

    /// Stops an extraction. One that waits for its turn ends at once, because the extractions before it may take minutes.
    func cancelExtraction(_ key: AssetKey, _ folder: String) {
        guard let extraction = extractions[key], extraction.folder == folder else { return }
        extraction.control.cancel()
        guard turns.remove(extraction.control) else { return }
        extractions[key] = nil
        decide(.extracted(key, folder: folder, .cancelled))
    }

    /// Reports the progress of an extraction while it runs.
    private func watch(_ key: AssetKey, _ control: ExtractionControl) {
        Poller.shared.schedule(after: .milliseconds(100)) { [self] in
            guard extractions[key]?.control === control else { return }
            tell(key, of: control)
            watch(key, control)
        }
    }

    private func tell(_ key: AssetKey, of control: ExtractionControl) {
        guard !control.isCancelled else { return }
        let read = control.progress
        progress(key, .extracting, read.read, of: read.size == 0 ? nil : read.size)
    }

    func switchLink(_ key: AssetKey, _ folder: String) {
        guard let state = updater[key] else { return }
        let (directory, isDefault, isRollback) = (
            state.record.directory, isDefaultDirectory(of: state.record), state.activity == .rollingBack
        )
        let size = isRollback ? state.record.previous?.size : state.record.pending?.unpacked
        claimFolder(of: key) { [self] in
            DiskPool.shared.perform(at: .path(directory), takesLong: true) {
                AssetFiles.switchLink(to: folder, of: size, isRollback: isRollback, in: directory, isDefault: isDefault)
            } then: { [self] end in
                switch end {
                case .switched: decide(.switched(key, nil))
                case .lost:
                    log.notice("files of a version of an asset were deleted", metadata: ["asset": "\(key)", "folder": "\(folder)"])
                    decide(.versionLost(key, folder: folder, isFolderThere: false))
                case .failed(let failure): decide(.switched(key, failure))
                }
            }
        } refused: { [self] failure in
            decide(.switched(key, failure))
        }
    }

    func remove(_ key: AssetKey, _ removal: AssetRemoval) {
        guard let record = updater[key]?.record else { return }
        let (directory, isDefault) = (record.directory, isDefaultDirectory(of: record))
        // Files on a disk that is away are deleted later. An unregistration that leaves the data does not wait for the disk.
        let waitsForDisk = !record.isLeaving || record.deletesData
        if let number = removal.download, archive(number, of: removal.folder, in: record) != nil {
            guard removeDownload(number) else { return purposes[number] = .removal(key, removal) }
            partsBeingDeleted[key] = partNames.name(of: number)
        }
        DiskPool.shared.perform(at: .path(directory), takesLong: true) { () -> Bool in
            guard AssetFiles.remove(removal, in: directory) else { return false }
            return !waitsForDisk || !AssetFiles.isMissing(directory) || AssetFiles.countsAsDeleted(directory, isDefault: isDefault)
        } then: { [self] isGone in
            if !isGone {
                log.warning("old files of an asset cannot be deleted", metadata: ["asset": "\(key)", "folder": "\(removal.folder)"])
            }
            decide(.removed(key, removal, isGone: isGone))
        }
    }

    func deleteData(_ key: AssetKey, _ names: [String]) {
        guard let record = updater[key]?.record else { return }
        let (directory, isDefault) = (record.directory, isDefaultDirectory(of: record))
        DiskPool.shared.perform(at: .path(directory), takesLong: true) {
            AssetFiles.deleteData(names, in: directory, isDefault: isDefault)
        } then: { [self] end in
            decide(.dataDeleted(key, end.failure, isUntouched: end.isUntouched))
        }
    }
}
