package import DownloadModel
internal import Glibc

/// A system call on a file that failed.
package struct DiskError: Error, Equatable {
    /// The action that failed; completes "cannot \(action)".
    package let action: String
    package let code: Int32
    /// The missing space, if the disk is full and the amount is known.
    package let shortage: Shortage?
    /// The whole message, if one of our rules refused and no system call failed.
    package let refusal: String?

    /// The missing bytes, and the free ones.
    package struct Shortage: Equatable {
        package var missing: ByteCount
        package var room: ByteCount
        package init(missing: ByteCount, room: ByteCount) { (self.missing, self.room) = (missing, room) }
    }

    package init(_ action: String, _ code: Int32 = errno, shortage: Shortage? = nil, refusal: String? = nil) {
        (self.action, self.code, self.shortage, self.refusal) = (action, code, shortage, refusal)
    }

    /// Whether this machine is short of something that comes back, such as descriptors. Nothing is wrong with the disk or the file.
    package var isShortage: Bool { [EMFILE, ENFILE, ENOMEM, ENOBUFS, EAGAIN].contains(code) }

    /// The only place that maps an errno to a failure's name and wait. `folder` is shown to the user.
    package func failure(folder: String) -> DownloadFailure {
        let message = refusal ?? "Todoku cannot \(action) in \(folder): \(String(cString: strerror(code)))."
        switch code {
        case ENOSPC, EDQUOT:
            let amount = shortage.map { ": \(HumanText.size($0.missing)) more are needed" } ?? ""
            return DownloadFailure(
                .diskFull, "There is not enough room in \(folder)\(amount); free some, and the download resumes.", wait: .diskSpace,
                missingBytes: shortage?.missing, neededRoom: shortage.map { $0.missing +| $0.room })
        case EFBIG: return DownloadFailure(.diskFull, "The file system of \(folder) cannot hold a file of this size.")
        case EACCES, EPERM: return DownloadFailure(.permissionDenied, message)
        // A mount or a disk error makes a file system read-only: either may end.
        case EROFS: return DownloadFailure(.permissionDenied, message, wait: .destination)
        case ENOENT, ENOTDIR, ESTALE, ENXIO, ENODEV: return DownloadFailure(.writeFailed, message, wait: .destination)
        // The program of a FUSE mount has died, or the server of a share cannot be reached. The mount may come back.
        case ENOTCONN, ECONNABORTED, ESHUTDOWN, EHOSTDOWN, EHOSTUNREACH, ENETDOWN, ENETUNREACH:
            return DownloadFailure(.writeFailed, message, wait: .destination)
        case EIO, ETIMEDOUT: return DownloadFailure(.writeFailed, message, isRetryable: true, wait: .destination)
        case _ where isShortage: return DownloadFailure(.writeFailed, message, isRetryable: true)
        default: return DownloadFailure(.writeFailed, message)
        }
    }
}
