public import DownloadModel

/// The only way into the updater: events in, actions out.
extension AssetUpdater {
    public typealias Ticket = AssetActivity.Ticket

    /// Names a call that waits for an answer. The host gives a new number to each call.
    public struct CallNumber: Hashable, Sendable {
        public let value: UInt64
        public init(_ value: UInt64) { self.value = value }
    }

    /// A fact, or the wish of a caller. An answer of the disk, of the download or of the server may come late.
    public enum Event: Sendable {
        // From callers. Each call is answered by exactly one `Action.answer`, unless its caller leaves before.
        /// Registers an asset, or changes the registered asset with this key. The directory exists and was checked.
        ///
        /// `found`: the folder that the link in the directory leads to, left from an earlier registration.
        case register(AssetRecord, found: String?, CallNumber)
        case unregister(AssetKey, deletesData: Bool, CallNumber)
        case check(AssetKey, CallNumber)
        /// `forces`: bring the version that a rollback has left, too.
        case update(AssetKey, forces: Bool, CallNumber)
        /// Updates all assets of an application. The call is answered when all have ended.
        case updateAll(app: String, forces: Bool, CallNumber)
        case rollback(AssetKey, CallNumber)
        case cancel(AssetKey, CallNumber)
        /// The callers of these calls have left the bus, or the host has answered them: the calls are not answered any more. What they
        /// have asked for continues.
        case callersLeft(Set<CallNumber>)

        // Answers to actions, one to each.
        /// `isPublic`: whether a public server has sent the manifest; nil: the server says that nothing has changed.
        case manifestFetched(AssetKey, Ticket, AssetManifest, isPublic: Bool? = nil)
        case manifestFailed(AssetKey, Ticket, DownloadFailure)
        /// `missing`: the bytes by which the room on the disk is too small; 0: it is enough.
        case spaceChecked(AssetKey, Ticket, missing: ByteCount)
        /// The directory cannot be used.
        case spaceRefused(AssetKey, Ticket, DownloadFailure)
        case downloadAdded(AssetKey, Ticket, DownloadNumber)
        case downloadRefused(AssetKey, Ticket, DownloadFailure)
        case downloadEnded(AssetKey, DownloadNumber, DownloadEnd)
        case extracted(AssetKey, folder: String, ExtractionEnd)
        case switched(AssetKey, DownloadFailure?)
        /// `isGone` false: something is still there.
        case removed(AssetKey, AssetRemoval, isGone: Bool)
        /// `isUntouched`: nothing was deleted.
        case dataDeleted(AssetKey, DownloadFailure?, isUntouched: Bool = false)
        /// The owner was called, or the call failed and is tried again after the next start.
        case ownerCalled(AssetKey, Bool)

        // Facts.
        /// While the manifest is fetched: the link does not lead to the installed version `folder`. `isFolderThere`: the version itself is
        /// still on the disk. Instead of `switched`: the version that the link was to lead to is not there, or it was not whole, and what
        /// was left of it is deleted.
        case versionLost(AssetKey, folder: String, isFolderThere: Bool)
        /// The archive is whole, and its digest is being computed.
        case downloadVerifies(AssetKey, DownloadNumber)
        /// The archive could not be verified or named: its bytes are fetched again, or its download waits.
        case downloadContinues(AssetKey, DownloadNumber)
        case network(NetworkCondition?)
        case time
        /// The wall clock was set.
        case clockSet
        /// All records are restored.
        ///
        /// `isLogin`: the service was started because somebody has logged in. `session`: names the session of the bus; empty: unknown.
        case begins(isLogin: Bool, session: String = "")
        /// The process exits: nothing starts any more.
        case ends
    }

    /// How the download of an archive ended.
    public enum DownloadEnd: Equatable, Sendable {
        /// The archive is verified and at its path.
        case finished
        case failed(DownloadFailure)
        case cancelled
        /// The download is not on the list any more.
        case lost
    }

    public enum ExtractionEnd: Equatable, Sendable {
        /// The folder is whole, on disk and has its name.
        case whole(FolderSize)
        /// What is unpacked stays for a later run.
        case failed(DownloadFailure)
        /// No run can unpack this archive. What was unpacked is gone.
        case unusable(DownloadFailure)
        /// The archive is not there any more: it was deleted, or another program had changed it.
        case archiveLost
        case cancelled
    }

    /// What the host must do, in the order of the turn. Each action is performed after the rows before it are on disk.
    public enum Action: Equatable, Sendable {
        case save(AssetRecord)
        case delete(AssetKey)
        /// Look whether the installed version is there. Then fetch the manifest at the record's URL with a conditional request, and verify
        /// its signature if the record has a key. `manifestFetched` also answers if the server says that nothing has changed.
        case fetchManifest(AssetKey, Ticket, isBackground: Bool)
        case cancelFetch(AssetKey, Ticket)
        case checkSpace(AssetKey, Ticket, needed: ByteCount)
        /// Add a download of `url` to the archive's path. The download of the pending update, if it has one, goes off the list before. Both
        /// changes, and the row that `downloadAdded` saves, are in one commit.
        case startDownload(AssetKey, Ticket, url: String, PendingUpdate)
        /// Report the end of a download that was added before. `retries`: if it has failed, run it again, with the URL of the pending
        /// update and the credentials of the registration.
        case resumeDownload(AssetKey, DownloadNumber, retries: Bool)
        /// Give a download that was added without a call the options of the registration: it may use a metered connection.
        case raiseDownload(AssetKey, DownloadNumber)
        /// Take a download off the list that was added just now. Nothing is reported.
        case removeDownload(DownloadNumber)
        case extract(AssetKey, folder: String, AssetManifest)
        case cancelExtraction(AssetKey, folder: String)
        /// Switch the link to this folder, if the folder still has all files that were unpacked into it (for an update, no others).
        case switchLink(AssetKey, folder: String)
        /// Take the removal's download off the list, and then delete its files.
        case remove(AssetKey, AssetRemoval)
        /// Delete the link, then these folders with all that belongs to them, then the directory if it is empty.
        case deleteData(AssetKey, folders: [String])
        case callOwner(AssetKey)

