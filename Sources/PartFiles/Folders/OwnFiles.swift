internal import Glibc

/// Files that this program keeps in a folder of its own. Each function waits for the disk.
public enum OwnFiles {
    /// The names in `folder` that are UTF-8, hidden ones left out; none if it cannot be read.
    public static func names(in folder: String) -> [String] {
        guard let stream = opendir(folder) else { return [] }
        defer { closedir(stream) }
        var names: [String] = []
        while let entry = readdir(stream) {
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { String(validating: $0.prefix { $0 != 0 }, as: UTF8.self) }
            if let name, !name.hasPrefix(".") { names.append(name) }
        }
        return names
    }

    /// Deletes those of `names` in `folder` that are regular files of this user. What cannot be deleted stays.
    public static func delete(_ names: [String], in folder: String) {
        guard let folder = try? OpenFolder.open(folder, allowHidden: true) else { return }
        for name in names { _ = try? folder.removeOwn(name) }
    }
}
