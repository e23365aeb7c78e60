internal import CCoding
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import PartFiles

/// The bytes that libarchive reads: a zip as it is, or a tar after its decompression.
///
/// Decompression is done here, because libarchive would bound neither its memory nor the bytes of one header. Each chunk has at most
/// `chunkSize` bytes. `failure` keeps the reason why a callback stopped, because libarchive learns only that it failed.
final class ArchiveSource {
    static let chunkSize = 256 << 10
    /// Most bytes that libarchive may read for one header. It keeps some of them, such as a map of holes, in memory. The long names and
    /// attributes of an honest header have some kilobytes.
    static let headerBudget: ByteCount = 2 << 20
    /// The mark of an entry in a zip's directory. libarchive keeps each such entry in memory.
    private static let directoryMark: [UInt8] = [0x50, 0x4B, 1, 2]

    let kind: ArchiveKind
    let size: ByteCount
    /// Whether the file is a zip without entries, which libarchive does not recognise as a zip.
    let isEmptyZip: Bool
    private let descriptor: Int32
    private let limits: ExtractionLimits
    private let control: ExtractionControl
    private let decoder: OpaquePointer?
    /// Buffers for the bytes as read, and for the decompressed bytes.
    private let raw: UnsafeMutablePointer<UInt8>
    private let plain: UnsafeMutablePointer<UInt8>
    /// The bytes of `raw` that are not decompressed yet.
    private var pending = 0..<0
    private var isAtStreamEnd = false
    /// The size of the first chunk, which was decompressed to check for a tar, and was not given to libarchive yet.
    private var peeked: Int?
    private(set) var position: ByteCount = 0
    /// Bytes given to libarchive.
    private var given: ByteCount = 0
    private let mostGiven: ByteCount
    /// The number of bytes that may still be given in the present call of libarchive.
    private var budget: ByteCount = .max
    /// While libarchive reads a zip's directory: the entries seen, the end of the last chunk, and its place.
    private var directory: (entries: Int, tail: [UInt8], end: ByteCount)? = (0, [], 0)
    private(set) var failure: ExtractionFailure?

    /// Whether a limit of the process bounds the memory of libarchive's decoders.
    let isMemoryBounded: Bool

