import Glibc
import TestSupport
import Testing

@testable import Upkeep

@Suite struct `The queue` {
    private let body = patternBytes(50_000)

    private func downloads(_ desk: Desk) async -> [String] {
        (JSON(await desk.run("list", "--all", "--json").output)?.array ?? []).map {
            "\($0["download"]?.string ?? "") \($0["state"]?.string ?? "")"
        }
    }

    @Test(arguments: ["queue.db", "ダウンロード/控え é?#%.db"])
    func `is backed up, reset and restored, whatever the name of the copy`(name: String) async throws {
        let desk = await Desk()
        desk.bus.folder.makeFolder("ダウンロード")
        let server = ScriptedServer { [body] request, reply in reply.serve(body, for: request) }
        #expect(await desk.run("get", "--quiet", server.url("/done")).status == 0)
        _ = await desk.run("add", "--paused", "-H", "X-Token: the-secret", server.url("/later"))
        _ = await desk.run("settings", "max-per-host", "3")
        let copy = desk.bus.folder(name)
        let backup = await desk.run("backup", name)
        #expect(backup.status == 0 && backup.output.hasPrefix("\(copy) (2 downloads, "), "\(backup)")
        var status = stat()
        #expect(stat(copy, &status) == 0 && status.st_mode & 0o777 == 0o600)
        #expect(try #require(readFile(copy)).firstRange(of: Array("the-secret".utf8)) == nil)
        let again = await desk.run("backup", name)
        #expect(again.status == 3 && again.errors == "todoku: \(copy) exists already; choose another name.\n", "\(again)")

        // Nobody can be asked, so nothing is lost.
        for command in [["reset"], ["restore", name]] {
            let refused = await Child.run(
                ["setsid", "--wait", Desk.command] + command, environment: desk.environment, folder: desk.bus.folder.path)
            #expect(refused.status == 2 && refused.errors.contains("give --yes"), "\(refused)")
        }
        #expect(await downloads(desk) == ["2 paused", "1 finished"])

        let reset = await desk.run("reset", "--yes")
        #expect(reset.status == 0 && reset.errors == "", "\(reset)")
        let kept = try #require(listFolder(desk.bus.folder("state/todoku")).first { $0.hasPrefix("backup-") })
        #expect(reset.output.hasPrefix("the former queue is kept in \(desk.bus.folder("state/todoku"))/\(kept) (2 downloads, "), "\(reset)")
        #expect(await downloads(desk).isEmpty)
        #expect(await desk.run("settings", "max-per-host").output != "3\n")
        #expect(fileHolds("\(desk.downloads)/done", body) && listFolder(desk.downloads) == ["done"])
        // No number is given twice.
        #expect(await desk.run("add", "--paused", server.url("/new")).output == "3\n")

        let restored = await desk.run("restore", "--yes", name)
        #expect(restored.status == 0 && restored.output.hasPrefix("restored \(copy) (2 downloads, "), "\(restored)")
        #expect(await downloads(desk) == ["2 paused", "1 finished"])
        #expect(await desk.run("settings", "max-per-host").output == "3\n")
        #expect(await desk.run("resume", "2").status == 0)
        #expect(await desk.run("wait", "2").succeeded(saying: "\(desk.downloads)/later\n"))
        #expect(await desk.run("add", "--paused", server.url("/newer")).output == "4\n")
        await desk.close()
    }

    @Test func `loses the bytes of unfinished downloads in a reset, and nothing else`() async throws {
        let desk = await Desk()
        let gate = Gate()
        let server = ScriptedServer { [body] request, reply in
            if request.path == "/half" {
                reply.send("HTTP/1.1 200 OK\r\nContent-Length: \(body.count)\r\n\r\n")
                reply.send(body.prefix(20_000))
                gate.wait()
            } else {
                reply.serve(body, for: request)
            }
        }
        #expect(await desk.run("get", "--quiet", server.url("/done")).status == 0)
        _ = await desk.run("add", "--stall-timeout", "1h", server.url("/half"))
        #expect(await eventually { listFolder(desk.downloads).count == 2 })
        let reset = await desk.run("reset", "--yes", "--json")
        let json = try #require(JSON(reset.output), "\(reset)")
        #expect(reset.status == 0 && json["backup"]?.string?.hasSuffix(".db") == true && json["set-aside"] == .null, "\(reset)")
        // The next start deletes what was not deleted yet.
        #expect(await desk.run("list").status == 0)
        #expect(await eventually { listFolder(desk.downloads) == ["done"] })
        gate.open()
        await desk.close()
    }

