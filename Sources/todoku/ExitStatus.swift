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
    /// What an error is about, for JSON.
    enum Subject: Equatable {
        case download(DownloadReference)
        case batch(BatchReference)
        case asset(AssetReference)
        /// One of the command's URLs, counted from 1. nil: it is no URL.
        case url(DownloadURL?, number: Int)
    }

    let status: ExitStatus
    let message: String
    /// The error's name on the bus, for JSON; empty: none.
    let name: String
    var subject: Subject?

    /// For ArgumentParser, if `validate` throws it.
    var description: String { message }

    init(_ status: ExitStatus, _ message: String, name: String = "", about subject: Subject? = nil) {
        (self.status, self.message, self.name, self.subject) = (status, message, name, subject)
    }

    init(_ error: ClientError, about subject: Subject? = nil) {
        let message =
            switch subject {
            case .download(let download) where error.cause == .unknownDownload:
                catalog.text("there is no download %1$s; “todoku list --all” shows all downloads", "\(download)")
            case .batch(let batch) where error.cause == .unknownDownload:
                catalog.text("there is no batch %1$s; “todoku list --all” shows all batches", "\(batch)")
            default: Self.missingAsset(error) ?? catalog.explanation(error)
            }
        self.init(.refused, message, name: error.name, about: subject)
    }

    /// nil: the error is not that an asset is missing.
    private static func missingAsset(_ error: ClientError) -> String? {
        let start = "There is no asset "
        guard error.message.hasPrefix(start) else { return nil }
        let name = String(error.message.dropFirst(start.count)).withoutStop
        return catalog.text("there is no asset %1$s; “todoku asset list” shows all assets", name)
    }

    init(_ error: TargetError) { self.init(error.error, about: error.subject) }

    /// The failure, with the URL that is meant if `url` was refused because it lacks its scheme.
    func suggestingScheme(for url: String) -> CommandFailure {
        [ErrorName.invalidUrl, .unsupportedScheme].contains { $0.busName == name } ? suggesting(url) : self
    }

    /// - Parameter url: what was refused.
    private func suggesting(_ url: String) -> CommandFailure {
        guard let suggestion = Self.suggestion(for: url) else { return self }
        return CommandFailure(status, catalog.text("%1$s Did you mean %2$s?", message, suggestion), name: name, about: subject)
    }

    /// `error` about one of several URLs. The message repeats no part of the URL that may hold secrets.
    ///
    /// - Parameter mirrors: the arguments of --mirror.
    init(_ error: ClientError, about text: String, number: Int, of count: Int, mirrors: [String] = []) {
        let url = try? DownloadURL(text)
        var failure = CommandFailure(error).suggestingScheme(for: text)
        if let mirror = CommandWords.mirror(refusedBy: error.message), mirrors.indices.contains(mirror) {
            failure = failure.suggesting(mirrors[mirror])
        }
        var message = failure.message
        if CommandWords.tellsMissingFolder(error.message) { message = Self.namingParents(message) }
        if count > 1 {
            let name = url?.redacted ?? catalog.text("URL %1$s", String(number))
            message = "\(name): \(message)"
        }
        self.init(.refused, message, name: error.name, about: .url(url, number: number))
    }

    /// The failure, for a command with --parents, which makes a missing folder.
    func namingParents(_ error: ClientError) -> CommandFailure {
        guard CommandWords.tellsMissingFolder(error.message) else { return self }
        return CommandFailure(status, Self.namingParents(message), name: name, about: subject)
    }

    private static func namingParents(_ message: String) -> String { catalog.text("%1$s --parents makes it.", message) }

    /// `url` with the scheme that it lacks; nil: it has one, or would not be a URL with it. “mailto:a@b.c” would have a user name.
    static func suggestion(for url: String) -> String? {
        guard !url.contains("://"), let url = try? DownloadURL("https://\(url)"), url.username == nil,
            url.host.contains(".") || url.host == "localhost"
        else { return nil }
        return url.redacted
    }

    /// The URL that is meant by a path that leads to no file; nil: none. A bare name, such as list.txt, is not taken for a host.
    static func suggestion(forFile path: String) -> String? {
        guard path.contains("/"), !path.hasPrefix("."), !LocalPath.exists(path) else { return nil }
        return suggestion(for: path)
    }

    var json: JSON {
        let error = JSON.object([("name", name.isEmpty ? .null : .string(name)), ("message", .string(message))])
        var members = [("error", error)]
        members.append(contentsOf: subject?.json ?? [])
        return .object(members)
    }
}

extension CommandFailure.Subject {
    /// The members beside `error`, as other objects have them.
    fileprivate var json: [(String, JSON)] {
        switch self {
        case .download(let download): [("download", .string(download.description))]
        case .batch(let batch): [("batch", .string(batch.description))]
        case .asset(let asset): [("asset", .string(asset.description))]
        case .url(let url, let number): [("url", JSON(url?.redacted)), ("url-number", .unsigned(UInt64(clamping: number)))]
        }
    }
}

/// An error about a target, with what the target turned out to be.
struct TargetError: Error {
    let error: ClientError
    let subject: CommandFailure.Subject

    init(_ error: ClientError, about download: DownloadReference) {
        self.error = error.errorName == .invalidState ? error.naming(download) : error
        subject = .download(download)
    }

    init(_ error: ClientError, about batch: BatchReference) {
        self.error = error.errorName == .invalidState ? error.naming(batch) : error
        subject = .batch(batch)
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
