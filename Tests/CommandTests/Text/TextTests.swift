import DownloadModel
import Testing

@testable import todoku

@Suite struct `Text for a terminal` {
    @Test(arguments: [
        ("abc", 3), ("日本語", 6), ("ﾃﾞｰﾀ", 4), ("か\u{3099}", 2), ("é", 1), ("e\u{301}", 1), ("👍🏽", 2), ("✔️", 2), ("", 0), ("한국", 4),
        ("\u{1112}\u{1161}\u{11AB}", 2), ("🇯🇵", 2),
    ])
    func `counts the columns that a terminal takes`(text: String, columns: Int) { #expect(TerminalText.width(text) == columns) }

    @Test(arguments: 0...40)
    func `is never wider than its limit once cut`(columns: Int) {
        for name in ["写真データ集２０２６年１１月.tar.gz", "a very long file name indeed.iso", "👨‍👩‍👧‍👦家族の写真のまとめ.zip"] {
            #expect(TerminalText.width(TerminalText.cut(name, to: columns)) <= columns)
            #expect(TerminalText.width(TerminalText.cut(name, to: columns, ellipsis: "...")) <= columns)
        }
    }

    @Test func `keeps the beginning and the extension when cut`() {
        #expect(TerminalText.cut("a very long file name.iso", to: 16) == "a very l…ame.iso")
        #expect(TerminalText.cut("写真データ集２０２６.bin", to: 14) == "写真デ…６.bin")
        #expect(TerminalText.cut("short", to: 5) == "short")
    }

    @Test func `contains no control and no bidi characters`() {
        #expect(TerminalText.plain("a\u{1b}[31mb\nc\u{7f}\u{9b}d\u{202e}e") == "a?[31mb?c??d?e")
        #expect(TerminalText.plain("日本語 ok") == "日本語 ok")
    }
}

@Suite struct `A table` {
    @Test func `aligns by display width, and cuts the last column`() {
        var table = Table([Table.Column(heading: "N", isNumber: true), Table.Column(heading: "NAME"), Table.Column(heading: "X")])
        table.add(["7", "日本", "0123456789"])
        table.add(["12", "abcdef", "x"])
        #expect(table.text(width: nil) == " N  NAME    X\n 7  日本    0123456789\n12  abcdef  x\n")
        #expect(table.text(width: 20).contains("0123…789\n"))
    }
}

@Suite struct `Amounts at the command line` {
    @Test(arguments: [
        ("0", 0), ("512", 512), ("10K", 10_240), ("10KiB", 10_240), ("10kb", 10_000), ("1.5M", 1_572_864), ("10 MiB", 10_485_760),
        ("2GB", 2_000_000_000),
        ("1T", 1 << 40), ("7B", 7), ("18446744073709551615", UInt64.max),
    ])
    func `reads a size`(text: String, bytes: UInt64) { #expect(Amounts.bytes(text) == bytes) }

    @Test(arguments: [
        "", "K", "-1", "1.5", "1e3", "10X", "10KiBs", ".5M", "5.M", "1.2.3M", "18446744073709551616", "99999999999P", "１０", "0x10",
        "10Mi B",
    ])
    func `refuses a malformed size`(text: String) { #expect(Amounts.bytes(text) == nil) }

    @Test(arguments: [("30", 30_000), ("30s", 30_000), ("500ms", 500), ("2m", 120_000), ("2 min", 120_000), ("1h", 3_600_000)])
    func `reads a time`(text: String, milliseconds: Int) { #expect(Amounts.duration(text) == .milliseconds(milliseconds)) }

    @Test(arguments: ["", "s", "-1s", "1.5s", "3d", "50000000"])
    func `refuses a malformed time`(text: String) { #expect(Amounts.duration(text) == nil) }
}

@Suite struct `Paths at the command line` {
    @Test(arguments: [
        ("a", "/w/a"), ("./a//b/", "/w/a/b"), ("/x/./y", "/x/y"), ("nowhere/../b", "/w/b"), ("/", "/"), (".", "/w"), ("../../../q", "/q"),
    ])
    func `are made absolute`(given: String, absolute: String) { #expect(LocalPath.absolute(given, in: "/w") == absolute) }

    @Test func `are split into folder and name`() throws {
        let split = try #require(LocalPath.split("/tmp/a b.bin"))
        #expect(split == ("/tmp", "a b.bin"))
        #expect(try #require(LocalPath.split("/a")) == ("/", "a"))
        #expect(try #require(LocalPath.split("a")).name == "a")
        #expect(LocalPath.split("dir/") == nil)
        #expect(LocalPath.split("x/..") == nil)
    }
}
