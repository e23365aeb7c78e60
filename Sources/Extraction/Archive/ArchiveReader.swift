internal import CArchive
internal import DownloadModel
internal import Glibc

/// An entry as its archive describes it, not checked yet.
struct ArchiveEntry {
    enum Kind: Equatable {
        case file, folder, device, fifo, socket, unknown
        case symbolicLink(target: [UInt8])
        case hardLink(target: [UInt8])
    }

    var name: [UInt8]
    var kind: Kind
    /// The size of the file; nil: unknown before its data is read.
    var size: ByteCount?
    var isExecutable: Bool
    var setsUserID: Bool
    var isEncrypted: Bool
    var modified: timespec?
    /// The compression method of a zip's entry, if entries with this method are refused; nil: the method is accepted.
    var foreignMethod: String?
}

/// libarchive's reader over an `ArchiveSource`. Use only on the thread that made it. The locale of this thread is UTF-8 meanwhile.
struct ArchiveReader: ~Copyable {
    private let raw: OpaquePointer
    private let formerLocale: UnsafeMutableRawPointer?
    let source: ArchiveSource

    init(_ source: ArchiveSource) throws(ExtractionFailure) {
        if let text = todoku_archive_load() { throw .unavailable(reason: String(cString: text)) }
        let context = Unmanaged.passUnretained(source).toOpaque()  // `self` keeps it alive
        let former = todoku_archive_use_utf8()
        let made =
            switch source.kind {
            case .zip: todoku_archive_open_zip(context, sourceRead, sourceSeek)
            case .sevenZip: todoku_archive_open_7z(context, sourceRead, sourceSeek)
            case .tar: todoku_archive_open_tar(context, sourceRead)
            }
        guard let made else {
            todoku_archive_restore_locale(former)
            throw .unavailable(reason: "there is not enough memory")
        }
        (raw, formerLocale, self.source) = (made, former, source)
    }

    deinit {
        todoku_archive_close(raw)
        todoku_archive_restore_locale(formerLocale)
    }

    /// The next entry; nil at the end of a complete archive. `last` is the name of the previous entry, for messages.
    func next(after last: String?) throws(ExtractionFailure) -> ArchiveEntry? {
        let isTar = source.kind.isTar
        if isTar { source.begin(budget: ArchiveSource.headerBudget) }
        defer { source.begin(budget: .max) }
        var entry = todoku_archive_entry()
        let code = todoku_archive_next(raw, &entry)
        source.endDirectory()
        switch code {
        case ARCHIVE_OK: break
        // In a tar, an owner or an attribute is unreadable; neither is used. In a zip, directory and header differ.
        case ARCHIVE_WARN where isTar && entry.name != nil: break
        case ARCHIVE_EOF:
            if let failure = source.failure { throw failure }
            guard !isTar || todoku_archive_end_mark(raw) > 0 else { throw .damaged(entry: last, reason: "it ends too early") }
            return nil
        default: throw failed(at: last)
        }
        return try read(entry)
    }

    private func read(_ entry: todoku_archive_entry) throws(ExtractionFailure) -> ArchiveEntry {
        let name = entry.name.map { bytes($0) } ?? []
        let kind: ArchiveEntry.Kind =
            if let target = entry.hard_link {
                .hardLink(target: bytes(target))
            } else {
                switch mode_t(entry.kind) {
                case S_IFREG: .file
                case S_IFDIR: .folder
                case S_IFLNK: .symbolicLink(target: entry.symbolic_link.map { bytes($0) } ?? [])
                case S_IFCHR, S_IFBLK: .device
                case S_IFIFO: .fifo
                case S_IFSOCK: .socket
                default: .unknown
                }
            }
        guard entry.size >= -1 else { throw .damaged(entry: text(name), reason: "its size is negative") }
        return ArchiveEntry(
            name: name, kind: kind, size: entry.size < 0 ? nil : ByteCount(clamping: entry.size),
            isExecutable: entry.permissions & 0o100 != 0, setsUserID: entry.permissions & 0o6000 != 0,
            isEncrypted: entry.is_encrypted, modified: entry.has_modified ? entry.modified : nil, foreignMethod: foreignMethod)
    }

