import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing

@testable internal import PartFiles

@Suite struct `The trash` {
    private let folder = TemporaryFolder("todoku-trash")
    private var own: String { folder.makeFolder("own") }
    private var home: String { folder("data/Trash") }

    private func write(_ name: String, _ text: String = "own") -> String {
        let path = "\(own)/\(name)"
        writeFile(path, text.utf8)
        return path
    }

    private func text(_ path: String) -> String? { readFile(path).map { String(decoding: $0, as: UTF8.self) } }

    /// nil: the file is in the trash.
    private func put(
        _ path: String, identity: FileIdentity? = nil, wait: TrashWait = TrashWait(), calls: TrashCalls = TrashCalls()
    ) -> Refusal? {
        let known = identity ?? identityIfAny(path)
        let result = Trash.put(path, identity: known, dataHome: folder("data"), wait: wait, calls: calls)
        guard case .failure(let refusal) = result else { return nil }
        return refusal
    }

    /// System calls that run `event` between the check of the file and its first move.
    private func calls(before event: @escaping () -> Void) -> TrashCalls {
        var calls = TrashCalls()
        let (rename, event) = (calls.rename, Once(event))
        calls.rename = {
            event.run()
            return rename($0, $1, $2, $3)
        }
        return calls
    }

    private final class Once {
        private var event: (() -> Void)?
        init(_ event: @escaping () -> Void) { self.event = event }
        func run() {
            event?()
            event = nil
        }
    }

    @Test func `takes a file with its path and the time, for this user alone`() {
        let path = write("50%\n写真 ~.txt")
        #expect(put(path) == nil)
        #expect(text("\(home)/files/50%\n写真 ~.txt") == "own" && !fileExists(path))
        let lines = text("\(home)/info/50%\n写真 ~.txt.trashinfo")?.split(separator: "\n") ?? []
        #expect(lines.prefix(2) == ["[Trash Info]", "Path=\(own)/50%25%0A%E5%86%99%E7%9C%9F%20~.txt"])
        #expect(lines.count == 3 && lines[2].wholeMatch(of: /DeletionDate=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/) != nil, "\(lines)")
        for folder in [home, "\(home)/files", "\(home)/info"] {
            var status = stat()
            #expect(stat(folder, &status) == 0 && status.st_mode & 0o777 == 0o700)
        }
    }

