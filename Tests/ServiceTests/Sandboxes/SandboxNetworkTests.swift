internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import DownloadService
@testable internal import Sandboxes

private let manager = BusName.managerPath.value
private let app = "org.example.App"

@Suite(.timeLimit(.minutes(10))) struct `The network of a caller in a sandbox` {
    private let quiet: [String: Variant] = ["notify": .string("never")]

    @Test func `does not exist through us if its sandbox has none`() async throws {
        let running = try await Running.start()
        try await running.client.set(Manager.sandboxPrivate, true)
        let server = ScriptedServer { _, reply in reply.respond(200, text: "hello") }
        let sandbox = await Sandbox(running.world, info: Sandbox.info(app: app, shared: "ipc;!network;"))
        // The app may see and stop a download that another caller has queued for it, but not start it.
        let own: [String: Variant] = ["app": .string(app), "start": .bool(false)]
        let given = try await running.download(server.url("/given"), own)
        let (batch, _) = try await running.batch([server.url("/batch")], own)
        let (download, url) = ("\(Manager.interface).Download", server.url("/a"))
        for (path, method, arguments) in [
            (manager, download, [url, "{}"]), (manager, "\(Manager.interface).Fetch", [url, "{}"]),
            (manager, "\(Manager.interface).DownloadBatch", ["[('\(url)', \(noOptions))]", "{}"]),
            (given.value, "\(Download.interface).Resume", []), (given.value, "\(Download.interface).Retry", []),
            (given.value, "\(Download.interface).ReplaceUrl", [url, "{}"]), (batch.value, "\(Batch.interface).Resume", []),
        ] as [(String, String, [String])] {
            let answer = await sandbox.gdbus(path, method, arguments)
            #expect(answer.errors.contains("org.todoku.Error.NotAllowed: The sandbox of \(app) has no network"), "\(method): \(answer)")
        }
        // The shell opens the file, and calls the method in its arguments.
        let script = ["sh", "-c", "exec 3<>/run/own \"$@\"", "sh"]
        let descriptor = await sandbox.run(script + gdbusCall(manager, "\(Manager.interface).DownloadToFd", [url, "handle 3", "{}"]))
        #expect(descriptor.errors.contains("NotAllowed: The sandbox of \(app) has no network"), "\(descriptor)")
        let document = await sandbox.run(script + gdbusCall(manager, "\(Manager.interface).DownloadMetalink", ["handle 3", "{}"]))
        #expect(document.errors.contains("NotAllowed: The sandbox of \(app) has no network"), "\(document)")
        #expect(await sandbox.gdbus(given.value, "\(Download.interface).Cancel").status == 0)
        #expect(server.connections == 0)
        #expect(try await running.client.list().count == 2)
    }

    @Test func `does not reach this machine, by whatever name, nor what waits for it over a restart`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "secret") }
        let sandbox = await Sandbox(running.world)
        let client = try await sandbox.client()
        for host in ["127.0.0.1", "localhost", "[::1]", "192.168.0.1"] {
            let error = await thrown { try await client.download("http://\(host):\(server.port)/a", quiet) }
            #expect(error?.name == todokuError("NotAllowed"), "\(host): \(error as Any)")
        }
        let asked = await thrown { try await client.download(server.url("/a"), quiet.merging(["allow-private": .bool(true)]) { $1 }) }
        #expect(asked?.name == todokuError("NotAllowed") && asked?.message.contains("SandboxPrivate") == true)
        let named = "http://\(ownHostName()):\(server.port)/a"
        let ended = await thrown { try await client.wait(try await client.download(named, quiet)) }
        #expect(ended?.name == todokuError("NotAllowed"), "\(ended as Any)")
        let path = try await client.download(named, quiet.merging(["start": .bool(false)]) { $1 })
        let renewed = await thrown { try await client.call(Download.replaceUrl, at: path, (server.url("/b"), [:])) }
        #expect(renewed?.name == todokuError("NotAllowed"))
        // That the URL came from a sandbox is saved with the download.
        _ = await running.world.stop(running.daemon)
        _ = await running.world.start()
        try await running.client.resume(path)
        #expect(await thrown { try await running.client.wait(path) }?.name == todokuError("NotAllowed"))
        #expect(server.connections == 0)
        // A link counts as given from a sandbox, whoever queued the download.
        let theirs = try await running.client.download(
            server.url("/theirs"), quiet.merging(["app": .string(app), "start": .bool(false)]) { $1 })
        try await client.call(Download.replaceUrl, at: theirs, (named, [:]))
        try await running.client.resume(theirs)
        #expect(await thrown { try await running.client.wait(theirs) }?.name == todokuError("NotAllowed"))
        #expect(server.connections == 0)
        await sandbox.stop()
    }

    @Test func `reaches this machine if the user allows it, and not after the user withdraws that`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "hello") }
        let sandbox = await Sandbox(running.world)
        let client = try await sandbox.client()
        try await running.client.set(Manager.sandboxPrivate, true)
        _ = try await client.wait(try await client.download(server.url("/a"), quiet))
        let refused = await thrown { try await client.download(server.url("/b"), quiet.merging(["allow-private": .bool(false)]) { $1 }) }
        #expect(refused?.name == todokuError("NotAllowed"))
        let path = try await client.download(server.url("/c"), quiet.merging(["start": .bool(false)]) { $1 })
        try await running.client.set(Manager.sandboxPrivate, false)
        try await client.resume(path)
        #expect(await thrown { try await client.wait(path) }?.name == todokuError("NotAllowed"))
        #expect(server.requests.map(\.path) == ["/a"])
        await sandbox.stop()
    }

    @Test func `is not used any more by what waits once the user has taken it from the app`() async throws {
        let running = try await Running.start()
        try await running.client.set(Manager.sandboxPrivate, true)
        let server = ScriptedServer { _, reply in reply.respond(200, text: "hello") }
        let sandbox = await Sandbox(running.world)
        let client = try await sandbox.client()
        let path = try await client.download(server.url("/a"), quiet.merging(["start": .bool(false)]) { $1 })
        let users = try await running.download(server.url("/b"), quiet.merging(["app": .string(app), "start": .bool(false)]) { $1 })
        // As `flatpak override --user --unshare=network` writes it.
        for part in ["data/flatpak", "data/flatpak/overrides"] { _ = running.world.bus.folder.makeFolder(part) }
        let overrides = running.world.bus.folder("data/flatpak/overrides")
        writeFile("\(overrides)/\(app)", "[Context]\nshared=!network;\n".utf8)
        try await running.client.resume(path)
        let error = await thrown { try await running.client.wait(path) }
        #expect(error?.name == todokuError("NotAllowed") && error?.message.contains("flatpak override") == true, "\(error as Any)")
        #expect(server.connections == 0)
        // A download that the user queued under the app's name belongs to the user.
        try await running.client.resume(users)
        _ = try await running.client.wait(users)
        unlink("\(overrides)/\(app)")
        try await running.client.call(Download.retry, at: path, ())
        _ = try await running.client.wait(path)
        #expect(server.requests.map(\.path) == ["/b", "/a"])
        await sandbox.stop()
    }

    @Test(
        arguments: [
            ([:], true), (["own/\(app)": "!network;"], false), (["own/global": "!network"], false),
            (["machine/\(app)": "ipc;!network"], false), (["machine/global": "!network"], false),
            (["own/global": "!network", "own/\(app)": "network"], true), (["machine/\(app)": "!network", "own/global": "network"], true),
            (["machine/global": "network", "machine/\(app)": "!network"], false), (["own/\(app)": "ipc"], true),
            (["own/org.example.Other": "!network"], true),
        ] as [([String: String], Bool)])
    func `is taken by the overrides of the machine and of the user, the later file first`(files: [String: String], has: Bool) {
        let folder = TemporaryFolder("todoku-overrides")
        for part in ["own", "own/overrides", "machine", "machine/overrides"] { _ = folder.makeFolder(part) }
        for (name, shared) in files {
            let words = name.split(separator: "/")
            writeFile(folder("\(words[0])/overrides/\(words[1])"), "[Context]\nshared=\(shared)\n".utf8)
        }
        #expect(FlatpakOverrides.allowNetwork(for: app, in: (folder("own"), folder("machine"))) == has)
    }

    @Test func `is restricted for everybody by the option allow-private`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "hello") }
        let options: [String: Variant] = ["allow-private": .bool(false)]
        #expect(await thrown { try await running.download(server.url("/a"), options) }?.name == todokuError("NotAllowed"))
        let items = await thrown { try await running.client.batch([(server.url("/a"), options)], running.options()) }
        #expect(items?.name == todokuError("NotAllowed") && items?.message.hasPrefix("Item 0: ") == true)
        let named = "http://\(ownHostName()):\(server.port)/a"
        #expect(await thrown { try await running.fetch(named, options) }?.name == todokuError("NotAllowed"))
        #expect(server.connections == 0)
        _ = try await running.fetch(named)
    }

    @Test func `is restricted by the option allow-private for a fresh link, too`() async throws {
        let running = try await Running.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "hello") }
        let path = try await running.download("http://example.org/a", ["allow-private": .bool(false), "start": .bool(false)])
        let bare = await thrown { try await running.client.call(Download.replaceUrl, at: path, (server.url("/b"), [:])) }
        #expect(bare?.name == todokuError("NotAllowed") && bare?.message.contains("allow-private") == true, "\(bare as Any)")
        #expect(try await running.client.call(Download.getUrl, at: path, ()) == "http://example.org/a")
        // Only a look-up shows that the name leads to this machine.
        try await running.client.call(Download.replaceUrl, at: path, ("http://\(ownHostName()):\(server.port)/b", [:]))
        try await running.client.resume(path)
        #expect(await thrown { try await running.client.wait(path) }?.name == todokuError("NotAllowed"))
        #expect(server.connections == 0)
    }

    @Test(arguments: [
        ("[Context]\nshared=network;ipc;\n", true), ("[Context]\nshared=ipc;network\n", true),
        (" [Context] \n shared = ipc ; network ;", true),
        ("[Context]\nshared=ipc;\n", false), ("[Context]\nshared=!network;\n", false), ("[Context]\nshared=networks;\n", false),
        ("[Application]\nshared=network;\n", false), ("shared=network;\n[Context]\n", false), ("", false),
        ("[Context]\nsockets=network;", false),
    ])
    func `is read from the group Context of .flatpak-info`(text: String, has: Bool) { #expect(FlatpakInfo.hasNetwork(in: text) == has) }
}

