internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

private let realPortal = "/usr/libexec/xdg-desktop-portal"
private let scriptRunner = "/usr/libexec/glib-pacrunner"

/// Whether GLib can run proxy scripts: libproxy is its way to an engine of JavaScript. libproxy 0.5 has one of its own.
private func runsScripts() async -> Bool {
    let engines = "/usr/lib/*/libproxy/*/modules/pacrunner_* /usr/lib/*/libproxy/libpxbackend-1.0.so"
    guard access(realPortal, X_OK) == 0, access(scriptRunner, X_OK) == 0 else { return false }
    return await Child.run(["sh", "-c", "ls \(engines) 2>/dev/null | grep -q ."]).status == 0
}

/// Lets a test change the answers of a stand-in portal.
@BusActor private final class ScriptHost {
    var isThere = false
    nonisolated init() {}
}

extension Seen {
    fileprivate var isWaitForRetry: Bool { state == "waiting" && changed?["WaitReason"] == .string("retry") }
}

extension Running {
    /// Waits until a download has announced that it waits to be tried again. Between two attempts it waits for a second at first, so its
    /// state of now may be another one.
    ///
    /// - Parameter words: what the error says; nil: anything. Where the desktop's programs start slowly, an attempt may fail before they
    ///   answer.
    /// - Returns: the error that it announced with that.
    fileprivate func waitsAgain(_ path: ObjectPath, saying words: String? = nil) async -> EndError? {
        @Sendable func error(_ seen: Seen) -> EndError? {
            guard seen.path == path.value, seen.isWaitForRetry, let told = seen.changed?["Error"].flatMap(EndError.init) else { return nil }
            return words.map { told.message.contains($0) } ?? true ? told : nil
        }
        guard await client.signals.until({ seen in seen.contains { error($0) != nil } }) else { return nil }
        return await client.signals.of(path).lazy.compactMap { error($0) }.first
    }
}

