import DownloadModel
import Testing

/// Inputs of a server, a link or a clock that could make a file land elsewhere, look different, or count as another file. The fuzzers or
/// reviewers found them.
@Suite struct `A hostile name` {
    private static let field = #"attachment; filename=""#

    /// Each name occurs in a header, percent-encoded in a header, and as the last part of a URL.
    @Test(
        arguments: [
            ("../../../etc/cron.d/x", "x"), ("..\\..\\autostart\\x.desktop", "x.desktop"), ("/etc/passwd", "passwd"),
            ("C:\\Windows\\x.dll", "x.dll"), ("....//....//x", "x"), ("a/../../.ssh/authorized_keys", "authorized_keys"), ("x/", nil),
            ("..", nil), ("x/..", nil), ("\\\\server\\share\\x.exe", "x.exe"), (".bashrc", "bashrc"), ("./.profile", "profile"),
            ("...x", "x"), ("\u{200B}.x", "x"), ("\u{202E}.x", "x"), ("\u{FEFF}./.x", "x"), (" .x", "x"), ("\u{A0}.x", "x"),
            ("x\u{0}.png", "x.png"), ("x\r\nSet-Cookie: a", "xSet-Cookie_ a"), ("\u{1B}[2Jx", "[2Jx"), ("x\u{9B}31m", "x31m"),
            ("photo\u{202E}gnp.exe", "photognp.exe"), ("a\u{2066}b\u{2069}", "ab"), ("a\u{61C}b\u{200F}c", "abc"),
            ("a\u{206A}b\u{206F}", "ab"), ("a\u{3164}b\u{FFA0}", "ab"), ("\u{115F}\u{1160}", nil), ("a\u{1D173}b", "ab"),
            ("a\u{E0041}\u{E0042}b", "ab"), ("\u{3164}.bashrc", "bashrc"), ("a\u{2028}b\u{2029}c", "abc"),
            ("x.txt.", "x.txt"), ("x.txt ", "x.txt"), ("x.txt. . .", "x.txt"), ("x\u{3000}", "x"),
            ("葛\u{E0100}.txt", "葛\u{E0100}.txt"), ("か\u{3099}.txt", "か\u{3099}.txt"),
            ("nul", "_nul"), ("NUL.txt", "_NUL.txt"), ("com1.tar.gz", "_com1.tar.gz"), ("lpt³", "_lpt³"), ("aux .c", "_aux .c"),
            ("CONOUT$", "_CONOUT$"), ("a:stream", "a_stream"), ("x.txt::$DATA", "x.txt__$DATA"), ("-rf *", "-rf _"), ("|sh", "_sh"),
        ] as [(String, String?)])
    func `becomes a harmless one, wherever it comes from`(given: String, expected: String?) throws {
        let bytes = Array(given.utf8)
        let escaped = bytes.map { "%" + ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        let quoted = bytes.flatMap { $0 == 0x5C || $0 == 0x22 ? [0x5C, $0] : [$0] }
        let fields = [Array(Self.field.utf8) + quoted + [0x22], Array("inline; filename*=UTF-8''\(escaped)".utf8)]
        for field in fields {
            let name = FileName.chosen(contentDisposition: field, url: try DownloadURL("http://h/fallback"), decode: iconvDecoder)
            #expect(Array(name.utf8) == Array((expected ?? "fallback").utf8), "\(name.debugDescription)")
        }
        let linked = FileName.chosen(contentDisposition: nil, url: try DownloadURL("http://h/a/\(escaped)"), decode: iconvDecoder)
        // To a browser, a URL that ends in ".." names the folder above.
        let isFolder = given == ".."
        #expect(Array(linked.utf8) == Array((isFolder ? "h" : expected ?? "h-a").utf8), "\(linked.debugDescription)")
    }

    @Test(
        arguments: [
            // Overlong or invalid UTF-8 never becomes a slash, a dot or a NUL.
            [0xC0, 0xAF], [0xC0, 0xAE, 0xC0, 0xAE, 0xC0, 0xAF, 0x78], [0xE0, 0x80, 0xAF], [0xF0, 0x80, 0x80, 0xAF], [0xC0, 0x80],
            [0xED, 0xA0, 0x80], [0xF4, 0x90, 0x80, 0x80], [0xFF, 0xFE, 0x2F, 0x00], [0x81, 0x5C, 0x2E, 0x2E, 0x5C, 0x78],
            [0x2E, 0x2E, 0x8F, 0xA2, 0x5C], [0x1B, 0x24, 0x42, 0x21, 0x3F],
        ] as [[UInt8]])
    func `of false UTF-8 is bare`(bytes: [UInt8]) throws {
        let escaped = bytes.map { "%" + ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        for field in [Array(Self.field.utf8) + bytes, Array("a;filename*=UTF-8''\(escaped)".utf8), Array("a;filename=\(escaped)".utf8)] {
            let name = FileName.chosen(contentDisposition: field, url: try DownloadURL("http://h/\(escaped)"), decode: iconvDecoder)
            #expect(FileName.isBare(name) && FileName.safe(name) == name, "\(name.debugDescription)")
        }
    }

    @Test(arguments: [
        "CON" + String(repeating: " ", count: 240) + "x.txt", "nul" + String(repeating: ".", count: 240) + "x.txt",
        "COM1" + String(repeating: " .", count: 140) + "x", "Lpt9" + String(repeating: "\u{3000}", count: 100) + "x.tar.gz",
    ])
    func `that becomes reserved when it is cut gets a prefix`(given: String) throws {
        let name = try #require(FileName.safe(given))
        #expect(name.hasPrefix("_"), "\(name.debugDescription)")
        #expect(name.utf8.count <= FileName.longest)
        #expect(FileName.safe(name) == name)
    }

    @Test(arguments: [1, 2, 3, 4, 6, 30, 299])
    func `of 300 bytes and more keeps within the limit and whole characters`(size: Int) throws {
        let pieces = ["a", "é", "あ", "😀", "e\u{301}\u{302}", String(repeating: "\u{301}", count: 15), ".a"]
        for piece in pieces {
            let given = String(repeating: piece, count: 300 / size + 300)
            let name = try #require(FileName.safe("x" + given + ".tar.gz"))
            #expect(name.utf8.count <= FileName.longest && !name.contains("\u{FFFD}"))
            #expect(FileName.numbered(name, .max).utf8.count <= 255)
        }
    }
}

@Suite struct `A hostile instant` {
    @Test(
        arguments: [
            (UInt64.max, .seconds(60)), (UInt64.max - 1, .seconds(1)), (1, .seconds(Int64.max)), (UInt64.max, .seconds(Int64.max)),
            (0, .seconds(Int64.max) + .seconds(Int64.max)),
        ] as [(UInt64, Duration)])
    func `is not added to beyond the end of time`(start: UInt64, more: Duration) {
        let time = WallTime(microseconds: start)
        #expect(time + more == WallTime(microseconds: .max))
        #expect(time + .seconds(Int64.min) == WallTime(microseconds: 0))
        #expect(time + .zero == time)
    }

    @Test(arguments: [UInt64.max, UInt64.max / 2, 253_402_300_800_000_000] as [UInt64])
    func `of this machine's clock makes no date overflow`(now: UInt64) {
        for year in ["00", "49", "50", "99"] {
            let date = HTTPDate.parse("Sunday, 06-Nov-\(year) 08:49:37 GMT", now: WallTime(microseconds: now))
            #expect(date.map { $0 < WallTime(microseconds: 253_402_300_800_000_000) } ?? true)
            _ = RetryAfter.delay("Sunday, 06-Nov-\(year) 08:49:37 GMT", now: WallTime(microseconds: now))
        }
    }
}
