internal import Assets
internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import PartFiles
internal import Scheduling
internal import TransferEngine

/// The commands of callers and of the user's clicks, for downloads and batches on the list. The rows of the faces call them.
@BusActor final class Commands: DownloadObserver {
    let list: DownloadList
    let executor: ServiceExecutor
    let journal: Journal
    let callers: Callers
    let admission: Admission
    let foreground: Foreground
    let assets: AssetCentre
    let diskCalls: DiskCalls
    private let desktopWork: DesktopWork
    private let engine: Engines
    private let unwantedFolders: UnwantedFolders
    private let allowsHiddenFolders: Bool
    /// The number of removals that answer once the files are deleted.
    private var deletions = 0 { didSet { hold.isHeld = isDeleting } }
    private let hold: IdleExit.Hold
    /// Whether a call of `Remove` waits until its files are deleted.
    var isDeleting: Bool { deletions > 0 }

    /// - Parameter hold: held while a call of `Remove` waits until its files are deleted.
    init(
        list: DownloadList, executor: ServiceExecutor, journal: Journal, callers: Callers, admission: Admission, foreground: Foreground,
        assets: AssetCentre, diskCalls: DiskCalls, desktopWork: DesktopWork, engine: Engines, unwantedFolders: UnwantedFolders,
        allowsHiddenFolders: Bool, hold: IdleExit.Hold
    ) {
        (self.list, self.executor, self.journal, self.callers) = (list, executor, journal, callers)
        (self.admission, self.foreground, self.assets, self.desktopWork) = (admission, foreground, assets, desktopWork)
        (self.engine, self.unwantedFolders, self.allowsHiddenFolders) = (engine, unwantedFolders, allowsHiddenFolders)
        (self.diskCalls, self.hold) = (diskCalls, hold)
    }

    var events: any EventSink { executor }

    /// Answers a call once the changes that it has made are on disk.
    func answerChange(_ reply: Reply<Void>) { journal.answer(reply, ()) }

    // MARK: Settings

    func set(_ change: (inout Settings) -> Void) {
        var settings = list.settings
        let before = settings.speedLimit
        change(&settings)
        events.decide(.set(settings))
        if settings.speedLimit != before { engine.setTotalSpeedLimit(settings.speedLimit == 0 ? nil : settings.speedLimit) }
    }

    /// Sets the property `DefaultDirectory`. The empty string restores the XDG download folder.
    func setDefaultDirectory(_ directory: String, _ reply: Reply<Void>) throws(Refusal) {
        guard directory.isEmpty || directory.isAbsolutePath else {
            throw Refusal(.invalidOption, "DefaultDirectory must be an absolute path, not “\(shown(directory))”.")
        }
        let arrival = diskCalls.nextArrival()
        guard !directory.isEmpty else { return setDefaultDirectory("", arrival, reply) }
        let allowHidden = allowsHiddenFolders
        diskCalls.perform(at: .path(directory), within: DiskPatience.folder, setting: .defaultDirectory) {
            Destination.check(directory, allowHidden: allowHidden, create: false)
        } then: { [self] result in
            switch result ?? .failure(.silentFolder(directory)) {
            case .failure(let refusal): reply.fail(refusal)
            case .success(let directory): setDefaultDirectory(directory, arrival, reply)
            }
        }
    }

    private func setDefaultDirectory(_ checked: String, _ arrival: UInt64, _ reply: Reply<Void>) {
        if !diskCalls.isSet(.defaultDirectory, after: arrival) {
            set { $0.defaultDirectory = checked }
            diskCalls.noteSet(.defaultDirectory, at: arrival)
        }
        answerChange(reply)
    }

    // MARK: One download

    func steer(_ download: ManagedDownload, _ event: DownloadEvent, _ reply: Reply<Void>) throws(IllegalTransition) {
        try executor.ask(.steer(download.entry, event))
        answerChange(reply)
    }

    func retry(_ download: ManagedDownload, _ reply: Reply<Void>) throws {
        try reply.refuseWithoutNetwork()
        try download.refuseUnreadable()
        try download.refuseWithoutDescriptor()
        try refuseSandboxedPlace(of: download, reply)
        try steer(download, .retry, reply)
    }

    /// Checks the destination of `download` again, before a sandboxed app starts it again with the same URL. A download of an asset goes
    /// where it goes by `Update`, which the app may call.
    ///
    /// - Throws: `NotAllowed` if the app could not queue the download like this now.
    func refuseSandboxedPlace(of download: ManagedDownload, _ reply: Reply<Void>) throws(Refusal) {
        guard !assets.hasDownload(download.number) else { return }
        try reply.refuseSandboxedPlace(of: [download.entry], default: list.defaultDirectory)
    }

