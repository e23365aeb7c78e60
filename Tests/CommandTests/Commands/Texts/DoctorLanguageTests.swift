import DBus
import DownloadModel
import EventLoop
import Glibc
import Localization
import TestSupport
import Testing

@testable import Upkeep
@testable import todoku

/// Whether `text` has a Japanese character.
private func isJapanese(_ text: String) -> Bool { text.unicodeScalars.contains { (0x3040...0x9FFF).contains($0.value) } }

/// The small words of English in `text`, outside of what the system says. Nearly each sentence has such a word.
func englishWords(_ text: String) -> [Substring] {
    var rest = text
    for quoted in ["Failed to connect to socket", "No such file or directory", "Permission denied", "Dash to Dock"] {
        rest = rest.replacing(quoted, with: "")
    }
    let small: Set<Substring> = [
        "the", "a", "is", "are", "has", "have", "not", "no", "and", "or", "of", "to", "so", "but", "it", "its", "by", "with", "for", "from",
        "that", "which", "this", "does", "cannot", "can", "without", "opens", "shows", "starts", "Install", "Use", "Start", "Check", "End",
    ]
    return rest.split(separator: " ").filter { small.contains($0) }
}

/// Whether `line`, of a finding or an advice, is Japanese behind the columns of verdict and subject.
private func isTranslated(_ line: String) -> Bool {
    // Libraries that are there have only names and numbers.
    if line.hasPrefix("正常     ライブラリ ") { return true }
    var width = 0
    let text = line.drop { character in
        defer { width += TerminalText.width(String(character)) }
        return width < 26
    }
    return isJapanese(String(text))
}

@Suite(.serialized) struct `The language of the doctor` {
    private static let hint = "ほかの人に送る報告は、英語で出力できます：LC_ALL=C todoku doctor"

    /// The lines that the doctor writes at a terminal, which is wide enough for each of them.
    private func atTerminal(_ environment: [String: String], before: String = "", _ arguments: String = "") async -> [String] {
        let command = "stty cols 1000; \(before) '\(Desk.command)' doctor \(arguments)"
        // bash warns of a locale that is not generated.
        let variables = environment.merging(["NO_COLOR": "1", "SHELL": "/bin/sh"]) { $1 }
        let exit = await askDoctor(["script", "-qec", command, "/dev/null"], variables)
        return exit.output.split(separator: "\r\n").map(String.init)
    }

    @Test func `is Japanese at a terminal of a Japanese session, and English elsewhere`() async throws {
        // A certificate that is wrong, beside much that is missing or found.
        let desk = await Desk(extra: ["LC_ALL": "ja_JP.UTF-8", "SSL_CERT_FILE": "/nowhere/all.pem"])
        let json = await askDoctor([Desk.command, "doctor", "--json"], desk.environment)
        #expect(json.status == 1 && !isJapanese(json.output + json.errors), "\(json)")
        let findings = try #require(JSON(json.output)?.array)
        let verdicts = findings.compactMap { $0["verdict"]?.string }
        #expect(Set(verdicts) == ["found", "missing", "wrong"], "\(json)")

        let lines = await atTerminal(desk.environment)
        let words = ["found": "正常     ", "missing": "注意     ", "wrong": "異常     "]
        let heads = lines.filter { line in words.values.contains { line.hasPrefix($0) } }
        #expect(heads.map { $0.prefix(2) } == verdicts.map { words[$0]?.prefix(2) ?? "" }, "\(lines)")
        #expect(lines.filter { $0.contains("→ ") }.count == findings.count { $0["advice"]?.string != nil }, "\(lines)")
        #expect(lines.first == "正常     セッションバス   セッションバスは応答しています")
        #expect(lines.contains("注意     通知             通知サーバーが動いていないため、通知は表示されません"), "\(lines)")
        #expect(lines.contains("                          → dunst、mako、xfce4-notifyd などの通知サーバーを起動してください。"), "\(lines)")
        #expect(
            lines.contains("異常     証明書           SSL_CERT_FILE で指定された /nowhere/all.pem に証明書がないため、どの https サーバーも信頼できません"), "\(lines)")
        for line in lines.dropLast() { #expect(isTranslated(line) && englishWords(line) == [], "\(line)") }
        for finding in findings {
            // Names of libraries with their versions are not translated.
            guard let text = finding["text"]?.string, englishWords(text) != [] else { continue }
            #expect(!lines.contains { $0.contains(text) }, "\(text)")
        }
        #expect(lines.last == Self.hint)

        let dumb = await atTerminal(desk.environment.merging(["TERM": "dumb"]) { $1 })
        #expect(dumb.first == lines.first && dumb.last == Self.hint, "\(dumb)")
        let english = await askDoctor([Desk.command, "doctor"], desk.environment)
        #expect(english.output.hasPrefix("found    bus              the session bus answers\n"), "\(english)")
        #expect(!isJapanese(english.output + english.errors), "\(english)")
        // What the last line says gives the same report at a terminal.
        let same = await atTerminal(desk.environment, before: "LC_ALL=C")
        #expect(same.first == "found    bus              the session bus answers" && !isJapanese(same.joined()), "\(same)")
        #expect(same.count == english.output.split(separator: "\n").count, "\(same)")
        let object = await atTerminal(desk.environment, "--json")
        #expect(!isJapanese(object.joined()) && JSON(object.joined())?.array?.count == findings.count, "\(object)")
        #expect(isJapanese(await desk.run("doctor", "--help").output))
        await desk.close()
    }

