internal import DBus
internal import DownloadModel
internal import EventLoop

/// Connections whose calls wait for an answer: how many each has, and that they are forgotten when it leaves the bus.
@BusActor final class Callers {
    private struct Caller {
        var waiting = 0
        let subscription: Connection.Subscription
        /// The downloads and batches that its calls wait for.
        var numbers: Set<DownloadNumber> = []
    }

    private let connection: Connection
    private var callers: [String: Caller] = [:]
    var changed: (() -> Void)?

    init(connection: Connection) { self.connection = connection }

    /// Whether any call waits: it keeps the service.
    var anyWaits: Bool { !callers.isEmpty }

    /// Keeps `reply` until `download` ends.
    ///
    /// - Throws: `LimitExceeded` beyond 256 waiting calls of one connection.
    func wait(_ reply: Reply<String>, for download: ManagedDownload) throws(Refusal) {
        try begin(reply.call.sender, download.number, download.downloader)
        download.waiting.append(reply)
    }

    /// Keeps `reply` until `batch` ends.
    func wait(_ reply: Reply<(UInt32, UInt32, UInt32)>, for batch: ManagedBatch) throws(Refusal) {
        try begin(reply.call.sender, batch.number, batch.downloader)
        batch.waiting.append(reply)
    }

    /// Counts `reply`, which is kept until `batch` is off the list.
    func wait(_ reply: Reply<Void>, forRemovalOf batch: ManagedBatch) throws(Refusal) {
        try begin(reply.call.sender, batch.number, batch.downloader)
    }

    private func begin(_ sender: String, _ number: DownloadNumber, _ downloader: Downloader) throws(Refusal) {
        var caller =
            callers[sender]
            ?? Caller(
                subscription: connection.watchOwner(of: sender) { [weak self, weak downloader] owner in
                    if owner == nil, let downloader { self?.left(sender, downloader) }
                })
        guard caller.waiting < Limits.waitingCallsPerConnection else {
            throw Refusal(.limitExceeded, "At most \(Limits.waitingCallsPerConnection) calls of one connection may wait.")
        }
        caller.waiting += 1
        caller.numbers.insert(number)
        callers[sender] = caller
    }

    /// All waiting calls of a download or a batch are being answered; a sender is named once for each of its calls.
    func answered(_ senders: [String], _ number: DownloadNumber) {
        for sender in senders {
            guard var caller = callers[sender] else { continue }
            caller.waiting -= 1
            caller.numbers.remove(number)
            callers[sender] = caller
            if caller.waiting == 0 { forget(sender) }
        }
        if !senders.isEmpty { changed?() }
    }

    private func left(_ sender: String, _ downloader: Downloader) {
        guard let caller = callers[sender] else { return }
        for number in caller.numbers {
            downloader.download(number)?.waiting.removeAll { $0.call.sender == sender }
            downloader.batch(number)?.forget(sender)
        }
        forget(sender)
        changed?()
    }

    private func forget(_ sender: String) {
        if let caller = callers.removeValue(forKey: sender) { connection.unsubscribe(caller.subscription) }
    }
}
