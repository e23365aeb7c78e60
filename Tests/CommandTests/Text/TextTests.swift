import DownloadModel
import Glibc
import TestSupport
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

    @Test func `is broken between words`() {
        #expect(TerminalText.wrapped("one two  three", to: 7) == ["one two", "three"])
        #expect(TerminalText.wrapped("日本 語 0123456789", to: 7) == ["日本 語", "012…789"])
        #expect(TerminalText.wrapped("", to: 7) == [] && TerminalText.wrapped("ab c", to: 1) == ["…", "c"])
    }

    @Test func `is broken between Japanese characters, but not before a full stop or after a bracket`() {
        #expect(TerminalText.wrapped("ファイルを開く。", to: 14) == ["ファイルを開", "く。"])
        #expect(TerminalText.wrapped("番号（既定）", to: 6) == ["番号", "（既", "定）"])
        #expect(TerminalText.wrapped("終了は 0 です。--all を付ける", to: 15) == ["終了は 0 です。", "--all を付ける"])
        for columns in 2...30 {
            for line in TerminalText.wrapped("「todoku add」で登録（--quiet 付き）、終わり。", to: columns, cutsWords: false) {
                #expect(TerminalText.width(line) <= columns, "\(columns): \(line)")
                #expect(line.first.map { "、。）」".contains($0) } != true || columns < 6, "\(columns): \(line)")
            }
        }
    }

    @Test func `that is longer than a line goes on in the next one, or is cut`() {
        #expect(TerminalText.wrapped("see https://example.org/a", to: 10, cutsWords: false) == ["see", "https://ex", "ample.org/", "a"])
        #expect(TerminalText.wrapped("see https://example.org/a", to: 10) == ["see", "https…rg/a"])
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

    private func table(_ rows: [[String]]) -> Table {
        var table = Table([
            Table.Column(heading: "ID", isNumber: true, isName: true), Table.Column(heading: "STATE"),
            Table.Column(heading: "%", isNumber: true, leftOut: 1), Table.Column(heading: "SIZE", isNumber: true, leftOut: 2),
            Table.Column(heading: "NAME"),
        ])
        for row in rows { table.add(row, note: row[1] == "failed" ? "the server said no, and it said so at length" : nil) }
        return table
    }

    @Test(arguments: [1, 8, 20, 28, 30, 40, 41, 60, 80, 200])
    func `leaves columns out on a narrow terminal, and wraps no line`(width: Int) {
        let lines = table([["7", "active", "40", "123.4 MiB", "a long name of a file.tar.gz"], ["12", "failed", "-", "-", "日本語の名前.zip"]])
            .text(width: width).split(separator: "\n").map(String.init)
        // The number and the state stay, whatever the width.
        #expect(lines.allSatisfy { TerminalText.width($0) <= max(width, 13) }, "\(lines)")
        #expect(lines[1].hasPrefix(" 7  active"))
        #expect(lines[0].contains("SIZE") == (width >= 40) && lines[0].contains("%") == (width >= 28), "\(lines)")
        let note = lines.dropFirst(3).map { $0.drop { $0 == " " } }.joined(separator: " ")
        #expect(lines.dropFirst(3).allSatisfy { $0.hasPrefix("    ") })
        #expect(note == "the server said no, and it said so at length" || width <= 8, "\(lines)")
    }

    @Test func `gives a long first cell a line of its own on a terminal, and a note the end of its line elsewhere`() {
        let rows = [["7", "active", "40", "1 B", "a"], ["org.example.App/chapter_1", "failed", "-", "-", "b"]]
        #expect(
            table(rows).text(width: 60)
                == "ID  STATE    %  SIZE  NAME\n 7  active  40   1 B  a\norg.example.App/chapter_1\n    failed   -     -  b\n"
                + "    the server said no, and it said so at length\n")
        var piped = table(rows)
        piped.noteHeading = "REASON"
        let lines = piped.text(width: nil).split(separator: "\n")
        #expect(lines.count == 3 && lines[0].hasSuffix("STATE    %  SIZE  NAME  REASON"), "\(lines)")
        #expect(lines[1].hasSuffix("active  40   1 B  a"), "\(lines)")
        #expect(lines[2].hasSuffix("failed   -     -  b     the server said no, and it said so at length"), "\(lines)")
        // Without a note there is no column for notes.
        piped = table([rows[0]])
        piped.noteHeading = "REASON"
        #expect(piped.text(width: nil) == "ID  STATE    %  SIZE  NAME\n 7  active  40   1 B  a\n")
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

    @Test(arguments: ["2026-12-24T03:00", "2026-12-24 03:00:30", "2028-02-29T00:00", "2026-11-30T23:59"])
    func `reads a day`(text: String) throws {
        let instant = try #require(Amounts.instant(text))
        #expect(Clock.text(instant).hasPrefix(text.replacing("T", with: " ")))
    }

    @Test(arguments: [
        "2026-02-31T03:00", "2026-02-29T03:00", "2026-11-31 03:00", "2026-01-32T03:00", "2026-00-01T03:00", "2026-13-01T03:00",
        "2026-01-00T03:00", "1969-12-31T03:00", "10000-01-01T03:00",
    ])
    func `refuses a day that no calendar has`(text: String) { #expect(Amounts.instant(text) == nil) }
}

@Suite struct `Paths at the command line` {
    @Test(arguments: [
        ("a", "/w/a"), ("./a//b/", "/w/a/b"), ("/x/./y", "/x/y"), ("nowhere/../b", "/w/b"), ("/", "/"), (".", "/w"), ("../../../q", "/q"),
        ("/\u{301}x", "/\u{301}x"), ("../\u{301}x", "/\u{301}x"),
    ])
    func `are made absolute`(given: String, absolute: String) throws { #expect(try LocalPath.absolute(given, in: "/w") == absolute) }

    @Test func `lead up from the target of a link, as the system reads them`() throws {
        let folder = TemporaryFolder()
        mkdir(folder("disk"), 0o755)
        mkdir(folder("disk/photos"), 0o755)
        symlink("disk/photos", folder("link"))
        symlink("nowhere", folder("disk/dead"))
        let disk = try LocalPath.absolute("disk/photos/..", in: folder.path)
        #expect(disk.hasSuffix("/disk"))
        for (given, expected) in [
            ("link/..", disk), ("link/../new", "\(disk)/new"), ("./link/.././new/", "\(disk)/new"), ("link/../dead", "\(disk)/dead"),
            ("link/../new/deep", "\(disk)/new/deep"), ("link/../new/..", try LocalPath.absolute(".", in: folder.path)),
        ] {
            #expect(try LocalPath.absolute(given, in: folder.path) == expected, "\(given)")
        }
    }

    @Test func `are split into folder and name`() throws {
        let split = try #require(try LocalPath.split("/tmp/a b.bin"))
        #expect(split == ("/tmp", "a b.bin"))
        #expect(try #require(try LocalPath.split("/a")) == ("/", "a"))
        #expect(try #require(try LocalPath.split("a")).name == "a")
        #expect(try #require(try LocalPath.split("/tmp/\u{301}a")) == ("/tmp", "\u{301}a"))
        #expect(try LocalPath.split("dir/") == nil)
        #expect(try LocalPath.split("x/..") == nil)
    }

    /// Swift replaces other bytes by U+FFFD, so another file or folder would be made.
    @Test(arguments: [
        (#""$0" get -o "$odd" "$1""#, 2), (#""$0" get --json -o "$odd" "$1""#, 2), (#""$0" get -- "$1?$odd""#, 2),
        (#""$0" rehearse --log "$odd" none -- true"#, 2), (#"mkdir "$odd" && cd "$odd" && "$0" get -p -d sub "$1""#, 2),
        (#"mkdir "$odd" "$odd/sub" && ln -s "$odd/sub" link && "$0" get -d link/.. "$1""#, 2),
        (#"printf '%s\n dir=${HOME}/sub\n' "$1" | HOME="/$odd" "$0" batch -"#, 3),
    ])
    func `are refused if they are not UTF-8`(script: String, status: Int32) async throws {
        let desk = await Desk()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let exit = await Child.run(
            ["sh", "-c", #"odd=$(printf 'caf\351'); \#(script)"#, Desk.command, server.url("/a")], environment: desk.environment,
            folder: desk.bus.folder.path)
        #expect(exit.status == status && (exit.output + exit.errors).contains("is not UTF-8: D-Bus carries only text in UTF-8"), "\(exit)")
        #expect(server.requests.isEmpty && listFolder(desk.downloads) == [])
        #expect(await desk.run("list", "--all", "--json").output == "[]\n")
        // What the script itself has made, and nothing beside it.
        let clean = #"rm -rf link "$(printf 'caf\351')"; ls -d caf* 2>/dev/null || true"#
        #expect(await Child.run(["sh", "-c", clean], folder: desk.bus.folder.path).output == "")
        await desk.close()
    }

    @Test func `may have the letter that stands for other bytes`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        #expect(await desk.run("get", "-q", "-o", "a\u{FFFD}", server.url("/a")).status == 0)
        #expect(fileExists(desk.bus.folder("a\u{FFFD}")))
        await desk.close()
    }

    /// In the place of a folder that is gone, "/" would be used, where root can write.
    @Test func `lead nowhere from a folder that has been deleted`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let script = "mkdir gone && cd gone && rmdir ../gone && exec \"$0\" \"$@\""
        func run(_ arguments: String...) async -> Child.Exit {
            await Child(["sh", "-c", script, Desk.command] + arguments, environment: desk.environment, folder: desk.bus.folder.path).wait()
        }
        for (option, typed) in [
            (["-d", "sub"], "sub"), (["-d", "."], "."), (["-o", "name"], "name"), (["-o", "../name"], "../name"),
            (["--extract=./sub"], "./sub"),
        ] {
            for json in [[], ["--json"]] {
                let exit = await Child(
                    ["sh", "-c", script, Desk.command, "get"] + option + json + [server.url("/a")], environment: desk.environment,
                    folder: desk.bus.folder.path
                ).wait()
                #expect(exit.status == 2 && (exit.output + exit.errors).contains("the current folder no longer exists"), "\(exit)")
                #expect((exit.output + exit.errors).contains("“\(typed)” leads nowhere"), "\(exit)")
            }
        }
        #expect(await run("settings", "default-directory", "sub").errors.contains("the current folder no longer exists"))
        // A full path needs no current folder.
        #expect(await run("get", "-d", desk.bus.folder.path, server.url("/b")).status == 0)
        #expect(await desk.run("list", "--all", "--json").output.contains("\"download\":\"1\""))
        await desk.close()
    }
}
