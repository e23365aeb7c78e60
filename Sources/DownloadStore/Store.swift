internal import CSQLite
public import DownloadModel
internal import EventLoop
internal import Glibc

/// The queue on disk: an SQLite database in a folder that only one daemon uses at a time.
///
/// Runs on its own thread, `todoku-store`, which starts with the first call and ends with the last reference.
public actor Store {
    /// Most pages of the database, 16 GiB: more than `Limits` lets callers make us keep.
    static let mostPages: Int64 = 4 << 20
    /// How long a commit waits for another program's transaction.
    static let longestWait: Duration = .seconds(2)
    /// How long to wait for the folder of a daemon that has released its bus name, and is still saving. Callers usually wait 25 s for an
    /// answer.
    static let longestEnd: Duration = .seconds(15)

    private nonisolated let loop: LoopExecutor
    private let folder: StoreFolder
    private let mostPages: Int64
    private let wait: Duration
    private let lockWait: Duration
    private var session: Session?
    /// Whether we are between `open` and `close`. After a failure there may be no session: the next commit opens one again.
    private var isOpen = false
    private var lock: FolderLock?
    /// As `open` has returned them.
    private var partNames = PartNames()
    /// The file opened last.
    private var current: HeldFile?
    /// Whether `current` holds everything that was committed; if not, only `startAnew` may write.
    private var isWhole = false
    /// The next number, as saved by the last commit that succeeded.
    private var savedNumber = DownloadNumber(1)
    /// The numbers of the downloads and batches that were refused because their commits failed, although their rows may be on disk. The
    /// next commit deletes these rows.
    private var refused: [(first: DownloadNumber, last: DownloadNumber)] = []
    private var swept: time_t?
    /// The path of the database that was set aside, until a new one is complete.
    private var aside: String?

    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    /// Does nothing yet.
    ///
    /// - Parameter folder: the absolute path of `$XDG_STATE_HOME/todoku`. `open` creates a missing folder.
    public init(folder: String) {
        self.init(folder: folder, mostPages: Store.mostPages, wait: Store.longestWait, lockWait: Store.longestEnd)
    }

    /// - Parameter lockWait: how long `open` waits for the folder; nil: as long as for a transaction.
    init(folder: String, mostPages: Int64, wait: Duration, lockWait: Duration? = nil) {
        loop = LoopExecutor.onThread("todoku-store")
        self.folder = StoreFolder(path: folder)
        (self.mostPages, self.wait, self.lockWait) = (mostPages, wait, lockWait ?? wait)
    }

    deinit { loop.stop() }

    /// Locks the folder and reads all rows. If the database is damaged or unreadable twice in a row, sets it aside and starts a new one.
    ///
    /// - Parameter take: called on the store's thread with each part as it is read.
    /// - Throws: `inUse` if another daemon keeps the folder for `longestEnd`; `newerVersion`, `diskFull`, `storage`.
    public func open(_ take: @Sendable (StoredPart) -> Void) throws(StoreError) -> StoreOpening {
        guard !isOpen else { throw StoreError(.inUse, "The database \(folder.database) is open already.") }
        try folder.make()
        let lock = try folder.lock(wait: lockWait)
        let now = time(nil)
        // Read the names before a database is set aside. If reading fails, this start ends, and would not report the database.
        let partNames = try folder.readPartNames()
        // An empty or damaged file does not tell which numbers were assigned.
        let afterLoss = DownloadNumber(UInt64(clamping: max(1, now)))
        var opening: StoreOpening
        do throws(StoreError) {
            // One failed call (SQLite calls a failed read damage) must cost neither the queue nor the start.
            if let taken = try takeSalvaged(at: now) {
                // An earlier start was interrupted while salvaging, before it reported anything.
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
        opening.partNames = partNames ?? folder.makePartNames(next: opening.nextNumber)
        self.partNames = opening.partNames
        sweep(at: now)
        noteSetAside(&opening)
        self.lock = consume lock
        (isOpen, isWhole) = (true, true)
        (savedNumber, refused) = (opening.nextNumber, [])
        return opening
    }

    /// Saves which database this start has set aside, or reads which one an earlier start has, as long as that file exists.
    private func noteSetAside(_ opening: inout StoreOpening) {
        if let path = opening.setAside {
            // Without a file to set aside, the path is that of the new database.
            guard path != folder.database else { return }
            session?.keep(SetAsideNote(path: path, salvaged: opening.salvaged ?? Salvaged(downloads: 0, mayHaveLost: true)))
        } else if let note = session?.setAsideNote {
            guard let path = note.path ?? folder.lastSetAside, access(path, F_OK) == 0 else { return }
            (opening.setAside, opening.salvaged, opening.isSetAsideEarlier) = (path, note.salvaged, note.path != nil)
            // The process that set the database aside has died before it told anybody.
            if note.path == nil { session?.keep(SetAsideNote(path: path, salvaged: note.salvaged)) }
        }
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

    /// Sets a damaged database aside, and starts a new one with all rows that can be read.
    ///
    /// - Parameter isDamaged: whether the database itself is damaged; else only its log is.
    private func salvage(
        _ afterLoss: DownloadNumber, at now: time_t, isDamaged: Bool, _ take: (StoredPart) -> Void
    ) throws(StoreError) -> StoreOpening {
        let salvaged = try folder.salvage(afterLoss: afterLoss.value, isDamaged: isDamaged)
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

    /// Replaces the damaged database by a complete salvaged one.
    ///
    /// - Returns: where the damaged database is now; nil if none was salvaged.
    private func takeSalvaged(at now: time_t) throws(StoreError) -> String? {
        folder.deleteSalvageDraft()
        unlink(folder.resetDraft)
        guard access(folder.salvaged, F_OK) == 0 else { return nil }
        // An earlier process may have died after it had set the damaged database aside.
        let aside = try folder.setAside(at: now) ?? folder.lastSetAside
        guard rename(folder.salvaged, folder.database) == 0 else { throw StoreError(system: errno, "open the database", folder.database) }
        _ = StoreFolder.sync(folder.path)
        return aside ?? folder.database
    }

    /// Saves all of `changes`, in order, and the next number; or nothing. On return, all of it is on disk.
    ///
    /// - Parameter nextNumber: a lower number than the saved one has no effect: numbers only grow.
    /// - Throws: `damaged` if only `startAnew` can save anything from now on.
    public func commit(_ changes: [StoreChange], nextNumber: DownloadNumber) throws(StoreError) {
        try checkOpen()
        guard isWhole else { throw lost }
        let session = if let session { session } else { try reopened(max(savedNumber, nextNumber)) }
        self.session = session
        do throws(StoreError) { try session.commit([changes], nextNumber: nextNumber, refused: refused) } catch {
            if session.mayHaveSaved { noteRefused(changes, nextNumber: nextNumber) }
            // SQLite does not recover from some failures by itself: a connection that could not open its log stays read-only.
            if error.reason != .diskFull { self.session = nil }
            throw error
        }
        (savedNumber, refused) = (max(savedNumber, nextNumber), [])
        lock?.note(session.mark())
    }

    /// Remembers the numbers of the additions in a failed commit. Their callers get an error, so the next start must not restore them.
    ///
    /// No acknowledged row has such a number: a commit that succeeds saves a next number above its rows, and empties the list. A batch may
    /// still add rows with such numbers, because a commit deletes before it adds.
    private func noteRefused(_ changes: [StoreChange], nextNumber: DownloadNumber) {
        // A batch has its numbers before its rows are made, so a commit in between may have saved a later next number. All other additions
        // have their rows as soon as they have their numbers.
        for case .addBatch(let batch, _) in changes where batch.number < savedNumber {
            refused.append((batch.number, DownloadNumber(batch.number.value +| UInt64(clamping: batch.count))))
        }
        guard nextNumber > savedNumber else { return }
        refused.removeAll { $0.first == savedNumber }  // of an earlier failure: the new entry includes its numbers
        refused.append((savedNumber, DownloadNumber(nextNumber.value -| 1)))
    }

    /// Deletes the rows of refused additions. If the disk still fails, a later commit deletes them.
    private func deleteRefused() {
        guard isOpen, isWhole, !refused.isEmpty else { return }
        try? commit([], nextNumber: DownloadNumber(1))  // leaves the saved next number as it is
    }

    /// Deletes databases that were set aside a day ago; checks at most once an hour.
    private func sweep(at now: time_t) {
        if let swept, (swept..<(swept +| 3600)).contains(now) { return }
        swept = now
        folder.sweepSetAside(at: now)
    }

    /// Empties the log, if that is worthwhile. Call when no change waits to be saved. A short log is safer: a flipped bit costs all frames
    /// behind it.
    public func tidy() {
        deleteRefused()
        guard isOpen, isWhole, let session else { return }
        sweep(at: time(nil))
        session.checkpointIfWorthwhile()
        lock?.note(session.mark())
    }

    /// Whether a database that was set aside has been deleted, by `tidy` or by the user.
    public func isGone(_ aside: String) -> Bool { access(aside, F_OK) != 0 && errno == ENOENT }

    private func checkOpen() throws(StoreError) {
        guard isOpen else { throw StoreError(.notOpen, "The database \(folder.database) is not open; start Todoku again.") }
    }

    private var lost: StoreError { StoreError(.damaged, "The database \(folder.database) was removed while Todoku used it.") }

    /// Opens the database again after a failure.
    private func reopened(_ nextNumber: DownloadNumber) throws(StoreError) -> Session {
        isWhole = folder.id == current?.id
        guard isWhole else { throw lost }
        let file = try folder.makeDatabase()
        isWhole = file.id == current?.id && !file.isEmpty
        guard isWhole else { throw lost }
        return try Session(folder, file, first: nextNumber, wait: wait, mostPages: mostPages)
    }
    /// The cached copy of `key`, as committed; nil: none is known, or the database cannot be read now.
    public func copy(for key: CopyKey) -> CachedCopy? {
        guard let session else { return nil }
        return try? session.copy(for: key)
    }

    /// Replaces a database that a commit has found `damaged` by a new one with the changes of all `parts`, which are the whole queue: in
    /// one transaction, in order. If this fails, call it again, because until it succeeds nothing else can be saved.
    ///
    /// The damaged database keeps its place until the new one is complete and on disk. So if the process dies on the way, no row is lost
    /// that either of the two has.
    ///
    /// - Returns: where the old database is now; nil if it was gone.
    public func startAnew(_ parts: [[StoreChange]], nextNumber: DownloadNumber) throws(StoreError) -> String? {
        try checkOpen()
        // A file that an earlier try of this method has put in its place is not set aside again.
        if isWhole || folder.id != current?.id { current = nil }
        (session, isWhole) = (nil, false)
        try folder.make()
        if !(lock?.isInPlace(of: folder) ?? false) { lock = try folder.lock(wait: .zero) }
        folder.keepPartFiles(partNames)
        let isInPlace = current != nil
        if !isInPlace {
            try writeSalvaged(parts, nextNumber: nextNumber)
            aside = try folder.setAside(at: time(nil)) ?? aside
            // If this fails, the next call of this method writes the new database again. Without such a call, the next start uses this one.
            guard rename(folder.salvaged, folder.database) == 0 else { throw StoreError(system: errno, "save the queue", folder.database) }
        }
        let file = try folder.makeDatabase()
        current = file.hold()
        do throws(StoreError) {
            try file.sync()
            let session = try Session(folder, file, first: nextNumber, wait: wait, mostPages: mostPages)
            // The changes may differ from those of the earlier call, which has filled this database.
            if isInPlace { try session.commit(parts, nextNumber: nextNumber, isEverything: true) }
            if let aside { session.keep(SetAsideNote(path: aside, salvaged: Salvaged(downloads: 0, mayHaveLost: false))) }
            lock?.note(session.mark())
            self.session = session
        } catch {
            if error.isOfTheFile { current = nil }
            throw error
        }
        isWhole = true
        (savedNumber, refused) = (max(savedNumber, nextNumber), [])
        defer { aside = nil }
        return aside
    }

    /// Writes the changes of all `parts` into `salvaged`, which is complete and on disk on return.
    private func writeSalvaged(_ parts: [[StoreChange]], nextNumber: DownloadNumber) throws(StoreError) {
        folder.deleteSalvageDraft()
        do throws(StoreError) {
            try fill(folder.ofDraft, with: parts, nextNumber: nextNumber)
            guard rename(folder.salvageDraft, folder.salvaged) == 0, StoreFolder.sync(folder.path) else {
                throw StoreError(system: errno, "save the queue", folder.salvaged)
            }
        } catch {
            folder.deleteSalvageDraft()
            throw error
        }
    }

    /// Writes a database that no program knows yet. On return, it is a single file, and on disk.
    private func fill(_ draft: StoreFolder, with parts: [[StoreChange]], nextNumber: DownloadNumber) throws(StoreError) {
        let file = try draft.makeDatabase()
        let session = try Session(draft, file, first: nextNumber, wait: wait, mostPages: mostPages)
        try session.commit(parts, nextNumber: nextNumber, isEverything: true)
        // The log does not follow the file to its name.
        try session.completeFile()
    }

    /// Leaves the database as a single file, unless another program reads it, and unlocks the folder. `open` may follow.
    public func close() {
        deleteRefused()
        if let session {
            session.checkpoint()
            lock?.note(session.mark())
        }
        session = nil
        (isOpen, isWhole) = (false, false)
        lock = nil
    }

    /// Whether the database has work for a daemon. That is a download that is queued, active or being verified, or waits for anything but
    /// ResumeAll and a fresh link. Ended downloads count if the owner must be called (`DownloadRecord.remindsOwner`) or a toast is owed. So
    /// do batches with an owed toast, and assets that are checked in each session, whose daily check is due, or that have unfinished work.
    ///
    /// False without a database. True if the database cannot be read: the daemon then says why, or sets it aside.
    public nonisolated static func hasPending(folder: String) -> Bool {
        let now = WallTime(microseconds: wallClock())
        let (reminded, toasted) = ((now + (.zero - Limits.remindedAge)).microseconds, (now + (.zero - Limits.toastAge)).microseconds)
        return holds(
            """
            EXISTS (SELECT 1 FROM download WHERE state IN ('queued', 'active', 'verifying', 'extracting', 'committing')
                OR state = 'waiting' AND wait_reason NOT IN ('\(WaitReason.pausedAll.rawValue)', '\(WaitReason.needsUrl.rawValue)')
                OR state IN ('finished', 'failed', 'cancelled') AND instr(char(10) || options, char(10) || 'activate=')
                    AND EXISTS (SELECT 1 FROM course WHERE course.number = download.number AND NOT is_acknowledged
                        AND (activations = 0 OR ended_at > \(reminded))))
                OR EXISTS (SELECT 1 FROM course WHERE owes_toast AND ended_at > \(toasted))
                OR EXISTS (SELECT 1 FROM batch WHERE toast_owed_since > \(toasted))
                OR EXISTS (SELECT 1 FROM asset WHERE updates = 'login' OR \(dailyIsDue(now)) OR pending_is_running OR is_rolling_back
                    OR is_leaving OR owes_call OR removals <> '')
            """, in: folder)
    }

    /// Whether a check of an asset without a call is due: a daily one, or the one of this session.
    ///
    /// - Parameter session: the id of the bus, 32 hexadecimal digits.
    public nonisolated static func hasDueChecks(folder: String, session: String) -> Bool {
        guard session.utf8.allSatisfy({ (0x30...0x39).contains($0) || (0x61...0x66).contains($0) }) else { return true }
        let now = WallTime(microseconds: wallClock())
        return holds(
            """
            EXISTS (SELECT 1 FROM asset WHERE NOT is_leaving AND (\(dailyIsDue(now))
                OR updates = 'login' AND checked_in IS NOT '\(session)' AND \(isOver("tried_at", AssetRecord.checkPause, now))))
            """, in: folder)
    }

    private nonisolated static func dailyIsDue(_ now: WallTime) -> String {
        let conditions = [("checked_at", AssetRecord.checkInterval), ("tried_at", AssetRecord.checkPause)]
        return "updates = 'daily' AND " + conditions.map { isOver($0, $1, now) }.joined(separator: " AND ")
    }

    /// Whether `pause` has passed since the instant in `column`. An instant in the future says nothing: the clock was set back.
    private nonisolated static func isOver(_ column: String, _ pause: Duration, _ now: WallTime) -> String {
        "(\(column) IS NULL OR \(column) > \(now.microseconds) OR \(column) <= \((now + (.zero - pause)).microseconds))"
    }

    /// Whether a condition holds in the database. Only reads, on the calling thread, and creates no file.
    private nonisolated static func holds(_ condition: String, in folder: String) -> Bool {
        let path = StoreFolder(path: folder).database
        if access(StoreFolder(path: folder).salvaged, F_OK) == 0 { return true }
        guard access(path, F_OK) == 0 else { return false }
        var status = stat()
        guard stat(path, &status) != 0 || status.st_size > 0 else { return false }
        // SQLite reads a faulty log only up to the fault.
        if StoreFolder(path: folder).hasFaultyLog { return true }
        do throws(SQLiteError) {
            let database = try reader(StoreFolder(path: folder))
            return try database.number("SELECT \(condition)") != 0
        } catch { return true }
    }

    /// A connection that only reads, and creates no file.
    ///
    /// Even to read, SQLite creates a log and an index beside a database without a log. `immutable` prevents that, by stating that no
    /// program writes. A running daemon usually has a log. An existing index is only read.
    nonisolated static func reader(_ folder: StoreFolder) throws(SQLiteError) -> Database {
        var status = stat()
        let hasLog = stat(folder.database + "-wal", &status) == 0 && status.st_size > 0
        let option = hasLog ? "readonly_shm=1" : "immutable=1"
        return try Database("\(fileURI(of: folder.database))?mode=ro&\(option)", flags: SQLITE_OPEN_READONLY | SQLITE_OPEN_URI)
    }
}
