internal import DBus
internal import DownloadModel
internal import EventLoop
internal import Scheduling

/// The connections whose calls wait for an answer, with the number of these calls. A connection that leaves the bus is forgotten.
@BusActor final class Callers: DownloadObserver {
    private struct Caller {
        var waiting = 0
        let subscription: Connection.Subscription
        /// The downloads and batches that these calls wait for.
        var numbers: Set<DownloadNumber> = []
    }

    private let connection: Connection
    private let list: DownloadList
    private var callers: [String: Caller] = [:] { didSet { hold.isHeld = !callers.isEmpty } }
    private let hold: IdleExit.Hold
    /// The number of each connection's calls that will wait for a download that is not added yet.
    private var arriving: [String: Int] = [:]
    /// The unanswered calls of `WaitAll`, in the order of their arrival.
    private var groups: [WaitGroup] = []
    /// Grows with each call of `WaitAll`, and so separates downloads listed before the call from later ones.
    private var tick: UInt64 = 0
    /// When, in ticks, a download was listed, or restarted after an end, while `WaitAll` calls wait. Only calls with a greater tick wait
    /// for it.
    private var liveSince: [DownloadNumber: UInt64] = [:]

    /// - Parameter hold: held while any call waits.
    init(connection: Connection, list: DownloadList, hold: IdleExit.Hold) {
        (self.connection, self.list, self.hold) = (connection, list, hold)
    }

    /// Keeps `reply` until `download` ends.
    ///
    /// - Throws: `LimitExceeded` beyond 256 waiting calls of one connection.
    func wait(_ reply: Reply<String>, for download: ManagedDownload) throws(Refusal) {
        try admit(reply.call.sender, waitsFor: download.number)
        kept(download).waiting.append(reply)
    }

    /// Keeps `reply`, of a Fetch, until `download` ends.
    func wait(_ reply: FetchReply, for download: ManagedDownload) throws(Refusal) {
        try admit(reply.call.sender, waitsFor: download.number)
        kept(download).fetching.append(reply)
    }

    /// Keeps `reply` until `batch` ends.
    func wait(_ reply: Reply<(UInt32, UInt32, UInt32)>, for batch: ManagedBatch) throws(Refusal) {
        try admit(reply.call.sender, waitsFor: batch.number)
        batch.waiting.append(reply)
    }

    /// Counts `reply` as waiting. The batch itself keeps the reply until it is off the list.
    func wait(_ reply: Reply<Void>, forRemovalOf batch: ManagedBatch) throws(Refusal) {
        try admit(reply.call.sender, waitsFor: batch.number)
    }

    /// Keeps `group` until the last download that it waits for has ended. From now on, the group counts all ends.
    ///
    /// - Throws: `LimitExceeded` beyond 256 waiting calls of one connection.
    func wait(_ group: WaitGroup) throws(Refusal) {
        try admit(group.sender, waitsFor: nil)
        groups.append(group)
    }

    /// `group` has counted all downloads that it waits for.
    ///
    /// - Returns: whether all these downloads have ended; false also if the caller has left.
    /// - Throws: `LimitExceeded` for too many downloads selected by state or metadata; the group is then forgotten.
    func endGathering(_ group: WaitGroup) throws(Refusal) -> Bool {
        guard groups.contains(where: { $0 === group }) else { return false }
        group.endGathering()
        let held = groups.lazy.filter { $0.sender == group.sender }.reduce(0) { $0 + ($1.members?.count ?? 0) }
        let isTooMany = held > Limits.waitedByStatePerConnection && group.members?.isEmpty == false
        guard group.isDone || isTooMany else { return false }
        forget(group)
        guard !isTooMany else {
            throw Refusal(
                .limitExceeded,
                "One connection may wait for at most \(Limits.waitedByStatePerConnection) downloads that its filters select by state or metadata."
            )
        }
        return true
    }

    func forget(_ group: WaitGroup) {
        dropGroups { $0 === group }
        answered(group.sender, nil)
    }

