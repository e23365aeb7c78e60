internal import CSQLite
internal import Glibc

/// Why the queue could not be opened or saved.
public struct StoreError: Error, Equatable, Sendable, CustomStringConvertible {
    public enum Reason: Equatable, Sendable {
        /// Another daemon, or another program, uses the database.
        case inUse
        /// A newer Todoku has written it.
        case newerVersion
        /// No room, or a quota.
        case diskFull
        /// The file is not one of our databases, is partly wrong, or is gone. `open` sets such a file aside by itself.
        case damaged
        /// The file cannot be read. `open` sets it aside if that happens twice.
        case unreadable
        /// `open` has not succeeded, or `close` was called.
        case notOpen
        /// Anything else: permissions, a read-only file system, a failing disk.
        case storage
    }

    public let reason: Reason
    /// One English sentence that tells the user what to do.
    public let message: String

    public var description: String { message }

    public init(_ reason: Reason, _ message: String) { (self.reason, self.message) = (reason, message) }

    /// Turns a result code of SQLite into a reason; the only place that does.
    ///
    /// - Parameter isOpening: the statements are known to be right, so an error in a statement is the schema's fault.
    init(_ error: SQLiteError, _ folder: StoreFolder, isOpening: Bool = false) {
        let cause = error.systemCode == 0 ? error.message : "\(error.message) (\(String(cString: strerror(error.systemCode))))"
        let path = folder.database
        switch error.code {
        case SQLITE_FULL: self.init(system: ENOSPC, "save the queue", path)
        case SQLITE_IOERR where [ENOSPC, EDQUOT].contains(error.systemCode): self.init(system: error.systemCode, "save the queue", path)
        case SQLITE_IOERR where [SQLITE_IOERR | 1 << 8, SQLITE_IOERR | 2 << 8].contains(error.extendedCode):  // _READ, _SHORT_READ
            self.init(.unreadable, "The database \(path) cannot be read: \(cause).")
        case SQLITE_NOTADB, SQLITE_CORRUPT:
            self.init(.damaged, "The database \(path) is damaged: \(cause); it is set aside when Todoku starts again.")
        case SQLITE_ERROR where isOpening:
            self.init(.damaged, "The database \(path) is damaged: \(cause); it is set aside when Todoku starts again.")
        case SQLITE_BUSY, SQLITE_LOCKED: self.init(.inUse, "Another program holds the database \(path); close it and try again.")
        case SQLITE_READONLY, SQLITE_PERM, SQLITE_CANTOPEN, SQLITE_AUTH:
            self.init(
                .storage, "Todoku may not write the database \(path): \(cause); check who owns it and whether its file system is read-only."
            )
        default: self.init(.storage, "The database \(path) could not be used: \(cause).")
        }
    }

    /// Whether the file is at fault, so that a new file would do.
    var isOfTheFile: Bool { reason == .damaged || reason == .unreadable }

    /// A failed system call on `path`.
    init(system code: Int32, _ action: String, _ path: String) {
        switch code {
        case ENOSPC, EDQUOT: self.init(.diskFull, "There is not enough room to \(action) in \(path); free some and try again.")
        default: self.init(.storage, "Todoku cannot \(action) in \(path): \(String(cString: strerror(code))).")
        }
    }
}
