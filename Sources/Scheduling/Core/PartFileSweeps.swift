internal import DownloadModel

/// The part files to delete.
struct PartFileSweeps {
    /// The deletion of the part files of one download, one after the other.
    struct Sweep {
        /// Their folders, at least one. The same folder again: there is more to delete in it.
        var folders: [String]
        /// Whether to keep the part file if the transfer that is ending leaves resume data.
        var isUnlessResumable = false
        /// Whether the first part file is being deleted.
        var isUnderWay = false

        /// The folder of the first part file; empty: a caller's descriptor, which has no row.
        var directory: String { folders[0] }
        /// What is left to delete after the first part file; nil: nothing.
        var rest: Sweep? { folders.count > 1 ? Sweep(folders: Array(folders.dropFirst())) : nil }
    }

    private var all = NumberTable<Sweep>()
    /// The folders of part files whose deletion failed, or is late. They stay in the rows for the next startup, unless the part files are
    /// written again. The download may no longer be on the list, or be in another folder.
    private(set) var failed: [DownloadNumber: [String]] = [:]
    /// The folders in which a deletion is under way that the download, in another folder now, no longer waits for.
    private var late: [DownloadNumber: [String]] = [:]

    var isEmpty: Bool { all.isEmpty && late.isEmpty }
    var numbers: [DownloadNumber] { Array(all.numbers) }
    subscript(_ number: DownloadNumber) -> Sweep? {
        get { all[number] }
        set { all[number] = newValue }
    }

    /// The row of `number`: all folders in which its part files are still to be deleted.
    func row(_ number: DownloadNumber) -> StoreChange {
        var folders = failed[number] ?? []
        for folder in all[number]?.folders ?? [] where !folder.isEmpty && !folders.has(folder) { folders.append(folder) }
        return folders.isEmpty ? .swept(number) : .sweep(number, in: folders)
    }

    /// The rows of one page of `pages`.
    func rows(page: UInt64) -> [StoreChange] { all.pages[page]?.compactMap { $1.directory.isEmpty ? nil : row($0) } ?? [] }

    var pages: [UInt64] { all.pages.keys.sorted() }

    /// Whether the download no longer waits for the deletion in this folder, which is under way.
    func isLate(_ number: DownloadNumber, in directory: @autoclosure () -> String) -> Bool { late[number]?.has(directory()) ?? false }

    /// The download no longer waits for deletions in other folders than its own, `directory`. They are late from now on.
    ///
    /// - Returns: the folders in which the deletion must begin now.
    mutating func letGo(_ number: DownloadNumber, in directory: String) -> [String] {
        guard var sweep = all[number], case let left = sweep.folders.filter({ !$0.isSameBytes(as: directory) }), !left.isEmpty else {
            return []
        }
        let hasBegun = sweep.isUnderWay && !sweep.directory.isSameBytes(as: directory)
        if hasBegun { sweep.isUnderWay = false }
        sweep.folders = sweep.folders.filter { $0.isSameBytes(as: directory) }
        all[number] = sweep.folders.isEmpty ? nil : sweep
        late[number, default: []].append(contentsOf: left)
        let known = failed[number] ?? []
        failed[number] = known + left.filter { !known.has($0) }
        return hasBegun ? Array(left.dropFirst()) : left
    }

    /// - Returns: whether the deletion that has ended was late.
    mutating func endLate(_ number: DownloadNumber, in directory: String, isGone: Bool) -> Bool {
        guard isLate(number, in: directory), let folders = late[number] else { return false }
        let rest = folders.filter { !$0.isSameBytes(as: directory) }
        late[number] = rest.isEmpty ? nil : rest
        if isGone { forgetFailure(of: number, in: directory) }
        return true
    }

    /// - Returns: the deletion that has ended; nil if no deletion was requested.
    mutating func end(_ number: DownloadNumber, isGone: Bool) -> Sweep? {
        guard let sweep = all.removeValue(for: number) else { return nil }
        forgetFailure(of: number, in: sweep.directory)
        if !isGone, !sweep.directory.isEmpty { failed[number, default: []].append(sweep.directory) }
        return sweep
    }

    /// The part file of `number` in this folder is gone, or about to be written again.
    ///
    /// - Returns: whether its deletion has failed, so that the row has the folder.
    @discardableResult mutating func forgetFailure(of number: DownloadNumber, in directory: String) -> Bool {
        guard let folders = failed[number], folders.has(directory) else { return false }
        let rest = folders.filter { !$0.isSameBytes(as: directory) }
        failed[number] = rest.isEmpty ? nil : rest
        return true
    }
}

/// Deletions in folders that a download has left. The disk of such a folder may not answer.
extension Scheduler {
    /// How long a download waits for such a deletion. On a disk that answers, it ends before the download starts: the new folder may be the
    /// former one under another path.
    static let patienceWithFormerFolder: Duration = .seconds(5)

    /// Limits the time for which `entry` waits for deletions in folders that it has left.
    func limitWait(of entry: ScheduledDownload, now: WallTime) {
        let directory = entry.record.directory
        guard sweeps[entry.number]?.folders.contains(where: { !$0.isSameBytes(as: directory) }) == true else { return }
        catchUpClock(entry)
        entry.patienceEnd = now + Self.patienceWithFormerFolder
        arm(entry)
    }

    /// `entry` no longer waits for those deletions. They continue, and their rows stay until they have ended.
    func letGo(_ entry: ScheduledDownload) {
        entry.patienceEnd = nil
        beginLate(entry.number, notIn: entry.record.directory)
        beginSweep(entry)
    }

    /// Nothing waits for the deletions in other folders than `directory` any more. Those that have not begun begin now: the disk of one
    /// folder does not delay the deletion in another.
    func beginLate(_ number: DownloadNumber, notIn directory: String) {
        for folder in sweeps.letGo(number, in: directory) { output.append(.sweep(number, directory: folder)) }
    }
}

extension [String] {
    /// Whether this folder is among the folders.
    func has(_ folder: String) -> Bool { contains { $0.isSameBytes(as: folder) } }
}
