internal import CSystem
internal import Glibc

/// The folder of the database and its files. Only the user may read it, because the database contains credentials.
struct StoreFolder {
    let path: String
    /// The name of the database.
    var name = "todoku.db"

    var database: String { "\(path)/\(name)" }
    fileprivate var lockFile: String { "\(path)/todoku.lock" }
    /// A new database with all known rows of a damaged one. It is called `salvaged` once it is complete and on disk.
    var salvageDraft: String { ofDraft.database }
    var salvaged: String { "\(database).salvaged" }
    /// The same folder, with that draft as the database.
    var ofDraft: StoreFolder { StoreFolder(path: path, name: "\(name).salvage") }
    /// The draft of the database with which a reset or a restore replaces the present one.
    var resetDraft: String { "\(database).restored.new" }
    /// Whether there is a database that is not empty.
    var hasQueue: Bool {
        var status = stat()
        return stat(database, &status) == 0 && status.st_size > 0
    }
    /// The length of the log at the last commit; nil: unknown.
    var mark: LogMark? { PlainFile(lockFile)?.read(at: 0, count: LogMark.length).flatMap(LogMark.init) }

    /// Creates the folder and its parents, with mode 0700 whatever the umask. Removes the permissions of other users from an existing
    /// folder.
    func make() throws(StoreError) {
        var status = stat()
        let isThere = stat(path, &status) == 0
        guard isThere || errno == ENOENT else { throw StoreError(system: errno, "keep the queue", path) }
        // Without a database, an earlier process may have died before it flushed the folders' names.
        if !isThere || access(database, F_OK) != 0 && errno == ENOENT {
            // By bytes: for Swift, a slash and a combining mark behind it are one character.
            for end in path.utf8.indices.dropFirst() where path.utf8[end] == UInt8(ascii: "/") { _ = Self.make(String(path[..<end])) }
            let code = Self.make(path)
            guard code == 0, stat(path, &status) == 0 else { throw StoreError(system: code == 0 ? errno : code, "make a folder", path) }
        }
        guard status.st_mode & S_IFMT == S_IFDIR else { throw StoreError(system: ENOTDIR, "keep the queue", path) }
        if status.st_mode & 0o777 != 0o700, chmod(path, 0o700) != 0 { throw StoreError(system: errno, "set the permissions", path) }
    }

    /// Makes a folder unless it exists, and brings its name to disk as far as its parent can be opened.
    ///
    /// - Returns: 0 if it is there, or an error number.
    private static func make(_ path: String) -> Int32 {
        guard mkdir(path, 0o700) == 0 || errno == EEXIST else { return errno }
        _ = sync(path + "/..")
        return 0
    }

    /// Creates the file of the database, empty and with mode 0600 whatever the umask, unless it exists. SQLite gives its other files the
    /// same mode. Call before SQLite opens the file, and keep the value until SQLite has closed it.
    func makeDatabase() throws(StoreError) -> DatabaseFile {
        var isNew = true
        var descriptor = Glibc.open(database, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        if descriptor < 0, errno == EEXIST {
            isNew = false
            descriptor = Glibc.open(database, O_RDWR | O_CLOEXEC | O_NONBLOCK)
        }
        guard descriptor >= 0 else {
            if !isNew, [EIO, EACCES, EPERM, ELOOP, EISDIR, ENXIO].contains(errno) {
                throw StoreError(.unreadable, "The database \(database) cannot be read: \(String(cString: strerror(errno))).")
            }
            throw StoreError(system: errno, "open the database", database)
        }
        var file = DatabaseFile(adopting: descriptor, isNew: isNew, folder: self)
        guard fstat(descriptor, &file.status) == 0, file.status.st_mode & S_IFMT == S_IFREG else {
            throw StoreError(.unreadable, "The database \(database) is not a file.")
        }
        if file.status.st_mode & 0o777 != 0o600, fchmod(descriptor, 0o600) != 0 {
            throw StoreError(system: errno, "set the permissions", database)
        }
        return file
    }

    /// Deletes what an interrupted process has left of the draft.
    func deleteSalvageDraft() { for suffix in ["", "-wal", "-shm"] { unlink(salvageDraft + suffix) } }

    /// The file that has the database's name; nil: none.
    var id: FileID? { FileID(database) }

    /// Takes the lock that makes a daemon the only one in this folder.
    ///
    /// - Parameter wait: how long to wait for another daemon that is about to end.
    func lock(wait: Duration) throws(StoreError) -> FolderLock {
        let descriptor = Glibc.open(lockFile, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw StoreError(system: errno, "open the lock", lockFile) }
        let lock = FolderLock(adopting: descriptor)
        let deadline = ContinuousClock.now + wait
        while flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
            guard errno == EWOULDBLOCK || errno == EINTR else { throw StoreError(system: errno, "take the lock", lockFile) }
            guard ContinuousClock.now < deadline else {
                throw StoreError(.inUse, "Another Todoku uses the folder \(path); end it and try again.")
            }
            var pause = timespec(tv_sec: 0, tv_nsec: 5_000_000)
            nanosleep(&pause, nil)
        }
        return lock
    }
}

