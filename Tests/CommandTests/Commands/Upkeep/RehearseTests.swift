import EventLoop
import Glibc
import TestSupport
import Testing

/// A folder in which rehearsals may make folders, and no session.
private struct Stage {
    let folder = TemporaryFolder("todoku-stage")
    let temporary: String
    private let environment: [String: String]

    init() {
        temporary = folder.makeFolder("tmp")
        environment = processEnvironment().filter { !$0.key.hasPrefix("XDG_") && !$0.key.hasPrefix("DBUS_") }.merging([
            "TMPDIR": temporary, "HOME": folder.makeFolder("home"), "DBUS_SESSION_BUS_ADDRESS": "unix:path=\(folder("no-bus"))",
            "TODOKU": Desk.command, "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
        ]) { $1 }
    }

    func start(_ arguments: [String]) -> Child {
        Child([Desk.command, "rehearse", "--service", Desk.service] + arguments, environment: environment, folder: folder.path)
    }

    /// The same below a parent that ignores `signal`, such as "HUP".
    func start(ignoring signal: String, _ arguments: [String]) -> Child {
        let words = ["sh", "-c", "trap '' \(signal); exec \"$@\"", "sh", Desk.command, "rehearse", "--service", Desk.service]
        return Child(words + arguments, environment: environment, folder: folder.path)
    }

    /// Runs a program, without `--service` in its arguments: the command finds todokud beside it.
    func run(_ arguments: [String], _ extra: [String: String] = [:]) async -> Child.Exit {
        await Child.run(arguments, environment: environment.merging(extra) { $1 }, folder: folder.path)
    }

    /// Runs a script of the shell in a rehearsal.
    func play(_ scenario: String, _ script: String, _ options: String...) async -> Child.Exit {
        await start(options + [scenario, "--", "sh", "-c", script]).wait()
    }

    /// The same with the summary as JSON.
    func summary(_ scenario: String, _ script: String) async throws -> (Child.Exit, JSON) {
        let exit = await play(scenario, script, "--json", "--summary", "summary.json")
        let text = try #require(readFile(folder("summary.json")), "\(exit)")
        return (exit, try #require(JSON(String(decoding: text, as: UTF8.self)), "\(exit)"))
    }

    /// Processes that have the temporary folder in their environment.
    var processes: [Int32] {
        listFolder("/proc").compactMap { Int32($0) }.filter { process in
            readFile("/proc/\(process)/environ").map { String(decoding: $0, as: UTF8.self).contains(temporary) } ?? false
        }
    }

    /// Whether nothing is left of a rehearsal.
    var isClean: Bool { listFolder(temporary) == [] && processes == [] && listFolder(folder("home")) == [] }

    /// Whether this user may mount, as root or in a user namespace.
    static func canMount() async -> Bool {
        if await SmallDisk.isPossible() { return true }
        return await Child.run(["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/tmp"]).status == 0
    }
}

/// How a `todoku get` of the file ends in a scenario.
struct RehearsalPlay: Sendable, CustomTestStringConvertible {
    let scenario: String
    var options = ""
    var status: Int32 = 0
    /// The status of the first and of the last answer of the server.
    var answers: (Int, Int) = (200, 200)
    /// The error that the download ended in.
    var error: String?
    var waits: String?
    var starts: Double = 1

