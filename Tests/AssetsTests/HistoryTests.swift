internal import Assets
internal import DownloadModel
internal import Glibc
internal import TestSupport
internal import Testing

/// Random histories of calls, publications, failures and kills, with a model of the disk, of the rows and of the downloads.
@Suite struct `In random histories` {
    /// More of them: TODOKU_HISTORIES=20000.
    static let count = environmentNumber("TODOKU_HISTORIES") ?? 400

    @Test(arguments: 0..<count)
    func `the path leads to a whole version, calls are answered once, and nothing is left behind`(seed: UInt64) throws {
        let world = World(seed)
        for _ in 0..<120 { world.step() }
        world.comeToRest()
        #expect(
            world.defects.isEmpty, "seed \(seed): \(world.defects.joined(separator: "; "))\n\(world.log.suffix(60).joined(separator: "\n"))"
        )
    }
}

private func environmentNumber(_ name: String) -> UInt64? { getenv(name).flatMap { UInt64(String(cString: $0)) } }

/// The disk, the database, the server and the host of an updater. A kill loses what is not in the model of the disk or of the rows.
private final class World {
    static let key = Bench.key
    struct Download { var state: State, path: String, version: String; enum State { case running, finished, failed, cancelled } }
    enum Item { case save(AssetRecord), delete(AssetKey), act(AssetUpdater.Action) }

    var random: SeededRandom
    var (defects, log): ([String], [String]) = ([], [])
    var now = Bench.start

    // What outlasts a kill.
    var rows: [AssetKey: AssetRecord] = [:]
    var downloads: [DownloadNumber: Download] = [:]
    var archives: [String: String] = [:]  // path: version
    var unpacking: Set<String> = []
    var folders: [String: String] = [:]  // name: version
    /// The version folders from which somebody has deleted files.
    var damaged: Set<String> = []
    var link: String?
    /// Somebody has deleted the link, or the version that it led to, and no switch has followed.
    var isBroken = false
    var hasDeleted = false
    /// Somebody has deleted the link to them, and the asset was unregistered without its data. The next registration cannot find them.
    var orphans: Set<String> = []
    var published = 1
    var nextDownload: UInt64 = 1
    var isManifestGone = false

    // What dies with the process.
    var updater = AssetUpdater(network: .open)
    var queue: [Item] = []
    /// The downloads as the process knows them, and not the database yet.
    var unsavedDownloads: [(DownloadNumber, Download?)] = []
    var work: [AssetUpdater.Action] = []
    var cancelled: Set<String> = []
    var followed: [DownloadNumber: AssetKey] = [:]
    var asked: Set<UInt64> = []
    var nextCall: UInt64 = 0

    init(_ seed: UInt64) {
        random = SeededRandom(seed)
        happens(.begins(isLogin: false))
    }

    func roll(_ sides: Int) -> Int { Int.random(in: 0..<sides, using: &random) }

    // MARK: The host

    func happens(_ event: AssetUpdater.Event) {
        log.append("  event \(event)")
        for action in updater.turn([event], at: now) {
            switch action {
            case .save(let record): queue.append(.save(record))
            case .delete(let key): queue.append(.delete(key))
            default: queue.append(.act(action))
            }
        }
        release()
    }

    /// Performs the actions that no unsaved row precedes.
    func release() {
        while case .act(let action)? = queue.first {
            queue.removeFirst()
            perform(action)
        }
    }

    func commit() {
        log.append("commit")
        for (number, download) in unsavedDownloads { downloads[number] = download }
        unsavedDownloads = []
        var rest: [Item] = []
        for item in queue {
            switch item {
            case .save(let record): rows[record.key] = record
            case .delete(let key): rows[key] = nil
            case .act: rest.append(item)
            }
        }
        queue = rest
        release()
    }

    func download(_ number: DownloadNumber) -> Download? {
        if let unsaved = unsavedDownloads.last(where: { $0.0 == number }) { return unsaved.1 }
        return downloads[number]
    }

    func setDownload(_ number: DownloadNumber, _ download: Download?) { unsavedDownloads.append((number, download)) }

    func removeDownload(_ number: DownloadNumber) {
        followed[number] = nil
        setDownload(number, nil)
    }