    @Test func `is told to the apps by a reset, with what came while the question was open`() async throws {
        let desk = await Desk()
        let gate = Gate()
        defer { gate.open() }
        let server = ScriptedServer { [body] request, reply in
            if request.path == "/half" { gate.wait() }
            reply.serve(body, for: request)
        }
        #expect(await desk.run("get", "--quiet", server.url("/done")).status == 0)
        // As an app, the command waits for the end of its download.
        var app: Child?
        let reset = await Child.converse(
            "'\(Desk.command)' reset", question: "Delete the queue? [y/N]", ["y\n"], environment: desk.environment, folder: desk.bus.folder
        ) {
            app = desk.start(["get", "--quiet", "--stall-timeout", "1h", server.url("/half")])
            _ = await server.waitForRequests(2)
        }
        #expect(reset.status == 0, "\(reset)")
        let end = try #require(await app?.wait())
        #expect(end.status == 1, "not that there is no such download: \(end)")
        await desk.close()
    }

    @Test func `that is restored downloads again what has arrived since, under another name`() async throws {
        let desk = await Desk()
        let gate = Gate()
        let server = ScriptedServer { [body] _, reply in
            reply.send("HTTP/1.1 200 OK\r\nContent-Length: \(body.count)\r\n\r\n")
            reply.send(body.prefix(20_000))
            gate.wait()
            reply.send(body.dropFirst(20_000))
        }
        _ = await desk.run("add", "--stall-timeout", "1h", server.url("/half"))
        // Its part file is there.
        #expect(await eventually { !listFolder(desk.downloads).isEmpty })
        #expect(await desk.run("backup", "queue.db").status == 0)
        gate.open()
        #expect(await desk.run("wait", "1").succeeded(saying: "\(desk.downloads)/half\n"))
        #expect(await desk.run("restore", "--yes", "queue.db").status == 0)
        let again = await desk.run("wait", "1")
        #expect(again.succeeded(saying: "\(desk.downloads)/half (1)\n"), "\(again)")
        #expect(["half", "half (1)"].allSatisfy { fileHolds("\(desk.downloads)/\($0)", body) })
        await desk.close()
    }

    @Test func `that is damaged is set aside by a reset`() async throws {
        let desk = await Desk()
        let state = desk.bus.folder.makeFolder("state/todoku")
        writeFile("\(state)/todoku.db", patternBytes(9000))
        let reset = await desk.run("reset", "--yes", "--json")
        let aside = try #require(JSON(reset.output)?["set-aside"]?.string, "\(reset)")
        #expect(reset.status == 0 && fileHolds(aside, patternBytes(9000)), "\(reset)")
        #expect(await downloads(desk).isEmpty)
        await desk.close()
    }

    @Test func `that is damaged leaves no part file behind when it is replaced by a backup`() async throws {
        let desk = await Desk()
        let gate = Gate()
        defer { gate.open() }
        let server = ScriptedServer { [body] _, reply in
            reply.send("HTTP/1.1 200 OK\r\nContent-Length: \(body.count)\r\n\r\n")
            reply.send(body.prefix(20_000))
            gate.wait()
        }
        _ = await desk.run("settings", "max-per-host", "3")
        #expect(await desk.run("backup", "queue.db").status == 0)
        _ = await desk.run("add", "--stall-timeout", "1h", server.url("/half"))
        #expect(await eventually { !listFolder(desk.downloads).isEmpty })
        try await endService(desk, by: SIGTERM)
        #expect(!listFolder(desk.downloads).isEmpty)
        // The first page has the names of the tables, behind the header of 100 bytes. The rows are on other pages.
        let queue = desk.bus.folder("state/todoku/todoku.db")
        var bytes = try #require(readFile(queue))
        for index in 100..<4096 { bytes[index] = 0 }
        writeFile(queue, bytes, mode: 0o600)
        let restored = await desk.run("restore", "--yes", "queue.db")
        #expect(restored.status == 0, "\(restored)")
        #expect(await downloads(desk).isEmpty)
        #expect(await eventually { listFolder(desk.downloads).isEmpty }, "\(listFolder(desk.downloads))")
        await desk.close()
    }

