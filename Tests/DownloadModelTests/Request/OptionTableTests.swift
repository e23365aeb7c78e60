import DownloadModel
import Testing

@Suite struct `The table of options` {
    @Test func `has a row for each property that callers set`() {
        // Only the service sets these properties.
        let ours: Set = ["isSandboxed", "isNamedByPublicServer", "isPostSent", "hasForgottenSecrets"]
        let properties = Mirror(reflecting: DownloadOptions()).children.compactMap(\.label).filter { !ours.contains($0) }
        // Two options set the headers.
        #expect(properties.count &+ 1 == OptionRow.all.count)
        #expect(OptionRow.byKey.count == OptionRow.all.count)
        #expect(OptionRow.all.allSatisfy { !$0.help.isEmpty && $0.help.hasSuffix(".") })
    }

    /// A value of each option that is not its default.
    private static let values: [String: OptionValue] = [
        "app": .text("org.example.App"), "token": .text("a_1"), "tag": .text("t"), "metadata": .dictionary([1, 0xAB]),
        "activate": .text("org.example.App"), "directory": .text("/tmp"), "filename": .text("a.bin"), "if-exists": .text("skip"),
        "extract": .flag(true),
        "checksum": .text("md5:" + String(repeating: "0a", count: 16)), "size": .uint64(.max), "max-size": .uint64(1),
        "piece-hashes": .text("md5:1:" + String(repeating: "0a", count: 48)),
        "expect-type": .text("image/*"), "only-if-changed": .flag(true), "headers": .fields([HeaderField(name: "A", value: "b: c")]),
        "header-list": .fieldList([HeaderField(name: "A", value: "1"), HeaderField(name: "A", value: "2")]),
        "cookies": .texts([".h.org\tTRUE\t/\tTRUE\t0\ta\t\\n", "#HttpOnly_h\tFALSE\t/p\tFALSE\t9\tb\t"]),
        "post-data": .bytes([0, 0x61, 0xFF]), "post-type": .text("multipart/form-data; boundary=\"a b\""),
        "mirrors": .texts(["https://m.example.org/a?b=c", "http://h/"]), "find-mirrors": .flag(true), "private": .flag(true),
        "user-agent": .text(""),
        "referrer": .text("http://h/"),
        "username": .text("u"), "password": .text("p\\n"), "proxy": .text("socks5h://u:p%40@[::1]:1080"),
        "allow-private": .flag(false), "allow-downgrade": .flag(true), "renewable": .flag(true), "start": .flag(false),
        "priority": .int32(.min), "speed-limit": .uint64(.max), "connections": .uint32(16),
        "stall-timeout": .uint32(.max), "retries": .uint32(0),
        "not-before": .uint64(.max), "deadline": .uint64(Limits.longestDeadline), "allow-metered": .flag(false),
        "request-interval": .uint32(.max), "notify": .text("never"), "notify-delay": .uint32(3_600_000), "title": .text("題"),
        "body": .text("b"), "icon": .text("folder"), "sound": .text(""), "show-progress": .flag(false), "desktop-id": .text("a.b"),
    ]

    @Test func `returns a call's value, and the database's text too`() throws {
        #expect(Set(Self.values.keys) == Set(OptionRow.byKey.keys))
        for row in OptionRow.all {
            let value = try #require(Self.values[row.key])
            #expect(value.signature == row.signature, "\(row.key)")
            var options = DownloadOptions()
            #expect(row.text(in: options) == nil, "\(row.key): the default is not written")
            try row.take(value, into: &options)
            #expect(options != DownloadOptions(), "\(row.key)")
            #expect(row.value(in: options) == value, "\(row.key)")
            // The store writes headers, with a line for each.
            guard !OptionRow.ofHeaders.contains(row.key) else { continue }
            var kept = DownloadOptions()
            let text = try #require(row.text(in: options))
            #expect(row.take(text: text, into: &kept) && kept == options, "\(row.key): \(text)")
        }
    }

    @Test(arguments: ["maps", "true", "archive", "folder x", "a\\nb", "地図"])
    func `keeps the name of a folder, whatever it is`(name: String) throws {
        let row = try #require(OptionRow.byKey["extract"])
        var (options, kept) = (DownloadOptions(), DownloadOptions())
        try row.take(.text(name), into: &options)
        #expect(options.extract == .named(name) && row.value(in: options) == .text(name))
        #expect(row.take(text: try #require(row.text(in: options)), into: &kept) && kept == options)
        #expect(!row.take(text: name == "archive" || name.hasPrefix("folder ") ? "" : name, into: &kept))
    }

    @Test func `lets an item override what its batch set`() throws {
        for key in ["extract", "speed-limit", "not-before", "deadline", "request-interval"] {
            let row = try #require(OptionRow.byKey[key])
            let none = try #require(row.value(in: DownloadOptions()), "\(key) has a value for none")
            var options = DownloadOptions()
            try row.take(try #require(Self.values[key]), into: &options)
            try row.take(none, into: &options)
            #expect(options == DownloadOptions(), "\(key)")
        }
    }

    @Test func `refuses a value of another type, and names the option`() {
        for row in OptionRow.all {
            for value in Self.values.values where !row.takes(value.signature) {
                var options = DownloadOptions()
                do throws(Refusal) {
                    try row.take(value, into: &options)
                    Issue.record("\(row.key) takes \(value)")
                } catch { #expect(error.name == .invalidOption && error.message.contains(row.key)) }
            }
        }
    }

    @Test(
        arguments: [
            ("app", .text("org.other"), false), ("app", .text("org.example.App"), true),
            ("activate", .text("org.example.App.Helper"), true), ("activate", .text("org.example.Apple"), false),
            ("directory", .text("/home/me/Downloads/./"), true), ("directory", .text("/home/me"), false),
            ("if-exists", .text("replace"), false), ("if-exists", .text("fail"), true), ("extract", .flag(true), true),
            ("extract", .text("maps"), true), ("allow-private", .flag(true), false),
            ("allow-private", .flag(false), true), ("priority", .int32(1), false), ("priority", .int32(0), true),
            ("proxy", .text("http://h:1"), false), ("proxy", .text("direct://"), false), ("icon", .text("file:///a"), false),
            ("icon", .text("/a"), false), ("icon", .text("folder"), true),
            ("desktop-id", .text("org.example.App"), true), ("desktop-id", .text("org.other"), false),
        ] as [(String, OptionValue, Bool)])
    func `says what a sandboxed app may ask for`(key: String, value: OptionValue, isAllowed: Bool) throws {
        let row = try #require(OptionRow.byKey[key])
        var options = DownloadOptions()
        try row.take(value, into: &options)
        guard case .rule(let rule) = row.sandbox else {
            Issue.record("\(key) has no rule")
            return
        }
        let sandbox = Sandbox(app: "org.example.App", folder: "/home/me/Downloads", allowsPrivate: false)
        #expect((rule(&options, sandbox) == nil) == isAllowed)
        if isAllowed { #expect(options.directory == nil && options.ifExists == .rename) }
    }
}
