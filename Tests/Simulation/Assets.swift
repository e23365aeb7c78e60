// SPDX-License-Identifier: Apache-2.0
import Assets
import DownloadModel
import Scheduling

/// Work on the disk for an asset.
enum AssetWork {
    case checkSpace(AssetUpdater.Ticket)
    case readManifest(AssetUpdater.Ticket, path: String?)
    case extract(folder: String, version: String)
    /// Unpacked, and the bytes are not flushed.
    case unpacked(folder: String, version: Int)
    /// Renamed, but the directory is not flushed: a power cut may undo the rename.
    case named(folder: String, from: UnpackedVersion)
    case point(folder: String)
    /// As `named`, for the link.
    case pointed(folder: String, was: String?)
    case remove(AssetRemoval)
    case deleteData([String])
    case callOwner
    case tell(AssetUpdater.Event)
}

/// A folder with the files of a version.
struct UnpackedVersion {
    /// nil: some files are missing or broken.
    var version: Int?
    var isFlushed = false
}

/// The directory of the asset, as far as downloads do not know it.
struct AssetDisk {
    var versions: [String: UnpackedVersion] = [:]
    var unfinished: [String: UnpackedVersion] = [:]
    var link: String?

    /// Files whose bytes are not flushed may be broken.
    mutating func cutPower(_ random: inout Random) {
        for folder in versions.keys.sorted() where versions[folder]?.isFlushed == false && random.below(2) == 0 {
            versions[folder]?.version = nil
        }
        for folder in unfinished.keys.sorted() where unfinished[folder]?.isFlushed == false { unfinished[folder]?.version = nil }
    }
}

/// The process' part of assets, with the rules of the service's `AssetCentre`.
struct AssetHost {
    enum Purpose {
        case archive
        case manifest(AssetUpdater.Ticket)
        case removal(AssetRemoval)
    }

    var updater = AssetUpdater()
    var todo: [AssetUpdater.Action] = []
    var isPosting = false
    var purposes: [DownloadNumber: Purpose] = [:]
    /// The extractions that were cancelled.
    var cancelled: Set<String> = []
    /// The calls that wait for an answer.
    var asked: Set<UInt64> = []
    /// The last call of Unregister.
    var unregisteredBy: UInt64 = 0
    var network: NetworkCondition?
}

/// One asset, which lives beside the downloads. Its manifest and its archives are one resource: version n of the manifest names version n
/// of the archive.
extension World {
    static let asset: AssetKey = {
        do { return try AssetKey(app: "A", name: "maps") } catch { preconditionFailure("\(error)") }
    }()
    private static let resource = 5
    private static let archiveURL = "http://h1/\(resource)"
    private static let manifestURL = "\(archiveURL)?manifest"
    private static let manifestName = "m.json"

    static func isOfAsset(_ path: String) -> Bool { path.hasSuffix(".archive") || path.hasSuffix("/\(manifestName)") }

    private var updater: AssetUpdater { assets.updater }
    var assetState: AssetState? { updater[Self.asset] }

    // MARK: Decisions

    func happens(_ event: AssetUpdater.Event) {
        guard hasAssets else { return }
        assets.todo += updater.turn([event], at: now)
        guard !assets.isPosting else { return }
        assets.isPosting = true
        while !assets.todo.isEmpty { post(assets.todo.removeFirst()) }
        assets.isPosting = false
    }

    private func post(_ action: AssetUpdater.Action) {
        switch action {
        case .save(let record): gate.append(.putAsset(record))
        case .delete(let key): gate.append(.removeAsset(key))
        case .answer(let call, let answer):
            let message = Message.assetAnswer(call.value, answer)
            if gate.isClear || plant == .careless { return send(message) }
            gate.post(success: { message }, failure: { .assetAnswer(call.value, .refused($0)) })
        default: if plant == .careless { perform(action) } else { gate.afterCommit { [self] in perform(action) } }
        }
    }

