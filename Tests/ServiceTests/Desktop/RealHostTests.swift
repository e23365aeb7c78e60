internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

private let logind: String? = ["/usr/lib/systemd/systemd-logind", "/lib/systemd/systemd-logind"].first { (path: String) in
    access(path, X_OK) == 0
}
/// The folder that NetworkManager was unpacked into; empty: the system's.
private let root = processEnvironment()["TODOKU_NETWORK_MANAGER"] ?? ""
private let networkManager = "\(root)/usr/sbin/NetworkManager"

private func canUnshare(_ what: String) async -> Bool { geteuid() == 0 ? await Child.run(["unshare", what, "true"]).status == 0 : false }

@Suite struct `The real logind` {
    @Test(.enabled("only root can start logind, and it is there") { logind == nil ? false : await canUnshare("-m") })
    func `lists our locks while bytes move, and no longer`() async throws {
        let bus = await PrivateBus()
        // A separate run folder, because the machine's own logind, if any, keeps its locks in the real one.
        let script = """
            mkdir -p /run/systemd && mount -t tmpfs none /run/systemd && cd /run/systemd && mkdir seats sessions users inhibit && exec "$0"
            """
        let system = bus.environment.merging(["DBUS_SYSTEM_BUS_ADDRESS": bus.address]) { $1 }
        let daemon = Child(["unshare", "-m", "sh", "-c", script, try #require(logind)], environment: system)
        #expect(await bus.waitForOwner("org.freedesktop.login1"), "\(daemon.errors)")
        func inhibitors() async -> String {
            await Child.run(
                [
                    "busctl", "--system", "call", "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager",
                    "ListInhibitors",
                ], environment: system
            ).output
        }
        // No download ends before the test has seen its locks.
        let (body, gate, again) = (patternBytes(1_500_000), Gate(), Gate())
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else {
                again.wait()
                return reply.serve(body, for: request, entityTag: "\"v\"")
            }
            reply.head(200, ["ETag": "\"v\""], length: body.count)
            reply.send(body[..<SlowFile.first])
            gate.wait()
        }
        let running = try await Running.start(extra: ["DBUS_SYSTEM_BUS_ADDRESS": bus.address])
        #expect(await inhibitors() == "a(ssssuu) 0\n")
        let path = try await running.begin(server.url("/a"))
        #expect(await eventually { await inhibitors().hasPrefix("a(ssssuu) 2") })
        let all = await inhibitors()
        #expect(all.contains("\"sleep\" \"Todoku\" \"Downloads are under way\" \"block\" 0 \(running.daemon.pid)"), "\(all)")
        #expect(all.contains("\"delay\" 0 \(running.daemon.pid)") && !all.contains("idle"), "\(all)")
        try await running.client.pause(path)
        #expect(await eventually { await inhibitors() == "a(ssssuu) 0\n" })
        try await running.client.resume(path)
        #expect(await eventually { await inhibitors().hasPrefix("a(ssssuu) 2") || !running.daemon.isRunning })
        again.open()
        #expect(readFile(try await running.client.wait(path)) == body)
        #expect(await eventually { await inhibitors() == "a(ssssuu) 0\n" })
        gate.open()
    }
}

/// A network namespace with a link `dl0`, which the real NetworkManager manages, and a real server at the other end.
private struct NetworkHost {
    let bus: PrivateBus
    let manager: Child
    let server: Child
    let folder: TemporaryFolder
    private let environment: [String: String]

