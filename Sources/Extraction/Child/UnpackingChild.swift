internal import CArchive
internal import CCoding
internal import CConfine
internal import CSystem
package import DownloadModel
internal import EventLoop
internal import Glibc
internal import PartFiles
internal import Synchronization

/// The child process that unpacks an archive.
///
/// The child gets descriptors (`ChildRequest.Descriptor`) and nothing else: no environment, no other file, no connection. It loads its
/// libraries, confines itself to the unfinished folder, and only then reads the archive. It dies with the thread that started it.
package enum UnpackingChild {
    /// Tells a program that it is this child.
    package static let argument = "--unpack"
    static let name = "todokud-unpack"

    /// - Parameters:
    ///   - decode: as in `ExtractionRequest`; used only if the request had one.
    ///   - confined: called once the process is confined, before it reads the archive: for tests.
    package static func run(
        decode: @escaping ForeignDecoder, calls: ExtractionCalls = ExtractionCalls(), confined: () -> Void = {}
    ) -> Never {
        guard let request = read() else { _exit(64) }  // EX_USAGE of sysexits.h
        let first = request.isConfined ? ChildRequest.Descriptor.firstOther : -1
        guard todoku_become_child(first, name, request.parent) else { _exit(1) }
        // Where processors are few, the service's answers and the desktop come first. A failure changes nothing else.
        _ = nice(10)
        let job = request.job
        loadLibraries(isJapaneseRead: job.isJapaneseRead, decode)
        var confinement: Confinement = []
        if request.isConfined {
            var bounds = job.limits.bounds(size: request.journal.archiveSize)
            confinement = Confinement(rawValue: todoku_confine(ChildRequest.Descriptor.folder, request.parent, &bounds))
        }
        say(.confined(confinement))
        confined()
        let pace = Pace()
        let control = ExtractionControl { control in if pace.isDue { say(control.progress) } }
        let answer: ChildAnswer
        do throws(ExtractionFailure) {
            let tree = TargetTree(
                adopting: ChildRequest.Descriptor.folder, isContinued: job.isContinued, isFlushedWhole: job.isFlushedWhole, calls: calls)
            var journal = JournalFile(adopting: ChildRequest.Descriptor.journal, request.journal, calls: calls)
            let unpacking = try EntryUnpacking(
                job, archive: ChildRequest.Descriptor.archive, control, decode: job.isJapaneseRead ? decode : nil,
                isMemoryBounded: confinement.contains(.limits))
            answer = .whole(try unpacking.run(into: tree, &journal))
        } catch {
            answer = .failed(error)
        }
        say(control.progress)
        say(answer)
        _exit(0)
    }

    private static func say(_ progress: ExtractionProgress) {
        say(.progress(read: progress.read, written: progress.written, entries: progress.entries))
    }

    /// Once the other end is closed, SIGPIPE ends this process.
    private static func say(_ answer: ChildAnswer) {
        let code = answer.framed.withUnsafeBytes { writeAll($0, to: ChildRequest.Descriptor.answers) }
        if code != 0 { _exit(1) }
    }

    private static func read() -> ChildRequest? {
        let bytes = try? readToEnd(ChildRequest.Descriptor.request, atMost: ChildRequest.mostBytes)
        close(ChildRequest.Descriptor.request)
        return bytes.flatMap(ChildRequest.init)
    }

    /// Loads everything that unpacking opens later, because a confined process opens no file outside of its folder.
    private static func loadLibraries(isJapaneseRead: Bool, _ decode: ForeignDecoder) {
        _ = todoku_archive_load()  // `ArchiveReader` gives the error
        todoku_archive_restore_locale(todoku_archive_use_utf8())
        for compression in ArchiveKind.Compression.allCases {
            if let decoder = todoku_decoder_make_wide(compression.coding, 20) { todoku_decoder_free(decoder) }
        }
        guard isJapaneseRead else { return }
        for charset in ForeignText.japaneseCharsets {
            // Never closed, so that the C library keeps its tables.
            _ = iconv_open("UTF-8", charset)
            _ = decode(charset, [0x41])
        }
    }
}

/// Bounds how often progress is told. Of one thread.
private final class Pace: Sendable {
    private let last = Atomic<UInt64>(0)

    var isDue: Bool {
        var now = timespec()
        clock_gettime(CLOCK_MONOTONIC, &now)
        let time = UInt64(clamping: now.tv_sec) *| 1000 +| UInt64(clamping: now.tv_nsec / 1_000_000)
        guard time -| last.load(ordering: .relaxed) >= 50 else { return false }
        last.store(time, ordering: .relaxed)
        return true
    }
}