    private func perform(_ action: AssetUpdater.Action) {
        switch action {
        case .save, .delete, .answer, .added, .gone, .tell: break
        case .ready(_, let version): checkReady(version)
        case .fetchManifest(_, let ticket, let isBackground): fetchManifest(ticket, isBackground: isBackground)
        case .cancelFetch(_, let ticket): cancelFetch(ticket)
        case .checkSpace(_, let ticket, _): pool.append(.asset(.checkSpace(ticket)))
        case .startDownload(_, let ticket, let url, let pending): startDownload(ticket, url, pending)
        case .resumeDownload(_, let number, let retries): resumeDownload(number, retries: retries)
        case .raiseDownload(_, let number): raiseDownload(number)
        case .removeDownload(let number): _ = removeDownload(number)
        case .extract(_, let folder, let manifest): pool.append(.asset(.extract(folder: folder, version: manifest.version)))
        case .cancelExtraction(_, let folder): assets.cancelled.insert(folder)
        case .switchLink(_, let folder): pool.append(.asset(.point(folder: folder)))
        case .remove(_, let removal): remove(removal)
        case .deleteData(_, let folders): pool.append(.asset(.deleteData(folders)))
        case .callOwner: pool.append(.asset(.callOwner))
        }
    }

    // MARK: Downloads

    private func options(_ name: String) -> DownloadOptions {
        var options = assetState?.record.options ?? DownloadOptions()
        (options.fileName, options.ifExists, options.notify) = (name, .replace, .never)
        (options.showProgress, options.activate) = (false, nil)
        return options
    }

    /// Adds a download, as a call would.
    private func add(
        _ url: String, _ options: DownloadOptions, as purpose: AssetHost.Purpose, undone: @escaping (DownloadNumber) -> Void
    ) -> DownloadNumber {
        let number = nextNumber
        nextNumber = DownloadNumber(number.value + 1)
        var record = DownloadRecord(
            number: number, url: url, options: options, directory: Self.directory, state: .paused, queuedAt: now,
            position: DownloadQueue.position(of: number))
        record.state = record.obstacle(now: now, paused: scheduler.settings.paused)
        wanted[number] = resources[Self.resource].version
        tell("the asset adds \(number): \(url)")
        executor.add(record) { _ in
        } undone: { [self] _, _ in
            assets.purposes[number] = nil
            undone(number)
            return nil
        }
        assets.purposes[number] = purpose
        return number
    }

    private static let unsaved = DownloadFailure(.storage, "The row could not be saved.")

    private func fetchManifest(_ ticket: AssetUpdater.Ticket, isBackground: Bool) {
        guard let state = assetState, state.activity == .checking(ticket) else { return }
        removeFormerManifests()
        var options = options(Self.manifestName)
        (options.onlyIfChanged, options.deadline, options.allowsMetered) = (true, .seconds(120), !isBackground)
        _ = add(Self.manifestURL, options, as: .manifest(ticket)) { [self] _ in
            happens(.manifestFailed(Self.asset, ticket, Self.unsaved))
        }
    }

    /// Takes the fetches of an earlier process off the list.
    func removeFormerManifests() {
        for entry in scheduler.entries.values.sorted(by: { $0.number < $1.number }) where entry.record.url == Self.manifestURL {
            _ = removeDownload(entry.number)
        }
    }

    private func cancelFetch(_ ticket: AssetUpdater.Ticket) {
        for (number, purpose) in assets.purposes {
            if case .manifest(ticket) = purpose { _ = removeDownload(number) }
        }
    }

    private func startDownload(_ ticket: AssetUpdater.Ticket, _ url: String, _ pending: PendingUpdate) {
        guard assetState?.activity == .starting(ticket) else { return }
        var options = options(AssetRecord.archive(of: pending.folder))
        options.checksum = pending.manifest.sha256
        // A call may have come since the updater decided.
        options.allowsMetered = !(assetState?.record.pending?.isBackground ?? pending.isBackground)
        if let old = pending.download, archive(old, of: pending.folder) != nil { _ = removeDownload(old) }
        let number = add(url, options, as: .archive) { [self] number in
            happens(.downloadRefused(Self.asset, ticket, Self.unsaved))
            happens(.downloadEnded(Self.asset, number, .failed(Self.unsaved)))
        }
        wanted[number] = Int(pending.manifest.version)
        happens(.downloadAdded(Self.asset, ticket, number))
    }

    /// A call has asked for the update.
    private func raiseDownload(_ number: DownloadNumber) {
        guard let folder = assetState?.record.pending?.folder, let entry = archive(number, of: folder) else { return }
        if !entry.record.options.allowsMetered { decide(.setAllowsMetered(entry, true)) }
    }

