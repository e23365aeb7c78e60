import Glibc
import TestSupport
import Testing

@testable import todoku

/// A shell, and scripts that press its tabulator key. `$1` of a script is the folder with the completions, and the others are the words of
/// the line up to the cursor. A script prints what the shell offers for the last word, one a line, perhaps with a description.
enum Shell: String, CaseIterable {
    case bash, zsh, fish

    /// The name by which the shell finds the completions.
    var file: String { self == .zsh ? "_todoku" : "todoku.\(self)" }

    var key: String {
        switch self {
        case .bash:
            #"""
            source "$1/todoku.bash"; shift
            action=$(complete -p todoku); action=${action##* -F }; action=${action% todoku}
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMPREPLY=()
            "$action" todoku "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            printf '%s\n' "${COMPREPLY[@]}"
            """#
        // Only a shell at a terminal completes. Its .zshrc is below.
        case .zsh:
            #"""
            zmodload zsh/zpty
            export ZDOTDIR=$1
            shift
            zpty terminal zsh -d -i
            zpty -r terminal heard '*ready*'
            zpty -n -w terminal "$*"$'\t'
            zpty -r terminal heard '*offered*'
            zpty -d terminal
            cat $ZDOTDIR/offers
            """#
        case .fish:
            """
            set fish_complete_path $argv[1]
            complete --do-complete "$argv[2..]"
            """
        }
    }

    /// Writes each match that a completion adds to a file. A call of compadd with -A, -D or -O adds none.
    static let zshrc = #"""
        PROMPT= fpath=($ZDOTDIR $fpath)
        : >$ZDOTDIR/offers
        autoload -Uz compinit
        compinit -u -D
        bindkey '^I' complete-word
        compadd() {
            local -a matches
            if (( ! ${argv[(I)-[ADO]]} )); then
                builtin compadd -O matches "$@"
                print -rl -- $matches >>$ZDOTDIR/offers
            fi
            builtin compadd "$@"
        }
        zle-line-init() { print ready }
        zle -N zle-line-init
        offered() { print offered }
        comppostfuncs=(offered)

        """#
}

@Suite(.serialized) struct `The completions` {
    private let desk: Desk
    private var folder: String { desk.bus.folder("completions") }

    init() async {
        let keys = Shell.allCases.map { ("press-tab.\($0)", "#!/usr/bin/env \($0)\n\($0.key)\n") }
        let tools = ["todoku": "#!/bin/sh\nexec \"\(Desk.command)\" \"$@\"\n"].merging(keys) { $1 }
        desk = await Desk(tools: tools)
        desk.bus.folder.makeFolder("completions")
        writeFile("\(folder)/.zshrc", Shell.zshrc.utf8)
        for shell in Shell.allCases {
            let script = await desk.run("--generate-completion-script", shell.rawValue)
            precondition(script.status == 0, "\(script)")
            writeFile("\(folder)/\(shell.file)", script.output.utf8)
        }
    }

    /// What a shell offers for the last of `words`, sorted.
    private func offers(_ words: [String], in shell: Shell = .bash) async -> [String] {
        let exit = await Child.run(["timeout", "300", "press-tab.\(shell)", folder, "todoku"] + words, environment: desk.environment)
        #expect(exit.status == 0 && exit.errors == "", "package \(shell): \(words): \(exit)")
        // fish writes a tabulator and a description after a word.
        return exit.output.split(separator: "\n").map { String($0.prefix { $0 != "\t" }) }.sorted()
    }

    /// Whether a shell comes to offer `expected`. On a busy machine, an answer of the service may take more than the two seconds for which
    /// a completion waits, and the shell itself many seconds.
    private func comesToOffer(_ expected: [String], for words: [String], in shell: Shell = .bash) async -> Bool {
        await eventually(within: .seconds(240)) { await offers(words, in: shell) == expected }
    }

    @Test(arguments: Shell.allCases)
    func `have commands, options and values`(shell: Shell) async {
        #expect(await offers(["re"], in: shell) == ["rehearse", "remove", "renew", "reset", "restore", "resume", "retry"])
        #expect(await offers(["asset", "up"], in: shell) == ["update"])
        #expect(await offers(["show", "--u"], in: shell) == ["--url"])
        #expect(await offers(["get", "--if-exists", ""], in: shell) == ["ask", "fail", "rename", "replace", "skip"])
        #expect(await offers(["get", "--if-exists", "r"], in: shell) == ["rename", "replace"])
        #expect(await offers(["comp"], in: shell) == [], "nobody types this command")
        await desk.close()
    }

    /// The word after a bare `--extract` is a URL.
    @Test(arguments: Shell.allCases)
    func `have no folder after the option --extract`(shell: Shell) async {
        let start = String(folder.dropLast(4))
        let folders = await offers(["get", "--directory", start], in: shell)
        #expect(!folders.isEmpty && folders.allSatisfy { $0.contains("completions") }, "\(folders)")
        #expect(await offers(["get", "--extract", start], in: shell) == [])
        #expect(await offers(["get", "--extract", "--find-m"], in: shell) == ["--find-mirrors"])
        await desk.close()
    }

    @Test(arguments: Shell.allCases)
    func `have what the running service lists: downloads, ended ones too, and batches`(shell: Shell) async {
        let server = ScriptedServer { _, reply in reply.respond(404) }
        _ = await desk.run("get", "--quiet", server.url("/gone"))
        _ = await desk.run("add", "--paused", "--app", "org.example.App", "--token", "ch_1", "http://127.0.0.1:1/a")
        writeFile(desk.bus.folder("list"), "http://127.0.0.1:1/b\n".utf8)
        let batch = await desk.run("batch", "--paused", "list").output.filter { $0 != "\n" }
        let members = JSON(await desk.run("list", "--json", "--batch", batch).output)?.array?.compactMap { $0["download"]?.string } ?? []
        #expect(!batch.isEmpty && members.count == 1)
        for words in [["show", ""], ["pause", "1", ""], ["move", ""], ["limit", "1K", ""]] {
            #expect(await comesToOffer((["1", "org.example.App/ch_1", batch] + members).sorted(), for: words, in: shell), "\(words)")
        }
        #expect(await comesToOffer(["org.example.App/ch_1"], for: ["cancel", "org."], in: shell))
        await desk.close()
    }

    @Test(arguments: Shell.allCases)
    func `have only batches, states or assets where one of these is meant`(shell: Shell) async {
        _ = await desk.run("add", "--paused", "http://127.0.0.1:1/a")
        writeFile(desk.bus.folder("list"), "http://127.0.0.1:1/b\n".utf8)
        let batch = await desk.run("batch", "--paused", "list").output.filter { $0 != "\n" }
        #expect(await desk.run("asset", "add", "org.example.App/maps", "http://127.0.0.1:1/m.json").status == 0)
        #expect(await comesToOffer([batch], for: ["list", "--batch", ""], in: shell))
        for command in ["show", "update"] {
            #expect(await comesToOffer(["org.example.App/maps"], for: ["asset", command, ""], in: shell), "\(command)")
        }
        let states = ["active", "cancelled", "extracting", "failed", "finished", "paused", "queued", "verifying", "waiting"]
        #expect(await offers(["list", "--state", ""], in: shell) == states)
        await desk.close()
    }

    @Test func `start no service`() async {
        #expect(await offers(["show", ""]) == [])
        #expect(await desk.serviceProcess() == nil)
        await desk.bus.stop()
        #expect(await offers(["show", ""]) == [], "without a bus")
    }

    @Test func `do not wait for a service that is silent`() async throws {
        _ = await desk.run("add", "--paused", "http://127.0.0.1:1/a")
        let process = try #require(await desk.serviceProcess())
        kill(process, SIGSTOP)
        // A call of the client waits for a minute. On a busy machine, the shell itself may take most of a minute, but not each time.
        var quickest: Duration = .seconds(60)
        for _ in 1...5 where quickest >= .seconds(45) {
            let begun = ContinuousClock.now
            #expect(await offers(["show", ""]) == [])
            quickest = min(quickest, ContinuousClock.now - begun)
        }
        kill(process, SIGCONT)
        #expect(quickest < .seconds(45))
        #expect(await comesToOffer(["1"], for: ["show", ""]))
        await desk.close()
    }
}

@Suite struct `The names in completions` {
    @Test(arguments: [
        ("7", true), ("org.example.App/chapter_1", true), ("a-b/c", true), ("$(reboot)/a", false), ("a b/c", false), ("a/b/c", false),
        ("`x`", false), ("日本/a", false), ("-a/b", false), ("/a", false), ("a/", false), ("", false), ("a'b/c", false), ("@/a", false),
    ])
    func `have no sign that a shell could take for a command`(name: String, isOffered: Bool) {
        #expect(CompleteCommand.isPlain(name) == isOffered)
    }
}