    /// Moves `download` to `place` among the downloads of its priority, 0 = next. `takesTurn`: also ahead of the downloads of other
    /// applications.
    func move(_ download: ManagedDownload, to place: UInt32, takesTurn: Bool) throws(Refusal) {
        guard !download.state.hasEnded else {
            throw Refusal(.invalidState, "A download that is \(download.state.name) has no place in the queue.")
        }
        events.decide(.move(download.entry, to: place, takesTurn: takesTurn))
    }

    func setSpeedLimit(_ download: ManagedDownload, _ limit: Speed?) {
        engine.setSpeedLimit(download.number, limit)
        events.decide(.setSpeedLimit(download.entry, limit))
    }

    /// Sets the property `Directory`, after the checks that the folder of a new download passes.
    ///
    /// - Throws: `InvalidState` if a file or a part of it is in the former folder; `InvalidOption` or `NotAllowed` for the folder.
    func setDirectory(_ download: ManagedDownload, _ directory: String, _ reply: Reply<Void>) throws(Refusal) {
        try refuseFolderChange(of: download)
        if download.record.options.ifExists == .replace {
            try reply.refuseSandboxed("replace files, which this download would do in its new folder")
        }
        let options = try DownloadOptions(
            decoding: ["directory": .string(directory)], from: reply.call.caller, defaultDirectory: list.defaultDirectory,
            settings: list.settings)
        // A sandboxed app can only choose the default folder, which `options` leave out.
        let (folder, isDefault) = (options.directory ?? list.defaultDirectory, options.directory == nil)
        let (allowHidden, arrival) = (allowsHiddenFolders, diskCalls.nextArrival())
        diskCalls.perform(at: .path(folder), within: DiskPatience.folder, setting: .directory(download.number)) {
            Destination.check(folder, allowHidden: allowHidden, create: isDefault)
        } then: { [self] result in
            switch result ?? .failure(.silentFolder(folder)) {
            case .failure(let refusal): reply.fail(refusal)
            case .success(let checked):
                if diskCalls.isSet(.directory(download.number), after: arrival) { return answerChange(reply) }
                do throws(Refusal) {
                    try refuseFolderChange(of: download)  // the download may have started meanwhile
                    events.decide(.setDirectory(download.entry, checked))
                    diskCalls.noteSet(.directory(download.number), at: arrival)
                    answerChange(reply)
                } catch { reply.fail(error) }
            }
        }
    }

    private func refuseFolderChange(of download: ManagedDownload) throws(Refusal) {
        let (record, entry) = (download.record, download.entry)
        if record.state.hasEnded {
            throw Refusal(.invalidState, "A download that is \(record.state.name) cannot be changed.")
        }
        if record.isToDescriptor {
            throw Refusal(.invalidState, "The file is its caller’s own descriptor; Todoku has no folder for it.")
        }
        try refuseArchive(entry)
        if record.isFetch {
            throw Refusal(.invalidState, "Fetch compares its file with the copy in this folder; call Fetch again with the other folder.")
        }
        guard !entry.mayChangeFolder else { return }
        let bytes = max(download.received, record.received)
        if bytes > 0 || record.resume != nil {
            throw Refusal(
                .invalidState,
                "\(bytes) bytes of the file are in \(record.directory) already; cancel the download, and queue it again for the other folder."
            )
        }
        // The transfer of a paused download may end later than the call that paused the download.
        let advice = record.state == .active ? "pause the download before you change the folder" : "try again in a moment"
        throw Refusal(.invalidState, "The download is using its folder \(record.directory); \(advice).")
    }

    /// Replaces the caller's own data.
    ///
    /// - Throws: `LimitExceeded` if they are too long, or if all data of a sandboxed app are.
    func setMetadata(_ download: ManagedDownload, _ metadata: [String: Variant], _ reply: Reply<Void>) throws(Refusal) {
        let bytes = try DownloadOptions(decoding: ["metadata": .dictionary(metadata)]).metadata
        let (caller, more) = (reply.call.caller, bytes.count -| download.record.options.metadata.count)
        try admission.checkRoom(for: Admission.Load(0, bytes: caller.app == nil ? 0 : max(0, more), from: caller))
        events.decide(.setMetadata(download.entry, bytes))
        answerChange(reply)
    }

