package import DownloadModel
internal import EventLoop
internal import Extraction
internal import Glibc
internal import PartFiles

/// A folder to publish as a version of an asset.
package struct PackRequest: Sendable {
    /// The folder with the data, and the one that gets the archive, the manifest and the signature: absolute paths.
    package var folder: String
    package var output: String
    /// For errors: the option or environment variable by which a user chooses another `output`.
    package var outputSetting = "--output"
    /// The beginning of the file names: `NAME.json`, `NAME-VERSION.tar.zst`.
    package var name: String
    /// nil: the first 16 digits of the archive's digest.
    package var version: String?
    /// What the archive's name is appended to; nil: the manifest has the name alone, which is relative to its own URL.
    package var baseURL: String?
    package var mirrors: [String] = []
    /// nil: the manifest says no time.
    package var timestamp: WallTime?
    package var compression = ArchiveCompression.zstd
    /// nil: the compressor's own.
    package var level: Int?
    package var key: SigningKey?
    /// Whether to replace files that `Publication` otherwise refuses to replace.
    package var forces = false

    package init(folder: String, output: String, name: String) { (self.folder, self.output, self.name) = (folder, output, name) }

    /// Whether `name` can name the files.
    package static func isName(_ name: String) -> Bool { FileName.isBare(name) && name.utf8.count <= 64 }
}

/// What was packed.
package struct PackedAsset: Equatable, Sendable {
    package var version: String
    package var archive: String
    package var manifest: String
    package var signature: String?
    package var sha256: String
    /// Bytes of the archive, and of its files.
    package var size: ByteCount
    package var unpackedSize: ByteCount
    package var entries: Int
    /// Whether the files were there already with the same bytes.
    package var isUnchanged: Bool
    /// Sentences for the publisher.
    package var warnings: [String]
}

/// Packs folders. The archive depends on the names, bytes, links and executable bits below the folder alone. It is the same on each machine
/// with the same libarchive and compressor.
package enum Packer {
    private static let readSize = 256 << 10

    /// Blocks, for minutes if the folder is large.
    ///
    /// - Parameter progress: called with the bytes read so far, and of all files.
    package static func pack(
        _ request: PackRequest, progress: (ByteCount, ByteCount) -> Void = { _, _ in }
    ) throws(PackingError) -> PackedAsset {
        let folder = try open(request.folder)
        let publication = try Publication(request, source: folder)
        let tree = try FolderTree(folder)
        guard !tree.entries.isEmpty else { throw PackingError("“\(request.folder)” is empty") }
        let file = try publication.beginArchive()
        let writer = try ArchiveWriter(into: file.descriptor, request.compression, level: request.level)
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: readSize, alignment: 4096)
        defer { buffer.deallocate() }
        var done: ByteCount = 0
        progress(0, tree.size)
        for entry in tree.entries {
            try writer.begin(entry)
            guard entry.kind == .file else { continue }
            try read(entry, in: folder, buffer) { bytes throws(PackingError) in
                try writer.write(bytes, of: entry)
                done +|= ByteCount(clamping: bytes.count)
                progress(done, tree.size)
            }
        }
        try writer.finish()
        let now = try FolderTree(folder)
        guard now == tree else { throw PackingError("“\(request.folder)” was changed while it was packed; try again") }
        return try publication.publish(file, tree)
    }

    private static func read(
        _ entry: TreeEntry, in folder: OpenFolder, _ buffer: UnsafeMutableRawBufferPointer,
        _ body: (UnsafeRawBufferPointer) throws(PackingError) -> Void
    ) throws(PackingError) {
        let shown = "\(folder.path)/\(DownloadModel.shown(entry.text))"
        let file = openUninterrupted(folder.descriptor, entry.text, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard file >= 0 else { throw .of(shown, "cannot be read", errno) }
        defer { close(file) }
        var status = stat()
        guard fstat(file, &status) == 0, stamp(of: status, .file) == entry.stamp, ByteCount(clamping: status.st_size) == entry.size else {
            throw PackingError("“\(shown)” was changed while it was packed; try again")
        }
        var rest = entry.size
        while rest > 0 {
            let most = Int(clamping: min(rest, ByteCount(clamping: buffer.count)))
            let count = uninterrupted { Glibc.read(file, buffer.baseAddress, most) }
            guard count >= 0 else { throw .of(shown, "cannot be read", errno) }
            guard count > 0 else { throw PackingError("“\(shown)” was changed while it was packed; try again") }
            try body(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
            rest = rest -| ByteCount(clamping: count)
        }
    }

    static func open(_ path: String) throws(PackingError) -> OpenFolder {
        do throws(DiskError) { return try OpenFolder.open(path, allowHidden: true) } catch {
            throw .of(path, "cannot be opened", error.code)
        }
    }
}
