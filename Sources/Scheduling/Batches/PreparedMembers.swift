public import DownloadModel

/// The members of a new batch, made one by one. The scheduler does not know them before the batch is added.
///
/// Collects beforehand everything that the addition needs of each member, because the addition itself is one step of the thread.
public struct PreparedMembers {
    /// In the order of their numbers.
    public private(set) var entries: [ScheduledDownload] = []
    private(set) var records: [DownloadRecord] = []
    private(set) var runs = DownloadIndex.Runs()

    public init() {}

    public mutating func reserveCapacity(_ count: Int) {
        entries.reserveCapacity(count)
        records.reserveCapacity(count)
    }

    fileprivate mutating func append(_ entry: ScheduledDownload) {
        let record = entry.record
        runs.append(record)
        entries.append(entry)
        records.append(record)
    }

    /// Releases one member.
    ///
    /// - Returns: false if none is left.
    public mutating func popLast() -> Bool {
        runs = DownloadIndex.Runs()
        records.removeLast(min(1, records.count))
        return entries.popLast() != nil
    }
}

extension Scheduler {
    /// Makes a member of a new batch.
    ///
    /// - Precondition: its number is higher than those of `members`, and it names the batch.
    public func prepare(_ record: consuming DownloadRecord, in members: inout PreparedMembers) {
        sharing.join(&record)
        let entry = ScheduledDownload(record, sums: sums)
        entry.mayHavePart = false
        sharing.joinHost(of: entry)
        members.append(entry)
    }
}
