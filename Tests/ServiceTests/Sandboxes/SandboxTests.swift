internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import DownloadService
@testable internal import Sandboxes

private let manager = BusName.managerPath.value
private let app = "org.example.App"

/// The callers are foreign programs in a real sandbox: bubblewrap, `.flatpak-info` and xdg-dbus-proxy, combined as Flatpak does.
@Suite(.timeLimit(.minutes(10))) struct `A caller in a sandbox` {
    private let paused: [String: Variant] = ["start": .bool(false)]

    /// The servers of these tests are on this machine, so the user lets sandboxes reach it.
    private func start() async throws -> Running {
        let running = try await Running.start()
        try await running.client.set(Manager.sandboxPrivate, true)
        return running
    }

    /// The download folder of a world.
    private func downloads(_ running: Running) async throws -> String { try await running.client.get(Manager.defaultDirectory) }

    @Test func `downloads for its own app id, named or not, into the default folder, named or not`() async throws {
        let running = try await start()
        let sandbox = await Sandbox(running.world)
        let server = ScriptedServer { _, reply in reply.respond(200, text: "hello") }
        let folder = try await downloads(running)
        for (number, options) in [
            "{'notify': <'never'>}", "{'notify': <'never'>, 'app': <'\(app)'>}",
            "{'notify': <'never'>, 'directory': <'\(folder)'>, 'icon': <'folder-music'>}",
            "{'notify': <'never'>, 'directory': <'\(folder)/./'>, 'filename': <'d'>}",
        ].enumerated() {
            let answer = await sandbox.gdbus(manager, "\(Manager.interface).Download", server.url("/\(number)"), options)
            #expect(answer.output == "(objectpath '\(BusName.downloadsPath)/\(number + 1)',)\n", "\(answer)")
            let path = ObjectPath("\(BusName.downloadsPath)/\(number + 1)")
            let file = await sandbox.gdbus(path.value, "\(Download.interface).Wait", "{}")
            #expect(file.output == "('\(folder)/\(number == 3 ? "d" : "\(number)")',)\n", "\(file)")
            #expect(try await running.client.get(Download.app, at: path) == app)
        }
        #expect(listFolder(folder) == ["0", "1", "2", "d"])
        #expect(readFile("\(folder)/d") == Array("hello".utf8))
        let path = BusName.path(app: app, token: "mine").value
        let answer = await sandbox.gdbus(
            manager, "\(Manager.interface).Download", server.url("/t"), "{'token': <'mine'>, 'notify': <'never'>}")
        #expect(answer.output == "(objectpath '\(path)',)\n", "\(answer)")
        #expect(await sandbox.gdbus(path, "\(Download.interface).Wait", "{}").output == "('\(folder)/t',)\n")
        // The same by another foreign client.
        let url = await sandbox.dbusSend(path, "\(Download.interface).GetUrl")
        #expect(url.output.contains("string \"\(server.url("/t"))\""), "\(url)")
    }

    @Test func `may have half of the places in the queue and no more`() async throws {
        let running = try await start()
        let sandbox = await Sandbox(running.world)
        let own = paused.merging(["app": .string(app)]) { $1 }
        func refusal(_ options: String) async -> String {
            let answer = await sandbox.gdbus(manager, "\(Manager.interface).Download", "http://127.0.0.1:1/x", options)
            return answer.status == 0 ? "" : answer.errors
        }
        // A caller outside may queue for the app, and is not bound by the app's limit.
        for call in 0..<5 { _ = try await running.batch((0..<10_000).map { "http://127.0.0.1:1/\(call)-\($0)" }, own) }
        #expect(await refusal("{'start': <false>}").contains("LimitExceeded: An app in a sandbox may have at most 50000 "))
        let (_, paths) = try await running.batch(["http://127.0.0.1:1/y", "http://127.0.0.1:1/z"], own)
        for path in paths { try await running.client.cancel(path) }
        #expect(await refusal("{'start': <false>}").contains("LimitExceeded"), "what has ended has left its place, and no more")
        try await running.client.cancel(try await running.client.list(["limit": .uint32(1)])[0])
        #expect(await refusal("{'start': <false>}") == "")
        #expect(await refusal("{'start': <false>}").contains("LimitExceeded"))
    }

    @Test func `may make the service store only a bounded number of bytes`() async throws {
        let running = try await start()
        let sandbox = await Sandbox(running.world)
        let text = String(repeating: "x", count: 60_000)
        let own = paused.merging(["app": .string(app), "metadata": .dictionary(["a": .string(text)])]) { $1 }
        let (_, paths) = try await running.batch((0..<570).map { "http://127.0.0.1:1/\($0)" }, own)
        func refusal(_ member: String, _ arguments: String..., at path: String = manager) async -> String {
            let answer = await sandbox.gdbus(path, member, arguments)
            return answer.status == 0 ? "" : answer.errors
        }
        let (download, replace) = ("\(Manager.interface).Download", "\(Download.interface).ReplaceUrl")
        let headers = "{'X-A': '\(text.prefix(2000))'}"
        #expect(await refusal(download, "http://127.0.0.1:1/x", "{'headers': <\(headers)>}").contains("LimitExceeded: The URLs, headers"))
        #expect(
            await refusal(replace, "http://127.0.0.1:1/x", "{'headers': <\(headers)>}", at: paths[0].value).contains(
                "LimitExceeded: The URLs, headers"))
        #expect(await refusal(download, "http://127.0.0.1:1/x", "{'start': <false>}") == "", "an ordinary one has no bytes that count")
        // A batch keeps texts that none of its items has.
        let batch = "{'start': <false>, 'body': <'\(text.prefix(3000))'>}"
        #expect(
            await refusal("\(Manager.interface).DownloadBatch", "[('http://127.0.0.1:1/x', {'body': <''>})]", batch).contains(
                "LimitExceeded: The URLs, headers"))
        for path in paths.prefix(20) {
            try await running.client.cancel(path)
            try await running.client.remove(path)
        }
        #expect(await refusal(download, "http://127.0.0.1:1/x", "{'start': <false>, 'headers': <\(headers)>}") == "")
    }

    @Test func `may not name another app or folder, replace files, or raise its priority`() async throws {
        let running = try await start()
        let sandbox = await Sandbox(running.world)
        let before = try await running.download("http://127.0.0.1:1/a", paused)
        for options in [
            "{'app': <'org.example.Other'>}", "{'app': <'org.example.Other'>, 'token': <'t'>}", "{'app': <'org.example.AppX'>}",
            "{'directory': <'\(running.world.folder)'>}", "{'directory': <'/tmp'>}", "{'directory': <'\(try await downloads(running))/x'>}",
            "{'directory': <'\(try await downloads(running))/..'>}", "{'if-exists': <'replace'>}", "{'extract': <'/tmp/maps'>}",
            "{'priority': <1>}",
            "{'app': <'\(app)'>, 'directory': <'/tmp'>, 'token': <'t'>}", "{'icon': <'/tmp/icon.png'>}",
            "{'icon': <'file:///tmp/icon.png'>}", "{'icon': <'file:icon'>}",
        ] {
            let answer = await sandbox.gdbus(manager, "\(Manager.interface).Download", "http://127.0.0.1:1/b", options)
            #expect(answer.status != 0 && answer.errors.contains("org.todoku.Error.NotAllowed: "), "\(options): \(answer)")
        }
        // A wrong option is wrong in a sandbox too.
        for options in ["{'app': <1>}", "{'app': <''>}", "{'directory': <'relative'>}", "{'nothing': <1>}"] {
            let answer = await sandbox.gdbus(manager, "\(Manager.interface).Download", "http://127.0.0.1:1/b", options)
            #expect(answer.errors.contains("org.todoku.Error.InvalidOption: "), "\(options): \(answer)")
        }
        #expect(try await running.client.list() == [before])
    }

    @Test func `may give its download the default folder and no other, and its own data`() async throws {
        let running = try await start()
        let sandbox = await Sandbox(running.world)
        let folder = try await downloads(running)
        let path = try await running.download("http://127.0.0.1:1/a", ["app": .string(app), "start": .bool(false)])
        func set(_ name: String, _ value: String) async -> Child.Exit {
            await sandbox.gdbus(path.value, "\(Standard.properties).Set", Download.interface, name, value)
        }
        let other = await set("Directory", "<'\(running.world.bus.folder.makeFolder("other"))'>")
        #expect(other.errors.contains("NotAllowed: Option directory: an app in a sandbox may not choose the folder"), "\(other)")
        #expect(await set("Directory", "<'\(folder)/.'>").status == 0)
        #expect(try await running.client.get(Download.directory, at: path) == folder)
        let replacing = try await running.client.download(
            "http://127.0.0.1:1/b", paused.merging(["app": .string(app), "if-exists": .string("replace")]) { $1 })
        let replaced = await sandbox.gdbus(
            replacing.value, "\(Standard.properties).Set", Download.interface, "Directory", "<'\(folder)'>")
        #expect(replaced.errors.contains("NotAllowed: An app in a sandbox may not replace files"), "\(replaced)")
        #expect(await set("AllowMetered", "<false>").status == 0)
        #expect(await sandbox.gdbus(path.value, "\(Download.interface).SetMetadata", "{'k': <1>}").status == 0)
        #expect(try await running.client.call(Download.getMetadata, at: path, ()) == ["k": .int32(1)])
    }

    @Test func `may not restart a download that writes elsewhere`()
        async throws
    {
        let running = try await start()
        let sandbox = await Sandbox(running.world)
        let own: [String: Variant] = ["app": .string(app), "start": .bool(false)]
        let elsewhere = try await running.download("http://127.0.0.1:1/a", own)
        let replacing = try await running.client.download("http://127.0.0.1:1/b", own.merging(["if-exists": .string("replace")]) { $1 })
        let plain = try await running.client.download("http://127.0.0.1:1/c", own)
        func refusal(_ path: ObjectPath, _ member: String, _ arguments: String...) async -> String {
            let answer = await sandbox.gdbus(path.value, "\(Download.interface).\(member)", arguments)
            return answer.status == 0 ? "" : answer.errors
        }
        let (batch, _) = try await running.batch(["http://127.0.0.1:1/d"], own)
        let whole = await sandbox.gdbus(batch.value, "\(Batch.interface).Resume")
        #expect(whole.errors.contains("NotAllowed: An app in a sandbox may write into"), "\(whole)")
        for path in [elsewhere, replacing, plain] {
            let resumed = await refusal(path, "Resume")
            #expect(resumed.contains("NotAllowed: An app in a sandbox may") == (path != plain), "\(path): \(resumed)")
            #expect(try await (running.client.get(Download.state, at: path) == "paused") == (path != plain))
            let renewed = await refusal(path, "ReplaceUrl", "http://127.0.0.1:1/new", "{}")
            try await running.client.cancel(path)
            let retried = await refusal(path, "Retry")
            #expect(renewed.contains("NotAllowed: An app in a sandbox may") == (path != plain), "\(path): \(renewed)")
            #expect(retried.contains("NotAllowed: An app in a sandbox may") == (path != plain), "\(path): \(retried)")
        }
        try await running.client.cancel(plain)
        let folder = running.world.bus.folder.makeFolder("other")
        try await running.client.set(Manager.defaultDirectory, folder)
        #expect(await refusal(plain, "Retry").contains("NotAllowed: An app in a sandbox may write into \(folder) only"))
        // The user may retry it.
        try await running.client.retry(plain)
    }

    @Test func `finds no download of others, however it looks`() async throws {
        let running = try await start()
        let sandbox = await Sandbox(running.world)
        let theirs = try await running.download("http://127.0.0.1:1/a", paused)
        let tokened = try await running.download(
            "http://127.0.0.1:1/a", ["start": .bool(false), "app": .string("org.example.Other"), "token": .string("t")])
        // For a path that this caller may not see, the tree answers as for a path that does not exist.
        for path in [theirs.value, tokened.value, "\(BusName.downloadsPath)/2", "\(BusName.downloadsPath)/99"] {
            for (interface, member, arguments) in [
                (Download.interface, "Pause", []), (Download.interface, "Cancel", []), (Download.interface, "Remove", ["true"]),
                (Download.interface, "Wait", ["{}"]), (Download.interface, "GetUrl", []), (Download.interface, "OpenFile", []),
                (Standard.properties, "GetAll", [Download.interface]), (Standard.properties, "Get", [Download.interface, "Url"]),
                (Standard.properties, "Set", [Download.interface, "Priority", "<-1>"]), (Standard.introspectable, "Introspect", []),
            ] as [(String, String, [String])] {
                let answer = await sandbox.gdbus(path, "\(interface).\(member)", arguments)
                #expect(answer.errors.contains("UnknownObject: there is no object \(path)\n"), "\(path) \(member): \(answer)")
            }
        }
        func list(_ filter: String) async -> Child.Exit { await sandbox.gdbus(manager, "\(Manager.interface).List", filter) }
        #expect(await list("{}").output == "(@ao [],)\n")
        #expect(await list("{'app': <'org.example.Other'>}").output == "(@ao [],)\n")
        #expect(await list("{'app': <''>}").output == "(@ao [],)\n")
        #expect(await list("{'after': <objectpath '\(theirs)'>}").errors.contains("NoSuchObject: "))
        let described = await sandbox.gdbus(manager, "\(Manager.interface).Describe", "{}", "@as []")
        #expect(described.output == "(@a(oa{sv}) [],)\n", "\(described)")
        let nodes = await sandbox.gdbus(BusName.downloadsPath, "\(Standard.introspectable).Introspect")
        #expect(nodes.errors.contains("UnknownObject"), "\(nodes)")
        // Next to downloads of others, the app finds only its own.
        let own = await sandbox.gdbus(manager, "\(Manager.interface).Download", "http://127.0.0.1:1/b", "{'start': <false>}")
        #expect(own.output == "(objectpath '\(BusName.downloadsPath)/3',)\n")
        let mine = BusName.path(app: app, token: "m").value
        _ = await sandbox.gdbus(manager, "\(Manager.interface).Download", "http://127.0.0.1:1/b", "{'start': <false>, 'token': <'m'>}")
        for filter in ["{}", "{'app': <'\(app)'>}"] {
            #expect(await list(filter).output == "([objectpath '\(BusName.downloadsPath)/3', '\(mine)'],)\n")
        }
        #expect(await children(of: BusName.downloadsPath, sandbox) == ["by_token", "3"])
        #expect(await children(of: BusName.tokensPath, sandbox) == [ObjectPath.escape(app)])
        #expect(await sandbox.gdbus("\(BusName.tokensPath)/org_2eexample_2eOther", "\(Standard.introspectable).Introspect").status != 0)
        // The user finds all downloads.
        #expect(try await running.client.list().count == 4)
        let another = await Sandbox(running.world, app: "org.example.Other")
        #expect(await another.gdbus(manager, "\(Manager.interface).List", "{}").output == "([objectpath '\(tokened)'],)\n")
    }

    @Test func `queues batches for its own app id, and finds none of others`() async throws {
        let running = try await start()
        let sandbox = await Sandbox(running.world)
        let client = try await sandbox.client()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "hello") }
        let (theirs, members) = try await running.batch(["http://127.0.0.1:1/a"], paused)
        let items = (0..<3).map { (server.url("/\($0)"), [:] as [String: Variant]) }
        for (own, options, index) in [
            (["app": Variant.string("org.example.Other")], [:], "Item 2: "), (["directory": .string("/tmp")], [:], "Item 2: "),
            (["if-exists": .string("replace")], [:], "Item 2: "), (["priority": .int32(1)], [:], "Item 2: "),
            (["icon": .string("/tmp/a")], [:], "Item 2: "), ([:], ["icon": .string("/tmp/a")], ""),
            ([:], ["app": .string("org.example.Other")], ""), ([:], ["directory": .string("/tmp")], ""),
            ([:], ["activate": .string("org.example.Other")], ""),
        ] as [([String: Variant], [String: Variant], String)] {
            let error = await thrown { try await client.batch(items[..<2] + [(items[2].0, own)], options) }
            #expect(
                error?.name == todokuError("NotAllowed") && error?.message.hasPrefix(index) == true, "\(own) \(options): \(error as Any)")
        }
        let (batch, mine) = try await client.batch(items, ["notify": .string("never")])
        #expect(try await client.wait(batch: batch) == [3, 0, 0])
        #expect(try await client.get(Download.app, at: mine[0]) == app)
        let folder = try await downloads(running)
        #expect(listFolder(folder) == ["0", "1", "2"])
        #expect(try await client.list(["batch": .objectPath(batch)]).count == 3)
        #expect(try await client.call(Manager.listBatches, [:]) == [batch])
        let after = await thrown { try await client.call(Manager.listBatches, ["after": .objectPath(theirs)]) }
        #expect(after?.name == todokuError("NoSuchObject"))
        #expect(await children(of: BusName.batchesPath, sandbox) == [String(batch.value.split(separator: "/").last ?? "")])
        // The app cannot see another app's batch.
        for body in [
            { _ = try await client.counts(theirs) }, { _ = try await client.call(Batch.cancel, at: theirs, ()) },
            { _ = try await client.call(Batch.remove, at: theirs, true) }, { _ = try await client.wait(batch: theirs) },
        ] as [() async throws -> Void] {
            #expect(await thrown(body)?.name == "org.freedesktop.DBus.Error.UnknownObject")
        }
        let filter = await thrown { try await client.list(["batch": .objectPath(theirs)]) }
        #expect(filter?.name == todokuError("NoSuchObject"))
        #expect(try await running.client.list(["batch": .objectPath(theirs)]) == members)
        // The app cannot control a batch that another caller has queued for it and for other apps together.
        let (mixed, _) = try await running.client.batch(
            [("http://127.0.0.1:1/a", ["app": .string(app)]), ("http://127.0.0.1:1/b", [:])], running.options(paused))
        #expect(await thrown { try await client.counts(mixed) }?.name == "org.freedesktop.DBus.Error.UnknownObject")
        let (given, _) = try await running.batch(["http://127.0.0.1:1/a"], paused.merging(["app": .string(app)]) { $1 })
        #expect(try await client.counts(given) == [1, 0, 0, 0])
        try await client.call(Batch.remove, at: batch, true)
        #expect(listFolder(folder) == [])
    }

    private func children(of path: String, _ sandbox: Sandbox) async -> [String] {
        var document = ""
        // gdbus waits only three seconds for the answer.
        _ = await eventually {
            let exit = await sandbox.run([
                "gdbus", "introspect", "--session", "--xml", "--dest", BusName.service, "--object-path", path,
            ])
            document = exit.output
            return exit.status == 0
        }
        return Elements(document).all.filter { $0.name == "node" }.compactMap { $0.attributes["name"] }
    }

    @Test func `may read what affects all downloads, but not change it`() async throws {
        let running = try await start()
        let sandbox = await Sandbox(running.world)
        let theirs = try await running.download("http://127.0.0.1:1/a", paused)
        for member in ["PauseAll", "ResumeAll", "CancelAll", "ClearEnded"] {
            let answer = await sandbox.gdbus(manager, "\(Manager.interface).\(member)")
            #expect(answer.errors.contains("org.todoku.Error.NotAllowed: An app in a sandbox may not "), "\(member): \(answer)")
        }
        for (name, value) in [
            ("MaxActive", "<uint32 1>"), ("MaxPerHost", "<uint32 1>"), ("SpeedLimit", "<uint64 1>"), ("DefaultDirectory", "<'/tmp'>"),
            ("Language", "<'en'>"), ("Badge", "<'percent'>"), ("SandboxPrivate", "<true>"), ("DiskReserve", "<int64 0>"),
        ] {
            let answer = await sandbox.gdbus(manager, "\(Standard.properties).Set", Manager.interface, name, value)
            #expect(answer.errors.contains("org.todoku.Error.NotAllowed: An app in a sandbox may not change the settings"), "\(answer)")
        }
        let rule = await sandbox.gdbus(manager, "\(Manager.interface).SetHostRule", "example.org", "{}")
        #expect(rule.errors.contains("NotAllowed: An app in a sandbox may not set the rules of hosts"), "\(rule)")
        #expect(try await running.client.get(Manager.paused) == false)
        #expect(try await running.client.get(Download.state, at: theirs) == "paused")
        #expect(try await running.client.get(Manager.speedLimit) == 0)
        let all = await sandbox.gdbus(manager, "\(Standard.properties).GetAll", Manager.interface)
        #expect(all.status == 0 && all.output.contains("'Remaining': <uint32 1>"), "\(all)")
        #expect(await sandbox.gdbus(manager, "\(Standard.peer).Ping").output == "()\n")
    }

    /// Opening files is the desktop's business: the portal asks the user before a file leaves the sandbox.
    @Test func `has nothing opened outside of it, and trashes only its own files`() async throws {
        let running = try await start()
        let sandbox = await Sandbox(running.world)
        let server = ScriptedServer { _, reply in reply.respond(200, text: "hello") }
        let client = try await sandbox.client()
        let own = try await client.download(server.url("/own"), ["notify": .string("never")])
        let file = try await client.wait(own)
        for (member, arguments) in [
            ("Activate", ["{}"]), ("Open", ["['\(server.url("/b"))']", "{}"]), ("Open", ["['file://\(file)']", "{}"]),
            ("ActivateAction", ["open", "[<objectpath '\(own)'>]", "{}"]), ("ActivateAction", ["retry", "[<objectpath '\(own)'>]", "{}"]),
            ("ActivateAction", ["pause-all", "@av []", "{}"]), ("ActivateAction", ["explode", "@av []", "{}"]),
        ] {
            let answer = await sandbox.gdbus(manager, "\(Application.interface).\(member)", arguments)
            #expect(answer.errors.contains("org.todoku.Error.NotAllowed: An app in a sandbox may not "), "\(member): \(answer)")
        }
        #expect(try await running.client.get(Manager.paused) == false)
        #expect(try await running.client.list() == [own])
        let theirs = try await running.download("http://127.0.0.1:1/a", paused)
        #expect(await thrown { try await client.call(Download.trash, at: theirs, ()) }?.name.hasSuffix("UnknownObject") == true)
        try await client.call(Download.trash, at: own, ())
        #expect(!fileExists(file) && listFolder(running.world.bus.folder("data/Trash/files")) == ["own"])
    }

    /// If this test fails, the manager has a new member: decide whether sandboxes may use it, and test that above or below.
    @Test func `has a rule for every member of the manager`() {
        let open: Set = [
            "Download", "DownloadBatch", "DownloadMetalink", "List", "ListBatches", "Describe", "Fetch", "DownloadToFd", "WaitAll",
            "SetForeground",
            // Of its own assets only (AssetTests).
            "RegisterAsset", "UnregisterAsset", "Assets", "UpdateAssets",
        ]
        let refused: Set = ["PauseAll", "ResumeAll", "CancelAll", "ClearEnded", "SetHostRule", "ListSlowedHosts", "ResetHost"]
        #expect(Set(ManagerFace.face.methods.keys) == open.union(refused))
        #expect(Set(ApplicationFace.face.methods.keys) == ["Activate", "Open", "ActivateAction"])  // all refused
        let writable = ManagerFace.face.members.filter { $0.contains(" readwrite ") }.compactMap {
            $0.split(separator: " ").dropFirst().first
        }
        #expect(
            Set(writable) == [
                "MaxActive", "MaxPerHost", "SpeedLimit", "DefaultDirectory", "Language", "Badge", "SandboxPrivate", "DiskReserve",
            ])
    }

    /// Called by programs inside. No folder that both sides see contains the files.
    @Test func `has downloads written into a file of its own, and reads what was fetched by a descriptor`() async throws {
        let running = try await start()
        let sandbox = await Sandbox(running.world)
        let server = ScriptedServer { request, reply in
            if request.field("If-None-Match") == "\"1\"" { return reply.head(304) }
            reply.respond(200, ["ETag": "\"1\""], text: "from \(request.path)")
        }
        let script = """
            call() { gdbus call --session --timeout 120 --dest \(BusName.service) --object-path "$@"; }
            exec 3<>/run/own
            call \(manager) --method \(Manager.interface).DownloadToFd "$0" 'handle 3' "{'notify': <'never'>, 'token': <'mine'>}"
            call \(BusName.path(app: app, token: "mine").value) --method \(Download.interface).Wait '\(noOptions)'
            cat /run/own
            """
        let written = await sandbox.run(["sh", "-c", script, server.url("/own")])
        #expect(
            written.output == "(objectpath '\(BusName.path(app: app, token: "mine"))',)\n('',)\nfrom /own", "\(written)")
        let folder = try await downloads(running)
        for (token, outcome) in [("a", "new-data"), ("b", "no-data")] {
            let answer = await sandbox.gdbus(
                manager, "\(Manager.interface).Fetch", server.url("/f"), "{'notify': <'never'>, 'token': <'\(token)'>}")
            #expect(answer.output == "('\(outcome)', '\(folder)/f')\n", "\(answer)")
            let looked = await sandbox.run(["ls", folder])
            #expect(looked.status != 0, "the folder is shared")
            let read = await sandbox.run(["/usr/bin/python3", "-c", Self.openFile, BusName.path(app: app, token: token).value])
            #expect(read.output == "from /f", "\(read)")
        }
        // A cached copy of one app is not another's, and an app cannot see another's downloads.
        let other = await Sandbox(running.world, app: "org.example.Other")
        let theirs = await other.gdbus(manager, "\(Manager.interface).Fetch", server.url("/f"), "{'notify': <'never'>}")
        #expect(theirs.output == "('new-data', '\(folder)/f (1)')\n", "\(theirs)")
        for options in ["{'directory': <'/tmp'>}", "{'if-exists': <'replace'>}", "{'app': <'org.example.Other'>}"] {
            let refused = await sandbox.gdbus(manager, "\(Manager.interface).Fetch", server.url("/f"), options)
            #expect(refused.errors.contains("org.todoku.Error.NotAllowed: "), "\(refused)")
        }
    }

    /// Calls OpenFile of the given object path, and prints the file's content. (gdbus can send descriptors, but cannot return them.)
    private static let openFile = #"""
        import os, socket, struct, sys
        bus = socket.socket(socket.AF_UNIX)
        bus.connect(os.environ['DBUS_SESSION_BUS_ADDRESS'].split('path=')[1].split(',')[0])
        for line in (b'\0AUTH EXTERNAL ' + str(os.getuid()).encode().hex().encode(), b'NEGOTIATE_UNIX_FD'):
            bus.sendall(line + b'\r\n')
            bus.recv(1000)
        bus.sendall(b'BEGIN\r\n')
        def call(serial, destination, path, interface, member):
            fields = b''
            for code, kind, text in (1, b'o', path), (2, b's', interface), (3, b's', member), (6, b's', destination):
                fields += b'\0' * (-len(fields) % 8) + bytes([code, 1]) + kind + b'\0' + struct.pack('<I', len(text)) + text.encode() + b'\0'
            message = struct.pack('<cBBBIII', b'l', 1, 0, 1, 0, serial, len(fields)) + fields
            bus.sendall(message + b'\0' * (-len(message) % 8))
        call(1, 'org.freedesktop.DBus', '/org/freedesktop/DBus', 'org.freedesktop.DBus', 'Hello')
        call(2, 'org.todoku.Downloader1', sys.argv[1], 'org.todoku.Download1', 'OpenFile')
        descriptors = []
        while not descriptors:
            data, descriptors, _, _ = socket.recv_fds(bus, 65536, 4)
            if not data: sys.exit('no answer')
        print(os.read(descriptors[0], 1000).decode(), end='')
        """#

    @Test func `steers its own`() async throws {
        let running = try await start()
        let sandbox = await Sandbox(running.world)
        let server = ScriptedServer { _, reply in reply.respond(200, text: "hello") }
        let first = try await running.download("http://127.0.0.1:1/a", paused)
        let client = try await sandbox.client()
        let own = try await client.download(server.url("/f"), ["start": .bool(false), "notify": .string("never")])
        try await client.call(Download.moveTo, at: own, 0)
        #expect(try await running.client.list() == [own, first])
        #expect(await thrown { try await client.set(Download.priority, at: own, 1) }?.name == todokuError("NotAllowed"))
        try await client.set(Download.priority, at: own, -1)
        #expect(try await running.client.list() == [first, own])
        try await client.set(Download.speedLimit, at: own, 1 << 20)
        try await client.resume(own)
        let file = try await client.wait(own)
        let descriptor = try await client.call(Download.openFile, at: own, ()).take()
        var buffer = [UInt8](repeating: 0, count: 16)
        #expect(read(descriptor, &buffer, 16) == 5 && buffer.starts(with: "hello".utf8))
        close(descriptor)
        try await client.remove(own, deletingFile: true)
        #expect(!fileExists(file))
        #expect(await thrown { try await client.get(Download.state, at: own) }?.name == "org.freedesktop.DBus.Error.UnknownObject")
        // The downloads with the app's id are its own, whoever queued them.
        let given = try await running.client.download("http://127.0.0.1:1/a", ["start": .bool(false), "app": .string(app)])
        #expect(try await client.list() == [given])
        try await client.cancel(given)
        try await client.retry(given)
    }

    @Test func `moves its own among its own, and takes no turn of others by that`() async throws {
        let running = try await start()
        let sandbox = await Sandbox(running.world)
        let server = ScriptedServer { request, reply in
            reply.respond(200, text: request.path == "/first" ? String(repeating: "x", count: 1_000_000) : "x")
        }
        try await running.client.set(Manager.maxActive, 1)
        // The app that holds the slot pays for that time, so it must not be the app whose turn the test checks. A transfer whose server is
        // silent would lose its slot. A transfer that the service holds back is never silent.
        let first = try await running.download(server.url("/first"), ["app": .string("org.example.First"), "speed-limit": .uint64(1)])
        #expect(await running.client.signals.has("Progress", at: first))
        let theirs = try await running.download(server.url("/theirs"), ["app": .string("org.example.User")])
        let client = try await sandbox.client()
        var own: [ObjectPath] = []
        for number in 1...20 { own.append(try await client.download(server.url("/own\(number)"), ["notify": .string("never")])) }
        for path in own.reversed() { try await client.call(Download.moveTo, at: path, 0) }
        try await running.client.cancel(first)
        _ = try await running.client.wait(theirs)
        for path in own { _ = try await client.wait(path) }
        let order = server.requests.map(\.path).filter { $0 != "/first" }
        #expect(order.last != "/theirs", "\(order)")
        #expect(order.filter { $0.hasPrefix("/own") } == (1...20).map { "/own\($0)" })
    }

    @Test func `waits for all of its own, and says of itself alone that it is in front`() async throws {
        let running = try await start()
        let sandbox = await Sandbox(running.world)
        let theirs = try await running.download("http://127.0.0.1:1/a", ["start": .bool(false), "tag": .string("t")])
        let client = try await sandbox.client()
        let own = try await client.download("http://127.0.0.1:1/b", ["start": .bool(false), "tag": .string("t")])
        let pipeline = Pipeline()
        for filter in [[:], ["tag": .string("t")], ["app": .string("org.example.Other")]] as [[String: Variant]] {
            await pipeline.start { "\(try await client.call(Manager.waitAll, filter))" }
        }
        _ = try await client.list()
        try await client.cancel(own)
        #expect(await pipeline.answers(3) == ["(0, 0, 1)", "(0, 0, 1)", "(0, 0, 0)"])
        #expect(try await running.client.get(Download.state, at: theirs) == "paused")
        try await client.call(Download.acknowledge, at: own, ())
        #expect(await thrown { try await client.call(Download.acknowledge, at: theirs, ()) }?.name.hasSuffix("UnknownObject") == true)
        func setForeground(_ app: String) async -> Child.Exit {
            await sandbox.gdbus(manager, "\(Manager.interface).SetForeground", app, "true")
        }
        #expect(await setForeground(app).output == "()\n")
        for other in ["org.example.Other", "org.example.App.More", ""] {
            #expect(await setForeground(other).errors.contains("org.todoku.Error.NotAllowed: "), "\(other)")
        }
        // The app may name as owner itself, or a name below its own.
        for (name, isAllowed) in [(app, true), ("\(app).Helper", true), ("\(app)Helper", false), ("org.example.Other", false)] {
            let answer = await sandbox.gdbus(
                manager, "\(Manager.interface).Download", "http://127.0.0.1:1/b", "{'start': <false>, 'activate': <'\(name)'>}")
            #expect(answer.errors.contains("org.todoku.Error.NotAllowed: ") != isAllowed, "\(name): \(answer)")
        }
    }

    @Test func `opens only the file that was downloaded, not one that had its name before or has it since`() async throws {
        let running = try await start()
        let sandbox = await Sandbox(running.world)
        let server = ScriptedServer { _, reply in reply.respond(200, text: "hello") }
        let folder = try await downloads(running)
        let client = try await sandbox.client()
        let quiet: [String: Variant] = ["notify": .string("never")]
        _ = try await client.wait(try await client.download(server.url("/first"), quiet))  // creates the folder
        writeFile("\(folder)/diary", "private".utf8)
        // No policy reveals to the app that a diary exists, or gives access to it.
        for (index, policy) in ["skip", "fail", "rename"].enumerated() {
            let own = try await client.download(server.url("/diary"), quiet.merging(["if-exists": .string(policy)]) { $1 })
            #expect(try await client.wait(own) == "\(folder)/diary (\(index + 1))", "\(policy)")
        }
        #expect(readFile("\(folder)/diary") == Array("private".utf8))
        let own = try await client.download(server.url("/own"), quiet)
        _ = try await client.wait(own)
        rename("\(folder)/diary", "\(folder)/own")
        #expect(await thrown { try await client.call(Download.openFile, at: own, ()) }?.name == todokuError("NotAllowed"))
        let shown = try await running.client.call(Download.openFile, at: own, ()).take()  // the user may open it
        close(shown)
        #expect(await thrown { try await client.remove(own, deletingFile: true) }?.name == todokuError("NotAllowed"))
        #expect(readFile("\(folder)/own") == Array("private".utf8))
        // The file was deleted, and another one has got its inode number.
        let again = try await client.download(server.url("/again"), quiet)
        let file = try await client.wait(again)
        let number = inode(of: file)
        unlink(file)
        writeFile(file, "private".utf8, inode: number)
        #expect(await thrown { try await client.call(Download.openFile, at: again, ()) }?.name == todokuError("NotAllowed"))
        #expect(await thrown { try await client.remove(again, deletingFile: true) }?.name == todokuError("NotAllowed"))
        #expect(readFile(file) == Array("private".utf8))
    }

    @Test func `gains nothing by calling before it is identified, and its calls keep their order`() async throws {
        let running = try await start()
        let theirs = try await running.download("http://127.0.0.1:1/a", paused)
        let sandbox = await Sandbox(running.world)
        let client = try await sandbox.client()
        let pipeline = Pipeline()
        await pipeline.start { "\(try await client.list())" }
        await pipeline.start { "\(try await client.call(Manager.cancelAll, ()))" }
        await pipeline.start { "\(try await client.download("http://127.0.0.1:1/1", ["directory": .string("/tmp")]))" }
        await pipeline.start { "\(try await client.download("http://127.0.0.1:1/2", ["start": .bool(false)]))" }
        await pipeline.start { "\(try await client.get(Download.url, at: theirs))" }
        await pipeline.start { "\(try await client.download("http://127.0.0.1:1/3", ["start": .bool(false)]))" }
        let answers = await pipeline.answers(6)
        #expect(
            answers == [
                "[]", todokuError("NotAllowed"), todokuError("NotAllowed"), "\(BusName.downloadsPath)/2",
                "org.freedesktop.DBus.Error.UnknownObject", "\(BusName.downloadsPath)/3",
            ])
        #expect(try await running.client.get(Download.state, at: theirs) == "paused")
    }

    @Test func `whose .flatpak-info names no application is refused everything`() async throws {
        let running = try await start()
        for (number, info) in ["", "[Application]\n", "[Application]\nname=../../etc\n", String(repeating: "#", count: 70_000)].enumerated()
        {
            let sandbox = await Sandbox(running.world, app: "bad\(number)", info: info)
            let answer = await sandbox.gdbus(manager, "\(Manager.interface).List", "{}")
            #expect(
                answer.errors.contains("org.todoku.Error.NotAllowed: Todoku cannot tell whether the caller is in a sandbox"), "\(answer)")
        }
        #expect(try await running.client.list() == [])
    }

    /// A process that is not dumpable (prctl(2), PR_SET_DUMPABLE) shows its root only to privileged programs.
    private static let undumpable = """
        from ctypes import *
        CDLL(None).prctl(4, 0, 0, 0, 0)
        dbus = CDLL("libdbus-1.so.3")
        class Error(Structure): _fields_ = [("name", c_char_p), ("message", c_char_p), ("bits", c_uint), ("padding", c_void_p)]
        error = Error()
        dbus.dbus_error_init(byref(error))
        dbus.dbus_bus_get.restype = dbus.dbus_message_new_method_call.restype = c_void_p
        bus = c_void_p(dbus.dbus_bus_get(0, byref(error)))
        name, path = b"org.todoku.Downloader1", b"/org/todoku/Downloader1"
        call = c_void_p(dbus.dbus_message_new_method_call(name, path, name, b"PauseAll"))
        dbus.dbus_connection_send_with_reply_and_block(bus, call, 120000, byref(error))
        print(error.name.decode() + ": " + error.message.decode())
        """

    @Test func `or a process that may not be inspected is refused everything`() async throws {
        let running = try await startUnprivileged()
        let hidden = await Child.run(unprivileged + ["python3", "-c", Self.undumpable], environment: running.world.environment)
        #expect(
            hidden.output.hasPrefix(
                "\(todokuError("NotAllowed")): Todoku cannot tell whether the caller is in a sandbox: the root folder of"),
            "\(hidden)")
        let plain = await Child.run(
            unprivileged + ["busctl", "--user", "--timeout=120", "call", BusName.service, manager, Manager.interface, "ResumeAll"],
            environment: running.world.environment)
        #expect(plain.isClean, "\(plain)")
    }

    @Test func `is remembered while it is connected, and a restarted service recognises it again`() async throws {
        let running = try await start()
        let sandbox = await Sandbox(running.world)
        let client = try await sandbox.client()
        for _ in 0..<3 { #expect(await thrown { try await client.call(Manager.pauseAll, ()) }?.name == todokuError("NotAllowed")) }
        _ = await running.world.stop(running.daemon)
        _ = await running.world.start()
        #expect(await thrown { try await client.call(Manager.pauseAll, ()) }?.name == todokuError("NotAllowed"))
        await sandbox.stop()
        // A call on its way when the connection breaks has another error.
        #expect(
            await eventually {
                await thrown { try await client.call(Manager.pauseAll, ()) }?.name == "org.freedesktop.DBus.Error.Disconnected"
            })
    }

    /// As docs/dbus.md says: signals are broadcast, and the proxy decides whether an app receives them.
    @Test func `receives signals of others if its proxy talks to the name, but not if it has rules for its own`() async throws {
        let running = try await start()
        let own = BusName.path(app: app, token: "mine")
        let talking = await Sandbox(running.world)
        let ruled = await Sandbox(
            running.world, app: "org.example.Ruled",
            rules: [
                "--call=\(BusName.service)=*@\(manager)/*",
                "--broadcast=\(BusName.service)=*@\(BusName.tokensPath)/\(ObjectPath.escape("org.example.Ruled"))/*",
            ])
        let (talker, listener) = (try await talking.client(), try await ruled.client())
        let theirs = try await running.download("http://127.0.0.1:1/a", ["start": .bool(false)])
        #expect(await talker.signals.has("DownloadAdded"))
        try await running.client.cancel(theirs)
        #expect(await talker.signals.has("Completed", at: theirs))
        _ = own
        let mine = try await listener.download("http://127.0.0.1:1/a", ["start": .bool(false), "token": .string("mine")])
        #expect(mine == BusName.path(app: "org.example.Ruled", token: "mine"))
        try await listener.cancel(mine)
        #expect(await listener.signals.has("Completed", at: mine))
        #expect(await listener.signals.seen.allSatisfy { $0.path == mine.value })
    }
}

/// Calls made one after the other, without waiting for answers.
@BusActor final class Pipeline {
    private var results: [Int: String] = [:]
    private var count = 0

    func start(_ body: @escaping @BusActor @Sendable () async throws -> String) {
        let number = count
        count += 1
        BusActor.spawn { [self] in
            let result: String
            do { result = try await body() } catch { result = (error as? DBusError)?.name ?? "\(error)" }
            results[number] = result
        }
    }

    func answers(_ wanted: Int) async -> [String?] {
        _ = await eventually { self.results.count == wanted }
        return (0..<wanted).map { results[$0] }
    }
}

@Suite struct `Who calls` {
    private var own: ConnectionCredentials {
        var credentials = ConnectionCredentials()
        (credentials.processID, credentials.userID) = (UInt32(getpid()), geteuid())
        return credentials
    }

    /// The time since boot.
    private var now: Duration {
        var time = timespec()
        clock_gettime(CLOCK_BOOTTIME, &time)
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }

    private func told(_ credentials: ConnectionCredentials, _ arrival: Duration) -> String {
        switch CallerInspection.finding(credentials, arrival: arrival) {
        case .known(.user): "user"
        case .known(.app(let id, _)): id
        case .refused(let error): error.name
        }
    }

    @Test func `is the user for a process outside of any sandbox`() { #expect(told(own, now) == "user") }

    @Test func `is unknown if the process is younger than the call`() {
        #expect(told(own, .milliseconds(10)) == todokuError("NotAllowed"))
    }

    @Test func `is unknown for a process that has ended, another user's, or one that the bus does not know`() async {
        let child = Child(["true"])
        _ = await child.wait()
        var credentials = own
        credentials.processID = UInt32(child.pid)
        #expect(told(credentials, now) == todokuError("NotAllowed"))
        credentials = own
        credentials.userID = geteuid() + 1
        #expect(told(credentials, now) == todokuError("NotAllowed"))
        credentials.userID = nil
        #expect(told(credentials, now) == todokuError("NotAllowed"))
        credentials = own
        credentials.processID = nil
        #expect(told(credentials, now) == todokuError("NotAllowed"))
    }

    /// A pidfd is readable once its process has ended (pidfd_open(2)). A pipe stands in for it, because this bus gives no pidfd.
    @Test func `is unknown if the connected process has ended, by its descriptor`() {
        var pipe: [Int32] = [0, 0]
        #expect(Glibc.pipe(&pipe) == 0)
        var credentials = own
        credentials.process = ProcessDescriptor(adopting: pipe[0])
        #expect(told(credentials, now) == "user")
        #expect(write(pipe[1], "x", 1) == 1)
        #expect(told(credentials, now) == todokuError("NotAllowed"))
        close(pipe[1])
    }

    @Test func `is a snap by the label of the connection, whatever its process`() {
        var credentials = own
        credentials.securityLabel = "snap.firefox.firefox (enforce)"
        #expect(told(credentials, now) == "snap.firefox")
        credentials.securityLabel = "unconfined"
        #expect(told(credentials, now) == "user")
    }
}

// No snap can run here. So its marks are tested as the documentation of snapd and the kernel describes them.
@Suite struct `The mark of a sandbox` {
    @Test(
        arguments: [
            ("[Application]\nname=org.example.App\n", "org.example.App"),
            (
                "# made by flatpak\n[Instance]\nname=org.wrong.One\n\n[Application]\n name = org.example.App-1 \nruntime=runtime/a/b/c\n",
                "org.example.App-1"
            ),
            ("[Application]\r\nname=org.example.App\r\n", "org.example.App"),
            ("[Runtime]\nname=org.freedesktop.Platform\n", "org.freedesktop.Platform"),
            ("[Application]\nname=org.example.App\n[Runtime]\nname=org.example.Sdk\n", "org.example.Sdk"),
            ("[Application]\nname=org.example.One\nname=org.example.Two", "org.example.Two"),
            ("name=org.example.App\n", nil), ("[Application]\nnames=org.example.App\n", nil), ("", nil),
            ("[Application]\nname=snap.firefox\n", nil), ("[Application]\nname=\n", nil), ("[Application]\nname=a..b.c\n", nil),
            ("[Application]\nname=org.example.App/x\n", nil), ("[Application]\nname=org.1example.App\n", nil),
            ("[Application]\nname=org.example.App\u{301}\n", nil), ("[Runtime]\n[Application]\nname=org.example.App\n", nil),
            ("[Application]\nname=a.b." + String(repeating: "c", count: 252) + "\n", nil),
        ] as [(String, String?)])
    func `of Flatpak is the name in its key file`(text: String, id: String?) { #expect(FlatpakInfo.id(in: text) == id) }

    @Test(
        arguments: [
            ("snap.firefox.firefox (enforce)", .snap("firefox")), ("snap.hello_key.sh (enforce)", .snap("hello_key")),
            ("snap.lxd.hook.configure (enforce)", .snap("lxd")), ("snap.a.b//child (enforce)", .snap("a")),
            ("snap.a.b (mixed)", .snap("a")), ("snap.a.b (prompt)", .snap("a")),
            ("snap.lxd.daemon//&:lxd-x_<var>:unconfined (mixed)", .snap("lxd")), ("docker-default//&snap.a.b (enforce)", .snap("a")),
            ("snap.0ad.0ad (enforce)", .snap("0ad")), ("snap.hello-world_key1.sh (enforce)", .snap("hello-world_key1")),
            ("snap.qcom+sub-part.hook.install (enforce)", .snap("qcom")), ("snap.qcom_key+part.hook.install (kill)", .snap("qcom_key")),
            ("snap.Firefox.firefox (enforce)", .unreadable), ("snap.a--b.c (enforce)", .unreadable), ("snap.-a.c (enforce)", .unreadable),
            ("snap.123.c (enforce)", .unreadable), ("snap.a_.c (enforce)", .unreadable), ("snap.a_b_c.d (enforce)", .unreadable),
            ("snap.a_12345678901.d (enforce)", .unreadable), ("snap.. (enforce)", .unreadable), ("snap.a\\x41.b (enforce)", .unreadable),
            ("snap.code.code (complain)", .unconfined), ("unconfined", .unconfined), ("/usr/bin/evince (enforce)", .unconfined),
            ("unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023", .other), ("", .other), ("snap.firefox.firefox", .other),
        ] as [(String, SecurityLabel)])
    func `of Snap is the AppArmor label, unless it only complains`(text: String, label: SecurityLabel) {
        #expect(SecurityLabel(text) == label)
    }

    @Test(
        arguments: [
            ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/snap.firefox.firefox-0a1b2c3d.scope\n", "firefox"),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/snap.hello-world.sh.4706fe54-7802-4808-aa7e-ae8b567239e0.scope\n",
                "hello-world"
            ),
            ("0::/system.slice/snap.lxd_key.daemon.service\n", "lxd_key"),
            ("0::/user.slice/snap.qcom\\x2bpart.hook.install-4706fe54-7802-4808-aa7e-ae8b567239e0.scope\n", "qcom"),
            ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/snap.0ad.0ad-4706fe54.scope\n", "0ad"),
            ("12:cpuset:/snap.no.no\n3:freezer:/snap.test-snapd\n1:name=systemd:/user.slice\n0::/user.slice\n", "test-snapd"),
            ("1:name=systemd:/user.slice/snap.a.b.c.scope\n", "a"), ("0::/user.slice/snap.A!.b.scope\n", "?"),
            ("0::/user.slice/user-1000.slice/session-1.scope\n", nil), ("0::/user.slice/notsnap.a.b.scope\n", nil), ("", nil),
            ("0::/\n", nil),
            ("12:memory:/snap.a.b\n", nil),
        ] as [(String, String?)])
    func `of Snap without AppArmor is its control group`(text: String, name: String?) {
        switch ControlGroup.snap(in: text) {
        case .none: #expect(name == nil)
        case .some(let found): #expect((found ?? "?") == name)
        }
    }

    @Test func `is not looked for in a root that is a FUSE file system`() {
        let own = "22 28 0:21 / /sys rw shared:7 - sysfs sysfs rw\n28 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        #expect(!MountInfo.hasFuseRoot(own))
        #expect(MountInfo.hasFuseRoot(own + "99 28 0:44 / / rw,nodev - fuse.fuse-overlayfs fuse-overlayfs rw\n"))
        #expect(!MountInfo.hasFuseRoot("99 28 0:44 / /mnt rw,nodev - fuse.sshfs x rw\n" + own))
        #expect(!MountInfo.hasFuseRoot(""))
    }

    @Test func `goes with the time at which its process began, whatever that is called`() {
        let rest = (3...52).map { $0 == 3 ? "S" : "\($0)" }.joined(separator: " ")
        for name in ["sh", "a b", ") S 1 (", "((", "\n)", "a\u{600}", ") S 1 \u{600}"] {
            #expect(ProcessStat.startTime(in: "7 (\(name)) \(rest)\n") == 22)
        }
        for text in ["", "7", "7 (sh", "7 (sh) S 1 2"] { #expect(ProcessStat.startTime(in: text) == nil) }
    }
}
