internal import EventLoop
internal import Glibc

/// The folder in which todoku-push keeps its state: one small file for each registration and each message, and the files `settings` and
/// `starts`. Each file is a record (`a{sv}` in D-Bus' wire format), is replaced atomically, and has mode 0600.
///
/// All functions block.
public struct PushFolder: Sendable {
    /// The folders below it. A file is named by the token of its registration, or the id of its message.
    public static let registrations = "registrations"
    public static let messages = "messages"
    /// Most bytes of a file.
    public static let longest = 1 << 20
    /// Most registrations.
    public static let mostRegistrations = 1000

    public let path: String

    /// - Parameter path: absolute.
    public init(_ path: String) { self.path = path }

    /// Makes the folder with its parents and the folders below it, unless they are there.
    ///
    /// - Returns: 0, or the error number of what cannot be used.
    public func make() -> Int32 { make { _ = Self.flush($0) } }

    /// - Parameter flush: brings the names in a folder to disk. Tests replace it.
    func make(flush: (_ folder: String) -> Void) -> Int32 {
        // If nobody has taken the lock yet, an earlier process may have made the folders, and died before it flushed their names.
        let isFirst = !has(Self.lockName)
        func makeOne(_ path: String) { if mkdir(path, 0o700) == 0 || isFirst { flush("\(path)/..") } }
        var parent = ""
        // By bytes: for Swift, a slash and a combining mark behind it are one character.
        for component in path.utf8.split(separator: UInt8(ascii: "/")) {
            parent += "/\(Substring(component))"
            makeOne(parent)
        }
        for part in [Self.registrations, Self.messages] {
            makeOne("\(path)/\(part)")
            guard access("\(path)/\(part)", R_OK | W_OK | X_OK) == 0 else { return errno }
        }
        return 0
    }

    /// Names of records in a folder below this one, in alphabetical order.
    ///
    /// - Parameter cleansUp: whether to delete what an interrupted write left behind. Only the holder of the lock may do that.
    /// - Returns: nil if the folder cannot be read, and errno says why. A folder that is not there has no records.
    public func names(in part: String, cleansUp: Bool = false) -> [String]? {
        guard let names = folderNames("\(path)/\(part)") else { return errno == ENOENT ? [] : nil }
        for name in names where cleansUp && name.hasPrefix(Self.newPrefix) { unlink("\(path)/\(part)/\(name)") }
        return names.filter { !$0.hasPrefix(".") }.sorted()
    }

    /// The content of a file.
    ///
    /// - Parameter name: below the folder, as "registrations/TOKEN".
    /// - Returns: nil if it is not there, cannot be read, is no file, or is too long.
    public func bytes(_ name: String) -> [UInt8]? {
        let file = open("\(path)/\(name)", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { close(file) }
        return try? readToEnd(file, atMost: Self.longest)
    }

    /// Whether there is a file, or anything else, of that name.
    public func has(_ name: String) -> Bool {
        var status = stat()
        return lstat("\(path)/\(name)", &status) == 0
    }

    // MARK: Writing

    private static let newPrefix = ".new-"

    /// Writes a file and flushes it. Flush its folder next.
    ///
    /// - Parameter part: the folder below this one; empty: this one.
    public func replace(_ name: String, in part: String, by bytes: [UInt8]) -> Bool {
        let parent = folder(part)
        let (path, new) = ("\(parent)/\(name)", "\(parent)/\(Self.newPrefix)\(name)")
        unlink(new)
        let file = open(new, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard file >= 0 else { return false }
        let isWritten = bytes.withUnsafeBytes { writeAll($0, to: file) } == 0 && fsync(file) == 0
        guard close(file) == 0, isWritten, rename(new, path) == 0 else {
            unlink(new)
            return false
        }
        return true
    }

    /// Deletes a file. Flush its folder next.
    public func delete(_ name: String, in part: String) -> Bool { unlink("\(folder(part))/\(name)") == 0 || errno == ENOENT }

    /// Deletes what an interrupted write of a file of this folder itself has left.
    public func deleteDraft(of name: String) { unlink("\(path)/\(Self.newPrefix)\(name)") }

    /// Brings the names in a folder to disk.
    public func flush(in part: String) -> Bool { Self.flush(folder(part)) }

    private func folder(_ part: String) -> String { part.isEmpty ? path : "\(path)/\(part)" }

    private static func flush(_ path: String) -> Bool {
        let handle = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard handle >= 0 else { return false }
        defer { close(handle) }
        return fsync(handle) == 0
    }

    // MARK: The lock

    private static let lockName = "lock"

    /// Takes the lock that makes one process the only writer. The folder must be there.
    ///
    /// - Parameter patience: how long to wait for another process.
    /// - Returns: nil if it cannot be had, and errno says why; `EWOULDBLOCK`: another process keeps it.
    public func lock(within patience: Duration) -> PushFolderLock? {
        let descriptor = open("\(path)/\(Self.lockName)", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { return nil }
        let deadline = ContinuousClock.now + patience
        while flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
            let code = errno
            guard code == EWOULDBLOCK || code == EINTR, ContinuousClock.now < deadline else {
                close(descriptor)
                errno = code
                return nil
            }
            var pause = timespec(tv_sec: 0, tv_nsec: 5_000_000)
            nanosleep(&pause, nil)
        }
        return PushFolderLock(adopting: descriptor)
    }
}

/// A lock on the folder, by flock(2). It ends with this value, or with the process in any case.
public struct PushFolderLock: ~Copyable, Sendable {
    private let descriptor: Int32
    fileprivate init(adopting descriptor: Int32) { self.descriptor = descriptor }
    deinit { close(descriptor) }
}
