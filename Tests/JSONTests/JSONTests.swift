import JSON
import Testing

private func parse(_ text: String, mostBytes: Int = 4096, mostDepth: Int = 16) throws -> JSONValue {
    try JSONValue(Array(text.utf8), mostBytes: mostBytes, mostDepth: mostDepth)
}

private func complaint(_ body: () throws -> Void) -> String? {
    do { try body() } catch { return (error as? JSONError)?.message ?? "\(error)" }
    return nil
}

@Suite struct `JSON texts` {
    @Test func `every kind of value comes as it was sent`() throws {
        let text = #"{"a":null,"b":true,"c":-9223372036854775808,"d":0.5,"e":"届く \" é","f":[1,[],{}],"":false}"#
        #expect(
            try parse(text)
                == .object([
                    "a": .null, "b": .bool(true), "c": .integer(.min), "d": .real(0.5), "e": .string("届く \" é"),
                    "f": .array([.integer(1), .array([]), .object([:])]), "": .bool(false),
                ]))
    }

    @Test(arguments: [
        ("", "line 1: '[' or '{' expected near end of file"),
        ("1", "line 1: '[' or '{' expected near '1'"),
        (#"{"a":1,"a":2}"#, #"line 1: duplicate object key near '"a"'"#),
        ("{} {}", "line 1: end of file expected near '{'"),
        ("[1,]", "line 1: unexpected token near ']'"),
        (#"["\u0000"]"#, #"line 1: \u0000 is not allowed without JSON_ALLOW_NUL near '"\u0000"'"#),
        ("[9223372036854775808]", "line 1: too big integer near '9223372036854775808'"),
        ("[1e999]", "line 1: real number overflow near '1e999'"),
        (#"["\ud800"]"#, #"line 1: invalid Unicode '\uD800' near '"\ud800"'"#),
        ("{\n\"a\": \"x\ny\"}", "line 2: unexpected newline near '\"x'"),
        ("[NaN]", "line 1: invalid token near 'NaN'"),
    ])
    func `a text that is no JSON is refused with its line`(text: String, reason: String) {
        #expect(complaint { _ = try parse(text) } == reason)
    }

    @Test func `bytes that are no UTF-8 are refused`() {
        #expect(complaint { _ = try JSONValue(Array("[\"".utf8) + [0xff] + Array("\"]".utf8), mostBytes: 100) }?.contains("0xff") == true)
    }

    @Test func `a text beyond its bound is not read`() {
        #expect(complaint { _ = try parse("[[[[", mostBytes: 3) } == "the text has 4 bytes; at most 3 are allowed")
    }

    @Test(arguments: [17, 2000, 2049, 100_000]) func `nesting beyond the bound is refused`(depth: Int) {
        let text = String(repeating: "[", count: depth) + String(repeating: "]", count: depth)
        let reason = complaint { _ = try parse(text, mostBytes: 1 << 20) }
        #expect(reason?.contains("too deep") == true || reason?.contains("maximum parsing depth") == true, "\(reason ?? "")")
        #expect(throws: Never.self) { try parse("[[1]]", mostDepth: 2) }
    }

    @Test(arguments: ["{\"\u{1}\": 1}", "{\u{7f}", "[\"a\u{1b}[31m\u{85}\n\"]", "{\"\u{9b}\":{\"\u{9b}\":[]}}"])
    func `no control character of the sender gets into a message`(text: String) {
        let reason = complaint { _ = try parse(text, mostDepth: 2) } ?? ""
        #expect(!reason.isEmpty && !reason.unicodeScalars.contains { $0.value < 32 || (127...159).contains($0.value) }, "\(reason)")
    }

    @Test func `keys that are the same to Swift are refused`() {
        #expect(complaint { _ = try parse("{\"\u{e9}\":1,\"e\u{301}\":2}") }?.contains("is there twice") == true)
    }
}

@Suite struct `JSON that is written` {
    @Test func `is one line, with the members in the order of their keys`() {
        let value = JSONValue.object([
            "b": .array([.null, .bool(true), .integer(.min), .real(0.5), .real(.infinity), .object([:]), .array([])]), "a": .string("届く"),
            "\"": .string(""),
        ])
        #expect(value.text == #"{"\"":"","a":"届く","b":[null,true,-9223372036854775808,0.5,null,{},[]]}"#)
    }

    @Test func `has no control character and no line separator, and is read as it was`() throws {
        let text = String(String.UnicodeScalarView((1...0x2030).compactMap { Unicode.Scalar($0 as UInt32) }))
        let written = JSONValue.array([.string(text)]).text
        #expect(
            !written.unicodeScalars.contains { $0.value < 0x20 || (0x7f...0x9f).contains($0.value) || (0x2028...0x2029).contains($0.value) }
        )
        #expect(try parse(written, mostBytes: 1 << 20) == .array([.string(text)]))
    }
}

@Suite struct `JSON fields` {
    private let fields: JSONFields

    init() throws { fields = try JSONFields(try parse(#"{"s":"x","n":7,"f":7.0,"b":false,"z":null,"l":[1],"o":{"in":"y"}}"#)) }

    @Test func `fields of the right kind are read`() throws {
        #expect(try fields.string("s") == "x")
        #expect(try fields.integer("n", in: 0...7) == 7)
        #expect(try fields.optionalBool("b") == false)
        #expect(try fields.optionalArray("l") == [.integer(1)])
        #expect(try fields.optionalString("no") == nil)
    }

    @Test func `an error names the field and what is wrong`() {
        #expect(complaint { _ = try fields.string("no") } == "“no” is missing")
        #expect(complaint { _ = try fields.string("z") } == "“z” is not a text")
        #expect(complaint { _ = try fields.integer("n", in: 0...6) } == "“n” is not a whole number from 0 to 6")
        #expect(complaint { _ = try fields.integer("f", in: 0...9) } == "“f” is not a whole number from 0 to 9")
        #expect(complaint { _ = try fields.optionalBool("n") } == "“n” is not true or false")
        #expect(complaint { _ = try JSONFields(.object([:]), at: JSONPath()["o"]).string("in") } == "“o.in” is missing")
        #expect(complaint { _ = try JSONFields(.array([]), at: JSONPath()["files"][3]) } == "“files[3]” is not an object")
        #expect(complaint { try fields.expectOnly(["s", "n", "f", "b", "z", "l"]) } == "“o” is not known")
    }

    @Test func `a hostile key does not spoil the message`() {
        let reason = complaint { _ = try fields.string(String(repeating: "\u{1b}\n", count: 1000)) }
        #expect(reason == "“" + String(repeating: "?", count: 64) + "…” is missing")
    }
}
