internal import CSystem
package import DownloadModel
internal import Glibc
internal import Synchronization

/// An archive to unpack into a new folder.
package struct ExtractionRequest: Sendable {
    /// The whole archive, verified, open for reading. It is read by position, and stays open with the caller.
    package var archive: Int32
    /// Identifies the archive, for example by its digest. An interrupted extraction continues only with the same fingerprint. At most
    /// `longestFingerprint` bytes count.
    package var fingerprint: [UInt8]
    /// The absolute path of the existing folder in which the new one is made.
    package var directory: String
    /// The bare name of the new folder: at most `longestName` bytes.
    package var name: String
    package var limits: ExtractionLimits
    /// The size of all files together, if known. The disk must have this much room before the extraction begins. It is not a limit.
    package var expectedSize: ByteCount?
    package var reserve: DiskReserve
    /// Whether `directory` may have a component with a leading dot.
    package var allowHidden: Bool
    /// Reads names in a zip that are not UTF-8 as Japanese, if possible; nil: names keep their bytes.
    package var decode: ForeignDecoder?

    package static let longestFingerprint = 64
    /// Most bytes of `name`. The longer names of the journal and of the unfinished folder then fit 255 bytes.
    package static let longestName = 200

    package init(
        archive: Int32, fingerprint: [UInt8], directory: String, name: String, limits: ExtractionLimits = ExtractionLimits(),
        expectedSize: ByteCount? = nil, reserve: DiskReserve = .automatic, allowHidden: Bool = false, decode: ForeignDecoder? = nil
    ) {
        (self.archive, self.fingerprint, self.directory, self.name) = (archive, fingerprint, directory, name)
        (self.limits, self.expectedSize, self.reserve, self.allowHidden) = (limits, expectedSize, reserve, allowHidden)
        self.decode = decode
    }
}

/// Bounds of the bytes that an archive may make us write, read and keep in memory.
package struct ExtractionLimits: Equatable, Sendable {
    /// Most files, links and folders, including folders that occur only in paths. Each takes some 40 bytes of memory, in a zip 250.
    package var entries = 100_000
    /// Most components of a path.
    package var depth = 32
    /// Most bytes of a path.
    package var pathLength = 1024
    /// Most bytes of all files together; nil: `ratio` alone counts.
    package var unpacked: ByteCount?
    /// All files together may have `unsuspicious` bytes, or this many times the archive's size.
    package var ratio: ByteCount = 100
    /// The widest window of zstd and xz, as a power of two: 128 MiB, as in the command zstd.
    package var windowLog: Int32 = 27

    /// As for an HTTP body that is unpacked.
    package static let unsuspicious: ByteCount = 64 << 20

    package init() {}

    /// Most bytes of all files together, for an archive of `size` bytes.
    func mostUnpacked(of size: ByteCount) -> ByteCount { min(unpacked ?? .max, max(Self.unsuspicious, size *| ratio)) }
}

/// The progress of an extraction.
package struct ExtractionProgress: Equatable, Sendable {
    /// Bytes of the archive read, and its size.
    package var read: ByteCount = 0
    package var size: ByteCount = 0
    /// Bytes of all files so far, including files of an earlier run.
    package var written: ByteCount = 0
    package var entries: UInt64 = 0

    package init() {}
}

/// Joins an extraction on its thread with the thread that asked for it, without a lock.
package final class ExtractionControl: Sendable {
    private let cancelled = Atomic<Bool>(false)
    private let read = Atomic<UInt64>(0)
    private let size = Atomic<UInt64>(0)
    private let written = Atomic<UInt64>(0)
    private let entries = Atomic<UInt64>(0)
    private let confined = Atomic<UInt64>(.max)
    /// Called after each report, on the thread of the extraction.
    private let told: (@Sendable (ExtractionControl) -> Void)?
    /// An eventfd(2) that is readable once the extraction is cancelled; -1 if there is none.
    let bell = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))

    package init() { told = nil }

    init(told: @escaping @Sendable (ExtractionControl) -> Void) { self.told = told }

    deinit { if bell >= 0 { close(bell) } }

    /// Makes the extraction end with `.cancelled`. The unpacked files stay for a later run.
    package func cancel() {
        cancelled.store(true, ordering: .relaxed)
        if bell >= 0 { _ = eventfd_write(bell, 1) }
    }

    /// What confines the child that unpacks; nil: nothing is known yet.
    package var confinement: Confinement? {
        let bits = confined.load(ordering: .relaxed)
        return bits == .max ? nil : Confinement(rawValue: UInt32(truncatingIfNeeded: bits))
    }

    package var isCancelled: Bool { cancelled.load(ordering: .relaxed) }

    /// May be called from any thread. The numbers may differ in age by one chunk.
    package var progress: ExtractionProgress {
        var progress = ExtractionProgress()
        (progress.read, progress.size) = (read.load(ordering: .relaxed), size.load(ordering: .relaxed))
        (progress.written, progress.entries) = (written.load(ordering: .relaxed), entries.load(ordering: .relaxed))
        return progress
    }

    func report(size: ByteCount) { self.size.store(size, ordering: .relaxed) }
    func report(_ confinement: Confinement) { confined.store(UInt64(clamping: confinement.rawValue), ordering: .relaxed) }
    func report(read: ByteCount) {
        self.read.store(read, ordering: .relaxed)
        told?(self)
    }
    func report(written: ByteCount) {
        self.written.store(written, ordering: .relaxed)
        told?(self)
    }
    func report(entries: UInt64) {
        self.entries.store(entries, ordering: .relaxed)
        told?(self)
    }
}
