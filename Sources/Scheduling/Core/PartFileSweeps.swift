internal import DownloadModel

/// The part files to delete.
struct PartFileSweeps {
    /// The deletion of one part file.
    struct Sweep {
        /// The folder of the part file; empty: a caller's descriptor, which has no row.
        let directory: String
        /// Keep the part file if the ending transfer leaves resume data.
        var isUnlessResumable = false
        var isUnderWay = false
        /// There is more to delete once the deletion has ended.
        var isRepeated = false
    }

    private var all = NumberTable<Sweep>()
    /// The folders of part files whose deletion failed. Their rows stay for the next startup, unless the part files are written again. The
    /// download may no longer be on the list.
    private(set) var failed: [DownloadNumber: String] = [:]

    var isEmpty: Bool { all.isEmpty }
    var numbers: [DownloadNumber] { Array(all.numbers) }
    subscript(_ number: DownloadNumber) -> Sweep? {
        get { all[number] }
        set { all[number] = newValue }
    }

    /// The rows of one page of `pages`.
    func rows(page: UInt64) -> [StoreChange] {
        all.pages[page]?.compactMap { $1.directory.isEmpty ? nil : .sweep($0, directory: $1.directory) } ?? []
    }

    var pages: [UInt64] { all.pages.keys.sorted() }

    /// - Returns: the deletion that has ended; nil if no deletion was requested.
    mutating func end(_ number: DownloadNumber, isGone: Bool) -> Sweep? {
        guard let sweep = all.removeValue(for: number) else { return nil }
        if isGone { failed[number] = nil } else if !sweep.directory.isEmpty { failed[number] = sweep.directory }
        return sweep
    }

    mutating func `repeat`(_ number: DownloadNumber) { all[number]?.isRepeated = true }

    /// The part file of `number` is about to be written again.
    ///
    /// - Returns: whether its deletion has failed, so that it has a row.
    mutating func forgetFailure(of number: DownloadNumber) -> Bool { failed.removeValue(forKey: number) != nil }
}
