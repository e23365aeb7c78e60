import DBus
import DownloadModel
import EventLoop
import Glibc
import Localization
import TestSupport
import Testing

@testable import TodokuClient
@testable import todoku

@Suite(.serialized) struct `The language of the command` {
    @Test func `is the terminal’s for people, and English for programs`() async throws {
        let desk = await Desk(extra: ["LC_ALL": "ja_JP.UTF-8"])
        let server = ScriptedServer { request, reply in reply.respond(request.path == "/missing" ? 404 : 200, text: "x") }
        // Progress lines without a terminal are a log for scripts, so they are not translated.
        let got = await desk.run("get", server.url("/a"))
        #expect(got.output.hasPrefix("1 queued\n") && got.output.hasSuffix("1 finished \(desk.downloads)/a\n"), "\(got)")
        let failed = await desk.run("get", server.url("/missing"))
        #expect(failed.status == 1)
        #expect(failed.errors.hasPrefix("todoku: missing（ダウンロード 2）は失敗しました：サーバーがエラーを返しました（HTTP 404）（"), "\(failed)")
        let list = await desk.run("list").output.split(separator: "\n").map { $0.split(separator: " ") }
        #expect(list.map { $0.prefix(2) } == [["番号", "状態"], ["1", "完了"], ["2", "失敗"]], "\(list)")
        let show = await desk.run("show", "1").output
        #expect(show.contains("\n状態:         完了\n") && show.contains("\n受信:         1 B / 1 B (100 %)\n"), "\(show)")
        #expect(await desk.run("why", "1").output == "完了：ファイルは \(desk.downloads)/a です\n")
        #expect(await desk.run("why", "2").output.hasPrefix("失敗：サーバーがエラーを返しました（"))
        let refused = await desk.run("show", "99")
        #expect((refused.status, refused.errors) == (3, "todoku: ダウンロード 99 はありません。「todoku list --all」で全件を表示できます\n"))
        let option = await desk.run("add", "--header", "Host: x", server.url("/a"))
        #expect(option.status == 3 && option.errors.hasPrefix("todoku: 指定されたオプションが正しくありません（--header: "), "\(option)")
        let urls = await desk.run("add", "nonsense", "more-nonsense").errors.split(separator: "\n")
        #expect(urls.map { $0.prefix(17) } == ["todoku: 1番目のURL: ", "todoku: 2番目のURL: "], "\(urls)")
        #expect(await desk.run("remove", "--ended").output == "2件のダウンロードを削除しました\n")

        let json = await desk.run("show", "--json", "99")
        #expect(JSON(json.output)?["error"]?["message"]?.string == Desk.noDownload(99), "\(json)")
        _ = await desk.run("get", "--quiet", server.url("/b"))
        let listed = await desk.run("list", "--json")
        #expect(JSON(listed.output)?.array?.first?["state"]?.string == "finished")
        await desk.close()
    }

    @Test func `is also that of what the command itself refuses, and of a download that did not finish`() async throws {
        let desk = await Desk(extra: ["LC_ALL": "ja_JP.UTF-8"])
        let server = ScriptedServer { _, reply in reply.respond(404) }
        writeFile(desk.bus.folder("list"), "\(server.url("/gone"))\n".utf8)
        #expect(await desk.run("batch", "--wait", "--quiet", "--notify", "never", "list").status == 1)
        let open = await desk.run("open", "1")
        #expect(open.status == 3 && open.errors == "todoku: 一括ダウンロード 1 には完了したダウンロードがありません\n", "\(open)")
        let limit = await desk.run("limit", "1K", "1")
        #expect(limit.status == 3 && limit.errors.hasSuffix("（1: 終了した一括ダウンロードは変更できません）\n"), "\(limit)")
        let failed = await desk.run("wait", "2")
        #expect(failed.status == 1 && failed.errors.hasPrefix("todoku: gone（ダウンロード 2）は失敗しました：サーバーがエラーを返しました（HTTP 404）（"), "\(failed)")
        _ = await desk.run("add", "--paused", server.url("/b"))
        _ = await desk.run("cancel", "3")
        let cancelled = await desk.run("wait", "3")
        #expect(cancelled.status == 1 && cancelled.errors == "todoku: b（ダウンロード 3）は中止されました\n", "\(cancelled)")
        await desk.close()
    }

