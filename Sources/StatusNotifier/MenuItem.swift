internal import DBus
internal import EventLoop

/// One entry of a menu.
public struct MenuItem: Sendable {
    public enum Toggle: Equatable, Sendable {
        case check(Bool)
        /// One of several neighbouring entries.
        case radio(Bool)
    }

    /// Unique in the menu. An entry with the same key after an update is the same entry.
    public var key: String
    /// The text to display; underscores are literal.
    public var label: String
    public var isSeparator = false
    public var isEnabled = true
    /// An icon's name in the icon theme.
    public var iconName = ""
    public var toggle: Toggle?
    /// If not empty, the entry is a submenu.
    public var children: [MenuItem] = []
    public var action: (@BusActor @Sendable () -> Void)?

    public init(_ key: String, _ label: String, _ action: (@BusActor @Sendable () -> Void)? = nil) {
        (self.key, self.label, self.action) = (key, label, action)
    }

    public static func separator(_ key: String) -> MenuItem {
        var item = MenuItem(key, "")
        item.isSeparator = true
        return item
    }

    /// The properties that differ from the protocol's defaults.
    var properties: [String: Variant] {
        if isSeparator { return ["type": .string("separator")] }
        // In a label, an underscore marks the access key, so double it. Go by scalars, because Swift joins an underscore and a following
        // combining mark into one character.
        let scalars = label.unicodeScalars.flatMap { $0 == "_" ? [$0, $0] : [$0] }
        var properties: [String: Variant] = ["label": .string(String(String.UnicodeScalarView(scalars)))]
        if !isEnabled { properties["enabled"] = .bool(false) }
        if !iconName.isEmpty { properties["icon-name"] = .string(iconName) }
        if !children.isEmpty { properties["children-display"] = .string("submenu") }
        switch toggle {
        case .check(let isOn): (properties["toggle-type"], properties["toggle-state"]) = (.string("checkmark"), .int32(isOn ? 1 : 0))
        case .radio(let isOn): (properties["toggle-type"], properties["toggle-state"]) = (.string("radio"), .int32(isOn ? 1 : 0))
        case nil: break
        }
        return properties
    }
}