    /// Removes `download` from the list; cancels it first if it has not ended. `deletingFile`: also deletes the finished file.
    ///
    /// - Throws: `InvalidState` for the archive of an asset's update, which would lose its bytes.
    func remove(_ download: ManagedDownload, deletingFile: Bool, _ reply: Reply<Void>) throws {
        let entry = download.entry
        try refuseArchive(entry)
        try executor.ask(.remove(entry))
        let record = entry.record
        guard deletingFile, record.state == .finished, let path = record.path else { return journal.answer(reply, ()) }
        journal.failIfUnsaved(reply)
        let identity = record.resume?.identity
        deletions += 1
        guard record.folderName == nil else {
            let folder = UnwantedFolder(path: path, identity: identity)
            return unwantedFolders.delete(folder, of: entry.number, in: record.directory, events, journal) { [self] in
                endDeletion($0, reply)
            }
        }
        journal.afterCommit { [self] in
            DiskPool.shared.perform(at: .path(path), within: DiskPatience.file) {
                Commit.deleteFinished(path, identity: identity)
            } then: { [self] in
                endDeletion($0 ?? .failure(.silentDisk(ofUnwanted: path)), reply)
            }
        }
    }

    private func endDeletion(_ result: Result<Void, Refusal>, _ reply: Reply<Void>) {
        deletions -= 1
        switch result {
        case .success: reply()
        case .failure(let refusal): reply.fail(refusal)
        }
    }

    /// Moves the finished file to the trash, and then removes the download from the list. Without a finished file, only removes the
    /// download.
    func trash(_ download: ManagedDownload, _ reply: Reply<Void>) throws {
        let entry = download.entry
        try refuseArchive(entry)
        guard download.state == .finished, let path = download.record.path, !path.isEmpty else {
            return try remove(download, deletingFile: false, reply)
        }
        try desktopWork.checkRoom()
        let identity = download.record.resume?.identity
        diskCalls.begin()
        desktopWork.start { [self] in
            defer { diskCalls.end() }
            do throws(Refusal) {
                try await desktopWork.moveToTrash(path, identity)
                if entry.isRemoved { return reply() }
                events.decide(.remove(entry))
                journal.answer(reply, ())
            } catch { reply.fail(error) }
        }
    }

    private func refuseArchive(_ entry: ScheduledDownload) throws(Refusal) {
        guard let asset = assets.updater.asset(ofArchive: entry.number) else { return }
        throw Refusal(.invalidState, "The download belongs to an update of the asset \(asset); cancel that update instead.")
    }

    /// Notes that a click has opened the file of this download, so that a later `Activate` opens another one. If the download has an
    /// owner to call (option `activate`), only the owner acknowledges it.
    func noteOpened(_ number: DownloadNumber) {
        guard let entry = list.scheduler[number], entry.record.options.activate == nil else { return }
        events.decide(.acknowledge(entry))
    }

    // MARK: Many downloads

    /// Lets the scheduler change many downloads in slices. Calls `answer` after the last slice.
    ///
    /// - Throws: `LimitExceeded` if too many such calls wait, of the caller or of all callers together.
    func changeMany(
        for call: PendingCall, _ event: (Scheduler.CallNumber) -> Scheduler.Event, answer: @escaping () -> Void
    ) throws(Refusal) {
        func check(_ count: Int, _ most: Int, _ whose: String) throws(Refusal) {
            guard count >= most else { return }
            throw Refusal(
                .limitExceeded, "\(most) calls \(whose) that change many downloads wait already; wait for one before you make another.")
        }
        try check(executor.bulkChanges(of: call.holder), Limits.bulkChangesPerCaller, "of this caller")
        try check(executor.bulkChanges, Limits.bulkChanges, "of all callers")
        executor.decideOnMany(for: call.holder, event, answer: answer)
    }

    func clearEnded(_ reply: Reply<UInt32>) throws(Refusal) {
        // The next update of an asset continues with the bytes of its failed download.
        let spared = assets.updater.archiveNumbers
        let count = list.scheduler.ended.count -| spared.count { list.scheduler.ended.contains($0) }
        try changeMany(for: reply.call) {
            .clearEnded(answering: $0, sparing: spared)
        } answer: { [self] in
            journal.answer(reply, UInt32(clamping: count))
        }
    }

    /// Retries a failed download, or all failed members of a batch, after a click on the toast of the failure.
    func retryByClick(_ number: DownloadNumber) {
        if let batch = list.scheduler.batch(number) {
            events.decide(.retryBatch(batch))
        } else if let entry = list.scheduler[number], entry.mayRetryFailure {
            events.decide(.steer(entry, .retry))
        }
    }

    /// Retries all failed members of a batch, in slices. Calls `answer` after the last one.
    ///
    /// - Returns: false if there is nothing left to retry, because another call was faster.
    func retryFailed(of batch: ScheduledBatch, for call: PendingCall, answer: @escaping () -> Void) throws(Refusal) -> Bool {
        guard list.scheduler.members(of: batch).contains(where: \.mayRetryFailure) else { return false }
        try changeMany(for: call, { .retryBatch(batch, answering: $0) }, answer: answer)
        return true
    }

