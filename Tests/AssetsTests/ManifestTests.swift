internal import Assets
internal import DownloadModel
internal import Testing

@Suite struct `A manifest` {
    static let base: DownloadURL = {
        do { return try DownloadURL("https://example.org/assets/maps.json?token=1") } catch { preconditionFailure("\(error)") }
    }()
    static let digest = String(repeating: "ab", count: 32)

    static func parse(_ text: String, from base: DownloadURL = base) throws(DownloadFailure) -> AssetManifest {
        try ManifestText.parse(Array(text.utf8), from: base)
    }

    /// A manifest with all that is required, and `more` behind it.
    static func text(_ more: String = "", url: String = "maps.zip", sha256: String = digest) -> String {
        #"{"version": "2026.11", "url": "\#(url)", "sha256": "\#(sha256)"\#(more.isEmpty ? "" : ", " + more)}"#
    }

    @Test func `names a version, a URL and a digest`() throws {
        let manifest = try Self.parse(Self.text())
        #expect(manifest.version == "2026.11")
        #expect(manifest.url == "https://example.org/assets/maps.zip")
        #expect(manifest.sha256.description == "sha256:" + Self.digest)
        #expect(manifest.size == nil && manifest.unpackedSize == nil && manifest.timestamp == nil && manifest.mirrors.isEmpty)
    }

