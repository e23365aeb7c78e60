internal import Glibc
internal import Synchronization

/// The file `.todoku-owner-PROCESS-RANDOM`, which shows the owner that a mount gives to our new files. It is empty, and removed at once. A
/// process that is killed in between leaves it, so the first probe of a later process removes it.
enum OwnerProbe {
    private static let prefix = ".todoku-owner-"
    /// A file of this age was left, in seconds by the clock of the file system: another process, or machine, makes and removes one.
    private static let leastAge = 60

    /// The owner of new files in `folder`. Throws if none can be created.
    static func owner(in folder: OpenFolder) throws(DiskError) -> uid_t {
        let name = "\(prefix)\(getpid())-\(UInt64.random(in: 0...UInt64.max))"
        let probe = openUninterrupted(folder.descriptor, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard probe >= 0 else { throw DiskError("create a file") }
        defer {
            close(probe)
            unlinkat(folder.descriptor, name, 0)
        }
        var status = stat()
        guard fstat(probe, &status) == 0 else { throw DiskError("look at a file") }
        if isFirst(in: folder) { removeOld(in: folder, than: status) }
        return status.st_uid
    }

    /// The paths of the folders whose old files this process has removed. A folder on a network may be slow to list, so it is listed once.
    private static let listed = Mutex<Set<String>>([])
    private static let mostListed = 1024

    private static func isFirst(in folder: OpenFolder) -> Bool {
        listed.withLock { known in
            if known.count >= mostListed { known.removeAll() }
            return known.insert(folder.path).inserted
        }
    }

    private static func removeOld(in folder: OpenFolder, than fresh: stat) {
        for name in names(in: folder) {
            guard let status = folder.status(name), status.isRegular, status.st_size == 0, status.st_uid == fresh.st_uid,
                status.st_mtim.tv_sec < fresh.st_mtim.tv_sec &- leastAge
            else { continue }
            unlinkat(folder.descriptor, name, 0)
        }
    }

    /// The names in `folder` of the form above.
    private static func names(in folder: OpenFolder) -> [String] {
        let copy = openUninterrupted(folder.descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard copy >= 0, let stream = fdopendir(copy) else {
            if copy >= 0 { close(copy) }
            return []
        }
        defer { closedir(stream) }
        var names: [String] = []
        while let entry = readdir(stream) {
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { String(validating: $0.prefix { $0 != 0 }, as: UTF8.self) }
            guard let name, name.hasPrefix(prefix), name.utf8.dropFirst(prefix.utf8.count).allSatisfy({ "0123456789-".utf8.contains($0) })
            else { continue }
            names.append(name)
        }
        return names
    }
}
