internal import DBus
internal import DownloadModel
internal import EventLoop
internal import Logging
internal import PushInterface
internal import PushModel
internal import TodokuClient

/// Has the service fetch the files of messages.
@BusActor final class PushedFiles {
    /// Whether a message may still have its file.
    enum Time {
        case inTime
        /// It was valid until a time that is over.
        case over
        /// The message has ended meanwhile.
        case gone
    }

    /// How a fetch ended.
    enum End {
        case ended(PendingPush.Outcome)
        /// The service may still have the download.
        case expired
        /// The service cannot be reached, or refuses any call for now; or the message has ended meanwhile.
        case unreachable
    }

    private let hold: IdleExit.Hold
    private let log: Logger
    private let address: String?
    private var client: DownloaderClient?
    /// Downloads that are being taken from the service.
    private var removals = 0 { didSet { hold.isHeld = removals > 0 } }

    /// - Parameters:
    ///   - hold: held while downloads are being taken from the service.
    ///   - address: of the service's bus; nil: the session bus.
    init(hold: IdleExit.Hold, log: Logger, address: String? = nil) { (self.hold, self.log, self.address) = (hold, log, address) }

    /// Fetches the file of a message, or finds that it is there.
    ///
    /// - Parameter time: asked again after each step.
    func fetch(_ message: PendingPush, _ registration: Registration, time: () -> Time) async -> End {
        if let path = await pathOfCopy(of: message.push, registration) { return .ended(PendingPush.Outcome(.noData, path: path)) }
        do {
            let client = try await connected()
            // An earlier process may have begun, and its file may have come in time.
            let wasOver = time() == .over
            let isInTime = wasOver ? try await hasFileInTime(message, registration, client) : false
            if time() == .gone { return .unreachable }
            // The time before the question to the service decides (`wasOver`), even if the clock was set back since.
            if isInTime || !wasOver {
                let file = try await fetch(message, registration, client)
                if isInTime || time() != .over {
                    return .ended(PendingPush.Outcome(file.isNew ? .newData : .noData, path: file.path, hasDownload: true))
                }
            }
            return .expired
        } catch is CancellationError {
            return .unreachable
        } catch {
            guard let error = error as? ClientError, Self.isFinal(error) else {
                log.warning("the download service cannot fetch a file now; the push is kept", metadata: ["cause": "\(error)"])
                return .unreachable
            }
            return .ended(PendingPush.Outcome(.failed, error: error.name, message: error.message, hasDownload: true))
        }
    }

    /// Whether the same call will fail again. A full disk, too many downloads or waiting calls (`LimitExceeded`), and a caller that could
    /// not be inspected in time (the bus's `Failed` and `LimitsExceeded`) refuse any call, but only for some time.
    private static func isFinal(_ error: ClientError) -> Bool {
        guard error.cause == .refused else { return error.cause == .unknownDownload }
        if let name = error.errorName { return name != .storage && name != .limitExceeded }
        return !["Failed", "LimitsExceeded"].contains { error.name == "org.freedesktop.DBus.Error.\($0)" }
    }

    private func fetch(
        _ message: PendingPush, _ registration: Registration, _ client: DownloaderClient
    ) async throws -> FetchedFile {
        do {
            return try await client.fetch(message.push.url, Self.request(for: message, registration))
        } catch {
            guard (error as? ClientError)?.errorName == .alreadyExists else { throw error }
            guard let file = try await replace(message, registration, client) else { throw error }
            return file
        }
    }

    /// The download of the message has other options: those of the registration were not saved with it, and the app has registered with
    /// others since. The file of a finished download counts; an unfinished one is replaced.
    ///
    /// - Returns: nil if the download itself ended with `AlreadyExists`.
    private func replace(
        _ message: PendingPush, _ registration: Registration, _ client: DownloaderClient
    ) async throws -> FetchedFile? {
        let reference = DownloadReference(app: registration.key.app, token: Self.downloadToken(message.id))
        let former = try await client.describe(reference)
        switch former.state {
        case .finished: return FetchedFile(isNew: true, path: former.path ?? "")
        case .failed where former.error?.name == ErrorName.alreadyExists.busName: return nil
        default: break
        }
        try await client.remove(reference)
        return try await client.fetch(message.push.url, Self.request(for: message, registration))
    }

