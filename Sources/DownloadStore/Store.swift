internal import CSQLite
public import DownloadModel
internal import EventLoop
internal import Glibc

/// The queue on disk: an SQLite database in a folder that one daemon has at a time.
///
/// It runs on a thread of its own, `todoku-store`, that starts with the first call and ends with the last reference.
public actor Store {
    /// Most pages of the database, 16 GiB: beyond what `Limits` lets callers make us keep.
    static let mostPages: Int64 = 4 << 20
    /// How long `open` waits for a daemon that is about to end, and a commit for another program's transaction.
    static let longestWait: Duration = .seconds(2)

    private nonisolated let loop: LoopExecutor
    private let folder: StoreFolder
    private let mostPages: Int64
    private let wait: Duration
    private var session: Session?
    /// Between `open` and `close`. The session may be gone meanwhile, after a failure: the next commit opens it again.
    private var isOpen = false
    private var lock: FolderLock?
    /// The file that was opened last.
    private var current: HeldFile?
    /// Whether that holds all that was committed; else only `startAnew` may write.
    private var isWhole = false
    private var swept: time_t?
    /// Where a database is that was lost, until a new one holds everything.
    private var aside: String?

    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    /// Does nothing yet.
    ///
    /// - Parameter folder: absolute, `$XDG_STATE_HOME/todoku`; made by `open` where it is not there.
    public init(folder: String) { self.init(folder: folder, mostPages: Store.mostPages, wait: Store.longestWait) }

    init(folder: String, mostPages: Int64, wait: Duration) {
        loop = LoopExecutor.onThread("todoku-store")
        self.folder = StoreFolder(path: folder)
        (self.mostPages, self.wait) = (mostPages, wait)
    }

    deinit { loop.stop() }

    /// Takes the folder and reads everything. A database that is damaged, or cannot be read, twice, is set aside, and a new one started.
    ///
    /// - Parameter take: called on the store's thread with each part as it is read.
    /// - Throws: `inUse` where another daemon has the folder and keeps it for two seconds more, `newerVersion`, `diskFull`, `storage`.
    public func open(_ take: @Sendable (StoredPart) -> Void) throws(StoreError) -> StoreOpening {
        guard !isOpen else { throw StoreError(.inUse, "The database \(folder.database) is open already.") }
        try folder.make()
        let lock = try folder.lock(wait: wait)
        let now = time(nil)
        // Of a file that was there and is empty, or damaged, we cannot know what numbers it gave.
        let afterLoss = DownloadNumber(UInt64(clamping: max(1, now)))
        var opening: StoreOpening
        do throws(StoreError) {
            // One call that fails must cost neither the queue (SQLite calls a bad read damage) nor the start.
            if let taken = try takeSalvaged(at: now) {
                // An earlier start ended in the middle of it, and told nobody.
                opening = try load(afterLoss, now: now, take)
                opening.setAside = taken
                opening.salvaged = Salvaged(downloads: session?.downloadsRead ?? 0, mayHaveLost: true)
            } else {
                guard !folder.hasFaultyLog else { throw faultyLog }
                do throws(StoreError) { opening = try load(afterLoss, now: now, take) } catch
                    where ![.inUse, .newerVersion].contains(error.reason)
                {
                    opening = try load(afterLoss, now: now, take)
                }
            }
        } catch  where error.isOfTheFile {
            opening = try salvage(afterLoss, at: now, isDamaged: error != faultyLog, take)
        }
        opening.partNames = folder.partNames(next: opening.nextNumber)
        sweep(at: now)
        self.lock = consume lock
        (isOpen, isWhole) = (true, true)
        return opening
    }

    private func load(_ afterLoss: DownloadNumber, now: time_t, _ take: (StoredPart) -> Void) throws(StoreError) -> StoreOpening {
        let file = try folder.makeDatabase()
        let isFirst = file.isNew && !folder.hasSetAside
        return try load(file, first: isFirst ? DownloadNumber(1) : afterLoss, now: now, take)
    }

    private func load(
        _ file: consuming DatabaseFile, first: DownloadNumber, now: time_t, _ take: (StoredPart) -> Void
    ) throws(StoreError) -> StoreOpening {
        current = file.hold()
        let session = try Session(folder, file, first: first, wait: wait, mostPages: mostPages)
        let next = try session.load(now: WallTime(microseconds: UInt64(clamping: now) *| 1_000_000), take)
        self.session = session
        return StoreOpening(nextNumber: next)
    }

    private var faultyLog: StoreError {
        StoreError(.damaged, "The log of the database \(folder.database) is damaged: some acknowledged changes are missing.")
    }

    /// Sets a damaged database aside, and starts a new one with all of it that can be read.
    ///
    /// - Parameter isDamaged: whether the database itself is; else only its log.
    private func salvage(
        _ afterLoss: DownloadNumber, at now: time_t, isDamaged: Bool, _ take: (StoredPart) -> Void
    ) throws(StoreError) -> StoreOpening {
        var salvaged: Salvaged?
        do throws(SQLiteError) {
            salvaged = try folder.salvage(afterLoss: afterLoss.value, isDamaged: isDamaged)
        } catch  where [SQLITE_FULL, SQLITE_IOERR].contains(error.code) {
            // The damaged one stays where it is: the next start may have room.
            throw StoreError(error, folder)
        } catch {}
        if salvaged != nil, let aside = try takeSalvaged(at: now) {
            do throws(StoreError) {
                var opening = try load(afterLoss, now: now, take)
                (opening.setAside, opening.salvaged) = (aside, salvaged)
                return opening
            } catch  where error.isOfTheFile {}
        }
        let aside = try folder.setAside(at: now)
        var opening = try load(afterLoss, now: now, take)
        opening.setAside = aside ?? folder.database
        return opening
    }

    /// Puts a salvaged database that is whole into the place of the damaged one.
    ///
    /// - Returns: where the damaged one is now; nil where nothing was salvaged.
    private func takeSalvaged(at now: time_t) throws(StoreError) -> String? {
        unlink(folder.salvageDraft)
        guard access(folder.salvaged, F_OK) == 0 else { return nil }
        let aside = try folder.setAside(at: now)
        guard rename(folder.salvaged, folder.database) == 0 else { throw StoreError(system: errno, "open the database", folder.database) }
        _ = StoreFolder.sync(folder.path)
        return aside ?? folder.database
    }

    /// Saves all of `changes`, in order, and the next number, or nothing. They are on disk when it returns.
    ///
    /// - Parameter nextNumber: one that is lower than what is saved changes nothing: numbers only grow.
    /// - Throws: `damaged` where `startAnew` has to follow, and nothing else can be saved before.
    public func commit(_ changes: [StoreChange], nextNumber: DownloadNumber) throws(StoreError) {
        try checkOpen()
        guard isWhole else { throw lost }
        let session = if let session { session } else { try reopened(nextNumber) }
        self.session = session
        do throws(StoreError) { try session.commit(changes, nextNumber: nextNumber) } catch {
            // SQLite does not get over some failures by itself: one that could not open its log stays read-only.
            if error.reason != .diskFull { self.session = nil }
            throw error
        }
        lock?.note(session.mark())
    }

    /// Deletes databases that were set aside long ago, at most once an hour.
    private func sweep(at now: time_t) {
        if let swept, (swept..<(swept +| 3600)).contains(now) { return }
        swept = now
        folder.sweepSetAside(at: now)
    }

    /// Empties the log, where that is worth it. Call when nothing waits to be saved. One flipped bit can take what lies in the log only.
    public func tidy() {
        guard isOpen, isWhole, let session else { return }
        sweep(at: time(nil))
        session.checkpointIfWorthwhile()
        lock?.note(session.mark())
    }

    private func checkOpen() throws(StoreError) {
        guard isOpen else { throw StoreError(.notOpen, "The database \(folder.database) is not open; start Todoku again.") }
    }

    private var lost: StoreError { StoreError(.damaged, "The database \(folder.database) was removed while Todoku used it.") }

    /// The database again that was open before a failure.
    private func reopened(_ nextNumber: DownloadNumber) throws(StoreError) -> Session {
        isWhole = folder.id == current?.id
        guard isWhole else { throw lost }
        let file = try folder.makeDatabase()
        isWhole = file.id == current?.id && !file.isEmpty
        guard isWhole else { throw lost }
        return try Session(folder, file, first: nextNumber, wait: wait, mostPages: mostPages)
    }
    /// The last file that was fetched for `key`, as committed. nil: none is known, or the database cannot be read now.
    public func copy(for key: CopyKey) -> CopyHeld? {
        guard let session else { return nil }
        return try? session.copy(for: key)
    }

    /// Sets the database aside, which a commit has found `damaged`, and saves `changes`, everything there is, in a new one. Where that
    /// fails it is to be called again: until it succeeds, nothing else is saved.
    ///
    /// - Returns: where the old one is now; nil where it was gone.
    public func startAnew(_ changes: [StoreChange], nextNumber: DownloadNumber) throws(StoreError) -> String? {
        try checkOpen()
        // What a try before this one has made is not set aside again.
        if isWhole || folder.id != current?.id { current = nil }
        (session, isWhole) = (nil, false)
        try folder.make()
        if !(lock?.isInPlace(of: folder) ?? false) { lock = try folder.lock(wait: .zero) }
        if current == nil { aside = try folder.setAside(at: time(nil)) ?? aside }
        let file = try folder.makeDatabase()
        current = file.hold()
        do throws(StoreError) {
            let session = try Session(folder, file, first: nextNumber, wait: wait, mostPages: mostPages)
            try session.commit(changes, nextNumber: nextNumber, isEverything: true)
            lock?.note(session.mark())
            self.session = session
        } catch {
            if error.isOfTheFile { current = nil }
            throw error
        }
        isWhole = true
        defer { aside = nil }
        return aside
    }

    /// Leaves the database as one file and frees the folder. `open` may follow.
    public func close() {
        session?.checkpoint()
        if session != nil { lock?.note(nil) }
        session = nil
        (isOpen, isWhole) = (false, false)
        lock = nil
    }

    /// Whether a download is kept that a daemon would go on with: queued, active, being verified, or waiting for anything but ResumeAll; or
    /// one that has ended, and whose owner is to be called (`DownloadRecord.remindsOwner`), or whose toast is owed; or such a batch.
    ///
    /// Only reads, on the calling thread, and makes no file. False where there is no database. True where it cannot be read: the daemon
    /// then says why, or sets it aside.
    public nonisolated static func hasPending(folder: String) -> Bool {
        let path = StoreFolder(path: folder).database
        if access(StoreFolder(path: folder).salvaged, F_OK) == 0 { return true }
        guard access(path, F_OK) == 0 else { return false }
        var status = stat()
        guard stat(path, &status) != 0 || status.st_size > 0 else { return false }
        // Of a log with a fault SQLite reads the beginning only.
        if StoreFolder(path: folder).hasFaultyLog { return true }
        // SQLite makes a log and its index beside a database that has none, even to read, unless told that nobody writes; nobody does
        // then, for a daemon's log lasts as long as it has the database open. An index that is there is only read.
        let hasLog = stat(path + "-wal", &status) == 0 && status.st_size > 0
        let option = hasLog ? "readonly_shm=1" : "immutable=1"
        let now = WallTime(microseconds: UInt64(clamping: time(nil)) *| 1_000_000)
        let (reminded, toasted) = ((now + (.zero - Limits.remindedAge)).microseconds, (now + (.zero - Limits.toastAge)).microseconds)
        do throws(SQLiteError) {
            let database = try Database("file:\(uriPath(path))?mode=ro&\(option)", flags: SQLITE_OPEN_READONLY | SQLITE_OPEN_URI)
            return try database.number(
                """
                SELECT EXISTS (SELECT 1 FROM download WHERE state IN ('queued', 'active', 'verifying', 'committing')
                    OR state = 'waiting' AND wait_reason NOT IN ('\(WaitReason.pausedAll.rawValue)', '\(WaitReason.needsUrl.rawValue)')
                    OR state IN ('finished', 'failed', 'cancelled') AND instr(char(10) || options, char(10) || 'activate=')
                        AND EXISTS (SELECT 1 FROM course WHERE course.number = download.number AND NOT is_acknowledged
                            AND (activations = 0 OR ended_at > \(reminded))))
                    OR EXISTS (SELECT 1 FROM course WHERE owes_toast AND ended_at > \(toasted))
                    OR EXISTS (SELECT 1 FROM batch WHERE toast_owed_since > \(toasted))
                """) != 0
        } catch { return true }
    }

    /// A path for a `file:` URI (sqlite.org/uri.html).
    private static func uriPath(_ path: String) -> String {
        path.utf8.reduce(into: "") { uri, byte in
            switch byte {
            case UInt8(ascii: "%"), UInt8(ascii: "?"), UInt8(ascii: "#"): uri += "%" + String(byte, radix: 16)
            default: uri.unicodeScalars.append(Unicode.Scalar(byte))
            }
        }
    }
}
