internal import DownloadModel
internal import Glibc

extension WallTime {
    /// CLOCK_REALTIME.
    static var now: WallTime {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return WallTime(microseconds: UInt64(clamping: time.tv_sec) *| 1_000_000 +| UInt64(clamping: time.tv_nsec / 1000))
    }
}
