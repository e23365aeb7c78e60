import DBus
import EventLoop
import Testing

@testable import StatusNotifier

/// An entry with its children.
private func item(_ key: String, _ label: String = "", _ children: [MenuItem] = []) -> MenuItem {
    var item = MenuItem(key, label.isEmpty ? key : label)
    item.children = children
    return item
}

extension MenuTree {
    /// The entries' numbers by label.
    fileprivate var byLabel: [String: Int32] {
        var result: [String: Int32] = [:]
        for (number, node) in nodes { if let label = node.properties["label"]?.string { result[label] = number } }
        return result
    }
}

@Suite struct `The menu on the bus` {
    @Test func `gives an entry one number for its life, and never another entry's`() {
        var tree = MenuTree()
        _ = tree.replace(by: [item("a"), item("b"), item("c", "c", [item("d")])])
        let first = tree.byLabel
        #expect(first.values.sorted() == [1, 2, 3, 4])
        _ = tree.replace(by: [item("x"), item("c", "c", [item("d"), item("e")]), item("a")])
        let second = tree.byLabel
        #expect(second["a"] == first["a"] && second["c"] == first["c"] && second["d"] == first["d"])
        #expect(second["x"].map { !first.values.contains($0) } == true)
        _ = tree.replace(by: [item("b")])
        #expect(tree.byLabel["b"].map { !first.values.contains($0) && !second.values.contains($0) } == true)
    }

    @Test func `reports changes, and nothing else`() {
        var tree = MenuTree()
        var first = item("a", "one")
        (first.isEnabled, first.iconName) = (false, "folder")
        let change = tree.replace(by: [first, item("b")])
        #expect(change.layout == 0 && tree.revision == 2)
        #expect(tree.replace(by: [first, item("b")]).isEmpty && tree.revision == 2)

        var other = item("a", "two")
        other.toggle = .check(true)
        let number = tree.byLabel["one"] ?? 0
        let update = tree.replace(by: [other, item("b")])
        #expect(update.layout == nil && tree.revision == 2)
        #expect(update.updated == [number: ["label": .string("two"), "toggle-type": .string("checkmark"), "toggle-state": .int32(1)]])
        #expect(update.removed == [number: ["enabled", "icon-name"]])
    }

    @Test func `names the submenu whose entries have changed, or the whole menu if several have`() {
        var tree = MenuTree()
        _ = tree.replace(by: [item("a", "a", [item("a1")]), item("b", "b", [item("b1")])])
        let numbers = tree.byLabel
        #expect(tree.replace(by: [item("a", "a", [item("a2"), item("a1")]), item("b", "b", [item("b1")])]).layout == numbers["a"])
        #expect(tree.replace(by: [item("a", "a", [item("a1")]), item("b", "b", [item("b2")])]).layout == 0)
        // A changed order is a change.
        #expect(tree.replace(by: [item("b", "b", [item("b2")]), item("a", "a", [item("a1")])]).layout == 0)
        // A submenu becomes a plain entry.
        let change = tree.replace(by: [item("b", "b", [item("b2")]), item("a")])
        #expect(change.layout == numbers["a"] && change.removed == [numbers["a"] ?? 0: ["children-display"]])
        #expect(tree.revision == 6)
    }

    @Test func `doubles an underscore, because a single one marks the access key`() {
        #expect(item("a", "my_file__1.zip").properties["label"] == .string("my__file____1.zip"))
        #expect(item("a", "a_\u{301}b").properties["label"] == .string("a__\u{301}b"))
        #expect(MenuItem.separator("s").properties == ["type": .string("separator")])
    }

    @Test func `is sent to the requested depth, with the requested properties`() throws {
        var tree = MenuTree()
        _ = tree.replace(by: [item("a", "a", [item("b", "b", [item("c")])]), item("d")])
        let numbers = tree.byLabel
        func shape(_ layout: MenuInterface.Layout?) -> String {
            guard let (_, properties, children) = layout?.fields else { return "none" }
            return (properties["label"]?.string ?? "") + "[" + children.map(shape).joined(separator: " ") + "]"
        }
        func shape(_ value: Variant) -> String {
            guard case .structure(let fields) = value, fields.count == 3, case .array("v", let children) = fields[2],
                value.type == "(ia{sv}av)"
            else { return "?" }
            return (fields[1].vardict?["label"]?.string ?? "") + "["
                + children.map { if case .variant(let child) = $0 { shape(child) } else { "?" } }.joined(separator: " ") + "]"
        }
        #expect(shape(tree.layout(of: 0, depth: 0, names: [])) == "[]")
        #expect(shape(tree.layout(of: 0, depth: 1, names: [])) == "[a[] d[]]")
        #expect(shape(tree.layout(of: 0, depth: 2, names: [])) == "[a[b[]] d[]]")
        #expect(shape(tree.layout(of: 0, depth: -1, names: [])) == "[a[b[c[]]] d[]]")
        #expect(shape(tree.layout(of: numbers["a"] ?? 0, depth: -1, names: [])) == "a[b[c[]]]")
        #expect(tree.layout(of: 99, depth: -1, names: []) == nil)
        let named = try #require(tree.layout(of: numbers["a"] ?? 0, depth: 0, names: ["children-display", "nonsense"]))
        #expect(named.fields.1 == ["children-display": .string("submenu")])
        #expect(tree.layout(of: 0, depth: 0, names: [])?.fields.1 == ["children-display": .string("submenu")])

        #expect(tree.properties(of: [], names: ["label"]).map(\.fields.0) == tree.nodes.keys.sorted())
        let some = tree.properties(of: [numbers["d"] ?? 0, 99], names: [])
        #expect(some.count == 1 && some[0].fields == (numbers["d"] ?? 0, ["label": .string("d")]))
    }

    @Test(arguments: [
        ("type", Variant.string("standard")), ("label", .string("")), ("enabled", .bool(true)), ("visible", .bool(true)),
        ("toggle-state", .int32(-1)),
    ])
    func `uses the protocol's default for missing properties`(name: String, value: Variant) {
        #expect(MenuTree.defaultValue(of: name) == value)
    }
}

@Suite struct `Icons on the wire` {
    @Test func `arrive as they were sent, and are refused if bytes are missing`() {
        let icons = IconPixmaps([Pixmap(width: 2, height: 1, bytes: [1, 2, 3, 4, 5, 6, 7, 8]), Pixmap(width: 0, height: 0, bytes: [])])
        #expect(IconPixmaps.signature == "a(iiay)" && icons.variant.type == "a(iiay)")
        #expect(Message.value(IconPixmaps.self, from: Message.bytes(of: icons)) == icons)
        #expect(IconPixmaps(icons.variant) == icons)
        // The variant has the same wire form.
        #expect(Message.value(Variant.self, from: Message.bytes(of: icons.variant)).flatMap(IconPixmaps.init) == icons)
        let short = [Structure(Int32(2), Int32(2), [UInt8](repeating: 0, count: 15))]
        #expect(Message.value(IconPixmaps.self, from: Message.bytes(of: short)) == nil)
        #expect(IconPixmaps(.array(of: "(iiay)", [.structure([.int32(1), .int32(1), .array(of: "y", [.byte(1)])])])) == nil)
    }

    @Test func `a tooltip arrives as it was sent`() {
        let tip = ToolTip(title: "3 downloading", text: "2 MiB/s")
        #expect(ToolTip.signature == "(sa(iiay)ss)" && tip.variant.type == "(sa(iiay)ss)")
        #expect(Message.value(ToolTip.self, from: Message.bytes(of: tip)) == tip)
        #expect(ToolTip(tip.variant) == tip)
    }
}
