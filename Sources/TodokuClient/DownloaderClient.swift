internal import DBus
public import DownloadModel
internal import DownloaderInterface
internal import EventLoop

/// The download service as an async Swift API: `Sendable` values, and functions that may be called from any thread.
///
/// A client has one connection to the session bus. A thread of this library (`EventLoop`'s) serves it, or the main thread of a program that
/// runs that loop. The bus starts the service if it does not run. A call is answered within a minute or fails, with a `ClientError`. The
/// connection closes when the client, its watches and the calls that are awaited are gone.
///
/// `wait`, `waitAll`, `fetch`, `check` and `update` have no time limit. When their task is cancelled, they throw `CancellationError` at
/// once, and the service continues. All other calls are made and answered also in a cancelled task, so that a task can clean up.
public final class DownloaderClient: Sendable {
    let core: ClientCore

    private init(_ core: ClientCore) { self.core = core }

    deinit {
        let core = core
        BusActor.spawn { core.clientReleased() }
    }

    /// Connects to the session bus, or to the bus at `address` (as in DBUS_SESSION_BUS_ADDRESS). Connecting does not start the service; the
    /// first call does.
    public static func connect(to address: String? = nil) async throws(ClientError) -> DownloaderClient {
        DownloaderClient(try await ClientCore.connect(to: address))
    }

    // MARK: Queueing and finding

    /// Queues one download. When this returns, the download is saved on disk and survives a crash.
    public func download(_ url: String, _ request: DownloadRequest = DownloadRequest()) async throws(ClientError) -> DownloadReference {
        let path = try await core.call(Manager.download, (url, request.options), repeatable: request.token != nil)
        return DownloadReference(path)
    }

    /// Downloads a file, and returns when it is complete; without a time limit. If nothing has changed since the last Fetch of the same
    /// file, the result is the cached copy.
    ///
    /// If the service goes away meanwhile, it is started again and the same Fetch is awaited. A file that was completed just then is
    /// reported as new.
    ///
    /// - Throws: a `ClientError` that says why the download failed, or why it is refused. `CancellationError` when the task is cancelled;
    ///   the download continues.
    public func fetch(_ url: String, _ request: DownloadRequest = DownloadRequest()) async throws -> FetchedFile {
        try await core.fetch(url, request.options)
    }

    /// Queues one download into the caller's own file, a regular one that is open for writing. The service gets a duplicate of
    /// `descriptor`; the caller still closes its own.
    ///
    /// Open the file without `O_TRUNC`. With a token, a repeated call finds the download of the first call, and the file may have the bytes
    /// of that download already.
    public func download(
        _ url: String, into descriptor: Int32, _ request: DownloadRequest = DownloadRequest()
    ) async throws(ClientError) -> DownloadReference {
        let arguments = (url, FileDescriptor(descriptor), request.options)
        return DownloadReference(try await core.call(Manager.downloadToFd, arguments, repeatable: request.token != nil))
    }