    func perform(_ action: AssetUpdater.Action) {
        log.append("  action \(action)")
        switch action {
        case .answer(let call, _):
            if asked.remove(call.value) == nil { defects.append("call \(call.value) is answered twice") }
        case .removeDownload(let number): removeDownload(number)
        case .raiseDownload: break
        case .startDownload(let key, let ticket, let url, let pending):
            // All of this is one step of the host.
            if let old = pending.download { removeDownload(old) }
            let number = DownloadNumber(nextDownload)
            nextDownload += 1
            let download = Download(
                state: .running, path: AssetRecord.archive(of: pending.folder), version: pending.manifest.version)
            setDownload(number, download)
            followed[number] = key
            _ = url
            happens(.downloadAdded(key, ticket, number))
            queue.append(.act(.tell(key)))
        case .resumeDownload(let key, let number, let retries):
            guard var download = download(number) else { return happens(.downloadEnded(key, number, .lost)) }
            if download.state == .finished { return happens(.downloadEnded(key, number, .finished)) }
            // A part of the failed downloads has options that cannot be changed.
            if retries, download.state == .cancelled || download.state == .failed && roll(4) == 0 {
                return happens(.downloadEnded(key, number, .lost))
            }
            if retries, download.state != .running {
                download.state = .running
                setDownload(number, download)
            }
            followed[number] = key
        case .cancelExtraction(_, let folder): cancelled.insert(folder)
        case .gone: if hasDeleted { orphans.formUnion(folders.keys) }
        case .cancelFetch, .tell, .added, .ready: break
        case .callOwner(let key): happens(.ownerCalled(key, roll(2) == 0))
        case .fetchManifest, .checkSpace, .extract, .switchLink, .remove, .deleteData: work.append(action)
        case .save, .delete: break
        }
        look()
    }

    /// One piece of work that the disk, the server or a download does.
    func doWork() {
        guard !work.isEmpty else { return }
        let action = work.remove(at: roll(work.count))
        log.append("work \(action)")
        let fails = roll(8) == 0
        let failure = DownloadFailure(.writeFailed, "The disk failed.")
        switch action {
        case .fetchManifest(let key, let ticket, _):
            if case .checking(ticket)? = updater[key]?.activity, let installed = updater[key]?.record.installed?.folder {
                let isThere = folders[installed] != nil
                if !isThere || link != installed { happens(.versionLost(key, folder: installed, isFolderThere: isThere)) }
            }
            if isManifestGone {
                happens(.manifestFailed(key, ticket, DownloadFailure(.httpStatus, "gone", httpStatus: 404)))
            } else if fails {
                happens(.manifestFailed(key, ticket, DownloadFailure(.network, "no network")))
            } else {
                happens(.manifestFetched(key, ticket, Bench.manifest("\(published)", mirrors: ["https://b/1"])))
            }
        case .checkSpace(let key, let ticket, _): happens(.spaceChecked(key, ticket, missing: fails ? 10 : 0))
        case .extract(let key, let folder, let manifest): extract(key, folder, manifest, fails: fails, failure)
        case .switchLink(let key, let folder):
            if fails { return happens(.switched(key, failure)) }
            let record = updater[key]?.record
            let size = updater[key]?.activity == .rollingBack ? record?.previous?.size : record?.pending?.unpacked
            if size != self.size(of: folder), folders[folder] != nil, !damaged.contains(folder) {
                defects.append("\(folder) is known as \(size as Any)")
            }
            guard folders[folder] != nil, link == folder || size == self.size(of: folder) else {
                if !hasDeleted { defects.append("the link is switched to \(folder), which is not whole") }
                return happens(.versionLost(key, folder: folder, isFolderThere: false))
            }
            (link, isBroken) = (folder, false)
            look()
            happens(.switched(key, nil))
        case .remove(let key, let removal):
            if let number = removal.download { removeDownload(number) }
            if fails { return happens(.removed(key, removal, isGone: false)) }
            // The host never deletes the folder that the link leads to.
            if !removal.keepsFolder, link == removal.folder {
                remove(AssetRemoval(folder: removal.folder, keepsFolder: true))
                return happens(.removed(key, removal, isGone: false))
            }
            remove(removal)
            happens(.removed(key, removal, isGone: true))
        case .deleteData(let key, let names):
            if fails, roll(2) == 0 { return happens(.dataDeleted(key, failure)) }
            link = nil
            if fails { return happens(.dataDeleted(key, failure)) }
            for name in names { remove(AssetRemoval(folder: name, keepsFolder: false)) }
            happens(.dataDeleted(key, nil))
        default: break
        }
    }

    func remove(_ removal: AssetRemoval) {
        archives[AssetRecord.archive(of: removal.folder)] = nil
        unpacking.remove(removal.folder)
        if !removal.keepsFolder {
            folders[removal.folder] = nil
            damaged.remove(removal.folder)
        }
        look()
    }

