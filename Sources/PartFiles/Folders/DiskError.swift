package import DownloadModel
internal import Glibc

/// A system call on a file that failed.
package struct DiskError: Error, Equatable {
    /// What we wanted to do, as in "cannot \(action)".
    let action: String
    package let code: Int32
    /// What finds no room, where the disk is full and it is known.
    let shortage: Shortage?
    /// The whole sentence, where a rule of ours stands in the way and no system call failed.
    let refusal: String?

    /// Bytes that find no room, and how many there was room for.
    package struct Shortage: Equatable {
        var missing: ByteCount
        var room: ByteCount
    }

    package init(_ action: String, _ code: Int32 = errno, shortage: Shortage? = nil, refusal: String? = nil) {
        (self.action, self.code, self.shortage, self.refusal) = (action, code, shortage, refusal)
    }

    /// The one place where an errno becomes a failure's name, and what it waits for. `folder` is told to the user.
    package func failure(folder: String) -> DownloadFailure {
        let message = refusal ?? "Todoku cannot \(action) in \(folder): \(String(cString: strerror(code)))."
        switch code {
        case ENOSPC, EDQUOT:
            let amount = shortage.map { ": \(HumanText.size($0.missing)) more are needed" } ?? ""
            return DownloadFailure(
                .diskFull, "There is not enough room in \(folder)\(amount); free some and it goes on.", wait: .diskSpace,
                missingBytes: shortage?.missing, neededRoom: shortage.map { $0.missing +| $0.room })
        case EFBIG: return DownloadFailure(.diskFull, "The file system of \(folder) cannot hold a file of this size.")
        case EACCES, EPERM: return DownloadFailure(.permissionDenied, message)
        // Read-only by a mount, or by an error of the disk: both may end.
        case EROFS: return DownloadFailure(.permissionDenied, message, wait: .destination)
        case ENOENT, ENOTDIR, ESTALE, ENXIO, ENODEV: return DownloadFailure(.writeFailed, message, wait: .destination)
        case EIO: return DownloadFailure(.writeFailed, message, isRetryable: true, wait: .destination)
        default: return DownloadFailure(.writeFailed, message)
        }
    }
}
