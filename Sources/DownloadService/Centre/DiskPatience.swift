internal import DownloadModel

/// For so long a caller waits for a disk.
enum DiskPatience {
    static let folder: Duration = .seconds(5)
    static let file: Duration = .seconds(10)

    /// For `count` files, each of which costs a slow disk its time.
    static func files(_ count: Int) -> Duration { file + .milliseconds(50 * count) }
}

extension Refusal {
    /// The disk on which `path` lies hangs, or is very slow.
    static func silentDisk(of path: String) -> Refusal {
        let seconds = DiskPatience.file.components.seconds
        return Refusal(.permissionDenied, "The disk of \(path) did not answer within \(seconds) seconds; try again later.")
    }

    static func silentFolder(_ directory: String) -> Refusal {
        let what = directory.isEmpty ? "The descriptor’s file system" : "The folder \(directory)"
        return Refusal(.permissionDenied, "\(what) did not answer within \(DiskPatience.folder.components.seconds) seconds.")
    }
}
