internal import CSystem
internal import Glibc

/// Microseconds since the Unix epoch, by CLOCK_REALTIME (clock_gettime(2)); 0 before the epoch.
public func wallClock() -> UInt64 {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    let seconds = UInt64(clamping: time.tv_sec).multipliedReportingOverflow(by: 1_000_000)
    return seconds.overflow ? .max : seconds.partialValue &+ UInt64(clamping: time.tv_nsec / 1000)
}