    init() async throws {
        let (bus, folder) = (await PrivateBus(), TemporaryFolder("todoku-nm"))
        var environment = bus.environment.merging(["DBUS_SYSTEM_BUS_ADDRESS": bus.address]) { $1 }
        if !root.isEmpty, let lib = listFolder("\(root)/usr/lib").first(where: { $0.hasSuffix("-linux-gnu") }) {
            environment["LD_LIBRARY_PATH"] = "\(root)/usr/lib/\(lib)"
        }
        folder.makeFolder("connections")
        let settings = """
            [main]
            plugins=keyfile
            dhcp=internal
            dns=none
            rc-manager=unmanaged
            auth-polkit=root-only
            no-auto-default=*
            [keyfile]
            path=\(folder("connections"))
            unmanaged-devices=interface-name:dl1

            """
        writeFile(folder("NetworkManager.conf"), settings.utf8)
        // With a read-only /sys, NetworkManager does not wait for udev.
        let script = """
            set -e
            mount -t tmpfs none /run && mkdir -p /run/NetworkManager && mount -t tmpfs none /var/lib && mkdir -p /var/lib/NetworkManager
            mount -t sysfs -o ro sysfs /sys
            ip link set lo up && ip link add dl0 type veth peer name dl1 && ip addr add 10.9.9.1/24 dev dl1 && ip link set dl1 up
            exec "$0" --no-daemon --config="$1/NetworkManager.conf" --config-dir="$1/none" --intern-config="$1/intern.conf" \
                --pid-file="$1/nm.pid" --state-file="$1/nm.state"
            """
        manager = Child(["unshare", "-n", "-m", "sh", "-c", script, networkManager, folder.path], environment: environment)
        (self.bus, self.folder, self.environment) = (bus, folder, environment)
        #expect(await bus.waitForOwner("org.freedesktop.NetworkManager"), "\(manager.errors)")
        chmod(folder.path, 0o755)
        folder.makeFolder("root")
        folder.makeFolder("tmp")
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map { "\($0)_temp_path \(folder("tmp"))/\($0);" }
        let configuration = """
            daemon off; master_process off; pid \(folder("nginx.pid")); error_log stderr; events {}
            http {
                \(paths.joined(separator: " "))
                log_format short '$status $request_uri $http_range'; access_log \(folder("access.log")) short;
                server { listen 10.9.9.1:80; root \(folder("root")); limit_rate 400k; }
            }
            """
        writeFile(folder("nginx.conf"), configuration.utf8)
        server = Child(
            Self.inside(manager) + ["nginx", "-p", folder.path, "-c", folder("nginx.conf"), "-e", "stderr"],
            environment: processEnvironment())
        let serves = await eventually { fileExists(folder("nginx.pid")) || !server.isRunning }
        #expect(serves && server.isRunning, "\(server.errors)")
        await cli("connection", "add", "type", "ethernet", "ifname", "dl0", "con-name", "dl", "ip4", "10.9.9.2/24", "gw4", "10.9.9.1")
    }

    /// The words before a program that run it in that network.
    static func inside(_ manager: Child) -> [String] { ["nsenter", "--net=/proc/\(manager.pid)/ns/net", "--"] }

    /// nmcli(1).
    func cli(_ arguments: String...) async {
        let exit = await Child.run(["\(root)/usr/bin/nmcli"] + arguments, environment: environment)
        #expect(exit.status == 0, "nmcli \(arguments): \(exit.errors)")
    }

    func metered(_ value: String) async {
        await cli("connection", "modify", "dl", "connection.metered", value)
        await cli("connection", "up", "dl")
    }

    var log: [String] {
        String(decoding: readFile(folder("access.log")) ?? [], as: UTF8.self).split(separator: "\n").map(String.init)
    }
}

@Suite struct `The real NetworkManager` {
    private static func isPossible() async -> Bool { access(networkManager, X_OK) == 0 ? await canUnshare("-n") : false }

    @Test(.enabled("only root can start NetworkManager, and it is there") { await isPossible() })
    func `holds downloads without a network or on a metered one, and lets them resume`() async throws {
        let host = try await NetworkHost()
        await host.metered("no")
        let body = patternBytes(8_000_000)  // twenty seconds: the link changes in the middle, however long nmcli takes
        writeFile(host.folder("root/a"), body)
        writeFile(host.folder("root/b"), [0x78])
        let world = await ServiceWorld(extra: ["DBUS_SYSTEM_BUS_ADDRESS": host.bus.address])
        let daemon = await world.start(prefix: NetworkHost.inside(host.manager))
        let running = Running(world: world, daemon: daemon, client: try await world.client())
        func waits(_ path: ObjectPath, for reason: String) async -> Bool {
            await eventually { (try? await running.client.get(Download.waitReason, at: path)) == reason }
        }

        // A connection may be lost without a word when the link changes.
        let impatient: [String: Variant] = ["stall-timeout": .uint32(30_000)]
        let path = try await running.download("http://10.9.9.1/a", impatient.merging(["allow-metered": .bool(false)]) { $1 })
        #expect(await running.client.signals.has("Progress", at: path))
        await host.metered("yes")
        #expect(await waits(path, for: "metered"))
        _ = try await running.fetch("http://10.9.9.1/b", impatient)
        await host.metered("no")
        #expect(readFile(try await running.client.wait(path)) == body)
        // nginx writes the line after the last byte.
        #expect(await eventually { host.log.contains { $0.hasPrefix("206 /a bytes=") } }, "\(host.log)")

        await host.cli("connection", "down", "dl")
        let next = try await running.download("http://10.9.9.1/b", impatient)
        #expect(await waits(next, for: "offline"))
        await host.cli("connection", "up", "dl")
        _ = try await running.client.wait(next)
        _ = await world.stop(daemon)
    }
}