    private func resumeDownload(_ number: DownloadNumber, retries: Bool) {
        guard let folder = assetState?.record.pending?.folder, let entry = archive(number, of: folder) else {
            return happens(.downloadEnded(Self.asset, number, .lost))
        }
        if assetState?.record.pending?.isBackground == false { raiseDownload(number) }
        switch entry.state {
        case .finished: return happens(.downloadEnded(Self.asset, number, .finished))
        case .failed, .cancelled:
            guard retries, retry(entry) else {
                return happens(.downloadEnded(Self.asset, number, AssetUpdater.DownloadEnd(entry.state)))
            }
        default: break
        }
        assets.purposes[number] = .archive
    }

    private func archive(_ number: DownloadNumber, of folder: String) -> ScheduledDownload? {
        scheduler[number].flatMap { $0.record.options.fileName == AssetRecord.archive(of: folder) ? $0 : nil }
    }

    /// Returns false if its file is being renamed: it ends first.
    private func removeDownload(_ number: DownloadNumber) -> Bool {
        assets.purposes[number] = nil
        guard let entry = scheduler[number] else { return true }
        let wasRemoved = !removals.insert(number).inserted
        if decide(.remove(entry)) == nil { return true }
        if !wasRemoved { removals.remove(number) }
        return false
    }

    func assetDownloadEnded(_ entry: ScheduledDownload) {
        guard let purpose = assets.purposes.removeValue(forKey: entry.number) else { return }
        switch purpose {
        case .archive: happens(.downloadEnded(Self.asset, entry.number, AssetUpdater.DownloadEnd(entry.state)))
        case .manifest(let ticket):
            let path = entry.state == .finished ? entry.record.path : nil
            let status = entry.state.failure?.httpStatus
            _ = removeDownload(entry.number)
            if let status { return happens(.manifestFailed(Self.asset, ticket, DownloadFailure(.httpStatus, "gone", httpStatus: status))) }
            pool.append(.asset(.readManifest(ticket, path: path)))
        case .removal(let removal): remove(removal)
        }
    }

    func assetDownloadRemoved(_ entry: ScheduledDownload) {
        guard let purpose = assets.purposes.removeValue(forKey: entry.number), plant != .unheeded else { return }
        switch purpose {
        case .archive: happens(.downloadEnded(Self.asset, entry.number, .lost))
        case .manifest(let ticket): happens(.manifestFailed(Self.asset, ticket, DownloadFailure(.cancelled, "removed")))
        case .removal(let removal): remove(removal)
        }
    }

    func tellAssetOfNetwork() {
        guard hasAssets, scheduler.conditions.network != assets.network else { return }
        assets.network = scheduler.conditions.network
        happens(.network(assets.network))
    }

    private func remove(_ removal: AssetRemoval) {
        if let number = removal.download, archive(number, of: removal.folder) != nil, !removeDownload(number) {
            assets.purposes[number] = .removal(removal)
            return
        }
        pool.append(.asset(.remove(removal)))
    }

    // MARK: The disk

    /// One step of a piece of work.
    func work(_ work: AssetWork, _ b: Int) {
        let (key, fails) = (Self.asset, !isEnding && b % 8 == 1)
        let failure = DownloadFailure(.writeFailed, "The disk failed.")
        tell("the asset's disk: \(work)")
        switch work {
        case .checkSpace(let ticket): happens(.spaceChecked(key, ticket, missing: fails || disk.isFull ? 10 : 0))
        case .readManifest(let ticket, let path):
            guard let path, !fails, let version = disk.finals[path]?.content.version, version > 0 else {
                return happens(.manifestFailed(key, ticket, DownloadFailure(.manifest, "cannot be read")))
            }
            happens(.manifestFetched(key, ticket, Self.manifest(version)))
        case .extract(let folder, let version): extract(folder, version, b)
        case .unpacked(let folder, let version):
            guard assets.cancelled.remove(folder) == nil else { return happens(.extracted(key, folder: folder, .cancelled)) }
            if fails { return happens(.extracted(key, folder: folder, .failed(failure))) }
            let whole = UnpackedVersion(version: version, isFlushed: plant != .hollow)
            disk.asset.unfinished[folder] = nil
            disk.asset.versions[folder] = whole
            pool.append(.asset(.named(folder: folder, from: whole)))
        case .named(let folder, _): happens(.extracted(key, folder: folder, .whole))
        case .point(let folder):
            if fails { return happens(.switched(key, failure)) }
            let was = disk.asset.link
            disk.asset.link = folder
            pool.append(.asset(.pointed(folder: folder, was: was)))
        case .pointed: happens(.switched(key, nil))
        case .remove(let removal):
            disk.finals["\(Self.directory)/\(AssetRecord.archive(of: removal.folder))"] = nil
            disk.asset.unfinished[removal.folder] = nil
            if fails { return happens(.removed(key, removal, isGone: false)) }
            guard removal.keepsFolder || disk.asset.link != removal.folder else { return happens(.removed(key, removal, isGone: false)) }
            if !removal.keepsFolder { disk.asset.versions[removal.folder] = nil }
            happens(.removed(key, removal, isGone: true))
        case .deleteData(let folders):
            if fails { return happens(.dataDeleted(key, failure)) }
            disk.asset.link = nil
            for folder in folders { (disk.asset.versions[folder], disk.asset.unfinished[folder]) = (nil, nil) }
            for folder in folders { disk.finals["\(Self.directory)/\(AssetRecord.archive(of: folder))"] = nil }
            happens(.dataDeleted(key, nil))
        case .callOwner: happens(.ownerCalled(key, !fails))
        case .tell(let event): happens(event)
        }
    }

