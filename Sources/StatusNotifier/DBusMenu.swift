public import DBus
public import EventLoop

/// A menu that panels draw (`com.canonical.dbusmenu`).
@BusActor public final class DBusMenu {
    public nonisolated static let path = ObjectPath("/MenuBar")

    private var tree = MenuTree()
    private var connection: Connection?

    /// Whether changes are signalled. False while no panel listens; changes are then only stored.
    public var isWatched = true
    /// `opened` is called when a panel has opened the menu, `aboutToShow` before it opens. Some panels report one, some the other, some
    /// both. Some report `aboutToShow` without opening the menu.
    public var opened: () -> Void = {}
    public var aboutToShow: () -> Void = {}
    /// Most entries, properties or events in one call: far more than a menu has.
    private static let mostAtOnce = 1000

    public init() {}

    func attach(to connection: Connection) { self.connection = connection }

    /// Replaces the menu by `items`, and signals the differences.
    public func show(_ items: [MenuItem]) {
        let change = tree.replace(by: items)
        guard let connection, isWatched else { return }
        if !change.updated.isEmpty || !change.removed.isEmpty {
            let updated = change.updated.sorted { $0.key < $1.key }.map { Structure($0.key, $0.value) }
            let removed = change.removed.sorted { $0.key < $1.key }.map { Structure($0.key, $0.value) }
            connection.send(MenuInterface.itemsPropertiesUpdated.message(from: Self.path, (updated, removed)))
        }
        if let layout = change.layout {
            connection.send(MenuInterface.layoutUpdated.message(from: Self.path, (tree.revision, layout)))
        }
    }

    private func take(_ event: String, of number: Int32) {
        switch event {
        case "clicked": tree.nodes[number]?.action?()
        case "opened" where number == 0: opened()
        default: break  // hovered, closed, or a vendor's own event (x-…)
        }
    }

    private static func limit(_ count: Int) throws {
        guard count <= mostAtOnce else { throw DBusError.limitsExceeded("a call may name at most \(mostAtOnce)") }
    }

    private static func noSuchEntry(_ number: Int32) -> DBusError { .invalidArgs("the menu has no entry \(number)") }

    static let face = Face<DBusMenu>(
        MenuInterface.name, xml: { MenuInterface.xml },
        methods: [
            Row(MenuInterface.getLayout) { menu, arguments, reply in
                let (number, depth, names) = arguments
                try limit(names.count)
                guard let layout = menu.tree.layout(of: number, depth: depth, names: names) else { throw noSuchEntry(number) }
                reply((menu.tree.revision, layout))
            },
            Row(MenuInterface.getGroupProperties) { menu, arguments, reply in
                try limit(max(arguments.0.count, arguments.1.count))
                reply(menu.tree.properties(of: arguments.0, names: arguments.1))
            },
            Row(MenuInterface.getProperty) { menu, arguments, reply in
                guard let node = menu.tree.nodes[arguments.0] else { throw noSuchEntry(arguments.0) }
                guard let value = node.properties[arguments.1] ?? MenuTree.defaultValue(of: arguments.1) else {
                    throw DBusError.invalidArgs("menu entries have no property \(arguments.1.prefix(64))")
                }
                reply(value)
            },
            Row(MenuInterface.event) { menu, arguments, reply in
                // Reply first, because the panel waits and the action may take long.
                guard menu.tree.nodes[arguments.0] != nil else { throw noSuchEntry(arguments.0) }
                reply()
                menu.take(arguments.1, of: arguments.0)
            },
            Row(MenuInterface.eventGroup) { menu, events, reply in
                try limit(events.count)
                let missing = events.map(\.fields.0).filter { menu.tree.nodes[$0] == nil }
                if !events.isEmpty, missing.count == events.count { throw noSuchEntry(missing[0]) }
                reply(missing)
                for event in events { menu.take(event.fields.1, of: event.fields.0) }
            },
            Row(MenuInterface.aboutToShow) { menu, number, reply in
                guard menu.tree.nodes[number] != nil else { throw noSuchEntry(number) }
                reply(false)  // false: changes are signalled
                if number == 0 { menu.aboutToShow() }
            },
            Row(MenuInterface.aboutToShowGroup) { menu, numbers, reply in
                try limit(numbers.count)
                let missing = numbers.filter { menu.tree.nodes[$0] == nil }
                if !numbers.isEmpty, missing.count == numbers.count { throw noSuchEntry(missing[0]) }
                reply(([], missing))
                if numbers.contains(0) { menu.aboutToShow() }
            },
        ],
        properties: [
            PropertyRow(MenuInterface.version) { _ in 3 },
            PropertyRow(MenuInterface.textDirection) { _ in "ltr" },
            PropertyRow(MenuInterface.status) { _ in "normal" },
            PropertyRow(MenuInterface.iconThemePath) { _ in [] },
        ],
        signals: [
            MenuInterface.itemsPropertiesUpdated.name: MenuInterface.itemsPropertiesUpdated.signature,
            MenuInterface.layoutUpdated.name: MenuInterface.layoutUpdated.signature,
            MenuInterface.itemActivationRequested.name: MenuInterface.itemActivationRequested.signature,
        ])
}
