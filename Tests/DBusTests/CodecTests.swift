internal import TestSupport
internal import Testing

@testable internal import DBus

@Suite struct `The codec` {
    @Test func `gives back every basic value`() {
        returns(UInt8.min, .max)
        returns(true, false)
        returns(Int16.min, -1, .max)
        returns(UInt16.min, .max)
        returns(Int32.min, 0, .max)
        returns(UInt32.min, .max)
        returns(Int64.min, -1, .max)
        returns(UInt64.min, .max)
        returns(-0.0, 1.5, Double.pi, .infinity, -.greatestFiniteMagnitude, .leastNonzeroMagnitude)
        returns("", "a", "完了しました", "\u{1F600}\u{FFFF}\u{301}", String(repeating: "x", count: 1 << 20))
        returns(ObjectPath("/"), ObjectPath("/org/todoku/Downloader1/download/18446744073709551615"))
    }

    @Test func `gives back containers, empty ones and nested ones`() {
        returns([String](), ["a"], ["b", "a", ""])
        returns([[UInt8]](), [[]], [[1], [], [2, 3]])
        returns([String: Variant](), ["a": .bool(true), "b": .dictionary(["c": .strings([])])])
        returns([String: [String: Variant]](), ["a": [:], "b": ["c": .byte(1)]])
        returns([UInt32: String](), [1: "a", 0: "b"])
        #expect(Message.value([Double].self, from: Message.bytes(of: [Double.nan]))?.first?.isNaN == true)
    }

    @Test func `gives back structures`() throws {
        let value = Structure("a", UInt64.max, ["k": Variant.variant(.uint32(7))])
        let back = try #require(Message.value(Structure<String, UInt64, [String: Variant]>.self, from: Message.bytes(of: value)))
        #expect(back.fields.0 == "a" && back.fields.1 == .max && back.fields.2 == ["k": .variant(.uint32(7))])
        let list = [Structure(ObjectPath("/a"), [Structure(true, 1.5)]), Structure(ObjectPath("/b"), [])]
        let lists = try #require(Message.value([Structure<ObjectPath, [Structure<Bool, Double>]>].self, from: Message.bytes(of: list)))
        #expect(lists.map(\.fields.0.value) == ["/a", "/b"])
        #expect(lists[0].fields.1[0].fields == (true, 1.5))
    }

