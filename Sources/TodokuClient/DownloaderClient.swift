public import DBus
public import DownloadModel
internal import DownloaderInterface
internal import EventLoop

/// The download service as an async Swift API: values that are `Sendable`, and functions that may be called from anywhere.
///
/// A client has one connection to the session bus, served by a thread of this library's own (`EventLoop`'s), or by the main thread of a
/// program that runs that loop. The service is started by the bus where it does not run. Calls are answered within a minute or fail;
/// `wait` has no limit. Errors are `ClientError`.
public final class DownloaderClient: Sendable {
    let core: ClientCore

    private init(_ core: ClientCore) { self.core = core }

    /// Connects to the session bus, or to the bus at `address` (as in DBUS_SESSION_BUS_ADDRESS). The service is not started before it is
    /// asked something.
    public static func connect(to address: String? = nil) async throws(ClientError) -> DownloaderClient {
        DownloaderClient(try await ClientCore.connect(to: address))
    }

    // MARK: Queueing and finding

    /// Queues one download. Once this returns it is on disk: no crash loses it.
    public func download(_ url: String, _ request: DownloadRequest = DownloadRequest()) async throws(ClientError) -> DownloadReference {
        let path = try await core.call(Manager.download, (url, request.options), repeatable: request.token != nil)
        return DownloadReference(path)
    }

    /// Downloads, and returns when the file is there; without a limit. Where nothing has changed since the last Fetch of the same that is
    /// the copy that there is.
    ///
    /// Where the service goes away meanwhile it is started again, and the same Fetch is waited for; what had come just then is called new.
    ///
    /// - Throws: what the download ended in, or why it is refused.
    public func fetch(_ url: String, _ request: DownloadRequest = DownloadRequest()) async throws(ClientError) -> FetchedFile {
        try await core.fetch(url, request.options)
    }

    /// Queues one download into the caller's own file: a regular one, open for writing. The service has its own duplicate of `descriptor`,
    /// which stays the caller's to close.
    public func download(
        _ url: String, into descriptor: Int32, _ request: DownloadRequest = DownloadRequest()
    ) async throws(ClientError) -> DownloadReference {
        let arguments = (url, FileDescriptor(descriptor), request.options)
        return DownloadReference(try await core.call(Manager.downloadToFd, arguments, repeatable: request.token != nil))
    }

    /// What has not ended in queue order, then what has ended, oldest first.
    public func list(_ query: DownloadQuery = DownloadQuery()) async throws(ClientError) -> [DownloadReference] {
        try await core.describe(query.filter, properties: [Download.state.name]).map(\.reference)
    }

    /// Like `list`, with all properties of each.
    public func describe(_ query: DownloadQuery = DownloadQuery()) async throws(ClientError) -> [DownloadDescription] {
        try await core.describe(query.filter, properties: [])
    }

    public func describe(_ download: DownloadReference) async throws(ClientError) -> DownloadDescription {
        try await core.describe(download)
    }

    // MARK: One download

    public func pause(_ download: DownloadReference) async throws(ClientError) {
        try await core.call(Download.pause, (), at: download, repeatable: true)
    }
    public func resume(_ download: DownloadReference) async throws(ClientError) {
        try await core.call(Download.resume, (), at: download, repeatable: true)
    }
    public func cancel(_ download: DownloadReference) async throws(ClientError) { try await core.call(Download.cancel, (), at: download) }
    public func retry(_ download: DownloadReference) async throws(ClientError) { try await core.call(Download.retry, (), at: download) }
    /// Takes it off the list; a running one is cancelled first.
    public func remove(_ download: DownloadReference, deleteFile: Bool = false) async throws(ClientError) {
        try await core.call(Download.remove, deleteFile, at: download)
    }

    /// Puts the finished file into the desktop's trash, and takes the download off the list.
    public func trash(_ download: DownloadReference) async throws(ClientError) {
        try await core.call(Download.trash, (), at: download)
    }

    /// Waits, for as long as it takes, until the download has ended. Should the service go away meanwhile, it is asked again.
    ///
    /// - Returns: the path of the file.
    /// - Throws: what the download ended in, or why it cannot be waited for.
    public func wait(for download: DownloadReference) async throws(ClientError) -> String {
        try await core.wait(Download.wait, at: download.objectPath)
    }

    /// Waits, for as long as it takes, until all that match now have ended. Should the service go away meanwhile, it is asked again: then
    /// those count that match by then.
    public func waitAll(_ query: DownloadQuery = DownloadQuery()) async throws(ClientError) -> OutcomeCounts {
        try await core.waitAll(query.filter)
    }

