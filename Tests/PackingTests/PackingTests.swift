import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing

@testable import Packing

/// A folder with what games have: folders, an empty one, a program, a link, names beyond ASCII and beyond the 100 bytes of a tar header.
private func makeTree(_ folder: TemporaryFolder, _ name: String = "levels", names: [String]? = nil) -> String {
    let tree = folder.makeFolder(name)
    let long = String(repeating: "long", count: 40)
    let files: [String: [UInt8]] = [
        "a.txt": Array("a".utf8), "b.bin": patternBytes(300_000), "地図.dat": Array("map".utf8), long: Array("long".utf8), "empty": [],
        "B/z": Array("z".utf8), "B/a": Array("a".utf8),
    ]
    for folder in ["B", "nothing"] { mkdir("\(tree)/\(folder)", 0o755) }
    for name in names ?? files.keys.sorted() { writeFile("\(tree)/\(name)", files[name] ?? []) }
    writeFile("\(tree)/run", "#!/bin/sh\n".utf8, mode: 0o755)
    symlink("B/z", "\(tree)/link")
    symlink("../a.txt", "\(tree)/B/up")
    return tree
}

private func request(_ tree: String, _ output: String, _ version: String? = "1") -> PackRequest {
    var request = PackRequest(folder: tree, output: output, name: "levels")
    request.version = version
    return request
}

private func failure(_ request: PackRequest) -> String? {
    do throws(PackingError) {
        _ = try Packer.pack(request)
        return nil
    } catch { return error.message }
}

@Suite struct `Packing a folder` {
    private let folder = TemporaryFolder()

    @Test(arguments: ArchiveCompression.allCases)
    func `gives what tar and the compressor read`(compression: ArchiveCompression) async throws {
        let tree = makeTree(folder)
        var wanted = request(tree, folder.path)
        wanted.compression = compression
        let packed = try Packer.pack(wanted)
        let listed = await Child.run(
            ["bsdtar", "-tvf", packed.archive], environment: processEnvironment().merging(["LC_ALL": "C.UTF-8", "TZ": "UTC"]) { $1 })
        #expect(listed.status == 0, "package libarchive-tools: \(listed.errors)")
        let lines = listed.output.split(separator: "\n").map(String.init)
        #expect(lines.count == packed.entries && packed.entries == 12)
        #expect(lines.allSatisfy { $0.contains(" 0 0      0 ") && $0.contains("Jan  1  1970") }, "\(listed.output)")
        #expect(lines.contains { $0.hasPrefix("-rwxr-xr-x") && $0.hasSuffix(" run") })
        #expect(lines.contains { $0.hasPrefix("lrwxrwxrwx") && $0.hasSuffix(" link -> B/z") })
        #expect(lines.contains { $0.hasPrefix("drwxr-xr-x") && $0.hasSuffix(" nothing/") })
        let out = folder.makeFolder("out")
        let unpacked = await Child.run(["tar", "-xf", packed.archive, "-C", out])
        #expect(unpacked.status == 0, "\(unpacked.errors)")
        #expect(await Child.run(["diff", "-r", "--no-dereference", tree, out]).output == "")
        #expect(packed.unpackedSize == 300_000 + 1 + 3 + 4 + 1 + 1 + 10)
        #expect(listFolder(folder.path) == ["levels", "levels-1\(compression.ending)", "levels.json", "out"])
    }

