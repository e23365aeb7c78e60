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
            programs: [builtProgram("todokud", variable: "TODOKUD"), builtProgram("todoku", variable: "TODOKU")],
            units: [
                "todokud.service": try unit("todokud.service"), "todoku-assets.service": try unit("todoku-assets.service"),
                "todokud.service.d/test.conf": """
                [Service]
                Environment=PATH=@bindir@:/usr/bin:/bin CANBERRA_DRIVER=null

                """,
            ], services: ["org.todoku.Downloader1": "todokud.service"])
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
