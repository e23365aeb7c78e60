internal import DBus
internal import Testing

@testable internal import TodokuClient

@Suite struct `A value of metadata` {
    /// Values that other programs may have set, and what this client makes of them.
    static let foreign: [(Variant, MetadataValue)] = [
        (.byte(255), .integer(255)),
        (.int16(-1), .integer(-1)),
        (.uint16(65_535), .integer(65_535)),
        (.int32(.min), .integer(-2_147_483_648)),
        (.uint32(.max), .integer(4_294_967_295)),
        (.uint64(7), .unsigned(7)),
        (.objectPath(ObjectPath("/a")), .string("/a")),
        (.signature("as"), .string("as")),
        (.structure([.bool(true), .string("a")]), .array([.bool(true), .string("a")])),
        (.array(of: "d", [.double(0.5)]), .array([.double(0.5)])),
        (.dictionary(key: "u", value: "s", [Variant.Entry(key: .uint32(7), value: .string("x"))]), .dictionary(["7": .string("x")])),
        (.variant(.variant(.string("inner"))), .string("inner")),
    ]

    @Test(arguments: foreign) func `is read of any D-Bus type`(variant: Variant, value: MetadataValue) {
        #expect(MetadataValue(variant) == value)
    }

    static let own: [(MetadataValue, String)] = [
        (true, "b"), (-5, "x"), (.unsigned(.max), "t"), (0.5, "d"), ("text", "s"), (["a", "b"], "as"), ([], "as"), (["a", 1], "av"),
        ([[1], ["k": [false]]], "av"), (["k": ["k": 1]], "a{sv}"),
    ]

    @Test(arguments: own) func `comes back as it was set`(value: MetadataValue, type: String) {
        #expect(value.variant.type == type)
        #expect(MetadataValue(value.variant) == value)
    }

    @Test func `gives its content by its type`() {
        let map: MetadataValue = ["chapter": 3, "title": "Arrival", "tags": ["a"], "most": .unsigned(.max), "few": .unsigned(1)]
        let values = map.dictionary ?? [:]
        #expect((values["chapter"]?.integer, values["title"]?.string, values["title"]?.integer) == (3, "Arrival", nil))
        #expect(values["tags"]?.array == ["a"])
        #expect((values["most"]?.integer, values["few"]?.integer) == (nil, 1))
    }
}
