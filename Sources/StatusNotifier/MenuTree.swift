internal import DBus
internal import EventLoop

/// A menu whose entries are keyed by their numbers on the bus. Pure.
///
/// 0 is the menu itself. An entry keeps its number while its key exists. A number is never reused.
struct MenuTree {
    struct Node: Sendable {
        var properties: [String: Variant]
        var children: [Int32]
        var action: (@BusActor @Sendable () -> Void)?
    }

    /// The changes to signal to panels.
    struct Change: Equatable {
        /// The entry whose children changed; 0 if there are several. nil: the layout is unchanged.
        var layout: Int32?
        var updated: [Int32: [String: Variant]] = [:]
        var removed: [Int32: [String]] = [:]
        var isEmpty: Bool { layout == nil && updated.isEmpty && removed.isEmpty }
    }

    private static let root: [String: Variant] = ["children-display": .string("submenu")]

    private(set) var nodes: [Int32: Node] = [0: Node(properties: root, children: [])]
    private(set) var revision: UInt32 = 1
    private var numbers: [String: Int32] = [:]
    private var next: Int32 = 1

    /// - Precondition: the keys in `items` are unique over all levels.
    mutating func replace(by items: [MenuItem]) -> Change {
        let before = nodes
        var after: [Int32: Node] = [:]
        var used: [String: Int32] = [:]
        let children = items.map { enter($0, &after, &used) }
        after[0] = Node(properties: Self.root, children: children)
        (nodes, numbers) = (after, used)

        var change = Change()
        for (number, node) in after {
            guard let old = before[number] else { continue }
            if old.children != node.children { change.layout = change.layout == nil ? number : 0 }
            let updated = node.properties.filter { old.properties[$0.key] != $0.value }
            if !updated.isEmpty { change.updated[number] = updated }
            let removed = old.properties.keys.filter { node.properties[$0] == nil }
            if !removed.isEmpty { change.removed[number] = removed.sorted() }
        }
        if change.layout != nil { revision &+= 1 }
        return change
    }

    private mutating func enter(_ item: MenuItem, _ nodes: inout [Int32: Node], _ used: inout [String: Int32]) -> Int32 {
        var number = numbers[item.key] ?? next
        if number == next { next &+= 1 }
        if used.updateValue(number, forKey: item.key) != nil {
            assertionFailure("the key \(item.key) is there twice")
            number = next
            next &+= 1
        }
        let children = item.children.map { enter($0, &nodes, &used) }
        nodes[number] = Node(properties: item.properties, children: children, action: item.action)
        return number
    }

    /// - Parameters:
    ///   - depth: how many levels below the entry; -1: all.
    ///   - names: the requested properties; empty: all.
    /// - Returns: nil if there is no such entry.
    func layout(of number: Int32, depth: Int32, names: [String]) -> MenuInterface.Layout? {
        guard let node = nodes[number] else { return nil }
        var children: [Variant] = []
        if depth != 0 {
            for child in node.children {
                guard let layout = layout(of: child, depth: depth < 0 ? -1 : depth - 1, names: names) else { continue }
                let (number, properties, below) = layout.fields
                children.append(.structure([.int32(number), .dictionary(properties), .array(of: "v", below.map { .variant($0) })]))
            }
        }
        return Structure(number, properties(of: node, names), children)
    }

    /// Properties of the existing entries in `wanted`, or of all entries if it is empty.
    func properties(of wanted: [Int32], names: [String]) -> [MenuInterface.ItemProperties] {
        let numbers = wanted.isEmpty ? nodes.keys.sorted() : wanted
        return numbers.compactMap { number in nodes[number].map { Structure(number, properties(of: $0, names)) } }
    }

    private func properties(of node: Node, _ names: [String]) -> [String: Variant] {
        names.isEmpty ? node.properties : node.properties.filter { names.contains($0.key) }
    }

    /// The protocol's default for a property that an entry does not have.
    static func defaultValue(of property: String) -> Variant? {
        switch property {
        case "type": .string("standard")
        case "label", "icon-name", "toggle-type", "children-display", "accessible-desc": .string("")
        case "enabled", "visible": .bool(true)
        case "toggle-state": .int32(-1)
        case "disposition": .string("normal")
        default: nil
        }
    }
}
