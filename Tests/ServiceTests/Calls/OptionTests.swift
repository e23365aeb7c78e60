internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite struct `The options` {
    @Test func `that are supported are those of the code and of the documentation`() async throws {
        let running = try await Running.start()
        let names = OptionRow.all.map(\.key).sorted()
        #expect(try await running.client.get(Manager.supportedOptions) == names)
        let document = try #require(InterfaceXML.document(of: Download.interface))
        let start = try #require(document.start(of: "Options of the method Download"))
        let lines = document[start...].prefix { $0 != ">" }.split(separator: "\n").map { $0.trimmed }
        // "app (s): …", "username (s), password (s): …", "extract (b or s): …"
        var documented: [String: String] = [:]
        for line in lines {
            for part in line.prefix(while: { $0 != ":" }).split(separator: ",") where line.contains("): ") {
                let words = part.split(separator: " ", maxSplits: 1)
                if words.count == 2, words[1].hasPrefix("("), words[1].hasSuffix(")") {
                    documented[String(words[0])] = String(words[1].dropFirst().dropLast())
                }
            }
        }
        #expect(documented == Dictionary(uniqueKeysWithValues: OptionRow.all.map { ($0.key, $0.types) }))
    }

    @Test func `are all taken, and kept over a restart`() async throws {
        let world = await ServiceWorld()
        let client = try await world.client()
        let daemon = await world.start()
        let options: [String: Variant] = [
            "app": .string("org.example.App"), "token": .string("t1"), "directory": .string(world.folder), "filename": .string("n.bin"),
            "if-exists": .string("fail"), "headers": .dictionary([("X-A", "1")]), "user-agent": .string("ua"),
            "header-list": .array(of: "(ss)", [.structure([.string("X-B"), .string("1")]), .structure([.string("X-B"), .string("2")])]),
            "cookies": .strings([".example.org\tTRUE\t/\tTRUE\t0\tn\tv", "127.0.0.1\tFALSE\t/\tFALSE\t0\tm\tw"]),
            "referrer": .string("http://example.org/"), "username": .string("u"), "password": .string("p"),
            "proxy": .string("HTTP://u:p@Proxy.example.org:3128/"),
            "mirrors": .strings([
                "https://m.example.org/a", "https://m.example.org/a", "http://127.0.0.1:1/a", "HTTP://N.example.org:80/b?c",
            ]),
            "checksum": .string("SHA256:" + String(repeating: "aB", count: 32)), "size": .uint64(10), "max-size": .uint64(20),
            "find-mirrors": .bool(true),
            "piece-hashes": .string("SHA256:5:" + String(repeating: "aB", count: 64)),
            "start": .bool(false), "expect-type": .string("image/*"), "not-before": .uint64(4_000_000_000_000_000),
            "deadline": .uint64(1000), "renewable": .bool(true), "allow-metered": .bool(false), "allow-private": .bool(true),
            "allow-downgrade": .bool(true),
            "request-interval": .uint32(1500), "only-if-changed": .bool(true), "activate": .string("org.example.App"),
            "priority": .int32(-3), "speed-limit": .uint64(1000), "connections": .uint32(4),
            "stall-timeout": .uint32(5000), "retries": .uint32(3),
            "tag": .string("group"),
            "notify": .string("never"), "title": .string("題"), "body": .string("本文"), "icon": .string("folder"), "sound": .string(""),
            "notify-delay": .uint32(1500), "desktop-id": .string("org.example.App"),
            "show-progress": .bool(false), "metadata": .dictionary(["k": .int32(1)]),
        ]
        // The others do not go with `only-if-changed`; ExtractTests, PostTests and PrivateTests have them.
        #expect(Set(options.keys).union(["extract", "post-data", "post-type", "private"]) == Set(OptionRow.all.map(\.key)))
        let path = try await client.download("http://127.0.0.1:1/a", options)
        let before = try await client.all(path)
        #expect(before["App"] == .string("org.example.App"))
        #expect(before["Tag"] == .string("group"))
        #expect(before["Token"] == .string("t1"))
        #expect(before["Priority"] == .int32(-3))
        #expect(before["SpeedLimit"] == .uint64(1000))
        #expect(before["State"] == .string("paused"))
        #expect(before["FileName"] == .string("n.bin"))
        #expect(before["Total"] == .int64(10))
        // Each source once, without its query.
        let sources = try #require(before["Sources"].flatMap { SourceList($0) }?.sources)
        #expect(sources.map(\.url) == ["http://127.0.0.1:1/a", "https://m.example.org/a", "http://n.example.org/b"])
        #expect(sources.allSatisfy { $0.received == 0 && $0.speed == 0 && $0.left == nil })
        #expect(await world.stop(daemon).status == 0)
        _ = await world.start()
        #expect(try await client.all(path) == before)
        // The same request still counts as the same.
        #expect(try await client.download("http://127.0.0.1:1/a", options) == path)
        #expect(try await client.call(Download.getMetadata, at: path, ()) == ["k": .int32(1)])
    }

    /// As gdbus, Python and JavaScript send numbers if nobody names their type.
    @Test(arguments: ["y", "n", "q", "i", "u", "x", "t"]) func `with numbers take any type of integer`(type: String) async throws {
        func number(_ value: Int) -> Variant {
            switch type {
            case "y": .byte(UInt8(value))
            case "n": .int16(Int16(value))
            case "q": .uint16(UInt16(value))
            case "i": .int32(Int32(value))
            case "u": .uint32(UInt32(value))
            case "x": .int64(Int64(value))
            default: .uint64(UInt64(value))
            }
        }
        let running = try await Running.start()
        let client = running.client
        let keys = [
            "size", "max-size", "priority", "speed-limit", "connections", "stall-timeout", "retries", "not-before", "deadline",
            "request-interval", "notify-delay",
        ]
        #expect(Set(keys) == Set(OptionRow.all.filter { ["i", "u", "t"].contains($0.signature) }.map(\.key)))
        var options = Dictionary(uniqueKeysWithValues: keys.map { ($0, number(9)) })
        options["start"] = .bool(false)
        let path = try await running.download("http://127.0.0.1:1/a", options)
        #expect(try await client.get(Download.priority, at: path) == 9)
        #expect(try await client.get(Download.speedLimit, at: path) == 9)
        // Items of a batch, filters, host rules and properties, too.
        let (_, members) = try await client.call(
            Manager.downloadBatch,
            ([Structure("http://127.0.0.1:1/b", ["priority": number(7)])], ["start": .bool(false), "retries": number(0)]))
        let member = try #require(members.first)
        #expect(try await client.get(Download.priority, at: member) == 7)
        #expect(try await client.list(["limit": number(1)]).count == 1)
        try await client.call(Manager.setHostRule, ("example.org", ["connections": number(3), "request-interval": number(5)]))
        #expect(
            try await client.get(Manager.hostRules).rules["example.org"] == HostRule(connections: 3, requestInterval: .milliseconds(5)))
        for (object, interface, name) in [
            (path, Download.interface, "Priority"), (path, Download.interface, "SpeedLimit"),
            (BusName.managerPath, Manager.interface, "MaxActive"), (BusName.managerPath, Manager.interface, "DiskReserve"),
        ] {
            try await client.call(Standard.set, at: object, (interface, name, number(11)))
            let value = try await client.get(interface, name, at: object)
            #expect(value.integer == 11, "\(name)")
        }
    }

    @Test func `with a number that does not fit is refused with the numbers that do`() async throws {
        let running = try await Running.start()
        for (key, value, range) in [
            ("retries", Variant.int32(-1), "from 0 to 4294967295, not -1"),
            ("priority", .uint32(.max), "from -2147483648 to 2147483647, not 4294967295"),
            ("size", .int64(-5), "from 0 to 18446744073709551615, not -5"),
        ] {
            let error = await thrown { try await running.download("http://127.0.0.1:1/a", [key: value]) }
            #expect(error?.name == todokuError("InvalidOption") && error?.message == "Option \(key) takes a number \(range).")
        }
    }

    @Test func `headers, user agent, referrer and credentials go to the first origin only`() async throws {
        let running = try await Running.start()
        let other = ScriptedServer { _, reply in reply.respond(200, text: "moved") }
        let first = ScriptedServer { request, reply in
            guard request.field("Authorization") != nil else { return reply.respond(401, ["WWW-Authenticate": "Basic realm=\"a\""]) }
            if request.path == "/a" {
                reply.respond(302, ["Location": "/b"])
            } else {
                reply.respond(302, ["Location": other.otherURL("/c")])
            }
        }
        try await running.fetch(
            first.url("/a"),
            [
                "headers": .dictionary([("X-Token", "secret"), ("Cookie", "a=b")]), "user-agent": .string("Special/1"),
                "referrer": .string("http://example.org/page"), "username": .string("user"), "password": .string("pass"),
            ])
        #expect(Set(first.requests.map(\.target)) == ["/a", "/b"])
        #expect(first.requests.filter { $0.field("Authorization") == "Basic dXNlcjpwYXNz" }.map(\.target) == ["/a", "/b"])
        for request in first.requests {
            #expect(request.field("X-Token") == "secret")
            #expect(request.field("Cookie") == "a=b")
            #expect(request.field("Referer") == "http://example.org/page")
            #expect(request.field("User-Agent") == "Special/1")
        }
        let last = try #require(other.requests.first)
        for name in ["X-Token", "Cookie", "Referer", "Authorization"] { #expect(last.field(name) == nil, "\(name)") }
    }

    @Test func `user and password in a URL are sent, and shown nowhere`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { request, reply in
            if request.field("Authorization") == nil {
                reply.respond(401, ["WWW-Authenticate": "Basic realm=\"a\""])
            } else {
                reply.respond(200, text: "x")
            }
        }
        let path = try await running.download("http://us%20er:p%3Aw@127.0.0.1:\(server.port)/a")
        _ = try await running.client.wait(path)
        #expect(server.requests.last?.field("Authorization") == "Basic dXMgZXI6cDp3")
        #expect(try await running.client.call(Download.getUrl, at: path, ()) == server.url("/a"))
        #expect("\(try await running.client.all(path))".contains("p:w") == false)
    }

    @Test(arguments: [("sha256", 256), ("sha512", 512), ("sha384", 384), ("sha224", 224), ("sha1", 1), ("md5", 5)])
    func `checksum that is right lets it through, and one that is wrong leaves nothing`(algorithm: String, number: Int) async throws {
        let running = try await Running.start()
        let world = running.world
        let body = patternBytes(100_000, seed: UInt64(number))
        let server = ScriptedServer { request, reply in reply.serve(body, for: request) }
        writeFile(world.bus.folder("body"), body)
        let digest = await world.run("\(algorithm)sum", world.bus.folder("body")).output.prefix { $0 != " " }
        #expect(
            try await running.fetch(server.url("/good"), ["checksum": .string("\(algorithm.uppercased()):\(digest.uppercased())")])
                .hasSuffix("/good"))

        let wrong = String(digest.dropLast()) + (digest.last == "0" ? "1" : "0")
        let path = try await running.download(server.url("/bad"), ["checksum": .string("\(algorithm):\(wrong)")])
        let error = await thrown { try await running.client.wait(path) }
        #expect(error?.name == todokuError("ChecksumMismatch"))
        #expect(
            error?.message == "The downloaded file is not the expected one: it has \(algorithm):\(digest), not \(algorithm):\(wrong).")
        #expect(await eventually { world.files == ["good"] })
        #expect(try await running.client.get(Download.path, at: path) == "")
    }

    @Test func `directory that is left out is created, also while another call checks it`() async throws {
        let running = try await Running.start()
        let folder = try await running.client.get(Manager.defaultDirectory)
        #expect(!fileExists(folder))
        // The first calls of a connection are admitted one after the other, in one turn of the loop.
        let (client, pipeline) = (try await running.world.client(), Pipeline())
        for directory in [folder, nil, nil] {
            var options: [String: Variant] = ["start": .bool(false)]
            options["directory"] = directory.map { .string($0) }
            await pipeline.start { [options] in try await client.download("http://127.0.0.1:1/a", options).value }
        }
        let answers = await pipeline.answers(3)
        #expect(answers[0] == todokuError("InvalidOption"))
        #expect(answers[1...].allSatisfy { $0?.hasPrefix(BusName.downloadsPath) == true }, "\(answers)")
    }

    @Test func `size that differs, announced or found, ends it with nothing left`() async throws {
        let running = try await Running.start()
        let world = running.world
        let server = ScriptedServer { request, reply in
            if request.path == "/told" {
                reply.respond(200, text: "12345")
            } else {
                reply.head(200, ["Transfer-Encoding": "chunked"])
                reply.chunk(Array("12345".utf8))
                reply.chunk([])
            }
        }
        for path in ["/told", "/found"] {
            for size in [4, 6] as [UInt64] {
                let error = await thrown { try await running.fetch(server.url(path), ["size": .uint64(size)]) }
                #expect(error?.name == todokuError("SizeMismatch"), "\(path) \(size)")
                #expect(error?.message.contains("\(size)") == true, "\(error?.message ?? "")")
            }
            let error = await thrown { try await running.fetch(server.url(path), ["max-size": .uint64(4)]) }
            #expect(error?.name == todokuError("TooLarge"))
            #expect(try await running.fetch(server.url(path), ["size": .uint64(5), "max-size": .uint64(5)]).hasSuffix(path))
        }
        #expect(await eventually { world.files == ["found", "told"] })
    }

    @Test func `start false adds it paused, and Resume starts it`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let path = try await running.download(server.url("/a"), ["start": .bool(false)])
        #expect(try await running.client.get(Download.state, at: path) == "paused")
        #expect(try await running.client.get(Manager.remaining) == 1)
        #expect(try await running.client.get(Manager.queued) == 0)
        #expect(server.requests.isEmpty)
        try await running.client.resume(path)
        #expect(try await running.client.wait(path).hasSuffix("/a"))
        // The download was queued for less than a turn of the loop, which is not announced.
        #expect(await running.client.signals.states(of: path) == ["active", "verifying", "finished"])
    }

    @Test func `speed-limit is roughly kept, and can be changed and taken away`() async throws {
        let running = try await Running.start(["--idle-exit", "300"])  // generating the body takes a while
        let (first, rest) = (patternBytes(1_000_000), Array(repeatElement(patternBytes(100_000, seed: 2), count: 190).joined()))
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            reply.head(200, length: first.count + rest.count)
            reply.send(first)
            gate.wait()
            reply.send(rest)
        }
        let begun = ContinuousClock.now
        let path = try await running.download(server.url("/a"), ["speed-limit": .uint64(400_000)])
        #expect(await running.client.signals.until { $0.contains { ($0.progress?.received ?? 0) >= 800_000 } })
        let took = ContinuousClock.now - begun
        #expect(took > .milliseconds(700), "800 kB in \(took)")
        try await running.client.set(Download.speedLimit, at: path, 10_000)
        gate.open()
        #expect(try await running.client.get(Download.state, at: path) == "active")
        try await running.client.set(Download.speedLimit, at: path, 0)
        // With the limit, the rest would take 1,900 s, and the call gives up after 180 s.
        #expect(readFile(try await running.client.wait(path)) == first + rest)
    }

    @Test func `stall-timeout gives up a server that says nothing`() async throws {
        let running = try await Running.start()
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            switch request.path {
            case "/begun": reply.head(200, length: 10)
            case "/kept": reply.head(200, ["ETag": "\"v\""], length: 10)
            default: break
            }
            if request.path != "/silent" { reply.send("12345") }
            gate.wait()
        }
        let silent = await thrown {
            try await running.fetch(server.url("/silent"), ["stall-timeout": .uint32(300), "retries": .uint32(0)])
        }
        #expect(silent?.name == todokuError("Timeout"))
        #expect(silent?.message.contains("300 ms") == true)
        // Bytes that a resume does not keep are no progress, so the attempt counts against `retries`.
        let begun = await thrown {
            try await running.fetch(server.url("/begun"), ["stall-timeout": .uint32(300), "retries": .uint32(0)])
        }
        #expect(begun?.name == todokuError("Timeout"))
        // Once bytes are held that a resume keeps, the download is retried, whatever `retries` says. Without bytes, it fails.
        let isInTime = try await inTime([15_000, 60_000] as [UInt32]) { limit in
            let path = try await running.download(server.url("/kept"), ["stall-timeout": .uint32(limit), "retries": .uint32(0)])
            @Sendable func isRetried(_ seen: Seen) -> Bool { seen.state == "waiting" && seen.changed?["WaitReason"] == .string("retry") }
            let isGivenUp = await running.client.signals.until(within: .milliseconds(limit) + .seconds(60)) { seen in
                seen.contains { $0.path == path.value && (isRetried($0) || $0.state == "failed") }
            }
            #expect(isGivenUp)
            return await running.client.signals.of(path).contains { isRetried($0) }
        }
        #expect(isInTime, "each time, the first bytes came too late")
        gate.open()
    }

    @Test func `metadata of odd types comes back untouched, by gdbus too`() async throws {
        let running = try await Running.start()
        let metadata: [String: Variant] = [
            "y": .byte(7), "n": .int16(-1), "q": .uint16(65535), "x": .int64(-5), "t": .uint64(.max), "d": .double(0.1),
            "g": .signature("a{sv}"),
            "o": .objectPath(ObjectPath("/a/b")), "ai": .array(of: "i", [.int32(1), .int32(2)]), "empty": .array(of: "(si)", []),
            "struct": .structure([.string("ä"), .structure([.bool(true)])]), "v": .variant(.variant(.string("deep"))),
            "dict": .dictionary(key: "i", value: "as", [Variant.Entry(key: .int32(1), value: .strings(["a"]))]), "nothing": .string(""),
        ]
        let path = try await running.download("http://127.0.0.1:1/a", ["start": .bool(false), "metadata": .dictionary(metadata)])
        #expect(try await running.client.call(Download.getMetadata, at: path, ()) == metadata)

        let text = "{'bytes': <b'abc'>, 'pair': <(1, 'zwei')>, 'nested': <{'k': <[1.5, 2.5]>}>, 'unit': <uint16 3>}"
        let added = await running.world.gdbus(
            BusName.managerPath.value, "org.todoku.Downloader1.Download", "http://127.0.0.1:1/b",
            "{'start': <false>, 'metadata': <\(text)>}")
        #expect(added.output == "(objectpath '/org/todoku/Downloader1/download/2',)\n", "\(added.errors)")
        let back = await running.world.gdbus("/org/todoku/Downloader1/download/2", "org.todoku.Download1.GetMetadata")
        // We choose the order of the dictionary; the entries are the caller's.
        #expect(back.status == 0)
        for entry in ["'pair': <(1, 'zwei')>", "'nested': <{'k': <[1.5, 2.5]>}>", "'unit': <uint16 3>", "'bytes': <b'abc'>"] {
            #expect(back.output.contains(entry), "\(back.output)")
        }
    }
}

