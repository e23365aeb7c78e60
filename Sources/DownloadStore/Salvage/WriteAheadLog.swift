internal import EventLoop
internal import Glibc

/// The length of the write-ahead log when the last commit was acknowledged. Kept in the lock file, which no fault of the log affects.
struct LogMark: Equatable {
    /// Both salts of the log's header. They change each time the log starts from the beginning.
    var salts: UInt64
    var frames: UInt32

    static let length = 24
    private static let magic: UInt64 = 0x54444B55_6C6F6731  // "TDKUlog1"

    init(salts: UInt64, frames: UInt32) { (self.salts, self.frames) = (salts, frames) }

    /// nil if `bytes` are not those of a mark.
    init?(_ bytes: [UInt8]) {
        guard bytes.count == Self.length else { return nil }
        self.init(salts: bytes.bigEndian64(at: 0), frames: UInt32(truncatingIfNeeded: bytes.bigEndian32(at: 8)))
        guard bytes == self.bytes else { return nil }
    }

    var bytes: [UInt8] {
        var bytes: [UInt8] = []
        for shift in stride(from: 56, through: 0, by: -8) { bytes.append(UInt8(truncatingIfNeeded: salts >> UInt64(shift))) }
        for shift in stride(from: 24, through: 0, by: -8) { bytes.append(UInt8(truncatingIfNeeded: frames >> UInt32(shift))) }
        bytes += [0, 0, 0, 0]
        // FNV-1a: it must notice a flipped bit, not an attacker.
        let sum = bytes.reduce(Self.magic ^ 0xcbf2_9ce4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
        for shift in stride(from: 56, through: 0, by: -8) { bytes.append(UInt8(truncatingIfNeeded: sum >> UInt64(shift))) }
        return bytes
    }
}

/// SQLite's write-ahead log on disk (sqlite.org/fileformat2.html#walformat), read without SQLite. SQLite stops at the first frame with a
/// wrong checksum, and forgets all frames behind it.
struct WriteAheadLog {
    static let headerLength = 32
    static let frameHeaderLength = 24

    struct Frame {
        var page: UInt32
        /// The pages of the database after the commit that this frame ends; 0: it ends none.
        var databaseSize: UInt32
        /// Whether the page is as SQLite wrote it.
        var isGood: Bool
        /// Whether the frame has this log's salts, which SQLite requires too.
        var hasOwnSalts: Bool
    }

    let pageSize: Int
    private(set) var salts: UInt64
    private(set) var frames: [Frame] = []
    /// Whether SQLite would read the log at all.
    private let hasGoodHeader: Bool

    private typealias Sum = (UInt32, UInt32)

    /// - Parameters:
    ///   - mark: the expected values of the header, if known.
    ///   - pageSize: the page size of the database.
    /// - Returns: nil if there is no log, or an empty one.
    init?(_ path: String, mark: LogMark?, pageSize: Int) {
        guard let file = PlainFile(path) else { return nil }
        let (size, frameLength) = (file.size, Self.frameHeaderLength + pageSize)
        guard size > Self.headerLength, let header = file.read(at: 0, count: Self.headerLength) else { return nil }
        // The last bit of the magic number: whether checksums are over big-endian words.
        let magic = header.bigEndian32(at: 0)
        let isBig = magic & 1 == 1
        let sum = header.withUnsafeBytes { Self.sum((0, 0), $0[..<24], isBig) }
        let stored: Sum = (header.bigEndian32(at: 24), header.bigEndian32(at: 28))
        hasGoodHeader = magic & ~1 == 0x377F_0682 && sum == stored && Int(header.bigEndian32(at: 8)) == pageSize
        self.pageSize = pageSize
        salts = header.bigEndian64(at: 16)
        if !hasGoodHeader, let first = file.read(at: Self.headerLength, count: Self.frameHeaderLength) {
            salts = mark?.salts ?? first.bigEndian64(at: 8)
        }
        // The checksums that the next frame's checksum may continue.
        var seeds: [Sum] = hasGoodHeader ? [stored] : [stored, sum]
        var offset = Self.headerLength
        while offset <= size - frameLength, frames.count < Int(UInt32.max) {
            guard let bytes = file.read(at: offset, count: frameLength) else { break }
            offset += frameLength
            seeds = append(bytes, seeds, isBig)
        }
        // Frames of an earlier log behind the end of this one.
        if let last = frames.lastIndex(where: { $0.hasOwnSalts || $0.isGood }) {
            frames.removeSubrange((last + 1)...)
        } else {
            frames = []
        }
    }

