internal import CArchive
internal import CSystem
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import PartFiles

/// The unfinished folder, in which all entries are made.
///
/// Each folder of a path is opened relative to the one above it, and without following a link. So nothing is made outside, whatever other
/// programs do to the folder meanwhile. The folders of the last path stay open for the next path: at most `ExtractionLimits.depth`.
final class TargetTree {
    /// After this many bytes of a file, write-back begins, so that the flush at the end is short.
    private static let writebackStep: ByteCount = 8 << 20

    let root: Int32
    private let calls: ExtractionCalls
    /// Whether an earlier run may have left entries that must be replaced.
    private let isContinued: Bool
    /// Whether one syncfs(2) flushes all files. Otherwise each file and folder is flushed by itself.
    private let isFlushedWhole: Bool
    private var open: [(name: [UInt8], descriptor: Int32)] = []

    /// - Parameter root: the folder's descriptor, which is closed with this object.
    init(adopting root: Int32, isContinued: Bool, isFlushedWhole: Bool, calls: ExtractionCalls) {
        (self.root, self.isContinued, self.isFlushedWhole, self.calls) = (root, isContinued, isFlushedWhole, calls)
    }

    deinit {
        for folder in open { close(folder.descriptor) }
        close(root)
    }

    // MARK: Folders

    /// The open folder with this path. Missing folders are made. Valid until the next call.
    @discardableResult func enter(_ path: some Collection<[UInt8]>) throws(DiskError) -> Int32 {
        let shared = zip(open, path).prefix { $0.name == $1 }.count
        while open.count > shared { try leave() }
        for name in path.dropFirst(shared) {
            open.append((name, try openFolder(name, in: open.last?.descriptor ?? root)))
        }
        return open.last?.descriptor ?? root
    }

    private func leave() throws(DiskError) {
        guard let last = open.popLast() else { return }
        defer { close(last.descriptor) }
        if !isFlushedWhole { try flush(last.descriptor) }
    }

    private func openFolder(_ name: [UInt8], in parent: Int32) throws(DiskError) -> Int32 {
        var opened = openEntry(parent, name, folderFlags)
        if opened < 0, errno == ENOENT {
            calls.before(.makeFolder)
            guard withName(name, { mkdirat(parent, $0, 0o755) }) == 0 || errno == EEXIST else { throw DiskError("make a folder") }
            opened = openEntry(parent, name, folderFlags)
        }
        guard opened >= 0 else { throw DiskError("open the folder \(shown(text(name)))") }
        return opened
    }

    // MARK: Entries

    /// Makes the file at `path` with the bytes that `fill` writes.
    ///
    /// - Parameter size: as the archive says, already bounded; nil: unknown.
    func makeFile(
        _ path: EntryPath, isExecutable: Bool, size: ByteCount?, modified: timespec?,
        _ fill: (inout FileWriter) throws(ExtractionFailure) -> Void
    ) throws(ExtractionFailure) {
        let (parent, name) = try place(path)
        var file: Int32 = -1
        try make(path, parent, name, .makeFile) {
            file = openEntry(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, isExecutable ? 0o755 : 0o644)
            return file >= 0 ? 0 : -1
        }
        defer { if file >= 0 { close(file) } }
        var writer = FileWriter(descriptor: file, calls: calls, writebackStep: Self.writebackStep)
        try fill(&writer)
        calls.before(.endFile)
        // The archive's last bytes may be a hole.
        if let size, writer.end < size, ftruncate(file, off_t(clamping: size)) != 0 {
            throw ExtractionFailure(DiskError("write a file"))
        }
        if var modified {
            modified.tv_nsec = min(max(modified.tv_nsec, 0), 999_999_999)
            let times = [modified, modified]
            _ = futimens(file, times)  // not every file system takes every time
        }
        if !isFlushedWhole { try disk { () throws(DiskError) in try flush(file) } }
        let code = close(file)
        file = -1
        // NFS reports a failed write here.
        guard code == 0 || errno == EINTR else { throw ExtractionFailure(DiskError("write a file")) }
    }

    func makeSymbolicLink(_ path: EntryPath, to target: [UInt8]) throws(ExtractionFailure) {
        let (parent, name) = try place(path)
        try make(path, parent, name, .symbolicLink) { withName(target) { target in withName(name) { symlinkat(target, parent, $0) } } }
    }

    func makeHardLink(_ path: EntryPath, to target: EntryPath) throws(ExtractionFailure) {
        let folder = try disk { () throws(DiskError) in try walk(target.components.dropLast()) }
        defer { close(folder) }
        let (parent, name) = try place(path)
        let last = target.components.last ?? []
        try make(path, parent, name, .hardLink) { withName(last) { last in withName(name) { linkat(folder, last, parent, $0, 0) } } }
    }

    /// Whether the entry exists with the right kind, size or target. An earlier run completed it, but another program may have changed the
    /// folder.
    func has(_ path: EntryPath, _ entry: ArchiveEntry, hardLinkTo target: EntryPath?) -> Bool {
        guard let folder = try? walk(path.components.dropLast()) else { return false }
        defer { close(folder) }
        let name = path.components.last ?? []
        guard let status = look(folder, name) else { return false }
        let kind = status.st_mode & S_IFMT
        switch entry.kind {
        case .file: return kind == S_IFREG && (entry.size.map { $0 == ByteCount(clamping: status.st_size) } ?? true)
        case .symbolicLink(let wanted):
            guard kind == S_IFLNK else { return false }
            var bytes = [UInt8](repeating: 0, count: EntryPath.longestTarget +| 1)
            let count = withName(name) { name in
                bytes.withUnsafeMutableBytes { readlinkat(folder, name, $0.bindMemory(to: CChar.self).baseAddress!, $0.count) }
            }
            return count >= 0 && bytes.prefix(count).elementsEqual(wanted)
        case .hardLink:
            guard let target, let other = try? walk(target.components.dropLast()) else { return false }
            defer { close(other) }
            guard let linked = look(other, target.components.last ?? []) else { return false }
            return kind == S_IFREG && (linked.st_dev, linked.st_ino) == (status.st_dev, status.st_ino)
        default: return kind == S_IFDIR
        }
    }