    private func extract(_ folder: String, _ version: String, _ b: Int) {
        // An earlier run may have ended, and died before it said so.
        if disk.asset.versions[folder]?.version != nil { return pool.append(.asset(.tell(.extracted(Self.asset, folder: folder, .whole)))) }
        guard let archive = disk.finals["\(Self.directory)/\(AssetRecord.archive(of: folder))"] else {
            return happens(.extracted(Self.asset, folder: folder, .archiveLost))
        }
        guard let found = archive.content.version, "\(found)" == version else {
            // Somebody has changed it since it was verified.
            disk.asset.unfinished[folder] = nil
            return happens(.extracted(Self.asset, folder: folder, .unusable(DownloadFailure(.extraction, "damaged"))))
        }
        disk.asset.unfinished[folder] = UnpackedVersion(version: found)
        pool.append(.asset(.unpacked(folder: folder, version: found)))
    }

    private static func manifest(_ version: Int) -> AssetManifest {
        guard let digest = Checksum(.sha256, digest: [UInt8](repeating: UInt8(truncatingIfNeeded: version), count: 32)) else {
            preconditionFailure("a digest of 32 bytes")
        }
        return AssetManifest(version: "\(version)", url: archiveURL, sha256: digest, mirrors: ["\(archiveURL)?b"])
    }

    // MARK: Calls

    func callAsset(_ b: Int) {
        lastAssetCall += 1
        assets.asked.insert(lastAssetCall)
        let call = AssetUpdater.CallNumber(lastAssetCall)
        tell("call \(lastAssetCall) about the asset: \(b % 16)")
        switch b % 16 {
        case 0, 1, 2: registerAsset(call, b / 16)
        case 3:
            assets.unregisteredBy = lastAssetCall
            happens(.unregister(Self.asset, deletesData: b / 16 % 2 == 0, call))
        case 4: happens(.check(Self.asset, call))
        case 5...10: happens(.update(Self.asset, forces: b / 16 % 4 == 0, call))
        case 11: happens(.updateAll(app: Self.asset.app, forces: false, call))
        case 12, 13: happens(.rollback(Self.asset, call))
        default: happens(.cancel(Self.asset, call))
        }
    }

    private func registerAsset(_ call: AssetUpdater.CallNumber, _ b: Int) {
        var options = DownloadOptions()
        (options.app, options.retries) = (Self.asset.app, 2)
        if b % 2 == 0 { options.activate = "org.example.App" }
        var record = AssetRecord(key: Self.asset, manifestURL: Self.manifestURL, options: options, directory: Self.directory)
        record.update = AssetUpdatePolicy.allCases[b / 2 % 3]
        happens(.register(record, found: disk.asset.link, call))
    }

    /// Somebody deletes an archive, or a new version is published.
    func disturbAsset(_ a: Int, _ b: Int) {
        switch a % 4 {
        case 0: resources[Self.resource].version += 1
        case 1:
            let archives = disk.finals.keys.filter { $0.hasSuffix(".archive") }.sorted()
            if let path = archives.first, b % 3 == 0 { disk.finals[path] = nil }
        default: callAsset(b)
        }
    }

    // MARK: Restart

