internal import DownloadModel
internal import EventLoop
internal import Scheduling

/// The downloads at which earlier processes crashed. A download with two crashes is set aside at startup, because it would crash this
/// process too.
@BusActor final class Culprits: DownloadObserver {
    private static let most = 2
    private let path: String
    private var counts: [UInt64: Int]

    /// Reads the marks of earlier crashes, and makes a crash of this process leave a mark. Blocks, so call it at startup.
    init(_ path: String) {
        (self.path, counts) = (path, CrashMarks.read(path))
        CrashMarks.keep(in: path)
    }

    /// The downloads to set aside.
    var repeated: [DownloadNumber] { counts.filter { $0.value >= Self.most }.keys.sorted().map(DownloadNumber.init) }

    func ended(_ download: ManagedDownload, _ owed: Scheduler.OwedToast?) { forget(download.number) }

    /// Clears the crash count of a download whose end is on disk.
    private func forget(_ number: DownloadNumber) {
        guard counts.removeValue(forKey: number.value) != nil else { return }
        let (counts, path) = (counts, path)
        DiskPool.shared.perform(at: .path(path)) {
            CrashMarks.write(counts, to: path)
        } then: {
        }
    }

    /// Clears the crash counts of all downloads for which `isThere` is false.
    func keep(where isThere: (DownloadNumber) -> Bool) {
        for number in counts.keys.sorted() where !isThere(DownloadNumber(number)) { forget(DownloadNumber(number)) }
    }
}
