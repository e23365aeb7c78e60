import ArgumentParser
import DownloadModel
import Localization
import TestSupport
import Testing

@testable import todoku

/// A command with all its subcommands, each with its names.
private func commands(
    _ type: any ParsableCommand.Type = TodokuCommand.self, _ names: [String] = []
) -> [(names: [String], type: any ParsableCommand.Type)] {
    var found = [(names: names, type: type)]
    for command in type.configuration.subcommands {
        found.append(contentsOf: commands(command, names + [command.configuration.commandName ?? "?"]))
    }
    return found
}

@Suite struct `The help in Japanese` {
    private let translation: HelpTranslation

    init() throws { translation = try #require(HelpTranslation(Catalog(.japanese))) }

    private func english(_ type: any ParsableCommand.Type) -> String {
        TodokuCommand.helpMessage(for: type, columns: HelpTranslation.unwrapped)
    }

    private func japanese(_ type: any ParsableCommand.Type, columns: Int) -> String {
        translation.screen(english(type), columns: columns)
    }

    /// Whether `line` is a command of the user in an example.
    private func isExample(_ line: Substring) -> Bool {
        ["todoku ", "printf ", "grep ", "curl ", "feed=", "if "].contains { line.hasPrefix("  " + $0) }
    }

    @Test func `has no English sentence`() {
        #expect(commands().count > 30)
        for (names, type) in commands() {
            for line in japanese(type, columns: 1000).split(separator: "\n") where !isExample(line) {
                // What is quoted may be a command of several words.
                let bare = line.split(separator: "「").map { $0.split(separator: "」", omittingEmptySubsequences: false).last ?? "" }
                let words = bare.joined(separator: "").split(separator: " ")
                let english = words.map { $0.utf8.allSatisfy { (UInt8(ascii: "a")...UInt8(ascii: "z")).contains($0) } }
                for place in english.indices.dropLast(2) {
                    #expect(!(english[place] && english[place + 1] && english[place + 2]), "\(names): \(line)")
                }
            }
            #expect(japanese(type, columns: 80).hasPrefix("概要："), "\(names)")
        }
    }

    @Test(arguments: [40, 60, 80, 132])
    func `has no line that is wider than the terminal, and none that begins with a full stop`(columns: Int) {
        for (names, type) in commands() {
            for line in japanese(type, columns: columns).split(separator: "\n") {
                #expect(TerminalText.width(String(line)) <= columns, "\(names): \(line)")
                let first = line.first { $0 != " " }
                #expect(first != "、" && first != "。" && first != "）", "\(names): \(line)")
            }
        }
    }

    @Test func `names the same arguments, options, values and examples`() {
        func marks(_ text: String) -> Set<Substring> {
            let words = text.split { !($0.isASCII && ($0.isLetter || $0.isNumber || "-<>".contains($0))) }
            return Set(words.filter { $0.hasPrefix("--") || $0.hasPrefix("<") })
        }
        for (names, type) in commands() {
            let (plain, translated) = (english(type), japanese(type, columns: 1000))
            #expect(marks(plain) == marks(translated), "\(names)")
            #expect(plain.split(separator: "\n").filter(isExample) == translated.split(separator: "\n").filter(isExample), "\(names)")
        }
        #expect(japanese(ListCommand.self, columns: 1000).contains("（値：queued, waiting, active, paused"))
        #expect(japanese(AssetAdd.self, columns: 1000).contains("（値：manual, login, daily、既定：manual）"))
    }

    @Test func `has a translation of the help of each download option`() throws {
        let texts = try #require(HelpCatalog(.japanese))
        for row in OptionRow.all { #expect(texts[row.help] != nil, "\(row.key): \(row.help)") }
        #expect(HelpCatalog(.english) == nil && HelpTranslation(Catalog(.english)) == nil)
    }

    @Test(arguments: [
        ("ja_JP.UTF-8", "", true), ("C.UTF-8", "ja", true), ("C", "", false), ("C", "ja", false), ("ja_JP.eucJP", "", false),
        ("en_US.UTF-8", "", false),
    ])
    func `is shown in a Japanese session, and elsewhere the English one as it is`(locale: String, wishes: String, isJapanese: Bool) async {
        let variables = ["LC_ALL": locale, "LANGUAGE": wishes, "COLUMNS": "70"]
        for arguments in [["get", "--help"], ["get", "-h"], ["help", "get"]] {
            let exit = await Desk.runAlone(arguments, variables)
            let text = isJapanese ? japanese(GetCommand.self, columns: 70) : TodokuCommand.helpMessage(for: GetCommand.self, columns: 70)
            #expect(exit.succeeded(saying: text + "\n"), "\(exit)")
        }
        let whole = await Desk.runAlone([], variables)
        let start = isJapanese ? "概要：セッションのダウンロードサービスで" : "OVERVIEW: Download files with the session's"
        #expect(whole.status == 0 && whole.output.hasPrefix(start), "\(whole)")
        let json = await Desk.runAlone(["get", "--json", "--help"], variables)
        #expect(json.output.hasPrefix("OVERVIEW: "), "\(json)")
    }

    @Test(arguments: ["bash", "zsh", "fish"])
    func `is not in the completions, which are built once for all`(shell: String) async {
        let arguments = ["--generate-completion-script", shell]
        let inJapanese = await Desk.runAlone(arguments, ["LC_ALL": "ja_JP.UTF-8"])
        let inEnglish = await Desk.runAlone(arguments)
        #expect(inJapanese.status == 0 && inJapanese == inEnglish)
    }
}

@Suite struct `The option --extract` {
    @Test func `is known with a folder to each command that has the option, and to no other one`() {
        for (names, type) in commands() {
            let arguments = names + ["--extract=maps"]
            let hasOption = TodokuCommand.helpMessage(for: type, columns: 1000).contains("  --extract ")
            #expect((ExtractArguments.separated(arguments) != arguments) == hasOption, "\(names)")
        }
        #expect(TodokuCommand.helpMessage(for: GetCommand.self, columns: 1000).contains("  --extract "))
    }
}

@Suite struct `The manual page` {
    @Test(arguments: ["", "ja/man1/"])
    func `has each short option beside the long one`(folder: String) throws {
        let bytes = try #require(readFile("\(repository)/data/man/\(folder)todoku.1"))
        let page = String(decoding: bytes, as: UTF8.self).replacing("\\", with: "")
        for (names, type) in commands() {
            let words = TodokuCommand.helpMessage(for: type, columns: 1000).split { !$0.isLetter && $0 != "-" }.map(String.init)
            for (short, long) in zip(words, words.dropFirst()) where short.count == 2 && short.hasPrefix("-") && long.hasPrefix("--") {
                #expect(page.contains("\(short) \", \" \(long)") || long == "--help", "\(names): \(short), \(long)")
            }
        }
    }
}

@Suite struct `The page with the command and the calls` {
    @Test func `has each command, and no other one`() throws {
        let page = String(decoding: try #require(readFile("\(repository)/docs/calls.md")), as: UTF8.self)
        // A row of the table has a task, a command and a call. The head of the table has the bare word “todoku”.
        let rows = page.split(separator: "\n").map { $0.split(separator: " | ") }.filter { $0.count > 2 }
        let lines = rows.map { $0[1].split { " `".contains($0) }.map(String.init) }.filter { $0.first == "todoku" && $0.count > 1 }
        let declared = commands().filter { $0.type.configuration.shouldDisplay && $0.type.configuration.subcommands.isEmpty }
            .map { ["todoku"] + $0.names }
        for command in declared { #expect(lines.contains { $0.starts(with: command) }, "\(command)") }
        for line in lines { #expect(declared.contains { line.starts(with: $0) }, "\(line)") }
    }
}

@Suite struct `A wrong command line in Japanese` {
    @Test(arguments: [
        (["get"], "引数「<url> ...」がありません\n説明：<url>  ダウンロードする URL。http または https。\n使い方：todoku get "),
        (["fly"], "「fly」というコマンドはありません。「todoku --help」で一覧を表示できます。\n使い方：todoku <subcommand>\n"),
        (["lst"], "「lst」というコマンドはありません。もしかして：todoku list\n"), (["--frob"], "オプション「--frob」はありません\n"),
        (["add", "--frob", "http://h/"], "オプション「--frob」はありません\n"),
        (["list", "--al"], "オプション「--al」はありません。「--all」のことですか？\n"),
        (["get", "--json=1", "http://h/"], "オプション「--json」は値をとりませんが、「1」が指定されています。\n"),
        (
            ["get", "--size", "many", "http://h/"],
            "「--size <size>」に「many」は指定できません：「many」はサイズではありません。500K、10MiB、1.5G のように、0 以上の数で書いてください。\n説明：--size <size>  フ"
        ),
        (
            ["add", "--connections", "17", "http://h/"],
            "「--connections <count>」に「17」は指定できません：「17」は接続数ではありません。1から16までの整数か、0（自動）を書いてください。\n"
        ),
        (["move", "7", "soon"], "「<place>」に「soon」は指定できません：「soon」は順番ではありません。1から4294967295までの番号、「first」、"),
        (["list", "--state", "x"], "「--state <state>」に「x」は指定できません。次のどれかを指定してください：\n  - queued\n"),
        (
            ["get", "--if-exists", "keep", "http://h/"],
            "「--if-exists <if-exists>」に「keep」は指定できません。rename, replace, skip, fail, ask のどれかを指定してください。\n"
        ),
        (["add", "--token", "x", "http://h/"], "--token には --app が必要です。\n使い方：todoku add "),
        (["add", "--checksum", "x", "http://h/"], "指定されたオプションが正しくありません（--checksum：アルゴリズムの後に「:」がありません。sha256:<16進数> のように"),
        (
            ["add", "--piece-hashes", "x", "http://h/"],
            "指定されたオプションが正しくありません（--piece-hashes：sha256:<各部分のバイト数>:<"
        ),
        (
            ["add", "--proxy", "http://[x]", "http://h/"],
            "指定されたオプションが正しくありません（--proxy：URL の角括弧の中のホストが、IPv6 アドレスではありません）\n"
        ),
        (["asset", "add", "org.example.App/.x", "http://h/"], "指定されたオプションが正しくありません（アセットの名前は A–Z、a–z、0–9、"),
        (["add", "--exec", "", "http://h/"], "todoku add は終わりを待ちません。"), (["get", "--exec", "", "http://h/"], "--exec が空です。"),
        (["limit", "7"], "「<speed>」に「7」は指定できません：「7」では毎秒7バイトになります。"), (["settings", "badge", "x"], "badge には "),
        (["stats", "--since", "7"], "「--since <time>」に「7」は指定できません：「7」は時刻ではありません。12h、7d、"),
        (["rehearse", "busy"], "コマンドがありません：todoku rehearse busy -- COMMAND\n"),
    ])
    func `is explained in Japanese`(arguments: [String], start: String) async {
        let exit = await Desk.runAlone(arguments, ["LC_ALL": "ja_JP.UTF-8"])
        #expect(exit.status == 2 && exit.output == "" && exit.errors.hasPrefix("todoku: " + start), "\(exit)")
        #expect(exit.errors.contains("\n  詳しくは「todoku"), "\(exit)")
        // Programs get English.
        let json = await Desk.runAlone(arguments + ["--json"], ["LC_ALL": "ja_JP.UTF-8"])
        let message = JSON(json.output)?["error"]?["message"]?.string ?? ""
        #expect(json.status == 2 && !message.isEmpty && message.unicodeScalars.allSatisfy { $0.value < 0x3000 }, "\(json)")
    }

    @Test(arguments: [
        ("Unknown option '-x'", "オプション「-x」はありません"),
        (
            "Unknown option '-qd'\n   or: Missing value for '-d <directory>' in '-qd'",
            "オプション「-qd」はありません\n   または、「-qd」で「-d <directory>」に値がありません"
        ),
        ("3 unexpected arguments: 'a', 'b', 'c'", "余分な引数が3個あります：'a', 'b', 'c'"),
        (
            "Value to be set with flag '--no-show-progress' had already been set with flag '--show-progress'",
            "'--no-show-progress' は '--show-progress' と同時に指定できません"
        ),
        ("The value 'a\nb' is invalid for '<place>'", "「<place>」に「a\nb」は指定できません"),
        ("The value 'a' is invalid for '--x <x>'. Please provide one of 'b' and 'c'.", "「--x <x>」に「a」は指定できません。b, c のどれかを指定してください。"),
        (
            "Can't generate completion scripts for 'x'.\nPlease use --generate-completion-script=<shell> with one of:\n    zsh bash fish",
            "「x」の補完スクリプトは作れません。\n--generate-completion-script=<shell> に次のどれかを指定してください：\n    zsh bash fish"
        ),
        ("--token には --app が必要です。", "--token には --app が必要です。"), ("something new", "something new"),
    ])
    func `has a translation of each of ArgumentParser’s messages`(message: String, translated: String) throws {
        let translation = try #require(HelpTranslation(Catalog(.japanese)))
        let usage = "Usage: todoku get [<options>] <url> ...\n  See 'todoku get --help' for more information."
        #expect(
            translation.complaint("Error: \(message)\n\(usage)", about: message)
                == "todoku: \(translated)\n使い方：todoku get [<options>] <url> ...\n  詳しくは「todoku get --help」で表示できます。")
    }

    @Test func `that is no complaint stays as it is`() throws {
        let translation = try #require(HelpTranslation(Catalog(.japanese)))
        #expect(translation.complaint("Usage: todoku", about: "") == "Usage: todoku")
        let script = "#compdef todoku\n  See 'x' for detailed help."
        #expect(translation.screen(script, columns: 20) == script)
    }

    @Test(
        arguments: [
            ("a %1$s b", "a x b", ["x"]), ("a %1$s b", "a  b", [""]), ("a %1$s b", "a b", nil), ("%1$s: %2$s", "a: b: c", ["a", "b: c"]),
            ("a", "a", []), ("a", "b", nil), ("'%1$s'", "'", nil), ("'%1$s' %2$s", "'a'b' c", ["a'b", "c"]),
        ] as [(String, String, [String]?)])
    func `is taken apart by the parts that stay the same`(template: String, text: String, arguments: [String]?) {
        #expect(HelpTemplate(template).arguments(in: text[...]) == arguments)
    }
}