    var testDescription: String { scenario }
}

/// proc(5), /proc/PID/mountinfo: the fifth field is the mount point.
private func isMountPoint(_ path: String) -> Bool {
    String(decoding: readFile("/proc/self/mountinfo") ?? [], as: UTF8.self).split(separator: "\n").contains { line in
        line.split(separator: " ").dropFirst(4).first.map(String.init) == path
    }
}

private let plays: [RehearsalPlay] = [
    RehearsalPlay(scenario: "none"), RehearsalPlay(scenario: "busy", answers: (503, 200), waits: "retry"),
    RehearsalPlay(scenario: "missing", status: 1, answers: (404, 404), error: "HttpStatus"),
    RehearsalPlay(scenario: "unreachable:seconds=1", waits: "retry"),
    // The time must be enough for the server to begin its answer: an attempt without a byte is followed by one for the whole file.
    RehearsalPlay(scenario: "stall", options: "--stall-timeout 30s", answers: (200, 206), waits: "retry"),
    RehearsalPlay(scenario: "slow:rate=4M"),
    RehearsalPlay(scenario: "truncated", answers: (200, 206), waits: "retry"), RehearsalPlay(scenario: "changed", waits: "retry"),
    RehearsalPlay(scenario: "damaged", status: 1, error: "ChecksumMismatch"),
    RehearsalPlay(scenario: "expired", status: 1, answers: (200, 403), error: "HttpStatus"),
    RehearsalPlay(
        scenario: "portal", options: "--expect-type application/octet-stream", status: 1, answers: (302, 200), error: "TypeMismatch"),
    RehearsalPlay(
        scenario: "portal:redirect=0", options: "--checksum sha256:$TODOKU_REHEARSAL_SHA256", status: 1, error: "ChecksumMismatch"),
    RehearsalPlay(scenario: "redirect-loop", status: 1, answers: (302, 302), error: "TooManyRedirects"),
    RehearsalPlay(scenario: "crash", answers: (200, 206), starts: 2),
]

@Suite(.timeLimit(.minutes(10))) struct `todoku rehearse` {
    @Test(arguments: plays) func `plays a scenario to a command, and tells how the download ended`(play: RehearsalPlay) async throws {
        let stage = Stage()
        let (exit, summary) = try await stage.summary(
            play.scenario, #""$TODOKU" get -q "# + play.options + #" "$TODOKU_REHEARSAL_URL/file""#)
        #expect(exit.status == play.status, "\(exit) \(summary)")
        let answers = summary["requests"]?.array?.compactMap { $0["status"]?.number.map { Int($0) } } ?? []
        #expect(answers.first == play.answers.0 && answers.last == play.answers.1, "\(answers)")
        #expect(play.scenario == "none" || (summary["played"]?.number ?? 0) >= 1)
        #expect(summary["status"]?.number == Double(play.status) && summary["service-starts"]?.number == play.starts)
        let downloads = summary["downloads"]?.array ?? []
        let ends = downloads.first?["ends"]?.array ?? []
        #expect(downloads.count == 1 && ends.count == 1, "\(summary)")
        #expect(ends.first?["outcome"]?.string == (play.status == 0 ? "finished" : "failed"))
        #expect(ends.first?["error"]?.string == play.error.map { "org.todoku.Error.\($0)" } ?? "")
        #expect(downloads.first?["now"]?["state"]?.string == ends.first?["outcome"]?.string)
        if let wait = play.waits { #expect(downloads.first?["waits"]?.array?.contains(.string(wait)) == true, "\(summary)") }
        #expect(summary["calls"]?.array?.contains { $0["method"]?.string == "Download" && $0["count"]?.number == 1 } == true)
        #expect(stage.isClean)
    }

    @Test func `says in one line how a download ended, and for what it waited`() async {
        let exit = await Stage().play("expired", #""$TODOKU" get -q "$TODOKU_REHEARSAL_URL/file""#)
        let line = "  download 1 file: failed, HttpStatus: The server 127.0.0.1 answered 403 (Forbidden); it waited: retry\n"
        #expect(exit.status == 1 && exit.errors.contains(line), "\(exit)")
    }

    @Test func `writes the summary to standard output for the file “-”, after what the command wrote`() async throws {
        let stage = Stage()
        let exit = await stage.play("none", "echo written", "--json", "--summary", "-")
        let lines = exit.output.split(separator: "\n")
        try #require(exit.status == 0 && exit.errors == "" && lines.count == 2, "\(exit)")
        #expect(lines[0] == "written" && JSON(String(lines[1]))?["scenario"] != nil, "\(exit)")
        #expect(!fileExists(stage.folder("-")) && stage.isClean)
    }

    @Test func `gives a digest that tells the file from another`() async {
        let stage = Stage()
        let script = #"""
            set -e
            "$TODOKU" get -q "$TODOKU_REHEARSAL_URL/file"
            sha256sum <"$TODOKU_REHEARSAL_DOWNLOADS/file" | grep -q "^$TODOKU_REHEARSAL_SHA256 "
            """#
        for scenario in ["none", "truncated", "crash:at=1M,times=2"] {
            let exit = await stage.play(scenario, script)
            #expect(exit.status == 0, "\(scenario): \(exit)")
        }
        #expect((await stage.play("changed", script)).status == 1)
    }

    @Test func `lets a link be renewed`() async throws {
        let stage = Stage()
        let (exit, summary) = try await stage.summary(
            "expired",
            #"""
            set -e
            "$TODOKU" add --renewable "$TODOKU_REHEARSAL_URL/file"
            until "$TODOKU" list --json | grep -q '"needs-url"'; do sleep 0.1; done
            "$TODOKU" renew 1 "$TODOKU_REHEARSAL_URL/file?renewed"
            "$TODOKU" wait 1
            sha256sum <"$TODOKU_REHEARSAL_DOWNLOADS/file" | grep "^$TODOKU_REHEARSAL_SHA256 "
            """#)
        #expect(exit.status == 0, "\(exit)")
        let waits = summary["downloads"]?.array?.first?["waits"]?.array ?? []
        #expect(waits.contains(.string("needs-url")), "\(summary)")
    }

    @Test(.enabled("this machine lets no test mount a disk") { await Stage.canMount() })
    func `fills a disk of its own, and makes room again`() async throws {
        let stage = Stage()
        // In a chroot, a mount cannot be kept from the rest of the system.
        guard isMountPoint("/") else {
            let refused = await stage.play("full-disk:seconds=1", "true")
            #expect(refused.status == 3 && refused.errors.contains("cannot be mounted in a chroot"), "\(refused)")
            return
        }
        let (exit, summary) = try await stage.summary("full-disk:seconds=1", #""$TODOKU" get -q "$TODOKU_REHEARSAL_URL/file""#)
        #expect(exit.status == 0, "\(exit) \(summary)")
        #expect(summary["downloads"]?.array?.first?["waits"]?.array?.contains(.string("disk-space")) == true, "\(summary)")
        #expect((summary["played"]?.number ?? 0) >= 1 && stage.isClean)
    }

    @Test(.enabled("this test must mount a disk, as root may") { await SmallDisk.isPossible() })
    func `fills a small disk that is named, leaves it as it was, and fills no large one`() async throws {
        let stage = Stage()
        let done: Bool? = try await SmallDisk.withDisk(bytes: 16 << 20) { disk in
            let scenario = "full-disk:seconds=1,disk=\(disk.path)"
            let exit = await stage.play(scenario, #""$TODOKU" get -q "$TODOKU_REHEARSAL_URL/file""#)
            #expect(exit.status == 0 && exit.errors.contains("it waited: disk-space"), "\(exit)")
            #expect(listFolder(disk.path) == [])
            return true
        }
        #expect(done == true)
        let refused: Bool? = try await SmallDisk.withDisk(bytes: 512 << 20) { disk in
            let exit = await stage.play("full-disk:disk=\(disk.path)", "true")
            #expect(exit.status == 3 && exit.errors.contains("and this scenario fills it"), "\(exit)")
            #expect(listFolder(disk.path) == [])
            return true
        }
        #expect(refused == true && stage.isClean)
    }

    @Test(.enabled("this test must mount a disk, as root may") { await SmallDisk.isPossible() })
    func `refuses a small disk in a hidden folder, because the service would not use it`() async throws {
        let stage = Stage()
        let done: Bool? = try await SmallDisk.withDisk(bytes: 16 << 20) { disk in
            let folder = "\(disk.path)/.hidden"
            #expect(mkdir(folder, 0o755) == 0)
            let exit = await stage.play("full-disk:disk=\(folder)", "true")
            #expect(exit.status == 3 && exit.errors.contains("is in a hidden folder"), "\(exit)")
            #expect(listFolder(folder) == [])
            return true
        }
        #expect(done == true && stage.isClean)
    }

    @Test(arguments: ["busy", "truncated", "crash"]) func `plays to an app on GDBus`(scenario: String) async throws {
        let stage = Stage()
        let client = "\(repository)/examples/python/gdbus_client.py"
        // A call that waits during a crash gets the answer NoReply. On a busy machine, the service may be killed before the client waits.
        // Then it is tried again.
        for attempt in 1...10 {
            let exit = await stage.play(scenario, "exec /usr/bin/python3 \(client) \"$TODOKU_REHEARSAL_URL/file\"")
            try #require(exit.status == 0 && exit.output.contains("\nfinished "), "\(exit)")
            try #require(exit.errors.contains("todoku: rehearsal “\(scenario):") && exit.errors.contains("the fault happened"), "\(exit)")
            if exit.errors.contains("NoReply") == (scenario == "crash") { break }
            #expect(scenario == "crash" && attempt < 10, "\(exit)")
        }
    }

    @Test func `plays to the tests of an example app`() async throws {
        let stage = Stage()
        let folder = String(Desk.command[..<(try #require(Desk.command.lastIndex(of: "/")))])
        let path = "\(folder):\(processEnvironment()["PATH"] ?? "/usr/bin:/bin")"
        let exit = await stage.run(["/usr/bin/python3", "\(repository)/examples/rehearsal/test_downloader.py"], ["PATH": path])
        #expect(exit.status == 0 && exit.errors.contains("\nOK\n"), "\(exit)")
        #expect(stage.isClean)
    }

    @Test func `exits as the command does`() async {
        let stage = Stage()
        #expect((await stage.play("none", "exit 7")).status == 7)
        #expect((await stage.play("none", "kill -9 $$")).status == 137)
        let missing = await stage.start(["none", "--", "./no-such-test"]).wait()
        #expect(missing.status == 127 && missing.errors == "todoku: “./no-such-test” cannot be started: No such file or directory\n")
        writeFile(stage.folder("text"), "".utf8)
        #expect((await stage.start(["none", "--", "./text"]).wait()).status == 126)
        #expect((await stage.play("none", "true", "--strict")).status == 0)
        let untested = await stage.play("busy", "true", "--strict")
        #expect(untested.status == 3 && untested.errors.contains("nothing went wrong"), "\(untested)")
        #expect((await stage.play("unreachable", #""$TODOKU" list"#, "--strict")).status == 3)
        #expect((await stage.play("busy", "true", "--quiet")).errors == "")
        #expect(stage.isClean)
    }

    @Test func `gives the command a session of its own`() async {
        let stage = Stage()
        let script = #"""
            for folder in "$HOME" "$XDG_CONFIG_HOME" "$XDG_DATA_HOME" "$XDG_STATE_HOME" "$XDG_CACHE_HOME" "$XDG_RUNTIME_DIR" \
                "$TODOKU_REHEARSAL_DOWNLOADS" "${DBUS_SESSION_BUS_ADDRESS#unix:path=}"; do
                case $folder in "$TMPDIR"/*) test -e "$folder" || echo "$folder is missing" ;; *) echo "$folder" ;; esac
            done
            echo "$TODOKU_REHEARSAL_SCENARIO"; cat; "$TODOKU" list --all
            """#
        let exit = await stage.play("none", script)
        #expect(exit.status == 0 && exit.output == "none\n", "\(exit)")
        #expect(stage.isClean)
    }

    @Test func `works in a folder with any name, and with a service of any name`() async {
        let stage = Stage()
        // For Swift, a combining mark and the sign before it are one character.
        let folder = stage.folder.makeFolder("it's a “t m&\u{301}p” <$x>")
        let service = stage.folder("100% \"todoku d'\u{301}\\\u{301}'\\")
        symlink(Desk.service, service)
        let script = #"""
            case $TODOKU_REHEARSAL_DOWNLOADS in *//*) exit 9 ;; esac
            "$TODOKU" get -q "$TODOKU_REHEARSAL_URL/small"
            test -s "$TODOKU_REHEARSAL_DOWNLOADS/small"
            """#
        let words = [Desk.command, "rehearse", "--service", service, "none", "--", "sh", "-ec", script]
        let exit = await stage.run(words, ["TMPDIR": "\(folder)//"])
        #expect(exit.status == 0 && listFolder(folder) == [] && stage.isClean, "\(exit)")
    }

    @Test func `gives the command the bytes of its environment, which need not be UTF-8`() async {
        let stage = Stage()
        let export = #"BYTES=$(printf 'a\377b\303'); export BYTES XDG_SESSION_ID="$BYTES" XDG_DATA_HOME="$BYTES"; exec "$@""#
        let script = #"""
            test "$(printf %s "$BYTES" | od -An -tx1 | tr -d ' \n')" = 61ff62c3
            test -z "${XDG_SESSION_ID+x}"
            test -d "$XDG_DATA_HOME"
            """#
        let words = [Desk.command, "rehearse", "--service", Desk.service, "none", "--", "sh", "-ec", script]
        let exit = await stage.run(["sh", "-ec", export, "sh"] + words)
        #expect(exit.status == 0 && stage.isClean, "\(exit)")
    }

    @Test func `gives the command the bytes of its arguments, which need not be UTF-8`() async {
        let stage = Stage()
        let start = #"exec "$@" "$(printf 'a\377b\303')" 名"#
        let script = #"test "$1" = "$(printf 'a\377b\303')" && test "$2" = 名 && test $# = 2"#
        let words = [Desk.command, "rehearse", "--service", Desk.service, "none", "--", "sh", "-ec", script, "sh"]
        let exit = await stage.run(["sh", "-ec", start, "sh"] + words)
        #expect(exit.status == 0 && stage.isClean, "\(exit)")
    }

    @Test(arguments: [
        ("tmp", "TMPDIR must be an absolute path, not “tmp”"),
        ("/no/folder", "“/no/folder” cannot be used as a folder: No such file or directory"),
        ("/proc", "“/proc” cannot have a folder made in it: "),
    ])
    func `says that its folder cannot be made`(folder: String, message: String) async {
        let stage = Stage()
        let exit = await stage.run([Desk.command, "rehearse", "--service", Desk.service, "none", "--", "true"], ["TMPDIR": folder])
        #expect(exit.status == 3 && exit.errors.contains("the rehearsal cannot begin: \(message)"), "\(exit)")
    }

    @Test(.enabled("this test must mount a disk, as root may") { await SmallDisk.isPossible() })
    func `says that the disk of its folder is full, and leaves nothing there`() async throws {
        let stage = Stage()
        let exit: Child.Exit? = try await SmallDisk.withDisk(bytes: 1 << 20) { disk in
            disk.fill(leaving: 0)
            let words = [Desk.command, "rehearse", "--service", Desk.service, "none", "--", "true"]
            let exit = await stage.run(words, ["TMPDIR": disk.path])
            #expect(listFolder(disk.path).count == 1)  // the file that fills the disk
            return exit
        }
        let end = try #require(exit)
        #expect(end.status == 3 && end.errors.contains(": No space left on device"), "\(end)")
    }

    @Test(.enabled("this test must mount a disk, as root may") { await SmallDisk.isPossible() })
    func `removes no file from a folder that the command has mounted in its home`() async {
        let stage = Stage()
        let other = stage.folder.makeFolder("other")
        writeFile("\(other)/kept", "".utf8)
        let exit = await stage.play("none", #"mkdir "$HOME/other" && mount --bind "\#(other)" "$HOME/other""#)
        #expect(exit.status == 3 && exit.errors.contains("could not be removed"), "\(exit)")
        #expect(listFolder(other) == ["kept"])
        for session in listFolder(stage.temporary) { _ = await Child.run(["umount", "-l", "\(stage.temporary)/\(session)/home/other"]) }
    }

    @Test func `leaves no process behind, not even a daemon that ignores SIGTERM`() async throws {
        let stage = Stage()
        let exit = await stage.play(
            "none", #"setsid sh -c 'trap "" TERM; sleep 1000 & wait; sleep 1000' >/dev/null 2>&1 & "$TODOKU" list; echo $!"#)
        let daemon = try #require(exit.output.split(separator: "\n").last.flatMap { Int32($0) }, "\(exit)")
        #expect(exit.status == 0 && hasEnded(daemon) && stage.isClean)
    }

    @Test func `leaves the processes alone that a shell had started before it became the rehearsal`() async throws {
        let stage = Stage()
        let script = #"sleep 1000 >/dev/null 2>&1 & echo $!; exec "$TODOKU" rehearse --service "$0" none -- true"#
        let exit = await stage.run(["sh", "-c", script, Desk.service])
        let process = try #require(exit.output.split(separator: "\n").first.flatMap { Int32($0) }, "\(exit)")
        #expect(exit.status == 0 && !hasEnded(process) && listFolder(stage.temporary) == [], "\(exit)")
        kill(process, SIGKILL)
    }

    /// A rehearsal of a command that ends with 9 at the signal `trap`, such as "TERM". It gets `signals` once the command waits.
    ///
    /// - Parameter ignored: a signal that its parent ignores.
    /// - Returns: its status.
    private func status(trapping trap: String, ignoring ignored: String? = nil, after signals: Int32...) async -> Int32 {
        await repeated { () async -> Int32 in
            let stage = Stage()
            let words = ["none", "--", "sh", "-c", "trap 'exit 9' \(trap); echo ready; sleep 1000 & wait"]
            let child = if let ignored { stage.start(ignoring: ignored, words) } else { stage.start(words) }
            #expect(await child.says("ready"))
            for signal in signals { child.signal(signal) }
            let exit = await child.wait()
            #expect(stage.isClean)
            return exit.status
        } until: {
            // A command that has not ended five seconds after its signal is killed. On a busy machine, it may have had no processor.
            $0 != 128 + SIGKILL
        }
    }

    @Test(arguments: [SIGTERM, SIGHUP, SIGINT, SIGQUIT]) func `passes a signal on, and cleans up`(signal: Int32) async {
        // A terminal sends SIGINT and SIGQUIT to the command, too. A command that goes on gets SIGTERM after a while.
        #expect(await status(trapping: signal == SIGHUP ? "HUP" : "TERM", after: signal) == 9)
    }

    /// As nohup(1) ignores SIGHUP, and a shell without job control the other two for a command in the background.
    @Test(arguments: [("HUP", SIGHUP), ("INT", SIGINT), ("QUIT", SIGQUIT)])
    func `goes on after a signal that its parent ignores`(name: String, signal: Int32) async {
        // The first signal does nothing. If it counted, SIGTERM would be the second one, which kills the command at once.
        #expect(await status(trapping: "TERM", ignoring: name, after: signal, SIGTERM) == 9)
    }

    /// A signal to all processes of a session or a unit ends the bus, too.
    @Test func `ends by a signal that comes before the command, even if the signal has ended the bus`() async {
        let stage = Stage()
        let tools = stage.folder.makeFolder("tools")
        writeFile("\(tools)/dbus-daemon", "#!/bin/sh\nkill -TERM $PPID\nkill -TERM $$\n".utf8, mode: 0o755)
        let path = "\(tools):\(processEnvironment()["PATH"] ?? "/usr/bin:/bin")"
        let exit = await stage.run([Desk.command, "rehearse", "--service", Desk.service, "none", "--", "echo", "begun"], ["PATH": path])
        #expect(exit.status == 128 + SIGTERM && exit.output == "" && exit.errors == "", "\(exit)")
        #expect(stage.isClean)
    }

    /// The stand-in for dbus-daemon passes the first connection on to the real one. The second connection breaks during its handshake, for
    /// which the program waits, so nothing can receive the signal before. It breaks after the signal, when the stand-in ends.
    @Test func `ends by a signal that nothing has received yet when the bus ends`() async {
        let stage = Stage()
        let tools = stage.folder.makeFolder("tools")
        let script = """
            #!/usr/bin/python3
            import os, signal, socket, subprocess, sys, threading
            configuration = next(word for word in sys.argv if word.startswith("--config-file=")).split("=", 1)[1]
            folder = os.path.dirname(configuration)
            os.environ["PATH"] = os.environ["PATH"].split(":", 1)[1]
            with open(configuration) as given, open(f"{folder}/real.conf", "w") as own:
                own.write(given.read().replace(f"{folder}/bus<", f"{folder}/real<"))
            real = ["dbus-daemon", f"--config-file={folder}/real.conf", "--nofork", "--print-address"]
            subprocess.Popen(real, stdout=subprocess.PIPE).stdout.readline()
            listener, bus = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
            listener.bind(f"{folder}/bus")
            listener.listen()
            client = listener.accept()[0]
            bus.connect(f"{folder}/real")
            def pass_on(source, target):
                while data := source.recv(4096): target.sendall(data)
            for ends in (client, bus), (bus, client): threading.Thread(target=pass_on, args=ends, daemon=True).start()
            broken = listener.accept()
            os.kill(os.getppid(), signal.SIGTERM)
            os._exit(1)
            """
        writeFile("\(tools)/dbus-daemon", script.utf8, mode: 0o755)
        let path = "\(tools):\(processEnvironment()["PATH"] ?? "/usr/bin:/bin")"
        let exit = await stage.run([Desk.command, "rehearse", "--service", Desk.service, "none", "--", "echo", "begun"], ["PATH": path])
        #expect(exit.status == 128 + SIGTERM && exit.output == "" && exit.errors == "", "\(exit)")
        #expect(stage.isClean)
    }

    @Test func `that is killed takes the bus, the service and the command along`() async {
        let stage = Stage()
        let child = stage.start(["none", "--", "sh", "-c", "\"$TODOKU\" list; echo ready; exec sleep 1000"])
        #expect(await child.says("ready"))
        #expect(stage.processes.count >= 3)
        child.signal(SIGKILL)
        #expect((await child.wait()).status == 137)
        #expect(await eventually { stage.processes == [] })
    }

    @Test(arguments: [
        (["busi", "--", "true"], 2 as Int32, "there is no scenario “busi”"), (["busy:time=1", "--", "true"], 2, "has no parameter “time”"),
        (["busy"], 2, "a command is missing"), (["busy", "true"], 2, "a command is missing: todoku rehearse busy -- COMMAND"),
        (["--", "true"], 2, "a scenario is missing"),
        (["--service", "/no/todokud", "busy", "--", "true"], 2, "there is no program “/no/todokud”"),
        (["--service-dir", "/no/folder", "busy", "--", "true"], 2, "there is no folder “/no/folder”"),
        (["--summary", "/no/file", "busy", "--", "true"], 2, "“/no/file” cannot be written"),
        (["--log", "/no/file", "busy", "--", "true"], 3, "“/no/file” cannot be written"),
    ])
    func `says what is wrong with its command line`(arguments: [String], status: Int32, message: String) async {
        let stage = Stage()
        let exit = await stage.run([Desk.command, "rehearse"] + arguments)
        #expect(exit.status == status && exit.errors.contains(message), "\(exit)")
        #expect(stage.isClean)
    }

    @Test func `reports an error as JSON, if JSON is asked for`() async {
        let stage = Stage()
        let service = ["--service", Desk.service]
        for (arguments, extra, status, message) in [
            (["busi", "--", "true"], [:], 2, "there is no scenario “busi”; “todoku rehearse --list” has them all"),
            (["busy"], [:], 2, "a command is missing: todoku rehearse busy -- COMMAND"),
            (["--service", "/no/todokud", "busy", "--", "true"], [:], 2, "there is no program “/no/todokud” (--service)"),
            (service + ["none", "--", "./no-such-test"], [:], 127, "“./no-such-test” cannot be started: No such file or directory"),
            (
                service + ["none", "--", "true"], ["TMPDIR": "/no/folder"], 3,
                "the rehearsal cannot begin: “/no/folder” cannot be used as a folder: No such file or directory"
            ),
        ] as [([String], [String: String], Int32, String)] {
            let exit = await stage.run([Desk.command, "rehearse", "--json"] + arguments, extra)
            #expect(exit.status == status && exit.errors == "", "\(exit)")
            #expect(JSON(exit.output)?["error"]?["message"]?.string == message, "\(exit)")
        }
        #expect(stage.isClean)
    }

    @Test func `lists its scenarios, which the man page has with each parameter`() async throws {
        let exit = await Desk.runAlone(["rehearse", "--list", "--json"])
        let scenarios = try #require(JSON(exit.output)?.array, "\(exit)")
        let bytes = try #require(readFile("\(repository)/data/man/todoku-rehearse.1"))
        let page = String(decoding: bytes, as: UTF8.self).split(separator: "\\").joined()
        #expect(scenarios.count == 14)
        for scenario in scenarios {
            let name = try #require(scenario["scenario"]?.string)
            #expect(page.contains("\n.B \(name)\n"), "\(name)")
            for parameter in scenario["parameters"]?.array ?? [] {
                let key = try #require(parameter["key"]?.string)
                #expect(page.contains("\n.BI \(key)= "), "\(name) \(key)")
            }
        }
        let plain = await Desk.runAlone(["rehearse", "--list"])
        #expect(plain.status == 0 && plain.output.contains("crash\n  The service is killed"), "\(plain)")
        let japanese = await Desk.runAlone(["rehearse", "--list"], ["LC_ALL": "ja_JP.UTF-8"])
        let (lines, translated) = (plain.output.split(separator: "\n"), japanese.output.split(separator: "\n"))
        #expect(lines.count == translated.count, "\(japanese)")
        for line in translated where line.hasPrefix(" ") {
            #expect(line.unicodeScalars.contains { (0x3040...0x9FFF).contains($0.value) }, "\(line)")
        }
        #expect(await Desk.runAlone(["rehearse", "--list", "--json"], ["LC_ALL": "ja_JP.UTF-8"]).output == exit.output)
        let help = await Desk.runAlone(["rehearse", "--help"])
        let words = help.output.split { !$0.isLetter && $0 != "-" }.filter { $0.hasPrefix("--") && $0.count > 2 }
        for option in Set(words).subtracting(["--help", "--quick"]) { #expect(page.contains(option), "\(option)") }
    }

    @Test func `keeps what the service says, and finds further programs`() async {
        let stage = Stage()
        let services = stage.folder.makeFolder("services")
        writeFile("\(services)/org.example.Late.service", "[D-BUS Service]\nName=org.example.Late\nExec=/bin/false\n".utf8)
        let script = #"""
            "$TODOKU" get -q "$TODOKU_REHEARSAL_URL/small"
            gdbus call -e -t 300 -d org.freedesktop.DBus -o / -m org.freedesktop.DBus.ListActivatableNames
            """#
        let exit = await stage.play("none", script, "--log", "todokud.log", "--service-dir", services)
        #expect(exit.status == 0 && exit.output.contains("'org.example.Late'"), "\(exit)")
        #expect(exit.errors.contains("download 1 small: finished"), "\(exit)")
        #expect((readFile(stage.folder("todokud.log")) ?? []).count > 0)
    }
}