        // For the observers of changes, and for callers.
        case added(AssetKey)
        case gone(AssetKey)
        /// The stage or another property has changed.
        case tell(AssetKey)
        /// A new version is ready.
        case ready(AssetKey, version: String)
        case answer(CallNumber, Answer)
    }

    public enum Answer: Equatable, Sendable {
        case registered(AssetKey)
        case done
        case checked(isNewer: Bool, latest: String)
        case updated(isChanged: Bool, path: String)
        case rolledBack(path: String)
        case allUpdated([AppUpdate])
        case refused(Refusal)
        case failed(DownloadFailure)
    }

    /// What an update of all assets of an application did to one of them.
    public struct AppUpdate: Equatable, Sendable {
        public let key: AssetKey
        public let isChanged: Bool
        public let path: String

        public init(key: AssetKey, isChanged: Bool, path: String) { (self.key, self.isChanged, self.path) = (key, isChanged, path) }
    }

    /// Applies `events` in order, and returns what the host must do.
    ///
    /// Calls nothing outside; the time is `now`.
    public func turn(_ events: [Event], at now: WallTime) -> [Action] {
        began(now)
        for event in events {
            take(event, now: now)
            reindex()
        }
        beginDueChecks(now: now)
        reindex()
        defer { actions = [] }
        return actions
    }

    private func take(_ event: Event, now: WallTime) {
        switch event {
        case .register(let record, let found, let call): register(record, found: found, [.call(call)])
        case .unregister(let key, let deletesData, let call): onAsset(key, call) { unregister(key, deletesData: deletesData, call) }
        case .check(let key, let call): onAsset(key, call) { check(key, call) }
        case .update(let key, let forces, let call):
            onAsset(key, call) { update(key, forces: forces, .call(call), now: now) }
        case .updateAll(let app, let forces, let call): updateAll(app, forces: forces, call, now: now)
        case .rollback(let key, let call): onAsset(key, call) { rollBack(key, call) }
        case .cancel(let key, let call): onAsset(key, call) { cancel(key, call) }
        case .callersLeft(let calls): callersLeft(calls)
        case .manifestFetched(let key, let ticket, let manifest, let isPublic):
            if assets[key]?.activity == .checking(ticket) { manifestFetched(key, manifest, isPublic: isPublic, now: now) }
        case .manifestFailed(let key, let ticket, let failure):
            if assets[key]?.activity == .checking(ticket) { manifestFailed(key, failure) }
        case .spaceChecked(let key, let ticket, let missing):
            if assets[key]?.activity == .checkingSpace(ticket) { spaceChecked(key, missing: missing) }
        case .spaceRefused(let key, let ticket, let failure):
            if assets[key]?.activity == .checkingSpace(ticket) { fail(key, failure) }
        case .versionLost(let key, let folder, let isFolderThere): versionLost(key, folder, isFolderThere: isFolderThere)
        case .downloadAdded(let key, let ticket, let number): downloadAdded(key, ticket, number)
        case .downloadRefused(let key, let ticket, let failure):
            if assets[key]?.activity == .starting(ticket) { fail(key, failure) }
        case .downloadVerifies(let key, let number):
            if assets[key]?.activity == .downloading(number) { set(key, .verifying(number)) }
        case .downloadContinues(let key, let number):
            if assets[key]?.activity == .verifying(number) { set(key, .downloading(number)) }
        case .downloadEnded(let key, let number, let end):
            if [.downloading(number), .verifying(number)].contains(assets[key]?.activity) { downloadEnded(key, number, end) }
        case .extracted(let key, let folder, let end): extracted(key, folder, end)
        case .switched(let key, let failure): switched(key, failure, now: now)
        case .removed(let key, let removal, let isGone): removed(key, removal, isGone: isGone)
        case .dataDeleted(let key, let failure, let isUntouched): dataDeleted(key, failure, isUntouched: isUntouched)
        case .ownerCalled(let key, let isDone): ownerCalled(key, isDone)
        case .network(let condition): network = condition
        case .time: break
        case .clockSet: reindexAll()
        case .begins(let isLogin, let session): begin(isLogin: isLogin, session: session)
        case .ends: isEnding = true
        }
    }

    /// Refuses a call about an asset that is not registered.
    private func onAsset(_ key: AssetKey, _ call: CallNumber, _ body: () -> Void) {
        if assets[key] != nil { return body() }
        answer(.call(call), .refused(Refusal(.noSuchObject, "There is no asset \(key).")))
    }
}
