internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@Suite struct `Bad input` {
    @Test func `in a URL is refused at once with its own name`() async throws {
        let running = try await Running.start()
        let cases = [
            ("", "InvalidUrl"), ("no url", "InvalidUrl"), ("/etc/passwd", "InvalidUrl"), ("http://", "InvalidUrl"),
            ("http:///path", "InvalidUrl"), ("http://host:99999/", "InvalidUrl"), ("http://a b/", "InvalidUrl"),
            ("https://example.org/\nHost: evil", "InvalidUrl"), ("example.org:8080/file", "InvalidUrl"), ("http://[::1/", "InvalidUrl"),
            ("ftp://example.org/a", "UnsupportedScheme"), ("file:///etc/passwd", "UnsupportedScheme"), ("data:,x", "UnsupportedScheme"),
            ("http://example.org/" + String(repeating: "a", count: 8192), "LimitExceeded"),
        ]
        for (url, name) in cases {
            let error = await thrown { try await running.download(url) }
            #expect(error?.name == todokuError(name), "\(url.prefix(60))")
            #expect(error.map(isSentence) == true, "\(error?.message ?? "")")
        }
        #expect(try await running.client.list() == [])
        #expect(await running.client.signals.seen.isEmpty)
    }

    /// Values of wrong types, and impossible values, for each option.
    private static let badOptions: [(String, Variant)] = [
        ("app", .int32(1)), ("app", .string("")), ("app", .string(String(repeating: "a", count: 256))), ("app", .string("a\nb")),
        ("token", .uint32(1)), ("token", .string("")), ("token", .string("a-b")), ("token", .string("ä")),
        ("token", .string(String(repeating: "t", count: 65))), ("token", .string("alone")),
        ("directory", .objectPath(ObjectPath("/tmp"))), ("directory", .string("relative")), ("directory", .string("")),
        ("directory", .string("/no/such/folder")), ("directory", .string("/etc/passwd")), ("directory", .string("/tmp/\n")),
        ("filename", .bool(true)), ("filename", .string("")), ("filename", .string("a/b")), ("filename", .string("..")),
        ("filename", .string(".hidden")), ("filename", .string("/etc/passwd")), ("filename", .string(String(repeating: "n", count: 241))),
        ("filename", .string("a\u{1}b")),
        ("if-exists", .bool(true)), ("if-exists", .string("")), ("if-exists", .string("Rename")), ("if-exists", .string("overwrite")),
        ("extract", .int32(1)), ("extract", .strings(["a"])), ("extract", .string("")), ("extract", .string("a/b")),
        ("extract", .string("..")),
        ("extract", .string(".hidden")), ("extract", .string("/")), ("extract", .string("/tmp/.hidden")), ("extract", .string("a\u{1}b")),
        ("extract", .string(String(repeating: "n", count: 241))),
        ("headers", .dictionary([String: Variant]())), ("headers", .strings(["A: b"])), ("headers", .dictionary([("A", "b\r\nC: d")])),
        ("headers", .dictionary([("A", "b\nc")])), ("headers", .dictionary([("A b", "c")])), ("headers", .dictionary([("", "c")])),
        ("headers", .dictionary([("A:", "c")])), ("headers", .dictionary([("A\nB", "c")])),
        ("headers", .dictionary([("Range", "bytes=0-1")])),
        ("headers", .dictionary([("accept-encoding", "gzip")])), ("headers", .dictionary([("Host", "other")])),
        ("header-list", .dictionary([("A", "b")])),
        ("header-list", .array(of: "(ss)", [.structure([.string("A"), .string("b\r\nC: d")])])),
        ("header-list", .array(of: "(ss)", [.structure([.string("Range"), .string("bytes=0-1")])])),
        ("header-list", .array(of: "(sss)", [])), ("cookies", .string("h\tFALSE\t/\tFALSE\t0\tn\tv")), ("cookies", .strings([""])),
        ("cookies", .strings(["# comment"])), ("cookies", .strings(["n=v"])),
        ("cookies", .strings(["h\tFALSE\t/\tFALSE\t0\tn\tv\r\nA: b"])),
        ("cookies", .strings(["h\tFALSE\t/\tFALSE\t0\tn\tv", "h\tFALSE\t/\tFALSE\tx\tn\tv"])),
        ("private", .uint32(1)), ("private", .string("true")),
        ("post-data", .string("a=b")), ("post-data", .array(of: "u", [])), ("post-type", .array(of: "y", [])), ("post-type", .string("")),
        ("post-type", .string("form")), ("post-type", .string("a/*")), ("post-type", .string("a/b\r\nC: d")), ("post-type", .string("a/b")),
        ("user-agent", .uint32(1)), ("user-agent", .string("a\r\nB: c")), ("user-agent", .string(String(repeating: "u", count: 1025))),
        ("referrer", .uint32(1)), ("referrer", .string("a\nb")),
        ("username", .bool(false)), ("username", .string("a\nb")), ("password", .int64(1)), ("password", .string("a\nb")),
        ("proxy", .uint32(1)), ("proxy", .string("")), ("proxy", .string("host:3128")), ("proxy", .string("ftp://h:1")),
        ("proxy", .string("http://")), ("proxy", .string("http://h:0")), ("proxy", .string("http://h:65536")),
        ("proxy", .string("http://h/path")), ("proxy", .string("http://a b")), ("proxy", .string("http://[::1")),
        ("proxy", .string("http://u:p\"@h")), ("proxy", .string("http://ü@h")), ("proxy", .string("direct://h")),
        ("proxy", .string("http://h\n")), ("proxy", .string("socks5://" + String(repeating: "h", count: 1025))),
        ("checksum", .array(of: "y", [])), ("checksum", .string("")), ("checksum", .string("sha256")), ("checksum", .string("sha256:")),
        ("checksum", .string("sha256:00")), ("checksum", .string("crc32:00000000")),
        ("checksum", .string("md5:" + String(repeating: "g", count: 32))),
        ("find-mirrors", .uint32(1)), ("piece-hashes", .string("")), ("piece-hashes", .string("sha256:0:00")), ("piece-hashes", .uint64(1)),
        ("size", .int32(-1)), ("size", .int64(.min)), ("size", .double(1)), ("max-size", .string("1")), ("max-size", .int64(-1)),
        ("start", .uint32(0)), ("start", .string("true")),
        ("priority", .uint32(1 << 31)), ("priority", .int64(1 << 31)), ("priority", .int64(-1 << 32)), ("priority", .uint64(.max)),
        ("speed-limit", .int32(-1)), ("speed-limit", .double(1)),
        ("mirrors", .string("http://h/")), ("mirrors", .array(of: "o", [.objectPath(ObjectPath("/"))])),
        ("mirrors", .strings(["ftp://h/"])),
        ("mirrors", .strings(["http://h/", ""])), ("mirrors", .strings(["http://u@h/"])), ("mirrors", .strings(["http://u:p@h/"])),
        ("mirrors", .strings(["http://h/a\nb"])), ("mirrors", .strings(["http:///"])),
        ("connections", .uint32(17)), ("connections", .uint32(.max)), ("connections", .int32(-2)), ("connections", .string("2")),
        ("connections", .byte(17)), ("stall-timeout", .uint32(0)), ("stall-timeout", .uint64(1 << 32)), ("retries", .int16(-1)),
        ("retries", .string("1")),
        ("tag", .uint32(1)), ("tag", .string("a\nb")), ("tag", .string(String(repeating: "a", count: 256))),
        ("expect-type", .bool(true)), ("expect-type", .string("")), ("expect-type", .string("image")), ("expect-type", .string("*/*")),
        ("expect-type", .string("image/png; q=1")), ("expect-type", .string("a/b/c")),
        ("not-before", .int64(-1)), ("not-before", .string("tomorrow")), ("deadline", .int32(-1)), ("renewable", .uint32(1)),
        ("allow-metered", .uint32(1)), ("allow-private", .string("true")), ("allow-downgrade", .uint32(1)),
        ("request-interval", .uint64(1 << 32)), ("request-interval", .int32(-1)),
        ("only-if-changed", .string("yes")),
        ("activate", .bool(true)), ("activate", .string("")), ("activate", .string("app")), ("activate", .string("org..App")),
        ("activate", .string("org.1example.App")), ("activate", .string(":1.7")), ("activate", .string("org.example.App/a")),
        ("notify", .bool(false)), ("notify", .string("")), ("notify", .string("sometimes")),
        ("notify-delay", .uint64(1 << 32)), ("notify-delay", .uint32(3_600_001)), ("notify-delay", .int64(3_600_001)),
        ("desktop-id", .uint32(1)), ("desktop-id", .string("")), ("desktop-id", .string(".desktop")), ("desktop-id", .string("a/b")),
        ("title", .uint32(1)), ("title", .string(String(repeating: "a", count: 1025))), ("body", .uint32(1)),
        ("body", .string(String(repeating: "a", count: 4097))), ("icon", .uint32(1)), ("sound", .uint32(1)), ("sound", .string("../a")),
        ("sound", .string("/tmp/a")),
        ("show-progress", .uint32(1)),
        ("metadata", .string("a")), ("metadata", .dictionary([("a", "b")])),
    ]

    @Test func `in an option is refused as InvalidOption, naming it`() async throws {
        let running = try await Running.start()
        for (key, value) in Self.badOptions {
            let error = await thrown { try await running.download("http://127.0.0.1:1/a", [key: value]) }
            #expect(error?.name == todokuError("InvalidOption"), "\(key): \(value)")
            #expect(error?.message.contains(key) == true, "\(key): \(error?.message ?? "")")
            #expect(error.map(isSentence) == true, "\(error?.message ?? "")")
        }
        // Every existing option has been tried.
        #expect(Set(Self.badOptions.map(\.0)) == Set(OptionRow.all.map(\.key)))
        #expect(try await running.client.list() == [])
        #expect(running.world.files == [])
    }

    /// Control characters, and marks that reorder, join or hide text: "invoice\u{202E}gpj.exe" looks like a picture.
    @Test func `in a file name is refused, each control character and each invisible mark`() async throws {
        let running = try await Running.start()
        let ranges: [ClosedRange<UInt32>] = [
            0x01...0x1F, 0x7F...0x9F, 0xAD...0xAD, 0x61C...0x61C, 0x180E...0x180E, 0x200B...0x200F, 0x2028...0x202E, 0x2060...0x206F,
            0xFEFF...0xFEFF, 0xFFF9...0xFFFB, 0xE0001...0xE0001, 0xE0020...0xE007F,
        ]
        for mark in ranges.joined().compactMap(Unicode.Scalar.init) {
            let error = await thrown {
                try await running.download("http://127.0.0.1:1/a", ["filename": .string("invoice\(mark)gpj.exe"), "start": .bool(false)])
            }
            #expect(
                error?.name == todokuError("InvalidOption") && error?.message.contains("filename") == true, "\(mark.value): \(error as Any)"
            )
        }
        #expect(try await running.client.list() == [])
    }

    /// Options of the contract that this version does not have, and unknown ones.
    @Test(
        arguments: [
            "mirror", "unknown", "Directory", "",
        ])
    func `with an option that is not built is refused, not ignored`(key: String) async throws {
        let running = try await Running.start()
        let error = await thrown { try await running.download("http://127.0.0.1:1/a", [key: .string("x")]) }
        #expect(error?.name == todokuError("InvalidOption"))
        #expect(error?.message.contains("“\(key)”") == true)
        #expect(try await running.client.get(Manager.supportedOptions).contains(key) == false)
    }

    @Test func `that is more than the limits is LimitExceeded`() async throws {
        let running = try await Running.start()
        let big = String(repeating: "x", count: 64 * 1024)
        let cookie = "h\tFALSE\t/\tFALSE\t0\tn\t" + big.prefix(4000)
        for (key, value) in [
            ("headers", Variant.dictionary([("A", big)])), ("metadata", .dictionary(["a": .string(big)])),
            ("cookies", .strings([String](repeating: cookie, count: 17))),
        ] {
            let error = await thrown { try await running.download("http://127.0.0.1:1/a", [key: value]) }
            #expect(error?.name == todokuError("LimitExceeded"))
            #expect(error?.message.contains(key) == true)
            #expect(error?.message.contains("65536") == true)
        }
        for excess in [64, 1 << 20] {
            let hashes = "sha256:1:" + String(repeating: "0", count: (2 << 20) + excess)
            let options: [String: Variant] = ["piece-hashes": .string(hashes), "size": .uint64(UInt64(hashes.utf8.count / 64))]
            let error = await thrown { try await running.download("http://127.0.0.1:1/a", options) }
            #expect(error?.name == todokuError("LimitExceeded") && error?.message.contains("1048576") == true, "\(error as Any)")
        }
        let long = "http://127.0.0.1:1/" + String(repeating: "a", count: 8192)
        #expect(await thrown { try await running.download(long) }?.message.contains("8192") == true)
        let nearly = "http://127.0.0.1:1/" + String(repeating: "a", count: 8192 - 19)
        let path = try await running.download(nearly, ["start": .bool(false)])
        #expect(try await running.client.call(Download.getUrl, at: path, ()) == nearly)
    }

    @Test func `of a folder is refused with the reason`() async throws {
        let running = try await Running.start()
        let world = running.world
        let hidden = world.bus.folder.makeFolder(".hidden")
        symlink(hidden, world.bus.folder("link"))
        writeFile(world.bus.folder("file"), [])
        let cases = [
            (world.bus.folder("missing"), "InvalidOption"), (world.bus.folder("file"), "InvalidOption"), (hidden, "NotAllowed"),
            (world.bus.folder("link"), "NotAllowed"), ("\(hidden)/../files/.x", "NotAllowed"), ("/proc/sys", "PermissionDenied"),
        ]
        for (folder, name) in cases {
            let error = await thrown { try await running.download("http://127.0.0.1:1/a", ["directory": .string(folder)]) }
            #expect(error?.name == todokuError(name), "\(folder): \(error.map { "\($0)" } ?? "none")")
            #expect(error?.message.contains(folder) == true)
        }
        #expect(try await running.client.list() == [])
    }

    @Test func `of a hidden folder is accepted with --allow-hidden-folders`() async throws {
        let running = try await Running.start(["--allow-hidden-folders"])
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let hidden = running.world.bus.folder.makeFolder(".hidden")
        #expect(try await running.fetch(server.url("/a"), ["directory": .string(hidden)]) == "\(hidden)/a")
    }

    @Test func `of a folder spelled with needless slashes and dots ends in a plain path`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let odd = "\(running.world.folder)//./"
        #expect(try await running.fetch(server.url("/a"), ["directory": .string(odd)]) == "\(running.world.folder)/a")
    }

    @Test func `of a folder that the user may not write is PermissionDenied`() async throws {
        let running = try await startUnprivileged()
        let folder = running.world.bus.folder.makeFolder("closed")
        chmod(folder, 0o555)
        // The daemon may not inspect a caller with more privileges than its own, and so cannot trust it.
        let arguments = [
            "gdbus", "call", "--session", "--timeout", "120", "--dest", BusName.service, "--object-path", BusName.managerPath.value,
            "--method", "\(Manager.interface).Download", "http://127.0.0.1:1/a", "{'directory': <'\(folder)'>}",
        ]
        let answer = await Child.run(unprivileged + arguments, environment: running.world.environment)
        #expect(answer.errors.contains("\(todokuError("PermissionDenied")): ") && answer.errors.contains(folder), "\(answer)")
    }

    @Test func `in a property is refused and changes nothing`() async throws {
        let running = try await Running.start()
        let client = running.client
        let path = try await running.download("http://127.0.0.1:1/a", ["start": .bool(false)])
        let manager = BusName.managerPath
        let bad: [(ObjectPath, String, String, Variant, String)] = [
            (manager, Manager.interface, "MaxActive", .int32(-1), "org.freedesktop.DBus.Error.InvalidArgs"),
            (manager, Manager.interface, "MaxActive", .uint64(1 << 32), "org.freedesktop.DBus.Error.InvalidArgs"),
            (manager, Manager.interface, "MaxActive", .string("1"), "org.freedesktop.DBus.Error.InvalidArgs"),
            (manager, Manager.interface, "SpeedLimit", .int16(-1), "org.freedesktop.DBus.Error.InvalidArgs"),
            (manager, Manager.interface, "SpeedLimit", .double(1), "org.freedesktop.DBus.Error.InvalidArgs"),
            (manager, Manager.interface, "SandboxPrivate", .uint32(1), "org.freedesktop.DBus.Error.InvalidArgs"),
            (manager, Manager.interface, "DefaultDirectory", .uint32(1), "org.freedesktop.DBus.Error.InvalidArgs"),
            (manager, Manager.interface, "DefaultDirectory", .string("relative"), todokuError("InvalidOption")),
            (manager, Manager.interface, "DefaultDirectory", .string("/no/such"), todokuError("InvalidOption")),
            (manager, Manager.interface, "DefaultDirectory", .string("/proc/sys"), todokuError("PermissionDenied")),
            (manager, Manager.interface, "Paused", .bool(true), "org.freedesktop.DBus.Error.PropertyReadOnly"),
            (manager, Manager.interface, "Version", .string("9"), "org.freedesktop.DBus.Error.PropertyReadOnly"),
            (manager, Manager.interface, "Language", .string("fr"), todokuError("InvalidOption")),
            (manager, Manager.interface, "Badge", .string(""), todokuError("InvalidOption")),
            (manager, Manager.interface, "DiskReserve", .int64(-2), todokuError("InvalidOption")),
            (manager, Download.interface, "Priority", .int32(1), "org.freedesktop.DBus.Error.UnknownInterface"),
            (path, Download.interface, "Priority", .uint32(1 << 31), "org.freedesktop.DBus.Error.InvalidArgs"),
            (path, Download.interface, "SpeedLimit", .variant(.uint64(1)), "org.freedesktop.DBus.Error.InvalidArgs"),
            (path, Download.interface, "State", .string("finished"), "org.freedesktop.DBus.Error.PropertyReadOnly"),
            (path, Download.interface, "Nothing", .string("x"), "org.freedesktop.DBus.Error.UnknownProperty"),
        ]
        let before = try await client.call(Standard.getAll, Manager.interface)
        for (object, interface, name, value, expected) in bad {
            let error = await thrown { try await client.call(Standard.set, at: object, (interface, name, value)) }
            #expect(error?.name == expected, "\(name) = \(value)")
        }
        #expect(try await client.call(Standard.getAll, Manager.interface) == before)
    }

    @Test func `in a filter is refused, naming the key`() async throws {
        let running = try await Running.start()
        let bad: [(String, Variant)] = [
            ("app", .uint32(1)), ("tag", .bool(true)), ("state", .strings(["active"])), ("state", .string("running")),
            ("states", .string("active")),
            ("states", .strings(["active", "done"])), ("after", .string("/org/todoku/Downloader1/download/1")), ("limit", .int32(-1)),
            ("limit", .uint64(1 << 32)), ("limit", .uint32(0)), ("limit", .int32(1001)), ("limit", .uint32(1001)),
            ("unknown", .string("x")),
            ("newest-first", .uint32(1)), ("batch", .string("/org/todoku/Downloader1/batch/1")),
            ("metadata", .string("a")), ("metadata", .dictionary([("a", "b")])),
            ("app", .string(String(repeating: "a", count: 256))), ("tag", .string(String(repeating: "a", count: 256))),
        ]
        for (key, value) in bad {
            for error in await [
                thrown { try await running.client.list([key: value]) },
                thrown { try await running.client.call(Manager.describe, ([key: value], [])) },
            ] {
                #expect(error?.name == todokuError("InvalidOption"), "\(key): \(value)")
                #expect(error?.message.contains(key) == true)
            }
        }
        let missing = ["after": Variant.objectPath(ObjectPath("/org/todoku/Downloader1/download/99"))]
        #expect(await thrown { try await running.client.list(missing) }?.name == todokuError("NoSuchObject"))
        for path in ["/", "/org/todoku/Downloader1/batch/1", "/org/todoku/Downloader1/batch/x"] {
            let error = await thrown { try await running.client.list(["batch": .objectPath(ObjectPath(path))]) }
            #expect(error?.name == todokuError("NoSuchObject") && error?.message.contains("batch") == true)
        }
        let property = await thrown { try await running.client.call(Manager.describe, ([:], ["State", "Colour"])) }
        #expect(property?.name == "org.freedesktop.DBus.Error.UnknownProperty")
        let wait = try await running.download("http://127.0.0.1:1/a", ["start": .bool(false)])
        #expect(
            await thrown { try await running.client.call(Download.wait, at: wait, ["x": .bool(true)]) }?.name
                == todokuError("InvalidOption"))
    }
}

/// Whether the message is a sentence for a person: it says something, and ends like a sentence.
func isSentence(_ error: DBusError) -> Bool {
    error.message.count > 15 && error.message.hasSuffix(".") && !error.message.contains("\n") && error.message.utf8.count < 10_000
}

/// Starts a program without root's capabilities, if the tests run as root.
let unprivileged = getuid() == 0 ? ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--"] : []

/// A daemon that may not write everywhere.
func startUnprivileged(_ arguments: [String] = []) async throws -> Running {
    let world = await ServiceWorld()
    let client = try await world.client()
    let daemon = await world.start(arguments, prefix: unprivileged)
    return Running(world: world, daemon: daemon, client: client)
}
