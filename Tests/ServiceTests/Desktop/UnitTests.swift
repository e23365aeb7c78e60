internal import Glibc
internal import TestSupport
internal import Testing

@Suite struct `The units under a real systemd of a user` {
    /// The installed units, and a stand-in for `xdg-open` that writes down how it was started.
    private static func manager() async throws -> UserManager {
        func unit(_ name: String) throws -> String {
            String(decoding: try #require(readFile("\(repository)/data/\(name).in")), as: UTF8.self)
        }
        let manager = try await UserManager(
            programs: [
                builtProgram("todokud", variable: "TODOKUD"), builtProgram("todoku", variable: "TODOKU"),
                builtProgram("todoku-push", variable: "TODOKU_PUSH"), "\(repository)/Tests/Hosts/toast-recorder",
            ],
            units: [
                "todokud.service": try unit("todokud.service"), "todoku-assets.service": try unit("todoku-assets.service"),
                "todoku-push.service": try unit("todoku-push.service"),
                "todokud.service.d/test.conf": """
                [Service]
                Environment=PATH=@bindir@:/usr/bin:/bin CANBERRA_DRIVER=null
                StandardError=append:@home@/todokud.log

                """,
            ], services: ["org.todoku.Downloader1": "todokud.service", "org.todoku.Push1": "todoku-push.service"])
        let opened = "\(manager.home)/opened"
        writeFile(
            manager.folder("bin/xdg-open"),
            """
            #!/bin/sh
            { echo "$1"; cat /proc/self/cgroup; grep NoNewPrivs /proc/self/status; } >\(opened).new && mv \(opened).new \(opened)
            """.utf8, mode: 0o755)
        return manager
    }

    @Test(.enabled("only root can start it, and it is there") { await UserManager.isPossible() })
    func `bind the service, which downloads, unpacks and opens a file all the same`() async throws {
        let manager = try await Self.manager()
        let source = TemporaryFolder("todoku-archive")
        writeFile(source("inside"), "hello".utf8)
        #expect(await Child.run(["tar", "-C", source.path, "-czf", source("a.tar.gz"), "inside"]).status == 0)
        let archive = try #require(readFile(source("a.tar.gz")))
        let server = ScriptedServer { request, reply in
            if request.path == "/a.tar.gz" { reply.respond(200, body: archive) } else { reply.respond(200, text: "text") }
        }
        let downloads = "\(manager.home)/Downloads"
        let unpacked = await manager.run(["todoku", "get", "--quiet", "--extract", "-d", downloads, server.url("/a.tar.gz")])
        #expect(unpacked.status == 0, "\(unpacked)")
        #expect(readFile("\(downloads)/a/inside") == Array("hello".utf8))
        let log = String(decoding: readFile("\(manager.home)/todokud.log") ?? [], as: UTF8.self)
        if underSanitizer() == nil {
            #expect(log.contains("archives are unpacked by a confined process") && log.contains("seccomp"), "\(log)")
        }

        let process = await manager.property("MainPID", of: "todokud.service")
        let status = await manager.run(["cat", "/proc/\(process)/status"])
        #expect(status.output.contains("NoNewPrivs:\t1\n") && status.output.contains("Seccomp:\t2\n"), "\(status)")
        let doctor = await manager.run(["todoku", "doctor"])
        #expect(doctor.output.contains("systemd starts the service as todokud.service"), "\(doctor)")

        let got = await manager.run(["todoku", "get", "--quiet", "-d", downloads, server.url("/b.txt")])
        #expect(got.status == 0, "\(got)")
        let open = await manager.run(["todoku", "open", "2"])
        #expect(open.status == 0, "\(open)")
        let isOpened = await eventually { fileExists("\(manager.home)/opened") }
        let opened = String(decoding: readFile("\(manager.home)/opened") ?? [], as: UTF8.self)
        #expect(isOpened && opened.hasPrefix("\(downloads)/b.txt\n"), "\(opened)")
        #expect(opened.contains("/todoku-open-") && opened.hasSuffix("NoNewPrivs:\t0\n"), "it is bound as the service is: \(opened)")

        let assets = await manager.run(["systemctl", "--user", "start", "todoku-assets.service"])
        #expect(assets.status == 0, "\(assets)")
        await manager.stop()
    }

    @Test(.enabled("only root can start it, and it is there") { await UserManager.isPossible() })
    func `let the service show a toast`() async throws {
        let manager = try await Self.manager()
        let toasts = "\(manager.home)/toasts"
        let recorder = manager.folder("bin/toast-recorder")
        let started = await manager.run(["systemd-run", "--user", "--unit=toasts", recorder, toasts])
        #expect(started.status == 0, "\(started)")
        #expect(await manager.waitForOwner("org.freedesktop.Notifications"), "package python3-gi")
        let server = ScriptedServer { _, reply in reply.respond(200, text: "text") }
        let got = await manager.run(
            ["todoku", "get", "--quiet", "--notify", "always", "-d", "\(manager.home)/Downloads", server.url("/toasted.txt")])
        #expect(got.status == 0, "\(got)")
        #expect(
            await eventually {
                String(decoding: readFile(toasts) ?? [], as: UTF8.self).contains("ダウンロードが完了しました\ttoasted.txt")
            }, "\(String(decoding: readFile(toasts) ?? [], as: UTF8.self))")
        await manager.stop()
    }

