internal import DownloadModel
internal import Glibc
internal import PartFiles

/// A small file beside the unfinished folder. It names the folder's archive, and counts the entries that are complete.
///
/// The journal has two counts. `written` counts entries whose bytes the kernel has. Like these bytes, it survives the death of this
/// process, but it is worthless after a reboot or on another mount. `durable` counts entries that were flushed before the count was
/// written. The journal is one write of `size` bytes with a checksum; a torn journal is ignored.
struct ExtractionJournal: Equatable {
    static let size = 512
    private static let magic = Array("todoku-journal 1".utf8)

    var archiveSize: ByteCount
    var fingerprint: [UInt8]
    var folder: FileIdentity
    var written: UInt64 = 0
    var durable: UInt64 = 0
    /// The bytes of the files that `durable` counts.
    var bytes: ByteCount = 0
    /// All entries are unpacked and flushed: the folder only needs its name.
    var isWhole = false

    /// The number of valid entries in the open folder with this identity; nil: the journal describes another folder.
    func count(in found: FileIdentity) -> UInt64? {
        guard found.isSamePart(as: folder) else { return nil }
        return !found.boot.isEmpty && found.isSameFileAndMount(as: folder) ? max(written, durable) : durable
    }

    // MARK: The file

    /// All numbers are little-endian.
    func encoded() -> [UInt8] {
        var out = Self.magic
        func put(_ number: UInt64) { withUnsafeBytes(of: number.littleEndian) { out.append(contentsOf: $0) } }
        func put(_ text: [UInt8]) {
            let kept = text.prefix(ExtractionRequest.longestFingerprint)
            out.append(UInt8(truncatingIfNeeded: kept.count))
            out.append(contentsOf: kept)
        }
        for number in [archiveSize, written, durable, bytes, isWhole ? 1 : 0, folder.device, folder.inode, folder.mount] { put(number) }
        put(UInt64(bitPattern: folder.born ?? 0))
        put(Array(folder.boot.utf8))
        put(fingerprint)
        out.append(contentsOf: repeatElement(0, count: Self.size -| 8 -| out.count))
        put(Self.checksum(out[...]))
        return out
    }

    /// nil unless `bytes` are a whole journal.
    init?(_ file: [UInt8]) {
        guard file.count == Self.size, file.starts(with: Self.magic) else { return nil }
        var rest = file[Self.magic.count...]
        func number() -> UInt64 {
            let taken = rest.prefix(8)
            rest = rest.dropFirst(8)
            return taken.reversed().reduce(0) { $0 << 8 | UInt64(truncatingIfNeeded: $1) }
        }
        func text() -> [UInt8] {
            let count = rest.popFirst().map { Int(truncatingIfNeeded: $0) } ?? 0
            let taken = rest.prefix(count)
            rest = rest.dropFirst(count)
            return Array(taken)
        }
        (archiveSize, written, durable, bytes) = (number(), number(), number(), number())
        isWhole = number() == 1
        let (device, inode, mount, born) = (number(), number(), number(), Int64(bitPattern: number()))
        let boot = String(decoding: text(), as: UTF8.self)
        folder = FileIdentity(device: device, inode: inode, mount: mount, boot: boot, born: born == 0 ? nil : born)
        fingerprint = text()
        rest = file[(Self.size -| 8)...]
        guard number() == Self.checksum(file[..<(Self.size -| 8)]) else { return nil }
    }

    init(archiveSize: ByteCount, fingerprint: [UInt8], folder: FileIdentity) {
        (self.archiveSize, self.folder) = (archiveSize, folder)
        self.fingerprint = Array(fingerprint.prefix(ExtractionRequest.longestFingerprint))
    }

    /// FNV-1a.
    private static func checksum(_ bytes: ArraySlice<UInt8>) -> UInt64 {
        bytes.reduce(0xCBF2_9CE4_8422_2325) { ($0 ^ UInt64(truncatingIfNeeded: $1)) &* 0x100_0000_01B3 }
    }

    /// Reads the journal `name`; nil if it does not exist, is not ours, or is torn. Throws if the disk or this machine cannot tell.
    static func read(_ name: String, in parent: OpenFolder) throws(DiskError) -> ExtractionJournal? {
        let file = openUninterrupted(parent.descriptor, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard file >= 0 else {
            if [ENOENT, ELOOP, ENXIO, EACCES].contains(errno) { return nil }  // ENXIO: a socket has the name
            throw DiskError("open \(name)")
        }
        defer { close(file) }
        var status = stat()
        guard fstat(file, &status) == 0 else { throw DiskError("look at \(name)") }
        guard try parent.provesOurs(status) else { return nil }
        var bytes = [UInt8](repeating: 0, count: size +| 1)
        let count = pread(file, &bytes, bytes.count, 0)
        guard count >= 0 else { throw DiskError("read \(name)") }
        return ExtractionJournal(Array(bytes.prefix(count)))
    }
}

/// The journal's open file.
struct JournalFile: ~Copyable {
    let descriptor: Int32
    private let calls: ExtractionCalls
    private(set) var journal: ExtractionJournal

    /// Opens the journal `name` to continue it, or creates it.
    init(_ name: String, in parent: OpenFolder, _ journal: ExtractionJournal, isNew: Bool, calls: ExtractionCalls) throws(DiskError) {
        (self.journal, self.calls) = (journal, calls)
        let flags = O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | (isNew ? O_CREAT | O_EXCL : 0)
        calls.before(.journal)
        descriptor = openUninterrupted(parent.descriptor, name, flags, 0o600)
        guard descriptor >= 0 else { throw DiskError("open the journal") }
    }

    /// The journal that `descriptor` has open; it is closed with this value.
    init(adopting descriptor: Int32, _ journal: ExtractionJournal, calls: ExtractionCalls) {
        (self.descriptor, self.journal, self.calls) = (descriptor, journal, calls)
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Notes that this many entries are complete, as far as this boot is concerned.
    mutating func note(written: UInt64) throws(DiskError) {
        journal.written = written
        try write()
    }

    /// Notes that all entries so far are flushed. On disk when it returns.
    mutating func noteDurable(bytes: ByteCount, isWhole: Bool) throws(DiskError) {
        (journal.durable, journal.bytes, journal.isWhole) = (journal.written, bytes, isWhole)
        try write()
        calls.before(.flushJournal)
        guard fdatasync(descriptor) == 0 else { throw DiskError("save the journal") }
    }

    /// After a failed flush, only the entries of earlier flushes count, because the kernel may have dropped the rest.
    mutating func forgetWritten() {
        journal.written = journal.durable
        // If the count cannot be lowered, empty the journal, so that it claims nothing.
        if (try? write()) == nil { _ = ftruncate(descriptor, 0) }
    }

    private func write() throws(DiskError) {
        calls.before(.journal)
        let bytes = journal.encoded()
        guard pwrite(descriptor, bytes, bytes.count, 0) == bytes.count else { throw DiskError("write the journal") }
    }
}
