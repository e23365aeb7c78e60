internal import DownloadModel
internal import PartFiles
internal import Transport

/// Where bytes gather on their way from libcurl to a part file: one for all transfers, since libcurl serves them one after another.
///
/// It is flushed when full, when another transfer's bytes come, and after every turn.
final class StagingBuffer {
    /// With what libcurl holds, and what is written before there is a map, 1 MiB: a kill loses no more.
    static let size = (1 << 20) - Int(WrittenMap.threshold) - Exchange.bufferSize

    private let storage = UnsafeMutableRawBufferPointer.allocate(byteCount: StagingBuffer.size, alignment: 4096)
    private var count = 0
    private var transfer: Transfer?
    /// Called after every write.
    private let wrote: () -> Void

    init(_ wrote: @escaping () -> Void) { self.wrote = wrote }

    deinit { storage.deallocate() }

    /// Bytes of `transfer` that are not written yet.
    func pending(of transfer: Transfer) -> ByteCount { self.transfer === transfer ? ByteCount(count) : 0 }

    /// Takes bytes for the end of `transfer`'s part file. A write that fails is in that part file's `error`.
    func append(_ bytes: UnsafeRawBufferPointer, for transfer: Transfer) {
        if self.transfer !== transfer {
            flush()
            self.transfer = transfer
        }
        var rest = bytes[...]
        while !rest.isEmpty {
            let taken = rest.prefix(Self.size - count)
            UnsafeMutableRawBufferPointer(rebasing: storage[count...]).copyMemory(from: UnsafeRawBufferPointer(rebasing: taken))
            count += taken.count
            rest = rest.dropFirst(taken.count)
            if count == Self.size {
                flush()
                self.transfer = transfer
            }
        }
    }

    /// Writes what is here.
    func flush() {
        guard let transfer else { return }
        if count > 0 {
            transfer.write(UnsafeRawBufferPointer(rebasing: storage[..<count]))
            wrote()
        }
        count = 0
        self.transfer = nil
    }

    /// Forgets what is here of `transfer`.
    func discard(_ transfer: Transfer) {
        guard self.transfer === transfer else { return }
        count = 0
        self.transfer = nil
    }
}