    /// Unended downloads in queue order, then ended ones, oldest first.
    public func list(_ query: DownloadQuery = DownloadQuery()) async throws(ClientError) -> [DownloadReference] {
        try await core.describe(query.filter, properties: [Download.state.name, Download.endedAt.name]).map(\.reference)
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
    /// Removes the download from the list; a running one is cancelled first.
    public func remove(_ download: DownloadReference, deleteFile: Bool = false) async throws(ClientError) {
        try await core.call(Download.remove, deleteFile, at: download)
    }

    /// Moves the finished file to the desktop's trash, and removes the download from the list.
    public func trash(_ download: DownloadReference) async throws(ClientError) {
        try await core.call(Download.trash, (), at: download)
    }

    /// Waits without a time limit until the download has ended. If the service goes away meanwhile, the call is repeated.
    ///
    /// - Returns: the path of the file.
    /// - Throws: a `ClientError` that says why the download failed, or why it cannot be awaited. `CancellationError` when the task is
    ///   cancelled; the download continues.
    public func wait(for download: DownloadReference) async throws -> String {
        try await core.wait(Download.wait, at: download.objectPath)
    }

    /// Waits without a time limit until all downloads that match now have ended. If the service goes away meanwhile, the call is repeated,
    /// with the downloads that match then.
    ///
    /// - Throws: `ClientError`; `CancellationError` when the task is cancelled. The downloads continue.
    public func waitAll(_ query: DownloadQuery = DownloadQuery()) async throws -> OutcomeCounts {
        try await core.waitAll(query.filter)
    }

    /// Acknowledges the outcome: the application in the option `activate` is no longer called.
    public func acknowledge(_ download: DownloadReference) async throws(ClientError) {
        try await core.call(Download.acknowledge, (), at: download, repeatable: true)
    }

    /// The whole URL, without user and password.
    public func url(of download: DownloadReference) async throws(ClientError) -> String {
        try await core.call(Download.getUrl, (), at: download, repeatable: true)
    }
    /// The caller's own data, as `DownloadRequest.metadata` set it.
    public func metadata(of download: DownloadReference) async throws(ClientError) -> [String: MetadataValue] {
        try await core.call(Download.getMetadata, (), at: download, repeatable: true).mapValues { MetadataValue($0) }
    }
    /// Replaces the caller's own data, also of an ended download; at most 64 KiB.
    public func setMetadata(_ metadata: [String: MetadataValue], of download: DownloadReference) async throws(ClientError) {
        try await core.call(Download.setMetadata, metadata.mapValues(\.variant), at: download, repeatable: true)
    }
    /// A read-only descriptor of the finished file; the caller closes it.
    public func openFile(_ download: DownloadReference) async throws(ClientError) -> Int32 {
        try await core.call(Download.openFile, (), at: download, repeatable: true).take()
    }
    /// Resumes the download from its bytes with a fresh link for the same file.
    ///
    /// A nil argument keeps its present value if the new link has the same origin. If it has another origin, the values of the old link are
    /// dropped.
    ///
    /// - Parameters:
    ///   - download: the download to resume.
    ///   - url: the fresh link.
    ///   - headers: the new request headers.
    ///   - cookies: the new cookies. Without them, the present ones stay, even if the link has another origin.
    ///   - referrer: the page that led to the link; empty: none.
    ///   - username: the new user name.
    ///   - password: the new password.
    public func replaceURL(
        of download: DownloadReference, with url: String, headers: [HeaderField]? = nil, cookies: [Cookie]? = nil,
        referrer: String? = nil, username: String? = nil, password: String? = nil
    ) async throws(ClientError) {
        var request = DownloadRequest()
        request.set(\.headers, to: headers)
        request.set(\.cookies, to: cookies)
        request.set(\.referrer, to: referrer)
        request.set(\.username, to: username)
        request.set(\.password, to: password)
        try await core.call(Download.replaceUrl, (url, request.options), at: download, repeatable: true)
    }
    /// Moves the download to a position among those of its priority; 0 is next.
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

    /// Changes the folder of a download that has no bytes on disk yet and is queued, waiting or paused.
    public func setDirectory(_ directory: String, of download: DownloadReference) async throws(ClientError) {
        try await core.set(Download.directory, directory, at: download.objectPath)
    }
    /// Whether the download may use a metered connection.
    public func setAllowsMetered(_ allows: Bool, of download: DownloadReference) async throws(ClientError) {
        try await core.set(Download.allowMetered, allows, at: download.objectPath)
    }

    // MARK: All

    /// Holds all downloads, including those queued later, until `resumeAll`.
    public func pauseAll() async throws(ClientError) { try await core.call(Manager.pauseAll, (), repeatable: true) }
    public func resumeAll() async throws(ClientError) { try await core.call(Manager.resumeAll, (), repeatable: true) }
    public func cancelAll() async throws(ClientError) { try await core.call(Manager.cancelAll, (), repeatable: true) }
    /// Removes all ended downloads from the list; files stay.
    ///
    /// - Returns: how many were removed.
    public func clearEnded() async throws(ClientError) -> UInt32 { try await core.call(Manager.clearEnded, ()) }

    /// Reports whether a window of `app` is in front. While it is, downloads of `app` with the option `notify` at `background` get no
    /// toast. The report holds until the next one, or until this client is gone. A restarted service gets it again.
    public func setForeground(_ app: String, _ isInFront: Bool) async throws(ClientError) {
        try await core.setForeground(app, isInFront)
    }

    // MARK: The desktop

    /// Opens or shows the most recent download, as a click on the service's dock icon does.
    ///
    /// - Parameter activationToken: lets the window that opens take the focus.
    public func activate(activationToken: String? = nil) async throws(ClientError) {
        try await core.call(Application.activate, Self.platformData(activationToken))
    }

    /// Opens the download folder. `activationToken` as for `activate`.
    public func openFolder(activationToken: String? = nil) async throws(ClientError) {
        try await core.call(
            Application.activateAction, (ApplicationAction.openFolder.rawValue, [], Self.platformData(activationToken)))
    }

    /// Opens a finished file, or shows it in its folder, as a click on its toast does. A program is never started. If the file is gone, its
    /// folder is opened.
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

    /// Sets the limits for requests to a host and its subdomains, over all applications. The host's former rule is replaced: a value that
    /// is nil is no longer set, and an empty rule removes the host's rule.
    public func setHostRule(_ rule: HostRule, of host: String) async throws(ClientError) {
        try await core.call(Manager.setHostRule, (host, rule.dictionary), repeatable: true)
    }

    /// The origins ("https://example.org:443") that refused requests (429, 503) and now get fewer.
    public func slowedHosts() async throws(ClientError) -> [String: SlowedHost] {
        try await core.call(Manager.listSlowedHosts, (), repeatable: true).mapValues { SlowedHost($0) }
    }

    /// Forgets the pauses and intervals of a host that refused requests, and of those that share its rule.
    public func resetHost(_ host: String) async throws(ClientError) {
        try await core.call(Manager.resetHost, host, repeatable: true)
    }

    // MARK: Watching the service

    /// The data for a tray: the state of the service and two lists, each of at most 1,000 downloads; 0: an empty list. A list with more
    /// than 48 MiB of properties is cut.
    ///
    /// - Parameters:
    ///   - current: most unended downloads; active ones come first, then the others in queue order.
    ///   - recent: most downloads that finished or failed, newest first.
    /// - Returns: nil if the service does not run (it is not started), or does not answer.
    public func overview(current: Int = 10, recent: Int = 10) async throws(ClientError) -> ServiceOverview? {
        try await core.overview(current: min(current, Limits.listed), recent: min(recent, Limits.listed))
    }

    /// What a person may name at a command line: the unended downloads in queue order, the downloads that ended last, and the newest
    /// batches; at most 1,000 of each.
    ///
    /// - Returns: nil if the service does not run (it is not started), or does not answer.
    package func namesIfRunning() async throws(ClientError) -> (downloads: [DownloadReference], batches: [BatchReference])? {
        try await core.namesIfRunning()
    }

    /// The registered assets, named as APP/NAME.
    ///
    /// - Returns: nil if the service does not run (it is not started), or does not answer.
    package func assetsIfRunning() async throws(ClientError) -> [AssetReference]? { try await core.assetsIfRunning() }

    /// Calls `receive` on the client's thread when the service starts, ends, or has other news about itself. Never starts the service.
    /// Received bytes are no news: to show them, call `overview` as often as needed.
    public func watchService(_ receive: @escaping @Sendable (ServiceNews) -> Void) async -> Watch {
        Watch(await core.watchService(receive), of: core)
    }

    // MARK: Watching downloads

    /// The states of a download up to its end, as a sequence. Makes no call: reading the sequence does.
    public func watch(_ download: DownloadReference) -> DownloadWatch { DownloadWatch(download, of: core) }

    /// Calls `receive` with the present state of each of `downloads`, and again at each change, in order, on the client's thread. nil
    /// watches all downloads that have not ended, and all that are queued later.
    ///
    /// - Returns: after the first calls. The watch lasts until `stop`, or until it is released.
    public func watch(
        _ downloads: [DownloadReference]? = nil, _ receive: @escaping @Sendable (DownloadUpdate) -> Void
    ) async throws(ClientError) -> Watch {
        let core = core
        return Watch(try await onLoop { () async throws(ClientError) in try await core.watch(downloads, receive) }, of: core)
    }
}

/// The result of a Fetch.
public struct FetchedFile: Equatable, Sendable {
    /// False: the server has nothing newer than the copy at the path.
    public var isNew: Bool
    public var path: String