    @Test(arguments: ArchiveCompression.allCases)
    func `gives the same bytes for the same contents`(compression: ArchiveCompression) throws {
        let (tree, elsewhere) = (makeTree(folder), TemporaryFolder())
        // The same, made in another order, with other times and other permissions of group and others.
        let names = listFolder(tree).filter { !["run", "link", "B", "nothing"].contains($0) }
        let copy = makeTree(elsewhere, names: ["B/a"] + names.reversed() + ["B/z"])
        for name in ["a.txt", "run", "B", "nothing", "."] {
            var times = [timeval(tv_sec: 1_000_000_000, tv_usec: 0), timeval(tv_sec: 1_000_000_000, tv_usec: 7)]
            utimes("\(copy)/\(name)", &times)
            chmod("\(copy)/\(name)", name.contains(".txt") ? 0o640 : 0o700)
        }
        let (first, second) = (folder.makeFolder("first"), folder.makeFolder("second"))
        for (tree, output) in [(tree, first), (copy, second)] {
            var wanted = request(tree, output)
            wanted.compression = compression
            _ = try Packer.pack(wanted)
        }
        #expect(listFolder(first) == listFolder(second) && listFolder(first).count == 2)
        for name in listFolder(first) { #expect(readFile("\(first)/\(name)") == readFile("\(second)/\(name)"), "\(name)") }
    }

    @Test func `leaves files alone that are right`() throws {
        let tree = makeTree(folder)
        let first = try Packer.pack(request(tree, folder.path, nil))
        #expect(!first.isUnchanged && first.version == first.sha256.prefix(16))
        let inodes = [first.archive, first.manifest].map { inode(of: $0) }
        let second = try Packer.pack(request(tree, folder.path, nil))
        #expect(second.isUnchanged && [second.archive, second.manifest].map { inode(of: $0) } == inodes)
        writeFile("\(tree)/a.txt", "b".utf8)
        let third = try Packer.pack(request(tree, folder.path, nil))
        #expect(!third.isUnchanged && third.version != first.version && inode(of: first.archive) == inodes[0])
    }

    @Test func `refuses what the service would not unpack, and names it`() throws {
        func refuses(_ text: String, _ make: (String) -> Void) {
            let folder = TemporaryFolder()
            let tree = folder.makeFolder("levels")
            writeFile("\(tree)/a", "a".utf8)
            make(tree)
            let message = failure(request(tree, folder.path))
            #expect(message?.contains(text) == true, "\(text): \(message ?? "packed")")
            #expect(listFolder(folder.path) == ["levels"], "\(text)")
        }
        refuses("“a” has the name of another entry") { writeFile("\($0)/A", []) }
        refuses("“up” is a link out of the archive") { symlink("../x", "\($0)/up") }
        refuses("“root” is a link to the absolute path") { symlink("/etc/passwd", "\($0)/root") }
        refuses("“pipe” is a named pipe") { mkfifo("\($0)/pipe", 0o600) }
        refuses("“set” would run as another user") {
            writeFile("\($0)/set", []); chmod("\($0)/set", 0o4755)
        }
        refuses("has a control character in its name") { writeFile("\($0)/new\nline", []) }
        refuses("has a name that is not UTF-8") { tree in
            let name = Array("\(tree)/x".utf8) + [0xFF, 0]
            name.withUnsafeBufferPointer {
                $0.withMemoryRebound(to: CChar.self) { bytes in _ = bytes.baseAddress.map { close(creat($0, 0o600)) } }
            }
        }
        refuses("lies more than 32 folders deep") { tree in
            var path = tree
            for _ in 0..<33 {
                path += "/d"
                mkdir(path, 0o755)
            }
        }
    }

    @Test func `refuses an empty folder, an output in the folder, and files that would inflate too far`() {
        let tree = folder.makeFolder("levels")
        #expect(failure(request(tree, folder.path))?.contains("is empty") == true)
        #expect(failure(request("\(folder.path)/none", folder.path))?.contains("cannot be opened") == true)
        writeFile("\(tree)/zeros", [])
        truncate("\(tree)/zeros", 100 << 20)
        // For Swift, a slash and a combining mark behind it are one character.
        for output in [tree, folder.makeFolder("levels/\u{3099}out")] {
            #expect(failure(request(tree, output))?.contains("lies in the folder that is packed") == true)
        }
        #expect(failure(request(tree, folder.path))?.contains("use --compression none") == true)
        #expect(listFolder(folder.path) == ["levels"])
    }

    @Test func `writes into a folder whose name only looks like that of the packed one`() throws {
        let (tree, output) = (makeTree(folder, "\u{E9}"), folder.makeFolder("e\u{301}"))
        _ = try Packer.pack(request(tree, output))
        #expect(listFolder(output) == ["levels-1.tar.zst", "levels.json"])
    }

    @Test func `refuses a version with other contents, unless it is forced to`() throws {
        let tree = makeTree(folder)
        let first = try Packer.pack(request(tree, folder.path))
        let before = readFile(first.archive)
        writeFile("\(tree)/a.txt", "b".utf8)
        #expect(failure(request(tree, folder.path))?.contains("version 1 is there already with other contents") == true)
        #expect(readFile(first.archive) == before)
        var forced = request(tree, folder.path)
        forced.forces = true
        #expect(try Packer.pack(forced).sha256 != first.sha256)
    }

    @Test func `refuses a version before the last with other contents, unless it is forced to`() throws {
        let tree = makeTree(folder)
        let first = try Packer.pack(request(tree, folder.path, "1"))
        let before = readFile(first.archive)
        writeFile("\(tree)/a.txt", "b".utf8)
        let second = try Packer.pack(request(tree, folder.path, "2"))
        let manifest = readFile(second.manifest)
        #expect(failure(request(tree, folder.path, "1"))?.contains("version 1 is there already with other contents") == true)
        #expect(readFile(first.archive) == before && readFile(second.manifest) == manifest)
        // The archive of the last version is made anew if it is damaged.
        let whole = readFile(second.archive)
        writeFile(second.archive, "damaged".utf8)
        _ = try Packer.pack(request(tree, folder.path, "2"))
        #expect(readFile(second.archive) == whole)
        var forced = request(tree, folder.path, "1")
        forced.forces = true
        #expect(try Packer.pack(forced).sha256 == second.sha256)
    }

    @Test func `refuses to replace a file that is no manifest`() {
        let tree = makeTree(folder)
        writeFile(folder("levels.json"), "{\"mine\": 1}".utf8)
        #expect(failure(request(tree, folder.path))?.contains("is there and is no manifest") == true)
        #expect(readFile(folder("levels.json")) == Array("{\"mine\": 1}".utf8))
    }

    @Test func `warns of a manifest that apps would ignore, and of one without protection`() throws {
        let tree = makeTree(folder)
        var old = request(tree, folder.path, "1")
        old.timestamp = ManifestTime.parse("2026-11-24T18:30:00Z")
        #expect(try Packer.pack(old).warnings == [])
        var older = request(tree, folder.path, "2")
        older.timestamp = ManifestTime.parse("2026-11-24T18:29:59Z")
        #expect(
            try Packer.pack(older).warnings == [
                "the manifest is older than the one before (2026-11-24T18:30:00Z): apps that have that version ignore it"
            ])
        #expect(try Packer.pack(request(tree, folder.path, "3")).warnings.count == 1)
    }