    @Test func `knows each type's signature`() {
        #expect(Structure<String, String, [String: Variant]>.signature == "(ssa{sv})")
        #expect([Structure<ObjectPath, [String: Variant]>].signature == "a(oa{sv})")
        #expect([String: [String: Variant]].signature == "a{sa{sv}}")
        #expect([UInt8.signature, Bool.signature, Int16.signature, UInt16.signature].joined() == "ybnq")
        #expect([Int32.signature, UInt32.signature, Int64.signature, UInt64.signature].joined() == "iuxt")
        #expect(
            [Double.signature, String.signature, ObjectPath.signature, FileDescriptor.signature, Variant.signature].joined() == "dsohv")
    }

    @Test(arguments: 1...200) func `gives back any variant, to the byte`(seed: UInt64) throws {
        var random = SeededRandom(seed)
        let value = Variant.random(&random)
        let bytes = Message.bytes(of: value)
        let back = try #require(Message.value(Variant.self, from: bytes))
        #expect(back == value)
        #expect(back.type == value.type)
        #expect(Message.bytes(of: back) == bytes)
    }

    @Test func `a string is cut at a NUL, which the wire cannot carry`() {
        #expect(Message.value(String.self, from: Message.bytes(of: "a\0b")) == "a")
        #expect(Message.value([String: Variant].self, from: Message.bytes(of: ["a\0b": Variant.string("\0")])) == ["a": .string("")])
    }

    @Test func `another type than the one asked for is refused`() {
        let bytes = Message.bytes(of: UInt32(1))
        #expect(Message.value(Int32.self, from: bytes) == nil)
        #expect(Message.value(Variant.self, from: bytes) == nil)
        #expect(Message.value(UInt32.self, from: []) == nil)
        #expect(Message.value(UInt32.self, from: [0]) == nil)
        #expect(Message.value(UInt32.self, from: Array(bytes.dropLast())) == nil)
    }

    /// Without a bound, 64 MiB of bytes would keep the thread of the bus busy for seconds.
    @Test func `an array of more elements than a message may hold is refused, and a string in an array counts once`() throws {
        func read<Element: DBusValue>(_ element: Element, times: Int) throws(DBusError) -> Int {
            let values = Array(repeating: element, count: times)
            return try Message.signal(path: "/", interface: "a.b", member: "C") { values.write(to: &$0) }.first([Element].self).count
        }
        let refusal = DBusError.limitsExceeded("a message may hold at most 1100000 strings, values in variants and elements of arrays")
        #expect(throws: refusal) { try read(UInt8(0), times: 1_100_001) }
        #expect(try read(UInt8(0), times: 1_100_000) == 1_100_000)
        #expect(try read("", times: 600_000) == 600_000)
    }

    @Test func `a repeated key of a dictionary is refused, and kept by a variant`() throws {
        let entries = ["a", "a"].map { Variant.Entry(key: .string($0), value: .variant(.bool(true))) }
        let twice = Variant.dictionary(key: "s", value: "v", entries)
        let message = Message.signal(path: "/", interface: "a.b", member: "C") { twice.write(to: &$0) }
        #expect(try message.first(Variant.self) == twice)
        let raw = Message.signal(path: "/", interface: "a.b", member: "C") { writer in
            writer.container(97, "{sv}") { inner in
                for _ in 0..<2 {
                    inner.container(101, nil) { entry in
                        "a".write(to: &entry)
                        Variant.bool(true).write(to: &entry)
                    }
                }
            }
        }
        #expect(raw.signature == "a{sv}")
        #expect(throws: DBusError.invalidArgs("the key a is there twice")) { try raw.first([String: Variant].self) }
    }

    @Test func `a basic value is taken from a variant of its own type only, and an integer from each integer type`() {
        let all: [Variant] = [
            .byte(1), .bool(true), .int16(1), .uint16(1), .int32(1), .uint32(1), .int64(1), .uint64(1), .double(1), .string("1"),
            .objectPath(ObjectPath("/")), .signature("s"), .strings(["1"]), .dictionary([:]), .structure([.byte(1)]), .variant(.byte(1)),
        ]
        #expect(all.compactMap { Bool($0) }.count == 1 && all.compactMap { Int32($0) }.count == 7)
        #expect(all.compactMap { UInt32($0) }.count == 7 && all.compactMap { Int64($0) }.count == 7)
        #expect(all.compactMap { UInt64($0) }.count == 7 && all.compactMap { Double($0) }.count == 1)
        #expect(all.compactMap { String($0) }.count == 1 && all.compactMap { ObjectPath($0) }.count == 1)
        #expect(all.compactMap { [String]($0) } == [["1"]] && all.compactMap(\.vardict).count == 1)
        #expect([Variant.dictionary([("b", "1"), ("a", "2")])].compactMap(\.stringPairs)[0].map(\.0) == ["b", "a"])
    }

    @Test func `an integer of a variant is taken if it fits, at the ends of each type`() {
        let ends: [Variant] = [
            .byte(0), .byte(.max), .int16(.min), .uint16(.max), .int32(.min), .int32(.max), .uint32(.max), .int64(.min), .int64(.max),
            .uint64(.max),
        ]
        #expect(ends.compactMap(\.int32) == [0, 255, -32_768, 65_535, .min, .max])
        #expect(ends.compactMap(\.uint32) == [0, 255, 65_535, 0x7FFF_FFFF, .max])
        #expect(ends.compactMap(\.int64) == [0, 255, -32_768, 65_535, -0x8000_0000, 0x7FFF_FFFF, 0xFFFF_FFFF, .min, .max])
        #expect(ends.compactMap(\.uint64) == [0, 255, 65_535, 0x7FFF_FFFF, 0xFFFF_FFFF, 0x7FFF_FFFF_FFFF_FFFF, .max])
        for value in ends {
            for type in ["i", "u", "x", "t"] {
                let converted = value.converted(to: type)
                #expect(converted == nil || converted?.type == type && converted?.integer == value.integer)
            }
        }
        #expect(Variant.int32(-1).mismatch(with: "u") == "takes a number from 0 to 4294967295, not -1")
        #expect(Variant.uint64(.max).mismatch(with: "i") == "takes a number from -2147483648 to 2147483647, not 18446744073709551615")
        #expect(Variant.double(1).mismatch(with: "u") == "takes the type u, not d")
        #expect(Variant.uint32(1).mismatch(with: "s") == "takes the type s, not u" && Variant.bool(true).converted(to: "u") == nil)
        #expect(Variant.int32(1).isSameValue(as: .uint64(1)) && !Variant.int32(1).isSameValue(as: .double(1)))
    }

    @Test func `no damage to stored bytes ends the process`() {
        var random = SeededRandom(11)
        let bytes = Message.bytes(of: ["a": Variant.strings(["b", "c"]), "d": .structure([.byte(1), .variant(.string("e"))])])
        var readable = 0
        for _ in 0..<20_000 {
            var damaged = bytes
            for _ in 0...Int.random(in: 0..<3, using: &random) {
                damaged[Int.random(in: 0..<damaged.count, using: &random)] = UInt8.random(in: 0...255, using: &random)
            }
            if Bool.random(using: &random) { damaged.removeLast(Int.random(in: 0..<damaged.count, using: &random)) }
            if Message.value([String: Variant].self, from: damaged) != nil { readable += 1 }
        }
        #expect(readable > 0)  // some damage is in a string's letters
    }

    private func returns<V: DBusValue & Equatable>(_ values: V..., at location: SourceLocation = #_sourceLocation) {
        for value in values {
            let message = Message.signal(path: "/a", interface: "a.b", member: "C") { value.write(to: &$0) }
            #expect(message.signature == V.signature, sourceLocation: location)
            #expect((try? message.first(V.self)) == value, sourceLocation: location)
            #expect(Message.value(V.self, from: Message.bytes(of: value)) == value, sourceLocation: location)
        }
    }
}