@Suite(.timeLimit(.minutes(10))) struct `The proxy of the desktop's settings` {
    /// Works like a real HTTP proxy for GET: requests have the whole URL, and names stand for servers.
    private let proxy = ScriptedServer { request, reply in
        switch request.target {
        case "http://files.example/moved": reply.respond(302, ["Location": "http://other.example/b?key=1"])
        case "http://files.example/inside": reply.respond(302, ["Location": "http://192.168.1.1/admin"])
        default: reply.respond(200, text: "through \(request.target)")
        }
    }

    private func running(_ desktop: String, _ extra: [String: String] = [:]) async throws -> Running {
        try await Running.start(extra: ["XDG_CURRENT_DESKTOP": desktop].merging(extra) { $1 })
    }

    private func writeKDE(_ running: Running, _ text: String) {
        writeFile(running.world.bus.folder("config/kioslaverc"), "[Proxy Settings]\n\(text)\n".utf8)
    }

    @Test func `comes from the portal before each request, and is used`() async throws {
        let running = try await Running.start()
        let url = proxy.url()
        let portal = try await StandInProxyPortal(on: running.world.bus.address) { _ in [url, "direct://"] }
        let file = try await running.fetch("http://files.example/moved")
        #expect(readFile(file) == Array("through http://other.example/b?key=1".utf8))
        #expect(await portal.asked == ["http://files.example/moved", "http://other.example/b"])
    }

    /// No server has seen such an attempt, and `retries` counts attempts at servers.
    @Test func `is not bypassed while it is unknown, and is asked for again without using a retry`() async throws {
        let running = try await Running.start()
        let url = proxy.url()
        let answer = ScriptHost()
        let portal = try await StandInProxyPortal(on: running.world.bus.address) { _ in answer.isThere ? [url] : nil }
        let path = try await running.download("http://files.example/a", ["retries": .uint32(0)])
        #expect(await eventually { await portal.asked.count >= 3 })
        let error = try #require(await running.waitsAgain(path))
        #expect(error.name == todokuError("Network") && error.message.contains("proxy"), "\(error)")
        #expect(proxy.requests.isEmpty)
        await BusActor.run { answer.isThere = true }
        let file = try await running.client.wait(path)
        #expect(readFile(file) == Array("through http://files.example/a".utf8))
        #expect(proxy.requests.count == 1)
    }

    /// The portal uses GIO's resolver, as on a desktop whose settings we do not know.
    @Test(.enabled("there is no xdg-desktop-portal") { access(realPortal, X_OK) == 0 })
    func `comes from the real portal`() async throws {
        let running = try await Running.start()
        var environment = running.world.environment
        (environment["GSETTINGS_BACKEND"], environment["XDG_CURRENT_DESKTOP"]) = ("keyfile", "GNOME")
        let schema = "org.gnome.system.proxy"
        for (key, value) in [
            (["\(schema).http", "host"], "127.0.0.1"), (["\(schema).http", "port"], "\(proxy.port)"), ([schema, "mode"], "manual"),
        ] {
            #expect(await Child.run(["gsettings", "set"] + key + [value], environment: environment).status == 0)
        }
        let portal = Child([realPortal], environment: environment)
        #expect(await running.world.bus.waitForOwner("org.freedesktop.portal.Desktop"), "\(portal.errors)")
        let file = try await running.fetch("http://files.example/moved")
        #expect(readFile(file) == Array("through http://other.example/b?key=1".utf8))
        #expect(proxy.requests.map(\.target) == ["http://files.example/moved", "http://other.example/b?key=1"])
    }

    /// The whole way: GNOME's settings name a script, the portal asks GLib's runner, and that fetches and runs it. The portal does not know
    /// KDE's settings, so the runner is asked at once.
    @Test(
        .enabled("GLib runs no proxy scripts here: libproxy1-plugin-webkit") { await runsScripts() },
        arguments: [("GNOME", "http"), ("GNOME", "file"), ("KDE", "http")])
    func `is told by a script, which the real portal runs, whatever it says`(desktop: String, scheme: String) async throws {
        let direct = ScriptedServer(everywhere: true) { request, reply in reply.respond(200, text: "straight to \(request.target)") }
        let socks = SocksServer(to: direct.port)
        let script = """
            function FindProxyForURL(url, host) {
              if (url.indexOf("key") >= 0) return "PROXY 127.0.0.1:1";
              if (host == "\(ownHostName())") return "DIRECT";
              if (dnsDomainIs(host, ".onion.example")) return "SOCKS5 127.0.0.1:\(socks.port)";
              return "PROXY 127.0.0.1:\(proxy.port); DIRECT";
            }
            """
        let scripts = ScriptedServer { _, reply in
            reply.respond(200, ["Content-Type": "application/x-ns-proxy-autoconfig"], text: script)
        }
        let names = ["org.gtk.GLib.PACRunner": scriptRunner]
        let running = try await Running.start(extra: ["XDG_CURRENT_DESKTOP": desktop, "GSETTINGS_BACKEND": "keyfile"], names: names)
        writeFile(running.world.bus.folder("proxy.pac"), script.utf8)
        let address = scheme == "http" ? scripts.url("/proxy.pac") : "file://\(running.world.bus.folder("proxy.pac"))"
        if desktop == "KDE" { writeKDE(running, "ProxyType=2\nProxy Config Script=\(address)") }
        for (key, value) in [("autoconfig-url", address), ("mode", "auto")] where desktop == "GNOME" {
            let exit = await running.world.run("gsettings", "set", "org.gnome.system.proxy", key, value)
            #expect(exit.status == 0, "\(exit)")
        }
        let portal = Child([realPortal], environment: running.world.environment)
        #expect(await running.world.bus.waitForOwner("org.freedesktop.portal.Desktop"), "\(portal.errors)")
        // The proxy is looked up again for a redirect. The script must see no query, because it would then name no proxy that works.
        #expect(readFile(try await running.fetch("http://files.example/moved")) == Array("through http://other.example/b?key=1".utf8))
        #expect(proxy.requests.map(\.target) == ["http://files.example/moved", "http://other.example/b?key=1"])
        let own = "http://\(ownHostName()):\(direct.port)/c"
        #expect(readFile(try await running.fetch(own)) == Array("straight to /c".utf8))
        #expect(socks.requests.isEmpty)
        #expect(readFile(try await running.fetch("http://a.onion.example/d")) == Array("straight to /d".utf8))
        #expect(socks.requests == [.init(isByName: true, host: "a.onion.example", port: 80)])
        #expect(proxy.requests.count == 2 && direct.requests.map(\.target) == ["/c", "/d"])
        #expect(scripts.requests.isEmpty == (scheme == "file"))
    }

    /// GLib answers "direct" if it has no engine for the script.
    @Test(.enabled("GLib runs no proxy scripts here: libproxy1-plugin-webkit") { await runsScripts() }, arguments: ["GNOME", "KDE"])
    func `is not left out where the script cannot be run`(desktop: String) async throws {
        let server = ScriptedServer(everywhere: true) { _, reply in reply.respond(200, text: "direct") }
        let names = ["org.gtk.GLib.PACRunner": "/usr/bin/env PX_MODULE_PATH=/nonexistent \(scriptRunner)"]
        let running = try await Running.start(extra: ["XDG_CURRENT_DESKTOP": desktop, "GSETTINGS_BACKEND": "keyfile"], names: names)
        let script = running.world.bus.folder("proxy.pac")
        writeFile(script, "function FindProxyForURL(url, host) { return \"DIRECT\"; }".utf8)
        writeKDE(running, "ProxyType=2\nProxy Config Script=\(script)")
        for (key, value) in [("autoconfig-url", "file://\(script)"), ("mode", "auto")] {
            #expect(await running.world.run("gsettings", "set", "org.gnome.system.proxy", key, value).status == 0)
        }
        let portal = Child([realPortal], environment: running.world.environment)
        #expect(await running.world.bus.waitForOwner("org.freedesktop.portal.Desktop"), "\(portal.errors)")
        let path = try await running.download("http://\(ownHostName()):\(server.port)/a")
        _ = try #require(await running.waitsAgain(path, saying: "libproxy1-plugin-webkit"))
        #expect(server.requests.isEmpty)
        // The runner is replaced first: the download's next attempt may come at any time, and the bus then starts the runner again.
        await running.world.bus.makeActivatable("org.gtk.GLib.PACRunner", scriptRunner)
        kill(try #require(await running.world.bus.process(of: "org.gtk.GLib.PACRunner")), SIGTERM)
        #expect(readFile(try await running.client.wait(path)) == Array("direct".utf8))
    }

    /// The service continues for others, and the download waits; nothing was sent.
    @Test func `is awaited from a hanging portal, delays nobody else, and is never bypassed`() async throws {
        let running = try await Running.start()
        let portal = try await StandInProxyPortal(on: running.world.bus.address, hangs: true) { _ in [] }
        let path = try await running.download("http://\(proxy.port).example/a")
        #expect(await eventually { await portal.asked.count >= 1 })
        _ = try await running.fetch(proxy.url("/b"))
        _ = try #require(await running.waitsAgain(path))
        #expect(proxy.requests.map(\.target) == ["/b"])
        try await portal.leave()
        let url = proxy.url()
        let second = try await StandInProxyPortal(on: running.world.bus.address) { _ in [url] }
        _ = try await running.client.wait(path)
        #expect(await Set(second.asked) == ["http://\(proxy.port).example/a"])
    }

    @Test func `counts less than the environment's for the same scheme, and not for this machine`() async throws {
        let url = proxy.url()
        let running = try await Running.start(extra: ["http_proxy": url, "no_proxy": "direct.example"])
        let portal = try await StandInProxyPortal(on: running.world.bus.address) { _ in ["http://127.0.0.1:1"] }
        _ = try await running.fetch("http://files.example/a")
        _ = try await running.fetch(proxy.url("/b"))
        #expect(await portal.asked == [])
        // The environment names no proxy for https, so the desktop's counts.
        let error = await thrown { try await running.fetch("https://files.example/a", ["retries": .uint32(0)]) }
        #expect(error?.message.contains("cannot be reached through the proxy") == true, "\(error as Any)")
        #expect(await portal.asked == ["https://files.example/"])
        let plain = try await Running.start()
        let other = try await StandInProxyPortal(on: plain.world.bus.address) { _ in ["http://127.0.0.1:1"] }
        _ = try await plain.fetch(proxy.url("/b"))
        #expect(await other.asked == [])
    }

    @Test func `is read from KDE's file in KDE, again for each request`() async throws {
        let running = try await running("KDE")
        writeKDE(running, "ProxyType=1\nhttpProxy=http://127.0.0.1 \(closedPort())\nNoProxyFor=")
        let path = try await running.download("http://files.example/a")
        #expect(await running.client.signals.hasBeen("waiting", path))
        writeKDE(running, "ProxyType=1\nhttpProxy=http://127.0.0.1 \(proxy.port)\nNoProxyFor=")
        let file = try await running.client.wait(path)
        #expect(readFile(file) == Array("through http://files.example/a".utf8))
    }

    @Test(arguments: ["GNOME", "KDE"]) func `resolves names if it is Tor: this machine looks none up`(desktop: String) async throws {
        let server = ScriptedServer { request, reply in
            if request.path == "/a" { return reply.respond(302, ["Location": "http://other.example:8000/b"]) }
            reply.respond(200, text: "hidden")
        }
        let socks = SocksServer(to: server.port)
        let names = ["ca.desrt.dconf": "/usr/libexec/dconf-service"]
        let extra = ["XDG_CURRENT_DESKTOP": desktop, "GSETTINGS_BACKEND": "dconf"]
        let running = try await Running.start(extra: extra, names: names)
        if desktop == "KDE" { writeKDE(running, "ProxyType=1\nsocksProxy=socks://127.0.0.1 \(socks.port)") }
        let schema = "org.gnome.system.proxy"
        for (key, value) in [
            (["\(schema).socks", "host"], "127.0.0.1"), (["\(schema).socks", "port"], "\(socks.port)"), ([schema, "mode"], "manual"),
        ]
        where desktop == "GNOME" {
            #expect(await Child.run(["gsettings", "set"] + key + [value], environment: running.world.environment).status == 0)
        }
        // No name server knows these names, so a look-up would fail.
        let file = try await running.fetch("http://files.example/a")
        #expect(readFile(file) == Array("hidden".utf8))
        #expect(
            socks.requests == [
                .init(isByName: true, host: "files.example", port: 80), .init(isByName: true, host: "other.example", port: 8000),
            ])
    }

    @Test func `does not lift the rule on private networks`() async throws {
        let running = try await running("KDE")
        writeKDE(running, "ProxyType=1\nhttpProxy=http://127.0.0.1 \(proxy.port)")
        let options: [String: Variant] = ["allow-private": .bool(false)]
        _ = try await running.fetch("http://files.example/a", options)
        #expect(await thrown { try await running.fetch("http://192.168.1.1/a", options) }?.name == todokuError("NotAllowed"))
        #expect(await thrown { try await running.fetch("http://localhost/a", options) }?.name == todokuError("NotAllowed"))
        let moved = await thrown { try await running.fetch("http://files.example/inside", options) }
        #expect(moved?.name == todokuError("UnsafeRedirect"))
        #expect(proxy.requests.map(\.target) == ["http://files.example/a", "http://files.example/inside"])
        // A direct connection, which the desktop asks for, is checked by the host's addresses.
        writeKDE(running, "ProxyType=1\nhttpProxy=http://127.0.0.1 \(proxy.port)\nNoProxyFor=\(ownHostName())")
        let own = await thrown { try await running.fetch("http://\(ownHostName()):\(proxy.port)/x", options) }
        #expect(own?.name == todokuError("NotAllowed"), "\(own as Any)")
        #expect(proxy.requests.count == 2)
    }

    /// libcurl, which would read the variable too, must not connect directly while the service believes that a proxy is between.
    @Test func `does not lift the rule on private networks for a host that the environment excepts`() async throws {
        let running = try await running("KDE", ["no_proxy": ownHostName()])
        writeKDE(running, "ProxyType=1\nhttpProxy=http://127.0.0.1 \(proxy.port)")
        let server = ScriptedServer { _, reply in reply.respond(200, text: "inside") }
        let url = "http://\(ownHostName()):\(server.port)/a"
        let error = await thrown { try await running.fetch(url, ["allow-private": .bool(false)]) }
        #expect(error?.name == todokuError("NotAllowed"), "\(error as Any)")
        #expect(server.connections == 0)
        #expect(readFile(try await running.fetch(url)) == Array("inside".utf8))
        #expect(proxy.requests.isEmpty)
    }
}