    /// - Returns: the checksums that the next frame's checksum may continue.
    private mutating func append(_ bytes: [UInt8], _ seeds: [Sum], _ isBig: Bool) -> [Sum] {
        let stored: Sum = (bytes.bigEndian32(at: 16), bytes.bigEndian32(at: 20))
        let sums = seeds.map { seed in
            bytes.withUnsafeBytes { Self.sum(Self.sum(seed, $0[..<8], isBig), $0[Self.frameHeaderLength...], isBig) }
        }
        let hasOwnSalts = bytes.bigEndian64(at: 8) == salts
        let match = sums.firstIndex { $0 == stored }
        // The previous frame was right except for its checksum.
        if let match, match > 0, let before = frames.indices.last { frames[before].isGood = true }
        frames.append(
            Frame(
                page: bytes.bigEndian32(at: 0), databaseSize: bytes.bigEndian32(at: 4), isGood: match != nil, hasOwnSalts: hasOwnSalts))
        if match != nil { return [stored] }
        return hasOwnSalts ? [stored] + sums.prefix(2) : Array(sums.prefix(2))
    }

    private static func sum(_ seed: Sum, _ bytes: Slice<UnsafeRawBufferPointer>, _ isBig: Bool) -> Sum {
        var (first, second) = seed
        let words = UnsafeRawBufferPointer(rebasing: bytes)
        for offset in stride(from: 0, to: words.count - 7, by: 8) {
            let left = words.loadUnaligned(fromByteOffset: offset, as: UInt32.self)
            let right = words.loadUnaligned(fromByteOffset: offset + 4, as: UInt32.self)
            first = first &+ (isBig ? left.bigEndian : left.littleEndian) &+ second
            second = second &+ (isBig ? right.bigEndian : right.littleEndian) &+ first
        }
        return (first, second)
    }

    /// How many frames SQLite will read: up to the last commit before the first fault.
    private var readable: Int {
        guard hasGoodHeader else { return 0 }
        let good = frames.prefix { $0.isGood && $0.hasOwnSalts }
        return good.lastIndex { $0.databaseSize > 0 }.map { $0 + 1 } ?? 0
    }

    /// How many frames belong to acknowledged commits; nil if SQLite reads all of them.
    ///
    /// A mark makes this certain. The mark may be missing, in another machine's file or after a power cut. Then two commits behind a fault
    /// prove it, because the second began when the first was on disk. A single commit may have been torn by a power cut before it was
    /// acknowledged.
    func acknowledgedBehindFault(_ mark: LogMark?) -> Int? {
        let readable = readable
        if let mark, mark.salts == salts { return readable < Int(mark.frames) ? Int(mark.frames) : nil }
        let commits = frames.indices.dropFirst(readable).filter { frames[$0].isGood && frames[$0].databaseSize > 0 }
        return commits.count >= 2 ? commits.last.map { $0 + 1 } : nil
    }

    static func offset(ofFrame index: Int, pageSize: Int) -> Int {
        headerLength + index * (frameHeaderLength + pageSize) + frameHeaderLength
    }
}

/// A file for reading at offsets. Nothing in the file is trusted: missing bytes give nil.
struct PlainFile: ~Copyable {
    private let descriptor: Int32
    let size: Int

    init?(_ path: String) {
        let descriptor = Glibc.open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW)
        guard descriptor >= 0 else { return nil }
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
            close(descriptor)
            return nil
        }
        (self.descriptor, size) = (descriptor, Int(status.st_size))
    }

    deinit { close(descriptor) }

    /// nil if the file has fewer bytes, or if the second read fails, too: one failed read proves no damage.
    func read(at offset: Int, count: Int) -> [UInt8]? {
        readOnce(at: offset, count: count) ?? readOnce(at: offset, count: count)
    }

    private func readOnce(at offset: Int, count: Int) -> [UInt8]? {
        let bytes = [UInt8](unsafeUninitializedCapacity: count) { buffer, done in
            while done < count {
                let result = uninterrupted { pread(descriptor, buffer.baseAddress! + done, count - done, off_t(offset + done)) }
                guard result > 0 else { break }
                done += result
            }
        }
        return bytes.count == count ? bytes : nil
    }
}

extension [UInt8] {
    /// - Precondition: four bytes follow `offset`.
    func bigEndian32(at offset: Int) -> UInt32 { self[offset..<offset + 4].reduce(0) { $0 << 8 | UInt32($1) } }
    /// - Precondition: eight bytes follow `offset`.
    func bigEndian64(at offset: Int) -> UInt64 { self[offset..<offset + 8].reduce(0) { $0 << 8 | UInt64($1) } }
}
