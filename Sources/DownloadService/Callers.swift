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
    var changed: (() -> Void)?

    init(connection: Connection) { self.connection = connection }

    /// Whether any call waits: it keeps the service.
    var anyWaits: Bool { !callers.isEmpty }

    /// Keeps `reply` until `download` ends.
    ///
    /// - Throws: `LimitExceeded` beyond 256 waiting calls of one connection.
    func wait(_ reply: Reply<String>, for download: ManagedDownload) throws(Refusal) {
        let sender = reply.call.sender
        var caller =
            callers[sender]
            ?? Caller(
                subscription: connection.watchOwner(of: sender) { [weak self, weak downloader = download.downloader] owner in
                    if owner == nil, let downloader { self?.left(sender, downloader) }
                })
        guard caller.waiting < Limits.waitingCallsPerConnection else {
            throw Refusal(.limitExceeded, "At most \(Limits.waitingCallsPerConnection) calls of one connection may wait.")
        }
        caller.waiting += 1
        caller.downloads[download.number, default: 0] += 1
        callers[sender] = caller
        download.kept.waiting.append(reply)
    }

    /// The waiting calls of `download` are being answered.
    func answered(_ replies: [Reply<String>], for download: ManagedDownload) {
        for reply in replies {
            let sender = reply.call.sender
            guard var caller = callers[sender] else { continue }
            caller.waiting -= 1
            caller.downloads[download.number] = nil
            callers[sender] = caller
            if caller.waiting == 0 { forget(sender) }
        }
        if !replies.isEmpty { changed?() }
    }

    private func left(_ sender: String, _ downloader: Downloader) {
        guard let caller = callers[sender] else { return }
        for number in caller.downloads.keys {
            downloader.download(number)?.waiting.removeAll { $0.call.sender == sender }
        }
        forget(sender)
        changed?()
    }

    private func forget(_ sender: String) {
        if let caller = callers.removeValue(forKey: sender) { connection.unsubscribe(caller.subscription) }
    }
}
