public import DBus
internal import DownloadModel
public import EventLoop

/// The content of a job. The texts are for people.
public struct JobContent: Sendable {
    public var title = ""
    /// Replaces the desktop's own status text; empty: the desktop's own text.
    public var message = ""
    public var isSuspended = false
    public var received: UInt64 = 0
    /// nil: unknown.
    public var total: UInt64?
    /// From 0 to 1; nil: unknown.
    public var fraction: Double?
    /// Bytes per second.
    public var speed: UInt64 = 0
    public var elapsed: Duration = .zero
    public var files: (done: UInt64, all: UInt64) = (0, 1)
    /// Where the bytes come from and go to, each with a label. An empty value is left out.
    public var source = (label: "", value: "")
    public var destination = (label: "", value: "")
    /// The absolute path of the destination folder; empty: none.
    public var folder = ""
    public init() {}

    /// The argument of `org.kde.JobViewV3.update`.
    var properties: [String: Variant] {
        var all: [String: Variant] = [
            "title": .string(title), "infoMessage": .string(message), "suspended": .bool(isSuspended), "speed": .uint64(speed),
            "processedBytes": .uint64(received), "totalBytes": .uint64(total ?? 0), "processedFiles": .uint64(files.done),
            "totalFiles": .uint64(files.all), "elapsedTime": .uint64(UInt64(clamping: elapsed.wholeMilliseconds)),
            "percent": .uint32(UInt32(clamping: min(max(0, fraction ?? 0), 1) * 100)),
        ]
        for (number, field) in [source, destination].filter({ !$0.value.isEmpty }).enumerated() {
            all["descriptionLabel\(number + 1)"] = .string(field.label)
            all["descriptionValue\(number + 1)"] = .string(field.value)
        }
        if !folder.isEmpty { all["destUrl"] = .string(fileURI(of: folder)) }
        return all
    }
}

/// Jobs in KDE's task display, with progress and buttons to pause and stop: `org.kde.JobViewServerV2` and `org.kde.JobViewV3`. No views
/// without an owner of `org.kde.JobViewServer`.
///
/// A hanging server delays no other work. All views are requested again from a restarted server.
@BusActor public final class JobViews {
    /// The request of a click on a job.
    public enum Wish: String, CaseIterable, Sendable {
        case suspend = "suspendRequested"
        case resume = "resumeRequested"
        case cancel = "cancelRequested"
    }

    private enum Server {
        static let name = "org.kde.JobViewServer"
        static let path = ObjectPath("/JobViewServer")
        static let requestView = MethodOf(
            "org.kde.JobViewServerV2", "requestView", in: String.self, Int32.self, [String: Variant].self, out: ObjectPath.self)
        static let view = "org.kde.JobViewV3"
        static let update = MethodOf(view, "update", in: [String: Variant].self)
        static let terminate = MethodOf(view, "terminate", in: UInt32.self, String.self, [String: Variant].self)
        /// Both buttons: KJob's Killable and Suspendable.
        static let capabilities: Int32 = 1 | 2
        /// KIO::ERR_USER_CANCELED: the view disappears without a message.
        static let silently: UInt32 = 1
    }

    private struct View {
        var content: JobContent
        /// The properties that the server already has.
        var told: [String: Variant] = [:]
        var path: ObjectPath?
        /// The number of the request that yields `path`; 0: none was made.
        var request: UInt64 = 0
    }

    private let session: Connection
    private let icon: String
    private let patience: Duration
    private let wished: @BusActor (UInt64, Wish) -> Void
    private let servedChanged: @BusActor () -> Void
    private var peer: BusPeer?
    private var server: String?
    /// The job server refused a view, or does not answer. Until it makes a view, or another server owns the name, no view is requested.
    private var isMute = false
    private var views: [UInt64: View] = [:]
    private var lastRequest: UInt64 = 0
    private var signals: Connection.Subscription?
    /// The application name that the jobs show.
    public var applicationName = ""

    /// - Parameters:
    ///   - icon: the icon name of all jobs.
    ///   - patience: how long the server may take to make a view before no further views are requested.
    ///   - wished: called with a job's key after a click on its view.
    ///   - servedChanged: called when `isServed` may have changed.
    public init(
        session: Connection, icon: String, patience: Duration = .seconds(25), wished: @escaping @BusActor (UInt64, Wish) -> Void,
        servedChanged: @escaping @BusActor () -> Void
    ) {
        (self.session, self.icon, self.patience) = (session, icon, patience)
        (self.wished, self.servedChanged) = (wished, servedChanged)
    }

