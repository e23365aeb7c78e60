public import DBus
public import EventLoop

/// An item in the panel's tray: an icon, a tooltip, a menu, and clicks. Without a panel it waits for one.
@BusActor public final class StatusNotifierItem {
    public enum Status: String, Sendable {
        /// Hosts may hide it.
        case passive = "Passive"
        case active = "Active"
        case needsAttention = "NeedsAttention"
    }

    /// The item's appearance in hosts.
    public struct Appearance: Equatable, Sendable {
        public var title = ""
        public var status = Status.passive
        /// An icon's name in the icon theme; hosts prefer it to the pixmaps.
        public var iconName = ""
        public var icon = IconPixmaps.none
        /// Shown instead of `icon` if the status is `needsAttention`.
        public var attentionIcon = IconPixmaps.none
        public var toolTip = ToolTip()
        public init() {}
    }

    /// A user's action on the icon.
    public enum Gesture: Equatable, Sendable {
        case activate
        case secondaryActivate
        /// The host draws no menus and asks us to show ours. We cannot, without a toolkit.
        case contextMenu
        /// `delta` is positive for up.
        case scroll(delta: Int32, isHorizontal: Bool)
    }

    /// Least time between two signalled changes: xfce4-panel and Plasma read all properties again at each.
    static let leastInterval: Duration = .milliseconds(500)
    /// Time between two attempts to register with a watcher that refuses, because it may be starting.
    private static let retryDelay: Duration = .seconds(2)
    private static let mostRetries = 5
    /// How long hosts may read the properties of an item that has just appeared.
    private static let takingIn: Duration = .seconds(3)

    private let connection: Connection
    private let id: String
    private let menu: DBusMenu
    private var watcher: BusPeer?
    /// The unique name of the watcher; nil: there is none.
    private var owner: String?
    private var retry: Poller.Token?
    private var wanted: Appearance
    private var told: Appearance
    private var lastTold: ContinuousClock.Instant?
    /// When the item was registered, or last signalled another status.
    private var lastAppearance: ContinuousClock.Instant?
    private var timer: Poller.Token?
    private var token: String?

    /// Whether a watcher has accepted the item; otherwise no panel shows it.
    public private(set) var isRegistered = false
    /// Called when `isRegistered` changes.
    public var registeredChanged: (Bool) -> Void = { _ in }
    public var received: (Gesture) -> Void = { _ in }
    /// Whether hosts have known the item unchanged for a while. A call from a host then comes from a user.
    public var isFamiliar: Bool { lastAppearance.map { .now - $0 >= Self.takingIn } ?? false }

    /// Exports item and menu on `connection`, which must serve nothing else. Registers with each watcher that runs or appears.
    ///
    /// - Parameter id: unique to the program, and the same at each start.
    public init(_ id: String, on connection: Connection, menu: DBusMenu, _ appearance: Appearance) {
        (self.id, self.connection, self.menu, wanted, told) = (id, connection, menu, appearance, appearance)
        menu.attach(to: connection)
        connection.export(self)
        watcher = BusPeer(WatcherInterface.name, on: connection) { [weak self] in self?.watcher(is: $0) }
    }

    // MARK: Registration

    private func watcher(is owner: String?) {
        if let retry { Poller.shared.cancel(retry) }
        (self.owner, retry) = (owner, nil)
        setRegistered(false)
        if let owner { register(with: owner, retries: 0) }
    }

    private func register(with owner: String, retries: Int) {
        BusActor.spawn { [self] in
            // Register by object path, as Ayatana's library does: GNOME's extension then follows our unique name only. An item with a
            // well-known name is announced to the extension twice, and sometimes never shown. Call the watcher's unique name, which no
            // other program can own.
            let path = ItemInterface.path.value
            let offered = wanted
            let isAccepted =
                (try? await connection.call(WatcherInterface.registerItem, on: owner, at: WatcherInterface.path, path)) != nil
            // A watcher that has given its name away counts no longer. We follow its successor.
            guard owner == self.owner else { return }
            if isAccepted { return accepted(offered) }
            guard retries < Self.mostRetries else { return }
            retry = Poller.shared.schedule(after: Self.retryDelay) { [self] in register(with: owner, retries: retries + 1) }
        }
    }

    /// - Parameter offered: the appearance when the item was offered. A host may have read everything before its watcher answered.
    private func accepted(_ offered: Appearance) {
        guard !isRegistered else { return }
        told = offered
        setRegistered(true)
        show(wanted)
    }

    private func setRegistered(_ value: Bool) {
        guard isRegistered != value else { return }
        isRegistered = value
        lastAppearance = .now
        registeredChanged(value)
    }

