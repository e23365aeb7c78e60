internal import CCurl
internal import CSystem
internal import DownloadModel

/// A libcurl multi handle, which drives the exchanges added to it. Used by one thread.
package final class MultiHandle {
    private let raw: UnsafeMutableRawPointer
    /// The number of exchanges whose handle is in this one.
    private(set) var exchanges = 0
    var sockets = KnownSockets()
    /// Targets with a surplus (`KeptConnections`): no connection to them is used twice.
    private var distrusted: Set<String> = []
    private static let mostDistrusted = 1000
    /// The idle connections that are kept beside a connection of each exchange. libcurl's default is four connections for each exchange of
    /// the moment, those in use included: between two small files there is one exchange, and connections that the next files need would be
    /// closed.
    private static let mostIdle = 64

    /// The first call loads libcurl.
    package init() throws(CurlError) {
        if let text = todoku_curl_load() { throw CurlError(.other, String(cString: text)) }
        guard let raw = CCurl.multi_init() else { throw CurlError(.noMemory, "curl_multi_init failed") }
        self.raw = raw
        limitConnections()
    }

    deinit { _ = multi_cleanup(raw) }

    func isDistrusted(_ place: String) -> Bool { distrusted.contains(place) }

    func distrust(_ place: String) {
        if distrusted.count >= Self.mostDistrusted { distrusted.removeAll() }
        distrusted.insert(place)
    }

    /// The exchange keeps ownership of its handle. It removes the handle in its `deinit` at the latest.
    func add(_ easy: UnsafeMutableRawPointer) throws(CurlError) {
        let code = multi_add_handle(raw, easy)
        if code != CURLM_OK { throw CurlError(.other, "curl_multi_add_handle failed with \(code.rawValue)") }
        exchanges +|= 1
        limitConnections()
    }

    /// - Parameter easy: a handle that `add` has taken.
    func remove(_ easy: UnsafeMutableRawPointer) {
        _ = multi_remove_handle(raw, easy)
        exchanges -|= 1
        limitConnections()
    }

    /// Leaves room for a connection of each exchange beside the idle ones. If only connections in use filled libcurl's limit, libcurl would
    /// close the connection of an answer that ends, and that would look like a surplus (`KeptConnections`). After the limit has become
    /// lower, libcurl closes one idle connection with each answer that ends.
    private func limitConnections() { _ = multi_setopt(raw, CURLMOPT_MAXCONNECTS, Self.mostIdle +| exchanges) }

    /// Sends and receives without waiting, then passes each exchange that has ended to `ended`.
    package func perform(_ ended: (Exchange, CurlError?) -> Void) {
        var running: Int32 = 0
        _ = multi_perform(raw, &running)
        var left: Int32 = 0
        var done: [(Exchange, CurlError?)] = []
        while let message = multi_info_read(raw, &left) {
            guard message.pointee.msg == CURLMSG_DONE, let easy = message.pointee.easy_handle else { continue }
            var context: UnsafeMutableRawPointer?
            guard easy_getinfo(easy, CURLINFO_PRIVATE, &context) == CURLE_OK, let context else { continue }
            let exchange = Unmanaged<Exchange>.fromOpaque(context).takeUnretainedValue()  // +0: its transfer keeps it alive
            done.append((exchange, exchange.error(for: message.pointee.data.result)))
        }
        for (exchange, error) in done { ended(exchange, error) }
    }

    /// Waits until a socket in use is ready or `descriptor` is readable, at most `milliseconds`.
    package func wait(_ descriptor: Int32, milliseconds: Int32) {
        var extra = curl_waitfd(fd: descriptor, events: Int16(CURL_WAIT_POLLIN), revents: 0)
        var found: Int32 = 0
        if multi_poll(raw, &extra, 1, milliseconds, &found) != CURLM_OK {
            // Never spin on an error: wait for the descriptor alone.
            var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            _ = poll(&entry, 1, milliseconds)
        }
    }
}
