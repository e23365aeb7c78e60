internal import DBus
internal import DownloadModel
internal import EventLoop
internal import TestSupport
internal import Testing

@testable internal import Desktop

private func url(_ text: String) throws -> DownloadURL { try DownloadURL(text) }

/// The output of gsettings(1) for the schema's defaults with `changes`.
private func gsettings(_ changes: [String: String]) -> GNOMEProxies {
    var values = [
        " autoconfig-url": "''", " ignore-hosts": "['localhost', '127.0.0.0/8', '::1']", " mode": "'none'", " use-same-proxy": "true",
        ".ftp host": "''", ".ftp port": "0", ".http authentication-password": "''", ".http authentication-user": "''",
        ".http enabled": "false", ".http host": "''", ".http port": "8080", ".http use-authentication": "false", ".https host": "''",
        ".https port": "0", ".socks host": "''", ".socks port": "0",
    ]
    values.merge(changes) { $1 }
    return GNOMEProxies(values.map { "org.gnome.system.proxy\($0.key) \($0.value)\n" }.joined())
}

@Suite struct `GNOME's proxy settings` {
    private static let tor = [" mode": "'manual'", ".socks host": "'127.0.0.1'", ".socks port": "9050"]
    private static let http = [" mode": "'manual'", ".http host": "'proxy.example'", ".http port": "3128"]

    @Test(
        arguments: [
            ([:], "http://a.example/", ProxyChoice.direct), ([" mode": "'none'", ".http host": "'x'"], "http://a.example/", .direct),
            (tor, "http://a.example/", .through("socks5h://127.0.0.1:9050")),
            (tor, "https://a.example/", .through("socks5h://127.0.0.1:9050")),
            (tor, "http://localhost/", .direct), (tor, "http://127.1.2.3/", .direct), (tor, "http://[::1]/", .direct),
            (http, "http://a.example/", .through("http://proxy.example:3128")),
            (http, "https://a.example/", .through("http://proxy.example:3128")),
            (http.merging([" use-same-proxy": "false"]) { $1 }, "https://a.example/", .direct),
            (http.merging([".https host": "'other'", ".https port": "1"]) { $1 }, "https://a.example/", .through("http://other:1")),
            (http.merging([".socks host": "'s'"]) { $1 }, "https://a.example/", .through("socks5h://s:1080")),
            (http.merging([".http host": "'::1'", ".http port": "0"]) { $1 }, "http://a.example/", .through("http://[::1]:80")),
            (
                http.merging([
                    ".http use-authentication": "true", ".http authentication-user": "'u@'", ".http authentication-password": "\"p'\\\\\"",
                ]) { $1 }, "http://a.example/", .through("http://u%40:p%27%5c@proxy.example:3128")
            ),
            (http.merging([" ignore-hosts": "['*.a.example', \"b.example:8080\"]"]) { $1 }, "http://x.a.example/", .direct),
            (http.merging([" ignore-hosts": "['b.example:8080']"]) { $1 }, "http://b.example:8080/", .direct),
            (http.merging([" ignore-hosts": "['b.example:8080']"]) { $1 }, "http://b.example/", .through("http://proxy.example:3128")),
            (http.merging([" ignore-hosts": "@as []"]) { $1 }, "http://localhost/", .through("http://proxy.example:3128")),
        ] as [([String: String], String, ProxyChoice)])
    func `name the proxy of a URL`(changes: [String: String], text: String, choice: ProxyChoice) throws {
        #expect(gsettings(changes).setting(for: try url(text)) == .choice(choice))
    }

    @Test func `leave the choice to the proxy script`() throws {
        let page = try url("http://a.example/")
        #expect(gsettings([" mode": "'auto'"]).setting(for: page) == .script(""))
        #expect(gsettings([" mode": "'auto'", " autoconfig-url": "'http://p/p.pac'"]).setting(for: page) == .script("http://p/p.pac"))
    }

    @Test(arguments: [
        [" mode": "'sometimes'"], [" mode": "manual"], [" mode": "'manual'", " ignore-hosts": "['a'"],
        [" mode": "'manual'", ".http host": "7"],
        [" mode": "'manual'", ".http host": "'a b'"],
    ])
    func `that are not understood do not mean a direct connection`(changes: [String: String]) throws {
        guard case .choice(.unknown) = gsettings(changes).setting(for: try url("http://a.example/")) else {
            Issue.record("a choice was made")
            return
        }
    }