/// The file of the database, open beside SQLite. Closing any descriptor of the file would drop SQLite's locks (fcntl(2)).
struct DatabaseFile: ~Copyable {
    private let descriptor: Int32
    private let folder: StoreFolder
    fileprivate var status = stat()
    /// Whether the file did not exist before.
    let isNew: Bool
    /// Whether a session that did not close has left its log.
    let hasLog: Bool

    fileprivate init(adopting descriptor: Int32, isNew: Bool, folder: StoreFolder) {
        (self.descriptor, self.isNew, self.folder) = (descriptor, isNew, folder)
        hasLog = access(folder.database + "-wal", F_OK) == 0
    }

    deinit { close(descriptor) }

    var id: FileID { FileID(status) }

    /// Keeps other files from getting this file's inode number while the value lives, even after SQLite has closed the file and it was
    /// deleted.
    func hold() -> HeldFile { HeldFile(id, Glibc.open("/proc/self/fd/\(descriptor)", todoku_o_path | O_CLOEXEC)) }

    /// Whether the file was empty when it was opened.
    var isEmpty: Bool { status.st_size == 0 }

    /// Whether the file still has the database's name.
    var isInPlace: Bool { folder.id == id }

    /// Brings to disk what SQLite has written to the file, and the names of the file and its folder.
    func sync() throws(StoreError) {
        guard fdatasync(descriptor) == 0 else { throw StoreError(system: errno, "save the queue", folder.database) }
        guard StoreFolder.sync(folder.path) else { throw StoreError(system: errno, "save the queue", folder.path) }
        // `make` may have created these folders, up to ~/.local. Folders of other users may be inaccessible.
        _ = StoreFolder.sync(folder.path + "/..")
        _ = StoreFolder.sync(folder.path + "/../..")
    }
}

extension StoreFolder {
    static func sync(_ path: String) -> Bool {
        let descriptor = Glibc.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        return fsync(descriptor) == 0
    }
}

/// A lock on the folder, by flock(2). It ends with this value, or with the process in any case.
struct FolderLock: ~Copyable {
    private let descriptor: Int32
    fileprivate init(adopting descriptor: Int32) { self.descriptor = descriptor }
    deinit { close(descriptor) }

    /// Notes the length of the log; nil: no log. The note is not flushed, but outlives the process. A lost note only makes salvaging less
    /// certain.
    func note(_ mark: LogMark?) {
        guard let bytes = mark?.bytes else {
            ftruncate(descriptor, 0)
            return
        }
        _ = bytes.withUnsafeBytes { pwrite(descriptor, $0.baseAddress, $0.count, 0) }
    }

    /// Whether this is still the lock of `folder`.
    func isInPlace(of folder: StoreFolder) -> Bool {
        var status = stat()
        return fstat(descriptor, &status) == 0 && FileID(folder.lockFile) == FileID(status)
    }
}

/// A file that SQLite may have closed. No later file can be mistaken for it, because its inode is held and cannot be reused.
final class HeldFile {
    let id: FileID
    /// Only holds the inode: closing any other descriptor of the file would drop SQLite's locks (fcntl(2)). -1: could not be opened.
    private let descriptor: Int32

    fileprivate init(_ id: FileID, _ descriptor: Int32) { (self.id, self.descriptor) = (id, descriptor) }
    deinit { if descriptor >= 0 { close(descriptor) } }
}

/// Identifies a file as long as it exists.
struct FileID: Equatable {
    private let device: dev_t
    private let inode: ino_t

    fileprivate init(_ status: stat) { (device, inode) = (status.st_dev, status.st_ino) }

    fileprivate init?(_ path: String) {
        var status = stat()
        guard lstat(path, &status) == 0 else { return nil }
        self.init(status)
    }
}