    private func endService(_ desk: Desk, by signal: Int32) async throws {
        let process = try #require(await desk.serviceProcess())
        kill(process, signal)
        #expect(await eventually { hasEnded(process) })
    }

    /// Restores a backup of an earlier queue. The former queue must be in the copy, or in the database that was set aside.
    private func restore(_ backup: String, on desk: Desk, keepingBytes text: String) async throws {
        let restored = await desk.run("restore", "--yes", backup, "--json")
        let json = try #require(JSON(restored.output), "\(restored)")
        let former = ["backup", "set-aside"].compactMap { json[$0]?.string }.compactMap(readFile)
        #expect(restored.status == 0 && former.contains { $0.firstRange(of: Array(text.utf8)) != nil }, "\(restored)")
        #expect(await downloads(desk) == ["1 paused"])
    }

    /// The service and the restore read all rows, so only the check of the pages finds the fault.
    @Test func `that is damaged where no row is stored is kept when it is replaced by a backup`() async throws {
        let desk = await Desk()
        _ = await desk.run("add", "--paused", "http://127.0.0.1:1/before")
        #expect(await desk.run("backup", "queue.db").status == 0)
        _ = await desk.run("add", "--paused", "http://127.0.0.1:1/today")
        try await endService(desk, by: SIGTERM)
        // From byte 36 on, the file has the number of its free pages (SQLite, "Database File Format").
        let queue = desk.bus.folder("state/todoku/todoku.db")
        var bytes = try #require(readFile(queue))
        bytes[39] &+= 5
        writeFile(queue, bytes, mode: 0o600)
        try await restore("queue.db", on: desk, keepingBytes: "http://127.0.0.1:1/today")
        await desk.close()
    }

    /// A program that only reads cannot read a log without its index.
    @Test func `that a killed service has left without the index of its log is kept when it is replaced by a backup`() async throws {
        let desk = await Desk()
        _ = await desk.run("add", "--paused", "http://127.0.0.1:1/before")
        #expect(await desk.run("backup", "queue.db").status == 0)
        // An end without a kill empties the log.
        try await endService(desk, by: SIGTERM)
        _ = await desk.run("add", "--paused", "http://127.0.0.1:1/today")
        try await endService(desk, by: SIGKILL)
        let queue = desk.bus.folder("state/todoku/todoku.db")
        #expect(readFile(queue + "-wal")?.isEmpty == false)
        #expect(unlink(queue + "-shm") == 0)
        try await restore("queue.db", on: desk, keepingBytes: "http://127.0.0.1:1/today")
        await desk.close()
    }

    @Test func `is the present one or the restored one, whenever a restore is killed`() async throws {
        let desk = await Desk()
        _ = await desk.run("add", "--paused", "http://127.0.0.1:1/a", "http://127.0.0.1:1/b")
        #expect(await desk.run("backup", "queue.db").status == 0)
        let backup = await downloads(desk)
        var last = 2
        for seconds in ["0.01", "0.03", "0.05", "0.08", "0.12", "0.2", "0.4"] {
            let added = await desk.run("add", "--paused", "http://127.0.0.1:1/c").output
            let number = try #require(Int(added.split(separator: "\n").first ?? ""), "\(added)")
            #expect(number > last)
            last = number
            let present = await downloads(desk)
            _ = await Child.run(
                ["timeout", "-s", "KILL", seconds, Desk.command, "restore", "--yes", "queue.db"], environment: desk.environment,
                folder: desk.bus.folder.path)
            let after = await downloads(desk)
            #expect(after == present || after == backup, "\(after)")
        }
        await desk.close()
    }