    /// Removes `batch` and all its members from the list. `deletingFiles`: also deletes the files of finished members.
    ///
    /// - Throws: `LimitExceeded` if the batch is being removed already, and 256 calls of the connection wait.
    func remove(_ batch: ManagedBatch, deletingFiles: Bool, _ reply: Reply<Void>) throws(Refusal) {
        // Refuse a call before its decision, or never. The call that begins the removal is never refused: there is one for each batch.
        let begins = !batch.entry.isLeaving
        if !begins { try callers.wait(reply, forRemovalOf: batch) }
        batch.removing.append((reply, !begins))
        if deletingFiles { batch.deletesFiles = true }
        events.decide(.removeBatch(batch.entry))
        // Most removals are over by now, and their callers need not be watched.
        guard begins, !batch.entry.isRemoved, let place = batch.removing.indices.last else { return }
        batch.removing[place].isCounted = (try? callers.wait(reply, forRemovalOf: batch)) != nil
    }

    /// Notes the file of a member that leaves the list, if the call deletes the files of its batch.
    func removed(_ entry: ScheduledDownload) {
        guard let batch = entry.batch.flatMap({ list.batch($0.number) }), batch.deletesFiles, entry.state == .finished,
            let path = entry.record.path
        else { return }
        let identity = entry.record.resume?.identity
        if entry.record.folderName == nil {
            batch.filesToDelete.append((path, identity))
        } else {
            batch.foldersToDelete.append((entry.number, entry.record.directory, UnwantedFolder(path: path, identity: identity)))
        }
    }

    /// The last member of the batch has left the list.
    func removed(_ batch: ManagedBatch) {
        callers.answered(batch.removing.filter(\.isCounted).map(\.reply.call.sender), batch.number)
        let (replies, files, folders) = (batch.removing.map(\.reply), batch.filesToDelete, batch.foldersToDelete)
        guard !files.isEmpty || !folders.isEmpty else {
            for reply in replies { journal.answer(reply, ()) }
            return
        }
        for reply in replies { journal.failIfUnsaved(reply) }
        deletions += 1
        journal.afterCommit { [self] in
            BusActor.spawn { [self] in
                let refusals = await delete(files, folders)
                deletions -= 1
                Self.answer(replies, refusals, of: files.count +| folders.count)
            }
        }
    }

    /// Deletes the finished files and the unpacked folders of removed members, all at once. So the caller waits only once for disks that
    /// hang.
    ///
    /// - Returns: why files or folders are still there.
    private func delete(
        _ files: [(path: String, identity: FileIdentity?)],
        _ folders: [(number: DownloadNumber, directory: String, folder: UnwantedFolder)]
    ) async -> [Refusal] {
        // One disk job for each folder: most files of a batch lie in one folder, and each folder may be on another disk.
        let groups = Dictionary(grouping: files, by: { $0.path[..<($0.path.lastIndex(of: "/") ?? $0.path.startIndex)] }).values
        let count = groups.count +| folders.count
        guard count > 0 else { return [] }
        return await withCheckedContinuation { continuation in
            var ends: [[Refusal]] = []
            let end: @BusActor ([Refusal]) -> Void = { refusals in
                ends.append(refusals)
                if ends.count == count { continuation.resume(returning: ends.flatMap { $0 }) }
            }
            for group in groups {
                // All folders may be on one slow disk, so each job has the time for all files.
                DiskPool.shared.perform(at: .path(group[0].path), within: DiskPatience.files(files.count)) {
                    group.map { Commit.deleteFinished($0.path, identity: $0.identity) }.compactMap { result -> Refusal? in
                        if case .failure(let refusal) = result { refusal } else { nil }
                    }
                } then: { refusals in
                    end(refusals ?? group.map { .silentDisk(ofUnwanted: $0.path) })
                }
            }
            for (number, directory, folder) in folders {
                unwantedFolders.delete(folder, of: number, in: directory, events, journal) { result in
                    if case .failure(let refusal) = result { end([refusal]) } else { end([]) }
                }
            }
        }
    }

    private static func answer(_ replies: [Reply<Void>], _ refusals: [Refusal], of count: Int) {
        for reply in replies {
            if let first = refusals.first {
                let others = refusals.count > 1 ? " \(refusals.count) files of \(count) are still there." : ""
                reply.fail(Refusal(first.name, first.message + others))
            } else {
                reply()
            }
        }
    }
}