    @Test func `that are cut off do not mean a direct connection`() throws {
        guard case .choice(.unknown) = GNOMEProxies("").setting(for: try url("http://a.example/")) else {
            Issue.record("a choice was made")
            return
        }
    }
}

@Suite struct `KDE's proxy settings` {
    @Test(arguments: [
        ("", "http://a.example/", ProxyChoice.direct), ("ProxyType=0\nhttpProxy=http://p 1", "http://a.example/", .direct),
        ("ProxyType=1\nhttpProxy=http://p 8080", "http://a.example/", .through("http://p:8080")),
        ("ProxyType=1\nhttpProxy=http://p/ 8080", "http://a.example/", .through("http://p:8080")),
        ("ProxyType=1\nhttpProxy=p:8080", "http://a.example/", .through("http://p:8080")),
        ("ProxyType = 1 \n httpsProxy [$e] = http://p 8080", "https://a.example/", .through("http://p:8080")),
        ("ProxyType=1\nhttpProxy=http://p 0\nsocksProxy=socks://127.0.0.1 9050", "http://a.example/", .through("socks5h://127.0.0.1:9050")),
        ("ProxyType=1\nsocksProxy=socks://127.0.0.1 9050", "https://a.example/", .through("socks5h://127.0.0.1:9050")),
        ("ProxyType=1\nhttpProxy=http://p 1\nNoProxyFor=b.example,.a.example", "http://x.a.example/", .direct),
        ("ProxyType=1\nhttpProxy=http://p 1\nNoProxyFor=10.0.0.0/8", "http://10.1.2.3/", .direct),
        ("ProxyType=1\nhttpProxy=http://p 1\nNoProxyFor=a.example\nReversedException=true", "http://a.example/", .through("http://p:1")),
        ("ProxyType=1\nhttpProxy=http://p 1\nNoProxyFor=a.example\nReversedException=true", "http://b.example/", .direct),
        ("ProxyType=4\nhttpProxy=OURS\nNoProxyFor=NOT", "http://a.example/", .through("http://env:7")),
        ("ProxyType=4\nhttpProxy=OURS\nNoProxyFor=NOT", "http://b.example/", .direct),
        ("ProxyType=1\nhttpProxy=http://p 1\n[Other]\nProxyType=0", "http://a.example/", .through("http://p:1")),
    ])
    func `name the proxy of a URL`(text: String, address: String, choice: ProxyChoice) throws {
        var proxies = KDEProxies()
        proxies.add("[Proxy Settings]\n" + text)
        #expect(proxies.setting(for: try url(address), ["OURS": "http://env:7", "NOT": "b.example"]) == .choice(choice))
    }

    @Test(arguments: [("2", "http://p/p.pac", "http://p/p.pac"), ("2", "/a b.pac", "file:///a%20b.pac"), ("3", "http://p/p.pac", "")])
    func `leave the choice to the proxy script`(type: String, text: String, script: String) throws {
        var proxies = KDEProxies()
        proxies.add("[Proxy Settings]\nProxyType=\(type)\nProxy Config Script=\(text)")
        #expect(proxies.setting(for: try url("http://a.example/")) == .script(script))
    }

    @Test func `of an administrator win if they are immutable`() throws {
        for head in ["[Proxy Settings][$i]\nProxyType=1\nsocksProxy=a 1", "[Proxy Settings]\nProxyType[$i]=1\nsocksProxy[$i]=a 1"] {
            var proxies = KDEProxies()
            proxies.add(head)
            proxies.add("[Proxy Settings]\nProxyType=0\nsocksProxy=b 2")
            #expect(proxies.setting(for: try url("http://a.example/")) == .choice(.through("http://a:1")), "\(head)")
        }
        var proxies = KDEProxies()
        proxies.add("[Proxy Settings]\nProxyType=1\nhttpProxy=http://a 1")
        proxies.add("[Proxy Settings]\nhttpProxy=http://b 2")
        #expect(proxies.setting(for: try url("http://a.example/")) == .choice(.through("http://b:2")))
    }
}

