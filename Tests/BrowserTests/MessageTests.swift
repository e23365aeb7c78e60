import DBus
import JSON
import TestSupport
import Testing

@testable import todoku_browser

private func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }

private func options(_ fields: String) throws -> [String: Variant] {
    guard case .download(let download) = try BrowserMessage(bytes(#"{"type":"download","url":"u"\#(fields)}"#)) else { return [:] }
    return download.options
}

@Suite struct `A stream of messages` {
    @Test(arguments: [1, 2, 3, 7, 1000]) func `gives the same messages in portions of any size`(size: Int) {
        let stream = framed("one") + framed("") + framed(String(repeating: "x", count: 500))
        var reader = MessageReader()
        var items: [MessageReader.Item] = []
        #expect(reader.isBetweenMessages)
        var rest = stream[...]
        while !rest.isEmpty {
            reader.append(rest.prefix(size))
            rest = rest.dropFirst(size)
            while let item = reader.next() { items.append(item) }
        }
        #expect(items == [.message(bytes("one")), .message([]), .message(bytes(String(repeating: "x", count: 500)))])
        #expect(reader.isBetweenMessages)
    }

    @Test(arguments: [1, 5, 100_000]) func `drops a message that is too long as it arrives`(size: Int) {
        let length = MessageReader.mostBytes + 1
        var reader = MessageReader()
        reader.append(framed(length: length)[...])
        #expect(reader.next() == nil)
        #expect(!reader.isBetweenMessages)
        let portion = [UInt8](repeating: 0, count: size)
        var left = Int(length)
        // Four million portions of one byte would take minutes, so only the last ten bytes come in small portions.
        if size < 100 {
            let first = [UInt8](repeating: 0, count: left - 10)
            reader.append(first[...])
            left = 10
        }
        while left > 0 {
            #expect(reader.next() == nil)
            reader.append(portion.prefix(left))
            left -= min(left, size)
        }
        reader.append(framed("next")[...])
        #expect(reader.next() == .tooLong(length))
        #expect(reader.next() == .message(bytes("next")))
        #expect(reader.next() == nil)
        #expect(reader.isBetweenMessages)
    }

    @Test func `is not between messages after a part of a length`() {
        var reader = MessageReader()
        for portion: [UInt8] in [[3, 0, 0], [0], bytes("ab")] {
            reader.append(portion[...])
            #expect(reader.next() == nil)
            #expect(!reader.isBetweenMessages)
        }
        reader.append(bytes("c")[...])
        #expect(reader.next() == .message(bytes("abc")))
        #expect(reader.isBetweenMessages)
    }

    @Test func `counts the bytes of an answer, not its letters`() {
        #expect(MessageReader.framed("届く") == framed("届く"))
    }
}

@Suite struct `A message of the browser` {
    @Test func `becomes options with their names on the bus`() throws {
        let fields = """
            ,"referrer":"https://a/","user-agent":"B","filename":"x/../y:z","private":true,"post-data":"a=é","post-type":"text/plain",
            "headers":[{"name":"A","value":"1"}],"cookies":[{"domain":"a.org","host-only":true,"name":"n","value":"v"}]
            """
        let body: [Variant] = [UInt8]("a=é".utf8).map { .byte($0) }
        let header: Variant = .structure([.string("A"), .string("1")])
        let wanted: [String: Variant] = [
            "referrer": .string("https://a/"), "user-agent": .string("B"), "filename": .string("y_z"), "private": .bool(true),
            "post-data": .array(of: "y", body), "post-type": .string("text/plain"), "header-list": .array(of: "(ss)", [header]),
            "cookies": .strings(["a.org\tFALSE\t/\tFALSE\t0\tn\tv"]),
        ]
        #expect(try options(fields) == wanted)
    }

    @Test(arguments: [
        "", #","referrer":"","user-agent":"","filename":"","cookies":[],"headers":[],"private":false"#, #","filename":"..""#,
        #","filename":" \u202e. ""#, #","cookies":[{"domain":"a","name":"","value":"v"}]"#,
    ])
    func `gives no option for an empty or useless field`(fields: String) throws { #expect(try options(fields) == [:]) }

    @Test func `gives no referrer that is too long for the option`() throws {
        #expect(try options(#","referrer":"https://a/\#(String(repeating: "x", count: 8192))""#) == [:])
    }

    @Test func `with a long form is refused`() throws {
        let form = String(repeating: "x", count: 1 << 20)
        #expect(try options(#","post-data":"\#(form)","post-type":"t/x""#)["post-type"] == .string("t/x"))
        #expect(throws: (any Error).self) { try options(#","post-data":"\#(form)x""#) }
    }
}

@Suite struct `A cookie of the browser` {
    private func line(_ fields: String) throws -> String? {
        let found = try options(#","cookies":[{\#(fields)}]"#)["cookies"]?.strings
        return found?.first
    }

    @Test(arguments: [
        (
            #""domain":".a.org","host-only":false,"path":"/p","secure":true,"expires":99,"name":"n","value":"v=1""#,
            ".a.org\tTRUE\t/p\tTRUE\t99\tn\tv=1"
        ),
        (#""domain":"a.org","name":"n","value":"""#, ".a.org\tTRUE\t/\tFALSE\t0\tn\t"),
        (#""domain":"[::1]","host-only":true,"name":"n","value":"é""#, "[::1]\tFALSE\t/\tFALSE\t0\tn\té"),
    ])
    func `becomes a line of the Netscape format`(fields: String, wanted: String) throws { #expect(try line(fields) == wanted) }

    @Test(arguments: [
        #""domain":"a","name":"n","value":"x\ty""#, #""domain":"a","name":"n","value":"x\ny""#, #""domain":"a\t","name":"n","value":"v""#,
        #""domain":"a","name":"n","value":"\u0085""#, #""domain":"a","name":"n=m","value":"v""#, #""domain":"a","name":"n m","value":"v""#,
        #""domain":"a","name":"n","value":"v;w""#, #""domain":"","name":"n","value":"v""#, #""domain":".","name":"n","value":"v""#,
        #""domain":"a","path":"p","name":"n","value":"v""#, #""domain":"a","path":"","name":"n","value":"v""#,
    ])
    func `is left out if the service would refuse it`(fields: String) throws { #expect(try line(fields) == nil) }

    @Test func `is left out if it is larger than browsers allow`() throws {
        #expect(try line(#""domain":"a","name":"n","value":"\#(String(repeating: "v", count: 4095))""#) != nil)
        #expect(try line(#""domain":"a","name":"n","value":"\#(String(repeating: "v", count: 4096))""#) == nil)
        #expect(try line(#""domain":"a","path":"/\#(String(repeating: "p", count: 1024))","name":"n","value":"v""#) == nil)
    }
}

@Suite struct `An answer to the browser` {
    @Test func `stays small even if the service's message is long`() {
        let answer = Answer(DBusError("org.todoku.Error.Storage", String(repeating: "é\"", count: 1 << 20)))
        #expect(answer.json.text.utf8.count < 1 << 16)
    }

    @Test func `has the service's error name, or says that the service cannot be reached`() {
        #expect(
            Answer(DBusError("org.todoku.Error.InvalidUrl", "no\u{7}")).json.text
                == #"{"message":"no\u0007","name":"InvalidUrl","type":"error"}"#)
        #expect(
            Answer(DBusError("org.freedesktop.DBus.Error.ServiceUnknown", "m"))
                == .failed(name: "ServiceUnavailable", message: "The download service cannot be reached: m"))
    }
}
