internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// A publisher's HTTP server: a manifest at /m.json, its signature at /m.json.sig, and archives. A test may change all of them.
final class Publisher: Sendable {
    let folder = TemporaryFolder()
    let server: ScriptedServer

    /// What the server says instead of a file.
    final class Rules: @unchecked Sendable {
        private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
        private var gates: [String: Gate] = [:]
        private var statuses: [String: Int] = [:]
        init() { pthread_mutex_init(mutex, nil) }
        func locked<R>(_ body: (inout [String: Gate], inout [String: Int]) -> R) -> R {
            pthread_mutex_lock(mutex)
            defer { pthread_mutex_unlock(mutex) }
            return body(&gates, &statuses)
        }
    }

    let rules = Rules()

    init() {
        let (folder, rules) = (folder, rules)
        server = ScriptedServer { request, reply in
            let path = Self.path(of: request)
            if let status = rules.locked({ _, statuses in statuses[path] }) { return reply.respond(status) }
            guard let file = readFile(folder(String(path.dropFirst()))) else { return reply.respond(404) }
            let tag = "\"\(file.count)-\(file.reduce(UInt32(7)) { $0 &* 31 &+ UInt32($1) })\""
            if request.field("If-None-Match") == tag { return reply.respond(304, ["ETag": tag]) }
            if let gate = rules.locked({ gates, _ in gates[path] }), request.range == nil {
                // Half of the file, and the rest once the test opens the gate.
                reply.head(200, ["ETag": tag, "Accept-Ranges": "bytes"], length: file.count)
                reply.send(file[..<(file.count / 2)])
                let rest = reply.trickle(file[(file.count / 2)...], until: gate)
                // The server refuses the file by now.
                if rules.locked({ _, statuses in statuses[path] }) != nil { return reply.reset() }
                reply.send(rest)
                return
            }
            reply.serve(file, for: request, entityTag: tag)
        }
    }

    var url: String { server.url("/m.json") }

    /// A proxy is asked for a whole URL.
    static func path(of request: ScriptedServer.Request) -> String {
        guard request.path.hasPrefix("http://") else { return request.path }
        let rest = request.path.dropFirst("http://".count)
        return String(rest[(rest.firstIndex(of: "/") ?? rest.endIndex)...])
    }

    /// From now on, half of `path` comes before the gate opens.
    func hold(_ path: String) -> Gate {
        let gate = Gate()
        rules.locked { gates, _ in gates[path] = gate }
        return gate
    }

    func answer(_ path: String, with status: Int?) { rules.locked { _, statuses in statuses[path] = status } }

    /// Makes an archive of a version: the file `version`, a file of `size` bytes, and a folder with `count` small files.
    ///
    /// - Returns: its name.
    @discardableResult func archive(_ version: String, size: Int = 200_000, count: Int = 20) async -> String {
        let tree = folder.makeFolder("tree-\(version)")
        writeFile("\(tree)/version", version.utf8)
        writeFile("\(tree)/data.bin", patternBytes(size, seed: UInt64(version.utf8.reduce(0) { $0 &+ Int($1) })))
        let parts = folder.makeFolder("tree-\(version)/parts")
        for index in 0..<count { writeFile("\(parts)/\(index)", "part \(index) of \(version)".utf8) }
        let name = "\(version).tar.gz"
        let exit = await Child.run(["tar", "-C", tree, "-czf", folder(name), "."])
        #expect(exit.status == 0, "\(exit.errors)")
        return name
    }

    func digest(_ name: String) async -> String {
        String((await Child.run(["sha256sum", folder(name)])).output.prefix(64))
    }

    /// Publishes `version`: makes its archive, and then the manifest that names it.
    func publish(_ version: String, size: Int = 200_000, count: Int = 20, more: String = "", sha256: String? = nil) async {
        let name = await archive(version, size: size, count: count)
        let digest = if let sha256 { sha256 } else { await digest(name) }
        let length = readFile(folder(name))?.count ?? 0
        manifest(#"{"version": "\#(version)", "url": "\#(name)", "sha256": "\#(digest)", "size": \#(length)\#(more)}"#)
    }

    func manifest(_ text: String) { writeFile(folder("m.json"), text.utf8) }

    /// How often the server was asked for `path`.
    func requests(for path: String) -> Int { server.requests.count { Self.path(of: $0) == path } }
}

/// A running service and a publisher.
struct Desk {
    let running: Running
    let publisher = Publisher()
    static let app = "org.example.App"

    static func start(_ arguments: [String] = []) async throws -> Desk { Desk(running: try await Running.start(arguments)) }

    init(running: Running) { self.running = running }

    /// A machine with NetworkManager, whose only way to other hosts is the publisher as a proxy.
    init(systemBus: PrivateBus) async throws {
        running = try await Running.start(extra: ["DBUS_SYSTEM_BUS_ADDRESS": systemBus.address, "http_proxy": publisher.server.url("")])
    }

    var client: Client { running.client }

    /// The options of an asset without toasts, whose publisher may hold an archive for as long as the test needs. By default, the service
    /// wants 30 bytes in 30 seconds. The publisher sends two bytes a second, which are too few if its thread pauses for 15 seconds.
    static let quiet = patient(["notify": .string("never")])

    func register(_ name: String = "maps", _ more: [String: Variant] = [:], url: String? = nil) async throws -> ObjectPath {
        try await client.registerAsset(Self.app, name, url ?? publisher.url, Self.quiet.merging(more) { $1 })
    }

    @discardableResult func update(_ asset: ObjectPath, force: Bool = false) async throws -> (Bool, String) {
        // On a busy machine, thousands of files are unpacked for a minute.
        try await client.call(Asset.update, at: asset, force ? ["force": .bool(true)] : [:], timeout: .seconds(180))
    }

    func check(_ asset: ObjectPath) async throws -> (Bool, String) { try await client.call(Asset.check, at: asset, [:]) }

    /// The default directory of an asset.
    func directory(_ name: String = "maps") -> String { running.world.bus.folder("data/todoku/assets/\(Self.app)/\(name)") }

    /// The version that the path leads to, read as a program reads it; nil: none.
    func version(at path: String) -> String? { readFile("\(path)/version").map { String(decoding: $0, as: UTF8.self) } }

    /// The names in the asset's directory that are not versions.
    func leftovers(_ directory: String) -> [String] { listFolder(directory).filter { $0 != "current" && !$0.hasPrefix("version-") } }

    /// Waits until some bytes of an update's archive have come. The first report of a download may tell of none yet.
    func downloads(_ asset: ObjectPath) async -> Bool {
        await client.signals.until { seen in
            seen.contains {
                guard $0.path == asset.value, let (stage, done, _) = Asset.progress.read($0.message) else { return false }
                return stage == "downloading" && done > 0
            }
        }
    }

    func stages(_ asset: ObjectPath) async -> [String] {
        await client.signals.of(asset).compactMap { Asset.stageChanged.read($0.message) }
    }
}