    /// When a download was listed, or restarted after an end, in ticks; 0: before the first waiting call of `WaitAll`.
    func liveTick(of number: DownloadNumber) -> UInt64 { liveSince[number] ?? 0 }

    func nextTick() -> UInt64 {
        tick += 1
        return tick
    }

    func changed(_ change: Scheduler.Change) {
        if change.before.state.hasEnded, !change.entry.state.hasEnded { began(change.entry.number) }
    }

    func removed(_ entry: ScheduledDownload) { forget(entry.number) }

    /// A download was listed, or restarted after an end.
    func began(_ number: DownloadNumber) { if !groups.isEmpty { liveSince[number] = tick } }

    /// A download left the list, and cannot end again.
    func forget(_ number: DownloadNumber) { liveSince[number] = nil }

    /// Counts a call of `sender` that will wait. `arrived` ends this count.
    func arrives(_ sender: String) throws(Refusal) {
        try checkLimit(sender)
        arriving[sender, default: 0] += 1
    }

    func arrived(_ sender: String) {
        if let count = arriving[sender] { arriving[sender] = count > 1 ? count - 1 : nil }
    }

    private func checkLimit(_ sender: String) throws(Refusal) {
        guard (callers[sender]?.waiting ?? 0) + arriving[sender, default: 0] < Limits.waitingCallsPerConnection else {
            throw Refusal(.limitExceeded, "At most \(Limits.waitingCallsPerConnection) calls of one connection may wait.")
        }
    }

    /// Returns the kept object of the download, so that the waiting call is not lost.
    private func kept(_ download: ManagedDownload) -> ManagedDownload { list.download(download.number) ?? download }

    private func admit(_ sender: String, waitsFor number: DownloadNumber?) throws(Refusal) {
        try checkLimit(sender)
        var caller =
            callers[sender]
            ?? Caller(
                subscription: connection.watchOwner(of: sender) { [weak self] owner in if owner == nil { self?.left(sender) } })
        caller.waiting += 1
        if let number { caller.numbers.insert(number) }
        callers[sender] = caller
    }

    /// Removes and returns the Fetch calls that wait for a download that could not be saved.
    func release(_ download: ManagedDownload) -> [FetchReply] {
        let fetching = download.fetching
        download.fetching = []
        answered(fetching.map(\.call.sender), download.number)
        return fetching
    }

    /// Ends the count of calls that are being answered for a download or batch. `senders` names a connection once for each of its calls.
    func answered(_ senders: [String], _ number: DownloadNumber) {
        for sender in senders { answered(sender, number) }
    }

    /// Removes and returns the calls of `WaitAll` for which `download` was the last. The caller must answer them now.
    func groupsDone(by download: ManagedDownload) -> [WaitGroup] {
        // No group has counted a download that was not on disk.
        guard !groups.isEmpty, download.entry.isEntered else { return [] }
        let since = liveTick(of: download.number)
        let done = groups.filter { $0.take(download, liveSince: since) }
        guard !done.isEmpty else { return [] }
        dropGroups(where: \.isDone)
        for group in done { answered(group.sender, nil) }
        return done
    }

    private func dropGroups(where isOver: (WaitGroup) -> Bool) {
        groups.removeAll(where: isOver)
        if groups.isEmpty { liveSince = [:] }
    }

    private func answered(_ sender: String, _ number: DownloadNumber?) {
        guard var caller = callers[sender] else { return }
        caller.waiting -= 1
        if let number { caller.numbers.remove(number) }
        callers[sender] = caller
        if caller.waiting == 0 { forget(sender) }
    }

    private func left(_ sender: String) {
        guard let caller = callers[sender] else { return }
        for number in caller.numbers {
            list.lively(number)?.waiting.removeAll { $0.call.sender == sender }
            list.lively(number)?.fetching.removeAll { $0.call.sender == sender }
            list.batch(number)?.forget(sender)
        }
        dropGroups { $0.sender == sender }
        forget(sender)
    }

    private func forget(_ sender: String) {
        if let caller = callers.removeValue(forKey: sender) { connection.unsubscribe(caller.subscription) }
    }
}