    /// Says that what ended has been taken: the application named by `activate` is not called any more.
    public func acknowledge(_ download: DownloadReference) async throws(ClientError) {
        try await core.call(Download.acknowledge, (), at: download, repeatable: true)
    }

    /// The whole URL, without user and password.
    public func url(of download: DownloadReference) async throws(ClientError) -> String {
        try await core.call(Download.getUrl, (), at: download, repeatable: true)
    }
    public func metadata(of download: DownloadReference) async throws(ClientError) -> [String: Variant] {
        try await core.call(Download.getMetadata, (), at: download, repeatable: true)
    }
    /// A read-only descriptor of the finished file: the caller's to close.
    public func openFile(_ download: DownloadReference) async throws(ClientError) -> Int32 {
        try await core.call(Download.openFile, (), at: download, repeatable: true).take()
    }
    /// Has the download go on from its bytes with a fresh link for the same file.
    ///
    /// What is nil stays as it is, where the link is of the same origin; what belonged to another origin is forgotten.
    ///
    /// - Parameters:
    ///   - headers: the request headers from now on.
    ///   - referrer: the page that led to the link; empty: none.
    public func replaceURL(
        of download: DownloadReference, with url: String, headers: [HeaderField]? = nil, referrer: String? = nil, username: String? = nil,
        password: String? = nil
    ) async throws(ClientError) {
        var request = DownloadRequest()
        request.set(\.headers, to: headers)
        request.set(\.referrer, to: referrer)
        request.set(\.username, to: username)
        request.set(\.password, to: password)
        try await core.call(Download.replaceUrl, (url, request.options), at: download, repeatable: true)
    }
    /// Its place among those of its priority, 0 = next.
    public func move(_ download: DownloadReference, to position: UInt32) async throws(ClientError) {
        try await core.call(Download.moveTo, position, at: download, repeatable: true)
    }
    public func setPriority(_ priority: Int32, of download: DownloadReference) async throws(ClientError) {
        try await core.set(Download.priority, priority, at: download.objectPath)
    }
    /// Bytes per second; nil: no limit.
    public func setSpeedLimit(_ limit: Speed?, of download: DownloadReference) async throws(ClientError) {
        try await core.set(Download.speedLimit, limit ?? 0, at: download.objectPath)
    }

    // MARK: All

    /// Holds everything, also what is queued later, until `resumeAll`.
    public func pauseAll() async throws(ClientError) { try await core.call(Manager.pauseAll, (), repeatable: true) }
    public func resumeAll() async throws(ClientError) { try await core.call(Manager.resumeAll, (), repeatable: true) }
    public func cancelAll() async throws(ClientError) { try await core.call(Manager.cancelAll, (), repeatable: true) }
    /// Takes all that has ended off the list; files stay.
    ///
    /// - Returns: how many.
    public func clearEnded() async throws(ClientError) -> UInt32 { try await core.call(Manager.clearEnded, ()) }

    /// Says whether a window of `app` is in front, so that no toasts are shown of what the user sees there. It holds until it is said
    /// otherwise, or this client goes; a service that starts anew is told again.
    public func setForeground(_ app: String, _ isInFront: Bool) async throws(ClientError) {
        try await core.setForeground(app, isInFront)
    }

    // MARK: The desktop

    /// Has what was downloaded last opened or shown, as a click on the service's entry in a dock does.
    ///
    /// - Parameter activationToken: what lets the window that opens take the focus.
    public func activate(activationToken: String? = nil) async throws(ClientError) {
        try await core.call(Application.activate, Self.platformData(activationToken))
    }

    /// Has the download folder opened, likewise.
    public func openFolder(activationToken: String? = nil) async throws(ClientError) {
        try await core.call(
            Application.activateAction, (ApplicationAction.openFolder.rawValue, [], Self.platformData(activationToken)))
    }

    /// Has a finished file opened, or shown in its folder, as a click on its toast does: a program is never started, and where the file is
    /// gone, its folder is opened.
    public func open(_ download: DownloadReference, inFolder: Bool, activationToken: String? = nil) async throws(ClientError) {
        let action: ApplicationAction = inFolder ? .showFolder : .open
        try await core.call(
            Application.activateAction, (action.rawValue, [.objectPath(download.objectPath)], Self.platformData(activationToken)))
    }

    private static func platformData(_ token: String?) -> [String: Variant] { token.map { ["activation-token": .string($0)] } ?? [:] }

    public func status() async throws(ClientError) -> ServiceStatus { try await core.status() }