    @Test(arguments: ["", String(repeating: "v", count: 129), "1\n2"])
    func `refuses a version that the service would refuse`(version: String) {
        let tree = makeTree(folder)
        let message = failure(request(tree, folder.path, version))
        #expect(message?.contains("“version”") == true, "\(message ?? "packed")")
        #expect(listFolder(folder.path) == ["levels"])
    }

    @Test func `writes URLs that lead to the file, whatever the version`() throws {
        let tree = makeTree(folder)
        var wanted = request(tree, folder.path, "1/2 ä\"?")
        (wanted.baseURL, wanted.mirrors) = ("https://cdn.example.org/a/", ["https://m.example.org/"])
        let packed = try Packer.pack(wanted)
        let json = JSON(String(decoding: try #require(readFile(packed.manifest)), as: UTF8.self))
        #expect(json?["version"]?.string == "1/2 ä\"?")
        #expect(json?["url"]?.string == "https://cdn.example.org/a/levels-1-2%20%C3%A4%22%3F.tar.zst")
        #expect(packed.archive.hasSuffix("/levels-1-2 ä\"?.tar.zst") && fileExists(packed.archive))
    }

    @Test func `leaves nothing behind, and replaces what a killed run has left`() throws {
        let tree = makeTree(folder)
        writeFile(folder(".levels.archive.part"), "half".utf8)
        _ = try Packer.pack(request(tree, folder.path))
        #expect(listFolder(folder.path) == ["levels", "levels-1.tar.zst", "levels.json"])
    }

    @Test func `keeps the manifest while older archives are deleted, also if its name has “.tar” in it`() throws {
        let (tree, output) = (makeTree(folder), folder.makeFolder("output"))
        var wanted = request(tree, output)
        wanted.name = "game.target"
        _ = try Packer.pack(wanted)
        wanted.version = "2"
        let packed = try Packer.pack(wanted)
        PackedFolder.clean(output, keeping: [packed.archive])
        #expect(listFolder(output) == ["game.target-2.tar.zst", "game.target.json"])
    }
}

@Suite struct `A key for manifests` {
    private let folder = TemporaryFolder()

    @Test func `is made once, for its owner only, and as openssl makes it`() async throws {
        let path = folder("key.pem")
        let key = try SigningKey.make(at: path)
        var status = stat()
        #expect(stat(path, &status) == 0 && status.st_mode & 0o777 == 0o600)
        #expect(throws: PackingError.self) { try SigningKey.make(at: path) }
        let again = try SigningKey.read(path)
        #expect(again.key.publicKey == key.publicKey && !again.isShared)
        let text = await Child.run(["openssl", "pkey", "-in", path, "-noout", "-text_pub"])
        let digits = text.output.split(separator: "\n").dropFirst(2).joined().filter(\.isHexDigit)
        #expect(text.status == 0 && digits == key.publicText, "\(text)")
    }

    @Test func `is read as openssl writes it, and as digits`() async throws {
        #expect(await Child.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", folder("k.pem")]).status == 0)
        chmod(folder("k.pem"), 0o644)
        let (key, isShared) = try SigningKey.read(folder("k.pem"))
        #expect(isShared)
        #expect(await Child.run(["openssl", "pkey", "-in", folder("k.pem"), "-pubout", "-out", folder("p.pem")]).status == 0)
        writeFile(folder("text"), "hello".utf8)
        writeFile(folder("text.sig"), try key.sign(Array("hello".utf8)))
        let verified = await Child.run(
            [
                "openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", folder("p.pem"), "-in", folder("text"), "-sigfile",
                folder("text.sig"),
            ])
        #expect(verified.status == 0, "\(verified)")
        // RFC 8032 §7.1, TEST 1.
        writeFile(folder("hex"), "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60\n".utf8)
        #expect(try SigningKey.read(folder("hex")).key.publicText == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    }

    @Test func `is read from a pipe, whose writer may come later`() async throws {
        mkfifo(folder("pipe"), 0o600)
        let writer = Child(["sh", "-c", #"printf '%064d\n' 1 >"$0""#, folder("pipe")])
        let (key, isShared) = try SigningKey.read(folder("pipe"))
        #expect(key.publicText.utf8.count == 64 && !isShared)
        #expect(await writer.wait().status == 0)
    }

    @Test(arguments: ["", "x", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"])
    func `is refused if it is none`(text: String) {
        writeFile(folder("k"), text.utf8)
        let path = folder("k")
        #expect { try SigningKey.read(path) } throws: { ($0 as? PackingError)?.message.contains("is no Ed25519 private key") == true }
    }
}