    /// Starts watching for a server. Later calls do nothing.
    public func watch() {
        guard peer == nil else { return }
        peer = BusPeer(Server.name, on: session) { [weak self] in self?.server(is: $0) }
    }

    /// Whether a server provides views.
    public var isServed: Bool { server != nil && !isMute }

    /// Shows the job `key`, or updates its view.
    public func show(_ key: UInt64, _ content: JobContent) {
        guard views[key] != nil else {
            views[key] = View(content: content)
            if isServed { request(key) }
            return
        }
        views[key]?.content = content
        tell(key)
    }

    /// Closes the view of a job that has ended or is no longer shown.
    ///
    /// - Parameter finished: the job finished. Otherwise the view disappears without a message, because toasts report the outcome.
    public func end(_ key: UInt64, finished: Bool) {
        guard let view = views.removeValue(forKey: key) else { return }
        if let path = view.path { terminate(path, finished: finished) }
        if views.isEmpty { listen(to: nil) }
    }

    /// Closes all views before the program exits.
    public func end() {
        for key in views.keys.sorted() { end(key, finished: false) }
        peer?.stop()
        server = nil
    }

    private func server(is owner: String?) {
        listen(to: nil)
        (server, isMute) = (owner, false)
        views = views.mapValues { View(content: $0.content) }
        if owner != nil { for key in views.keys.sorted() { request(key) } }
        servedChanged()
    }

    /// Omits the desktop entry on purpose. With an entry, Plasma would mark its icon with the count and mean progress of these jobs. The
    /// marks of `LauncherEntries` cover all downloads.
    private func request(_ key: UInt64) {
        guard let server else { return }
        listen(to: server)
        lastRequest += 1
        let request = lastRequest
        views[key]?.request = request
        let hints: [String: Variant] = [
            "application-display-name": .string(applicationName), "application-icon-name": .string(icon),
            "transient": .bool(true),  // closes the view of an ended job, because toasts report the end
        ]
        let silence = Poller.shared.scheduleAwake(after: patience) { [weak self] in self?.note(isMute: true, server) }
        BusActor.spawn { [weak self, session] in
            // No time limit: a view that the server makes later would stay until our connection closes.
            let path = try? await session.call(
                Server.requestView, on: server, at: Server.path, ("", Server.capabilities, hints), timeout: nil)
            Poller.shared.cancel(silence)
            self?.take(path, of: key, request, from: server)
        }
    }

    /// Notes whether `server` makes views. If it makes views again, requests those that were not requested meanwhile.
    private func note(isMute: Bool, _ server: String) {
        guard server == self.server, isMute != self.isMute else { return }
        self.isMute = isMute
        if !isMute { for key in views.keys.sorted() where views[key]?.request == 0 { request(key) } }
        servedChanged()
    }

    private func take(_ path: ObjectPath?, of key: UInt64, _ request: UInt64, from server: String) {
        note(isMute: path == nil, server)
        guard server == self.server, let path else { return }
        // The job may have ended meanwhile.
        guard views[key]?.request == request else { return terminate(path, finished: false) }
        views[key]?.path = path
        tell(key)
    }

    /// Sends the properties that have changed since the last update.
    private func tell(_ key: UInt64) {
        guard let server, let view = views[key], let path = view.path else { return }
        let now = view.content.properties
        let news = now.filter { view.told[$0.key] != $0.value }
        guard !news.isEmpty else { return }
        views[key]?.told = now
        try? session.tell(Server.update, on: server, at: path, news)
    }

    private func terminate(_ path: ObjectPath, finished: Bool) {
        guard let server else { return }
        try? session.tell(Server.terminate, on: server, at: path, (finished ? 0 : Server.silently, "", [:]))
    }

    /// Subscribes by the server's unique name, because any other process may send the same signals.
    private func listen(to server: String?) {
        guard let server else {
            if let signals { session.unsubscribe(signals) }
            signals = nil
            return
        }
        guard signals == nil else { return }
        signals = session.subscribe(MatchRule(sender: server, interface: Server.view)) { [weak self] message in
            guard let self, let wish = Wish(rawValue: message.member),
                let key = views.first(where: { $0.value.path?.value == message.path })?.key
            else { return }
            wished(key, wish)
        }
    }
}
