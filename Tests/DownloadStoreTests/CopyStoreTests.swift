internal import DownloadModel
internal import TestSupport
internal import Testing

@testable internal import DownloadStore

@Suite struct `A copy that is kept` {
    private let folder = TemporaryFolder()
    private let next = DownloadNumber(1)

    private func key(_ url: String, name: String? = nil) -> CopyKey {
        CopyKey(app: "org.example.App", url: url, directory: "/d", wantedName: name)
    }

    private func copy(_ key: CopyKey, name: String = "写真 (1).zip", full: Bool = true) -> CachedCopy {
        let identity = FileIdentity(device: .max, inode: 1 << 63, mount: 7, boot: "b", born: full ? -9 : nil)
        return CachedCopy(
            key: key, name: name, stamp: FileStamp(identity: identity, size: 1 << 63, modified: -5),
            validators: full ? CopyValidators(entityTag: "W/\"é\"", lastModified: "yesterday", source: "http://h/x") : nil,
            mediaType: full ? "a/b" : nil, checksum: full ? Checksum(.md5, digest: [UInt8](repeating: 9, count: 16)) : nil,
            proof: full ? .reprDigest : nil)
    }

    @Test func `comes back as it was, by all of its key`() async throws {
        let kept = [copy(key("u")), copy(key("u", name: "n"), full: false), copy(key("v"), name: "v")]
        try await withStore(folder.path) { store, _ in
            try await store.commit(kept.map { .keepCopy($0) }, nextNumber: next)
            for one in kept { #expect(await store.copy(for: one.key) == one) }
        }
        try await withStore(folder.path) { store, _ in
            for one in kept { #expect(await store.copy(for: one.key) == one) }
            for wrong in [
                key("w"), CopyKey(app: "", url: "u", directory: "/d", wantedName: nil),
                CopyKey(app: "org.example.App", url: "u", directory: "/", wantedName: nil),
            ] { #expect(await store.copy(for: wrong) == nil) }
            // The last copy of a key counts.
            let newer = copy(key("u"), name: "newer", full: false)
            try await store.commit([.keepCopy(copy(key("u"))), .keepCopy(newer)], nextNumber: next)
            #expect(await store.copy(for: newer.key) == newer)
        }
        #expect(await Store(folder: folder.path).copy(for: key("u")) == nil, "it is not open")
    }

    @Test func `is one of the newest, and goes when it is the oldest`() async throws {
        try await withStore(folder.path) { store, _ in
            let all = (0..<Limits.copiesHeld).map { copy(key("\($0)"), full: false) }
            try await store.commit(all.map { .keepCopy($0) }, nextNumber: next)
            #expect(await store.copy(for: key("0")) != nil)
            // A copy that is written again is the newest.
            try await store.commit([.keepCopy(all[0])], nextNumber: next)
            try await store.commit([.keepCopy(copy(key("more")))], nextNumber: next)
            #expect(await store.copy(for: key("0")) != nil)
            #expect(await store.copy(for: key("1")) == nil)
            #expect(await store.copy(for: key("2")) != nil)
            #expect(await store.copy(for: key("more")) != nil)
        }
    }

    @Test(arguments: ["''", "'.x'", "'a/b'", "'../a'"])
    func `whose row leads out of its folder is ignored`(name: String) async throws {
        try await withStore(folder.path) { store, _ in try await store.commit([.keepCopy(copy(key("u")))], nextNumber: next) }
        try tamper(folder.path, "UPDATE copy SET name = \(name)")
        try await withStore(folder.path) { store, _ in #expect(await store.copy(for: key("u")) == nil) }
    }

    @Test func `whose validators cannot be read is compared only`() async throws {
        try await withStore(folder.path) { store, _ in try await store.commit([.keepCopy(copy(key("u")))], nextNumber: next) }
        try tamper(folder.path, "UPDATE copy SET source = NULL, checksum = 'x'")
        try await withStore(folder.path) { store, _ in
            let found = await store.copy(for: key("u"))
            #expect(found?.validators == nil && found?.checksum == nil && found?.stamp == copy(key("u")).stamp)
        }
    }
}
