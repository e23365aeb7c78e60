internal import DownloadModel
internal import Glibc
internal import PartFiles
internal import Transport

/// Whether a server that is spoken to is alive: its response head must be whole within the stall timeout, and in every such stretch of its
/// body at least one byte a second must come on average. So neither silence nor a trickle holds a transfer.
struct Liveness {
    private var since = SuspendingClock.now
    /// Wanted body bytes since then.
    private(set) var bytes: ByteCount = 0

    /// Begins a stretch: a connection, a request, a body.
    mutating func restart(_ now: SuspendingClock.Instant = .now) { (since, bytes) = (now, 0) }

    mutating func count(_ more: Int) { bytes +|= ByteCount(more) }

    /// - Parameter isHolding: whether it is we who hold back what the server has sent; then it owes nothing.
    mutating func isStalled(_ now: SuspendingClock.Instant, timeout: Duration, isHolding: Bool) -> Bool {
        if isHolding || bytes >= max(1, ByteCount(clamping: (timeout / .seconds(1)).rounded(.up))) {
            restart(now)
            return false
        }
        return now - since > timeout
    }
}
