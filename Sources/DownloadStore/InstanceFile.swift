internal import DownloadModel
internal import Glibc

/// The file `instance` beside the database: the id that the names of part files carry, and the first number with it. It is apart from the
/// database, so that a damaged one costs no part file.
extension StoreFolder {
    private var instanceFile: String { "\(path)/instance" }

    /// The names of part files; where this folder has no id yet it gets one, which counts from the download `next` on.
    ///
    /// Without an id where that cannot be saved: an id that a crash took back would leave part files that nobody finds.
    func partNames(next: DownloadNumber) -> PartNames {
        if let names = readPartNames() { return names }
        let names = PartNames(instance: String((0..<8).map { _ in "0123456789abcdef".randomElement()! }), first: next)
        return save(names) ? names : PartNames()
    }

    /// nil where there is no file, where it holds no id, or where it could not be read twice. One failed call must not cost every part file
    /// its name.
    private func readPartNames() -> PartNames? {
        guard let text = readInstance() ?? readInstance() else { return nil }
        let words = String(decoding: text, as: UTF8.self).split { $0 == " " || $0 == "\n" }
        guard words.count == 2, words[0].utf8.count == 8, words[0].allSatisfy({ "0123456789abcdef".contains($0) }),
            let first = UInt64(words[1]), first > 0
        else { return nil }
        return PartNames(instance: String(words[0]), first: DownloadNumber(first))
    }

    private func readInstance() -> [UInt8]? {
        guard let file = PlainFile(instanceFile) else { return nil }
        return file.read(at: 0, count: min(file.size, 64))
    }

    /// Whether it is on the disk.
    private func save(_ names: PartNames) -> Bool {
        let fresh = instanceFile + ".new"
        let descriptor = Glibc.open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { return false }
        let text = Array("\(names.instance) \(names.first)\n".utf8)
        let isWritten = write(descriptor, text, text.count) == text.count && fsync(descriptor) == 0
        close(descriptor)
        guard isWritten, rename(fresh, instanceFile) == 0, Self.sync(path) else {
            unlink(fresh)
            return false
        }
        return true
    }
}
