internal import DownloadModel
internal import Glibc
internal import PartFiles
internal import Transport

/// Whether a server is alive. Its response head must be complete within the stall timeout. Its body must bring one byte a second on
/// average, in each stretch of that length. So neither silence nor a trickle blocks a transfer.
struct Liveness {
    private var since = SuspendingClock.now
    /// Wanted body bytes since `since`.
    private(set) var bytes: ByteCount = 0

    /// Starts a stretch: at a connection, a request or a body.
    mutating func restart(_ now: SuspendingClock.Instant = .now) { (since, bytes) = (now, 0) }

    mutating func count(_ more: Int) { bytes +|= ByteCount(more) }

    /// - Parameter isHolding: whether we hold back bytes that the server has sent. Then the server owes nothing.
    mutating func isStalled(_ now: SuspendingClock.Instant, timeout: Duration, isHolding: Bool) -> Bool {
        if isHolding || bytes >= max(1, ByteCount(clamping: (timeout / .seconds(1)).rounded(.up))) {
            restart(now)
            return false
        }
        return now - since > timeout
    }
}
