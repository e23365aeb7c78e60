internal import DownloadModel
internal import Localization
internal import TodokuClient

/// The catalogue for this terminal's output. JSON, which programs read, is English. So is the output if the terminal cannot show Japanese.
let catalog: Catalog = {
    let session = Catalog(.auto)
    let isEnglish = CommandLine.arguments.contains("--json") || session.spoken == .japanese && !Terminal.isUTF8
    return isEnglish ? plainCatalog : session
}()

/// The catalogue of the locale "C", for output that programs and scripts read.
let plainCatalog = Catalog(.auto) { _ in nil }

/// The contract's words in the user's language.
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

    /// The text of the property `ProvedBy`.
    func proof(_ word: String) -> String {
        switch FileProof(rawValue: word) {
        case .checksum: text("checksum")
        case .pieces: text("pieces")
        case .reprDigest: text("repr-digest")
        case .length: text("length")
        case nil: word
        }
    }

    /// A source of the property `Sources`.
    func source(_ source: DownloadDescription.Source, isActive: Bool) -> String {
        let received = size(source.received, of: nil)
        if let left = source.left {
            // A source that contradicts others may still bring the whole file, after all others have failed.
            return SourceFault(rawValue: left)?.isOfOthers == true
                ? text("%1$s (%2$s, asked last: %3$s)", source.url, received, sourceFault(left))
                : text("%1$s (%2$s, not used: %3$s)", source.url, received, sourceFault(left))
        }
        return isActive
            ? text("%1$s (%2$s, %3$s)", source.url, received, speed(source.speed)) : text("%1$s (%2$s)", source.url, received)
    }

    private func sourceFault(_ word: String) -> String {
        switch SourceFault(rawValue: word) {
        case .wrongBytes: text("wrong bytes")
        case .wrongSize: text("another size")
        case .wrongDigest: text("another digest")
        case .changed: text("changed")
        case .noRanges: text("no ranges")
        case .wrongType: text("another media type")
        case .httpStatus: text("refused")
        case .network: text("not reached")
        case .timeout: text("no answer in time")
        case .tls: text("no secure connection")
        case .redirect: text("redirect not followed")
        case .notAllowed: text("not allowed")
        case nil: word
        }
    }

    /// The text of an error. The service's messages are English and have the details, so in another language they follow the translated
    /// reason.
    func explanation(_ error: ClientError) -> String {
        let message = CommandWords.replacingKeys(in: error.message)
        guard spoken != .english else { return message }
        switch error.cause {
        case .busUnavailable: return withDetails(text("the session bus cannot be reached"), Self.afterColon(error.message))
        case .serviceUnavailable:
            return withDetails(text("the download service cannot be started, or does not answer"), Self.afterColon(error.message))
        // The translated reason mentions the download's folder, but a call may be denied for other reasons.
        case .refused where error.errorName == .permissionDenied: return withDetails(text("Permission was denied."), message)
        case .unknownDownload, .refused: return explanation(name: error.name, message)
        }
    }

    func explanation(_ error: DownloadError) -> String {
        explanation(name: error.name, CommandWords.replacingKeys(in: error.message), httpStatus: error.httpStatus)
    }

    /// The text of a refusal by the command itself, which reads some values before the service does. Its details are translated, too.
    ///
    /// - Parameter namesFlag: the value is an option's, which the text names by its flag.
    func explanation(_ error: Refusal, namesFlag: Bool = true) -> String {
        let message = namesFlag ? CommandWords.replacingKeys(in: error.message) : error.message
        return explanation(name: error.name.busName, sentence(message))
    }

    /// - Parameter name: the error's name on the bus.
    func explanation(name: String, _ message: String, httpStatus: UInt32? = nil) -> String {
        let prefix = "org.todoku.Error."
        guard spoken != .english, name.hasPrefix(prefix), let known = ErrorName(rawValue: String(name.dropFirst(prefix.utf8.count))) else {
            return message
        }
        return withDetails(reason(known, httpStatus: httpStatus), message)
    }

    /// The bus's own text, which follows the client's.
    private static func afterColon(_ message: String) -> String {
        message.firstRange(of: ": ").map { String(message[$0.upperBound...]) } ?? message
    }

    private func withDetails(_ reason: String, _ message: String) -> String { text("%1$s (%2$s)", reason.withoutStop, message.withoutStop) }
}

extension String {
    var withoutStop: String { hasSuffix(".") || hasSuffix("。") ? String(dropLast()) : self }
}