@Suite struct `The id of an app in a sandbox` {
    /// U+212A, the kelvin sign, is canonically equivalent to the letter K. Under such an id, no file of overrides is found that takes the
    /// network from the app, and no desktop entry for which the user has switched toasts off.
    @Test func `is its own only if all bytes are`() throws {
        func options(_ named: String) throws(Refusal) -> DownloadOptions {
            try DownloadOptions(
                decoding: ["app": .string(named)], from: .app("org.example.Kite"), defaultDirectory: "/d", settings: Settings())
        }
        #expect(try options("org.example.Kite").app == "org.example.Kite")
        let refusal = #expect(throws: Refusal.self) { try options("org.example.\u{212A}ite") }
        #expect(refusal?.name == .notAllowed && refusal?.message.contains("app") == true)
    }
}

@Suite struct `A value in .flatpak-info` {
    /// Flatpak writes the app's variables into the file. Of these characters, it escapes none.
    @Test(arguments: ["\u{b}", "\u{c}", "\u{85}", "\u{2028}", "\u{2029}"])
    func `forges neither another name nor the network, whatever character it holds`(end: String) {
        let value = ["1", "[Application]", "name=org.example.Other", "[Context]", "shared=network;", ""].joined(separator: end)
        let text = "[Application]\nname=\(app)\n\n[Context]\nshared=ipc;\n\n[Environment]\nVARIABLE=\(value)\n"
        #expect(FlatpakInfo.id(in: text) == app)
        #expect(FlatpakInfo.network(in: text) == nil)
    }
}
