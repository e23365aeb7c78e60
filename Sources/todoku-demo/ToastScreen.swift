internal import DBus
internal import EventLoop

/// A small but real notification server (Desktop Notifications Specification 1.2) that shows toasts as text.
@BusActor final class ToastScreen: ObjectTree {
    nonisolated static let name = "org.freedesktop.Notifications"
    nonisolated static let path = ObjectPath("/org/freedesktop/Notifications")
    /// Most toasts held; after that the oldest is closed.
    private static let mostToasts = 100

    private let connection: Connection
    private var toasts: [UInt32: ShownToast] = [:]
    private var last: UInt32 = 0
    /// Whether the terminal's current line is a progress toast without a line end.
    private var lineIsOpen = false

    /// - Throws: if there is no session bus, or another server owns the name.
    init() throws(DBusError) {
        connection = try Connection.session()
        guard try connection.requestName(Self.name) else { throw .failed("a notification server is there already") }
    }

    func start() {
        connection.export(self)
        connection.onDisconnect = { BusActor.stop() }
    }

    func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? {
        path == Self.path.value ? [Notifications.face.of(self)] : nil
    }

    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] {
        guard path == "/" || Self.path.value.hasPrefix(path + "/") else { return [] }
        let below = path == "/" ? Self.path.value.dropFirst() : Self.path.value.dropFirst(path.utf8.count + 1)
        return below.split(separator: "/").prefix(min(1, limit)).map(String.init)
    }

    /// Shows a toast, which replaces the toast `replaced` if that is still shown.
    ///
    /// - Returns: the toast's id.
    func show(_ toast: ShownToast, replacing replaced: UInt32) -> UInt32 {
        let previous = toasts[replaced]
        if previous == nil { last = last == .max ? 1 : last + 1 }
        let id = previous == nil ? last : replaced
        toasts[id] = toast
        draw(toast, after: previous)
        if toasts.count > Self.mostToasts, let oldest = toasts.keys.min() { close(oldest, reason: 4) }
        return id
    }

    /// - Parameter reason: 3: by CloseNotification, 4: undefined.
    func close(_ id: UInt32, reason: UInt32) {
        guard toasts.removeValue(forKey: id) != nil else { return }
        endLine()
        connection.send(Notifications.closed.message(from: Self.path, (id, reason)))
    }

    private func draw(_ toast: ShownToast, after previous: ShownToast?) {
        guard let value = toast.value else {
            endLine()
            return say(framed("toast from \(toast.app)", toast.lines))
        }
        // A progress toast is one line. A terminal overwrites it; otherwise a line is written for each quarter.
        let line = "toast: " + toast.lines.joined(separator: "  ")
        if outputIsTerminal() {
            write("\r\u{1B}[K\(line)", to: 1)
            lineIsOpen = true
        } else if previous?.value.map({ $0 / 25 }) != value / 25 {
            say(line)
        }
    }

    private func endLine() {
        if lineIsOpen { say("") }
        lineIsOpen = false
    }
}

/// A toast as requested.
struct ShownToast: Equatable {
    var app: String
    var summary: String
    var body: String
    /// The labels of its buttons.
    var labels: [String]
    /// The percentage of a progress toast; nil for others.
    var value: Int32?

    init(app: String, summary: String, body: String, actions: [String], hints: [String: Variant]) {
        (self.app, self.summary, self.body) = (printable(app), printable(summary), body)
        // Pairs of key and label. "default" is a click on the toast itself, not a button.
        labels = stride(from: 0, to: actions.count - 1, by: 2).filter { actions[$0] != "default" }.map { printable(actions[$0 + 1]) }
        value = hints["value"]?.int32
    }

    var lines: [String] {
        var lines = [summary] + body.split(whereSeparator: \.isNewline).map { printable(String($0)) }
        if !labels.isEmpty { lines.append(labels.map { "[\($0)]" }.joined(separator: " ")) }
        return lines
    }
}