    func extract(_ key: AssetKey, _ folder: String, _ manifest: AssetManifest, fails: Bool, _ failure: DownloadFailure) {
        // The same answer again for a folder that is whole, as the room Extraction has it.
        if folders[folder] != nil { return happens(.extracted(key, folder: folder, .whole(size(of: folder)))) }
        guard let version = archives[AssetRecord.archive(of: folder)] else { return happens(.extracted(key, folder: folder, .archiveLost)) }
        if version != manifest.version { defects.append("version \(version) is unpacked as \(manifest.version)") }
        unpacking.insert(folder)
        if cancelled.remove(folder) != nil { return happens(.extracted(key, folder: folder, .cancelled)) }
        if fails {
            guard roll(2) == 0 else { return happens(.extracted(key, folder: folder, .failed(failure))) }
            unpacking.remove(folder)
            return happens(.extracted(key, folder: folder, .unusable(failure)))
        }
        unpacking.remove(folder)
        folders[folder] = version
        look()
        happens(.extracted(key, folder: folder, .whole(size(of: folder))))
    }

    /// Each folder that is whole has a size of its own.
    func size(of folder: String) -> FolderSize {
        let number = UInt64(folder.dropFirst("version-".count)) ?? 0
        return FolderSize(entries: damaged.contains(folder) ? 3 : 10, bytes: number)
    }

    /// Something happens to a download that is under way.
    func moveDownload() {
        guard let number = followed.keys.sorted().first(where: { download($0)?.state == .running }), let key = followed[number],
            var download = download(number)
        else { return }
        switch roll(8) {
        case 0: download.state = .failed
        case 1 where roll(3) == 0: download.state = .cancelled
        case 2: return happens(.downloadVerifies(key, number))
        default:
            download.state = .finished
            archives[download.path] = download.version
        }
        log.append("download \(number) \(download.state)")
        setDownload(number, download)
        let end: AssetUpdater.DownloadEnd =
            switch download.state {
            case .failed: .failed(DownloadFailure(.network, "lost", isRetryable: roll(2) == 0))
            case .cancelled: .cancelled
            default: .finished
            }
        happens(.downloadEnded(key, number, end))
    }

    // MARK: Steps

    func step() {
        now = now + .seconds(1)
        switch roll(20) {
        case 0...2: call()
        case 3...6: commit()
        case 7...11: doWork()
        case 12...15: moveDownload()
        case 16: published += roll(3) == 0 ? 1 : 0
        case 17: isManifestGone = roll(6) == 0
        case 18: if roll(3) == 0 { kill() }
        default:
            if roll(8) == 0 { deleteVersion() }
            // Somebody deletes an archive, or a download from the list.
            if roll(4) == 0, let path = archives.keys.sorted().first { archives[path] = nil }
            if roll(8) == 0, let number = followed.keys.sorted().first, let key = followed[number] {
                removeDownload(number)
                happens(.downloadEnded(key, number, .lost))
            }
        }
        look()
    }

    /// Somebody deletes the version that the link leads to, or the link, or files of a version that the link does not lead to.
    func deleteVersion() {
        // Before a row knows what was unpacked, nobody can tell that some of it is gone.
        let record = rows[Self.key]
        var known = [record?.previous, record?.left].compactMap { $0?.size == nil ? nil : $0?.folder }
        if let pending = record?.pending, pending.unpacked != nil { known.append(pending.folder) }
        if roll(2) == 0, let folder = known.first(where: { $0 != link && folders[$0] != nil }) {
            log.append("somebody deletes files of \(folder)")
            hasDeleted = true
            damaged.insert(folder)
            return
        }
        guard let link else { return }
        log.append("somebody deletes \(link), or the link to it")
        (isBroken, hasDeleted) = (true, true)
        if roll(2) == 0 {
            folders[link] = nil
        } else {
            self.link = nil
            if roll(2) == 0 { damaged.insert(link) }
        }
    }

    func call() {
        if nextCall % 5 == 0 { callersLeave() }
        nextCall += 1
        asked.insert(nextCall)
        let call = AssetUpdater.CallNumber(nextCall)
        log.append("call \(nextCall)")
        switch roll(16) {
        case 0...1: happens(.register(Bench.record { $0.options.activate = roll(2) == 0 ? "org.example.App" : nil }, found: link, call))
        case 2: happens(.unregister(Self.key, deletesData: roll(2) == 0, call))
        case 3...4: happens(.check(Self.key, call))
        case 5...10: happens(.update(Self.key, forces: roll(4) == 0, call))
        case 11: happens(.updateAll(app: Self.key.app, forces: false, call))
        case 12...13: happens(.rollback(Self.key, call))
        default: happens(.cancel(Self.key, call))
        }
    }

