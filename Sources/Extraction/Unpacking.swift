internal import CSystem
package import DownloadModel
package import EventLoop
internal import Glibc
internal import PartFiles

/// A folder with all files of an archive, on disk under its final name.
package struct ExtractedFolder: Equatable, Sendable {
    package var path: String
    /// Files, links and folders, as the archive lists them.
    package var entries: UInt64
    /// Bytes of all files.
    package var bytes: ByteCount
    /// Entries that an earlier run had completed.
    package var kept: UInt64
}

/// Unpacks archives.
///
/// The files are made in `.todoku-unpack-NAME`. This folder gets its final name when all files are flushed, so a folder with the final name
/// is always whole. `.todoku-journal-NAME` counts the complete entries, so that a later run continues, also after a power cut. All calls
/// but `start` block, for minutes if the archive is large: use the pool.
///
/// A child process reads the archive (`UnpackingChild`). The child may write into the unfinished folder, and can reach no other file. The
/// service makes that folder, renames it to its final name, and deletes what a failed extraction leaves.
package enum Unpacking {
    /// Unpacks on a thread of the folder's disk, then calls `done` on the bus loop.
    package static func start(
        _ request: ExtractionRequest, _ control: ExtractionControl, on pool: DiskPool = .shared,
        calls: ExtractionCalls = ExtractionCalls(),
        then done: @escaping @BusActor @Sendable (Result<ExtractedFolder, ExtractionFailure>) -> Void
    ) {
        pool.perform(at: .path(request.directory), takesLong: true, { run(request, control, calls: calls) }, then: done)
    }

    /// Unpacks, or continues an interrupted run for the same archive. After success it gives the same answer again, until `forget`.
    ///
    /// If no later run can unpack the archive, all unpacked files are removed. After any other failure they stay, for a later run or for
    /// `discard`.
    package static func run(
        _ request: ExtractionRequest, _ control: ExtractionControl, calls: ExtractionCalls = ExtractionCalls()
    ) -> Result<ExtractedFolder, ExtractionFailure> {
        do throws(ExtractionFailure) {
            return .success(try ExtractionRun(request, control, calls).run())
        } catch {
            switch error {
            case .unsupported, .damaged, .refused, .excessive:
                _ = discard(directory: request.directory, name: request.name, control: control)
            case .cancelled, .noSpace, .taken, .disk, .unavailable, .stopped: break
            }
            return .failure(error)
        }
    }

    /// Removes the journal of a finished extraction, once its end is recorded elsewhere.
    ///
    /// - Returns: whether the journal is gone for good.
    @discardableResult package static func forget(directory: String, name: String) -> Bool {
        do throws(DiskError) {
            let parent = try OpenFolder.open(directory, allowHidden: true)
            return try !parent.removeOwn(journalName(name)) || parent.sync()
        } catch {
            return error.code == ENOENT
        }
    }

    /// Removes the leftovers of an abandoned extraction: its unfinished folder and its journal. A finished folder stays.
    package static func discard(
        directory: String, name: String, control: ExtractionControl = ExtractionControl()
    ) -> FolderRemoval.Outcome {
        do throws(DiskError) {
            let parent = try OpenFolder.open(directory, allowHidden: true)
            try parent.removeOwn(journalName(name))
            let outcome = try FolderRemoval.remove(partName(name), in: parent, control)
            // The folder may have been gone already, and the journal not.
            guard parent.sync() else { throw DiskError("save the folder") }
            return outcome
        } catch {
            return error.code == ENOENT ? .removed : .failed(error)
        }
    }

    static func partName(_ name: String) -> String { ".todoku-unpack-\(name)" }
    static func journalName(_ name: String) -> String { ".todoku-journal-\(name)" }
}

/// One run over an archive: all but its entries.
private final class ExtractionRun {
    private let request: ExtractionRequest
    private let control: ExtractionControl
    private let calls: ExtractionCalls
    private let parent: OpenFolder
    private let boot: String
    private let size: ByteCount
    private var path: String { parent.path == "/" ? "/\(request.name)" : "\(parent.path)/\(request.name)" }