    public func set(_ setting: ServiceSetting) async throws(ClientError) {
        switch setting {
        case .maxActive(let value): try await core.set(Manager.maxActive, value, at: BusName.managerPath)
        case .maxPerHost(let value): try await core.set(Manager.maxPerHost, value, at: BusName.managerPath)
        case .speedLimit(let value): try await core.set(Manager.speedLimit, value, at: BusName.managerPath)
        case .language(let value): try await core.set(Manager.language, value.rawValue, at: BusName.managerPath)
        case .diskReserve(let value): try await core.set(Manager.diskReserve, value.wire, at: BusName.managerPath)
        case .badge(let value): try await core.set(Manager.badge, value.rawValue, at: BusName.managerPath)
        case .privateOpenToSandbox(let value): try await core.set(Manager.sandboxPrivate, value, at: BusName.managerPath)
        case .defaultDirectory(let value): try await core.set(Manager.defaultDirectory, value, at: BusName.managerPath)
        }
    }

    /// What is asked of a host and its subdomains, over all applications; an empty rule takes it away.
    public func setHostRule(_ rule: HostRule, of host: String) async throws(ClientError) {
        try await core.call(Manager.setHostRule, (host, rule.dictionary), repeatable: true)
    }

    /// The origins ("https://example.org:443") that refused requests (429, 503) and are asked less often.
    public func slowedHosts() async throws(ClientError) -> [String: SlowedHost] {
        try await core.call(Manager.listSlowedHosts, (), repeatable: true).mapValues { SlowedHost($0) }
    }

    /// Forgets what a host, and those that share its rule, asked for by refusing requests.
    public func resetHost(_ host: String) async throws(ClientError) {
        try await core.call(Manager.resetHost, host, repeatable: true)
    }

    // MARK: Looking on

    /// What a tray shows: the service as a whole, at most `current` downloads that have not ended (those that transfer first, then by queue
    /// order), and the `recent` last ones that finished or failed, newest first. 0: none; at most 1,000 each.
    ///
    /// - Returns: nil where the service does not run, for it is not started, and where it does not answer.
    public func overview(current: Int = 10, recent: Int = 10) async throws(ClientError) -> ServiceOverview? {
        try await core.overview(current: min(current, Limits.listed), recent: min(recent, Limits.listed))
    }

    /// Calls `receive` on the client's thread when the service comes, goes, or has something else to tell of itself; it is never started
    /// for that. How many bytes have come is not told: who shows it looks again, as often as it likes.
    public func watchService(_ receive: @escaping @Sendable (ServiceNews) -> Void) async -> Watch {
        Watch(await core.watchService(receive), of: core)
    }

    // MARK: Watching

    /// Calls `receive` with each of `downloads` as it is now, and again whenever one changes, in order, on the client's thread.
    /// nil: with everything that has not ended, and with all that is queued later.
    ///
    /// - Returns: after the first calls; the watch lasts until `stop`, or until nothing holds it.
    public func watch(
        _ downloads: [DownloadReference]? = nil, _ receive: @escaping @Sendable (DownloadUpdate) -> Void
    ) async throws(ClientError) -> Watch {
        Watch(try await core.watch(downloads, receive), of: core)
    }
}

/// What a Fetch came to.
public struct FetchedFile: Equatable, Sendable {
    /// False: the server has nothing newer than the copy at the path.
    public var isNew: Bool
    public var path: String

    public init(isNew: Bool, path: String) { (self.isNew, self.path) = (isNew, path) }
}

/// What a look at the service has found.
public struct ServiceOverview: Equatable, Sendable {
    public internal(set) var status: ServiceStatus
    /// What has not ended; those that transfer first.
    public internal(set) var current: [DownloadDescription] = []
    /// What has finished or failed, newest first.
    public internal(set) var recent: [DownloadDescription] = []
}

/// What is told of the service as a whole.
public enum ServiceNews: Equatable, Sendable {
    /// It runs: it has just been found, or started.
    case present
    /// It does not run: it has nothing to do, or was stopped.
    case absent
    /// Its counts or its settings are different.
    case changed
    /// A download has ended so.
    case ended(DownloadReference, DownloadDescription.State)
    /// A download is off the list.
    case removed(DownloadReference)
    /// The session bus has gone: nothing more will come.
    case lost
}

/// What a watch tells.
public enum DownloadUpdate: Equatable, Sendable {
    /// The download as it is now.
    case changed(DownloadDescription)
    /// It is off the list.
    case removed(DownloadReference)
    /// Nothing more will come: the bus has gone, or the service cannot be started again.
    case lost(ClientError)
}

/// A watch in force.
public final class Watch: Sendable {
    private let number: UInt64
    private let core: ClientCore

    init(_ number: UInt64, of core: ClientCore) { (self.number, self.core) = (number, core) }

    deinit { stop() }

    /// Ends it. What has been handed over on the client's thread already may still arrive.
    public func stop() {
        let (core, number) = (core, number)
        BusActor.spawn { core.stopWatch(number) }
    }
}
