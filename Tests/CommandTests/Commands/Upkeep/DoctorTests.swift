import DBus
import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing
import TodokuClient
import Transport

@testable import Upkeep
@testable import todoku

/// Stand-ins for the programs of a desktop that the doctor looks for, on the session bus and on a system bus of their own.
@BusActor struct DesktopPrograms {
    let machine: PrivateBus
    /// The desk's environment, with that system bus.
    let environment: [String: String]
    let logind: StandInLogind
    let tray: TrayPanel
    private let server: OddServer
    private let dock: StandInDock
    private let jobs: StandInJobServer
    private let manager: StandInNetworkManager

    init(in desk: Desk) async throws {
        machine = await PrivateBus()
        environment = desk.environment.merging(["DBUS_SYSTEM_BUS_ADDRESS": machine.address]) { $1 }
        server = try OddServer(name: "dunst", at: desk.bus.address)
        dock = try await StandInDock(on: desk.bus.address)
        tray = try TrayPanel(on: desk.bus.address)
        jobs = try StandInJobServer(on: desk.bus.address)
        logind = try StandInLogind(on: machine.address)
        manager = try StandInNetworkManager(on: machine.address, metered: 1)
    }

    /// From now on there is no notification server, no server of jobs and no panel. logind refuses, and the network wants a login.
    func fail() throws {
        manager.set("Connectivity", 2)
        logind.refused = ["block"]
        server.vanish()
        tray.hasHost = false
        try jobs.vanish()
    }
}

/// Runs a command line with the doctor. The doctor waits for five seconds for each answer. If it has waited for so long, a program that
/// answers may have had no processor, so the command line is run again.
func askDoctor(_ command: [String], _ environment: [String: String]) async -> Child.Exit {
    let last = await repeated { () async -> (exit: Child.Exit, time: Duration) in
        let begun = ContinuousClock.now
        let exit = await Child.run(command, environment: environment)
        return (exit, ContinuousClock.now - begun)
    } until: {
        $0.time <= .seconds(5)
    }
    return last.exit
}

@Suite(.serialized) struct `The doctor` {
    /// One line of `todoku doctor --json`.
    private struct Line {
        let subject, verdict, text: String
        let advice: String?
    }

    private func ask(_ environment: [String: String], _ arguments: [String] = []) async -> Child.Exit {
        await askDoctor([Desk.command, "doctor"] + arguments, environment)
    }

