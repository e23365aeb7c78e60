internal import DownloadModel
internal import Localization
internal import TodokuClient

/// The language of the terminal. JSON is for programs, and English; and so is a terminal that cannot write Japanese.
///
/// The help, and what ArgumentParser says about a command line, are English too.
let catalog: Catalog = {
    let session = Catalog(.auto)
    let isEnglish = CommandLine.arguments.contains("--json") || session.spoken == .japanese && !Terminal.isUTF8
    return isEnglish ? plainCatalog : session
}()

/// As in the locale "C": for programs, and for the lines of a log, which scripts read.
let plainCatalog = Catalog(.auto) { _ in nil }

/// The contract's words, said to people.
extension Catalog {
    func state(_ state: DownloadDescription.State) -> String {
        switch state {
        case .queued: text("queued")
        case .waiting: text("waiting")
        case .active: text("active")
        case .paused: text("paused")
        case .verifying: text("verifying")
        case .extracting: text("extracting")
        case .finished: text("finished")
        case .failed: text("failed")
        case .cancelled: text("cancelled")
        case .other(let name): name
        }
    }

    func waitReason(_ word: String) -> String {
        switch WaitReason(rawValue: word) {
        case .retry: text("retry")
        case .rateLimit: text("rate-limit")
        case .hostLimit: text("host-limit")
        case .notBefore: text("not-before")
        case .offline: text("offline")
        case .metered: text("metered")
        case .diskSpace: text("disk-space")
        case .destination: text("destination")
        case .needsUrl: text("needs-url")
        case .pausedAll: text("paused-all")
        default: word
        }
    }

    /// What an error says. The messages of the service are English and have the details: in another language they come after the reason.
    func explanation(_ error: ClientError) -> String {
        guard spoken != .english else { return error.message }
        switch error.cause {
        case .busUnavailable: return withDetails(text("the session bus cannot be reached"), Self.afterColon(error.message))
        case .serviceUnavailable:
            return withDetails(text("the download service cannot be started, or does not answer"), Self.afterColon(error.message))
        // The reason of a download speaks of its folder; a call is denied other things, too.
        case .refused where error.errorName == .permissionDenied: return withDetails(text("Permission was denied."), error.message)
        case .unknownDownload, .refused: return explanation(name: error.name, error.message)
        }
    }

    func explanation(_ error: DownloadError) -> String { explanation(name: error.name, error.message, httpStatus: error.httpStatus) }

    /// - Parameter name: on the bus.
    func explanation(name: String, _ message: String, httpStatus: UInt32? = nil) -> String {
        let prefix = "org.todoku.Error."
        guard spoken != .english, name.hasPrefix(prefix), let known = ErrorName(rawValue: String(name.dropFirst(prefix.utf8.count))) else {
            return message
        }
        return withDetails(reason(known, httpStatus: httpStatus), message)
    }

    /// What the bus has said, after what the client says of it.
    private static func afterColon(_ message: String) -> String {
        message.firstRange(of: ": ").map { String(message[$0.upperBound...]) } ?? message
    }

    private func withDetails(_ reason: String, _ message: String) -> String { text("%1$s (%2$s)", reason.withoutStop, message.withoutStop) }
}

extension String {
    var withoutStop: String { hasSuffix(".") || hasSuffix("。") ? String(dropLast()) : self }
}