    @Test func `is copied by a reset although the copy of another one was interrupted within the same second`() async throws {
        let desk = await Desk()
        _ = await desk.run("add", "--paused", "http://127.0.0.1:1/a")
        // The reset takes its name within these seconds.
        let folder = desk.bus.folder("state/todoku")
        for second in 0..<300 { writeFile("\(folder)/backup-\(stamp(of: time(nil) + second)).db.new", []) }
        let reset = await desk.run("reset", "--yes", "--json")
        let copy = try #require(JSON(reset.output)?["backup"]?.string, "\(reset)")
        #expect(reset.status == 0 && copy.hasPrefix("\(folder)/backup-") && copy.hasSuffix("-2.db"), "\(reset)")
        #expect(await desk.run("restore", "--yes", copy).status == 0)
        #expect(await downloads(desk) == ["1 paused"])
        await desk.close()
    }

    /// A time in the name of a copy, `YYYYMMDD-HHMMSS` (UTC).
    private func stamp(of time: time_t) -> String {
        var (time, parts) = (time, tm())
        gmtime_r(&time, &parts)
        var text = [CChar](repeating: 0, count: 32)
        let count = strftime(&text, text.count, "%Y%m%d-%H%M%S", &parts)
        return String(decoding: text.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    /// The service works on its last calls first, and has ten seconds for its disks after that.
    @Test func `is replaced after an end of the service that lasts as long as its manual says`() throws {
        let page = String(decoding: try #require(readFile("\(repository)/data/man/todokud.8")), as: UTF8.self)
        let calls = page.firstMatch(of: #/for a call that is not done after ([0-9]+) seconds/#).flatMap { Int64($0.output.1) }
        let promised: Duration = .seconds(try #require(calls) + 10)
        #expect(ServiceEnd.patience > promised)
    }

    @Test func `of a service with another state folder is left alone`() async throws {
        let desk = await Desk()
        _ = await desk.run("add", "--paused", "http://127.0.0.1:1/a")
        #expect(await desk.run("backup", "queue.db").status == 0)
        let process = await desk.serviceProcess()
        let elsewhere = desk.environment.merging(["XDG_STATE_HOME": desk.bus.folder("elsewhere")]) { $1 }
        for command in [["reset", "--yes"], ["restore", "--yes", "queue.db"], ["backup", "other.db"]] {
            let refused = await Child.run([Desk.command] + command, environment: elsewhere, folder: desk.bus.folder.path)
            #expect(refused.status == 3 && refused.errors.contains("give both the same XDG_STATE_HOME"), "\(refused)")
        }
        #expect(await desk.serviceProcess() == process && !fileExists(desk.bus.folder("elsewhere")))
        #expect(await downloads(desk) == ["1 paused"])
        await desk.close()
    }

    @Test func `is neither copied nor deleted where there is none`() async throws {
        let desk = await Desk(isFirstRun: true)  // no state folder has been made
        let backup = await desk.run("backup", "--json", "queue.db")
        #expect(backup.status == 3 && JSON(backup.output)?["error"]?["message"]?.string?.contains("nothing to copy") == true, "\(backup)")
        let reset = await desk.run("reset", "--yes")
        #expect(reset.status == 0 && reset.errors == "todoku: there is no queue, so there is nothing to reset\n", "\(reset)")
        let json = await desk.run("reset", "--yes", "--json")
        let empty = #"{"restored":null,"restored-push-registrations":0,"backup":null,"set-aside":null}"#
        #expect(json.succeeded(saying: empty + "\n"), "\(json)")
        writeFile(desk.bus.folder("text"), "no database".utf8)
        let restore = await desk.run("restore", "--yes", "text")
        #expect(restore.status == 3 && restore.errors.contains("is damaged"), "\(restore)")
        #expect(await desk.run("restore", "--yes", "absent").status == 3)
        #expect(await desk.serviceProcess() == nil && listFolder(desk.bus.folder("state")).isEmpty)
        await desk.close()
    }
}
