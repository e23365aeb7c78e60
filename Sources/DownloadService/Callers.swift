internal import DBus
internal import DownloadModel
internal import EventLoop

/// Connections whose calls wait for an answer: how many each has, and that they are forgotten when it leaves the bus.
@BusActor final class Callers {
    private struct Caller {
        var waiting = 0
        let subscription: Connection.Subscription
        var downloads: [DownloadNumber: Int] = [:]
    }

    private let connection: Connection
    private var callers: [String: Caller] = [:]
    /// Calls that are going to wait: their downloads are not there yet.
    private var arriving: [String: Int] = [:]
    var changed: (() -> Void)?

    init(connection: Connection) { self.connection = connection }

    /// Whether any call waits: it keeps the service.
    var anyWaits: Bool { !callers.isEmpty }

    /// Keeps `reply` until `download` ends.
    ///
    /// - Throws: `LimitExceeded` beyond 256 waiting calls of one connection.
    func wait(_ reply: Reply<String>, for download: ManagedDownload) throws(Refusal) {
        try enter(reply.call.sender, for: download)
        download.kept.waiting.append(reply)
    }

    /// The same for a Fetch.
    func wait(_ reply: FetchReply, for download: ManagedDownload) throws(Refusal) {
        try enter(reply.call.sender, for: download)
        download.kept.fetching.append(reply)
    }

    /// Counts a call of `sender` that is going to wait, until `arrived`.
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

    private func enter(_ sender: String, for download: ManagedDownload) throws(Refusal) {
        try checkLimit(sender)
        var caller =
            callers[sender]
            ?? Caller(
                subscription: connection.watchOwner(of: sender) { [weak self, weak downloader = download.downloader] owner in
                    if owner == nil, let downloader { self?.left(sender, downloader) }
                })
        caller.waiting += 1
        caller.downloads[download.number, default: 0] += 1
        callers[sender] = caller
    }

    /// Takes the calls of Fetch that wait for a download which never was.
    func letGo(_ download: ManagedDownload) -> [FetchReply] {
        let fetching = download.fetching
        download.fetching = []
        answered(fetching.map(\.call.sender), for: download)
        return fetching
    }

    /// The waiting calls of `download` are being answered.
    func answered(_ senders: [String], for download: ManagedDownload) {
        for sender in senders {
            guard var caller = callers[sender] else { continue }
            caller.waiting -= 1
            caller.downloads[download.number] = nil
            callers[sender] = caller
            if caller.waiting == 0 { forget(sender) }
        }
        if !senders.isEmpty { changed?() }
    }

    private func left(_ sender: String, _ downloader: Downloader) {
        guard let caller = callers[sender] else { return }
        for number in caller.downloads.keys {
            downloader.download(number)?.waiting.removeAll { $0.call.sender == sender }
            downloader.download(number)?.fetching.removeAll { $0.call.sender == sender }
        }
        forget(sender)
        changed?()
    }

    private func forget(_ sender: String) {
        if let caller = callers.removeValue(forKey: sender) { connection.unsubscribe(caller.subscription) }
    }
}
