import DBus
import DownloadModel
import DownloaderInterface
import EventLoop
import Glibc
import TestSupport
import Testing

@testable import todoku

private func document(_ files: (name: String, inside: String)...) -> String {
    let elements = files.map { "<file name=\"\($0.name)\">\($0.inside)</file>" }.joined(separator: "\n")
    return "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">\n\(elements)\n</metalink>"
}

/// The names of the files that a process has open.
private func openFiles(of process: Int32) -> [String] {
    listFolder("/proc/\(process)/fd").compactMap { descriptor in
        var buffer = [CChar](repeating: 0, count: 4096)
        let count = readlink("/proc/\(process)/fd/\(descriptor)", &buffer, buffer.count)
        return count < 0 ? nil : String(decoding: buffer.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}

/// A service whose calls end in an order that no test can force on the real one. It has one download, which never ends by itself.
@BusActor private final class StandInService: ObjectTree {
    /// What the first removal of the download does.
    enum Removal: CaseIterable {
        /// It ends `Wait`, as the real service does. Its own answer is still to come.
        case endsWait
        /// The download has just finished, so `Wait` succeeds. The answer to the removal is still to come.
        case comesTooLate
        /// It is answered, and the end of `Wait` is still to come.
        case isAnswered
        /// It gets no answer, and `Wait` does not end.
        case hangs
    }

    private static let path = ObjectPath("\(BusName.downloadsPath)/1")
    private static let manager = Face<StandInService>(
        Manager.interface, xml: { "" },
        methods: [
            Row(Manager.downloadToFd) { service, _, reply in service.queue(reply) },
            Row(Manager.downloadMetalink) { service, _, reply in
                service.batches += 1
                reply((ObjectPath("\(BusName.batchesPath)/1"), [path]))
            },
        ])
    private static let download = Face<StandInService>(
        Download.interface, xml: { "" },
        methods: [
            Row(Download.wait) { service, _, reply in service.waiting = reply },
            Row(Download.remove) { service, _, reply in service.remove(reply) },
        ])

    private let connection: Connection
    private let removal: Removal
    /// Whether the call that queues the document gets its answer.
    var answersQueueing = true
    private(set) var queueing: DBus.Reply<ObjectPath>?
    private(set) var waiting: DBus.Reply<String>?
    private var heldRemoval: DBus.Reply<Void>?
    private(set) var removals = 0
    private(set) var batches = 0

    init(on address: String, _ removal: Removal) throws {
        self.removal = removal
        connection = try Connection.open(address: address)
        connection.export(self)
        #expect(try connection.requestName(BusName.service))
    }

    private func queue(_ reply: DBus.Reply<ObjectPath>) {
        queueing = reply
        if answersQueueing { reply(Self.path) }
    }

    /// Answers the call that queues the document, and waits until the bus has passed the answer on.
    func answerQueueing() async throws {
        queueing?(Self.path)
        _ = try await connection.call(BusDaemon.getNameOwner, on: BusDaemon.name, at: BusDaemon.path, BusName.service)
    }

    private func remove(_ reply: DBus.Reply<Void>) {
        removals += 1
        guard removals == 1 else { return reply.fail(DBusError("org.freedesktop.DBus.Error.UnknownObject", "It is gone.")) }
        switch removal {
        case .endsWait: waiting?.fail(DBusError("org.todoku.Error.Cancelled", "The download was cancelled."))
        case .comesTooLate: waiting?("/release.meta4")
        case .isAnswered: return reply()
        case .hangs: break
        }
        heldRemoval = reply
    }

    func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? {
        switch path {
        case BusName.managerPath.value: [Self.manager.of(self)]
        case Self.path.value: [Self.download.of(self)]
        default: nil
        }
    }

    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
}

@Suite(.serialized) struct `todoku metalink` {
    private let body = patternBytes(5000)

    @Test func `queues the files of a document in a file, at a URL, or on standard input`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { [body] request, reply in reply.serve(body, for: request) }
        let sum = hexadecimal(await digest(of: body))
        let text = document(
            ("a.bin", "<hash type=\"sha-256\">\(sum)</hash><url>\(server.url("/x"))</url>"), ("b.bin", "<url>\(server.url("/y"))</url>"))
        writeFile(desk.bus.folder("list.meta4"), text.utf8)
        let file = await desk.run("metalink", "--wait", "--notify", "never", "list.meta4")
        #expect(file.status == 0 && file.errors == "" && file.output.hasPrefix("1\n"), "\(file)")
        #expect(file.output.hasSuffix("1 ended 2 finished\n"), "\(file)")
        #expect(readFile("\(desk.downloads)/a.bin") == body && readFile("\(desk.downloads)/b.bin") == body)
        let json = await desk.run("metalink", "--json", "--paused", "list.meta4")
        #expect(json.status == 0 && JSON(json.output)?["downloads"]?.array?.count == 2, "\(json)")
        for script in ["cat list.meta4 | \"$0\" metalink --paused -", "\"$0\" metalink --paused - <list.meta4"] {
            let exit = await Child(["sh", "-c", "cd '\(desk.bus.folder("."))'; \(script)", Desk.command], environment: desk.environment)
                .wait()
            #expect(exit.status == 0 && exit.errors == "", "\(script): \(exit)")
        }
        let publisher = ScriptedServer { _, reply in reply.respond(200, text: text) }
        // The document itself does not stay on the list, nor in the folder.
        func downloads() async -> Int {
            (JSON(await desk.run("list", "--all", "--json").output)?.array ?? []).compactMap { $0["download"]?.string }.count
        }
        let before = await downloads()
        writeFile(desk.bus.folder("cookies"), "127.0.0.1\tFALSE\t/\tFALSE\t0\tn\tv\n".utf8)
        let url = await desk.run(
            "metalink", "--wait", "--notify", "never", "--load-cookies", "cookies", "--directory", desk.downloads,
            publisher.url("/release.meta4"))
        #expect(url.status == 0 && url.output.hasSuffix("ended 2 finished\n"), "\(url)")
        #expect(publisher.requests.first?.field("Cookie") == "n=v")
        #expect(await downloads() == before + 2)
        #expect(listFolder(desk.downloads) == ["a (1).bin", "a.bin", "b (1).bin", "b.bin"])
        await desk.close()
    }

    /// As root, a file in `/` would be made, too. So the name of the open file counts.
    @Test func `puts the document into /tmp if TMPDIR is empty`() async throws {
        let desk = await Desk()
        let gate = Gate()
        defer { gate.open() }
        let text = document(("a.bin", "<url>http://127.0.0.1:1/a</url>"))
        let publisher = ScriptedServer { _, reply in
            gate.wait()
            reply.respond(200, text: text)
        }
        let environment = desk.environment.merging(["TMPDIR": ""]) { $1 }
        let child = Child([Desk.command, "metalink", "--paused", publisher.url("/release.meta4")], environment: environment)
        #expect(await eventually { !publisher.requests.isEmpty || !child.isRunning })
        let files = openFiles(of: child.pid)
        #expect(files.contains { $0.hasPrefix("/tmp/todoku-") }, "\(files)")
        gate.open()
        let url = await child.wait()
        #expect(url.status == 0 && url.errors == "", "\(url)")
        let script = "printf %s \"$0\" | \"$1\" metalink --paused -"
        let piped = await Child.run(["sh", "-c", script, text, Desk.command], environment: environment)
        #expect(piped.status == 0 && piped.errors == "", "\(piped)")
        await desk.close()
    }

    /// The batch is not queued yet, so there is nothing that could continue.
    @Test func `leaves nothing behind if Ctrl-C is pressed while the service fetches the document`() async throws {
        let desk = await Desk()
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            reply.head(200, length: 1000)
            reply.send([UInt8](repeating: 32, count: 500))
            gate.wait()
        }
        let child = desk.start(["metalink", "--notify", "never", server.url("/release.meta4")])
        // A signal before the command waits for the document would end it at once, as it does before any download is queued.
        #expect(await eventually { await desk.run("list", "--json").output.contains("\"state\":\"active\"") })
        #expect(await server.waitForRequests(1))
        child.signal(SIGINT)
        let exit = await child.wait()
        #expect(exit.status == 130 && exit.output == "", "\(exit)")
        #expect(exit.errors == "todoku: the document is no longer fetched, and nothing is queued\n", "\(exit)")
        #expect(await eventually { await desk.run("list", "--all", "--json").output == "[]\n" })
        #expect(listFolder(desk.downloads) == [])
        gate.open()
        await desk.close()
    }

    /// Ctrl-C removes the download, and so ends the wait for it.
    @Test(arguments: StandInService.Removal.allCases) @BusActor
    fileprivate func `ends as interrupted by Ctrl-C, whichever answer comes first`(removal: StandInService.Removal) async throws {
        let desk = await Desk(hasService: false)
        let service = try StandInService(on: desk.bus.address, removal)
        let child = desk.start(["metalink", "--quiet", "http://127.0.0.1:1/release.meta4"])
        #expect(await eventually { service.waiting != nil || !child.isRunning })
        child.signal(SIGINT)
        let exit = await child.wait()
        #expect(exit.status == 130 && exit.output == "" && exit.errors == "", "\(exit)")
        #expect(await eventually { service.removals > 0 })
        #expect(service.batches == 0)
        await desk.bus.stop()
    }

    /// A call of the client is given up after a minute only.
    @Test(arguments: [false, true]) @BusActor
    func `ends soon by Ctrl-C though the service hangs, before or after it has queued the document`(isQueued: Bool) async throws {
        let desk = await Desk(hasService: false)
        let service = try StandInService(on: desk.bus.address, .hangs)
        service.answersQueueing = isQueued
        let child = desk.start(["metalink", "--quiet", "http://127.0.0.1:1/release.meta4"])
        #expect(await eventually { (isQueued ? service.waiting != nil : service.queueing != nil) || !child.isRunning })
        child.signal(SIGINT)
        #expect(await eventually(within: .seconds(50)) { !child.isRunning })
        child.signal(SIGKILL)
        let exit = await child.wait()
        #expect(exit.status == 130 && exit.output == "" && exit.errors == "", "\(exit)")
        #expect(service.batches == 0)
        await desk.bus.stop()
    }

    /// The stopped command gets the signal and the answer at once, however long the answer takes.
    @Test @BusActor func `removes a document that the service has queued since Ctrl-C`() async throws {
        let desk = await Desk(hasService: false)
        let service = try StandInService(on: desk.bus.address, .isAnswered)
        service.answersQueueing = false
        let child = desk.start(["metalink", "--quiet", "http://127.0.0.1:1/release.meta4"])
        #expect(await eventually { service.queueing != nil || !child.isRunning })
        child.signal(SIGSTOP)
        child.signal(SIGINT)
        try await service.answerQueueing()
        child.signal(SIGCONT)
        let exit = await child.wait()
        #expect(exit.status == 130 && exit.output == "" && exit.errors == "", "\(exit)")
        #expect(await eventually { service.removals > 0 })
        #expect(service.batches == 0)
        await desk.bus.stop()
    }

    @Test func `names the document, its line and the fault, and queues nothing`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { _, reply in reply.respond(404) }
        writeFile(desk.bus.folder("bad.meta4"), document(("a", "<url>http://127.0.0.1:1/a</url>"), ("b", "")).utf8)
        let bad = await desk.run("metalink", "bad.meta4")
        #expect(bad.status == 3 && bad.output == "", "\(bad)")
        #expect(bad.errors == "todoku: bad.meta4: line 3: the file “b” has no URL of http or https that can be used.\n", "\(bad)")
        let json = await desk.run("metalink", "--json", "bad.meta4")
        #expect(json.status == 3 && JSON(json.output)?["error"]?["name"]?.string == "org.todoku.Error.InvalidOption", "\(json)")
        let missing = await desk.run("metalink", "missing")
        #expect(missing.status == 2 && missing.errors.contains("cannot read “missing”: No such file"), "\(missing)")
        let folder = await desk.run("metalink", ".")
        #expect(folder.status == 2 && folder.errors.contains("cannot read"), "\(folder)")
        let gone = await desk.run("metalink", server.url("/gone.meta4"))
        #expect(gone.status == 1 && gone.errors.contains("gone.meta4: ") && gone.errors.contains("404"), "\(gone)")
        for option in ["--checksum", "--output", "--size", "--token"] {
            #expect(await desk.run("metalink", option, "1", "bad.meta4").errors.contains("is for one URL"))
        }
        let twice = await desk.run("metalink", "--load-cookies", "-", "-")
        #expect(twice.status == 2 && twice.errors.contains("cannot give the password or cookies"), "\(twice)")
        for (option, value) in [("--header", "A: b"), ("--user", "me"), ("--referrer", "http://a/")] {
            let exit = await desk.run("metalink", option, value, server.url("/a"))
            #expect(exit.status == 2 && exit.errors.contains("do not go with the URL of a document"), "\(exit)")
        }
        #expect(JSON(await desk.run("list", "--all", "--json").output)?.array?.isEmpty == true)
        await desk.close()
    }

    @Test func `tells no secret of the document's URL`() async throws {
        let desk = await Desk()
        let server = ScriptedServer { _, reply in reply.respond(404) }
        let url = server.url("/list.meta4?key=SECRET").replacing("http://", with: "http://me:SECRET@")
        for arguments in [["metalink", url], ["metalink", "--json", url]] {
            let exit = await desk.start(arguments).wait()
            #expect(exit.status != 0 && !(exit.output + exit.errors).contains("SECRET"), "\(exit)")
            #expect((exit.output + exit.errors).contains("/list.meta4"), "\(exit)")
        }
        await desk.close()
    }
}
