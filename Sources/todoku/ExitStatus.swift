internal import DownloadModel
internal import Localization
internal import TodokuClient

/// The command's exit status; documented in `todoku --help` and in the man page.
enum ExitStatus: Int32 {
    case success = 0
    /// A download failed, or was cancelled or removed. `doctor`: something is wrong.
    case ended = 1
    case usage = 2
    /// The service or the bus refused the command, or cannot be reached.
    case refused = 3
    /// `fetch --exit-code`: the server has nothing newer than the cached copy.
    case unchanged = 4
    /// A command of `--exec` or `--exec-failed` failed.
    case commandFailed = 5
    /// Ctrl-C was pressed; the downloads continue.
    case interrupted = 130

    /// The worse of two statuses.
    func and(_ other: ExitStatus) -> ExitStatus { other.rawValue > rawValue ? other : self }
}

/// Why the command fails: one sentence and an exit status.
struct CommandFailure: Error, Equatable, CustomStringConvertible {
    let status: ExitStatus
    let message: String
    /// The error's name on the bus, for JSON; empty: none.
    let name: String

    /// For ArgumentParser, if `validate` throws it.
    var description: String { message }

    init(_ status: ExitStatus, _ message: String, name: String = "") { (self.status, self.message, self.name) = (status, message, name) }

    init(_ error: ClientError) {
        (status, message, name) = (.refused, CommandWords.replacingKeys(in: catalog.explanation(error)), error.name)
    }

    /// `error` about one download.
    init(_ error: ClientError, about download: DownloadReference) {
        status = .refused
        name = error.name
        message =
            error.cause == .unknownDownload
            ? catalog.text("there is no download %1$s", "\(download)") : CommandWords.replacingKeys(in: catalog.explanation(error))
    }

    /// `error` about a download or batch.
    init(_ error: ClientError, about target: Target) {
        if let download = target.download {
            self.init(error, about: download)
        } else if let batch = target.batch {
            self.init(error, about: batch)
        } else {
            self.init(error)
        }
    }

    /// `error` about one batch.
    init(_ error: ClientError, about batch: BatchReference) {
        if error.cause == .unknownDownload {
            self.init(.refused, catalog.text("there is no batch %1$s", "\(batch)"), name: error.name)
        } else {
            self.init(error)
        }
    }

    /// `error` about one of several URLs. The message repeats no part of the URL that may hold secrets.
    init(_ error: ClientError, about url: String, number: Int, of count: Int) {
        self.init(error)
        if error.errorName == .invalidUrl || error.errorName == .unsupportedScheme, let suggestion = Self.suggestion(for: url) {
            self = CommandFailure(status, catalog.text("%1$s Did you mean %2$s?", message, suggestion), name: name)
        }
        if CommandWords.tellsMissingFolder(error.message) {
            self = CommandFailure(status, catalog.text("%1$s --parents makes it.", message), name: name)
        }
        if count > 1 { self.prefix((try? DownloadURL(url))?.redacted ?? catalog.text("URL %1$s", String(number))) }
    }

    /// `url` with the scheme that it lacks; nil: it has one, or would not be a URL with it. “mailto:a@b.c” would have a user name.
    private static func suggestion(for url: String) -> String? {
        guard !url.contains("://"), let url = try? DownloadURL("https://\(url)"), url.username == nil,
            url.host.contains(".") || url.host == "localhost"
        else { return nil }
        return url.redacted
    }

    private mutating func prefix(_ text: String) { self = CommandFailure(status, "\(text): \(message)", name: name) }

    var json: JSON {
        .object([("error", .object([("name", name.isEmpty ? .null : .string(name)), ("message", .string(message))]))])
    }
}

extension ClientError {
    /// The error of a call that may take long. No task of the command is cancelled, so each such error is the client's.
    init(ofWait error: any Error) { self = error as? ClientError ?? ClientError(.refused, name: "", message: "\(error)") }

    /// The error with the number of the download or batch before it, because the service says only “A download that is finished …”. An
    /// error that names one already stays as it is.
    func naming(_ item: some CustomStringConvertible) -> ClientError {
        let isNamed = message.firstRange(of: ": ").map { !message[..<$0.lowerBound].contains(" ") } ?? message.contains("batch \(item) ")
        return isNamed ? self : ClientError(cause, name: name, message: "\(item): \(message)")
    }
}