    @Test func `may name sizes, a timestamp and mirrors, and anything that Todoku does not know`() throws {
        let manifest = try Self.parse(
            Self.text(
                #"""
                "size": 1000, "unpacked-size": 5000, "timestamp": "2026-11-24T18:30:00+09:00",
                "mirrors": ["https://b.org/m.zip", "//c.org/m.zip"], "notes": {"ja": "新しい地図"}
                """#))
        #expect(manifest.size == 1000 && manifest.unpackedSize == 5000)
        #expect(manifest.timestamp == Timestamp.parse("2026-11-24T09:30:00Z"))
        #expect(manifest.mirrors == ["https://b.org/m.zip", "https://c.org/m.zip"])
        #expect(manifest.neededRoom == 6000)
    }

    @Test(arguments: [
        ("maps.zip", "https://example.org/assets/maps.zip"), ("/maps.zip", "https://example.org/maps.zip"),
        ("../v2/maps.zip?x=1", "https://example.org/v2/maps.zip?x=1"), ("https://cdn.org/m.zip", "https://cdn.org/m.zip"),
    ])
    func `resolves a relative URL against its own`(url: String, resolved: String) throws {
        #expect(try Self.parse(Self.text(url: url)).url == resolved)
    }

    static let defects: [(text: String, words: String)] = [
        ("", "line 1"), ("[]", "the text is not an object"), ("{", "line 1"), ("{}", "“version” is missing"),
        (#"{"version": 3}"#, "“version” is not a text"), (#"{"version": ""}"#, "“version” is empty"),
        (#"{"version": "a\nb"}"#, "“version” has a control character"),
        (#"{"version": "\#(String(repeating: "x", count: 129))"}"#, "“version” has more than 128 bytes"),
        (#"{"version": "1"}"#, "“url” is missing"), (#"{"version": "1", "url": ""}"#, "“url” is empty"),
        (#"{"version": "1", "url": "ftp://h/x"}"#, "“url”: ftp"), (#"{"version": "1", "url": "x"}"#, "“sha256” is missing"),
        (text(url: "http://example.org/maps.zip"), "“url”: it leads from https to http"),
        (text(sha256: "abc"), "“sha256” is not a SHA-256 digest"), (text(sha256: String(repeating: "zz", count: 32)), "“sha256” is not"),
        (text(#""size": -1"#), "“size” is not a whole number"), (text(#""size": 1.5"#), "“size” is not a whole number"),
        (text(#""unpacked-size": "big""#), "“unpacked-size” is not a whole number"),
        (text(#""timestamp": "yesterday""#), "“timestamp” is no instant"), (text(#""timestamp": 17"#), "“timestamp” is not a text"),
        (text(#""mirrors": "https://b.org""#), "“mirrors” is not a list"), (text(#""mirrors": [1]"#), "“mirrors[0]” is not a text"),
        (text(#""mirrors": ["maps.zip"]"#), "“mirrors[0]” is a URL that is there already"),
        (text(#""mirrors": ["b.zip", "c.zip", "b.zip"]"#), "“mirrors[2]” is a URL that is there already"),
        (text(#""mirrors": [\#((0..<33).map { #""m\#($0).zip""# }.joined(separator: ","))]"#), "“mirrors” has more than 32"),
        (#"{"version": "1", "version": "2"}"#, "line 1"),
    ]

    @Test(arguments: defects) func `is refused with the name of the field that is wrong`(defect: (text: String, words: String)) {
        let error = #expect(throws: DownloadFailure.self) { try Self.parse(defect.text) }
        #expect(error?.name == .manifest)
        #expect(error?.message.contains(defect.words) ?? false, "\(error?.message ?? "")")
        #expect(error?.message.contains("token") == false, "the message shows the query")
    }

    @Test func `has at most 64 KiB`() throws {
        let filler = #""x": "\#(String(repeating: "x", count: 64 << 10))""#
        let error = #expect(throws: DownloadFailure.self) { try Self.parse(Self.text(filler)) }
        #expect(error?.message.contains("at most 65536") ?? false, "\(error?.message ?? "")")
    }
}

@Suite struct `A timestamp` {
    @Test(
        arguments: [
            ("1970-01-01T00:00:00Z", 0), ("2026-11-24T18:30:00Z", 1_795_545_000_000_000), ("2026-11-24t18:30:00z", 1_795_545_000_000_000),
            ("2026-11-25T03:30:00+09:00", 1_795_545_000_000_000), ("2026-11-24T13:00:00-05:30", 1_795_545_000_000_000),
            ("2026-11-24T18:30:00.5Z", 1_795_545_000_500_000), ("2026-11-24T18:30:00.1234567Z", 1_795_545_000_123_456),
            ("2024-02-29T23:59:60Z", 1_709_251_199_000_000),
        ] as [(String, UInt64)])
    func `is read as RFC 3339 has it`(text: String, microseconds: UInt64) {
        #expect(Timestamp.parse(text)?.microseconds == microseconds)
    }

    @Test(arguments: [
        "", "2026-11-24", "2026-11-24T18:30:00", "2026-11-24 18:30:00Z", "2026-13-24T18:30:00Z", "2026-02-29T00:00:00Z",
        "2026-11-24T24:00:00Z", "2026-11-24T18:30:00.Z", "2026-11-24T18:30:00+9:00", "2026-11-24T18:30:00+09:60", "1969-12-31T23:59:59Z",
        "1970-01-01T00:00:00+00:01", "２０２６-11-24T18:30:00Z", "2026-11-24T18:30:00Zz", "2026-11-24T18:30:00🕕",
    ])
    func `is refused if it is malformed or impossible`(text: String) { #expect(Timestamp.parse(text) == nil) }
}

@Suite struct `An asset’s name` {
    @Test(arguments: [("org.example.App", "maps"), ("a", "0"), ("game-2", "level_1.textures")])
    func `has letters, digits, points, dashes and underscores`(app: String, name: String) throws {
        #expect(try AssetKey(app: app, name: name).description == "\(app)/\(name)")
    }

    @Test(arguments: [
        ("", "maps"), ("org.example.App", ""), ("org.example.App", "."), ("org.example.App", ".."), ("org.example.App", ".hidden"),
        ("org.example.App", "a/b"), ("../x", "maps"), ("org.example.App", "地図"), ("org.example.App", "a b"),
        ("org.example.App", String(repeating: "x", count: 65)), (String(repeating: "x", count: 151), "maps"), ("-x", "maps"),
    ])
    func `is refused if it is no name of a folder`(app: String, name: String) {
        #expect(throws: Refusal.self) { try AssetKey(app: app, name: name) }
    }
}