    init(_ request: ExtractionRequest, _ control: ExtractionControl, _ calls: ExtractionCalls) throws(ExtractionFailure) {
        (self.request, self.control, self.calls) = (request, control, calls)
        boot = calls.boot ?? bootIdentity()
        // The caller's provisional folder may be hidden.
        guard FileName.isBare(request.name.hasPrefix(".todoku-") ? String(request.name.dropFirst()) : request.name),
            request.name.utf8.count <= ExtractionRequest.longestName
        else {
            throw .disk(DiskError("use the name \(shown(request.name))", EINVAL))
        }
        parent = try disk { () throws(DiskError) in try OpenFolder.open(request.directory, allowHidden: request.allowHidden) }
        var status = stat()
        guard fstat(request.archive, &status) == 0 else { throw .disk(DiskError("look at the archive")) }
        size = ByteCount(clamping: status.st_size)
        control.report(size: size)
    }

    func run() throws(ExtractionFailure) -> ExtractedFolder {
        let found = try findFolder()
        switch found {
        case .named(let journal):
            // An earlier run has ended, but its caller did not get the answer.
            try disk { () throws(DiskError) in try flushParent() }
            return ExtractedFolder(path: path, entries: journal.durable, bytes: journal.bytes, kept: journal.durable)
        case .whole(let journal):
            try giveName()
            return ExtractedFolder(path: path, entries: journal.durable, bytes: journal.bytes, kept: journal.durable)
        case .continued(let folder, var journal, var count):
            defer { close(folder) }
            // A killed run may not have flushed the folders that it had open.
            if !isFlushedWhole(folder) { count = journal.durable }
            journal.written = count
            if let now = identity(folder) { journal.folder = now }
            return try unpack(into: folder, journal, after: count, isContinued: true)
        case .none:
            let (folder, journal) = try makeFolder()
            defer { close(folder) }
            return try unpack(into: folder, journal, after: 0, isContinued: false)
        }
    }

    /// Whether one syncfs(2) flushes all files. Otherwise each file and folder is flushed by itself.
    private func isFlushedWhole(_ folder: Int32) -> Bool { calls.isFlushedWhole ?? todoku_is_flushed_whole(folder) }

    private func unpack(
        into folder: Int32, _ journal: ExtractionJournal, after count: UInt64, isContinued: Bool
    ) throws(ExtractionFailure) -> ExtractedFolder {
        guard !control.isCancelled else { throw .cancelled }
        let name = Unpacking.journalName(request.name)
        var file = try disk { () throws(DiskError) in
            try JournalFile(name, in: parent, journal, isNew: !isContinued, calls: calls)
        }
        let isFlushedWhole = isFlushedWhole(folder)
        // Before the journal counts an entry, the names of the folder and of the journal are on disk. A syncfs(2) flushes them, too.
        if !isFlushedWhole { try disk { () throws(DiskError) in try syncParent() } }
        let job = UnpackingJob(
            limits: request.limits, expectedSize: request.expectedSize, reserve: request.reserve, isJapaneseRead: request.decode != nil,
            count: count, isContinued: isContinued, isFlushedWhole: isFlushedWhole)
        let entries: UnpackedEntries
        switch calls.place {
        case .thisProcess:
            let copy = try disk { () throws(DiskError) in try duplicate(folder) }
            let tree = TargetTree(adopting: copy, isContinued: isContinued, isFlushedWhole: isFlushedWhole, calls: calls)
            let unpacking = try EntryUnpacking(
                job, archive: request.archive, control, decode: request.decode, isMemoryBounded: false)
            entries = try unpacking.run(into: tree, &file)
        case .child(let program):
            let child = try UnpackingProcess(
                program, job, archive: request.archive, folder: folder, journal: file.descriptor, known: file.journal)
            entries = try child.entries(control, limits: request.limits, size: size, patience: calls.patience)
            // The journal is what a later run believes.
            let found = try disk { () throws(DiskError) in try ExtractionJournal.read(name, in: parent) }
            guard let known = found, known.isWhole, known.durable == entries.entries, known.folder == file.journal.folder else {
                throw .stopped("the process that unpacks said that it is ready, but its journal does not say so")
            }
        }
        try giveName()
        return ExtractedFolder(path: path, entries: entries.entries, bytes: entries.bytes, kept: entries.kept)
    }

    private func duplicate(_ folder: Int32) throws(DiskError) -> Int32 {
        let copy = fcntl(folder, F_DUPFD_CLOEXEC, 0)
        guard copy >= 0 else { throw DiskError("open a folder") }
        return copy
    }

    // MARK: The beginning