    /// Some callers leave the bus: their calls are not answered.
    func callersLeave() {
        // The answers of these have been decided.
        let answered = queue.compactMap { if case .act(.answer(let call, _)) = $0 { call.value } else { nil } }
        let gone = asked.subtracting(answered).filter { $0 % 3 == 0 }
        asked.subtract(gone)
        happens(.callersLeft(Set(gone.map { AssetUpdater.CallNumber($0) })))
    }

    /// The process dies. What the disk was doing may have been done, or not.
    func kill() {
        log.append("kill")
        for action in work where roll(2) == 0 {
            switch action {
            case .extract(_, let folder, _):
                guard let version = archives[AssetRecord.archive(of: folder)] else { break }
                if roll(2) == 0 { unpacking.insert(folder) } else if folders[folder] == nil { folders[folder] = version }
            case .switchLink(_, let folder):
                if folders[folder] != nil, !damaged.contains(folder) { (link, isBroken) = (folder, false) }
            case .remove(_, let removal) where !removal.keepsFolder && link == removal.folder: break
            case .remove(_, let removal): if roll(2) == 0 { unpacking.remove(removal.folder) } else { remove(removal) }
            case .deleteData(_, let names):
                link = nil
                for name in names where roll(2) == 0 { remove(AssetRemoval(folder: name, keepsFolder: false)) }
            default: break
            }
        }
        if roll(2) == 0 { commitRows() }
        (queue, unsavedDownloads, work, cancelled, followed, asked) = ([], [], [], [], [:], [])
        updater = AssetUpdater(rows.values.sorted { $0.key < $1.key }, network: .open)
        look()
        happens(.begins(isLogin: false))
    }

    /// The commit in flight reaches the disk, and nobody hears of it.
    func commitRows() {
        for (number, download) in unsavedDownloads { downloads[number] = download }
        for case .save(let record) in queue { rows[record.key] = record }
        for case .delete(let key) in queue { rows[key] = nil }
    }

    /// Lets everything end: no failures, no kills. Then an update must bring the latest version.
    func comeToRest() {
        isManifestGone = false
        for _ in 0..<4 {
            for _ in 0..<2000 where isBusy {
                commit()
                if work.isEmpty { moveDownload() } else { doWork() }
                now = now + .seconds(1)
            }
            if updater[Self.key]?.record.removals.isEmpty == false { restartQuietly() }
        }
        if !asked.isEmpty { defects.append("the calls \(asked.sorted()) are not answered") }
        if updater[Self.key]?.hasCallers == true { defects.append("calls are kept that were answered, or whose callers have left") }
        checkLeftovers()
    }

    /// `hasWork` leaves out what the scheduler of downloads would keep the process for.
    private var isBusy: Bool {
        updater.hasWork || !queue.isEmpty || !work.isEmpty || (updater[Self.key]?.activity ?? .none) != .none
    }

    private func restartQuietly() {
        commitRows()
        (queue, unsavedDownloads) = ([], [])
        if !asked.isEmpty { defects.append("the calls \(asked.sorted()) are not answered") }
        updater = AssetUpdater(rows.values.sorted { $0.key < $1.key }, network: .open)
        happens(.begins(isLogin: false))
    }

    // MARK: What must hold

    /// At every moment the link leads to a whole version.
    func look() {
        guard !isBroken, let link, folders[link] == nil || damaged.contains(link) else { return }
        let defect = "the link leads to \(link), which is not there, or not whole"
        if !defects.contains(defect) { defects.append(defect) }
    }

    func checkLeftovers() {
        let record = updater[Self.key]?.record
        if let record {
            if let installed = record.installed, !isBroken {
                if link != installed.folder { defects.append("the link leads to \(link ?? "-"), and \(installed.folder) is installed") }
                if folders[installed.folder] != installed.version {
                    defects.append("\(installed.folder) is not version \(installed.version)")
                }
            }
            let kept = Set([record.installed, record.previous, record.left].compactMap { $0?.folder })
            let pending = record.pending?.folder
            // The link may lead to a version that could not be unregistered; the next update deletes that version.
            for folder in folders.keys where !kept.contains(folder) && folder != pending && folder != link && !orphans.contains(folder) {
                defects.append("\(folder) is left")
            }
            for path in archives.keys where path != pending.map(AssetRecord.archive) { defects.append("\(path) is left") }
            for folder in unpacking where folder != pending { defects.append("what was unpacked of \(folder) is left") }
            for number in downloads.keys where number != record.pending?.download { defects.append("download \(number) is left") }
        } else {
            if !archives.isEmpty || !unpacking.isEmpty { defects.append("after the end are left \(archives) \(unpacking)") }
            for folder in folders.keys where folder != link && !hasDeleted { defects.append("after the end \(folder) is left") }
            if !downloads.isEmpty { defects.append("after the end the downloads \(downloads.keys) are left") }
        }
    }
}