@Suite struct `A resolver's answer` {
    @Test(arguments: [
        (["direct://"], ProxyChoice.direct), (["http://p:1", "direct://"], .through("http://p:1")),
        (["https://p:1/"], .through("https://p:1")),
        (["socks://p:1"], .through("socks5h://p:1")), (["socks5://p:1"], .through("socks5h://p:1")),
        (["socks4://p:1"], .through("socks4a://p:1")),
    ])
    func `gives the proxy of its first URL, and lets that proxy resolve host names`(answer: [String], choice: ProxyChoice) {
        #expect(ProxyChoice(resolved: answer) == choice)
    }

    @Test(arguments: [[], [""], ["p:1"], ["http://"], ["ftp://p:1"], ["http://p q"], ["http://p\n"]])
    func `that names no proxy does not mean a direct connection`(answer: [String]) {
        guard case .unknown = ProxyChoice(resolved: answer) else {
            Issue.record("\(answer)")
            return
        }
    }
}

@Suite(.timeLimit(.minutes(10))) struct `The desktop's proxies` {
    private func choice(_ environment: [String: String], _ address: String, patience: Duration = .seconds(60)) async throws -> ProxyChoice {
        let bus = try #require(environment["DBUS_SESSION_BUS_ADDRESS"])
        let connection = try await Connection.open(address: bus)
        return await DesktopProxies(connection: connection, environment: environment, patience: patience).choice(for: try url(address))
    }

    private let gnome = ["XDG_CURRENT_DESKTOP": "ubuntu:GNOME", "GSETTINGS_BACKEND": "dconf"]

    private func set(_ environment: [String: String], _ key: String, _ value: String) async {
        let words = key.split(separator: " ").map(String.init)
        let exit = await Child.run(["gsettings", "set"] + words + [value], environment: environment)
        #expect(exit.status == 0, "\(exit)")
    }

    /// Makes a `gsettings` of a script, and returns its folder. Another process writes the program: a child that another test starts just
    /// then would hold our descriptor for a moment, and nothing runs a file that is open for writing.
    private func makeSettings(_ script: String, on bus: PrivateBus) async -> String {
        let folder = bus.folder.makeFolder("programs")
        writeFile("\(folder)/script", "#!/bin/sh\n\(script)\n".utf8)
        let exit = await Child.run(["install", "-m", "755", "\(folder)/script", "\(folder)/gsettings"])
        #expect(exit.status == 0, "\(exit)")
        return folder
    }

    @Test func `are read from dconf, again after a change`() async throws {
        let bus = await PrivateBus(activatable: ["ca.desrt.dconf": "/usr/libexec/dconf-service"], extra: gnome)
        let environment = bus.environment
        let connection = try await Connection.open(address: bus.address)
        let proxies = await DesktopProxies(connection: connection, environment: environment, patience: .seconds(60))
        let page = try url("http://a.example/")
        #expect(await proxies.choice(for: page) == .direct)
        await set(environment, "org.gnome.system.proxy.socks host", "127.0.0.1")
        await set(environment, "org.gnome.system.proxy.socks port", "9050")
        await set(environment, "org.gnome.system.proxy mode", "manual")
        #expect(await proxies.choice(for: page) == .through("socks5h://127.0.0.1:9050"))
        await set(environment, "org.gnome.system.proxy mode", "auto")
        guard case .unknown(let reason) = await proxies.choice(for: page) else {
            Issue.record("a script was run, and by whom?")
            return
        }
        #expect(reason.contains("xdg-desktop-portal"), "\(reason)")
        let portal = try await StandInProxyPortal(on: bus.address) { _ in ["http://p:1", "direct://"] }
        #expect(await proxies.choice(for: page) == .through("http://p:1"))
        #expect(await proxies.choice(for: try url("https://a.example/secret?key=1")) == .through("http://p:1"))
        #expect(await portal.asked == ["http://a.example/", "https://a.example/"])
        await set(environment, "org.gnome.system.proxy mode", "none")
        #expect(await proxies.choice(for: page) == .direct)
    }

    @Test func `do not mean a direct connection if they cannot be read`() async throws {
        let bus = await PrivateBus(extra: gnome)
        let bare = bus.environment.merging(["PATH": "/nonexistent"]) { $1 }
        #expect(try await choice(bare, "http://a.example/") == .unknown("gsettings, which reads the desktop’s settings, is not installed"))
        let database = bus.folder.makeFolder("config/dconf") + "/user"
        writeFile(database, "rubbish, and long enough".utf8)
        #expect(try await choice(bus.environment, "http://a.example/") == .unknown("\(database) is not a dconf database"))
        // The portal may know the proxy even if the settings are unreadable.
        let portal = try await StandInProxyPortal(on: bus.address) { _ in ["direct://"] }
        #expect(try await choice(bus.environment, "http://a.example/") == .direct)
        #expect(await portal.asked == ["http://a.example/"])
        let kde = bus.environment.merging(["XDG_CURRENT_DESKTOP": "KDE"]) { $1 }
        let file = bus.folder.makeFolder("config/kioslaverc")
        try await portal.leave()
        #expect(try await choice(kde, "http://a.example/") == .unknown("\(file) cannot be read"))
    }

    @Test func `do not mean a direct connection if reading them, or the portal, hangs`() async throws {
        let bus = await PrivateBus()
        // `choice` waits 6 s for the settings. Within 6 s the bus answers that no portal runs. On a busy machine, it may be late. The
        // commands that read the settings hang, and the second command still runs after 6 s.
        let folder = await makeSettings("trap '' TERM\nexec sleep 60", on: bus)
        let slow = bus.environment.merging(["PATH": "\(folder):/usr/bin:/bin", "XDG_CURRENT_DESKTOP": "GNOME"]) { $1 }
        func timedChoice() async throws -> (choice: ProxyChoice, time: Duration) {
            let begun = ContinuousClock.now
            let answer = try await choice(slow, "http://a.example/", patience: .seconds(6))
            return (answer, ContinuousClock.now - begun)
        }
        // After 8 s the commands have ended. A pause of the machine may show their end before the end of the patience.
        let (answer, _) = try await repeated {
            try await timedChoice()
        } until: {
            $0.time < .seconds(8) && $0.choice != .unknown("the portal did not answer within 6 s")
        }
        guard case .unknown(let reason) = answer else {
            Issue.record("went on without the settings")
            return
        }
        #expect(reason.contains("could not be read"), "\(reason)")
        let portal = try await StandInProxyPortal(on: bus.address, hangs: true) { _ in ["direct://"] }
        #expect(
            try await choice(bus.environment, "http://a.example/", patience: .seconds(1))
                == .unknown("the portal did not answer within 1 s"))
        #expect(await eventually { await portal.asked == ["http://a.example/"] })
    }

    /// Without an engine for scripts, the portal and GLib's runner answer "direct". Only a test script tells that from a script's answer.
    /// The settings must be read within the patience, by a thread that a hanging reading of another test may hold for 10 s.
    @Test(arguments: [
        ("/bin/sleep 60", "GLib’s runner of proxy scripts did not answer within 25 s"),
        ("/bin/false", "GLib’s runner of proxy scripts (glib-networking) cannot be started"),
        (nil, "no script to test the proxy scripts with could be written in /nonexistent"),
    ])
    func `do not mean a direct connection if the run of a test script hangs or fails`(runner: String?, reason: String) async throws {
        let bus = await PrivateBus(activatable: runner.map { ["org.gtk.GLib.PACRunner": $0] } ?? [:])
        let settings = "\(GNOMEProxies.schema) mode 'auto'\n\(GNOMEProxies.schema) autoconfig-url 'http://a.example/proxy.pac'"
        let folder = await makeSettings("echo \"\(settings)\"", on: bus)
        var environment = bus.environment.merging(["PATH": "\(folder):/usr/bin:/bin", "XDG_CURRENT_DESKTOP": "GNOME"]) { $1 }
        if runner == nil { environment["XDG_RUNTIME_DIR"] = "/nonexistent" }
        let portal = try await StandInProxyPortal(on: bus.address) { _ in ["direct://"] }
        #expect(try await choice(environment, "http://a.example/", patience: .seconds(25)) == .unknown(reason))
        #expect(await portal.asked == ["http://a.example/"])
    }

    @Test func `mean a direct connection without a desktop, or if no portal can start`() async throws {
        let bus = await PrivateBus(activatable: ["org.freedesktop.portal.Desktop": "/nonexistent/portal"])
        #expect(try await choice(bus.environment, "http://a.example/") == .direct)
        #expect(try await choice(bus.environment.merging(["DISPLAY": ":7"]) { $1 }, "http://a.example/") == .direct)
    }
}
