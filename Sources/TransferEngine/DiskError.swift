internal import DownloadModel
internal import Glibc

/// A system call on a file that failed.
struct DiskError: Error, Equatable {
    /// What we wanted to do, as in "cannot \(action)".
    let action: String
    let code: Int32

    init(_ action: String, _ code: Int32 = errno) { (self.action, self.code) = (action, code) }

    /// The one place where an errno becomes a failure's name. `folder` is told to the user.
    func failure(folder: String) -> DownloadFailure {
        let reason = String(cString: strerror(code))
        switch code {
        case ENOSPC, EDQUOT: return DownloadFailure(.diskFull, "There is not enough room in \(folder); free some and try again.")
        case EFBIG: return DownloadFailure(.diskFull, "The file system of \(folder) cannot hold a file of this size.")
        case EACCES, EPERM, EROFS:
            return DownloadFailure(.permissionDenied, "Todoku cannot \(action) in \(folder): \(reason).")
        default: return DownloadFailure(.writeFailed, "Todoku cannot \(action) in \(folder): \(reason).")
        }
    }
}
