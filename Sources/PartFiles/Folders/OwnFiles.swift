internal import EventLoop

/// Files that this program keeps in a folder of its own. Each function waits for the disk.
public enum OwnFiles {
    /// The names in `folder` that are UTF-8, hidden ones left out; none if it cannot be read.
    public static func names(in folder: String) -> [String] { (folderNames(folder) ?? []).filter { !$0.hasPrefix(".") } }

    /// Deletes those of `names` in `folder` that are regular files of this user. What cannot be deleted stays.
    public static func delete(_ names: [String], in folder: String) {
        guard let folder = try? OpenFolder.open(folder, allowHidden: true) else { return }
        for name in names { _ = try? folder.removeOwn(name) }
    }
}
