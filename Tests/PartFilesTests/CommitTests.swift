import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing

@testable internal import PartFiles

@Suite struct `Committing a file` {
    let folder = TemporaryFolder("todoku-commit")

    private func commit(_ name: String, _ policy: ExistingFilePolicy, _ content: String, origin: String? = nil) -> CommitOutcome {
        writeFile(folder(".todoku-1.part"), content.utf8, mode: 0o600)
        writeFile(folder("map"), "x".utf8)
        return Commit.commit(
            directory: folder.path, partName: ".todoku-1.part", identity: found(".todoku-1.part"), name: name, policy: policy,
            origin: origin,
            mapPath: folder("map"))
    }

    private func text(_ name: String) -> String? { readFile(folder(name)).map { String(decoding: $0, as: UTF8.self) } }

    private func found(_ name: String) -> FileIdentity { identityIfAny(folder(name)) }

    private func mode(_ name: String) -> mode_t? {
        var status = stat()
        return stat(folder(name), &status) == 0 ? status.st_mode & 0o7777 : nil
    }

    @Test func `gives it its name, its mode and its origin`() async throws {
        #expect(commit("a.txt", .fail, "new", origin: "http://example.org/a.txt") == .committed(path: folder("a.txt")))
        #expect(listFolder(folder.path) == ["a.txt"])
        var status = stat()
        #expect(stat(folder("a.txt"), &status) == 0)
        // umask(2) would change the mask for the files, and the children, that other tests make meanwhile. A child inherits it.
        let mask = try #require(mode_t(await Child.run(["sh", "-c", "umask"]).output.prefix { $0 != "\n" }, radix: 8))
        #expect(status.st_mode & 0o777 == 0o666 & ~mask)
    }

    @Test func `keeps its origin where the file system can`() async {
        #expect(commit("a.txt", .fail, "new", origin: "http://example.org/a.txt") == .committed(path: folder("a.txt")))
        writeFile(folder("probe"), [])
        let probe = await Child.run(["python3", "-c", "import os,sys;os.setxattr(sys.argv[1],'user.t',b'1')", folder("probe")])
        let read = await Child.run(
            ["python3", "-c", "import os,sys;print(os.getxattr(sys.argv[1],'user.xdg.origin.url').decode())", folder("a.txt")])
        #expect(probe.status == 0 ? read.output == "http://example.org/a.txt\n" : read.status != 0)
    }

    @Test func `never replaces under rename, and takes the next free name`() {
        writeFile(folder("a.tar.gz"), "old".utf8)
        #expect(commit("a.tar.gz", .rename, "one") == .committed(path: folder("a (1).tar.gz")))
        #expect(commit("a.tar.gz", .rename, "two") == .committed(path: folder("a (2).tar.gz")))
        #expect(text("a.tar.gz") == "old" && text("a (1).tar.gz") == "one" && text("a (2).tar.gz") == "two")
    }

