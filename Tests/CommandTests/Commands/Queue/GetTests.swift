import CSystem
import Glibc
import TestSupport
import Testing

@Suite(.serialized) struct `todoku get` {
    private let small = patternBytes(200_000)

    @Test func `downloads files, and reports the progress of each in lines`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { [small] request, reply in reply.serve(small, for: request) }
        let exit = await desk.run("get", server.url("/a.bin"), server.url("/%E6%97%A5%E6%9C%AC.bin?secret=1"))
        #expect(exit.status == 0)
        #expect(exit.errors == "")
        for line in ["1 queued\n", "2 queued\n", "1 finished \(desk.downloads)/a.bin\n", "2 finished \(desk.downloads)/日本.bin\n"] {
            #expect(exit.output.contains(line), "\(exit.output)")
        }
        #expect(!exit.output.contains("\u{1b}"))
        #expect(!exit.output.contains("secret"))
        #expect(readFile("\(desk.downloads)/a.bin") == small)
        await desk.close()
    }

    @Test func `puts a file where --output says, relative to the working folder`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { [small] request, reply in reply.serve(small, for: request) }
        desk.bus.folder.makeFolder("there")
        let exit = await desk.run("get", "-q", "-o", "there/it.bin", server.url("/a.bin"))
        #expect(exit.succeeded(saying: ""))
        #expect(readFile(desk.bus.folder("there/it.bin")) == small)
        await desk.close()
    }

    @Test func `sends the cookies of a file where a browser would, and names a bad line of it`() async throws {
        let desk = await Desk()
        let file = desk.bus.folder("cookies.txt")
        let lines = ["# Netscape", "127.0.0.1\tFALSE\t/\tFALSE\t0\tid\t1", "localhost\tFALSE\t/\tFALSE\t0\tother\t2", ""]
        writeFile(file, lines.joined(separator: "\n").utf8)
        let server = ScriptedServer { request, reply in
            let port = request.field("Host")?.split(separator: ":").last ?? ""
            if request.path == "/a" { return reply.respond(302, ["Location": "http://localhost:\(port)/b"]) }
            reply.respond(200, text: "here")
        }
        #expect(await desk.run("get", "-q", "--load-cookies", "cookies.txt", server.url("/a")).succeeded(saying: ""))
        #expect(server.requests.map { $0.field("Cookie") } == ["id=1", "other=2"])
        writeFile(file, "# Netscape\nid=1\n".utf8)
        let bad = await desk.run("get", "--load-cookies", "cookies.txt", server.url("/a"))
        #expect(bad.status == 2 && bad.errors == "todoku: cookies.txt, line 2: A cookie has 7 fields between tabs, and this line has 1.\n")
        await desk.close()
    }

    @Test func `unpacks an archive into a folder named after it, or into the named one`() async throws {
        let desk = await Desk()
        let place = desk.bus.folder.makeFolder("tree")
        writeFile("\(place)/readme", "hello".utf8)
        let archive = desk.bus.folder("a.tar.gz")
        #expect(await Child.run(["tar", "-C", place, "-czf", archive, "."]).status == 0)
        let bytes = try #require(readFile(archive))
        let server = ScriptedServer { request, reply in
            if request.path == "/page.zip" { reply.respond(200, text: "<html>log in</html>") } else { reply.serve(bytes, for: request) }
        }
        let exit = await desk.run("get", "--extract", server.url("/maps.tar.gz"))
        #expect(exit.status == 0 && exit.errors == "", "\(exit)")
        #expect(exit.output.contains("1 finished \(desk.downloads)/maps\n"), "\(exit.output)")
        #expect(readFile("\(desk.downloads)/maps/readme") == Array("hello".utf8))
        let named = await desk.run("get", "--extract=world", server.url("/maps.tar.gz"))
        #expect(named.output.contains("finished \(desk.downloads)/world\n"), "\(named)")
        let placed = await desk.run("get", "--extract=./here", server.url("/maps.tar.gz"))
        #expect(placed.output.contains("finished \(desk.bus.folder.path)/here\n"), "\(placed)")
        let wrong = await desk.run("get", "--extract", server.url("/page.zip"))
        #expect(wrong.status == 1 && wrong.errors.contains("it is a web page"), "\(wrong)")
        #expect(wrong.output.contains("failed org.todoku.Error.Extraction\n"))
        let two = await desk.run("get", "--extract=x", server.url("/1.tar.gz"), server.url("/2.tar.gz"))
        #expect(two.status == 2 && two.errors.contains("--extract=FOLDER is for one URL"), "\(two)")
        let replacing = await desk.run("get", "--extract", "--if-exists", "replace", server.url("/1.tar.gz"))
        #expect(replacing.status == 3 && replacing.errors.contains("if-exists"), "\(replacing)")
        let both = await desk.run("get", "--extract", server.url("/1.tar.gz"), server.url("/2.tar.gz"))
        #expect(both.status == 0 && fileExists("\(desk.downloads)/1/readme") && fileExists("\(desk.downloads)/2/readme"), "\(both)")
        await desk.close()
    }

    @Test func `exits with 1 and a sentence if a download fails, and continues with the others`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { [small] request, reply in
            if request.path == "/gone" { reply.respond(404) } else { reply.serve(small, for: request) }
        }
        let exit = await desk.run("get", server.url("/gone"), server.url("/here"))
        #expect(exit.status == 1)
        #expect(exit.errors.hasPrefix("todoku: gone (download 1) failed: "))
        #expect(exit.errors.contains("404") && exit.errors.split(separator: "\n").count == 1)
        #expect(exit.output.contains("1 failed org.todoku.Error.HttpStatus\n") && exit.output.contains("2 finished "))

        let json = await desk.run("get", "--json", server.url("/gone"))
        #expect(json.status == 1)
        #expect(json.errors == "")
        let last = try #require(json.output.split(separator: "\n").last.flatMap { JSON(String($0)) })
        #expect(last["event"]?.string == "ended")
        #expect(last["state"]?.string == "failed")
        #expect(last["error"]?["http-status"]?.number == 404)
        await desk.close()
    }

    /// The name servers are a preloaded object, so the machine's own are not asked.
    @Test(
        .enabled("without a network, no host is asked for") { todoku_has_interface() },
        .disabled(if: underSanitizer() != nil, "a sanitizer has to be loaded before any other object"))
    func `says of a mistyped host that it does not exist, after two retries`() async throws {
        let folder = TemporaryFolder("todoku-no-host")
        defer { withExtendedLifetime(folder) {} }
        let (object, source) = (folder("nohost.so"), "\(repository)/Tests/FaultShim/nohost.c")
        let compiled = await Child.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", object, source])
        try #require(compiled.status == 0, "\(compiled.errors)")
        let desk = await Desk(extra: ["LD_PRELOAD": object])
        let exit = await desk.run("get", "http://none.invalid/")
        let sentence = "There is no host with the name none.invalid; check the URL."
        #expect(exit.status == 1 && exit.errors.contains(" (download 1) failed: \(sentence)\n"), "\(exit)")
        #expect(exit.output.hasSuffix("1 failed org.todoku.Error.Network\n"), "\(exit)")
        // A wait takes half a second to two seconds. A command that pauses longer prints no line for that wait.
        let waits = exit.output.split(separator: "\n").filter { $0.hasPrefix("1 waiting ") }
        #expect(waits.count <= 2, "\(exit)")
        #expect(waits.allSatisfy { $0.hasPrefix("1 waiting retry until ") && $0.hasSuffix(": \(sentence)") }, "\(exit)")
        #expect(JSON(await desk.run("show", "--json", "1").output)?["attempts"]?.number == 3)
        let process = try #require(await desk.serviceProcess())
        let loaded = String(decoding: try #require(readFile("/proc/\(process)/maps")), as: UTF8.self)
        #expect(loaded.contains("/nohost.so\n"), "the service asked the machine's name servers")
        await desk.close()
    }

    @Test func `names both digests if the file is not that of --checksum`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { [small] request, reply in reply.serve(small, for: request) }
        let digits = hexadecimal(await digest(of: small))
        let wrong = String(digits.dropLast()) + (digits.last == "0" ? "1" : "0")
        let exit = await desk.run("get", "--checksum", "sha256:\(wrong)", server.url("/a.bin"))
        let reason = "The downloaded file is not the expected one: it has sha256:\(digits), not sha256:\(wrong)."
        #expect(exit.status == 1 && exit.errors == "todoku: a.bin (download 1) failed: \(reason)\n", "\(exit)")
        #expect(exit.output.contains("1 failed org.todoku.Error.ChecksumMismatch\n"), "\(exit)")
        #expect(await eventually { listFolder(desk.downloads) == [] })
        let right = await desk.run("get", "--checksum", "sha256:\(digits)", server.url("/a.bin"))
        #expect(right.status == 0 && fileHolds("\(desk.downloads)/a.bin", small), "\(right)")
        await desk.close()
    }

    @Test func `exits with 3 and the reason if the service refuses, and continues with the others`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { [small] request, reply in reply.serve(small, for: request) }
        let exit = await desk.run("get", "ftp://example.org/x", server.url("/a.bin"))
        #expect(exit.status == 3)
        #expect(exit.errors.hasPrefix("todoku: URL 1: ftp: only http and https"))
        #expect(exit.output.contains("finished "))
        let one = await desk.run("get", "--json", "nonsense")
        #expect(one.status == 3)
        #expect(one.errors == "")
        #expect(JSON(one.output)?["error"]?["name"]?.string == "org.todoku.Error.InvalidUrl")
        await desk.close()
    }

    @Test func `shows no percentage if the server sends no size`() async throws {
        let desk = await Desk()
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            reply.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            reply.chunk(patternBytes(3 << 20))
            gate.wait()
            reply.chunk([])
        }
        let child = desk.start(["get", server.url("/stream")])
        #expect(await child.says("1 progress "))
        #expect(!child.output.contains("%"))
        gate.open()
        let exit = await child.wait()
        #expect(exit.status == 0)
        #expect(exit.output.contains("1 finished "))
        await desk.close()
    }

    @Test func `leaves the download to the service at Ctrl-C`() async throws {
        let desk = await Desk()
        let (gate, body) = (Gate(), small)
        let server = ScriptedServer { _, reply in
            reply.head(200, length: body.count)
            reply.send(body[..<100_000])
            gate.wait()
            reply.send(body[100_000...])
        }
        let child = desk.start(["get", server.url("/slow.bin")])
        #expect(await child.says("1 progress 50 %"))
        child.signal(SIGINT)
        let exit = await child.wait()
        #expect(exit.status == 130)
        #expect(
            exit.errors == "todoku: the download continues in the background; “todoku watch 1” shows it, and “todoku cancel 1” cancels it\n"
        )
        gate.open()
        let wait = await desk.run("wait", "1")
        #expect(wait.succeeded(saying: "\(desk.downloads)/slow.bin\n"))
        #expect(readFile("\(desk.downloads)/slow.bin") == small)
        await desk.close()
    }

    /// People press Ctrl-C again out of habit, so no number of them may lose what was downloaded.
    @Test func `cancels nothing, however often Ctrl-C is pressed`() async throws {
        let desk = await Desk()
        let gate = Gate()
        let server = slowServer(until: gate)
        let child = desk.start(["get", server.url("/slow.bin"), server.url("/other.bin")])
        #expect(await child.says("2 started"))
        for _ in 0..<5 { child.signal(SIGINT) }
        let exit = await child.wait()
        #expect(exit.status == 130)
        #expect(exit.errors.contains("2 downloads continue in the background; “todoku watch 1 2” shows them"), "\(exit)")
        gate.open()
        #expect(await desk.run("wait", "1", "2").status == 0)
        await desk.close()
    }

    @Test func `draws bars in place at a terminal`() async throws {
        let desk = await Desk()
        let gate = Gate()
        let server = slowServer(after: 420, until: gate)
        // script(1) gives the command a terminal, and passes on its output.
        let url = server.url("/%E5%86%99%E7%9C%9F.bin")
        let child = Child(
            ["script", "-qec", "stty cols 90 rows 24; '\(Desk.command)' get '\(url)'", "/dev/null"], environment: desk.environment)
        #expect(await child.says("42 %"), "\(child.output) \(child.errors)")
        #expect(child.output.contains("写真.bin"))
        #expect(child.output.contains("█"))
        // The end of a line may come later than its beginning.
        #expect(await eventually { child.output.contains("420 B/1000 B") || child.output.contains("420/1000 B") }, "\(child.output)")
        gate.open()
        let exit = await child.wait()
        #expect(exit.status == 0)
        #expect(exit.output.contains("\u{1b}[1A\r\u{1b}[J"))
        #expect(exit.output.contains("finished  \(desk.downloads)/写真.bin  1000 B"))
        await desk.close()
    }

    @Test func `shows a failure in red at a terminal, as a list does, and nowhere else`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { _, reply in reply.respond(404) }
        writeFile(desk.bus.folder("list"), "\(server.url("/gone"))\n".utf8)
        // script(1) gives the command a terminal.
        func run(_ arguments: String, noColour: String = "") async -> String {
            let environment = desk.environment.merging(["NO_COLOR": noColour]) { $1 }
            let command = ["script", "-qec", "'\(Desk.command)' \(arguments)", "/dev/null"]
            return await Child(command, environment: environment, folder: desk.bus.folder.path).wait().output
        }
        let url = server.url("/gone")
        let get = await run("get '\(url)'")
        #expect(get.contains("todoku: \u{1b}[31mgone (download 1) failed: ") && get.contains("404"), "\(get)")
        let batch = await run("batch --wait --notify never list")
        #expect(batch.contains("todoku: \u{1b}[31mgone (download 3) failed: "), "\(batch)")
        let plain = await run("get '\(url)'", noColour: "1")
        #expect(plain.contains("todoku: gone (download 4) failed: ") && !plain.contains("\u{1b}[31m"), "\(plain)")
        // Only standard output is a terminal.
        let apart = await run("get '\(url)' 2>errors")
        #expect(apart.contains("\u{1b}[31mfailed  gone\u{1b}[39m"), "\(apart)")
        let errors = String(decoding: try #require(readFile(desk.bus.folder("errors"))), as: UTF8.self)
        #expect(errors.hasPrefix("todoku: gone (download 5) failed: ") && !errors.contains("\u{1b}"), "\(errors)")
        await desk.close()
    }

    @Test func `takes a password from a file, not from its arguments`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { [small] request, reply in
            guard request.field("Authorization") == "Basic bWU6c2VjcmV0" else {
                return reply.respond(401, ["WWW-Authenticate": "Basic realm=\"x\""])
            }
            reply.serve(small, for: request)
        }
        writeFile(desk.bus.folder("password"), "secret\n".utf8, mode: 0o600)
        #expect(await desk.run("get", "-q", "--user", "me", "--password-file", "password", server.url("/a.bin")).status == 0)
        let asked = server.requests.count
        let none = await desk.run("get", "-q", "--user", "me", "--password-file", "nowhere", server.url("/a.bin"))
        #expect(none.status == 2)
        #expect(none.errors == "todoku: cannot read the password from “nowhere”: No such file or directory\n")
        let folder = await desk.run("get", "-q", "--user", "me", "--password-file", ".", server.url("/a.bin"))
        #expect(folder.status == 2 && folder.errors == "todoku: cannot read the password from “.”: Is a directory\n", "\(folder)")
        // In UTF-16, letters of ASCII are UTF-8 with bytes of 0.
        writeFile(desk.bus.folder("wide"), "secret\n".utf8.flatMap { [$0, 0] })
        let wide = await desk.run("get", "-q", "--user", "me", "--password-file", "wide", server.url("/a.bin"))
        #expect(wide.status == 2 && wide.errors == "todoku: the password in “wide” is not UTF-8\n", "\(wide)")
        #expect(server.requests.count == asked, "without a password, nothing is requested")
        await desk.close()
    }
}