    private enum Found {
        /// The finished folder has its name.
        case named(ExtractionJournal)
        /// The finished folder needs its name.
        case whole(ExtractionJournal)
        /// The unfinished folder's descriptor, its journal, and the number of valid entries.
        case continued(Int32, ExtractionJournal, count: UInt64)
        case none
    }

    private func findFolder() throws(ExtractionFailure) -> Found {
        // A journal that cannot be read costs the entries that are unpacked. They are unpacked again from the same archive.
        var (known, unread): (ExtractionJournal?, DiskError?) = (nil, nil)
        do throws(DiskError) {
            known = try ExtractionJournal.read(Unpacking.journalName(request.name), in: parent)
        } catch {
            unread = error
        }
        let fingerprint = Array(request.fingerprint.prefix(ExtractionRequest.longestFingerprint))
        let journal = known.flatMap { $0.archiveSize == size && $0.fingerprint == fingerprint ? $0 : nil }
        if let journal, journal.isWhole, let folder = try open(request.name) {
            defer { close(folder) }
            if let found = identity(folder), found.isSamePart(as: journal.folder) { return .named(journal) }
        }
        if parent.status(request.name) != nil {
            // Only the journal tells whether this extraction has made the folder.
            if let unread { throw ExtractionFailure(unread) }
            throw .taken(path: path)
        }
        guard errno == ENOENT else { throw .disk(DiskError("look for \(request.name)")) }
        guard let journal, let folder = try open(Unpacking.partName(request.name)) else { return .none }
        guard let found = identity(folder), let count = journal.count(in: found) else {
            close(folder)
            return .none
        }
        guard journal.isWhole else { return .continued(folder, journal, count: count) }
        close(folder)
        return .whole(journal)
    }

    /// nil: the folder does not exist.
    private func open(_ name: String) throws(ExtractionFailure) -> Int32? {
        let folder = openUninterrupted(parent.descriptor, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        if folder >= 0 { return folder }
        guard [ENOENT, ENOTDIR, ELOOP].contains(errno) else { throw .disk(DiskError("open \(name)")) }
        return nil
    }

    private func identity(_ folder: Int32) -> FileIdentity? { calls.identify(folder, boot) }

    /// Removes the leftovers of another archive, and makes the unfinished folder.
    private func makeFolder() throws(ExtractionFailure) -> (Int32, ExtractionJournal) {
        let name = Unpacking.partName(request.name)
        try disk { () throws(DiskError) in
            calls.before(.remove)
            // Remove the journal first, because a later folder may get the inode of the folder that it describes.
            try parent.removeOwn(Unpacking.journalName(request.name))
        }
        switch try disk({ () throws(DiskError) in try FolderRemoval.remove(name, in: parent, control) }) {
        case .removed: break
        case .cancelled: throw .cancelled
        case .failed(let error): throw ExtractionFailure(error)
        }
        calls.before(.makeFolder)
        guard mkdirat(parent.descriptor, name, 0o755) == 0 else { throw ExtractionFailure(DiskError("make a folder")) }
        guard let folder = try open(name) else { throw .disk(DiskError("open \(name)", ESTALE)) }
        guard let found = identity(folder) else {
            close(folder)
            throw .disk(DiskError("look at \(name)", ESTALE))
        }
        return (folder, ExtractionJournal(archiveSize: size, fingerprint: request.fingerprint, folder: found))
    }

    // MARK: The end

    private func giveName() throws(ExtractionFailure) {
        let (from, to) = (Unpacking.partName(request.name), request.name)
        calls.before(.rename)
        switch NamingCalls().renameNoReplace(parent.descriptor, from, to) {
        case 0: break
        case EEXIST, ENOTEMPTY: throw .taken(path: path)
        case EINVAL, ENOSYS, ENOTSUP:
            // The file system lacks RENAME_NOREPLACE. A plain rename of a folder replaces no file and no folder with contents.
            if parent.status(to) != nil { throw .taken(path: path) }
            guard renameat(parent.descriptor, from, parent.descriptor, to) == 0 else {
                throw .disk(DiskError("name the folder \(to)"))
            }
        case let code: throw ExtractionFailure(DiskError("name the folder \(to)", code))
        }
        try disk { () throws(DiskError) in try flushParent() }
    }

    private func flushParent() throws(DiskError) {
        calls.before(.flushParent)
        try syncParent()
    }

    private func syncParent() throws(DiskError) {
        guard parent.sync() else { throw DiskError("save the folder") }
    }
}
