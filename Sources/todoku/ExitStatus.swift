internal import TodokuClient

/// What the command ends with; documented in `todoku --help` and in the man page.
enum ExitStatus: Int32 {
    case success = 0
    /// A download failed, or was cancelled or removed.
    case ended = 1
    case usage = 2
    /// The service or the bus refused, or cannot be reached.
    case refused = 3
    /// Ctrl-C: detached, or cancelled by a second one.
    case interrupted = 130

    /// The graver of two: what was refused may never have been queued.
    func and(_ other: ExitStatus) -> ExitStatus { other.rawValue > rawValue ? other : self }
}

/// Why the command stops: one sentence and an exit status.
struct CommandFailure: Error, Equatable {
    let status: ExitStatus
    let message: String
    /// The error's name on the bus, for JSON; empty: none.
    var name = ""

    init(_ status: ExitStatus, _ message: String) { (self.status, self.message) = (status, message) }

    init(_ error: ClientError) {
        (status, message, name) = (.refused, error.message, error.name)
    }

    /// `error` about one download.
    init(_ error: ClientError, about download: DownloadReference) {
        status = .refused
        name = error.name
        message = error.cause == .unknownDownload ? "there is no download \(download)" : error.message
    }

    var json: JSON {
        .object([("error", .object([("name", name.isEmpty ? .null : .string(name)), ("message", .string(message))]))])
    }
}