    /// The statuses of RestartPreventExitStatus: 1, a database of a newer version; 2, another process with the name; 64, wrong usage.
    @Test(.enabled("only root can start it, and it is there") { await UserManager.isPossible() })
    func `do not start a service again whose start would fail again`() async throws {
        let manager = try await Self.manager()
        /// A unit that systemd starts again is “activating” meanwhile, and has failed after its last start only.
        func expectFailure(status: Int) async {
            let hasFailed = await eventually { await manager.property("ActiveState", of: "todokud.service") == "failed" }
            #expect(hasFailed, "status \(status)")
            #expect(await manager.property("ExecMainStatus", of: "todokud.service") == "\(status)")
            #expect(await manager.property("NRestarts", of: "todokud.service") == "0", "status \(status)")
            #expect(await manager.run(["systemctl", "--user", "reset-failed", "todokud.service"]).status == 0)
        }
        let other = await manager.run(
            ["systemd-run", "--user", "--unit=other", manager.folder("bin/todokud"), "--idle-exit", "3600"])
        #expect(other.status == 0, "\(other)")
        #expect(await manager.waitForOwner("org.todoku.Downloader1"))
        // systemctl may see the name’s other owner, and call that a start.
        _ = await manager.run(["systemctl", "--user", "start", "todokud.service"])
        await expectFailure(status: 2)

        #expect(await manager.run(["todoku", "add", "--paused", "http://127.0.0.1:1/a"]).output == "1\n")
        #expect(await manager.run(["systemctl", "--user", "stop", "other.service"]).status == 0)
        let newer = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('PRAGMA user_version = 999'); c.commit()"
        let changed = await manager.run(["python3", "-c", newer, "\(manager.home)/.local/state/todoku/todoku.db"])
        #expect(changed.status == 0, "\(changed)")
        let list = await manager.run(["todoku", "list"])
        #expect(list.status != 0 && list.errors.contains("newer Todoku"), "\(list)")
        await expectFailure(status: 1)

        await manager.write(
            "[Service]\nExecStart=\nExecStart=@bindir@/todokud --no-such-option\n", toUnit: "todokud.service.d/wrong.conf")
        #expect(await manager.run(["systemctl", "--user", "start", "todokud.service"]).status != 0)
        await expectFailure(status: 64)
        await manager.stop()
    }

    @Test(.enabled("only root can start it, and it is there") { await UserManager.isPossible() })
    func `bind todoku-push, which keeps its registrations, and start it again after a kill`() async throws {
        let manager = try await Self.manager()
        let name = ["org.todoku.Push1", "/org/todoku/Push1", "org.todoku.Push1"]
        let registered = await manager.run(
            ["busctl", "--user", "--timeout=120", "call"] + name + [
                "Register", "ssa{sv}", "org.example.App", "news", "1", "hosts", "as", "1", "example.org",
            ])
        #expect(registered.status == 0 && registered.output.contains("public-key"), "\(registered)")
        let process = await manager.property("MainPID", of: "todoku-push.service")
        let status = await manager.run(["cat", "/proc/\(process)/status"])
        #expect(status.output.contains("NoNewPrivs:\t1\n") && status.output.contains("Seccomp:\t2\n"), "\(status)")
        #expect(await manager.run(["kill", "-KILL", process]).status == 0)
        #expect(await eventually { await manager.property("NRestarts", of: "todoku-push.service") == "1" })
        let list = await manager.run(["busctl", "--user", "--timeout=120", "call"] + name + ["List", "s", ""])
        #expect(list.status == 0 && list.output.contains("\"org.example.App\""), "\(list)")

        // A wrong command line stays wrong.
        #expect(await manager.run(["systemctl", "--user", "stop", "todoku-push.service"]).status == 0)
        await manager.write(
            "[Service]\nExecStart=\nExecStart=@bindir@/todoku-push --no-such-option\n", toUnit: "todoku-push.service.d/wrong.conf")
        #expect(await manager.run(["systemctl", "--user", "start", "todoku-push.service"]).status != 0)
        #expect(await eventually { await manager.property("ActiveState", of: "todoku-push.service") == "failed" })
        #expect(await manager.property("NRestarts", of: "todoku-push.service") == "0")
        await manager.stop()
    }

    @Test(.enabled("only root can start it, and it is there") { await UserManager.isPossible() })
    func `start the service again after a kill, and its download resumes`() async throws {
        let manager = try await Self.manager()
        let (body, gate) = (patternBytes(1_000_000), Gate())
        defer { gate.open() }
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.serve(body, for: request, entityTag: "\"v\"") }
            reply.head(200, ["ETag": "\"v\""], length: body.count)
            reply.send(body[..<400_000])
            gate.wait()
        }
        let downloads = "\(manager.home)/Downloads"
        let added = await manager.run(["todoku", "add", "--stall-timeout", "1h", "-d", downloads, server.url("/a.bin")])
        #expect(added.output == "1\n", "\(added)")
        #expect(await server.waitForRequests(1))
        let process = await manager.property("MainPID", of: "todokud.service")
        #expect(await manager.run(["kill", "-KILL", process]).status == 0)
        // Nobody calls: systemd alone starts it.
        #expect(await server.waitForRequests(2))
        #expect(await manager.property("NRestarts", of: "todokud.service") == "1")
        let wait = await manager.run(["todoku", "wait", "1"])
        #expect(wait.output == "\(downloads)/a.bin\n", "\(wait)")
        #expect(fileHolds("\(downloads)/a.bin", body))
        await manager.stop()
    }
}
