internal import DownloadModel

/// How long a caller, or the start of a transfer, waits for a disk.
enum DiskPatience {
    static let folder: Duration = .seconds(5)
    static let file: Duration = .seconds(10)
    /// For the verification or the rename, before its folder is probed.
    static let ending: Duration = .seconds(20)

    /// The time for `count` files, because a slow disk needs time for each.
    static func files(_ count: Int) -> Duration { file + .milliseconds(50 * count) }
}

extension Refusal {
    /// The disk of `path` hangs, or is too slow.
    static func silentDisk(of path: String) -> Refusal {
        let seconds = DiskPatience.file.components.seconds
        return Refusal(.permissionDenied, "The disk of \(path) did not answer within \(seconds) seconds; try again later.")
    }

    /// As `silentDisk`, for a finished file that is to be deleted. Its deletion either continues, or has not begun and was dropped.
    static func silentDisk(ofUnwanted path: String) -> Refusal {
        let seconds = DiskPatience.file.components.seconds
        return Refusal(
            .permissionDenied,
            "The disk of \(path) did not answer within \(seconds) seconds; the download left the list, and its file may be deleted later.")
    }

    /// As `silentDisk`, for an unpacked folder that is to be deleted.
    static func silentDisk(ofFolder path: String) -> Refusal {
        let seconds = DiskPatience.file.components.seconds
        return Refusal(
            .permissionDenied,
            "The disk of \(path) did not answer within \(seconds) seconds; the download is off the list, and the folder is deleted later.")
    }

    static func silentFolder(_ directory: String) -> Refusal {
        let what = directory.isEmpty ? "The descriptor’s file system" : "The folder \(directory)"
        return Refusal(.permissionDenied, "\(what) did not answer within \(DiskPatience.folder.components.seconds) seconds.")
    }
}