    init(
        _ descriptor: Int32, limits: ExtractionLimits, control: ExtractionControl, isMemoryBounded: Bool
    ) throws(ExtractionFailure) {
        (self.descriptor, self.limits, self.control, self.isMemoryBounded) = (descriptor, limits, control, isMemoryBounded)
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw .disk(DiskError("look at the archive")) }
        size = ByteCount(clamping: status.st_size)
        control.report(size: size)
        var bytes = [UInt8](repeating: 0, count: ArchiveKind.headSize)
        let count = uninterrupted { pread(descriptor, &bytes, bytes.count, 0) }
        // An archive whose disk fails must not count as an empty file, because it would be deleted.
        guard count >= 0 else { throw .disk(DiskError("read the archive")) }
        let head = Array(bytes.prefix(count))
        kind = try ArchiveKind(head: head)
        isEmptyZip = kind == .zip && size == 22 && head.starts(with: [0x50, 0x4B, 5, 6])
        switch kind {
        case .zip: (decoder, mostGiven) = (nil, size *| 2 +| 64 << 20)
        case .sevenZip:
            // libarchive bounds neither the window nor the header of a 7z.
            guard isMemoryBounded else { throw .unsupported(found: ArchiveKind.name(of: head)) }
            (decoder, mostGiven) = (nil, size *| 2 +| 64 << 20)
        case .tar(let compression):
            // Besides the files, the limit allows for headers, and for the padding of each file's last block.
            mostGiven = limits.mostUnpacked(of: size) +| ByteCount(clamping: limits.entries) *| 4096 +| 16 << 20
            let made = compression.flatMap { todoku_decoder_make_wide($0.coding, limits.windowLog) }
            if let compression, made == nil {
                throw .unavailable(reason: "the library of \(compression.rawValue) cannot be loaded")
            }
            decoder = made
        }
        // If `init` throws before all fields are set, `deinit` does not run. So allocate only after the last throw above.
        raw = Self.allocate()
        plain = Self.allocate()
        if case .tar(let compression?) = kind { try peek(compression) }
    }

    deinit {
        if let decoder { todoku_decoder_free(decoder) }
        raw.deallocate()
        plain.deallocate()
    }

    /// A buffer of whole pages. On some processors (AMD Zen 3), the kernel copies a page three times as slowly into a buffer that begins
    /// some bytes behind a page's start, as malloc(3) gives it.
    private static func allocate() -> UnsafeMutablePointer<UInt8> {
        UnsafeMutableRawPointer.allocate(byteCount: chunkSize, alignment: 4096).bindMemory(to: UInt8.self, capacity: chunkSize)
    }

    private func peek(_ compression: ArchiveKind.Compression) throws(ExtractionFailure) {
        let count = try fill()
        let head = Array(UnsafeBufferPointer(start: plain, count: min(count, ArchiveKind.headSize)))
        guard ArchiveKind.isTar(head) else {
            let inner = head.isEmpty ? "nothing" : ArchiveKind.name(of: head)
            throw .unsupported(found: "a file of \(compression.rawValue) that holds no tar archive, but \(inner)")
        }
        peeked = count
    }

    // MARK: For libarchive

    /// Bounds the bytes that libarchive reads until the next call of `begin`.
    func begin(budget: ByteCount) { self.budget = budget }

    /// Call when the first header of a zip is read, because its directory is then in libarchive's memory.
    func endDirectory() { directory = nil }

    /// The next chunk; empty at the end, nil after a `failure`.
    func next() -> UnsafeRawBufferPointer? {
        guard failure == nil else { return nil }
        do throws(ExtractionFailure) {
            let count = if let peeked { peeked } else { try fill() }
            peeked = nil
            given +|= ByteCount(clamping: count)
            // The chunk that exceeds the budget is still given, because it may begin before the header.
            guard budget > 0 || count == 0 else { throw .excessive("The archive is not unpacked: one of its headers is too long.") }
            budget = budget -| ByteCount(clamping: count)
            guard given <= mostGiven else { throw tooMuch }
            let chunk = UnsafeRawBufferPointer(start: plain, count: count)
            if kind == .zip { try countDirectory(chunk) }
            return chunk
        } catch {
            failure = error
            return nil
        }
    }

    /// lseek(2) for a zip or 7z; nil: impossible.
    func seek(_ offset: Int64, _ whence: Int32) -> Int64? {
        let base: Int64
        switch whence {
        case SEEK_SET: base = 0
        case SEEK_CUR: base = Int64(clamping: position)
        case SEEK_END: base = Int64(clamping: size)
        default: return nil
        }
        let place = base +| offset
        guard place >= 0, place <= Int64(clamping: size) else { return nil }
        position = ByteCount(clamping: place)
        return place
    }

    /// Reads the rest of the compressed stream, whose checksum comes last. Only zeros may follow a tar, and not many.
    func drain() throws(ExtractionFailure) {
        guard decoder != nil else { return }
        var rest: ByteCount = 16 << 20
        while true {
            let count = try fill()
            if count == 0 { return }
            guard rest >= ByteCount(clamping: count) else {
                throw .damaged(entry: nil, reason: "more than 16 MiB follow its end")
            }
            rest = rest -| ByteCount(clamping: count)
        }
    }

    private var tooMuch: ExtractionFailure {
        .excessive("The archive is not unpacked: it would make more than \(HumanText.size(limits.mostUnpacked(of: size))).")
    }

    private func countDirectory(_ chunk: UnsafeRawBufferPointer) throws(ExtractionFailure) {
        guard var seen = directory else { return }
        let start = position -| ByteCount(clamping: chunk.count)
        // libarchive reads the end of the file first, then the directory from its first entry to its last.
        if seen.end != start { seen = (0, [], start) }
        let bytes = seen.tail + chunk
        var place = 0
        while let found = bytes[place...].firstIndex(of: 0x50), found +| 4 <= bytes.count {
            let isMark = bytes[found..<(found +| 4)].elementsEqual(Self.directoryMark)
            if isMark { seen.entries +|= 1 }
            place = found +| 1
        }
        (seen.tail, seen.end) = (Array(bytes.suffix(3)), position)
        directory = seen
        guard seen.entries <= limits.entries else {
            throw .excessive("The archive is not unpacked: it has more than \(limits.entries) entries.")
        }
    }

    // MARK: Decompression

    /// Fills `plain`. Returns the number of bytes; 0 at the end.
    private func fill() throws(ExtractionFailure) -> Int {
        guard !control.isCancelled else { throw .cancelled }
        guard let decoder else { return try read(into: plain) }
        var made = 0
        while made < Self.chunkSize {
            var isInputAtEnd = false
            if pending.isEmpty {
                guard !control.isCancelled else { throw .cancelled }
                pending = try 0..<read(into: raw)
                isInputAtEnd = pending.isEmpty
            }
            if isAtStreamEnd {
                // Tapes and some programs append zeros. No stream begins with a zero.
                while let first = pending.first, raw[first] == 0 { pending = (first +| 1)..<pending.upperBound }
                if isInputAtEnd { break }
                if pending.isEmpty { continue }
            }
            let count = try decode(decoder, into: plain + made, Self.chunkSize -| made)
            made +|= count
            if isInputAtEnd, count == 0, !isAtStreamEnd { throw .damaged(entry: nil, reason: "it ends too early") }
        }
        return made
    }

    private func decode(_ decoder: OpaquePointer, into room: UnsafeMutablePointer<UInt8>, _ size: Int) throws(ExtractionFailure) -> Int {
        var (used, made) = (0, 0)
        let answer = todoku_decoder_run(decoder, raw + pending.lowerBound, pending.count, &used, room, size, &made)
        let wasEmpty = pending.isEmpty
        pending = (pending.lowerBound +| used)..<pending.upperBound
        switch answer {
        case TODOKU_DECODED_MORE:
            // A step that reads and writes nothing would loop for ever.
            guard used > 0 || made > 0 || wasEmpty else { throw .damaged(entry: nil, reason: "it cannot be decompressed") }
            if used > 0 || made > 0 { isAtStreamEnd = false }
        case TODOKU_DECODED_END: isAtStreamEnd = true
        case TODOKU_DECODED_WIDE:
            let most = HumanText.size(1 << ByteCount(clamping: limits.windowLog))
            throw .excessive("The archive is not unpacked: its decompression needs a window of more than \(most).")
        case TODOKU_DECODED_NO_MEMORY: throw .unavailable(reason: "there is not enough memory")
        default: throw .damaged(entry: nil, reason: isAtStreamEnd ? "something else follows its end" : "it cannot be decompressed")
        }
        return made
    }

    /// Reads the archive's next bytes. Returns 0 at its end.
    private func read(into buffer: UnsafeMutablePointer<UInt8>) throws(ExtractionFailure) -> Int {
        let count = uninterrupted { pread(descriptor, buffer, Self.chunkSize, off_t(clamping: position)) }
        guard count >= 0 else { throw .disk(DiskError("read the archive")) }
        position +|= ByteCount(clamping: count)
        control.report(read: min(position, size))
        return count
    }
}