    /// Takes a download from the service, if it has that. Nobody waits for it any more.
    ///
    /// - Parameter done: called with whether the download is gone. The download may still be there if the service refuses the call, or
    ///   cannot be reached.
    func removeDownload(_ id: String, of app: String, then done: @escaping @BusActor @Sendable (_ isGone: Bool) -> Void = { _ in }) {
        removals += 1
        BusActor.spawn { [self] in
            done(await hasRemoved(id, of: app))
            removals -= 1
        }
    }

    private func hasRemoved(_ id: String, of app: String) async -> Bool {
        do throws(ClientError) {
            try await connected().remove(DownloadReference(app: app, token: Self.downloadToken(id)))
            return true
        } catch {
            if error.cause == .unknownDownload { return true }
            log.notice("a download could not be removed", metadata: ["cause": "\(error.message)"])
            return false
        }
    }

    /// Takes the download of the push before off the service's list, which would grow with each push otherwise. The file stays.
    ///
    /// - Returns: the id of that push; empty: there was none.
    @discardableResult func clearList(of registration: Registration?) async -> String {
        guard let registration, !registration.lastDownload.isEmpty else { return "" }
        let former = DownloadReference(app: registration.key.app, token: Self.downloadToken(registration.lastDownload))
        try? await client?.remove(former)
        return registration.lastDownload
    }

    /// The path of the file if an earlier push brought it, and nobody has touched it since.
    private func pathOfCopy(of push: AcceptedPush, _ registration: Registration) async -> String? {
        guard let copy = registration.fetched.last(where: { $0.url == push.url && $0.sha256 == push.sha256 }) else { return nil }
        let path = copy.path
        let stamp = await DiskPool.shared.value(at: .path(path), within: .seconds(10)) { FileStamp(of: path) }
        return stamp == .some(copy.stamp) ? path : nil
    }

    private func connected() async throws(ClientError) -> DownloaderClient {
        if let client { return client }
        let new = try await DownloaderClient.connect(to: address)
        client = new
        return new
    }

    private func hasFileInTime(
        _ message: PendingPush, _ registration: Registration, _ client: DownloaderClient
    ) async throws(ClientError) -> Bool {
        do throws(ClientError) {
            let found = try await client.describe(DownloadReference(app: registration.key.app, token: Self.downloadToken(message.id)))
            return found.state == .finished && found.endedAt.map { $0 <= message.end } ?? false
        } catch {
            guard error.cause == .unknownDownload else { throw error }
            return false
        }
    }

    private nonisolated static func downloadToken(_ id: String) -> String { "push_\(id)" }

    private static func request(for message: PendingPush, _ registration: Registration) -> DownloadRequest {
        // A repeated `Fetch` must have the same options, also if the app has registered with others meanwhile.
        let (push, rules) = (message.push, message.rules(registration))
        var request = DownloadRequest()
        request.app = registration.key.app
        request.token = downloadToken(message.id)
        request.tag = "push"
        request.checksum = "sha256:\(push.sha256)"
        request.size = push.size
        request.maxSize = rules.maxSize
        request.set(\.expectType, to: push.type)
        request.set(\.directory, to: rules.directory)
        request.set(\.fileName, to: rules.fileName)
        request.ifExists = rules.ifExists
        request.allowsMetered = rules.allowsMetered
        request.allowsPrivate = rules.allowsPrivate
        request.deadline = .milliseconds(Int64(clamping: push.patience))
        request.priority = -1
        request.notify = .never
        request.showProgress = false
        return request
    }
}
