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
package enum Unpacking {
    /// Unpacks on a thread of the folder's disk, then calls `done` on the bus loop.
    package static func start(
        _ request: ExtractionRequest, _ control: ExtractionControl, on pool: DiskPool = .shared,
        then done: @escaping @BusActor @Sendable (Result<ExtractedFolder, ExtractionFailure>) -> Void
    ) {
        pool.perform(at: .path(request.directory), takesLong: true, { run(request, control) }, then: done)
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
            case .cancelled, .noSpace, .taken, .disk, .unavailable: break
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
            return try FolderRemoval.remove(partName(name), in: parent, control)
        } catch {
            return error.code == ENOENT ? .removed : .failed(error)
        }
    }

    static func partName(_ name: String) -> String { ".todoku-unpack-\(name)" }
    static func journalName(_ name: String) -> String { ".todoku-journal-\(name)" }
}

/// One run over an archive.
private final class ExtractionRun {
    /// The most bytes, or time, whose work is lost by a power cut, besides the file in progress.
    private static let checkpointBytes: ByteCount = 64 << 20
    private static let checkpointTime = Duration.seconds(10)

    private let request: ExtractionRequest
    private let control: ExtractionControl
    private let calls: ExtractionCalls
    private let parent: OpenFolder
    private let source: ArchiveSource
    private let boot: String
    private let mostBytes: ByteCount
    private var (bytes, entries, kept): (ByteCount, UInt64, UInt64) = (0, 0, 0)
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
        source = try ArchiveSource(request.archive, limits: request.limits, control: control)
        mostBytes = request.limits.mostUnpacked(of: source.size)
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
            let tree = TargetTree(adopting: folder, isContinued: true, calls: calls)
            // A killed run may not have flushed the folders that it had open.
            if !tree.isFlushedWhole { count = journal.durable }
            journal.written = count
            if let now = identity(folder) { journal.folder = now }
            var file = try disk { () throws(DiskError) in
                try JournalFile(Unpacking.journalName(request.name), in: parent, journal, isNew: false, calls: calls)
            }
            return try unpack(into: tree, &file, after: count)
        case .none:
            let (folder, journal) = try makeFolder()
            let tree = TargetTree(adopting: folder, isContinued: false, calls: calls)
            var file = try disk { () throws(DiskError) in
                try JournalFile(Unpacking.journalName(request.name), in: parent, journal, isNew: true, calls: calls)
            }
            return try unpack(into: tree, &file, after: 0)
        }
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
        let known = ExtractionJournal.read(Unpacking.journalName(request.name), in: parent)
        let fingerprint = Array(request.fingerprint.prefix(ExtractionRequest.longestFingerprint))
        let journal = known.flatMap { $0.archiveSize == source.size && $0.fingerprint == fingerprint ? $0 : nil }
        if let journal, journal.isWhole, let folder = try open(request.name) {
            defer { close(folder) }
            if let found = identity(folder), found.isSamePart(as: journal.folder) { return .named(journal) }
        }
        if parent.status(request.name) != nil { throw .taken(path: path) }
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

    private func identity(_ folder: Int32) -> FileIdentity? { try? fileIdentity(of: folder, boot: boot) }

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
        guard let folder = try open(name), let found = identity(folder) else { throw .disk(DiskError("open \(name)", ESTALE)) }
        return (folder, ExtractionJournal(archiveSize: source.size, fingerprint: request.fingerprint, folder: found))
    }

    /// Checks for room before anything is written. If the unpacked size is unknown, the archive's size counts. `done` bytes are already
    /// unpacked.
    private func checkRoom(done: ByteCount) throws(ExtractionFailure) {
        var space = statvfs()
        guard fstatvfs(parent.descriptor, &space) == 0, let room = space.room(beside: request.reserve) else { return }
        let needed = (request.expectedSize ?? min(source.size, mostBytes)) -| done
        guard room >= needed else { throw .noSpace(DiskError.Shortage(missing: needed -| room, room: room)) }
    }

    // MARK: Entries

    private func unpack(
        into tree: TargetTree, _ journal: inout JournalFile, after count: UInt64
    ) throws(ExtractionFailure) -> ExtractedFolder {
        let reader = try ArchiveReader(source)
        var table = EntryTable(limit: request.limits.entries)
        var last: String?
        var (flushedAt, flushedBytes) = (ContinuousClock.now, bytes)
        if count == 0 { try checkRoom(done: 0) }
        while !source.isEmptyZip, let entry = try reader.next(after: last) {
            guard !control.isCancelled else { throw .cancelled }
            let path = try checked(entry)
            last = path.text
            if path.components.isEmpty {
                guard entry.kind == .folder else { throw .refused(entry: text(entry.name), .noName) }
            } else {
                try place(entry, path, reader, &table, tree, mayBeThere: entries < count)
            }
            // Some programs repeat the data for a hard link. Unread, the data would count as part of the next header.
            if entry.kind != .file { try reader.skip(path.text) }
            entries +|= 1
            guard entries <= ByteCount(clamping: request.limits.entries) else {
                throw .excessive("The archive is not unpacked: it has more than \(request.limits.entries) entries.")
            }
            control.report(entries: entries)
            if entries == count { try checkRoom(done: bytes) }
            guard entries > count else { continue }
            let now = entries
            try disk { () throws(DiskError) in try journal.note(written: now) }
            if bytes -| flushedBytes >= Self.checkpointBytes || ContinuousClock.now - flushedAt > Self.checkpointTime {
                try checkpoint(tree, &journal, isWhole: false)
                (flushedAt, flushedBytes) = (.now, bytes)
            }
        }
        try source.drain()
        try checkpoint(tree, &journal, isWhole: true)
        try giveName()
        return ExtractedFolder(path: path, entries: entries, bytes: bytes, kept: kept)
    }

    private func checkpoint(_ tree: TargetTree, _ journal: inout JournalFile, isWhole: Bool) throws(ExtractionFailure) {
        do throws(DiskError) {
            try tree.flush()
            guard parent.sync() else { throw DiskError("save the folder") }
        } catch {
            journal.forgetWritten()
            throw ExtractionFailure(error)
        }
        let now = bytes
        try disk { () throws(DiskError) in try journal.noteDurable(bytes: now, isWhole: isWhole) }
    }

    /// Checks an entry, except for its link target and its position among the other entries.
    private func checked(_ entry: ArchiveEntry) throws(ExtractionFailure) -> EntryPath {
        let name = readable(entry.name)
        do throws(EntryDefect) {
            let path = try EntryPath(name, limits: request.limits)
            switch entry.kind {
            case .device: throw .device
            case .fifo: throw .fifo
            case .socket: throw .socket
            case .unknown: throw .unknownKind
            // Folders of a group have the set-group-ID bit; it is not kept.
            case .folder: break
            default: if entry.setsUserID { throw .setUserID }
            }
            if entry.isEncrypted { throw .encrypted }
            if let method = entry.foreignMethod { throw .method(method) }
            return path
        } catch {
            throw .refused(entry: text(name), error)
        }
    }

    /// The name, read as Japanese if it is in a zip and not UTF-8.
    private func readable(_ name: [UInt8]) -> [UInt8] {
        guard source.kind == .zip, let decode = request.decode, String(validating: name, as: UTF8.self) == nil else { return name }
        return ForeignText.japanese(name, decode: decode).map { Array($0.utf8) } ?? name
    }

    private func place(
        _ entry: ArchiveEntry, _ path: EntryPath, _ reader: borrowing ArchiveReader, _ table: inout EntryTable, _ tree: TargetTree,
        mayBeThere: Bool
    ) throws(ExtractionFailure) {
        let target = try checkedTarget(entry, path, table)
        switch entry.kind {
        case .folder: try table.add(path, .folder)
        case .symbolicLink: try table.add(path, .link)
        default: try table.add(path, .file)
        }
        if let size = entry.size, entry.kind == .file { try checkSize(bytes +| size) }
        if mayBeThere, tree.has(path, entry, hardLinkTo: target) {
            kept +|= 1
            guard entry.kind == .file else { return }
            try reader.skip(path.text)
            count(bytes +| (entry.size ?? 0))
            return
        }
        switch entry.kind {
        case .folder: try disk { () throws(DiskError) in try tree.enter(path.components) }
        case .symbolicLink(let target): try tree.makeSymbolicLink(path, to: target)
        case .hardLink: if let target { try tree.makeHardLink(path, to: target) }
        default: try unpackFile(entry, path, reader, tree)
        }
    }

    /// The checked target of a hard link; nil for other entries. Also checks the target of a symbolic link.
    private func checkedTarget(_ entry: ArchiveEntry, _ path: EntryPath, _ table: EntryTable) throws(ExtractionFailure) -> EntryPath? {
        do throws(EntryDefect) {
            switch entry.kind {
            case .symbolicLink(let target):
                try path.checkTarget(target)
                return nil
            case .hardLink(let name):
                let target = try? EntryPath(name, limits: request.limits)
                guard let target, table.hasFile(target) else { throw .hardLinkToNothing(target: text(name)) }
                return target
            default: return nil
            }
        } catch {
            throw .refused(entry: path.text, error)
        }
    }

    private func unpackFile(
        _ entry: ArchiveEntry, _ path: EntryPath, _ reader: borrowing ArchiveReader, _ tree: TargetTree
    ) throws(ExtractionFailure) {
        let (before, name) = (bytes, path.text)
        try tree.makeFile(
            path, isExecutable: entry.isExecutable, size: entry.size, modified: entry.modified
        ) { writer throws(ExtractionFailure) in
            try reader.data(of: name) { chunk, offset throws(ExtractionFailure) in
                guard !control.isCancelled else { throw .cancelled }
                let end = offset +| ByteCount(clamping: chunk.count)
                if let size = entry.size, end > size { throw .damaged(entry: name, reason: "it has more bytes than it says") }
                try checkSize(before +| end)
                try disk { () throws(DiskError) in try writer.write(chunk, at: offset) }
                count(before +| writer.end)
            }
            count(before +| max(writer.end, entry.size ?? 0))
        }
    }

    private func checkSize(_ total: ByteCount) throws(ExtractionFailure) {
        guard total > mostBytes else { return }
        throw .excessive("The archive is not unpacked: it would make more than \(HumanText.size(mostBytes)).")
    }

    private func count(_ total: ByteCount) {
        bytes = total
        control.report(written: total)
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
        guard parent.sync() else { throw DiskError("save the folder") }
    }
}