    /// Shows `appearance` at once, or half a second after the last change. An appearance that is replaced before then is never signalled.
    public func show(_ appearance: Appearance) {
        wanted = appearance
        guard wanted != told, timer == nil, isRegistered else { return }
        let due = lastTold.map { $0 + Self.leastInterval } ?? .now
        if due <= .now { return tell() }
        timer = Poller.shared.schedule(at: due) { [weak self] in
            self?.timer = nil
            self?.tell()
        }
    }

    private func tell() {
        let (before, now) = (told, wanted)
        guard before != now, isRegistered else { return }
        (told, lastTold) = (now, .now)
        if before.title != now.title { send(ItemInterface.newTitle) }
        if before.iconName != now.iconName || before.icon != now.icon { send(ItemInterface.newIcon) }
        if before.attentionIcon != now.attentionIcon { send(ItemInterface.newAttentionIcon) }
        if before.toolTip != now.toolTip { send(ItemInterface.newToolTip) }
        if before.status != now.status {
            lastAppearance = lastTold
            connection.send(ItemInterface.newStatus.message(from: ItemInterface.path, now.status.rawValue))
        }
    }

    private func send(_ signal: SignalOf<Void>) { connection.send(signal.message(from: ItemInterface.path, ())) }

    // MARK: Clicks

    /// Takes the host's activation token for the window that a click opens. A token works only once.
    public func takeActivationToken() -> String? {
        defer { token = nil }
        return token
    }

    static let face = Face<StatusNotifierItem>(
        ItemInterface.name, xml: { ItemInterface.xml },
        methods: [
            Row(ItemInterface.contextMenu) { item, _, reply in
                reply()
                item.received(.contextMenu)
            },
            Row(ItemInterface.activate) { item, _, reply in
                reply()
                item.received(.activate)
            },
            Row(ItemInterface.secondaryActivate) { item, _, reply in
                reply()
                item.received(.secondaryActivate)
            },
            Row(ItemInterface.scroll) { item, arguments, reply in
                reply()
                item.received(.scroll(delta: arguments.0, isHorizontal: arguments.1.lowercased() == "horizontal"))
            },
            Row(ItemInterface.provideXdgActivationToken) { item, token, reply in
                reply()
                item.token = token.isEmpty ? nil : token
            },
        ],
        properties: [
            PropertyRow(ItemInterface.category) { _ in "ApplicationStatus" },
            PropertyRow(ItemInterface.id) { $0.id },
            PropertyRow(ItemInterface.title) { $0.wanted.title },
            PropertyRow(ItemInterface.status) { $0.wanted.status.rawValue },
            PropertyRow(ItemInterface.windowId) { _ in 0 },
            PropertyRow(ItemInterface.iconThemePath) { _ in "" },
            PropertyRow(ItemInterface.iconName) { $0.wanted.iconName },
            PropertyRow(ItemInterface.iconPixmap) { $0.wanted.icon },
            // lxqt-panel covers the whole icon with an overlay.
            PropertyRow(ItemInterface.overlayIconName) { _ in "" },
            PropertyRow(ItemInterface.overlayIconPixmap) { _ in .none },
            PropertyRow(ItemInterface.attentionIconName) { _ in "" },
            PropertyRow(ItemInterface.attentionIconPixmap) { $0.wanted.attentionIcon },
            PropertyRow(ItemInterface.attentionMovieName) { _ in "" },
            PropertyRow(ItemInterface.iconAccessibleDesc) { $0.wanted.toolTip.title },
            PropertyRow(ItemInterface.attentionAccessibleDesc) { $0.wanted.toolTip.title },
            PropertyRow(ItemInterface.toolTip) { $0.wanted.toolTip },
            PropertyRow(ItemInterface.itemIsMenu) { _ in false },
            PropertyRow(ItemInterface.menu) { _ in DBusMenu.path },
        ],
        signals: [
            ItemInterface.newTitle.name: ItemInterface.newTitle.signature, ItemInterface.newIcon.name: ItemInterface.newIcon.signature,
            ItemInterface.newAttentionIcon.name: ItemInterface.newAttentionIcon.signature,
            ItemInterface.newOverlayIcon.name: ItemInterface.newOverlayIcon.signature,
            ItemInterface.newToolTip.name: ItemInterface.newToolTip.signature,
            ItemInterface.newStatus.name: ItemInterface.newStatus.signature,
        ])
}

extension StatusNotifierItem: ObjectTree {
    public func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? {
        switch path {
        case ItemInterface.path.value: [Self.face.of(self)]
        case DBusMenu.path.value: [DBusMenu.face.of(menu)]
        default: nil
        }
    }

    public func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] {
        path == "/" ? [ItemInterface.path, DBusMenu.path].map { String($0.value.dropFirst()) } : []
    }
}
