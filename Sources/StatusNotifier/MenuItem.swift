internal import DBus
internal import EventLoop

/// One entry of a menu.
public struct MenuItem: Sendable {
    public enum Toggle: Equatable, Sendable {
        case check(Bool)
        /// One of those beside it.
        case radio(Bool)
    }

    /// Tells it from all others of the menu. An entry that is there again with the same key is the same entry.
    public var key: String
    /// As it is to be read: underscores stand for themselves.
    public var label: String
    public var isSeparator = false
    public var isEnabled = true
    /// Of the icon theme.
    public var iconName = ""
    public var toggle: Toggle?
    /// With any it is a submenu.
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

    /// What is not the protocol's default.
    var properties: [String: Variant] {
        if isSeparator { return ["type": .string("separator")] }
        // An underscore marks the letter that chooses the entry.
        var properties: [String: Variant] = ["label": .string(label.replacing("_", with: "__"))]
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