    @Test(arguments: [
        ("C.UTF-8", "ja", true), ("ja_JP.UTF-8", "", true), ("de_DE.UTF-8", "de:ja", true), ("en_US.UTF-8", "", false), ("C", "ja", false),
        ("ja_JP.UTF-8", "en", false), ("ja_JP.utf8", "", true),
        // Japanese, but in an unsupported encoding.
        ("ja_JP.eucJP", "", false), ("ja_JP", "", false),
    ])
    func `follows gettext’s variables`(locale: String, wishes: String, isJapanese: Bool) async {
        let variables = ["LC_ALL": locale, "LANGUAGE": wishes, "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere"]
        let exit = await Child.run([Desk.command, "list"], environment: processEnvironment().merging(variables) { $1 })
        #expect(exit.status == 3)
        #expect(
            exit.errors.hasPrefix(isJapanese ? "todoku: セッションバスに接続できません（Failed to connect" : "todoku: the session bus cannot be reached: "),
            "\(exit)")
    }

    @Test func `of toasts can be changed, which a terminal is told once if it is not Japanese`() async throws {
        func atTerminal(_ desk: Desk, _ arguments: String, _ variables: [String: String] = [:]) async -> Child.Exit {
            let command = "'\(Desk.command)' \(arguments)"
            return await Child(["script", "-qec", command, "/dev/null"], environment: desk.environment.merging(variables) { $1 }).wait()
        }
        let hint = "todoku: toasts and tray are in Japanese; “todoku settings language auto” makes them follow your session's language\r\n"
        let desk = await Desk(isFirstRun: true)
        let mark = desk.bus.folder("state/todoku/language-hint")
        // Nothing of this is a person's first run that succeeds.
        #expect(await desk.run("list").succeeded(saying: ""))
        for (arguments, variables) in [
            ("list --json", [:]), ("add --quiet --paused http://127.0.0.1:1/a", [:]), ("show 99", [:]), ("list | cat", [:]),
            ("list 2>/dev/null", [:]), ("list", ["LC_ALL": "ja_JP.UTF-8"]), ("list", ["LC_ALL": "ja_JP.eucJP"]), ("list", ["TERM": "dumb"]),
            ("list", ["XDG_STATE_HOME": "/proc/none"]), ("list", ["TODOKU_REHEARSAL_SCENARIO": "none"]),
        ] as [(String, [String: String])] {
            let exit = await atTerminal(desk, arguments, variables)
            #expect(!exit.output.contains("settings language"), "\(arguments) \(variables): \(exit)")
            #expect(!fileExists(mark), "\(arguments) \(variables)")
        }
        let first = await atTerminal(desk, "list")
        #expect(first.status == 0 && first.output.hasSuffix(hint), "\(first)")
        #expect(fileExists(mark))
        #expect(!(await atTerminal(desk, "list").output.contains("settings language")))
        unlink(mark)
        let setting = await atTerminal(desk, "settings language auto")
        #expect(setting.status == 0 && setting.output.replacing(Desk.slowNotice, with: "") == "", "who has chosen knows: \(setting)")
        await desk.close()
    }

    @Test func `has its state where the XDG specification says`() {
        #expect(LanguageHint.stateFolder { ["XDG_STATE_HOME": "/s", "HOME": "/h"][$0] } == "/s")
        #expect(LanguageHint.stateFolder { ["XDG_STATE_HOME": "s", "HOME": "/h"][$0] } == "/h/.local/state")
        #expect(LanguageHint.stateFolder { ["XDG_STATE_HOME": "", "HOME": "h"][$0] } == nil)
        #expect(LanguageHint.stateFolder { _ in nil } == nil)
    }

    @Test func `writes numbers as the locale does, also in English texts`() async throws {
        let locales = TemporaryFolder("todoku-locales")
        for (source, name) in [("de_DE", "de_DE.UTF-8"), ("en_IN", "en_IN.UTF-8")] {
            let made = await Child.run(["localedef", "-i", source, "-f", "UTF-8", locales(name)])
            try #require(made.status == 0, "localedef, of the Debian packages libc-bin and locales: \(made.errors)")
        }
        let desk = await Desk(extra: ["LOCPATH": locales.path])
        let server = ScriptedServer { _, reply in reply.respond(200, text: String(repeating: "x", count: 1536)) }
        _ = await desk.run("get", "--quiet", "--priority", "1", server.url("/a"))
        func output(_ variables: [String: String], _ arguments: String...) async -> String {
            let environment = desk.environment.merging(variables) { $1 }
            return await Child.run([Desk.command] + arguments, environment: environment).output
        }
        #expect(await output(["LC_ALL": "de_DE.UTF-8"], "show", "1").contains("\nReceived:    1,5 KiB of 1,5 KiB (100 %)\n"))
        let mixed = ["LC_ALL": "", "LANG": "ja_JP.UTF-8", "LC_NUMERIC": "de_DE.UTF-8"]
        #expect(await output(mixed, "show", "1").contains("\n受信:         1,5 KiB / 1,5 KiB (100 %)\n"))
        _ = await desk.run("host", "example.org", "--interval", "1234567ms")
        #expect(await output(["LC_ALL": "de_DE.UTF-8"], "host", "example.org").contains("1.234.567 ms"))
        #expect(await output(["LC_ALL": "en_IN.UTF-8"], "host", "example.org").contains("12,34,567 ms"))
        #expect(await output(["LC_ALL": "C"], "host", "example.org").contains("1234567 ms"))
        await desk.close()
    }

    @Test(arguments: [1, 19, 20, 40, 80, 120])
    func `fits into the lines of a terminal`(columns: Int) {
        let line = ProgressLine(utf8: true, catalog: Catalog(.japanese))
        for state in ["queued", "waiting", "active", "paused", "verifying", "extracting"] {
            var download = DownloadDescription(
                DownloadReference(number: 7),
                [
                    "State": .string(state), "Received": .uint64(3 << 20), "Total": .int64(12 << 20), "FileName": .string("写真.zip"),
                    "Url": .string("http://h/x"),
                ])
            for reason in WaitReason.allCases {
                download.apply(["WaitReason": .string(reason.rawValue)])
                #expect(TerminalText.width(line.text(download, speed: 1 << 20, columns: columns)) <= columns)
            }
        }
    }

    @Test func `is used in progress lines`() {
        let line = ProgressLine(utf8: true, catalog: Catalog(.japanese))
        var download = DownloadDescription(
            DownloadReference(number: 7),
            [
                "State": .string("active"), "Received": .uint64(3 << 20), "Total": .int64(300 << 20), "FileName": .string("写真.zip"),
                "Url": .string("http://h/x"),
            ])
        #expect(line.text(download, speed: 1 << 20, columns: 100).hasSuffix("1 %  3.0/300.0 MiB    1.0 MiB/s     残り4分58秒"))
        download.apply(["State": .string("paused")])
        #expect(line.text(download, speed: nil, columns: 100).hasSuffix("一時停止"))
        download.apply(["State": .string("waiting"), "WaitReason": .string("retry")])
        #expect(line.text(download, speed: nil, columns: 100).hasSuffix("再試行を待っています"))
        #expect(Reason.every(.milliseconds(250), Catalog(.japanese)) == "250ミリ秒に")
    }

    @Test func `has a word for each state and each wait, in English the contract’s`() {
        for reason in WaitReason.allCases {
            #expect(plainCatalog.waitReason(reason.rawValue) == reason.rawValue)
            #expect(Catalog(.japanese).waitReason(reason.rawValue).utf8.contains { $0 >= 0x80 }, "\(reason)")
        }
        for state in DownloadDescription.State.known {
            #expect(plainCatalog.state(state) == state.name)
            #expect(Catalog(.japanese).state(state).utf8.contains { $0 >= 0x80 }, "\(state)")
        }
        #expect(Catalog(.japanese).waitReason("new-one") == "new-one")
    }
}