    /// - Parameter isOnce: whether one run is enough, however long it lasts.
    private func examine(
        _ desk: Desk, _ arguments: String..., isOnce: Bool = false
    ) async throws -> (status: Int32, lines: [Line]) {
        let words = ["--json"] + arguments
        let exit = isOnce ? await desk.start(["doctor"] + words).wait() : await ask(desk.environment, words)
        #expect(exit.errors == "")
        let lines = try #require(JSON(exit.output)?.array, "\(exit)").map { line in
            Line(
                subject: line["subject"]?.string ?? "", verdict: line["verdict"]?.string ?? "", text: line["text"]?.string ?? "",
                advice: line["advice"]?.string)
        }
        for line in lines {
            // Whatever is missing or wrong, the doctor says what to do.
            #expect(!line.text.isEmpty && !line.text.hasSuffix("."), "\(line)")
            #expect(line.verdict == "found" || line.advice?.hasSuffix(".") == true, "\(line)")
        }
        return (exit.status, lines)
    }

    private func line(_ subject: String, _ lines: [Line]) throws -> Line {
        try #require(lines.first { $0.subject == subject }, "\(subject)")
    }

    @Test func `finds nothing wrong in a session without anything, and starts nothing`() async throws {
        let desk = await Desk(isFirstRun: true)  // no state folder has been made
        let (status, lines) = try await examine(desk)
        #expect(status == 0, "\(lines.filter { $0.verdict == "wrong" })")
        for subject in ["bus", "activation", "service", "proxy", "download-folder", "state-folder", "database"] {
            #expect(try line(subject, lines).verdict == "found", "\(subject)")
        }
        for subject in ["unit", "notifications", "tray", "dock", "jobs", "sleep", "network", "portal", "opening"] {
            #expect(try line(subject, lines).verdict == "missing", "\(subject)")
        }
        #expect(try line("service", lines).text == "the service does not run; the first call starts it")
        #expect(try line("download-folder", lines).text.hasSuffix("/Downloads does not exist yet; the first download makes it"))
        #expect(try line("database", lines).text.hasPrefix("there is no database yet"))
        #expect(lines.contains { $0.subject == "library" && $0.text.hasPrefix("libcurl/") })
        #expect(await desk.serviceProcess() == nil)
        #expect(listFolder(desk.bus.folder("state")).isEmpty && !fileExists(desk.downloads))
        await desk.close()
    }

    @Test func `writes a line for each finding, and the advice below it`() async throws {
        let desk = await Desk()
        let exit = await ask(desk.environment)
        #expect(exit.status == 0 && exit.errors == "")
        let lines = exit.output.split(separator: "\n")
        #expect(lines.first == "found    bus              the session bus answers", "\(exit)")
        let toasts = try #require(lines.firstIndex { $0.hasPrefix("missing  notifications    no notification server") })
        #expect(lines[toasts...].dropFirst().first?.hasPrefix("                          → Start a notification server") == true)
        await desk.close()
    }

    @Test func `names the running service with its version, and starts it only if asked`() async throws {
        let desk = await Desk()
        let (status, lines) = try await examine(desk, "--start")
        #expect(status == 0)
        let process = try #require(await desk.serviceProcess())
        let service = try line("service", lines)
        let end = "/todokud (process \(process)) is version \(Program.version)"
        #expect(service.verdict == "found" && service.text.hasSuffix(end), "\(service)")
        await desk.close()
    }

    @Test func `says that the service is not installed`() async throws {
        let desk = await Desk(hasService: false)
        let (status, lines) = try await examine(desk)
        #expect(status == 1)
        let activation = try line("activation", lines)
        #expect(activation.verdict == "wrong" && activation.text.contains("no activation file"), "\(activation)")
        #expect(try line("service", lines).verdict == "missing")
        let (_, started) = try await examine(desk, "--start")
        #expect(started.contains { $0.subject == "service" && $0.text.hasPrefix("the service cannot be started: ") })
        await desk.close()
    }

    @Test @BusActor func `finds a foreign owner of the name, and how to end it`() async throws {
        let desk = await Desk()
        let stranger = try Connection.open(address: desk.bus.address)
        #expect(try stranger.requestName("org.todoku.Downloader1"))
        let (status, lines) = try await examine(desk)
        #expect(status == 1)
        let service = try line("service", lines)
        #expect(service.verdict == "wrong" && service.text.contains("(process \(getpid()))"), "\(service)")
        #expect(service.text.hasSuffix("owns org.todoku.Downloader1, but is not todokud"), "\(service)")
        #expect(service.advice?.contains("kill \(getpid())") == true)
        try stranger.releaseName("org.todoku.Downloader1")
        await desk.close()
    }

    /// The doctor recognizes the service by the name of its program. So the stand-in is a copy of Python with this name.
    @Test func `says that the running service has another version than the command`() async throws {
        let (desk, folder) = (await Desk(), TemporaryFolder("todoku-other-version"))
        let program = folder("todokud")
        // By a process of its own: while a thread of this one has the file open for writing, nobody could start it.
        #expect(await Child.run(["cp", "/usr/bin/python3", program]).status == 0)
        let script = """
            import sys
            from gi.repository import Gio, GLib

            XML = '<node><interface name="org.todoku.Downloader1"><property name="Version" type="s" access="read"/></interface></node>'

            def called(bus, sender, path, interface, method, arguments, invocation):
                properties = {"Version": GLib.Variant("s", sys.argv[1])} if sys.argv[1] else {}
                invocation.return_value(GLib.Variant("(a{sv})", (properties,)))

            bus = Gio.bus_get_sync(Gio.BusType.SESSION)
            bus.register_object("/org/todoku/Downloader1", Gio.DBusNodeInfo.new_for_xml(XML).interfaces[0], called, None, None)
            Gio.bus_own_name_on_connection(bus, "org.todoku.Downloader1", Gio.BusNameOwnerFlags.NONE, None, None)
            GLib.MainLoop().run()
            """
        for (version, words) in [("0.0.9", "0.0.9"), ("", "of an unknown version")] {
            let standIn = Child([program, "-c", script, version], environment: desk.environment)
            let isThere = await eventually { await desk.bus.hasOwner("org.todoku.Downloader1") || !standIn.isRunning }
            try #require(isThere && standIn.isRunning, "package python3-gi: \(standIn.errors)")
            let (status, lines) = try await examine(desk)
            #expect(status == 1)
            let service = try line("service", lines)
            #expect(service.verdict == "wrong", "\(service)")
            let end = "/todokud (process \(standIn.pid)) is \(words), and this command is \(Program.version)"
            #expect(service.text.hasSuffix(end), "\(service)")
            #expect(service.advice?.hasPrefix("End it (kill \(standIn.pid)); the next call starts the new one") == true, "\(service)")
            await standIn.stop()
            #expect(await desk.bus.waitForOwner("org.todoku.Downloader1", present: false))
        }
        await desk.close()
    }

    @Test func `says that the program of the service was replaced, or that the bus would start another`() async throws {
        let (desk, folder) = (await Desk(hasService: false), TemporaryFolder("todoku-replaced"))
        let program = folder("todokud")
        #expect(await Child.run(["cp", Desk.service, program]).status == 0)
        await desk.bus.makeActivatable("org.todoku.Downloader1", "\(program) --idle-exit 3600")
        #expect(await desk.run("list").status == 0)
        let process = try #require(await desk.serviceProcess())
        #expect(try line("service", try await examine(desk).lines).verdict == "found")

        for name in ["data/dbus-1", "data/dbus-1/services"] { desk.bus.folder.makeFolder(name) }
        let file = desk.bus.folder("data/dbus-1/services/org.todoku.Downloader1.service")
        writeFile(file, "[D-BUS Service]\nName=org.todoku.Downloader1\nExec=/bin/true\n".utf8)
        let other = try line("service", try await examine(desk).lines)
        #expect(other.verdict == "wrong", "\(other)")
        #expect(other.text.hasSuffix("/todokud (process \(process)) is running, but the bus would start /bin/true"), "\(other)")
        #expect(other.advice == "End it (kill \(process)) if /bin/true is the right program.")

        // As a package manager does: by a new file, which is renamed over the old one.
        #expect(await Child.run(["cp", Desk.service, folder("new")]).status == 0)
        #expect(rename(folder("new"), program) == 0)
        let (status, lines) = try await examine(desk)
        let replaced = try line("service", lines)
        #expect(status == 1 && replaced.verdict == "wrong", "\(replaced)")
        let end = "/todokud (process \(process)) was replaced after the service had started"
        #expect(replaced.text.hasPrefix("the program of /") && replaced.text.hasSuffix(end), "\(replaced)")
        #expect(replaced.advice?.hasPrefix("End it (kill \(process)); the next call starts the new one") == true, "\(replaced)")
        await desk.close()
    }

    @Test @BusActor func `reads the activation file, and asks systemd about its unit`() async throws {
        let desk = await Desk()
        for name in ["data/dbus-1", "data/dbus-1/services"] { desk.bus.folder.makeFolder(name) }
        let file = desk.bus.folder("data/dbus-1/services/org.todoku.Downloader1.service")
        func activate(_ program: String) {
            writeFile(file, "[D-BUS Service]\nName=org.todoku.Downloader1\nExec=\(program)\nSystemdService=todokud.service\n".utf8)
        }
        activate("/bin/true --idle-exit 5")
        let systemd = try StandInSystemd(on: desk.bus.address)
        let states: [(String?, String, String)] = [
            (nil, "wrong", "systemd does not know todokud.service"), ("masked", "wrong", "todokud.service is masked"),
            ("static", "found", "systemd starts the service as todokud.service"),
        ]
        for (state, verdict, part) in states {
            systemd.unitFiles = state.map { ["todokud.service": $0] } ?? [:]
            let (status, lines) = try await examine(desk)
            let unit = try line("unit", lines)
            #expect(unit.verdict == verdict && unit.text.hasPrefix(part), "\(unit)")
            #expect(status == (verdict == "wrong" ? 1 : 0))
            #expect(try line("activation", lines).text == "\(file) starts /bin/true")
        }
        activate("/nowhere/todokud")
        let activation = try line("activation", try await examine(desk).lines)
        #expect(activation.verdict == "wrong" && activation.text.contains("/nowhere/todokud"), "\(activation)")
        await desk.close()
    }

    @Test @BusActor func `knows a notification server, a tray, a dock, KDE's jobs, logind and NetworkManager`() async throws {
        let desk = await Desk()
        let programs = try await DesktopPrograms(in: desk)
        let environment = programs.environment
        let exit = await ask(environment)
        #expect(
            exit.output.contains("\nfound    notifications    dunst 1 (test): toasts can be clicked, a toast shows progress"), "\(exit)")
        #expect(exit.output.contains(" shows count and progress on icons\n"))
        #expect(exit.output.contains("\nfound    tray ") && exit.output.contains(" shows tray items\n"), "\(exit)")
        #expect(exit.output.contains("\nfound    jobs ") && exit.output.contains(" shows downloads as jobs\n"), "\(exit)")
        #expect(exit.output.contains("\nfound    sleep            logind keeps the machine awake"))
        #expect(exit.output.contains("\nfound    network          NetworkManager sees a network, which is metered\n"))
        #expect(Set(programs.logind.asked) == ["sleep Todoku block"])
        try programs.fail()
        let later = await ask(environment)
        #expect(later.status == 1 && later.output.contains("NetworkManager sees a captive portal, so all downloads wait"), "\(later)")
        #expect(later.output.contains("because logind refuses to keep the machine awake: Permission denied\n"))
        #expect(later.output.contains("\nmissing  tray ") && later.output.contains(" but no panel shows one\n"), "\(later)")
        #expect(later.output.contains("\nmissing  jobs "), "\(later)")
        // Now a program has the watcher's name, and nothing else of a watcher.
        try programs.tray.vanish()
        let watcher = try Connection.open(address: desk.bus.address)
        #expect(try watcher.requestName(TrayPanel.name))
        // The session may keep it awake all the same.
        let power = try Connection.open(address: desk.bus.address)
        #expect(try power.requestName("org.freedesktop.PowerManagement"))
        let kept = await ask(environment)
        #expect(kept.output.contains("\nfound    sleep            the power manager of the session is asked to keep"), "\(kept)")
        #expect(kept.output.contains("\nwrong    tray ") && kept.output.contains(" does not answer\n"), "\(kept)")
        withExtendedLifetime((programs, watcher)) {}
        await desk.close()
        await programs.machine.stop()
    }

    /// NetworkManager ignores links that other programs manage, and it may be connected to a network without a way out.
    @Test @BusActor func `says that downloads wait for a network if the service makes them wait, and only then`() async throws {
        let machine = await PrivateBus()
        let manager = try StandInNetworkManager(on: machine.address)
        let system = BusProbe(try Connection.open(address: machine.address))
        let cases: [(state: UInt32, connectivity: UInt32, hasRoute: Bool, verdict: Finding.Verdict)] = [
            (20, 0, true, .found), (20, 0, false, .missing), (60, 1, true, .found), (60, 1, false, .missing), (70, 4, false, .found),
        ]
        for (state, connectivity, hasRoute, verdict) in cases {
            manager.setSilently("State", state)
            manager.setSilently("Connectivity", connectivity)
            // The doctor waits for five seconds for each answer.
            let last = await repeated { () async -> (finding: Finding, time: Duration) in
                let begun = ContinuousClock.now
                let finding = await MachineExamination.network(system, nil) { hasRoute }
                return (finding, ContinuousClock.now - begun)
            } until: {
                $0.time <= .seconds(5)
            }
            #expect(last.finding.verdict == verdict, "\(state), \(connectivity), \(hasRoute): \(last.finding.text.english)")
        }
        withExtendedLifetime(manager) {}
        await machine.stop()
    }

    @Test @BusActor func `ends although the notification server hangs and the system bus is mute`() async throws {
        let folder = TemporaryFolder("todoku-mute")
        let mute = MuteBus(in: folder, isFull: false)
        let desk = await Desk(extra: ["DBUS_SYSTEM_BUS_ADDRESS": mute.address])
        let server = try OddServer(name: "hangs", at: desk.bus.address, .hangs)
        let (status, lines) = try await examine(desk, isOnce: true)
        #expect(status == 1)
        let toasts = try line("notifications", lines)
        #expect(toasts.verdict == "wrong" && toasts.text.contains("gives no answer"), "\(toasts)")
        #expect(try line("sleep", lines).verdict == "missing")
        #expect(lines.last?.subject == "library")
        withExtendedLifetime(server) {}
        await desk.close()
    }

    @Test @BusActor func `goes on although the disk of the file that names the download folder hangs`() async {
        let (folder, loop) = (TemporaryFolder("todoku-doctor"), pthread_self())
        let (path, pipe) = (folder.path, folder("pipe"))
        mkfifo(pipe, 0o600)
        let environment = ["HOME": path, "XDG_CONFIG_HOME": folder("config"), "XDG_STATE_HOME": folder("state")]
        let examination = FolderExamination(environment, RunningService()) { _ in
            // A pipe without a writer hangs like a disk. On the loop's own thread, it would hang all other tests, too.
            if pthread_self() != loop { close(open(pipe, O_RDONLY | O_CLOEXEC)) }
            return path
        }
        let findings = await examination.findings()
        close(open(pipe, O_RDWR | O_CLOEXEC))  // now the thread goes on
        #expect(findings.map(\.subject) == [.downloadFolder, .stateFolder, .database], "\(findings)")
        #expect(findings.first?.verdict == .wrong)
        #expect(findings.first?.text.english == "the disk of \(folder("config")) has not answered for 5 seconds")
    }

    @Test func `examines the machine although there is no session bus`() async throws {
        let desk = await Desk(extra: ["DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere/bus"])
        let (status, lines) = try await examine(desk)
        #expect(status == 1)
        #expect(try line("bus", lines).verdict == "wrong")
        #expect(try line("database", lines).verdict == "found")
        await desk.close()
    }

    @Test func `finds a damaged database, and leaves it alone`() async throws {
        let desk = await Desk(isFirstRun: true)
        let state = desk.bus.folder.makeFolder("state/todoku")
        let bytes = patternBytes(20_000)
        writeFile("\(state)/todoku.db", bytes)
        let (status, lines) = try await examine(desk)
        #expect(status == 1)
        let database = try line("database", lines)
        #expect(database.verdict == "wrong" && database.text.hasPrefix("\(state)/todoku.db is damaged: "), "\(database)")
        #expect(fileHolds("\(state)/todoku.db", bytes) && listFolder(state) == ["todoku.db"])
        // The next start sets the file aside, and the doctor says where it is.
        _ = await desk.run("list")
        let (_, later) = try await examine(desk)
        #expect(
            later.contains {
                $0.verdict == "missing" && $0.text.contains("a damaged database was set aside as \(state)/todoku.db.corrupt-")
            })
        await desk.close()
    }

    @Test func `counts the downloads in the database, with the service and without it`() async throws {
        let desk = await Desk()
        let folder = desk.bus.folder.makeFolder("elsewhere")
        _ = await desk.run("add", "--paused", "-d", folder, "http://127.0.0.1:1/a", "http://127.0.0.1:1/b")
        for isRunning in [true, false] {
            if !isRunning { #expect(await desk.bus.end("org.todoku.Downloader1", by: SIGTERM)) }
            let (status, lines) = try await examine(desk)
            #expect(status == 0, "\(lines)")
            #expect(try line("database", lines).text.contains("2 downloads, 2 of them unfinished"), "\(lines)")
            #expect(try line("disk", lines).text.hasSuffix("; 2 unfinished downloads need it"), "\(lines)")
        }
        removeTree(folder)
        let (status, lines) = try await examine(desk)
        #expect(status == 0)
        let disk = try line("disk", lines)
        #expect(disk.verdict == "missing" && disk.text == "\(folder) does not exist; 2 unfinished downloads need it", "\(disk)")
        await desk.close()
    }

    @Test func `names no disk for an unfinished download into a file of an app, which has no folder`() async throws {
        let desk = await Desk()
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        let descriptor = open(desk.bus.folder("own"), O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        var request = DownloadRequest()
        request.start = false
        _ = try await client.download("http://127.0.0.1:1/a", into: descriptor, request)
        let (_, lines) = try await examine(desk)
        #expect(try line("database", lines).text.contains("1 downloads, 1 of them unfinished"), "\(lines)")
        #expect(!lines.contains { $0.subject == "disk" }, "\(lines)")
        close(descriptor)
        withExtendedLifetime(client) {}
        await desk.close()
    }

    @Test func `finds nothing wrong with the hidden folder of an asset that is being updated`() async throws {
        let server = ScriptedServer { request, reply in
            guard request.path == "/m.json" else { return reply.respond(503, ["Retry-After": "3600"]) }
            reply.respond(200, text: #"{"version": "1", "url": "1.zip", "sha256": "\#(String(repeating: "0", count: 64))"}"#)
        }
        let home = TemporaryFolder()
        let data = home.makeFolder(".data")
        let desk = await Desk(extra: ["XDG_DATA_HOME": data])
        let added = await desk.run("asset", "add", "org.example.App/maps", server.url("/m.json"))
        #expect(added.status == 0, "\(added)")
        let update = desk.start(["asset", "update", "org.example.App/maps"])
        #expect(await eventually { server.requests.contains { $0.path == "/1.zip" } })
        let disk = try line("disk", try await examine(desk).lines)
        #expect(disk.verdict == "found" && disk.text.hasPrefix("\(data)/todoku/assets/org.example.App/maps has "), "\(disk)")
        #expect(disk.text.hasSuffix("; one unfinished download needs it"), "\(disk)")
        await update.stop()
        await desk.close()
    }

    @Test func `finds a hidden or unwritable download folder`() async throws {
        let desk = await Desk()
        let hidden = desk.bus.folder.makeFolder("home/.hidden")
        desk.bus.folder.makeFolder("home/link-target")
        #expect(symlink(hidden, desk.bus.folder("home/Open")) == 0)
        writeFile(desk.bus.folder("config/user-dirs.dirs"), "XDG_DOWNLOAD_DIR=\"$HOME/Open\"\n".utf8)
        let (status, lines) = try await examine(desk)
        let folder = try line("download-folder", lines)
        #expect(status == 1 && folder.verdict == "wrong" && folder.text.contains("is hidden, or in a hidden folder"), "\(folder)")
        #expect(folder.advice?.contains("todoku settings default-directory") == true)
        writeFile(desk.bus.folder("home/file"), "".utf8)
        writeFile(desk.bus.folder("config/user-dirs.dirs"), "XDG_DOWNLOAD_DIR=\"$HOME/file\"\n".utf8)
        #expect(try line("download-folder", try await examine(desk).lines).text.hasSuffix("/file is not a folder"))
        await desk.close()
    }

    @Test @BusActor func `accepts a hidden download folder if the service would be started with the option for it`() async throws {
        let desk = await Desk()
        let hidden = desk.bus.folder.makeFolder("home/.hidden")
        #expect(symlink(hidden, desk.bus.folder("home/Open")) == 0)
        writeFile(desk.bus.folder("config/user-dirs.dirs"), "XDG_DOWNLOAD_DIR=\"$HOME/Open\"\n".utf8)
        for name in ["data/dbus-1", "data/dbus-1/services"] { desk.bus.folder.makeFolder(name) }
        let file = desk.bus.folder("data/dbus-1/services/org.todoku.Downloader1.service")
        func verdict(_ lines: String) async throws -> String {
            writeFile(file, "[D-BUS Service]\nName=org.todoku.Downloader1\n\(lines)\n".utf8)
            return try line("download-folder", try await examine(desk).lines).verdict
        }
        #expect(try await verdict("Exec=/bin/true --idle-exit 5") == "wrong")
        #expect(try await verdict("Exec=/bin/true --idle-exit 5 --allow-hidden-folders") == "found")
        // A unit has a command line of its own.
        let systemd = try StandInSystemd(on: desk.bus.address)
        systemd.unitFiles = ["todokud.service": "static"]
        let unit = "Exec=/bin/true --allow-hidden-folders\nSystemdService=todokud.service"
        systemd.commands = StandInSystemd.Commands([["/bin/true"]])
        #expect(try await verdict(unit) == "wrong")
        systemd.commands = StandInSystemd.Commands([["/bin/true", "--allow-hidden-folders"]])
        #expect(try await verdict(unit) == "found")
        withExtendedLifetime(systemd) {}
        await desk.close()
    }

    @Test func `tells the proxies that the service would use, without their passwords`() async throws {
        let desk = await Desk(extra: [
            "https_proxy": "http://me:secret@proxy.example:3128", "http_proxy": "", "all_proxy": "", "ALL_PROXY": "",
        ])
        let lines = try await examine(desk).lines.filter { $0.subject == "proxy" }
        let source = "by the environment of the session bus, which starts the service"
        #expect(lines.first?.text == "https goes through http://proxy.example:3128, \(source)", "\(lines)")
        #expect(lines.last?.text == "http goes without a proxy, by the settings of the desktop", "\(lines)")
        await desk.close()
    }

    /// A variable of a shell does not reach a service that the bus or systemd starts.
    @Test @BusActor func `tells the proxies of the service, and not those of the shell`() async throws {
        let none = ["https_proxy": "", "http_proxy": "", "all_proxy": "", "ALL_PROXY": "", "HTTPS_PROXY": "", "no_proxy": ""]
        let desk = await Desk(extra: none)
        let shell = desk.environment.merging(["https_proxy": "http://shell.example:1"]) { $1 }
        func proxy(in environment: [String: String]? = nil) async throws -> (text: String, advice: String) {
            let exit = await ask(environment ?? shell, ["--json"])
            let line = try #require(JSON(exit.output)?.array?.first { $0["subject"]?.string == "proxy" }, "\(exit)")
            return (line["text"]?.string ?? "", line["advice"]?.string ?? "")
        }
        let started = try await proxy()
        #expect(started.text == "https goes without a proxy, by the settings of the desktop", "\(started)")
        #expect(started.advice.hasSuffix("dbus-update-activation-environment --systemd https_proxy."), "\(started)")

        for name in ["data/dbus-1", "data/dbus-1/services"] { desk.bus.folder.makeFolder(name) }
        let file = desk.bus.folder("data/dbus-1/services/org.todoku.Downloader1.service")
        writeFile(file, "[D-BUS Service]\nName=org.todoku.Downloader1\nExec=/bin/true\nSystemdService=todokud.service\n".utf8)
        let systemd = try StandInSystemd(on: desk.bus.address)
        systemd.environment = ["LANG=C", "https_proxy=http://session.example:2/?a=b"]
        let unit = try await proxy()
        #expect(unit.text.hasPrefix("https goes through http://session.example:2"), "\(unit)")
        #expect(unit.text.hasSuffix(", by the environment that systemd starts the service with"), "\(unit)")
        #expect(unit.advice.hasPrefix("The proxy variables of this shell are others."), "\(unit)")
        // A shell without a proxy has nothing to give.
        #expect(try await proxy(in: desk.environment).advice == "")

        // A service that runs keeps what it was started with.
        #expect(await desk.run("list").status == 0)
        #expect(try await proxy().text == "https goes without a proxy, by the settings of the desktop")
        withExtendedLifetime(systemd) {}
        await desk.close()
    }

    @Test @BusActor func `finds what opens files: xdg-open if there is a display, else a portal that runs`() async throws {
        let desk = await Desk(tools: ["xdg-open": "#!/bin/sh\n"], extra: ["DISPLAY": ":77"])
        let opening = try line("opening", try await examine(desk).lines)
        #expect(opening.verdict == "found" && opening.text.hasSuffix("/xdg-open opens files"), "\(opening)")
        await desk.close()
        let blind = await Desk(tools: ["xdg-open": "#!/bin/sh\n"])
        let missing = try line("opening", try await examine(blind).lines)
        #expect(missing.verdict == "missing" && missing.text.contains("/xdg-open has no display to open files on, "), "\(missing)")
        #expect(missing.advice?.contains("dbus-update-activation-environment --systemd DISPLAY WAYLAND_DISPLAY") == true, "\(missing)")
        let portal = try StandInFilePortal(on: blind.bus.address)
        let found = try line("opening", try await examine(blind).lines)
        #expect(found.verdict == "found" && found.text.hasPrefix("the desktop portal opens files"), "\(found)")
        withExtendedLifetime(portal) {}
        await blind.close()
    }

    @Test func `finds the sound of an end where libcanberra does, or says which package has it`() async throws {
        let (shared, local) = (TemporaryFolder("todoku-share"), TemporaryFolder("todoku-local-share"))
        let desk = await Desk(extra: ["XDG_DATA_DIRS": "\(local.path):\(shared.path)"])
        let (status, lines) = try await examine(desk)
        let missing = try line("sound", lines)
        #expect(status == 0 && missing.verdict == "missing", "package libcanberra0: \(missing)")
        #expect(missing.text == "the theme “freedesktop” has no sound complete-download, so nothing is heard", "\(missing)")
        #expect(missing.advice == "Install sound-theme-freedesktop.")

        let own = desk.bus.folder("data")  // XDG_DATA_HOME
        for folder in [local.path, shared.path, own] { #expect(await Child.run(["mkdir", "-p", folder + stereo]).status == 0) }
        // Each of these files takes precedence over those before it: by its folder, its name, or the ending of its name.
        let files = [
            (shared.path, "complete.wav"), (shared.path, "complete-download.wav"), (shared.path, "complete-download.oga"),
            (local.path, "complete.oga"), (own, "complete.ogg"),
        ]
        for (folder, name) in files {
            let file = folder + stereo + "/" + name
            writeFile(file, [])
            let found = try line("sound", try await examine(desk).lines)
            #expect(found.verdict == "found" && found.advice == nil, "\(found)")
            #expect(found.text == "libcanberra is there, and the sound \(file); no sound was played")
        }
        await desk.close()
    }

    /// The folder of the sounds below a data folder.
    private let stereo = "/sounds/freedesktop/stereo"

    @Test func `says that no https server can be trusted without certificates`() async throws {
        let desk = await Desk(extra: ["SSL_CERT_FILE": "/nowhere/all.pem"])
        let (status, lines) = try await examine(desk)
        let certificates = try line("certificates", lines)
        #expect(status == 1 && certificates.verdict == "wrong" && certificates.text.contains("/nowhere/all.pem"), "\(certificates)")
        await desk.close()
    }
}

@Suite struct `What the doctor reads` {
    @Test func `is a store of certificates, as libcurl uses it`() {
        let folder = TemporaryFolder()
        let (file, empty, hashes) = (folder("all.pem"), folder("empty.pem"), folder.makeFolder("hashes"))
        writeFile(file, "# comment\n-----BEGIN CERTIFICATE-----\nMIIB\n".utf8)
        writeFile(empty, [])
        func verdict(_ store: CertificateStore?, _ environment: [String: String] = [:]) -> Finding.Verdict {
            CertificateExamination.finding(store, environment).verdict
        }
        #expect(verdict(CertificateStore(file: file, folder: nil)) == .found)
        #expect(verdict(CertificateStore(file: empty, folder: hashes)) == .wrong)
        #expect(verdict(CertificateStore(file: folder("absent"), folder: folder("absent"))) == .wrong)
        for name in ["README", "002c0b4f", "002c0b4f.x", "zzzzzzzz.0"] { writeFile("\(hashes)/\(name)", []) }
        #expect(verdict(CertificateStore(file: empty, folder: hashes)) == .wrong)
        writeFile("\(hashes)/002c0b4f.0", [])
        #expect(verdict(CertificateStore(file: empty, folder: hashes)) == .found)
        #expect(verdict(CertificateStore(file: file), ["SSL_CERT_FILE": empty]) == .wrong)
        #expect(verdict(CertificateStore(file: empty), ["SSL_CERT_FILE": file]) == .found)
        #expect(verdict(CertificateStore(file: empty), ["SSL_CERT_DIR": hashes, "SSL_CERT_FILE": ""]) == .found)
        // Either variable replaces the file and the folder.
        #expect(verdict(CertificateStore(file: file, folder: hashes), ["SSL_CERT_DIR": folder("absent")]) == .wrong)
        #expect(CertificateStore(file: "/f", folder: "/d").replaced(by: ["SSL_CERT_FILE": "/own"]) == CertificateStore(file: "/own"))
        #expect(verdict(CertificateStore(file: file), ["SSL_CERT_DIR": "\(folder("absent")):\(hashes)"]) == .found)
        #expect(verdict(CertificateStore()) == .found && verdict(nil) == .missing)
    }

    @Test(arguments: [
        ("[D-BUS Service]\nName=x\nExec=/usr/bin/todokud --log-level debug\nSystemdService=todokud.service\n", "/usr/bin/todokud", true),
        ("Exec=\"/opt/my programs/todokud\" -x", "/opt/my programs/todokud", false), ("Exec = '/a b/c'\n", "/a b/c", false),
        ("Name=x\n", "", false), ("", "", false), ("Exec=\"", "", false),
    ])
    func `is the program and the unit of an activation file`(text: String, program: String, hasUnit: Bool) {
        let file = ActivationFile("/f", text)
        #expect(file.program == program && (file.unit == "todokud.service") == hasUnit)
    }

    @Test(
        arguments: [
            (nil, Finding.Verdict.wrong), ("", .wrong), ("libcurl/7.84.9 OpenSSL/3.0.1 nghttp2/1.5", .wrong),
            ("libcurl/7.88.1 zlib/1.2.13", .wrong), ("libcurl/7.88.1 OpenSSL/3.0.17 zlib/1.2.13", .missing),
            ("libcurl/7.88.1-DEV (OpenSSL/3.0.17) GnuTLS/3 nghttp2/1.52.0", .found), ("libcurl/8.14.1 OpenSSL/3.5 nghttp2/1.64", .found),
            ("libcurl/99999999999999999999.1 OpenSSL nghttp2", .wrong), ("nonsense", .wrong),
        ] as [(String?, Finding.Verdict)])
    func `is the age of libcurl, and whether it has TLS and HTTP 2`(text: String?, verdict: Finding.Verdict) {
        #expect(LibraryExamination.curl(text).verdict == verdict)
    }

    @Test(arguments: [
        ("/", "ext4"), ("/home", "ext4"), ("/mnt", "vfat"), ("/mnt/a", "vfat"), ("/mnt2", "ext4"), ("/a b/c", "fuse.x"), ("/top", "tmpfs"),
    ])
    func `is the file system of a path`(path: String, type: String) {
        let table = """
            20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
            21 20 8:2 / /mnt rw shared:2 master:1 - vfat /dev/sdb1 rw
            22 20 0:5 / /a\\040b rw - fuse.x x rw
            23 20 0:6 / /top rw - ext3 x rw
            24 20 0:7 / /top rw - tmpfs x rw
            25 20
            nonsense
            """
        #expect(FileSystems.type(of: path, in: Array(table.utf8)) == type)
        #expect(FileSystems.type(of: path, in: []) == nil)
    }

    @Test @BusActor func `is a proxy without its credentials`() {
        for (proxy, shown) in [
            ("http://h:1", "http://h:1"), ("http://u:p@h:1", "http://h:1"), ("socks5h://u:p@x@h", "socks5h://h"), ("u:p@h:1", "h:1"),
            ("", ""),
        ] { #expect(ProxyExamination.withoutCredentials(proxy) == shown) }
    }
}
