import DBus
import DownloadModel
import PushInterface
import PushModel
import Testing

@testable import PushService

private let digest = String(repeating: "ab", count: 32)
private let now = WallTime(microseconds: 1_800_000_000_000_000)

private func rules(_ more: [String: Variant] = [:]) throws -> PushRules {
    try PushRules(
        decoding: ["hosts": .strings(["Images.Example.org", "*.example.net", "2001:DB8::1"])].merging(more) { $1 },
        app: "org.example.App", from: .user)
}

private func message(
    _ url: String = "https://images.example.org/a.png", size: UInt64 = 1, validUntil: UInt64 = 1_800_000_001, type: String? = nil
) throws -> PushMessage {
    let kind = type.map { ", \"type\": \"\($0)\"" } ?? ""
    return try PushMessage(
        Array("{\"url\":\"\(url)\",\"sha256\":\"\(digest.uppercased())\",\"size\":\(size),\"valid-until\":\(validUntil)\(kind)}".utf8))
}

@Suite struct `The rules of a registration` {
    @Test(arguments: [
        "https://images.example.org/a.png", "HTTPS://IMAGES.example.ORG:8443/a", "https://a.example.net/", "https://a.b.example.net/",
        "https://[2001:db8::1]/a",
    ])
    func `allow the hosts of the list`(url: String) throws {
        #expect(try rules().check(try message(url), now: now).sha256 == digest)
    }

