internal import DownloadModel
internal import Glibc
internal import PartFiles

/// What is to be done with the entries of an archive.
struct UnpackingJob: Equatable {
    var limits: ExtractionLimits
    var expectedSize: ByteCount?
    var reserve: DiskReserve
    /// Whether names that are not UTF-8 are read as Japanese.
    var isJapaneseRead: Bool
    /// The entries that an earlier run has completed.
    var count: UInt64
    /// Whether an earlier run may have left entries that must be replaced.
    var isContinued: Bool
    /// Whether one syncfs(2) flushes all files. Otherwise each file and folder is flushed by itself.
    var isFlushedWhole: Bool
}

/// All entries of an archive, unpacked and flushed.
struct UnpackedEntries: Equatable {
    var entries: UInt64
    var bytes: ByteCount
    /// Entries that an earlier run had completed.
    var kept: UInt64
}

/// Unpacks the entries of an archive into an open folder. Needs no other right than to change this folder.
final class EntryUnpacking {
    /// A power cut loses at most the work of this time, besides the file in progress. The bound is not a number of bytes: each flush waits
    /// for the disk, and on a fast disk the unpacking would wait more often than it works.
    private static let checkpointTime = Duration.seconds(10)

    private let job: UnpackingJob
    private let limits: ExtractionLimits
    private let control: ExtractionControl
    private let decode: ForeignDecoder?
    private let source: ArchiveSource
    private let mostBytes: ByteCount
    private var (bytes, entries, kept): (ByteCount, UInt64, UInt64) = (0, 0, 0)

    /// - Parameter isMemoryBounded: whether a limit of the process bounds the memory of libarchive's decoders.
    init(
        _ job: UnpackingJob, archive: Int32, _ control: ExtractionControl, decode: ForeignDecoder?,
        isMemoryBounded: Bool
    ) throws(ExtractionFailure) {
        (self.job, limits, self.control, self.decode) = (job, job.limits, control, decode)
        source = try ArchiveSource(archive, limits: job.limits, control: control, isMemoryBounded: isMemoryBounded)
        mostBytes = job.limits.mostUnpacked(of: source.size)
    }

    /// Unpacks every entry that the journal does not count yet. All are on disk when it returns.
    func run(into tree: TargetTree, _ journal: inout JournalFile) throws(ExtractionFailure) -> UnpackedEntries {
        let count = job.count
        let reader = try ArchiveReader(source)
        var table = EntryTable(limit: limits.entries)
        var last: String?
        var flushedAt = ContinuousClock.now
        if count == 0 { try checkRoom(in: tree.root, done: 0) }
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
            guard entries <= ByteCount(clamping: limits.entries) else {
                throw .excessive("The archive is not unpacked: it has more than \(limits.entries) entries.")
            }
            control.report(entries: entries)
            if entries == count { try checkRoom(in: tree.root, done: bytes) }
            guard entries > count else { continue }
            let now = entries
            try disk { () throws(DiskError) in try journal.note(written: now) }
            if ContinuousClock.now - flushedAt > Self.checkpointTime {
                try checkpoint(tree, &journal, isWhole: false)
                flushedAt = .now
            }
        }
        try source.drain()
        try checkpoint(tree, &journal, isWhole: true)
        return UnpackedEntries(entries: entries, bytes: bytes, kept: kept)
    }

    private func checkpoint(_ tree: TargetTree, _ journal: inout JournalFile, isWhole: Bool) throws(ExtractionFailure) {
        do throws(DiskError) {
            try tree.flush()
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
            let path = try EntryPath(name, limits: limits)
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
        guard source.kind == .zip, let decode, String(validating: name, as: UTF8.self) == nil else { return name }
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
                let target = try? EntryPath(name, limits: limits)
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

    /// Checks for room before anything is written. If the unpacked size is unknown, the archive's size counts. `done` bytes are already
    /// unpacked.
    private func checkRoom(in folder: Int32, done: ByteCount) throws(ExtractionFailure) {
        var space = statvfs()
        guard fstatvfs(folder, &space) == 0, let room = space.room(beside: job.reserve) else { return }
        let needed = (job.expectedSize ?? min(source.size, mostBytes)) -| done
        guard room >= needed else { throw .noSpace(DiskError.Shortage(missing: needed -| room, room: room)) }
    }
}