    /// libarchive bounds the windows of these methods only.
    private static let boundedMethods = ["uncompressed", "deflation", "bzip", "zstd"]

    private var foreignMethod: String? {
        guard source.kind == .zip else { return nil }
        let format = String(cString: todoku_archive_format(raw))
        guard let start = format.firstIndex(of: "("), let end = format.lastIndex(of: ")"), start < end else { return nil }
        let method = format[format.index(after: start)..<end]
        let isBounded = Self.boundedMethods.contains(String(method)) || source.isMemoryBounded && ["lzma", "xz", "ppmd-1"].contains(method)
        return isBounded ? nil : String(method)
    }

    /// Passes the bytes of the present entry's file to `body`, with their offsets. Gaps are holes.
    func data(
        of name: String, _ body: (UnsafeRawBufferPointer, ByteCount) throws(ExtractionFailure) -> Void
    ) throws(ExtractionFailure) {
        while true {
            var (start, count, offset): (UnsafeRawPointer?, Int, Int64) = (nil, 0, 0)
            switch todoku_archive_data(raw, &start, &count, &offset) {
            case ARCHIVE_OK:
                guard offset >= 0 else { throw .damaged(entry: name, reason: "the place of its data is negative") }
                try body(UnsafeRawBufferPointer(start: start, count: start == nil ? 0 : count), ByteCount(clamping: offset))
            case ARCHIVE_EOF:
                if let failure = source.failure { throw failure }
                return
            default: throw failed(at: name)
            }
        }
    }

    /// Skips the present entry's data.
    func skip(_ name: String) throws(ExtractionFailure) {
        guard todoku_archive_skip(raw) == ARCHIVE_OK, source.failure == nil else { throw failed(at: name) }
    }

    private func failed(at entry: String?) -> ExtractionFailure {
        if let failure = source.failure { return failure }
        if todoku_archive_errno(raw) == ENOMEM {
            return .excessive("The archive is not unpacked: its decompression needs too much memory.")
        }
        let reason = String(cString: todoku_archive_error(raw))
        // The names of such an archive are encrypted, too.
        if source.kind == .sevenZip, reason.contains("encrypted") { return .unsupported(found: "an encrypted 7z archive") }
        return .damaged(entry: entry, reason: reason)
    }
}

private func bytes(_ text: UnsafePointer<CChar>) -> [UInt8] {
    Array(UnsafeBufferPointer(start: text, count: strlen(text)).lazy.map { UInt8(bitPattern: $0) })
}

/// A name for messages.
func text(_ name: [UInt8]) -> String { String(decoding: name, as: UTF8.self) }

private func sourceRead(
    _: OpaquePointer?, _ context: UnsafeMutableRawPointer?, _ bytes: UnsafeMutablePointer<UnsafeRawPointer?>?
) -> la_ssize_t {
    guard let context, let bytes else { return la_ssize_t(ARCHIVE_FATAL) }
    let source = Unmanaged<ArchiveSource>.fromOpaque(context).takeUnretainedValue()  // +0: the reader keeps it alive
    guard let chunk = source.next() else { return la_ssize_t(ARCHIVE_FATAL) }
    bytes.pointee = chunk.baseAddress
    return chunk.count
}

private func sourceSeek(_: OpaquePointer?, _ context: UnsafeMutableRawPointer?, _ offset: la_int64_t, _ whence: Int32) -> la_int64_t {
    guard let context else { return la_int64_t(ARCHIVE_FATAL) }
    let source = Unmanaged<ArchiveSource>.fromOpaque(context).takeUnretainedValue()
    return source.seek(offset, whence) ?? la_int64_t(ARCHIVE_FATAL)
}
