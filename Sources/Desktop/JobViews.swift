public import DBus
internal import DownloadModel
public import EventLoop

/// What a job shows. Texts are for people.
public struct JobContent: Sendable {
    public var title = ""
    /// Stands in place of what the desktop says itself; empty: it says it.
    public var message = ""
    public var isSuspended = false
    public var received: UInt64 = 0
    /// nil: not known.
    public var total: UInt64?
    /// From 0 to 1; nil: not known.
    public var fraction: Double?
    /// Bytes per second.
    public var speed: UInt64 = 0
    public var elapsed: Duration = .zero
    public var files: (done: UInt64, all: UInt64) = (0, 1)
    /// Where it comes from and goes to, each with its label; an empty one is left out.
    public var source = (label: "", value: "")
    public var destination = (label: "", value: "")
    /// The folder that it goes to, absolute; empty: none.
    public var folder = ""
    public init() {}

    /// As `org.kde.JobViewV3.update` takes them.
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
        if !folder.isEmpty { all["destUrl"] = .string(fileUri(folder)) }
        return all
    }
}

/// Jobs as KDE shows them, with their progress and buttons to pause and to stop: `org.kde.JobViewServerV2` and `org.kde.JobViewV3`. Where
/// nobody owns `org.kde.JobViewServer`, there are none.
///
/// A server that hangs keeps nobody waiting; one that is started anew is asked for all views again.
@BusActor public final class JobViews {
    /// What somebody wants who clicks on a job.
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
        /// KIO::ERR_USER_CANCELED: the view goes without a word.
        static let silently: UInt32 = 1
    }

    private struct View {
        var content: JobContent
        /// What of it the server has been told.
        var told: [String: Variant] = [:]
        var path: ObjectPath?
        /// Which request its path comes from.
        var request: UInt64 = 0
    }

    private let session: Connection
    private let icon: String
    private let wished: @BusActor (UInt64, Wish) -> Void
    private let servedChanged: @BusActor () -> Void
    private var peer: BusPeer?
    private var server: String?
    /// The job server refused a view, or did not answer. No call goes to it until another server owns the name.
    private var isMute = false
    private var views: [UInt64: View] = [:]
    private var lastRequest: UInt64 = 0
    private var signals: Connection.Subscription?
    /// As whose jobs they are shown.
    public var applicationName = ""

    /// - Parameters:
    ///   - icon: name of the icon of all jobs.
    ///   - wished: called with a job's key when somebody clicks on it.
    ///   - servedChanged: called when `isServed` may have changed.
    public init(
        session: Connection, icon: String, wished: @escaping @BusActor (UInt64, Wish) -> Void, servedChanged: @escaping @BusActor () -> Void
    ) { (self.session, self.icon, self.wished, self.servedChanged) = (session, icon, wished, servedChanged) }

    /// Begins to look for a server, once.
    public func watch() {
        guard peer == nil else { return }
        peer = BusPeer(Server.name, on: session) { [weak self] in self?.server(is: $0) }
    }

    /// Whether views can be had.
    public var isServed: Bool { server != nil && !isMute }

    /// Shows the job `key`, or what is new of it.
    public func show(_ key: UInt64, _ content: JobContent) {
        guard views[key] != nil else {
            views[key] = View(content: content)
            if isServed { request(key) }
            return
        }
        views[key]?.content = content
        tell(key)
    }

    /// Ends the view of a job that has ended, or that is no longer shown.
    ///
    /// - Parameter finished: it has come to its end. Otherwise the view goes without a word: what has to be said is said in toasts.
    public func end(_ key: UInt64, finished: Bool) {
        guard let view = views.removeValue(forKey: key) else { return }
        if let path = view.path { terminate(path, finished: finished) }
        if views.isEmpty { listen(to: nil) }
    }

    /// Ends all views, for the end of the program.
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

    /// The desktop entry is left out on purpose: for jobs that have one, Plasma marks its icon with their number and their mean progress,
    /// in place of the marks of `LauncherEntries`, which know of all downloads.
    private func request(_ key: UInt64) {
        guard let server else { return }
        listen(to: server)
        lastRequest += 1
        let request = lastRequest
        views[key]?.request = request
        let hints: [String: Variant] = [
            "application-display-name": .string(applicationName), "application-icon-name": .string(icon),
            "transient": .bool(true),  // no view stays when it has ended: toasts tell of that
        ]
        BusActor.spawn { [weak self, session] in
            let path = try? await session.call(Server.requestView, on: server, at: Server.path, ("", Server.capabilities, hints))
            self?.take(path, of: key, request, from: server)
        }
    }

    private func take(_ path: ObjectPath?, of key: UInt64, _ request: UInt64, from server: String) {
        guard server == self.server else { return }
        guard let path else {
            isMute = true
            return servedChanged()
        }
        // It may have ended meanwhile.
        guard views[key]?.request == request else { return terminate(path, finished: false) }
        views[key]?.path = path
        tell(key)
    }

    /// Sends what the server has not been told.
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

    /// Listens to the server by its unique name: what anybody else sends is not it.
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
