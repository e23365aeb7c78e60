import DBus
import DownloaderInterface
import EventLoop
import Glibc
import TestSupport
import Testing

private let body = patternBytes(60_000)
private let status = #"{"type":"status"}"#

@Suite(.timeLimit(.minutes(10))) struct `The browser's program` {
    @Test(arguments: [(BrowserWorld.chromium, "org.chromium.Chromium"), (BrowserWorld.firefox, "org.mozilla.firefox")])
    func `queues a download that sends what the browser would send`(arguments: [String], app: String) async throws {
        let world = try await BrowserWorld()
        let server = ScriptedServer { request, reply in
            if request.field("Cookie") == "session=1" { reply.serve(body, for: request) } else { reply.respond(403) }
        }
        let message = """
            {"type":"download","url":"\(server.url("/file?key=1"))","referrer":"https://user@example.org/page#part",
             "user-agent":"Browser/1","filename":"../届い た.bin","headers":[{"name":"X-One","value":"a"},{"name":"X-One","value":"b"}],
             "cookies":[{"domain":"127.0.0.1","host-only":true,"path":"/","secure":false,"expires":0,"name":"session","value":"1"},
                        {"domain":".example.org","host-only":false,"path":"/","secure":false,"expires":0,"name":"other","value":"2"},
                        {"domain":"127.0.0.1","host-only":true,"path":"/","secure":false,"expires":0,"name":"","value":"nameless"}]}
            """
        let session = try await world.run([message], as: arguments)
        #expect(session.status == 0 && session.errors == "" && session.answers.count == 1)
        let path = try #require(session.answers.first?.path, "\(session.answers)")
        #expect(session.answers.first?["type"] == .string("accepted"))
        let file = try await world.file(of: path)
        #expect(file == world.bus.folder("home/Downloads/届い た.bin") && readFile(file) == body)
        #expect(try await world.property(Download.app, of: path) == app)
        let request = try #require(server.requests.first)
        #expect(request.field("User-Agent") == "Browser/1" && request.field("Referer") == nil)  // of an https page, to an http server
        #expect(request.fields.filter { $0.name == "X-One" }.map(\.value) == ["a", "b"])
    }

    @Test func `answers each message in its turn, and ends with the input`() async throws {
        let world = try await BrowserWorld()
        let session = try await world.run([status, #"{"type":"download","url":"ftp://example.org/a"}"#, status])
        #expect(session.status == 0 && session.errors == "" && session.answers.count == 3)
        #expect(session.answers.map { $0["type"]?.string } == ["status", "error", "status"])
        #expect(session.answers[0]["version"]?.string?.isEmpty == false)
        #expect(session.answers[0]["remaining"] == .number(0) && session.answers[0]["paused"] == .bool(false))
        #expect(session.answers[1].error?.name == "UnsupportedScheme")
        #expect(try await world.downloads().isEmpty)
        #expect(try await world.run([String]()).answers.isEmpty)
    }

    @Test func `answers before the input ends, also a message that arrives byte by byte`() async throws {
        let world = try await BrowserWorld()
        let folder = TemporaryFolder("todoku-browser")
        #expect(mkfifo(folder("in"), 0o600) == 0)
        let input = open(folder("in"), O_RDWR | O_CLOEXEC)
        let child = world.start(BrowserWorld.firefox, input: folder("in"), output: folder("out"))
        for count in 1...2 {
            for byte in framed(status) { #expect(write(input, [byte], 1) == 1) }
            #expect(
                await eventually { (try? BrowserWorld.answers(in: readFile(folder("out")) ?? []))?.count == count || !child.isRunning })
        }
        close(input)
        #expect(await child.wait().status == 0)
        #expect(try BrowserWorld.answers(in: readFile(folder("out")) ?? []).count == 2)
    }

    /// The first file or socket that a program opens gets the number of a stream that is closed.
    @Test func `writes no complaint into its own files and sockets if standard error is closed`() async {
        let folder = TemporaryFolder("todoku-browser")
        #expect(mkfifo(folder("in"), 0o600) == 0)
        let input = open(folder("in"), O_RDWR | O_CLOEXEC)
        let command = #"in=$1; shift; exec "$@" <"$in" 2>&-"#
        let child = Child(["sh", "-c", command, "sh", folder("in"), BrowserWorld.program] + BrowserWorld.chromium)
        #expect(await eventually { openFile(STDERR_FILENO, of: child.pid) == "/dev/null" })
        close(input)
        #expect(await child.wait().status == 0)
    }

    @Test func `names the fault of a message, queues nothing, and answers the next message`() async throws {
        let world = try await BrowserWorld()
        let cookie = #""domain":"a","name":"n","value":"v""#
        let wrong: [(message: String, fault: String)] = [
            ("", "line 1"), ("届", "line 1"), (#"{"type":"download""#, "line 1"), (#"{"type":"status","type":"status"}"#, "line 1"),
            ("[]", "is not an object"), ("{}", "“type” is missing"), (#"{"type":1}"#, "“type” is not a text"),
            (#"{"type":"fly"}"#, "“type” is not download, status or remove"), (#"{"type":"status","url":""}"#, "“url” is not known"),
            (#"{"type":"download"}"#, "“url” is missing"), (#"{"type":"download","url":["http://127.0.0.1:1/"]}"#, "“url” is not a text"),
            (#"{"type":"download","url":"http://127.0.0.1:1/","app":"org.example.App"}"#, "“app” is not known"),
            (#"{"type":"download","url":"http://127.0.0.1:1/","private":1}"#, "“private” is not true or false"),
            (#"{"type":"download","url":"http://127.0.0.1:1/","cookies":{}}"#, "“cookies” is not a list"),
            (#"{"type":"download","url":"http://127.0.0.1:1/","cookies":[1]}"#, "“cookies[0]” is not an object"),
            (#"{"type":"download","url":"u","cookies":[{"domain":"a","name":"n"}]}"#, "“cookies[0].value” is missing"),
            (#"{"type":"download","url":"u","cookies":[{\#(cookie),"expires":-1}]}"#, "“cookies[0].expires” is not a whole number"),
            (#"{"type":"download","url":"u","cookies":[{\#(cookie),"expires":1.5}]}"#, "“cookies[0].expires” is not a whole number"),
            (#"{"type":"download","url":"http://127.0.0.1:1/","headers":[{"name":"a"}]}"#, "“headers[0].value” is missing"),
            (#"{"type":"download","url":"http://127.0.0.1:1/","post-data":[]}"#, "“post-data” is not a text"),
            (#"{"type":"download","url":"http://127.0.0.1:1/","post-type":1}"#, "“post-type” is not a text"),
            (#"{"type":"download","url":"http://127.0.0.1:1/","filename":[[[[[]]]]]}"#, "nested too deep"),
            (#"{"type":"remove","download":"7"}"#, "“download” is not an object path"),
        ]
        let session = try await world.run(wrong.map(\.message) + [status])
        #expect(session.status == 0 && session.errors == "" && session.answers.count == wrong.count + 1)
        for (answer, wrong) in zip(session.answers, wrong) {
            let error = answer.error
            #expect(error?.name == "InvalidMessage" && error?.message.contains(wrong.fault) == true, "\(wrong.message): \(answer)")
        }
        #expect(session.answers.last?["type"] == .string("status"))
        #expect(try await world.downloads().isEmpty)
    }

    @Test func `skips a message that is too long, and answers the next one`() async throws {
        let world = try await BrowserWorld()
        let most = 4 << 20
        let longest = #"{"type":"status"}"# + String(repeating: " ", count: most - status.utf8.count)
        let tooLong = longest + " "
        let session = try await world.run([tooLong, longest, status])
        #expect(session.status == 0 && session.answers.map { $0["type"]?.string } == ["error", "status", "status"])
        #expect(session.answers.first?.error?.name == "MessageTooLong")
        #expect(session.answers.first?.error?.message.contains("\(most + 1)") == true)
    }

    @Test(arguments: [
        Array(framed(status).prefix(2)), Array(framed(status).dropLast()), framed(length: .max),
        framed(length: .max) + patternBytes(100_000),
        framed(length: 1 << 20),
    ])
    func `exits with an error if the input ends within a message`(input: [UInt8]) async throws {
        let world = try await BrowserWorld()
        let session = try await world.run(framed(status) + input)
        #expect(session.status == 65 && session.answers.count == 1)
        #expect(session.errors == "todoku-browser: the input ended within a message\n")
    }

    @Test(arguments: [
        ["chrome-extension://aaaabbbbccccddddeeeeffffgggghhhh/"], ["chrome-extension://cacmadanedhfdkjbogobdmpkjcncenap"],
        ["chrome-extension://cacmadanedhfdkjbogobdmpkjcncenap/x"], ["https://cacmadanedhfdkjbogobdmpkjcncenap/"],
        ["/usr/lib/mozilla/native-messaging-hosts/org.todoku.browser.json"],
        ["/usr/lib/mozilla/native-messaging-hosts/org.todoku.browser.json", "other@example.org"],
        ["browser@todoku.org", "browser@todoku.org"], ["x", BrowserWorld.chromium[0]], [""],
    ])
    func `serves no other extension`(arguments: [String]) async throws {
        let world = try await BrowserWorld(hasService: false)
        let session = try await world.run(framed(status), as: arguments)
        #expect(session.status == 77 && session.answers.isEmpty)
        #expect(session.errors.hasPrefix("todoku-browser: only the browser extension of Todoku ") && session.errors.hasSuffix("\n"))
    }

    @Test func `says that browsers start it`() async throws {
        let exit = await Child.run([BrowserWorld.program])
        #expect(exit.status == 64 && exit.output == "" && exit.errors.hasPrefix("todoku-browser: browsers start this program; "))
        let help = await Child.run([BrowserWorld.program, "--help"])
        #expect(help.status == 0 && help.output.hasPrefix("Usage: todoku-browser ") && help.errors == "")
    }

    @Test func `says that the service cannot be reached`() async throws {
        let world = try await BrowserWorld(hasService: false)
        let message = #"{"type":"download","url":"http://127.0.0.1:1/"}"#
        let session = try await world.run([message, status])
        #expect(session.status == 0 && session.answers.map { $0.error?.name } == ["ServiceUnavailable", "ServiceUnavailable"])
        let withoutBus = try await world.run(
            framed(message), extra: ["DBUS_SESSION_BUS_ADDRESS": "unix:path=\(world.bus.folder("no-bus"))"])
        #expect(withoutBus.status == 0 && withoutBus.answers.first?.error?.name == "ServiceUnavailable")
    }

    @Test func `removes a download that this browser has queued, and no other`() async throws {
        let world = try await BrowserWorld()
        let gate = Gate()
        defer { gate.open() }
        let server = ScriptedServer { request, reply in
            reply.head(200, length: body.count)
            reply.send(body.prefix(100))
            gate.wait()
        }
        let download = #"{"type":"download","url":"\#(server.url("/a.bin"))"}"#
        let own = try #require(try await world.run([download]).answers.first?.path)
        let other = try #require(try await world.run([download], as: BrowserWorld.firefox).answers.first?.path)
        let numbered = ObjectPath("\(BusName.downloadsPath)/1")
        let foreign = BusName.path(app: "org.chromium.Chromium", token: "another")
        let paths: [ObjectPath] = [own, other, numbered, foreign, own]
        let session = try await world.run(paths.map { #"{"type":"remove","download":"\#($0)"}"# })
        #expect(session.answers.map { $0["type"]?.string } == ["removed", "error", "error", "error", "removed"], "\(session.answers)")
        #expect(session.answers[1].error?.message == "The download was not queued by this browser.")
        #expect(try await world.downloads() == [other])
    }

    @Test func `has a form sent as the browser sent it`() async throws {
        let world = try await BrowserWorld()
        let server = ScriptedServer { request, reply in
            let isForm = request.field("Content-Type") == "text/plain;charset=UTF-8" && request.field("Content-Length") == "4"
            if request.method == "POST", isForm { reply.serve(body, for: request) } else { reply.respond(403) }
            reply.close()
        }
        let form = #""post-data":"a=é","post-type":"text/plain;charset=UTF-8""#
        let session = try await world.run([#"{"type":"download","url":"\#(server.url("/report.bin"))",\#(form)}"#])
        let path = try #require(session.answers.first?.path, "\(session.answers)")
        let file = try await world.file(of: path)
        #expect(fileHolds(file, body))
        #expect(server.requests.map(\.method) == ["POST"])
    }

    @Test func `leaves no trace of a private download but its file`() async throws {
        let world = try await BrowserWorld()
        let server = ScriptedServer { request, reply in reply.serve(body, for: request) }
        let session = try await world.run([#"{"type":"download","url":"\#(server.url("/secret.bin"))","private":true}"#])
        #expect(session.answers.first?["type"] == .string("accepted"), "\(session.answers)")
        #expect(await eventually { fileHolds(world.bus.folder("home/Downloads/secret.bin"), body) })
        #expect(try await eventually { try await world.downloads().isEmpty })
    }
}
