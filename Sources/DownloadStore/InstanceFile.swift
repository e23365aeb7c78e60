internal import DownloadModel
internal import Glibc

/// The file `instance` beside the database: the id in the names of part files, and the first number with this id. Kept apart from the
/// database, so that a damaged database costs no part file.
extension StoreFolder {
    private var instanceFile: String { "\(path)/instance" }

    /// Creates an id for the downloads from `next` on, in a folder without one.
    ///
    /// An id that cannot be saved is not used, because after a crash the part files with a lost id would not be found.
    func makePartNames(next: DownloadNumber) -> PartNames {
        let names = PartNames(instance: String((0..<8).map { _ in "0123456789abcdef".randomElement()! }), first: next)
        return save(names) ? names : PartNames()
    }

    /// The names of part files; nil if there is no file, it holds no id, or reading it failed twice. One failed read must not cost every
    /// part file its name.
    ///
    /// - Throws: `storage` if this machine is short of descriptors or memory. The id is still there, and a later start reads it.
    func readPartNames() throws(StoreError) -> PartNames? {
        var text = try? readInstance()
        if text == nil { text = try readInstance() }
        guard let text else { return nil }
        let words = String(decoding: text, as: UTF8.self).split { $0 == " " || $0 == "\n" }
        guard words.count == 2, words[0].utf8.count == 8, words[0].allSatisfy({ "0123456789abcdef".contains($0) }),
            let first = UInt64(words[1]), first > 0
        else { return nil }
        return PartNames(instance: String(words[0]), first: DownloadNumber(first))
    }

    /// If the state folder was deleted while the service runs, makes again what the next start needs to find the part files: their id, and
    /// the folder of their written maps.
    func keepPartFiles(_ names: PartNames) {
        guard access(instanceFile, F_OK) != 0, errno == ENOENT else { return }
        mkdir("\(path)/segments", 0o700)
        if !names.instance.isEmpty { _ = save(names) }
    }

    private func readInstance() throws(StoreError) -> [UInt8]? {
        errno = 0
        if let file = PlainFile(instanceFile), let bytes = file.read(at: 0, count: min(file.size, 64)) { return bytes }
        guard [EMFILE, ENFILE, ENOMEM].contains(errno) else { return nil }
        throw StoreError(system: errno, "read the id of the part files", instanceFile)
    }

    /// Whether later starts read this id. A file that stands is read by the next start, so an id that could not be saved leaves no file.
    private func save(_ names: PartNames) -> Bool {
        let fresh = instanceFile + ".new"
        let descriptor = Glibc.open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { return false }
        let text = Array("\(names.instance) \(names.first)\n".utf8)
        let isWritten = write(descriptor, text, text.count) == text.count && fsync(descriptor) == 0
        close(descriptor)
        guard isWritten, rename(fresh, instanceFile) == 0 else {
            unlink(fresh)
            return false
        }
        return Self.sync(path) || unlink(instanceFile) != 0
    }
}
