import DownloadModel
import Localization
import TestSupport
import Testing

@testable import Upkeep
@testable import todoku

@Suite struct `The sentences of rooms without a language` {
    private let japanese = Catalog(.japanese)

    /// Whether `text` has a Japanese character.
    private func isTranslated(_ text: String) -> Bool { text.unicodeScalars.contains { (0x3040...0x9FFF).contains($0.value) } }

    @Test(arguments: [
        ("--header: Host is set by the service itself.", "--header：Host はサービスが自分で設定します。"),
        ("“levels” is empty", "「levels」は空です"), ("“a/b” cannot be read: Permission denied", "「a/b」を読み込めません：Permission denied"),
        ("“pipe” is a named pipe (in /x/levels/pipe)", "「pipe」は名前付きパイプです（/x/levels/pipe）"),
        ("“a” is a link out of the archive, to \"../b\" (in /x/a)", "「a」はアーカイブの外「../b」へのリンクです（/x/a）"),
        (
            "version 1 is there already with other contents, which apps would keep; give another --version, or --force",
            "バージョン 1 は別の内容ですでにあり、アプリはそれを使い続けます。別の --version を指定するか、--force を付けてください"
        ),
        (
            "there is no scenario “busi”; “todoku rehearse --list” has them all",
            "シナリオ「busi」はありません。「todoku rehearse --list」で一覧を表示できます"
        ),
        ("“at” of “crash” must be a number from 1 to 9, not “x”", "「crash」の「at」は1から9までの数でなければなりません。「x」は使えません"),
        (
            "There is no database /s/todoku.db yet, so there is nothing to copy.",
            "データベース /s/todoku.db はまだないため、コピーするものがありません。"
        ),
        (
            "There is not enough room to write the copy in /a; free some and try again.",
            "/a に空きが足りません（コピーの書き込み）。空きを作って、もう一度実行してください。"
        ),
        (
            "The folder /s/push cannot be locked: Permission denied.",
            "フォルダ /s/push のロックができません：Permission denied。"
        ),
        (
            "sleep (process 7) owns org.todoku.Push1, but is not todoku-push; end it first.",
            "org.todoku.Push1 は todoku-push ではない sleep (process 7) のものです。先に終了してください。"
        ),
        ("something new", "something new"),
    ])
    func `are translated by their templates`(written: String, translated: String) {
        #expect(japanese.sentence(written) == translated)
        #expect(Catalog(.english).sentence(written) == written)
    }

    /// A room may get a new sentence. Its literal is found in the sources, and filled with a letter for each interpolation.
    @Test(arguments: ["Packing", "Rehearsal", "DownloadStore/Copies", "Upkeep/State"])
    func `are all known`(room: String) async throws {
        let found = await Child.run(
            [
                "grep", "-rzhoE",  // a call may have several lines
                #"(PackingError|RehearsalError|StoreError)\(\s*(\.[a-zA-Z]+,\s*)?"([^"\\]|\\\([^()]*(\([^()]*\)[^()]*)*\)|\\.)*""#,
                "\(repository)/Sources/\(room)",
            ])
        let literals: [Substring] = found.output.split(separator: "\0").compactMap { call in call.firstIndex(of: "\"").map { call[$0...] } }
        #expect(literals.count >= 5, "\(found)")
        for literal in literals {
            // A literal that only joins texts, such as “x (in x)”, says nothing itself.
            let body: Substring = literal.dropFirst().dropLast()
            let sentence = Self.filled(body)
            guard sentence.filter({ $0.isLetter }).count > 4 else { continue }
            #expect(isTranslated(japanese.sentence(sentence)), "\(sentence)")
        }
    }

