internal import CSystem
public import DownloadModel
internal import EventLoop
internal import Glibc
internal import Synchronization

/// A caller's descriptor of a regular file that we write into. Closed with the last reference.
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
    /// - Parameter reading: whether the written bytes must be read again, for a checksum.
    public func obstacle(reading: Bool) -> Refusal? {
        func refused(_ what: String) -> Refusal {
            Refusal(.invalidOption, "fd: \(what); DownloadToFd takes the descriptor of a regular file that is open for writing.")
        }
        var status = stat()
        let flags = fcntl(number, F_GETFL)
        guard flags >= 0, fstat(number, &status) == 0 else {
            return refused("the descriptor cannot be used (\(String(cString: strerror(errno))))")
        }
        switch status.st_mode & S_IFMT {
        case S_IFREG: break
        case S_IFDIR: return refused("it belongs to a folder")
        case S_IFIFO: return refused("it belongs to a pipe")
        case S_IFSOCK: return refused("it belongs to a socket")
        case S_IFCHR, S_IFBLK: return refused("it belongs to a device")
        default: return refused("it does not belong to a file")
        }
        if flags & todoku_o_path != 0 { return refused("it was opened with O_PATH, and gives no access") }
        guard flags & O_ACCMODE != O_RDONLY else { return refused("it is open for reading only") }
        if flags & O_APPEND != 0 { return refused("it was opened with O_APPEND, and writes at the end only") }
        if flags & todoku_o_direct != 0 { return refused("it was opened with O_DIRECT") }
        if reading, flags & O_ACCMODE == O_WRONLY {
            return Refusal(.invalidOption, "Option checksum: the descriptor must be open for reading as well.")
        }
        let seals = todoku_get_seals(number)
        if seals > 0, seals & (todoku_seal_write | todoku_seal_grow | todoku_seal_shrink) != 0 {
            return refused("the memory file is sealed against writing")
        }
        let (isInMemory, identity) = (todoku_is_unbounded_memory(number), try? fileIdentity(of: number, boot: bootIdentity()))
        found.withLock { $0 = Found(isInMemory: isInMemory, identity: identity) }
        return nil
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