    /// A power cut may undo what no flush has followed.
    func cutAssetPower() {
        for case .asset(let work) in pool {
            switch work {
            case .named(let folder, let whole) where random.below(2) == 0:
                disk.asset.versions[folder] = nil
                disk.asset.unfinished[folder] = whole
            case .pointed(let folder, let was) where random.below(2) == 0 && disk.asset.link == folder: disk.asset.link = was
            default: break
            }
        }
        disk.asset.cutPower(&random)
    }

    /// The next process reads the rows.
    func restoreAssets() {
        guard hasAssets else { return }
        assets = AssetHost()
        assets.updater = AssetUpdater(saved.assets.values.sorted { $0.key < $1.key })
        removeFormerManifests()
        happens(.begins(isLogin: !isEnding && random.below(2) == 0))
    }

    // MARK: What must hold

    /// The path leads to a whole version at any time.
    func checkAsset() {
        guard let link = disk.asset.link else { return }
        guard let folder = disk.asset.versions[link] else { return fail("the asset's path leads to \(link), which is not there") }
        if folder.version == nil { fail("the asset's path leads to \(link), which is not whole") }
    }

    /// The bus is told that a version is ready.
    private func checkReady(_ version: String) {
        guard let row = saved.assets[Self.asset], let state = assetState, state.record.installed?.version == version else { return }
        if row.installed?.folder != state.record.installed?.folder {
            fail("version \(version) is told as ready, and is not on disk as that")
        }
        if disk.asset.link != row.installed?.folder { fail("version \(version) is told as ready, and the path leads elsewhere") }
    }

    func answered(_ call: UInt64, _ answer: AssetUpdater.Answer) {
        tell("told: call \(call): \(answer)")
        if assets.asked.remove(call) == nil { fail("call \(call) about the asset is answered twice") }
        // It may have been unregistered since, and perhaps registered once more.
        if case .registered = answer, call > assets.unregisteredBy, saved.assets[Self.asset] == nil {
            fail("the asset is told as registered, and is not on disk")
        }
    }

    /// Nothing is under way: every call is answered, the path is the installed version's, and nothing is left behind.
    func checkAssetAtRest() {
        guard hasAssets else { return }
        if !assets.asked.isEmpty { fail("the calls \(assets.asked.sorted()) about the asset are never answered") }
        let record = saved.assets[Self.asset]
        if record != assetState?.record { fail("the asset on disk is not the one in memory") }
        if let installed = record?.installed {
            if disk.asset.link != installed.folder {
                fail("\(installed.folder) is installed, and the path leads to \(disk.asset.link ?? "nothing")")
            }
            if disk.asset.versions[installed.folder]?.version != Int(installed.version) {
                fail("\(installed.folder) is not version \(installed.version)")
            }
        }
        let pending = record?.pending?.folder
        let known = Set(
            [record?.installed, record?.previous, record?.left].compactMap { $0?.folder } + [pending, disk.asset.link].compactMap { $0 })
        for folder in disk.asset.versions.keys where !known.contains(folder) { fail("\(folder) of the asset is left behind") }
        for folder in disk.asset.unfinished.keys where folder != pending { fail("what was unpacked of \(folder) is left behind") }
        for path in disk.finals.keys where path.hasSuffix(".archive") {
            if path != pending.map({ "\(Self.directory)/\(AssetRecord.archive(of: $0))" }), !strangers.contains(path) {
                fail("\(path) is left behind")
            }
        }
        for entry in scheduler.entries.values where Self.isOfAsset(entry.record.options.fileName ?? "") {
            if entry.number != record?.pending?.download { fail("the download \(entry.number) of the asset is left behind") }
        }
    }

    /// The latest version, if the asset is registered and no rollback has left it.
    var isAssetCurrent: Bool {
        guard let record = assetState?.record else { return true }
        let latest = "\(resources[Self.resource].version)"
        return record.installed?.version == latest || record.skipped == latest
    }

    /// Whether the asset has nothing under way.
    var isAssetResting: Bool {
        !hasAssets || !updater.hasWork && (assetState?.activity ?? AssetActivity.none) == AssetActivity.none && assets.todo.isEmpty
    }
}

extension AssetUpdater.DownloadEnd {
    init(_ state: DownloadState) {
        switch state {
        case .finished: self = .finished
        case .failed(let failure): self = .failed(failure)
        case .cancelled: self = .cancelled
        default: self = .lost
        }
    }
}
