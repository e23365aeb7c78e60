internal import DownloadModel
internal import Glibc
internal import PartFiles
internal import Transport

/// Bytes per second, smoothed exponentially with a time constant of 3 s and without the bias of a slow start.
struct SpeedMeter {
    private static let timeConstant = 3.0
    private var average = 0.0
    private var weight = 0.0

    /// Adds `bytes` received during `seconds` (more than 0).
    mutating func add(_ bytes: UInt64, seconds: Double) {
        let share = 1 - exp(-seconds / Self.timeConstant)
        average += share * (Double(bytes) / seconds - average)
        weight += share * (1 - weight)
    }

    var bytesPerSecond: UInt64 { weight > 0 ? UInt64(clamping: max(0, average / weight).rounded()) : 0 }
}