    private func look(_ folder: Int32, _ name: [UInt8]) -> stat? {
        var status = stat()
        return withName(name) { fstatat(folder, $0, &status, AT_SYMLINK_NOFOLLOW) } == 0 ? status : nil
    }

    /// Opens a folder that exists, apart from those that stay open.
    private func walk(_ path: some Collection<[UInt8]>) throws(DiskError) -> Int32 {
        var here = openEntry(root, [UInt8(ascii: ".")], folderFlags)
        for name in path where here >= 0 {
            let next = openEntry(here, name, folderFlags)
            let code = errno
            close(here)
            (here, errno) = (next, code)
        }
        guard here >= 0 else { throw DiskError("open a folder of the archive") }
        return here
    }

    private func place(_ path: EntryPath) throws(ExtractionFailure) -> (parent: Int32, name: [UInt8]) {
        (try disk { () throws(DiskError) in try enter(path.components.dropLast()) }, path.components.last ?? [])
    }

    /// Calls `body`, which makes `name` unless it exists. A leftover of an earlier run is removed first. It is never truncated, because it
    /// may have another name by a hard link.
    private func make(
        _ path: EntryPath, _ parent: Int32, _ name: [UInt8], _ step: ExtractionStep, _ body: () -> Int32
    ) throws(ExtractionFailure) {
        calls.before(step)
        if body() == 0 { return }
        if errno == EEXIST {
            guard isContinued else { throw .refused(entry: path.text, .existsOnDisk) }
            calls.before(.remove)
            guard withName(name, { unlinkat(parent, $0, 0) }) == 0 else {
                throw ExtractionFailure(DiskError("replace \(shown(path.text))"))
            }
            calls.before(step)
            if body() == 0 { return }
        }
        throw ExtractionFailure(DiskError("make \(shown(path.text))"))
    }

    // MARK: Flushes

    /// Flushes all entries made so far to the disk.
    func flush() throws(DiskError) {
        calls.before(.flush)
        if isFlushedWhole {
            let code = todoku_sync_file_system(root)
            guard code == 0 else { throw DiskError("save the files", code) }
        } else {
            for folder in open { try flush(folder.descriptor) }
            try flush(root)
        }
    }

    private func flush(_ descriptor: Int32) throws(DiskError) {
        // A file system without fsync for folders returns EINVAL.
        guard fsync(descriptor) == 0 || errno == EINVAL else { throw DiskError("save the files") }
    }
}

/// The file that is being unpacked.
struct FileWriter {
    let descriptor: Int32
    let calls: ExtractionCalls
    let writebackStep: ByteCount
    /// The offset behind the last written byte.
    private(set) var end: ByteCount = 0
    private var unstarted: Range<ByteCount> = 0..<0

    init(descriptor: Int32, calls: ExtractionCalls, writebackStep: ByteCount) {
        (self.descriptor, self.calls, self.writebackStep) = (descriptor, calls, writebackStep)
    }

    /// `offset` and the end of the bytes are already bounded.
    mutating func write(_ bytes: UnsafeRawBufferPointer, at offset: ByteCount) throws(DiskError) {
        var (rest, place) = (bytes[...], offset)
        while !rest.isEmpty {
            calls.before(.write)
            let count = uninterrupted {
                pwrite(descriptor, UnsafeRawBufferPointer(rebasing: rest).baseAddress, rest.count, off_t(clamping: place))
            }
            guard count > 0 else { throw DiskError("write a file", count == 0 ? EIO : errno) }
            rest = rest.dropFirst(count)
            place +|= ByteCount(clamping: count)
        }
        end = max(end, place)
        unstarted = min(unstarted.lowerBound, offset)..<max(unstarted.upperBound, place)
        guard unstarted.byteCount >= writebackStep else { return }
        // Only a hint, so ignore a failure.
        _ = todoku_start_writeback(descriptor, off_t(clamping: unstarted.lowerBound), off_t(clamping: unstarted.byteCount))
        unstarted = place..<place
    }
}

private let folderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC

/// Calls `body` with a name as a C string. No name contains a NUL, because libarchive ends names there.
func withName<R>(_ name: [UInt8], _ body: (UnsafePointer<CChar>) -> R) -> R {
    (name + [0]).withUnsafeBytes { bytes in
        // An array with one element or more has an address.
        body(bytes.bindMemory(to: CChar.self).baseAddress!)
    }
}

/// openat(2), repeated after an interrupting signal.
func openEntry(_ folder: Int32, _ name: [UInt8], _ flags: Int32, _ mode: mode_t = 0) -> Int32 {
    withName(name) { name in uninterrupted { openat(folder, name, flags, mode) } }
}

/// A `DiskError` as an `ExtractionFailure`.
@discardableResult func disk<R: ~Copyable>(_ body: () throws(DiskError) -> R) throws(ExtractionFailure) -> R {
    do throws(DiskError) { return try body() } catch { throw ExtractionFailure(error) }
}