    @Test func `treats a folder or a dangling link as a taken name`() {
        folder.makeFolder("a")
        #expect(symlink("/nowhere/at/all", folder("b")) == 0)
        #expect(commit("a", .rename, "x") == .committed(path: folder("a (1)")))
        #expect(commit("b", .rename, "x") == .committed(path: folder("b (1)")))
        guard case .failed(let failure) = commit("a", .replace, "x") else { return #expect(Bool(false)) }
        #expect(failure.name == .writeFailed && text(".todoku-1.part") == "x")
    }

    @Test func `replaces only if asked to`() {
        writeFile(folder("a"), "old".utf8)
        #expect(commit("a", .replace, "new") == .committed(path: folder("a")))
        #expect(text("a") == "new")
    }

    @Test(arguments: [(0o600, 0o600), (0o644, 0o644), (0o755, 0o755), (0o4711, 0o711), (0o2664, 0o664)])
    func `keeps the mode of what it replaces, but for the bits that run a program as another`(old: Int, new: Int) {
        writeFile(folder("a"), "old".utf8)
        #expect(chmod(folder("a"), mode_t(old)) == 0)
        #expect(commit("a", .replace, "new") == .committed(path: folder("a")))
        #expect(text("a") == "new" && mode("a") == mode_t(new))
    }

    /// Gives `path` an access list, or a default one, with an entry for the user 12345 (acl(5)).
    ///
    /// - Returns: false if the file system has no access lists.
    private func setList(_ kind: String, _ path: String, user: Int, group: Int, others: Int) async -> Bool {
        let program = """
            import os,struct,sys
            u,g,o=map(int,sys.argv[3:])
            entries=[(1,u,0xffffffff),(2,u,12345),(4,g,0xffffffff),(16,u,0xffffffff),(32,o,0xffffffff)]
            os.setxattr(sys.argv[1],'system.posix_acl_'+sys.argv[2],struct.pack('<I',2)+b''.join(struct.pack('<HHI',*e) for e in entries))
            """
        return await Child.run(["python3", "-c", program, path, kind, "\(user)", "\(group)", "\(others)"]).status == 0
    }

    /// The access list of `path`; empty if it has none.
    private func list(_ path: String) async -> String {
        await Child.run(["python3", "-c", "import os,sys;print(os.getxattr(sys.argv[1],'system.posix_acl_access').hex())", path]).output
    }

    /// In such a folder, the list stands in place of the umask. Where the file system has no lists, both files have the umask's mode.
    @Test(arguments: [0, 4]) func `has the rights of a new file in a folder with a default access list`(others: Int) async {
        _ = await setList("default", folder.path, user: 7, group: 5, others: others)
        close(open(folder("ordinary"), O_CREAT | O_WRONLY | O_CLOEXEC, 0o666))
        #expect(commit("a", .rename, "new") == .committed(path: folder("a")))
        #expect(mode("a") == mode("ordinary"))
        #expect(await list(folder("a")) == list(folder("ordinary")))
    }

    @Test func `does not keep the access list of its folder if what it replaces has none`() async {
        writeFile(folder("a"), "old".utf8, mode: 0o640)
        #expect(chmod(folder("a"), 0o640) == 0)
        _ = await setList("default", folder.path, user: 6, group: 4, others: 0)
        #expect(commit("a", .replace, "new") == .committed(path: folder("a")))
        #expect(text("a") == "new" && mode("a") == 0o640)
        #expect(await list(folder("a")).isEmpty)
    }

    @Test func `keeps the access list of what it replaces, and does not take its mask for the group's rights`() async throws {
        writeFile(folder("a"), "old".utf8)
        let hasLists = await setList("access", folder("a"), user: 6, group: 0, others: 0)
        let list = await list(folder("a"))
        #expect(commit("a", .replace, "new") == .committed(path: folder("a")))
        #expect(text("a") == "new")
        if hasLists {
            #expect(mode("a") == 0o660)
            #expect(await self.list(folder("a")) == list)
        } else {
            #expect(list.isEmpty)
        }
    }

    /// So one flush brings bytes, mode and origin to disk.
    @Test func `finds the mode and the origin that the file got before it was flushed`() throws {
        writeFile(folder(".todoku-1.part"), "new".utf8, mode: 0o600)
        writeFile(folder("a"), "old".utf8, mode: 0o640)
        let traits = FileTraits(origin: "http://example.org/a", replaced: "a")
        let proved = Commit.verify(
            directory: folder.path, partName: ".todoku-1.part", identity: found(".todoku-1.part"), size: 3, checksum: nil, expectedSize: 3,
            traits: traits)
        #expect(proved == .proved(found(".todoku-1.part")))
        #expect(mode(".todoku-1.part") == 0o640)
        let opened = try OpenFolder.open(folder.path, allowHidden: false)
        let part = openUninterrupted(opened.descriptor, ".todoku-1.part", O_RDONLY | O_CLOEXEC)
        defer { close(part) }
        #expect(try !traits.give(to: part, in: opened))
        // Another mode of the replaced file must be flushed once more.
        #expect(chmod(folder("a"), 0o600) == 0)
        #expect(try traits.give(to: part, in: opened))
        #expect(mode(".todoku-1.part") == 0o600)
        #expect(try !traits.give(to: part, in: opened))
    }

    @Test func `renames no other file than the verified one`() throws {
        writeFile(folder(".todoku-1.part"), "proved".utf8)
        let proved = found(".todoku-1.part")
        writeFile(folder("other"), "another’s".utf8)
        #expect(rename(folder("other"), folder(".todoku-1.part")) == 0)
        let outcome = Commit.commit(
            directory: folder.path, partName: ".todoku-1.part", identity: proved, name: "a", policy: .rename, origin: nil, mapPath: nil)
        #expect(outcome == .lost)
        #expect(text(".todoku-1.part") == "another’s" && !fileExists(folder("a")))
    }

    @Test func `writes into no hidden folder, also if the user's own link leads there now`() throws {
        folder.makeFolder("files")
        folder.makeFolder(".config")
        writeFile(folder("files/.todoku-1.part"), "x".utf8)
        let identity = found("files/.todoku-1.part")
        #expect(rename(folder("files"), folder(".config/autostart")) == 0 && symlink(".config/autostart", folder("files")) == 0)
        func commit(allowHidden: Bool) -> CommitOutcome {
            Commit.commit(
                directory: folder("files"), partName: ".todoku-1.part", identity: identity, name: "a.desktop", policy: .rename, origin: nil,
                mapPath: nil, allowHidden: allowHidden)
        }
        let sentence = "Todoku does not write into the folder \(folder("files")): it is at \(folder(".config")) now, which is hidden."
        #expect(commit(allowHidden: false) == .failed(DownloadFailure(.permissionDenied, sentence)))
        let verification = Commit.verify(
            directory: folder("files"), partName: ".todoku-1.part", identity: identity, size: 1, checksum: nil, expectedSize: nil)
        #expect(verification == .failed(DownloadFailure(.permissionDenied, sentence)))
        #expect(listFolder(folder(".config/autostart")) == [".todoku-1.part"])
        #expect(commit(allowHidden: true) == .committed(path: folder("files/a.desktop")))
    }

    @Test(.enabled(if: geteuid() == 0, "only root can give a file to another user"))
    func `accepts the verified file as its own, whatever owner the mount shows`() throws {
        writeFile(folder(".todoku-1.part"), "x".utf8, mode: 0o600)
        let identity = found(".todoku-1.part")
        #expect(chown(folder(".todoku-1.part"), 12345, 12345) == 0)
        let proved = Commit.verify(
            directory: folder.path, partName: ".todoku-1.part", identity: identity, size: 1, checksum: nil, expectedSize: nil)
        #expect(proved == .proved(identity))
        let outcome = Commit.commit(
            directory: folder.path, partName: ".todoku-1.part", identity: identity, name: "a", policy: .rename, origin: nil, mapPath: nil)
        #expect(outcome == .committed(path: folder("a")))
    }

    /// The service was killed before the database said that the flush had failed. The next flush succeeds, but writes nothing.
    @Test(arguments: [EIO, ENOSPC]) func `finds no whole file after a flush that has failed`(code: Int32) {
        writeFile(folder(".todoku-1.part"), "new".utf8, mode: 0o600)
        writeFile(folder("map"), "x".utf8)
        let identity = found(".todoku-1.part")
        let failed = Commit.verify(
            directory: folder.path, partName: ".todoku-1.part", identity: identity, size: 3, checksum: nil, digest: nil, expectedSize: nil,
            mapPath: folder("map"), allowHidden: false, traits: nil
        ) { _ in code }
        guard case .failed(let failure) = failed else { return #expect(Bool(false)) }
        #expect(failure.wait == (code == EIO ? .destination : .diskSpace) && !fileExists(folder("map")))
        let next = Commit.verify(
            directory: folder.path, partName: ".todoku-1.part", identity: identity, size: 3, checksum: nil, expectedSize: nil)
        #expect(next == .lost)
    }

    /// Before the flush, the part file gets the mode of the file that it replaces.
    @Test func `finds no whole file after a failed flush, also if the file replaces one that nobody may write`() {
        writeFile(folder("a"), "old".utf8, mode: 0o400)
        writeFile(folder(".todoku-1.part"), "new".utf8, mode: 0o600)
        _ = Commit.verify(
            directory: folder.path, partName: ".todoku-1.part", identity: found(".todoku-1.part"), size: 3, checksum: nil, digest: nil,
            expectedSize: nil, mapPath: nil, allowHidden: false, traits: FileTraits(origin: nil, replaced: "a")
        ) { _ in EIO }
        #expect(text(".todoku-1.part") == "ne" && text("a") == "old")
    }

    /// An earlier commit gave the file its name by link(2), and could remove neither name afterwards.
    @Test func `cuts nothing off a file that already has its final name, if a flush fails`() {
        writeFile(folder(".todoku-1.part"), "new".utf8, mode: 0o600)
        #expect(link(folder(".todoku-1.part"), folder("a")) == 0)
        _ = Commit.verify(
            directory: folder.path, partName: ".todoku-1.part", identity: found(".todoku-1.part"), size: 3, checksum: nil, digest: nil,
            expectedSize: nil, mapPath: nil, allowHidden: false, traits: nil
        ) { _ in EIO }
        #expect(text("a") == "new")
    }

    @Test func `leaves the existing file under skip and fail`() {
        writeFile(folder("a"), "old".utf8)
        #expect(commit("a", .skip, "new") == .skipped(path: folder("a")))
        #expect(listFolder(folder.path) == ["a"])
        guard case .failed(let failure) = commit("a", .fail, "new") else { return #expect(Bool(false)) }
        #expect(failure == DownloadFailure(.alreadyExists, "\(folder("a")) exists already."))
        #expect(text("a") == "old" && text(".todoku-1.part") == "new")
    }

    @Test func `gives two that want one name a name each`() async {
        let paths = await withTaskGroup(of: CommitOutcome.self) { group in
            for number in 0..<8 {
                writeFile(folder(".todoku-\(number).part"), "\(number)".utf8)
                group.addTask {
                    Commit.commit(
                        directory: folder.path, partName: ".todoku-\(number).part", identity: found(".todoku-\(number).part"), name: "a",
                        policy: .rename, origin: nil, mapPath: nil)
                }
            }
            return await group.reduce(into: []) { $0.append($1) }
        }
        #expect(paths.count == 8)
        #expect(listFolder(folder.path) == (["a"] + (1...7).map { "a (\($0))" }).sorted())
        #expect(Set(listFolder(folder.path).compactMap(text)) == Set((0..<8).map(String.init)))
    }

    @Test func `refuses a part file that is a link or missing`() {
        writeFile(folder("victim"), "precious".utf8)
        #expect(symlink("victim", folder(".todoku-1.part")) == 0)
        for part in [".todoku-1.part", ".todoku-2.part"] {
            guard
                case .failed(let failure) = Commit.commit(
                    directory: folder.path, partName: part, identity: found("victim"), name: "a", policy: .rename, origin: nil, mapPath: nil
                )
            else { return #expect(Bool(false)) }
            #expect(failure.name == .writeFailed)
        }
        Commit.discard(directory: folder.path, partName: ".todoku-1.part", mapPath: nil)
        #expect(listFolder(folder.path) == [".todoku-1.part", "victim"])
    }

    @Test func `discards the part file and its map`() {
        writeFile(folder(".todoku-1.part"), "x".utf8)
        writeFile(folder("map"), "x".utf8)
        Commit.discard(directory: folder.path, partName: ".todoku-1.part", mapPath: folder("map"))
        Commit.discard(directory: folder.path, partName: ".todoku-1.part", mapPath: folder("map"))
        #expect(listFolder(folder.path) == [])
    }

    /// A folder that somebody else has made may be on a disk that is away.
    @Test func `takes the part file for gone with its folder only if the folder was the service's`() {
        let missing = folder("missing")
        #expect(!Commit.discard(directory: missing, partName: ".todoku-1.part", mapPath: nil))
        #expect(Commit.discard(directory: missing, partName: ".todoku-1.part", mapPath: nil, isOurs: true))
        writeFile(missing, "no folder".utf8)
        #expect(!Commit.discard(directory: missing, partName: ".todoku-1.part", mapPath: nil, isOurs: true))
    }

    /// A second file beside the part file. If it could not be deleted when it was abandoned, its name would otherwise stay.
    @Test func `leaves nothing of a second representation behind`() {
        writeFile(folder(".todoku-1.new.part"), "x".utf8)
        #expect(commit("a", .rename, "new") == .committed(path: folder("a")))
        #expect(listFolder(folder.path) == ["a"])
    }

    @Test func `finds a committed file after a restart`() throws {
        writeFile(folder("a"), "old".utf8)
        writeFile(folder(".todoku-1.part"), "new".utf8)
        let identity = try identity(of: folder(".todoku-1.part"))
        #expect(
            Commit.verify(
                directory: folder.path, partName: ".todoku-1.part", identity: identity, size: 3, checksum: nil, expectedSize: 3)
                == .proved(identity))
        func found() -> FoundCommit {
            Commit.found(directory: folder.path, partName: ".todoku-1.part", name: "a", identity: identity, size: 3, mapPath: folder("map"))
        }
        writeFile(folder("map"), "x".utf8)
        #expect(found() == .partThere)
        // An interrupted fallback leaves both names.
        #expect(link(folder(".todoku-1.part"), folder("a (1)")) == 0)
        #expect(found() == .committed(path: folder("a (1)")))
        #expect(listFolder(folder.path) == ["a", "a (1)"], "the map is gone too")
        #expect(found() == .committed(path: folder("a (1)")))
        #expect(unlink(folder("a (1)")) == 0)
        #expect(found() == .lost)
    }

    /// The disk was unplugged while the file got its name, and has another device number now.
    @Test func `gives the name, and finds the file, on a disk that was mounted again`() throws {
        writeFile(folder(".todoku-1.part"), "new".utf8)
        let own = try identity(of: folder(".todoku-1.part"))
        let isKnown = own.born != nil  // a file system may record no birth times
        var before = own
        (before.device, before.mount) = (own.device + 1, own.mount + 1)
        func found() -> FoundCommit {
            Commit.found(directory: folder.path, partName: ".todoku-1.part", name: "a", identity: before, size: 3, mapPath: nil)
        }
        #expect(found() == .partThere)
        let outcome = Commit.commit(
            directory: folder.path, partName: ".todoku-1.part", identity: before, name: "a", policy: .rename, origin: nil, mapPath: nil)
        #expect(outcome == (isKnown ? .committed(path: folder("a")) : .lost))
        if !isKnown { #expect(rename(folder(".todoku-1.part"), folder("a")) == 0) }
        #expect(found() == (isKnown ? .committed(path: folder("a")) : .lost))
        before.born = own.born.map { $0 + 1 }
        #expect(found() == .lost, "another disk has a file of this inode number")
        before.born = nil
        #expect(found() == .lost)
    }
}

@Suite struct `Committing on a file system` {
    let folder = TemporaryFolder("todoku-naming")

    private func commit(_ policy: ExistingFilePolicy, _ calls: NamingCalls) -> CommitOutcome {
        writeFile(folder(".todoku-1.part"), "new".utf8, mode: 0o600)
        return Commit.commit(
            directory: folder.path, partName: ".todoku-1.part", identity: identityIfAny(folder(".todoku-1.part")), name: "a",
            policy: policy, origin: nil, mapPath: nil, calls: calls)
    }

    private func text(_ name: String) -> String? { readFile(folder(name)).map { String(decoding: $0, as: UTF8.self) } }

    /// The answers of file systems that lack a call: NFS and vfat lack RENAME_NOREPLACE, vfat and exFAT lack links.
    private func lesser(_ rename: Int32, link: Int32?) -> NamingCalls {
        var calls = NamingCalls()
        calls.renameNoReplace = { _, _, _ in rename }
        if let link { calls.link = { _, _, _ in link } }
        return calls
    }

    @Test(arguments: [EINVAL, ENOSYS, ENOTSUP], [nil, EPERM, ENOTSUP, EMLINK])
    func `without a rename that refuses to replace never replaces`(rename: Int32, link: Int32?) {
        let calls = lesser(rename, link: link)
        #expect(commit(.rename, calls) == .committed(path: folder("a")))
        #expect(listFolder(folder.path) == ["a"])
        writeFile(folder("a"), "old".utf8)
        folder.makeFolder("a (1)")
        #expect(symlink("nowhere", folder("a (2)")) == 0)
        #expect(commit(.rename, calls) == .committed(path: folder("a (3)")))
        #expect(commit(.skip, calls) == .skipped(path: folder("a")))
        guard case .failed(let failure) = commit(.fail, calls) else { return #expect(Bool(false)) }
        #expect(failure.name == .alreadyExists && text(".todoku-1.part") == "new")
        #expect(text("a") == "old" && text("a (3)") == "new")
        #expect(listFolder(folder.path) == [".todoku-1.part", "a", "a (1)", "a (2)", "a (3)"])
    }

    @Test func `that fails at a name keeps the part file, and says why`() {
        for (code, name, wait) in [
            (ENOSPC, ErrorName.diskFull, WaitReason.diskSpace), (EROFS, .permissionDenied, .destination), (EIO, .writeFailed, .destination),
        ] {
            for calls in [lesser(code, link: nil), lesser(EINVAL, link: code)] {
                guard case .failed(let failure) = commit(.rename, calls) else { return #expect(Bool(false)) }
                #expect(failure.name == name && failure.wait == wait && text(".todoku-1.part") == "new")
                #expect(listFolder(folder.path) == [".todoku-1.part"])
            }
        }
    }

    @Test func `that dies between the link and the unlink leaves a file that is found at the restart`() throws {
        writeFile(folder("a"), "old".utf8)
        writeFile(folder(".todoku-1.part"), "new".utf8, mode: 0o600)
        let identity = try identity(of: folder(".todoku-1.part"))
        var calls = lesser(EINVAL, link: nil)
        calls.unlink = { _, _ in EIO }
        let outcome = Commit.commit(
            directory: folder.path, partName: ".todoku-1.part", identity: identity, name: "a", policy: .rename, origin: nil, mapPath: nil,
            calls: calls)
        guard case .failed = outcome else { return #expect(Bool(false)) }
        #expect(listFolder(folder.path) == [".todoku-1.part", "a", "a (1)"])
        func found(_ calls: NamingCalls) -> FoundCommit {
            Commit.found(
                directory: folder.path, partName: ".todoku-1.part", name: "a", identity: identity, size: 3, mapPath: nil, calls: calls)
        }
        #expect(found(calls) == .unsettled(path: folder("a (1)")), "to be tried again: its other name is still there")
        #expect(found(NamingCalls()) == .committed(path: folder("a (1)")))
        #expect(listFolder(folder.path) == ["a", "a (1)"] && text("a (1)") == "new" && text("a") == "old")
    }

    @Test(arguments: [".todoku-1.part", ".todoku-1.new.part"])
    func `that cannot delete a part file still has it`(name: String) {
        writeFile(folder(name), "x".utf8)
        func isGone(_ calls: NamingCalls) -> Bool {
            Commit.discard(directory: folder.path, partName: ".todoku-1.part", mapPath: nil, calls: calls)
        }
        var calls = NamingCalls()
        calls.unlink = { _, _ in EIO }
        #expect(!isGone(calls) && listFolder(folder.path) == [name])
        calls.unlink = { _, _ in ENOENT }
        #expect(isGone(calls), "somebody else was faster")
        #expect(isGone(NamingCalls()) && listFolder(folder.path) == [])
    }
}

@Suite struct `Proving a part file` {
    let folder = TemporaryFolder("todoku-verify")

    /// Compares with the digests that coreutils compute.
    @Test(arguments: Checksum.Algorithm.allCases) func `computes the digest that the system's own tool does`(algorithm: Checksum.Algorithm)
        async throws
    {
        for size in [0, 1, 1 << 20, 3_000_001] {
            writeFile(folder("part"), patternBytes(size))
            let line = await Child.run(["\(algorithm.rawValue)sum", folder("part")]).output
            let digits = Array(line.prefix { $0 != " " })
            let digest = stride(from: 0, to: digits.count, by: 2).compactMap { UInt8(String(digits[$0...($0 + 1)]), radix: 16) }
            let checksum = try #require(Checksum(algorithm, digest: digest))
            let identity = try identity(of: folder("part"))
            func verify(_ checksum: Checksum?) -> Verification {
                Commit.verify(
                    directory: folder.path, partName: "part", identity: identity, size: ByteCount(size), checksum: checksum,
                    expectedSize: ByteCount(size))
            }
            #expect(verify(checksum) == .proved(identity))
            var wrong = digest
            wrong[0] ^= 1
            let failure = DownloadFailure(
                .checksumMismatch,
                "The downloaded file is not the expected one: it has \(checksum), not \(algorithm.rawValue):\(hexadecimal(wrong)).")
            #expect(verify(Checksum(algorithm, digest: wrong)) == .failed(failure))
        }
    }

    @Test func `compares with the digest that the server stated, too, and the checksum decides`() async throws {
        let bytes = patternBytes(600_000)
        writeFile(folder("part"), bytes)
        let identity = try identity(of: folder("part"))
        func rightSum(_ algorithm: Checksum.Algorithm) async throws -> Checksum {
            try #require(Checksum(algorithm, digest: await digest(of: bytes, by: "\(algorithm.rawValue)sum")))
        }
        func wrongSum(_ algorithm: Checksum.Algorithm) throws -> Checksum {
            try #require(Checksum(algorithm, digest: [UInt8](repeating: 7, count: algorithm.length)))
        }
        func verify(_ checksum: Checksum?, _ digest: Checksum?) -> Verification {
            Commit.verify(
                directory: folder.path, partName: "part", identity: identity, size: 600_000, checksum: checksum, digest: digest,
                expectedSize: nil)
        }
        for algorithm in [.sha256, .sha512] as [Checksum.Algorithm] {
            let (right, wrong) = (try await rightSum(algorithm), try wrongSum(algorithm))
            #expect(verify(nil, right) == .proved(identity))
            let message =
                "The downloaded file is damaged, or the server states a wrong digest: the file has \(right), and the server stated \(wrong)."
            #expect(verify(nil, wrong) == .failed(DownloadFailure(.checksumMismatch, message)))
            for other in [.sha256, .md5] as [Checksum.Algorithm] {
                let checksum = try await rightSum(other)
                #expect(verify(checksum, right) == .proved(identity))
                #expect(verify(checksum, wrong) == .proved(identity, otherDigest: wrong))
                let wrongChecksum = try wrongSum(other)
                let both = "The downloaded file is not the expected one: it has \(checksum), not \(wrongChecksum)."
                for digest in [right, wrong] {
                    #expect(verify(wrongChecksum, digest) == .failed(DownloadFailure(.checksumMismatch, both)))
                }
            }
        }
    }

    @Test func `refuses a wrong size`() throws {
        writeFile(folder("part"), "abc".utf8)
        let identity = try identity(of: folder("part"))
        #expect(
            Commit.verify(directory: folder.path, partName: "part", identity: identity, size: 3, checksum: nil, expectedSize: 4)
                == .failed(DownloadFailure(.sizeMismatch, "The file has 3 bytes instead of 4.")))
    }

    @Test func `accepts no other file as the complete one`() throws {
        writeFile(folder("part"), "abc".utf8)
        let identity = try identity(of: folder("part"))
        func verify(_ identity: FileIdentity, size: ByteCount = 3, name: String = "part") -> Verification {
            Commit.verify(directory: folder.path, partName: name, identity: identity, size: size, checksum: nil, expectedSize: nil)
        }
        #expect(verify(identity) == .proved(identity))
        #expect(verify(identity, size: 4) == .lost)
        #expect(verify(identity, name: "none") == .lost)
        var other = identity
        other.boot = "before the power was cut"
        #expect(verify(other) == .lost)
        other = identity
        other.inode += 1
        #expect(verify(other) == .lost)
    }
}

@Suite struct `A finished file` {
    let folder = TemporaryFolder("todoku-finished")

    /// Those of the three operations (open, trash, delete) that accept the file as the one with this identity.
    private func takers(_ identity: FileIdentity?) -> [String] {
        let path = folder("a")
        var takers: [String] = []
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        if Commit.isFinished(descriptor, identity) { takers.append("open") }
        close(descriptor)
        let trashed = folder("data/Trash/files/a")
        if case .success = Trash.put(path, identity: identity, dataHome: folder("data")), rename(trashed, path) == 0 {
            takers.append("trash")
            unlink(folder("data/Trash/info/a.trashinfo"))
        }
        if case .success = Commit.deleteFinished(path, identity: identity) { takers.append("delete") }
        return takers
    }

    @Test func `is recognised after a restart, on a remounted disk, and without a birth time`() throws {
        for change: (inout FileIdentity) -> Void in [{ $0.boot = "another" }, { ($0.device, $0.mount) = (7, 8) }, { $0.born = nil }] {
            writeFile(folder("a"), "own".utf8)
            var identity = try identity(of: folder("a"))
            change(&identity)
            #expect(takers(identity) == ["open", "trash", "delete"])
            #expect(!fileExists(folder("a")))
        }
    }

    @Test func `is not mistaken for another of its name`() throws {
        writeFile(folder("a"), "own".utf8)
        let known = try identity(of: folder("a"))
        for change: (inout FileIdentity) -> Void in [{ $0.inode += 1 }, { $0.born = $0.born.map { $0 + 1 } }] {
            var other = known
            change(&other)
            if other != known { #expect(takers(other) == []) }  // equal if the file system records no birth times
        }
        #expect(takers(nil) == [])
        #expect(unlink(folder("a")) == 0 && mkdir(folder("a"), 0o700) == 0)
        // Without birth times, the inode of a deleted file may be that of a folder now.
        var reused = try identity(of: folder("a"))
        reused.born = nil
        #expect(takers(reused) == [])
    }

    @Test func `is not mistaken for a later one with its name and inode number`() throws {
        writeFile(folder("a"), "own".utf8)
        let identity = try identity(of: folder("a"))
        unlink(folder("a"))
        writeFile(folder("a"), "another’s".utf8, inode: identity.inode)
        #expect(takers(identity) == [])
        #expect(readFile(folder("a")) == Array("another’s".utf8))
    }

    @Test func `that is gone counts as deleted, and one that cannot be inspected does not`() {
        let identity = FileIdentity(device: 1, inode: 2, mount: 3, boot: "b")
        #expect(throws: Never.self) { try Commit.deleteFinished(folder("none"), identity: identity).get() }
        let name = String(repeating: "n", count: 256)  // ENAMETOOLONG
        #expect(throws: Refusal.self) { try Commit.deleteFinished(folder(name), identity: identity).get() }
    }
}

@Suite struct `A destination folder` {
    let folder = TemporaryFolder("todoku-destination")

    private func check(_ path: String, allowHidden: Bool = false, create: Bool = false) -> Result<String, Refusal> {
        Destination.check(path, allowHidden: allowHidden, create: create)
    }

    private func name(_ result: Result<String, Refusal>) -> ErrorName? {
        if case .failure(let refusal) = result { refusal.name } else { nil }
    }

    @Test func `is accepted if it exists and can be written`() {
        #expect(check(folder.path) == .success(folder.path))
        #expect(check(folder.path + "/.//") == .success(folder.path))
    }

    @Test func `is refused if it is not absolute, missing or no folder`() {
        writeFile(folder("file"), [])
        for path in ["", "relative", "~/x", folder("missing"), folder("missing/deep"), folder("file"), folder("file/deep")] {
            #expect(name(check(path)) == .invalidOption, "\(path)")
        }
        #expect(check(folder("missing")) == .failure(Refusal(.invalidOption, "directory: \(folder("missing")) does not exist.")))
    }

    @Test func `is refused if it is hidden, also behind a link, unless that is allowed`() {
        folder.makeFolder(".hidden")
        folder.makeFolder(".hidden/inner")
        #expect(symlink(".hidden/inner", folder("link")) == 0)
        for path in [folder(".hidden"), folder(".hidden/inner"), folder("link")] {
            #expect(name(check(path)) == .notAllowed, "\(path)")
            #expect(check(path, allowHidden: true) == .success(path))
        }
    }

    @Test(.enabled(if: geteuid() == 0, "only root can plant a link for another user"))
    func `is refused behind a symbolic link that another user planted`() {
        folder.makeFolder("real")
        #expect(symlink("real", folder("own")) == 0)
        #expect(check(folder("own")) == .success(folder("own")))
        #expect(symlink("real", folder("planted")) == 0 && lchown(folder("planted"), 12345, 12345) == 0)
        folder.makeFolder("real/deep")
        #expect(name(check(folder("planted"))) == .notAllowed)
        #expect(name(check(folder("planted/deep"))) == .notAllowed)
    }

    @Test func `is refused if links lead in a circle`() {
        #expect(symlink("b", folder("a")) == 0 && symlink("a", folder("b")) == 0)
        #expect(name(check(folder("a"))) == .invalidOption)
    }

    @Test func `is created if asked for`() {
        #expect(check(folder("new/deep"), create: true) == .success(folder("new/deep")))
        #expect(fileExists(folder("new/deep")))
    }

    @Test func `is refused if it cannot be created`() {
        #expect(name(check("/proc/self/does-not-exist", create: true)) == .permissionDenied)
    }

    @Test func `is refused if it cannot be written`() async {
        await #expect(processExitsWith: .success) {
            let folder = TemporaryFolder("todoku-destination")
            chmod(folder.path, 0o555)
            if geteuid() == 0 { precondition(setuid(12345) == 0) }  // root may write everywhere
            guard case .failure(let refusal) = Destination.check(folder.path, allowHidden: false, create: false) else {
                preconditionFailure("taken")
            }
            precondition(refusal == Refusal(.permissionDenied, "directory: \(folder.path) cannot be written: Permission denied."))
        }
    }
}

/// The identity of a file; a made-up identity if the file does not exist.
func identityIfAny(_ path: String) -> FileIdentity {
    (try? identity(of: path)) ?? FileIdentity(device: 0, inode: 0, mount: 0, boot: "")
}

/// The identity of a file, on this boot.
func identity(of path: String) throws -> FileIdentity {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC)
    defer { close(descriptor) }
    return try fileIdentity(of: descriptor, boot: bootIdentity())
}