    public init(isNew: Bool, path: String) { (self.isNew, self.path) = (isNew, path) }
}

/// The state of the service and of its downloads.
public struct ServiceOverview: Equatable, Sendable {
    public internal(set) var status: ServiceStatus
    /// Downloads that have not ended; active ones first.
    public internal(set) var current: [DownloadDescription] = []
    /// Downloads that finished or failed, newest first.
    public internal(set) var recent: [DownloadDescription] = []
}

/// News about the service as a whole.
public enum ServiceNews: Equatable, Sendable {
    /// The service runs: it was just found, or started.
    case present
    /// The service does not run: it has nothing to do, or was stopped.
    case absent
    /// The service's counts or settings have changed.
    case changed
    /// A download has ended in this state.
    case ended(DownloadReference, DownloadDescription.State)
    /// A download was removed from the list.
    case removed(DownloadReference)
    /// The session bus is gone; this is the last call.
    case lost
}

/// An update of a watched download.
public enum DownloadUpdate: Equatable, Sendable {
    /// The download's present state.
    case changed(DownloadDescription)
    /// The download was removed from the list.
    case removed(DownloadReference)
    /// This is the last update: the bus is gone, or the service cannot be started again.
    case lost(ClientError)
}

/// A running watch.
public final class Watch: Sendable {
    private let number: UInt64
    private let core: ClientCore

    init(_ number: UInt64, of core: ClientCore) { (self.number, self.core) = (number, core) }

    deinit { stop() }

    /// Watches a download, too. A missing one is reported as removed: it may have left the list since it was named.
    package func add(_ download: DownloadReference) async throws(ClientError) {
        let (core, number) = (core, number)
        try await onLoop { () async throws(ClientError) in try await core.add(download, toWatch: number) }
    }

    /// Ends the watch. Updates that are already queued on the client's thread may still arrive.
    public func stop() {
        let (core, number) = (core, number)
        BusActor.spawn { core.stopWatch(number) }
    }
}