    @Test @BusActor func `is Japanese about programs that are there, and about those that fail`() async throws {
        let desk = await Desk(
            tools: ["xdg-open": "#!/bin/sh\n"],
            extra: ["LC_ALL": "ja_JP.UTF-8", "https_proxy": "http://proxy.example:3128", "http_proxy": ""])
        let programs = try await DesktopPrograms(in: desk)
        let folder = desk.bus.folder.makeFolder("elsewhere")
        _ = await desk.run("add", "--paused", "-d", folder, "http://127.0.0.1:1/a", "http://127.0.0.1:1/b")
        func expect(_ expected: [String], in lines: [String]) {
            for line in lines.dropLast() { #expect(isTranslated(line) && englishWords(line) == [], "\(line)") }
            #expect(lines.last == Self.hint)
            for text in expected { #expect(lines.contains { $0.contains(text) }, "\(text): \(lines)") }
        }
        expect(
            [
                "通知             dunst 1（test）：通知はクリックできます。進行状況を通知に表示します。サウンドは", "がアイコンに件数と進行状況を表示します",
                "がトレイの項目を表示します", "がダウンロードをジョブとして表示します", "ダウンロードの間、logind がスリープを防ぎます。",
                "従量制の回線につながっています（確認元：NetworkManager）", "https はプロキシ http://proxy.example:3128 を使います（サービスの環境変数による）",
                "のバージョンは \(Program.version) です", "\(folder) の空き容量：", "。終わっていないダウンロード2件がこのフォルダを使います",
                "ダウンロード2件（うち終わっていないもの2件）", "注意     ファイルを開く   ",
                "がファイルを開くためのディスプレイがありません（サービスの環境変数による）",
                "→ 「dbus-update-activation-environment --systemd DISPLAY WAYLAND_DISPLAY」で、",
            ], in: await atTerminal(programs.environment))

        try programs.fail()
        removeTree(folder)
        #expect(await desk.bus.end("org.todoku.Downloader1", by: SIGTERM))
        let stranger = try Connection.open(address: desk.bus.address)
        #expect(try stranger.requestName("org.todoku.Downloader1"))
        expect(
            [
                "ログインの必要なネットワークのため、すべてのダウンロードは待機します（確認元：NetworkManager）",
                "ダウンロードの間にマシンがスリープすることがあります。理由：logind がスリープ防止を拒否しました：Permission denied",
                "がトレイを管理していますが、トレイを表示するパネルがありません", "org.todoku.Downloader1 を所有しているのは、todokud ではなく /",
                " (プロセス \(getpid())) です", "→ そのプログラムを終了してください（kill \(getpid())）。",
                "注意     ディスク         \(folder) はありません。終わっていないダウンロード2件がこのフォルダを使います",
            ], in: await atTerminal(programs.environment))
        withExtendedLifetime(programs) {}
        try stranger.releaseName("org.todoku.Downloader1")
        await desk.close()
        await programs.machine.stop()
    }

    @Test func `is Japanese without a session bus, and about a damaged database and an unusable folder`() async throws {
        let desk = await Desk(
            extra: ["LC_ALL": "ja_JP.UTF-8", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere/bus"], isFirstRun: true)
        let state = desk.bus.folder.makeFolder("state/todoku")
        writeFile("\(state)/todoku.db", patternBytes(20_000))
        writeFile(desk.bus.folder("home/file"), "".utf8)
        writeFile(desk.bus.folder("config/user-dirs.dirs"), "XDG_DOWNLOAD_DIR=\"$HOME/file\"\n".utf8)
        let lines = await atTerminal(desk.environment)
        #expect(lines.first?.hasPrefix("異常     セッションバス   セッションバスに接続できません：") == true, "\(lines)")
        for text in [
            "異常     保存先フォルダ   \(desk.bus.folder("home/file")) はフォルダではありません", "→ 原因を取り除くか、「todoku settings default-directory フォルダ」",
            "異常     データベース     \(state)/todoku.db は壊れています：", "→ Todoku を起動してください。", "理由：システムバスに接続できません：",
        ] { #expect(lines.contains { $0.contains(text) }, "\(text): \(lines)") }
        #expect(lines.last == Self.hint)
        await desk.close()
    }
}

@Suite struct `The words of the doctor` {
    private let japanese = Catalog(.japanese)

    @Test func `are in columns of the same width in both languages, and in English those of JSON`() {
        for subject in Finding.Subject.allCases {
            for verdict in [Finding.Verdict.found, .missing, .wrong] {
                let finding = Finding(subject, verdict, Phrase("\(7) downloads, \(8) of them unfinished"))
                #expect(finding.subject.name.english == subject.rawValue && finding.verdict.name.english == verdict.rawValue)
                let english = DoctorCommand.text(finding, plainCatalog, width: 200, hasColour: false, isUTF8: true)
                #expect(english.prefix(26).split(separator: " ") == [Substring(verdict.rawValue), Substring(subject.rawValue)])
                #expect(english.dropFirst(26) == "7 downloads, 8 of them unfinished\n")
                let translated = DoctorCommand.text(finding, japanese, width: 200, hasColour: false, isUTF8: true)
                let text = "ダウンロード7件（うち終わっていないもの8件）\n"
                #expect(translated.hasSuffix(text) && TerminalText.width(String(translated.dropLast(text.count))) == 26, "\(translated)")
                #expect(englishWords(translated) == [] && !translated.contains(subject.rawValue), "\(translated)")
            }
        }
    }

    @Test(arguments: [20, 40, 59, 60, 80, 120])
    func `fit into a terminal also in Japanese, and no path is cut`(width: Int) {
        let path = "/home/somebody/.local/state/todoku/a-folder-with-a-rather-long-name/todoku.db"
        let finding = Finding(
            .downloadFolder, .wrong, Phrase("a damaged database was set aside as \(path), so downloads may be missing"),
            advice: Phrase("Copy the file if you want to examine it: it is deleted after a day."))
        let text = DoctorCommand.text(finding, japanese, width: width, hasColour: false, isUTF8: true)
        let lines = (text + DoctorCommand.hint(japanese, width: width)).split(separator: "\n").map(String.init)
        #expect(lines.allSatisfy { TerminalText.width($0) <= max(width, 26) }, "\(lines)")
        #expect(lines.map { $0.drop { $0 == " " } }.joined().contains(path), "\(lines)")
    }

    @Test func `are translated apart from what is filled in, which stays as it is`() {
        let words = "the %1$s proxy"
        let inner = Phrase("\(words) (process \(7))")
        #expect(inner.english == "the %1$s proxy (process 7)" && inner.template == "%1$s (process %2$s)")
        let outer = Phrase("\(inner) owns \("gsettings failed"), but is not \("x")")
        #expect(outer.english == "the %1$s proxy (process 7) owns gsettings failed, but is not x")
        #expect(japanese.sentence(outer) == "gsettings failed を所有しているのは、x ではなく the %1$s proxy (プロセス 7) です")
        #expect(Catalog(.english).sentence(outer) == outer.english)
        // A name that reads like a template stays, and so does what no room says.
        #expect(japanese.sentence(Phrase(foreign: "100%1$s")) == "100%1$s")
        let mismatch = "org.example.App answered GetAll with ((ss)), not (a{sv})"
        let translated = "GetAll への org.example.App の応答の型が違います：((ss))、正しくは (a{sv})"
        #expect(japanese.sentence(Phrase(foreign: mismatch)) == translated)
        // A program may have the name of a subject.
        #expect(japanese.sentence(Phrase(foreign: "dock")) == "dock" && japanese.sentence(Phrase("dock")) != "dock")
        #expect(japanese.sentence(Phrase(foreign: "gsettings failed")) == "gsettings が失敗しました")
    }

    @Test func `end without the full stop of a message at their end`() {
        let gone = DBusError("org.example.Gone", "It went away.")
        let inner = Phrase("the session bus cannot be reached: \(gone)")
        let cases: [(Phrase, String, String)] = [
            (inner, "the session bus cannot be reached: It went away", "セッションバスに接続できません：It went away"),
            (
                Phrase("the machine may sleep during downloads, because \(inner)"),
                "the machine may sleep during downloads, because the session bus cannot be reached: It went away",
                "ダウンロードの間にマシンがスリープすることがあります。理由：セッションバスに接続できません：It went away"
            ), (Phrase(foreign: "It went away."), "It went away", "It went away"),
            (Phrase("\("/srv/v1.") can be written"), "/srv/v1. can be written", "/srv/v1. に書き込めます"),
        ]
        for (phrase, english, translated) in cases {
            let finding = Finding(.bus, .found, phrase)
            #expect(finding.text.english == english && japanese.sentence(finding.text) == translated)
        }
        #expect(Phrase("\("/srv") can be written.").withoutStop == Phrase("\("/srv") can be written"))
    }
}