@Suite struct `A token` {
    @Test func `names the object before the call, so that nothing is missed`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let expected = ObjectPath("/org/todoku/Downloader1/download/by_token/org_2eexample_2eApp_2d1/my_5ftoken")
        let options: [String: Variant] = ["app": .string("org.example.App-1"), "token": .string("my_token")]
        let path = try await running.download(server.url("/a"), options)
        #expect(path == expected)
        _ = try await running.client.wait(path)
        let names = await running.client.signals.of(expected).map(\.member)
        #expect(names.last == "Completed")
        #expect(await running.client.signals.seen.compactMap { Manager.downloadAdded.read($0.message) } == [expected])
        #expect(try await running.client.list(["app": .string("org.example.App-1")]) == [expected])
    }

    @Test func `gives the same object for the same request, and AlreadyExists for another`() async throws {
        let running = try await Running.start()
        let options: [String: Variant] = ["app": .string("a"), "token": .string("t"), "start": .bool(false), "tag": .string("x")]
        let path = try await running.download("http://127.0.0.1:1/a", options)
        #expect(try await running.download("http://127.0.0.1:1/a", options) == path)
        #expect(
            try await running.download("http://127.0.0.1:1/a", options.merging(["directory": .string(running.world.folder + "/")]) { $1 })
                == path)
        for different in [options.merging(["tag": .string("y")]) { $1 }, options.merging(["size": .uint64(1)]) { $1 }] {
            #expect(await thrown { try await running.download("http://127.0.0.1:1/a", different) }?.name == todokuError("AlreadyExists"))
        }
        #expect(await thrown { try await running.download("http://127.0.0.1:1/b", options) }?.name == todokuError("AlreadyExists"))
        #expect(try await running.client.list() == [path])
        #expect(await running.client.signals.count("DownloadAdded") == 1)
        // The same token of another app is another token.
        #expect(try await running.download("http://127.0.0.1:1/b", options.merging(["app": .string("b")]) { $1 }) != path)
        // Removing the download frees its token.
        try await running.client.remove(path)
        #expect(try await running.download("http://127.0.0.1:1/b", options) == path)
    }

    @Test func `asked for many times at once gives one download`() async throws {
        let running = try await Running.start()
        let options = running.options(["app": .string("a"), "token": .string("t"), "start": .bool(false)])
        let client = running.client
        let paths = try await withThrowingTaskGroup(of: ObjectPath.self) { group in
            for _ in 0..<20 { group.addTask { try await client.download("http://127.0.0.1:1/a", options) } }
            return try await group.reduce(into: Set()) { $0.insert($1) }
        }
        #expect(paths.count == 1)
        #expect(try await client.list().count == 1)
    }
}

extension String {
    /// The index at which `text` begins.
    func start(of text: String) -> String.Index? { indices.first { self[$0...].hasPrefix(text) } }
}
extension Substring {
    var trimmed: Substring { self.drop { $0 == " " } }
}
