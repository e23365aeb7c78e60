internal import DownloadModel
internal import PartFiles
internal import Transport

/// Gathers bytes on their way from libcurl to a part file. All segments share one buffer, because libcurl serves one at a time.
///
/// Flushed when full, when bytes of another segment arrive, and after every turn.
final class StagingBuffer {
    /// With libcurl's buffer and the bytes written before the first written map, the size is 1 MiB, the most that a kill loses.
    static let size = (1 << 20) - Int(WrittenMap.threshold) - Exchange.bufferSize

    private let storage = UnsafeMutableRawBufferPointer.allocate(byteCount: StagingBuffer.size, alignment: 4096)
    private var count = 0
    private var segment: Segment?
    /// Called after every write.
    private let wrote: () -> Void

    init(_ wrote: @escaping () -> Void) { self.wrote = wrote }

    deinit { storage.deallocate() }

    /// Takes the next bytes of `segment` for its part file. A failed write sets the `error` of that part file.
    func append(_ bytes: UnsafeRawBufferPointer, for segment: Segment) {
        if self.segment !== segment {
            flush()
            self.segment = segment
        }
        var rest = bytes[...]
        while !rest.isEmpty {
            let taken = rest.prefix(Self.size - count)
            UnsafeMutableRawBufferPointer(rebasing: storage[count...]).copyMemory(from: UnsafeRawBufferPointer(rebasing: taken))
            count += taken.count
            rest = rest.dropFirst(taken.count)
            if count == Self.size {
                flush()
                self.segment = segment
            }
        }
    }

    /// Writes the buffered bytes.
    func flush() {
        guard let segment else { return }
        if count > 0 {
            segment.write(UnsafeRawBufferPointer(rebasing: storage[..<count]))
            wrote()
        }
        count = 0
        self.segment = nil
    }

    /// Drops the buffered bytes of `transfer`.
    func discard(_ transfer: Transfer) {
        guard segment?.transfer === transfer else { return }
        count = 0
        segment = nil
    }
}