    @Test(arguments: [
        ("https://example.org/", "host"), ("https://images.example.org.evil.example/", "host"), ("https://xexample.net/", "host"),
        ("https://example.net/", "host"), ("https://.example.net/", "format"), ("https://images.example.org@evil.example/", "format"),
        ("https://evil.example/images.example.org", "host"), ("https://evil.example\\\\@images.example.org/", "format"),
        ("http://images.example.org/", "scheme"), ("file:///etc/passwd", "format"), ("", "format"), ("images.example.org", "format"),
        ("https://[2001:db8::2]/", "host"),
    ])
    func `refuse any other URL`(url: String, reason: String) throws {
        #expect(throws: PushRefusal.self) { try rules().check(try message(url), now: now) }
        do { _ = try rules().check(try message(url), now: now) } catch let error as PushRefusal { #expect(error.reason.rawValue == reason) }
    }

    @Test func `allow http on this machine only, and only if private hosts are allowed`() throws {
        let local: [String: Variant] = ["hosts": .strings(["127.0.0.1", "localhost", "192.168.1.1"])]
        #expect(throws: PushRefusal.self) { try rules(local).check(try message("http://127.0.0.1/"), now: now) }
        let open = try rules(local.merging(["allow-private": .bool(true)]) { $1 })
        #expect(throws: Never.self) { try open.check(try message("http://127.0.0.1:8080/"), now: now) }
        #expect(throws: Never.self) { try open.check(try message("http://localhost/"), now: now) }
        #expect(throws: PushRefusal.self) { try open.check(try message("http://192.168.1.1/"), now: now) }
    }

    /// `Download` does the same. With `skip`, the app would be told that a file of the user's is the pushed file.
    @Test(arguments: ["rename", "skip", "fail"])
    func `give a file of an app in a sandbox a free name, whatever the app asks for`(policy: String) throws {
        func policyFor(_ caller: CallerIdentity) throws -> String {
            let options: [String: Variant] = ["hosts": .strings(["example.org"]), "if-exists": .string(policy)]
            return try PushRules(decoding: options, app: "org.example.App", from: caller).ifExists.rawValue
        }
        #expect(try policyFor(.app("org.example.App")) == "rename")
        #expect(try policyFor(.user) == policy)
    }

    @Test func `bound the size and the time`() throws {
        #expect(throws: Never.self) { try rules(["max-size": .uint64(7)]).check(try message(size: 7), now: now) }
        #expect(throws: PushRefusal.self) { try rules(["max-size": .uint64(7)]).check(try message(size: 8), now: now) }
        #expect(throws: PushRefusal.self) { try rules().check(try message(size: 10 << 20 + 1), now: now) }
        #expect(throws: PushRefusal.self) { try rules().check(try message(validUntil: 1_800_000_000), now: now) }
        #expect(try rules().check(try message(validUntil: 1_800_000_001), now: now).patience == 1000)
        #expect(try rules().check(try message(validUntil: UInt64(Int64.max)), now: now).patience == PushRules.longestWait * 1000)
    }

    @Test func `want a type if they allow several`() throws {
        func type(_ types: [String], _ given: String?) throws -> String? {
            try rules(["types": .strings(types)]).check(try message(type: given), now: now).type
        }
        #expect(try type([], nil) == nil)
        #expect(try type([], "image/png") == "image/png")
        #expect(try type(["Image/*"], nil) == "image/*")
        #expect(try type(["image/*", "text/plain"], "IMAGE/PNG") == "image/png")
        #expect(throws: PushRefusal.self) { try type(["image/*", "text/plain"], nil) }
        #expect(throws: PushRefusal.self) { try type(["image/*"], "imagex/png") }
        #expect(throws: PushRefusal.self) { try type(["image/*"], "image/*") }
        #expect(throws: PushRefusal.self) { try type([], "x") }
    }
}

@Suite struct `A push message's text` {
    @Test(arguments: [
        ("{}", "“url” is missing"), ("[]", "the text is not an object"),
        ("{\"url\":1}", "“url” is not a text"), ("{\"url\":\"u\"}", "“sha256” is missing"),
        ("{\"url\":\"u\",\"sha256\":\"\"}", "“sha256” is not 64 hexadecimal digits"),
        ("{\"url\":{\"a\":{}}}", "“url.a” is nested too deep"),
        ("{\"url\":\"u\",\"sha512\":\"\"}", "“sha512” is not known"),
    ])
    func `is refused with the field at fault`(text: String, reason: String) {
        do {
            _ = try PushMessage(Array(text.utf8))
            Issue.record("\(text) was accepted")
        } catch { #expect(error == PushRefusal(.format, reason)) }
    }

    /// The reason goes to the log, which must have no part of a URL.
    @Test(arguments: [
        ("{\"url\":\"https://h/?s\n\"}", "line 1: unexpected newline"), ("{\"url\":\"https://h/?s", "line 1: premature end of input"),
        ("{\"url\":secret}", "line 1: invalid token"), ("{\"url\":\"u\"", "line 1: '}' expected near end of file"),
    ])
    func `that is no JSON is refused with the line, and without a piece of the text`(text: String, reason: String) {
        #expect(throws: PushRefusal(.format, reason)) { try PushMessage(Array(text.utf8)) }
    }

    @Test func `has 1 to 4,096 bytes`() {
        #expect(throws: PushRefusal(.length, "the message is empty")) { try PushMessage([]) }
        #expect(throws: PushRefusal(.length, "the message has 4097 bytes; at most 4096 are allowed")) {
            try PushMessage([UInt8](repeating: 0x20, count: 4097))
        }
    }
}

@Suite struct `A record on disk` {
    @Test func `gives back what went in`() throws {
        var message = PendingPush(
            id: randomName(), token: randomName(), app: "org.example.App",
            push: AcceptedPush(
                url: "https://example.org/届く", sha256: digest, size: .max, type: "image/png", validUntil: 1, patience: 2),
            arrived: now, options: ["hosts": .strings(["example.org"])], isSandboxed: true, outcome: nil)
        #expect(PendingPush(record: message.record)?.record == message.record)
        message.outcome = PendingPush.Outcome(.failed, path: "", error: "e", message: "m", ended: now)
        #expect(PendingPush(record: message.record)?.outcome == message.outcome)
        #expect(PendingPush(record: [:]) == nil)
    }
}
