internal import CSystem
public import DownloadModel
internal import EventLoop
internal import Glibc
internal import Synchronization

/// A caller's descriptor of a regular file that we write into, or read. Closed with the last reference.
public final class HeldDescriptor: Sendable {
    public let number: Int32
    private let found = Mutex<Found>(Found())

    private struct Found {
        var isInMemory = false
        var identity: FileIdentity?
    }

    /// Whether the file is in memory without a limit of a file system; set by `obstacle(reading:)`.
    public var isInMemory: Bool { found.withLock { $0.isInMemory } }

    /// The file's identity; set by `obstacle(reading:)`, nil if unknown.
    public var identity: FileIdentity? { found.withLock { $0.identity } }

    /// Whether the written bytes can be read again. Nobody can change this.
    package var isReadable: Bool { fcntl(number, F_GETFL) & O_ACCMODE == O_RDWR }

    /// - Parameter number: this object owns it from now on.
    public init(adopting number: Int32) { self.number = number }

    // On a network file system close(2) may wait.
    deinit { DiskPool.shared.close(number) }

    /// Why the descriptor cannot be written from the first byte of its file; nil if it can. May block: use the pool.
    ///
    /// - Parameter reading: whether the written bytes must be read again, for a digest.
    public func obstacle(reading: Bool) -> Refusal? {
        func refused(_ what: String) -> Refusal {
            Refusal(.invalidOption, "fd: \(what); DownloadToFd takes the descriptor of a regular file that is open for writing.")
        }
        var status = stat()
        let flags = fcntl(number, F_GETFL)
        guard flags >= 0, fstat(number, &status) == 0 else {
            return refused("the descriptor cannot be used (\(String(cString: strerror(errno))))")
        }
        if let fault = Self.fault(ofMode: status.st_mode) { return refused(fault) }
        if flags & todoku_o_path != 0 { return refused("it was opened with O_PATH, and gives no access") }
        guard flags & O_ACCMODE != O_RDONLY else { return refused("it is open for reading only") }
        if flags & O_APPEND != 0 { return refused("it was opened with O_APPEND, and writes at the end only") }
        if flags & todoku_o_direct != 0 { return refused("it was opened with O_DIRECT") }
        if reading, flags & O_ACCMODE == O_WRONLY {
            return Refusal(.invalidOption, "Options checksum and piece-hashes: the descriptor must be open for reading as well.")
        }
        let seals = todoku_get_seals(number)
        if seals > 0, seals & (todoku_seal_write | todoku_seal_grow | todoku_seal_shrink) != 0 {
            return refused("the memory file is sealed against writing")
        }
        let (isInMemory, identity) = (todoku_is_unbounded_memory(number), try? fileIdentity(of: number, boot: bootIdentity()))
        found.withLock { $0 = Found(isInMemory: isInMemory, identity: identity) }
        return nil
    }

    /// The whole file. May block: use the pool.
    ///
    /// - Parameters:
    ///   - most: a longer file is `LimitExceeded`.
    ///   - method: the method of the bus that got the descriptor, for the message of a refusal.
    ///   - goesOn: asked before each read of 64 KiB. If it returns false, nobody waits for the file, and it is refused.
    public func contents(most: Int, for method: String, goesOn: () -> Bool) -> Result<[UInt8], Refusal> {
        func refused(_ what: String) -> Result<[UInt8], Refusal> {
            .failure(
                Refusal(.invalidOption, "fd: \(what); \(method) takes the descriptor of a regular file that is open for reading."))
        }
        func unusable() -> Result<[UInt8], Refusal> { refused("the descriptor cannot be used (\(String(cString: strerror(errno))))") }
        var status = stat()
        let flags = fcntl(number, F_GETFL)
        guard flags >= 0, fstat(number, &status) == 0 else { return unusable() }
        if let fault = Self.fault(ofMode: status.st_mode) { return refused(fault) }
        if flags & todoku_o_path != 0 { return refused("it was opened with O_PATH, and gives no access") }
        guard flags & O_ACCMODE != O_WRONLY else { return refused("it is open for writing only") }
        if flags & todoku_o_direct != 0 { return refused("it was opened with O_DIRECT") }
        let tooLong = Refusal(.limitExceeded, "fd: the file is longer than \(HumanText.size(ByteCount(clamping: most))).")
        guard status.st_size <= most else { return .failure(tooLong) }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(max(0, Int(clamping: status.st_size)))
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        // The file may change meanwhile.
        while goesOn() {
            let count = uninterrupted { pread(number, &buffer, buffer.count, off_t(clamping: bytes.count)) }
            guard count >= 0 else { return unusable() }
            if count == 0 { return .success(bytes) }
            guard count <= most -| bytes.count else { return .failure(tooLong) }
            bytes += buffer[..<count]
        }
        return refused("the file was not read in time")
    }

    /// Why a descriptor of this kind of file cannot be used; nil for a regular file.
    private static func fault(ofMode mode: mode_t) -> String? {
        switch mode & S_IFMT {
        case S_IFREG: nil
        case S_IFDIR: "it belongs to a folder"
        case S_IFIFO: "it belongs to a pipe"
        case S_IFSOCK: "it belongs to a socket"
        case S_IFCHR, S_IFBLK: "it belongs to a device"
        default: "it does not belong to a file"
        }
    }

    /// Truncates the file to 0 bytes.
    public func empty() { _ = ftruncate(number, 0) }
}

extension DiskError {
    /// The failure of a call on a caller's descriptor. Its folder is unknown, so the download does not wait for one.
    package var descriptorFailure: DownloadFailure {
        let failure = failure(folder: "")
        return DownloadFailure(
            failure.name, "Todoku cannot write into the caller’s file: \(String(cString: strerror(code))).",
            missingBytes: failure.missingBytes)
    }
}
