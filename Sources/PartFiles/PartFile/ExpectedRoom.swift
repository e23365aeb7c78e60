internal import DownloadModel
internal import Synchronization

/// Bytes that a part file still expects, on a file system that has reserved no room for them. Other part files of this process leave room
/// for these bytes while this object lives.
final class ExpectedRoom {
    /// By device number.
    private static let sums = Mutex<[UInt64: ByteCount]>([:])

    private let device: UInt64
    var bytes: ByteCount { didSet { Self.replace(oldValue, by: bytes, on: device) } }

    init(_ bytes: ByteCount, onDiskOf identity: FileIdentity) {
        (device, self.bytes) = (identity.device, bytes)
        Self.replace(0, by: bytes, on: device)
    }

    deinit { Self.replace(bytes, by: 0, on: device) }

    /// The bytes that all part files on the disk of this file expect.
    static func sum(onDiskOf identity: FileIdentity) -> ByteCount { sums.withLock { $0[identity.device] ?? 0 } }

    private static func replace(_ old: ByteCount, by new: ByteCount, on device: UInt64) {
        sums.withLock { sums in
            let sum = (sums[device] ?? 0) -| old +| new
            sums[device] = sum > 0 ? sum : nil
        }
    }
}
