import DBus
import DownloadModel
import DownloaderInterface
import TestSupport
import Testing

@testable import TodokuClient
@testable import todoku

@Suite struct `JSON output` {
    @Test func `escapes the characters that RFC 8259 requires, and terminal controls`() {
        let value = todoku.JSON.string("a\"b\\c\n\r\t\u{1}\u{1b}\u{7f}\u{9b}\u{2028}日本é👍/")
        #expect(value.text == #""a\"b\\c\n\r\t\u0001\u001b\u007f\u009b\u2028日本é👍/""#)
    }

    @Test func `writes null for a value that is not a number`() {
        #expect(
            todoku.JSON.array([.number(.infinity), .number(.nan), .number(0.5), .null, .bool(true)]).text == "[null,null,0.5,null,true]")
    }

    @Test func `keeps all 64 bits of an integer`() {
        #expect(
            todoku.JSON.object([("a", .unsigned(.max)), ("b", .integer(.min))]).text
                == #"{"a":18446744073709551615,"b":-9223372036854775808}"#)
    }

    @Test func `is readable by another JSON parser`() throws {
        let text = todoku.JSON.object([("k\u{0}\"", .array([.string("\u{1f}\\"), .object([]), .array([])]))]).text
        let parsed = TestSupport.JSON(text)
        let read = try #require(parsed)
        #expect(read["k\u{0}\""]?.array?.first?.string == "\u{1f}\\")
    }
}

@Suite struct `A description` {
    static let properties: [String: Variant] = [
        "Url": .string("https://example.org/a.iso"), "App": .string("org.example.App"), "Tag": .string("t"), "State": .string("waiting"),
        "WaitReason": .string("retry"), "WaitUntil": .uint64(5_000_000), "Received": .uint64(50), "Total": .int64(200), "Speed": .uint64(7),
        "Fraction": .double(0.25), "FileName": .string("a.iso"), "MediaType": .string("x/y"), "Path": .string(""),
        "ProvedBy": .string("repr-digest"),
        "Error": EndError(
            name: "org.todoku.Error.HttpStatus", message: "no", details: ["http-status": .uint32(404), "retryable": .bool(true)]
        ).variant,
        "Attempts": .uint32(3), "Connections": .uint32(1),
        "Sources": .array(
            of: "a{sv}",
            [
                .dictionary([
                    "url": .string("http://h/a"), "received": .uint64(50), "speed": .uint64(0), "left": .string("http-status"),
                ])
            ]), "QueuedAt": .uint64(1), "StartedAt": .uint64(2), "EndedAt": .uint64(0),
        "Batch": .objectPath(ObjectPath("/")), "Priority": .int32(-2), "SpeedLimit": .uint64(0),
    ]

    @Test func `decodes the properties of the contract`() {
        let description = DownloadDescription(DownloadReference(number: 7), Self.properties)
        #expect(description.state == .waiting)
        #expect(description.waitReason == "retry")
        #expect(description.waitUntil == WallTime(microseconds: 5_000_000))
        #expect((description.received, description.total) == (50, 200))
        #expect(description.fraction == 0.25)
        #expect(description.fileName == "a.iso")
        #expect(description.path == nil && description.provedBy == "repr-digest")
        #expect(description.error?.httpStatus == 404)
        #expect(description.error?.isRetryable == true)
        #expect((description.attempts, description.connections, description.priority) == (3, 1, -2))
        #expect(description.sources.map(\.url) == ["http://h/a"] && description.sources[0].received == 50)
        #expect(description.sources[0].left == "http-status")
        #expect(description.startedAt == WallTime(microseconds: 2))
        #expect(description.endedAt == nil)
        #expect(description.batch == nil)
        #expect(description.speedLimit == nil)
    }

    @Test func `changes only the named properties`() {
        var description = DownloadDescription(DownloadReference(number: 7), Self.properties)
        description.apply([
            "State": .string("finished"), "WaitReason": .string(""), "Path": .string("/d/a (1).iso"), "Error": EndError().variant,
        ])
        #expect(description.state == .finished)
        #expect(description.waitReason == nil)
        #expect(description.error == nil)
        #expect(description.displayName == "a (1).iso")
        #expect(description.received == 50)
    }

    @Test func `survives properties of a newer service`() {
        let description = DownloadDescription(
            DownloadReference(number: 7), ["State": .string("teleporting"), "Total": .string("x"), "New": .bool(true)])
        #expect(description.state == .other("teleporting"))
        #expect(!description.state.hasEnded)
        #expect(description.total == nil)
    }

    @Test func `has null for an unknown total and fraction in JSON`() throws {
        var properties = Self.properties
        properties["Total"] = .int64(-1)
        let parsed = TestSupport.JSON(todoku.JSON.object(DownloadDescription(DownloadReference(number: 7), properties).json).text)
        let read = try #require(parsed)
        #expect(read["total"] == .null)
        #expect(read["fraction"] == .null)
        #expect(read["download"]?.string == "7")
        #expect(read["error"]?["http-status"]?.number == 404)
        #expect(read["received"]?.number == 50)
    }
}

@Suite struct `A download's name at the command line` {
    @Test(arguments: [
        ("7", "/org/todoku/Downloader1/download/7"), ("/org/todoku/Downloader1/download/12", "/org/todoku/Downloader1/download/12"),
        ("org.example.App/ch_1", "/org/todoku/Downloader1/download/by_token/org_2eexample_2eApp/ch_5f1"),
    ])
    func `is a number, an application with its token, or an object path`(text: String, path: String) throws {
        #expect(try #require(DownloadReference(text)).path == path)
    }

    @Test(arguments: [
        "", "x", "-1", "+1", "07", "1.0", "/", "a/", "/a", "a/b/c", "/org/todoku/Downloader1", "/org/todoku/Downloader1/download/a b",
        "18446744073709551616",
    ])
    func `is refused in any other form`(text: String) { #expect(DownloadReference(text) == nil) }

    @Test(arguments: ["7", "org.example.App/ch_1", "1app/0", "日本/x"])
    func `is printed as it was given`(text: String) throws { #expect(try #require(DownloadReference(text)).description == text) }
}
