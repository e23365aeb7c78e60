internal import DownloadModel
internal import EventLoop

/// Downloads at which earlier processes crashed. One that did it twice is set aside at the start; it would do it again at each.
@BusActor final class Culprits {
    private static let most = 2
    private let path: String
    private var counts: [UInt64: Int]

    /// Reads what crashes left, and has those of this process leave their marks. Blocks: at the start.
    init(_ path: String) {
        (self.path, counts) = (path, CrashMarks.read(path))
        CrashMarks.keep(in: path)
    }

    /// Those that are to be set aside.
    var repeated: [DownloadNumber] { counts.filter { $0.value >= Self.most }.keys.sorted().map(DownloadNumber.init) }

    /// It has ended, and that is on disk: it begins anew.
    func ended(_ number: DownloadNumber) {
        guard counts.removeValue(forKey: number.value) != nil else { return }
        let (counts, path) = (counts, path)
        DiskPool.shared.perform(at: .path(path)) {
            CrashMarks.write(counts, to: path)
        } then: {
        }
    }

    /// Forgets what is not on the list any more.
    func keep(where isThere: (DownloadNumber) -> Bool) {
        for number in counts.keys.sorted() where !isThere(DownloadNumber(number)) { ended(DownloadNumber(number)) }
    }
}
