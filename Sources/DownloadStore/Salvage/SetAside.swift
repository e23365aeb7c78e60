internal import CSystem
internal import DownloadModel
internal import EventLoop
internal import Glibc

/// Databases that were set aside. They contain passwords and headers of downloads, so they are kept no longer than those secrets.
extension StoreFolder {
    private static let prefix = "todoku.db.corrupt-"
    private static let suffixes = ["-wal", "-shm", ""]

    /// Renames the database and its files to `todoku.db.corrupt-YYYYMMDD-HHMMSS` (UTC). SQLite's tools can examine it there for a day. No
    /// connection to it may be open.
    ///
    /// - Returns: the new path; nil if there was no database.
    func setAside(at time: time_t) throws(StoreError) -> String? {
        var time = time
        var parts = tm()
        gmtime_r(&time, &parts)
        var text = [CChar](repeating: 0, count: 32)
        strftime(&text, text.count, "%Y%m%d-%H%M%S", &parts)
        let stamp = text.withUnsafeBufferPointer { String(cString: $0.baseAddress!) }
        let first = "\(database).corrupt-\(stamp)"
        var target = first
        var copy = 1
        while access(target, F_OK) == 0 {
            copy += 1
            target = "\(first)-\(copy)"
        }
        // The write-ahead log goes first: beside a new database, SQLite could take the old log for the new database's.
        for suffix in Self.suffixes {
            if rename(database + suffix, target + suffix) == 0 {
                // A database that another program put here may be readable by others.
                _ = fchmodat(AT_FDCWD, target + suffix, 0o600, AT_SYMLINK_NOFOLLOW)
                continue
            }
            guard errno == ENOENT else { throw StoreError(system: errno, "set the damaged database aside", database) }
            if suffix.isEmpty { return nil }
        }
        return target
    }

    /// Whether the folder has a database that was set aside.
    var hasSetAside: Bool { !namesSetAside.isEmpty }

    /// Deletes databases that were set aside a day ago, and drafts of backups that are as old. A time more than a day ahead comes from a
    /// wrong clock, so its database is deleted too. Names without a time belong to the user or another program, and are left alone.
    func sweepSetAside(at now: time_t) {
        let age = Limits.secretsAge.components.seconds
        for name in namesSetAside {
            guard let time = Self.time(in: name), time <= now - Int(age) || time > now + Int(age) else { continue }
            unlink("\(path)/\(name)")
        }
        for name in names(beginningWith: "backup-") where name.hasSuffix(".db.new") {
            var status = stat()
            // The backup was interrupted. Its draft may contain passwords, too.
            guard stat("\(path)/\(name)", &status) == 0, status.st_mtim.tv_sec <= now -| Int(age) else { continue }
            unlink("\(path)/\(name)")
        }
    }

    var namesSetAside: [String] { names(beginningWith: Self.prefix) }

    /// The path of the database that was set aside last; nil: there is none.
    var lastSetAside: String? {
        let databases = namesSetAside.filter { Self.time(in: $0) != nil && !$0.hasSuffix("-wal") && !$0.hasSuffix("-shm") }
        return databases.max().map { "\(path)/\($0)" }
    }

    private func names(beginningWith prefix: String) -> [String] { (folderNames(path) ?? []).filter { $0.hasPrefix(prefix) } }

    /// The time in "todoku.db.corrupt-YYYYMMDD-HHMMSS", whatever follows it.
    private static func time(in name: String) -> time_t? {
        let digits = name.utf8.dropFirst(prefix.utf8.count).prefix(15)
        guard digits.count == 15, digits.dropFirst(8).first == UInt8(ascii: "-") else { return nil }
        func number(_ start: Int, _ count: Int) -> Int32? { Int32(String(decoding: digits.dropFirst(start).prefix(count), as: UTF8.self)) }
        guard let year = number(0, 4), let month = number(4, 2), let day = number(6, 2), let hour = number(9, 2),
            let minute = number(11, 2),
            let second = number(13, 2)
        else { return nil }
        var parts = tm()
        (parts.tm_year, parts.tm_mon, parts.tm_mday) = (year - 1900, month - 1, day)
        (parts.tm_hour, parts.tm_min, parts.tm_sec) = (hour, minute, second)
        return timegm(&parts)
    }
}
