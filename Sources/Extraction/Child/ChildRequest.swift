internal import DownloadModel
internal import Glibc

/// What this process writes to the child. It fits a pipe, so the write never waits.
struct ChildRequest: Equatable {
    /// The descriptors of the child: those for the request (reading) and the answers (writing), the archive, the unfinished folder, and the
    /// journal. 2 is /dev/null.
    enum Descriptor {
        static let (request, answers, archive, folder, journal): (Int32, Int32, Int32, Int32, Int32) = (0, 1, 3, 4, 5)
        static let firstOther: Int32 = 6
    }

    private static let magic = Array("todoku-unpack 1".utf8)
    static let mostBytes = 4096

    var parent: pid_t
    /// Whether the child confines itself.
    var isConfined: Bool
    var job: UnpackingJob
    var journal: ExtractionJournal

    var bytes: [UInt8] {
        var out = WordWriter()
        out.put(Self.magic)
        out.put(UInt64(clamping: parent))
        out.put(isConfined)
        let limits = job.limits
        for number in [limits.entries, limits.depth, limits.pathLength] { out.put(UInt64(clamping: number)) }
        out.put(UInt64(clamping: limits.windowLog))
        out.put(limits.unpacked)
        out.put(limits.ratio)
        out.put(job.expectedSize)
        out.put(UInt64(bitPattern: job.reserve.wire))
        out.put(job.isJapaneseRead)
        out.put(job.count)
        out.put(job.isContinued)
        out.put(job.isFlushedWhole)
        out.put(journal.encoded())
        return out.bytes
    }
}

extension ChildRequest {
    /// nil unless `bytes` are a whole request.
    init?(_ bytes: [UInt8]) {
        var words = WordReader(bytes[...])
        guard words.bytes() == Self.magic else { return nil }
        parent = pid_t(clamping: words.integer())
        isConfined = words.flag()
        var limits = ExtractionLimits()
        (limits.entries, limits.depth, limits.pathLength) = (words.integer(), words.integer(), words.integer())
        limits.windowLog = Int32(clamping: words.integer())
        limits.unpacked = words.optional()
        limits.ratio = words.number()
        let expectedSize = words.optional()
        let reserve = DiskReserve(wire: Int64(bitPattern: words.number()))
        job = UnpackingJob(
            limits: limits, expectedSize: expectedSize, reserve: reserve ?? .automatic, isJapaneseRead: words.flag(), count: words.number(),
            isContinued: words.flag(), isFlushedWhole: words.flag())
        guard let journal = ExtractionJournal(words.bytes()), words.isWhole else { return nil }
        self.journal = journal
    }
}