@Suite struct `An object path` {
    // Expected by sd-bus' bus_label_escape (systemd, src/basic/bus-label.c); `sd_bus_path_encode` uses it.
    @Test(arguments: [
        ("org.example.App", "org_2eexample_2eApp"), ("", "_"), ("1a", "_31a"), ("a1", "a1"), ("_", "_5f"), ("a_b", "a_5fb"),
        ("é", "_c3_a9"),
        ("届く", "_e5_b1_8a_e3_81_8f"), ("a b", "a_20b"), ("/", "_2f"), ("\n", "_0a"), ("9", "_39"), ("A-Z", "A_2dZ"), ("\u{301}", "_cc_81"),
    ]) func `takes any text as an element, escaped as by sd-bus`(text: String, element: String) {
        #expect(ObjectPath.escape(text) == element)
        #expect(ObjectPath.unescape(element) == text)
        #expect(ObjectPath.isValid("/\(element)"))
    }

    @Test(arguments: ["_4", "a_", "_zz", "_+1", "_ff", "_c3"]) func `is no text if its escapes are none`(element: String) {
        #expect(ObjectPath.unescape(element) == nil)
    }

    @Test(arguments: ["/", "/a", "/a/b", "/_", "/0", "/a_b/C9", "/" + String(repeating: "a", count: 100_000)])
    func `is valid`(text: String) { #expect(ObjectPath.isValid(text)) }

    @Test(arguments: [
        "", "a", "//", "/a/", "/a//b", "a/b", "/a-b", "/a.b", "/é", "/a b", "/a\0", "/\0", "/a\n", "/%41", "/\u{301}abc", "/a/\u{301}",
        "/\r\n",
        "/\u{200D}a", "/a/\u{FE0F}b",
    ]) func `is not valid`(text: String) { #expect(!ObjectPath.isValid(text)) }
}

extension Variant {
    /// A random value of a random type. All kinds occur, also empty containers.
    static func random(_ random: inout SeededRandom) -> Variant { .of(Kind.random(&random, depth: 0), &random) }

    indirect enum Kind {
        case basic(Character), array(Kind), dictionary(Character, Kind), structure([Kind]), variant

        var signature: String {
            switch self {
            case .basic(let type): String(type)
            case .array(let element): "a" + element.signature
            case .dictionary(let key, let value): "a{\(key)\(value.signature)}"
            case .structure(let fields): "(" + fields.map(\.signature).joined() + ")"
            case .variant: "v"
            }
        }

        static func random(_ random: inout SeededRandom, depth: Int) -> Kind {
            let basics = Array("ybnqiuxtdsog")
            func basic(_ random: inout SeededRandom) -> Character { basics.randomElement(using: &random) ?? "s" }
            switch Int.random(in: 0..<(depth > 4 ? 1 : 5), using: &random) {
            case 1: return .array(.random(&random, depth: depth + 1))
            case 2: return .dictionary(basic(&random), .random(&random, depth: depth + 1))
            case 3: return .structure((0...Int.random(in: 0...3, using: &random)).map { _ in .random(&random, depth: depth + 1) })
            case 4: return .variant
            default: return .basic(basic(&random))
            }
        }
    }

    private static func of(_ kind: Kind, _ random: inout SeededRandom) -> Variant {
        switch kind {
        case .basic(let type): return basic(type, &random)
        case .array(let element):
            return .array(of: element.signature, (0..<Int.random(in: 0...3, using: &random)).map { _ in of(element, &random) })
        case .dictionary(let key, let value):
            let entries = (0..<Int.random(in: 0...3, using: &random)).map { _ in Entry(key: basic(key, &random), value: of(value, &random))
            }
            return .dictionary(key: String(key), value: value.signature, entries)
        case .structure(let fields): return .structure(fields.map { of($0, &random) })
        case .variant: return .variant(of(Kind.random(&random, depth: 3), &random))
        }
    }

    private static func basic(_ type: Character, _ random: inout SeededRandom) -> Variant {
        let number = random.next()
        switch type {
        case "y": return .byte(UInt8(truncatingIfNeeded: number))
        case "b": return .bool(number % 2 == 0)
        case "n": return .int16(Int16(truncatingIfNeeded: number))
        case "q": return .uint16(UInt16(truncatingIfNeeded: number))
        case "i": return .int32(Int32(truncatingIfNeeded: number))
        case "u": return .uint32(UInt32(truncatingIfNeeded: number))
        case "x": return .int64(Int64(truncatingIfNeeded: number))
        case "t": return .uint64(number)
        case "d": return .double(Double(number % 1000) / 7)
        case "o": return .objectPath(ObjectPath(["/", "/a", "/a/b_\(number)"][Int(number % 3)]))
        case "g": return .signature(["", "s", "a{sv}(ii)", "aaay"][Int(number % 4)])
        default: return .string(["", "a", "届く", "\u{10FFFF}"][Int(number % 4)])
        }
    }
}
