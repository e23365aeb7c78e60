import Glibc
import TestSupport
import Testing

@testable import todoku

/// Presses the tabulator key: `$1` is the file of the completions, and the others are the words of the line up to the cursor.
private let key = """
    source "$1"; shift
    action=$(complete -p todoku); action=${action##* -F }; action=${action% todoku}
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMPREPLY=()
    "$action" todoku "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    printf '%s\\n' "${COMPREPLY[@]}"
    """

@Suite(.serialized) struct `The completions in bash` {
    private let desk: Desk

    init() async {
        desk = await Desk(tools: ["todoku": "#!/bin/sh\nexec \"\(Desk.command)\" \"$@\"\n", "press-tab": "#!/usr/bin/env bash\n\(key)\n"])
        let script = await desk.run("--generate-completion-script", "bash")
        precondition(script.status == 0, "\(script)")
        writeFile(desk.bus.folder("todoku.bash"), script.output.utf8)
    }

    /// What bash offers for the last of `words`, sorted.
    private func offers(_ words: [String]) async -> [String] {
        let exit = await Child.run(["press-tab", desk.bus.folder("todoku.bash"), "todoku"] + words, environment: desk.environment)
        #expect(exit.status == 0 && exit.errors == "", "\(words): \(exit)")
        return exit.output.split(separator: "\n").map(String.init).sorted()
    }

    /// Whether bash comes to offer `expected`. On a busy machine, an answer of the service may take more than the two seconds for which a
    /// completion waits.
    private func comesToOffer(_ expected: [String], for words: [String]) async -> Bool {
        await eventually { await offers(words) == expected }
    }

    @Test func `have commands, options and values`() async {
        #expect(await offers(["re"]) == ["rehearse", "remove", "renew", "reset", "restore", "resume", "retry"])
        #expect(await offers(["asset", "up"]) == ["update"])
        #expect(await offers(["show", "--u"]) == ["--url"])
        #expect(await offers(["get", "--if-exists", "r"]) == ["rename", "replace"])
        #expect(await offers(["comp"]) == [], "nobody types this command")
        await desk.close()
    }

    @Test func `have what the running service lists: downloads, ended ones too, and batches`() async {
        let server = ScriptedServer { _, reply in reply.respond(404) }
        _ = await desk.run("get", "--quiet", server.url("/gone"))
        _ = await desk.run("add", "--paused", "--app", "org.example.App", "--token", "ch_1", "http://127.0.0.1:1/a")
        writeFile(desk.bus.folder("list"), "http://127.0.0.1:1/b\n".utf8)
        let batch = await desk.run("batch", "--paused", "list").output.filter { $0 != "\n" }
        let members = JSON(await desk.run("list", "--json", "--batch", batch).output)?.array?.compactMap { $0["download"]?.string } ?? []
        #expect(!batch.isEmpty && members.count == 1)
        for words in [["show", ""], ["pause", "1", ""], ["move", ""], ["limit", "1K", ""]] {
            #expect(await comesToOffer((["1", "org.example.App/ch_1", batch] + members).sorted(), for: words), "\(words)")
        }
        #expect(await comesToOffer(["org.example.App/ch_1"], for: ["cancel", "org."]))
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
        let begun = ContinuousClock.now
        let offered = await offers(["show", ""])
        let elapsed = ContinuousClock.now - begun
        kill(process, SIGCONT)
        // A call of the client waits for a minute.
        #expect(offered == [] && elapsed < .seconds(45), "\(elapsed)")
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
