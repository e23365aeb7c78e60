internal import DownloadModel
internal import Glibc

/// How far a part file is written, in a file of one 16-byte slot: first byte and end of the written prefix, as little-endian 64-bit numbers.
///
/// It lives in the page cache like the bytes it tells of, so it survives the death of this process exactly as they do; it is never flushed,
/// and says nothing after a restart of the machine.
final class WrittenMap {
    /// A map is made once this many bytes are written.
    static let threshold: ByteCount = 1 << 20

    private let descriptor: Int32

    /// Opens the map, or makes one. nil where that fails: then checkpoints count alone.
    init?(_ path: String) {
        descriptor = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { return nil }
    }

    deinit { close(descriptor) }

    /// Says that the part file is written up to `end`; call after the `pwrite`.
    func save(_ end: ByteCount) {
        let slot = (UInt64(0).littleEndian, end.littleEndian)
        withUnsafeBytes(of: slot) { _ = pwrite(descriptor, $0.baseAddress, $0.count, 0) }
    }

    /// The end of the written prefix; nil where there is no map, or none that begins with the first byte.
    static func read(_ path: String) -> ByteCount? {
        let descriptor = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var slot: (UInt64, UInt64) = (0, 0)
        let count = withUnsafeMutableBytes(of: &slot) { pread(descriptor, $0.baseAddress, $0.count, 0) }
        guard count == 16, slot.0 == 0 else { return nil }
        return UInt64(littleEndian: slot.1)
    }
}