    /// A sentence about a failed system call has the action in it.
    @Test func `have no action of DownloadStore that is unknown`() async {
        let found = await Child.run(["grep", "-rhoE", #"StoreError\(system: [^"]*"[^"]*""#, "\(repository)/Sources/DownloadStore"])
        let actions = Set(found.output.split(separator: "\n").compactMap { $0.split(separator: "\"").last.map(String.init) })
        #expect(actions.count >= 10 && actions.contains("save the rows of the damaged database"), "\(found)")
        for action in actions {
            let sentence = japanese.sentence("Todoku cannot \(action) in /s: x.")
            #expect(isTranslated(sentence) && !sentence.contains(action), "\(sentence)")
        }
    }

    /// What DownloadModel refuses, with the text that its function puts before a sentence.
    @Test(arguments: [
        ("Request/Checksum", "checksum: "), ("Request/PieceHashes", "piece-hashes: "), ("Request/ProxyAddress", "Option proxy "),
        ("HTTP/Cookie", ""), ("HTTP/DownloadURL", ""), ("Record/Assets/AssetKey", ""),
    ])
    func `are all known of the values that the command itself refuses`(file: String, start: String) async {
        let literal = #""([^"\\]|\\\([^()]*(\([^()]*\)[^()]*)*\)|\\.)*""#
        let found = await Child.run([
            "grep", "-zohE", #"(invalid|fault|Refusal)\(\s*(\.[a-zA-Z]+,\s*)?\#(literal)(\s*\+ \#(literal))*"#,
            "\(repository)/Sources/DownloadModel/\(file).swift",
        ])
        var count = 0
        for call in found.output.split(separator: "\0") {
            guard let quote = call.firstIndex(of: "\"") else { continue }
            // A long sentence is joined from two literals.
            let literal = call[quote...].replacing(#/"\s*\+ "/#, with: "")
            let sentence = Self.filled(literal.dropFirst().dropLast())
            guard sentence != start + "x", !sentence.isEmpty else { continue }
            let written = CommandWords.replacingKeys(in: call.hasPrefix("Refusal") ? sentence : start + sentence)
            #expect(japanese.sentence(written) != written, "\(written)")
            count += 1
        }
        #expect(count >= 1, "\(found)")
    }

    /// What the doctor repeats of other rooms.
    @Test(arguments: [
        ("PartFiles/Folders/Destination.swift", 9), ("DownloadStore/Copies/StoreExamination.swift", 3), ("Desktop/Proxies", 14),
        ("DownloadModel/Request/ProxyChoice.swift", 4), ("DBus/SystemBus.swift", 2), ("DBus/Connection.swift", 4),
    ])
    func `are all known of what the doctor repeats`(path: String, least: Int) async {
        let starts = [
            #"Refusal\(\.[a-zA-Z]+, "#, #"\.(unknown|unreadable|damaged|disconnected|invalidArgs)\("#, #"NoReply", "#,
            #"answers\.first \?\? "#,
        ]
        let found = await Child.run([
            "grep", "-rhoE", #"(\#(starts.joined(separator: "|")))"([^"\\]|\\\([^()]*(\([^()]*\)[^()]*)*\)|\\.)*""#,
            "\(repository)/Sources/\(path)",
        ])
        let calls = found.output.split(separator: "\n")
        #expect(calls.count >= least, "\(found)")
        for call in calls {
            // The literal is behind another one, or is the only one.
            let rest = call.hasPrefix("NoReply") ? call.drop { $0 != "," } : call
            guard let quote = rest.firstIndex(of: "\"") else { continue }
            let sentence = FolderReport.clause(Self.filled(rest[quote...].dropFirst().dropLast()))
            // The doctor calls constant names and paths, and sends no text with a NUL.
            let never = [" is not a bus name", " is not an object path", " has a NUL, which D-Bus does not carry"]
            if never.contains(where: sentence.hasSuffix) { continue }
            let translated = japanese.sentence(Phrase(foreign: sentence))
            // A general template may fit, and leave a part of the sentence in English.
            #expect(isTranslated(translated) && englishWords(translated) == [], "\(sentence): \(translated)")
        }
    }

    @Test func `are known about what toasts can do`() async {
        let file = "\(repository)/Sources/Desktop/Toasts/ToastServers.swift"
        let found = await Child.run(["grep", "-ohE", #""[A-Za-z ]+ (clicked|progress|sound)""#, file])
        let texts = found.output.split(separator: "\n").map { String($0.dropFirst().dropLast()) }
        func ending(_ word: String) -> [String] { texts.filter { $0.hasSuffix(word) } }
        for click in ending("clicked") {
            for progress in ending("progress") {
                for sound in ending("sound") {
                    let summary = japanese.sentence(Phrase(foreign: "\(click), \(progress), \(sound)"))
                    #expect(
                        summary.split(separator: "。").count == 3 && !summary.contains(" sound") && !summary.contains("progress"),
                        "\(summary)")
                }
            }
        }
        #expect(texts.count == 6, "\(found)")
    }

    @Test func `are shown in a Japanese session about the lines of files`() async throws {
        let desk = await Desk(extra: ["LC_ALL": "ja_JP.UTF-8"])
        let mirrors = (0...33).map { "http://h/\($0)" }.joined(separator: "\t")
        for (name, text) in [
            ("list", "ftp://example.org/a"), ("cookies", "id=1"), ("aria2", "http://h/a\n  checksum=md5=x"), ("mirrors", mirrors),
        ] { writeFile(desk.bus.folder(name), "\(text)\n".utf8) }
        for (command, details) in [
            (["batch", "list"], "（ftp：ダウンロードできるのは http と https だけです）\n"),
            (["add", "--load-cookies", "cookies", "http://h/"], "（Cookie の行はタブで区切った7つの項目ですが、この行には1個あります）\n"),
            (["batch", "aria2"], "（checksum：「:」の後に、16進数でない文字があります）\n"),
            (["batch", "mirrors"], "（1つの URL に指定できるミラーは32件までです）\n"),
        ] {
            let exit = await desk.start(command).wait()
            #expect(exit.status != 0 && exit.output == "" && exit.errors.hasSuffix(details), "\(command): \(exit)")
        }
        await desk.close()
    }

    /// The literal's text with “x” in the place of each interpolation.
    private static func filled(_ literal: Substring) -> String {
        var (text, depth, isEscaped) = ("", 0, false)
        for character in literal {
            if depth > 0 {
                if character == "(" { depth += 1 }
                if character == ")" { depth -= 1 }
                if depth == 0 { text += "x" }
            } else if isEscaped {
                if character == "(" { depth = 1 } else { text.append(character) }
                isEscaped = false
            } else if character == "\\" {
                isEscaped = true
            } else {
                text.append(character)
            }
        }
        return text
    }

    @Test func `are shown in a Japanese session by asset, rehearse, backup and reset`() async throws {
        let desk = await Desk(extra: ["LC_ALL": "ja_JP.UTF-8"], isFirstRun: true)
        desk.bus.folder.makeFolder("levels")
        for (command, start) in [
            (["asset", "pack", "levels"], "todoku: 「\(desk.bus.folder("levels"))」は空です\n"),
            (["asset", "key", "levels"], "todoku: 「\(desk.bus.folder("levels"))」"),
            (["asset", "serve", "nowhere"], "todoku: 「"), (["rehearse", "busi", "--", "true"], "todoku: シナリオ「busi」はありません。"),
            (["backup", "queue.db"], "todoku: データベース "), (["restore", "--yes", "nowhere"], "todoku: バックアップ "),
        ] {
            let exit = await desk.start(command).wait()
            #expect(exit.status != 0 && exit.output == "" && exit.errors.hasPrefix(start), "\(command): \(exit)")
        }
        await desk.close()
    }
}
