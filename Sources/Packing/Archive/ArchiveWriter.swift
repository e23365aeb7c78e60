internal import CArchive
internal import DownloadModel
internal import EventLoop
internal import Glibc

/// How an archive is compressed.
package enum ArchiveCompression: String, CaseIterable, Sendable {
    case zstd, gzip, xz, bzip2, none

    /// What an archive's name ends with.
    var ending: String {
        switch self {
        case .zstd: ".tar.zst"
        case .gzip: ".tar.gz"
        case .xz: ".tar.xz"
        case .bzip2: ".tar.bz2"
        case .none: ".tar"
        }
    }

    /// The levels that the compressor takes; nil: none.
    package var levels: ClosedRange<Int>? {
        switch self {
        case .zstd: 1...22
        case .gzip, .bzip2: 1...9
        case .xz: 0...9
        case .none: nil
        }
    }
}

/// libarchive's writer of tar into an open file. Use only on the thread that made it. The locale of this thread is UTF-8 meanwhile.
///
/// The archive contains nothing that depends on the machine: every entry belongs to root, has the time 0, and the mode 644, 755, or for
/// links 777.
struct ArchiveWriter: ~Copyable {
    private let raw: OpaquePointer
    private let formerLocale: UnsafeMutableRawPointer?
    private let sink: ArchiveSink

    init(into descriptor: Int32, _ compression: ArchiveCompression, level: Int?) throws(PackingError) {
        if let text = todoku_archive_load() { throw PackingError("archives cannot be made here: \(String(cString: text))") }
        let sink = ArchiveSink(descriptor)
        let context = Unmanaged.passUnretained(sink).toOpaque()  // `self` keeps it alive
        let former = todoku_archive_use_utf8()
        var problem = [CChar](repeating: 0, count: 256)
        let made = todoku_archive_write_open(
            compression == .none ? nil : compression.rawValue, level.map { String($0) }, context, sinkWrite, &problem)
        guard let made else {
            todoku_archive_restore_locale(former)
            let reason = String(decoding: problem.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
            throw PackingError("archives cannot be compressed by \(compression.rawValue) here: \(reason)")
        }
        (raw, formerLocale, self.sink) = (made, former, sink)
    }

    deinit {
        todoku_archive_write_free(raw)
        todoku_archive_restore_locale(formerLocale)
    }

    func begin(_ entry: TreeEntry) throws(PackingError) {
        let (kind, permissions, link): (mode_t, UInt32, String?) =
            switch entry.kind {
            case .file: (S_IFREG, entry.isExecutable ? 0o755 : 0o644, nil)
            case .folder: (S_IFDIR, 0o755, nil)
            case .link(let target): (S_IFLNK, 0o777, String(decoding: target, as: UTF8.self))
            }
        let code = todoku_archive_write_entry(raw, entry.text, link, kind, permissions, Int64(clamping: entry.size), 0)
        guard code == ARCHIVE_OK else { throw failure(at: entry.text) }
    }

    func write(_ bytes: UnsafeRawBufferPointer, of entry: TreeEntry) throws(PackingError) {
        guard todoku_archive_write_data(raw, bytes.baseAddress, bytes.count) == bytes.count else { throw failure(at: entry.text) }
    }

    func finish() throws(PackingError) {
        guard todoku_archive_write_close(raw) == ARCHIVE_OK else { throw failure(at: "the end") }
    }

    private func failure(at place: String) -> PackingError {
        if sink.code != 0 { return PackingError("the archive cannot be written: \(String(cString: strerror(sink.code)))") }
        return PackingError("the archive cannot be written, at “\(place)”: \(String(cString: todoku_archive_error(raw)))")
    }
}

/// The file that an archive is written into. It keeps the errno of a failure, because libarchive learns only that the callback failed.
private final class ArchiveSink {
    private let descriptor: Int32
    private(set) var code: Int32 = 0

    init(_ descriptor: Int32) { self.descriptor = descriptor }

    func write(_ bytes: UnsafeRawBufferPointer) -> Bool {
        code = writeAll(bytes, to: descriptor)
        return code == 0
    }
}

private func sinkWrite(
    _: OpaquePointer?, _ context: UnsafeMutableRawPointer?, _ bytes: UnsafeRawPointer?, _ count: Int
) -> la_ssize_t {
    guard let context else { return -1 }
    let sink = Unmanaged<ArchiveSink>.fromOpaque(context).takeUnretainedValue()  // +0: the writer keeps it alive
    return sink.write(UnsafeRawBufferPointer(start: bytes, count: count)) ? count : -1
}
