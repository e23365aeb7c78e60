internal import Glibc
internal import TestSupport
internal import Testing

/// A version of an asset: its archive, and the files in it by path.
struct PublishedVersion: Sendable {
    let name: String
    let archive: [UInt8]
    let digest: String
    let files: [String: [UInt8]]

    /// Makes the versions of all cases, by foreign programs: 1, 4 and 5 are small, 2 has 3 MB, 3 has 1.5 MB.
    static func makeAll() async throws -> [String: PublishedVersion] {
        let folder = TemporaryFolder("todoku-versions")
        var all: [String: PublishedVersion] = [:]
        for (name, size) in [("1", 200_000), ("2", 3_000_000), ("3", 1_500_000), ("4", 300_000), ("5", 50_000)] {
            let tree = folder.makeFolder("tree-\(name)")
            folder.makeFolder("tree-\(name)/parts")
            var files = ["version": Array(name.utf8), "data.bin": patternBytes(size, seed: UInt64(size))]
            for index in 0..<10 { files["parts/\(index)"] = Array("part \(index) of \(name)".utf8) }
            for (path, bytes) in files { writeFile("\(tree)/\(path)", bytes) }
            let (archive, kind) = (folder(name), ["1": "--zstd", "2": "-z", "3": "-J"][name] ?? "-z")
            let exit = await Child.run(["tar", "-C", tree, kind, "-cf", archive, "."])
            try #require(exit.status == 0, "\(exit.errors)")
            let digest = String(await Child.run(["sha256sum", archive]).output.prefix(64))
            all[name] = PublishedVersion(name: name, archive: readFile(archive) ?? [], digest: digest, files: files)
        }
        return all
    }
}

/// A publisher's server: a manifest, and the archives of all versions, sent at about 20 MB a second, which leaves time for kills.
final class AssetPublisher: Sendable {
    let versions: [String: PublishedVersion]
    let server: ScriptedServer
    private let rules = Rules()

    init(_ versions: [String: PublishedVersion]) {
        let rules = rules
        self.versions = versions
        server = ScriptedServer { request, reply in
            if request.path == "/m.json" {
                let manifest = rules.locked { $0.manifest }
                guard let manifest, let version = versions[manifest.archive] else { return reply.respond(404) }
                let tag = "\"\(manifest.version)\""
                if request.field("If-None-Match") == tag { return reply.respond(304, ["ETag": tag]) }
                let text = """
                    {"version": "\(manifest.version)", "url": "\(manifest.archive).tar", "sha256": "\(version.digest)", \
                    "size": \(version.archive.count)}
                    """
                return reply.respond(200, ["ETag": tag], text: text)
            }
            guard let version = versions[String(request.path.dropFirst().dropLast(4))] else { return reply.respond(404) }
            let (body, start) = (version.archive, request.range?.first ?? 0)
            let gate = rules.locked { $0.holds[version.name] }
            guard start < body.count else { return reply.serve(body, for: request, entityTag: "\"\(version.digest)\"") }
            reply.head(
                request.range == nil ? 200 : 206,
                [
                    "ETag": "\"\(version.digest)\"", "Accept-Ranges": "bytes",
                    "Content-Range": "bytes \(start)-\(body.count - 1)/\(body.count)",
                ], length: body.count - start)
            // Half of a version that is held comes before its gate opens.
            let pause = gate == nil ? body.count : max(start, body.count / 2)
            for (from, to) in [(start, pause), (pause, body.count)] where from < to {
                if from == pause, let gate {
                    rules.locked { $0.held += 1 }
                    gate.wait()
                }
                for place in stride(from: from, to: to, by: 40_000) {
                    guard reply.send(body[place..<min(to, place + 40_000)]) else { return }
                    poll(nil, 0, 2)
                }
            }
        }
    }

    var url: String { server.url("/m.json") }

    /// - Parameter version: the manifest's version, if it is not the name of the archive.
    func publish(_ archive: String, as version: String? = nil) { rules.locked { $0.manifest = (archive, version ?? archive) } }

    /// From now on, half of an archive comes before the gate opens.
    func hold(_ archive: String) -> Gate {
        let gate = Gate()
        rules.locked { ($0.holds[archive], $0.held) = (gate, 0) }
        return gate
    }

    func release(_ archive: String) { rules.locked { $0.holds.removeValue(forKey: archive) }?.open() }

    /// Whether half of the archive that is held has been sent.
    var isHeld: Bool { rules.locked { $0.held > 0 } }

    /// What the server's threads read and the test changes.
    private final class Rules: @unchecked Sendable {
        var manifest: (archive: String, version: String)?
        var holds: [String: Gate] = [:]
        var held = 0
        private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)

        init() { pthread_mutex_init(mutex, nil) }
        deinit { mutex.deallocate() }

        func locked<R>(_ body: (Rules) -> R) -> R {
            pthread_mutex_lock(mutex)
            defer { pthread_mutex_unlock(mutex) }
            return body(self)
        }
    }
}
