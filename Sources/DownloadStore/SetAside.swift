internal import CSystem
internal import DownloadModel
internal import Glibc

/// Databases that were set aside. They hold the passwords and headers of their downloads, so none stays longer than those would.
extension StoreFolder {
    private static let prefix = "todoku.db.corrupt-"
    private static let suffixes = ["-wal", "-shm", ""]

    /// Renames the database to `todoku.db.corrupt-YYYYMMDD-HHMMSS` (UTC), and the files that belong to it likewise, so that SQLite's
    /// tools can still look at it, for a day. No connection to it may be open.
    ///
    /// - Returns: its new path; nil where there was none.
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
        // The write-ahead log first: beside a new database, the old one's log could be taken for its own.
        for suffix in Self.suffixes {
            if rename(database + suffix, target + suffix) == 0 {
                // One that somebody put here may be open to others.
                _ = fchmodat(AT_FDCWD, target + suffix, 0o600, AT_SYMLINK_NOFOLLOW)
                continue
            }
            guard errno == ENOENT else { throw StoreError(system: errno, "set the damaged database aside", database) }
            if suffix.isEmpty { return nil }
        }
        return target
    }

    /// Whether an earlier database lies here under another name.
    var hasSetAside: Bool { !namesSetAside.isEmpty }

    /// Deletes what was set aside a day ago. A time that lies ahead by more than a day is of a clock that was wrong. Names without a time,
    /// as somebody may give, are left alone.
    func sweepSetAside(at now: time_t) {
        let age = Limits.secretsAge.components.seconds
        for name in namesSetAside {
            guard let time = Self.time(in: name), time <= now - Int(age) || time > now + Int(age) else { continue }
            unlink("\(path)/\(name)")
        }
    }

    private var namesSetAside: [String] {
        guard let handle = opendir(path) else { return [] }
        defer { closedir(handle) }
        var names: [String] = []
        while let entry = readdir(handle) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            if name.hasPrefix(Self.prefix) { names.append(name) }
        }
        return names
    }

    /// The time in "todoku.db.corrupt-YYYYMMDD-HHMMSS", with or without what follows.
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