    @Test func `replaces nothing that it has, described or not`() {
        for text in ["first", "second"] { #expect(put(write("a.tar.gz", text)) == nil) }
        #expect(listFolder("\(home)/files").sorted() == ["a (1).tar.gz", "a.tar.gz"])
        #expect(unlink("\(home)/info/a.tar.gz.trashinfo") == 0)
        var calls = TrashCalls()
        for isOld in [false, true] {
            if isOld { calls.rename = { _, _, _, _ in EINVAL } }  // a file system without RENAME_NOREPLACE
            #expect(put(write("a.tar.gz", "third"), calls: calls) == nil)
        }
        #expect(text("\(home)/files/a.tar.gz") == "first")
        let names = ["a (1).tar.gz", "a (2).tar.gz", "a (3).tar.gz"]
        #expect(listFolder("\(home)/files").sorted() == names + ["a.tar.gz"])
        #expect(listFolder("\(home)/info").sorted() == names.map { "\($0).trashinfo" })
    }

    @Test func `takes the longest name that a file can have`() {
        let name = String(repeating: "あ", count: 83) + ".bin"
        #expect(name.utf8.count == 253)
        #expect(put(write(name)) == nil)
        #expect(listFolder("\(home)/files").map(\.utf8.count).allSatisfy { $0 <= Trash.longestName })
        #expect(listFolder("\(home)/info").compactMap { text("\(home)/info/\($0)") }.first?.contains(percentEncoded(path: name)) == true)
    }

    @Test func `takes the file from the folder in which it was found, though a link has come in that folder's place`() {
        let (path, other) = (write("a"), folder.makeFolder("other"))
        writeFile("\(other)/a", "private".utf8)
        let (own, kept) = (own, folder("kept"))
        #expect(put(path, calls: calls { precondition(rename(own, kept) == 0 && symlink(other, own) == 0) }) == nil)
        #expect(text("\(home)/files/a") == "own")
        #expect(text("\(other)/a") == "private" && listFolder(kept) == [])
    }

    @Test func `gives back another file that got the name just before`() {
        let path = write("a")
        let event = calls {
            precondition(rename(path, "\(path).kept") == 0)
            writeFile(path, "private".utf8)
        }
        let refusal = put(path, calls: event)
        #expect(refusal?.name == .permissionDenied && refusal?.message.hasSuffix("had its name by then, and was left alone.") == true)
        #expect(text(path) == "private" && text("\(path).kept") == "own")
        #expect(listFolder("\(home)/files") == [] && listFolder("\(home)/info") == [])
    }

    @Test func `says where another file is that cannot be given back`() {
        let path = write("a")
        var calls = TrashCalls()
        let rename = calls.rename
        calls.rename = { folder, from, newFolder, to in
            precondition(Glibc.rename(path, "\(path).kept") == 0)
            writeFile(path, "private".utf8)
            let code = rename(folder, from, newFolder, to)
            writeFile(path, "third".utf8)
            return code
        }
        #expect(put(path, calls: calls)?.message.hasSuffix("had its name by then, and is in the trash as a.") == true)
        #expect(text(path) == "third" && text("\(home)/files/a") == "private" && fileExists("\(home)/info/a.trashinfo"))
    }

    @Test func `takes no other file, and nothing where there is none`() {
        let path = write("a")
        var other = identityIfAny(path)
        other.inode += 1
        #expect(put(path, identity: other)?.name == .notAllowed)
        #expect(text(path) == "own" && !fileExists(home))
        #expect(unlink(path) == 0 && put(path) == nil && !fileExists(home))
    }

    @Test func `leaves the file where its caller has been told that it stays`() {
        let (path, wait) = (write("a"), TrashWait())
        #expect(!wait.giveUp())
        #expect(put(path, wait: wait)?.name == .permissionDenied)
        #expect(text(path) == "own" && listFolder("\(home)/files") == [] && listFolder("\(home)/info") == [])
    }

    @Test func `may still get the file where its caller stops waiting during the rename, and says so`() {
        let (path, wait) = (write("a"), TrashWait())
        var told: [Bool] = []
        #expect(put(path, wait: wait, calls: calls { told.append(wait.giveUp()) }) == nil)
        #expect(told == [true])
        #expect(text("\(home)/files/a") == "own" && !fileExists(path))
    }

    @Test func `that cannot describe the file leaves it`() {
        let path = write("a")
        folder.makeFolder("data")
        let files = (folder.makeFolder("data/Trash"), folder.makeFolder("data/Trash/files")).1
        writeFile(folder("data/Trash/info"), [])
        // The home is no folder, so it has no trash; the mount's trash is made unusable, too.
        var calls = TrashCalls()
        calls.isMemory = { _ in true }
        let refusal = put(path, calls: calls)
        #expect(refusal?.name == .permissionDenied && refusal?.message.contains("desktops show no trash of it") == true)
        #expect(text(path) == "own" && listFolder(files) == [])
    }
}

/// Uses a disk of its own. The disk is in memory, so the rule against such disks is lifted.
@Suite(.enabled("only root can mount a small disk") { await SmallDisk.isPossible() }) struct `The trash of another disk` {
    private let folder = TemporaryFolder("todoku-trash")
    private let user = geteuid()

    private func put(_ disk: SmallDisk, _ name: String, _ calls: TrashCalls? = nil) -> Refusal? {
        put(disk.path, name, calls)
    }

    private func put(_ top: String, _ name: String, _ calls: TrashCalls? = nil) -> Refusal? {
        mkdir("\(top)/sub", 0o755)
        let path = "\(top)/sub/\(name)"
        writeFile(path, "own".utf8)
        var lifted = TrashCalls()
        lifted.isMemory = { _ in false }
        let result = Trash.put(path, identity: identityIfAny(path), dataHome: folder("data"), calls: calls ?? lifted)
        guard case .failure(let refusal) = result else { return nil }
        #expect(fileExists(path))
        return refusal
    }

    private func onDisk(_ body: (SmallDisk) async throws -> Void) async throws {
        let isDone: Void? = try await SmallDisk.withDisk(bytes: 1 << 20, body)
        #expect(isDone != nil)
    }

    @Test func `is at its top, for this user alone, and has the path from there`() async throws {
        try await onDisk { disk in
            #expect(put(disk, "a b") == nil)
            let trash = "\(disk.path)/.Trash-\(user)"
            #expect(readFile("\(trash)/files/a b") == Array("own".utf8))
            #expect(String(decoding: readFile("\(trash)/info/a b.trashinfo") ?? [], as: UTF8.self).contains("\nPath=sub/a%20b\n"))
            var status = stat()
            #expect(stat(trash, &status) == 0 && status.st_mode & 0o777 == 0o700)
            #expect(listFolder(folder("data/Trash/files")) == [])
        }
    }

    @Test func `is in the administrator's, where that has a sticky bit and is no link`() async throws {
        try await onDisk { disk in
            let shared = "\(disk.path)/.Trash"
            #expect(mkdir(shared, 0o700) == 0 && chmod(shared, 0o1777) == 0)
            #expect(put(disk, "a") == nil && fileExists("\(shared)/\(user)/files/a"))
            #expect(chmod(shared, 0o777) == 0)
            #expect(put(disk, "b") == nil && !fileExists("\(shared)/\(user)/files/b"))
            #expect(chmod(shared, 0o1777) == 0 && rename(shared, "\(disk.path)/real") == 0 && symlink("real", shared) == 0)
            #expect(put(disk, "c") == nil && !fileExists("\(shared)/\(user)/files/c"))
            #expect(listFolder("\(disk.path)/.Trash-\(user)/files").sorted() == ["b", "c"])
        }
    }

    @Test func `is not used where another user made it, or a link is in its place`() async throws {
        try await onDisk { disk in
            let trash = "\(disk.path)/.Trash-\(user)"
            #expect(mkdir(trash, 0o777) == 0 && chown(trash, 12345, 12345) == 0)
            #expect(put(disk, "a")?.message.hasSuffix("\(trash) belongs to another user.") == true)
            #expect(rmdir(trash) == 0 && symlink(folder.path, trash) == 0)
            #expect(put(disk, "a")?.name == .permissionDenied)
            #expect(unlink(trash) == 0 && mkdir(trash, 0o700) == 0 && symlink(folder.path, "\(trash)/files") == 0)
            #expect(put(disk, "a")?.name == .permissionDenied)
            #expect(listFolder(folder.path) == ["data"])
        }
    }

    @Test func `is its mount's own, where the same disk is mounted twice`() async throws {
        try await onDisk { disk in
            let view = folder.makeFolder("view")
            await disk.show(at: view, true)
            #expect(put(view, "a") == nil)
            #expect(readFile("\(view)/.Trash-\(user)/files/a") == Array("own".utf8))
            await disk.show(at: view, false)
        }
    }

    @Test func `is none where the disk is memory: no desktop would show the file`() async throws {
        try await onDisk { disk in
            let refusal = put(disk, "a", TrashCalls())
            #expect(refusal?.message.hasSuffix("\(disk.path) is a file system in memory, and desktops show no trash of it.") == true)
            #expect(listFolder(disk.path) == ["sub"])
        }
    }

    /// Compares with trash-cli, a foreign implementation of the trash.
    @Test(.enabled(if: access("/usr/bin/trash-list", X_OK) == 0, "there is no trash-cli"))
    func `and that of the home are read by another program, which restores the files`() async throws {
        try await onDisk { disk in
            var environment = processEnvironment()
            environment["XDG_DATA_HOME"] = folder("data")
            let own = folder.makeFolder("a 100% ゆ")
            writeFile("\(own)/b\u{301}?.txt", "home".utf8)
            let known = try identity(of: "\(own)/b\u{301}?.txt")
            guard case .success = Trash.put("\(own)/b\u{301}?.txt", identity: known, dataHome: folder("data")) else {
                return #expect(Bool(false), "not in the trash")
            }
            #expect(put(disk, "c d") == nil)
            let list = await Child.run(["trash-list"], environment: environment)
            let paths = list.output.split(separator: "\n").map { String($0.dropFirst("2026-11-23 02:13:10 ".count)) }
            #expect(paths.contains("\(own)/b\u{301}?.txt") && paths.contains("\(disk.path)/sub/c d"), "\(list)")
            for restored in [own, "\(disk.path)/sub"] {
                let exit = await Child.run(["sh", "-c", "echo 0 | trash-restore"], environment: environment, folder: restored)
                #expect(exit.status == 0, "\(exit)")
            }
            #expect(readFile("\(own)/b\u{301}?.txt") == Array("home".utf8))
            #expect(readFile("\(disk.path)/sub/c d") == Array("own".utf8))
            #expect(listFolder(folder("data/Trash/info")) == [] && listFolder("\(disk.path)/.Trash-\(user)/info") == [])
        }
    }
}
