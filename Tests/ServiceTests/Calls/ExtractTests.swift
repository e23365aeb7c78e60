internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// A server of archives that real programs have made.
private final class ArchiveShelf: Sendable {
    let folder = TemporaryFolder("todoku-shelf")
    let server: ScriptedServer

    init() {
        let folder = folder
        server = ScriptedServer { request, reply in
            guard let file = readFile(folder(String(request.path.dropFirst()))) else { return reply.respond(404) }
            reply.serve(file, for: request, entityTag: "\"\(file.count)\"")
        }
    }

    func url(_ name: String) -> String { server.url("/\(name)") }
    func requests(_ name: String) -> Int { server.requests.count { $0.path == "/\(name)" } }

    func write(_ bytes: some Sequence<UInt8>, as name: String) { writeFile(folder(name), bytes) }

    /// Runs a shell line in the folder of the archives.
    func run(_ line: String) async {
        let exit = await Child.run(["sh", "-ec", line], folder: folder.path)
        #expect(exit.status == 0, "\(line): \(exit.errors)")
    }

    /// Makes the folder `tree` with a file, a folder and a link, and packs it as `name`: by tar, bsdtar or zip.
    func pack(_ name: String) async {
        if !fileExists(folder("tree")) {
            folder.makeFolder("tree")
            folder.makeFolder("tree/maps")
            writeFile(folder("tree/readme"), "hello".utf8)
            writeFile(folder("tree/maps/1"), patternBytes(300_000))
            symlink("maps/1", folder("tree/first"))
        }
        switch name {
        case _ where name.hasSuffix(".zip"): await run("cd tree; zip -qr ../\(name) .")
        case _ where name.hasSuffix(".tar.gz"): await run("tar -C tree -czf \(name) .")
        default: await run("bsdtar -C tree -a -cf \(name) .")
        }
    }

    /// Packs `count` small files: enough that unpacking takes a while.
    func packMany(_ name: String, _ count: Int) async {
        await run(
            """
            python3 - \(name) \(count) <<'END'
            import io, sys, tarfile
            with tarfile.open(sys.argv[1], "w:gz", compresslevel=1) as archive:
                for number in range(int(sys.argv[2])):
                    entry = tarfile.TarInfo(f"f/{number % 100}/{number}")
                    entry.size = 10
                    archive.addfile(entry, io.BytesIO(b"%010d" % number))
            END
            """)
    }

    /// Packs entries that tarfile writes from Python's description of them.
    func packOdd(_ name: String, _ python: String) async {
        await run(
            """
            python3 - \(name) <<'END'
            import io, sys, tarfile
            with tarfile.open(sys.argv[1], "w:gz") as archive:
                def add(name, kind=tarfile.REGTYPE, target="", mode=0o644, data=b"data"):
                    entry = tarfile.TarInfo(name)
                    entry.type, entry.linkname, entry.mode = kind, target, mode
                    entry.size = len(data) if kind == tarfile.REGTYPE else 0
                    archive.addfile(entry, io.BytesIO(data))
                add("first")
                \(python)
            END
            """)
    }
}

extension Running {
    /// Whether nothing but these names is left in the folder of the downloads. Leftovers are deleted behind the end.
    fileprivate func holds(_ names: String...) async -> Bool { await eventually { Set(world.files) == Set(names) } }
}

extension StandInJobServer {
    fileprivate func hasTold(_ message: String) -> Bool {
        views.contains { $0.updates.contains { $0.news["infoMessage"] == .string(message) } }
    }
}

private let extract: [String: Variant] = ["extract": .bool(true)]

@Suite(.timeLimit(.minutes(10))) struct `The option extract` {
    private let shelf = ArchiveShelf()

    @Test(arguments: ["levels.tar.gz", "levels.zip", "levels.tar", "levels.tar.xz", "levels.tar.zst", "levels.tbz2", "levels.7z"])
    func `unpacks the archive into a folder named after it, and the archive does not stay`(name: String) async throws {
        await shelf.pack(name)
        let running = try await Running.start()
        let path = try await running.download(shelf.url(name), extract)
        #expect(try await running.client.wait(path) == running.file("levels"))
        #expect(readFile(running.file("levels/readme")) == Array("hello".utf8))
        #expect(readFile(running.file("levels/maps/1")) == patternBytes(300_000))
        #expect(readFile(running.file("levels/first")) == patternBytes(300_000))
        let all = try await running.client.all(path)
        #expect(all["State"] == .string("finished") && all["Path"] == .string(running.file("levels")))
        #expect(all["FileName"] == .string(name) && all["Directory"] == .string(running.world.folder))
        #expect(all["Extracted"] == .double(-1) && all["Fraction"] == .double(1))
        let signals = running.client.signals
        #expect(await signals.hasBeen("verifying", path))
        #expect(await signals.hasBeen("extracting", path))
        #expect(await signals.states(of: path).last == "finished")
        let finished = await signals.of(path).first { $0.member == "Finished" }
        #expect(finished.flatMap { Download.finished.read($0.message) } == running.file("levels"))
        #expect(await running.holds("levels"), "\(running.world.files)")
    }

    @Test func `chooses the name as for a file, and never overwrites`() async throws {
        await shelf.pack("levels.tar.gz")
        let running = try await Running.start()
        func path(_ more: [String: Variant]) async -> String {
            do { return try await running.fetch(shelf.url("levels.tar.gz"), more) } catch { return "\(error)" }
        }
        writeFile(running.file("levels"), "mine".utf8)
        #expect(await path(extract) == running.file("levels (1)"))
        #expect(await path(extract) == running.file("levels (2)"))
        #expect(await path(["extract": .string("world")]) == running.file("world"))
        #expect(await path(["extract": .string("world")]) == running.file("world (1)"))
        #expect(await path(["extract": .string("true")]) == running.file("true"))
        #expect(await path(["extract": .bool(true), "filename": .string("own.zip")]) == running.file("own"))
        #expect(await path(["extract": .bool(true), "filename": .string("plain")]) == running.file("plain"))
        #expect(await path(["extract": .bool(false), "filename": .string("kept.tar.gz")]) == running.file("kept.tar.gz"))
        #expect(readFile(running.file("levels")) == Array("mine".utf8))
        let before = shelf.requests("levels.tar.gz")
        #expect(await path(["extract": .string("world"), "if-exists": .string("skip")]) == running.file("world"))
        #expect(await path(["extract": .string("world"), "if-exists": .string("fail")]).contains("AlreadyExists"))
        #expect(shelf.requests("levels.tar.gz") == before, "the name is known before anything is asked for")
        #expect(await path(["extract": .bool(true), "if-exists": .string("skip")]) == running.file("levels"))
        let elsewhere = running.world.bus.folder.makeFolder("other")
        let options: [String: Variant] = ["extract": .string("\(elsewhere)/./deep/../maps/"), "notify": .string("never")]
        let wrong = await thrown { try await running.client.download(shelf.url("levels.tar.gz"), options) }
        #expect(wrong?.name == todokuError("InvalidOption"), "the folder above must exist: \(wrong as Any)")
        let right = try await running.client.download(
            shelf.url("levels.tar.gz"), ["extract": .string("\(elsewhere)/./maps/"), "notify": .string("never")])
        #expect(try await running.client.wait(right) == "\(elsewhere)/maps")
        #expect(try await running.client.get(Download.directory, at: right) == elsewhere)
    }

    @Test func `is refused together with what contradicts it`() async throws {
        let running = try await Running.start()
        let hidden = running.world.bus.folder.makeFolder(".hidden")
        let cases: [([String: Variant], String, String)] = [
            (["extract": .bool(true), "if-exists": .string("replace")], "InvalidOption", "if-exists"),
            (["extract": .bool(true), "only-if-changed": .bool(true)], "InvalidOption", "only-if-changed"),
            (["extract": .string("/tmp/maps"), "directory": .string(running.world.folder)], "InvalidOption", "directory"),
            (["extract": .string("../maps")], "InvalidOption", "extract"), (["extract": .uint32(1)], "InvalidOption", "b or s"),
        ]
        for (options, name, word) in cases {
            let error = await thrown { try await running.client.download(shelf.url("a.zip"), options) }
            #expect(error?.name == todokuError(name) && error?.message.contains(word) == true, "\(options): \(error as Any)")
            #expect(error.map(isSentence) == true)
        }
        let into = await thrown { try await running.client.download(shelf.url("a.zip"), ["extract": .string("\(hidden)/maps")]) }
        #expect(into?.name == todokuError("NotAllowed"), "\(into as Any)")
        let fetched = await thrown { try await running.client.call(Manager.fetch, (shelf.url("a.zip"), extract)) }
        #expect(fetched?.name == todokuError("InvalidOption") && fetched?.message.contains("extract") == true, "\(fetched as Any)")
        let item = await thrown {
            try await running.client.batch([("http://h/", [:]), ("http://h/", ["if-exists": .string("replace")])], extract)
        }
        #expect(item?.name == todokuError("InvalidOption") && item?.message.hasPrefix("Item 1: ") == true, "\(item as Any)")
        #expect(try await running.client.list() == [])
    }

    @Test(arguments: [
        ("<!DOCTYPE html><html>log in</html>", "a web page"), ("", "an empty file"), ("7z\u{FFFD}", "no archive that Todoku knows"),
        ("#!/bin/sh\n", "a script"),
    ])
    func `says what a file is that is no archive, and Retry downloads it anew`(text: String, kind: String) async throws {
        shelf.write(text.utf8, as: "levels.zip")
        let running = try await Running.start()
        let path = try await running.download(shelf.url("levels.zip"), extract)
        let error = await thrown { try await running.client.wait(path) }
        #expect(error?.name == todokuError("Extraction") && error?.message.contains(kind) == true, "\(error as Any)")
        #expect(error.map(isSentence) == true)
        #expect(await running.holds(), "\(running.world.files)")
        await shelf.pack("right.zip")
        rename(shelf.folder("right.zip"), shelf.folder("levels.zip"))
        try await running.client.retry(path)
        #expect(try await running.client.wait(path) == running.file("levels"))
        #expect(await running.holds("levels"), "\(running.world.files)")
    }

    @Test(arguments: [
        (#"add("../out")"#, "has \"..\" in its path"), (#"add("/tmp/todoku-out-\#(getpid())")"#, "absolute path"),
        (#"add("link", tarfile.SYMTYPE, "/etc"); add("link/x")"#, "absolute path"),
        (#"add("link", tarfile.SYMTYPE, "../..")"#, "out of the archive"), (#"add("disk", tarfile.BLKTYPE)"#, "device"),
        (#"add("su", mode=0o4755)"#, "set-user-ID"), (#"add("a"); add("A")"#, "upper and lower case"), (#"add("first")"#, "twice"),
        (#"add("bomb", data=bytes(200 << 20))"#, "would make more than"),
    ])
    func `refuses a hostile archive, leaves nothing of it, and Retry does not download it again`(python: String, words: String) async throws
    {
        await shelf.packOdd("odd.tar.gz", python)
        let running = try await Running.start()
        let path = try await running.download(shelf.url("odd.tar.gz"), extract)
        let error = await thrown { try await running.client.wait(path) }
        #expect(error?.name == todokuError("Extraction") && error?.message.contains(words) == true, "\(error as Any)")
        #expect(error.map(isSentence) == true)
        // The archive itself is whole, and stays for Retry under its hidden name.
        let part = running.world.partName(1)
        #expect(await running.holds(part), "\(running.world.files)")
        #expect(!fileExists(running.world.bus.folder("out")) && !fileExists("/tmp/todoku-out-\(getpid())"))
        try await running.client.retry(path)
        #expect(await thrown { try await running.client.wait(path) } == error)
        #expect(shelf.requests("odd.tar.gz") == 1)
        try await running.client.remove(path)
        #expect(await running.holds(), "\(running.world.files)")
    }

    @Test func `refuses an encrypted and a damaged archive`() async throws {
        await shelf.pack("right.tar.gz")
        await shelf.run("zip -qr -P secret locked.zip tree; head -c $(( $(stat -c %s right.tar.gz) / 2 )) right.tar.gz > cut.tar.gz")
        let running = try await Running.start()
        let locked = await thrown { try await running.fetch(shelf.url("locked.zip"), extract) }
        #expect(locked?.message.contains("is encrypted") == true, "\(locked as Any)")
        let cut = await thrown { try await running.fetch(shelf.url("cut.tar.gz"), extract) }
        #expect(cut?.name == todokuError("Extraction") && cut?.message.contains("damaged") == true, "\(cut as Any)")
        #expect(await running.holds(running.world.partName(1)), "\(running.world.files)")
    }

    @Test func `keeps a damaged archive that a checksum has proved`() async throws {
        await shelf.pack("right.tar.gz")
        await shelf.run("head -c $(( $(stat -c %s right.tar.gz) / 2 )) right.tar.gz > cut.tar.gz")
        let sum = String((await Child.run(["sha256sum", shelf.folder("cut.tar.gz")])).output.prefix(64))
        let running = try await Running.start()
        let path = try await running.download(shelf.url("cut.tar.gz"), ["extract": .bool(true), "checksum": .string("sha256:\(sum)")])
        let error = await thrown { try await running.client.wait(path) }
        try await running.client.retry(path)
        #expect(await thrown { try await running.client.wait(path) } == error && error != nil)
        #expect(shelf.requests("cut.tar.gz") == 1)
    }

    @Test func `unpacks an archive that is lost, and downloaded again, after it was unpacked`() async throws {
        await shelf.pack("levels.tar.gz")
        let bytes = try #require(readFile(shelf.folder("levels.tar.gz")))
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            if gate.isOpen { return reply.serve(bytes, for: request) }
            reply.head(200, length: bytes.count)
            reply.send(bytes.prefix(100))
            gate.wait()
            reply.send(bytes.dropFirst(100))
            reply.close()
        }
        let running = try await Running.start()
        let path = try await running.download(server.url("/levels.tar.gz"), ["extract": .bool(true), "if-exists": .string("fail")])
        #expect(await eventually { (try? await running.client.get(Download.fileName, at: path)) == "levels.tar.gz" })
        // The first bytes are written, so the service has looked whether the name is free.
        #expect(await running.client.signals.has("Progress", at: path))
        // The name is taken only now, so everything is done but the last step.
        mkdir(running.file("levels"), 0o755)
        gate.open()
        #expect(await thrown { try await running.client.wait(path) }?.name == todokuError("AlreadyExists"))
        let part = running.world.partName(1)
        #expect(fileExists(running.file("\(part).folder")) && fileExists(running.file(part)), "\(running.world.files)")
        rmdir(running.file("levels"))
        unlink(running.file(part))
        try await running.client.retry(path)
        #expect(try await running.client.wait(path) == running.file("levels"))
        #expect(readFile(running.file("levels/maps/1")) == patternBytes(300_000))
        #expect(server.requests.count == 2)
        #expect(await running.holds("levels"), "\(running.world.files)")
    }

    @Test func `unpacks although the journal of an interrupted extraction is gone`() async throws {
        await shelf.pack("levels.tar.gz")
        let running = try await Running.start()
        _ = try await running.fetch(shelf.url("levels.tar.gz"), ["filename": .string("first")])
        // This folder has the provisional name of the second download.
        let part = running.world.partName(2)
        mkdir(running.file("\(part).folder"), 0o755)
        writeFile(running.file("\(part).folder/readme"), "old".utf8)
        let path = try await running.download(shelf.url("levels.tar.gz"), extract)
        #expect(try await running.client.wait(path) == running.file("levels"))
        #expect(readFile(running.file("levels/readme")) == Array("hello".utf8))
        #expect(await running.holds("first", "levels"), "\(running.world.files)")
    }

    @Test func `of a batch ends it when all archives are unpacked`() async throws {
        for name in ["1.tar.gz", "2.zip", "3.tar.gz"] { await shelf.pack(name) }
        shelf.write("no archive".utf8, as: "4.zip")
        let running = try await Running.start()
        let urls = ["1.tar.gz", "2.zip", "3.tar.gz", "4.zip"].map { (shelf.url($0), [String: Variant]()) }
        let items = urls + [(shelf.url("1.tar.gz"), ["extract": .bool(false), "filename": .string("plain.tar.gz")])]
        let (batch, _) = try await running.client.batch(items, running.options(extract))
        #expect(try await running.client.wait(batch: batch) == [4, 1, 0])
        #expect(await running.holds("1", "2", "3", "plain.tar.gz"), "\(running.world.files)")
        for name in ["1", "2", "3"] { #expect(readFile(running.file("\(name)/maps/1")) == patternBytes(300_000)) }
    }

    @Test func `leaves a folder that Trash and Remove take as a whole, and OpenFile does not open`() async throws {
        await shelf.pack("levels.tar.gz")
        let running = try await Running.start()
        let client = running.client
        let first = try await running.download(shelf.url("levels.tar.gz"), extract)
        let folder = try await client.wait(first)
        let opened = await thrown { try await client.call(Download.openFile, at: first, ()) }
        #expect(opened?.name == todokuError("InvalidState") && opened.map(isSentence) == true, "\(opened as Any)")
        try await client.call(Download.trash, at: first, ())
        #expect(listFolder(running.world.bus.folder("data/Trash/files")) == ["levels"])
        #expect(!fileExists(folder))
        let second = try await running.download(shelf.url("levels.tar.gz"), extract)
        _ = try await client.wait(second)
        try await client.remove(second, deletingFile: true)
        #expect(await running.holds(), "\(running.world.files)")
        let third = try await running.download(shelf.url("levels.tar.gz"), extract)
        _ = try await client.wait(third)
        // Another folder has the name by now.
        rename(folder, running.file("moved"))
        mkdir(folder, 0o755)
        writeFile("\(folder)/diary", "private".utf8)
        let error = await thrown { try await client.remove(third, deletingFile: true) }
        #expect(error?.name == todokuError("NotAllowed") && error.map(isSentence) == true, "\(error as Any)")
        #expect(await running.holds("levels", "moved"))
        #expect(readFile("\(folder)/diary") == Array("private".utf8))
    }

    @Test func `says that nobody knows its folder where no birth time is recorded`() async throws {
        await shelf.pack("levels.tar.gz")
        let running = try await Running.start()
        let world = running.world
        let path = try await running.download(shelf.url("levels.tar.gz"), extract)
        let folder = try await running.client.wait(path)
        // As the row of a folder on a file system without birth times.
        #expect(await world.stop(running.daemon).status == 0)
        let edit = await world.run(
            "python3", "-c",
            "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); "
                + "assert db.execute('UPDATE course SET resume_born = NULL').rowcount == 1; db.commit()", "\(world.state)/todoku.db")
        #expect(edit.status == 0, "\(edit.errors)")
        _ = await world.start()
        let trash = await thrown { try await running.client.call(Download.trash, at: path, ()) }
        let removal = await thrown { try await running.client.remove(path, deletingFile: true) }
        for error in [trash, removal] {
            #expect(error?.name == todokuError("NotAllowed") && error.map(isSentence) == true, "\(error as Any)")
            #expect(error?.message.contains("no birth times") == true && error?.message.contains("by hand") == true, "\(error as Any)")
        }
        #expect(readFile("\(folder)/maps/1") == patternBytes(300_000))
        #expect(await running.holds("levels"))
    }

    @Test func `has a toast that names the folder, and a click opens it`() async throws {
        await shelf.pack("levels.zip")
        let opener = FakeOpener()
        let running = try await Running.start(extra: ["PATH": opener.path, "DISPLAY": ":99"])
        let toasts = try await OddServer(name: "dunst", at: running.world.bus.address)
        let size = readFile(shelf.folder("levels.zip"))?.count ?? 0
        // Where the server is slow, there would be a progress toast, too.
        let options: [String: Variant] = ["extract": .bool(true), "notify": .string("always"), "show-progress": .bool(false)]
        let folder = try await running.fetch(shelf.url("levels.zip"), options)
        #expect(await eventually { await toasts.received.contains { $0.summary == "ダウンロードが完了しました" } })
        let body = await toasts.received.last?.body ?? ""
        #expect(size > 0 && body.hasPrefix("levels に展開しました（"), "\(body)")
        await toasts.click(1, "default")
        #expect(await eventually { opener.opened == [folder] }, "\(opener.opened)")
    }

    @Test(.enabled("only root can mount a small disk") { await SmallDisk.isPossible() })
    func `waits for room, and unpacks on when there is some`() async throws {
        await shelf.run(
            "mkdir big; head -c 6000000 /dev/urandom > big/a; head -c 6000000 /dev/urandom > big/b; tar -C big -czf big.tar.gz .")
        let running = try await Running.start()
        let isDone: Bool? = try await SmallDisk.withDisk(bytes: 20 << 20) { disk in
            try await running.client.set(Manager.diskReserve, 0)
            let path = try await running.download(shelf.url("big.tar.gz"), ["extract": .bool(true), "directory": .string(disk.path)])
            #expect(await running.client.signals.isIn("waiting", path))
            #expect(try await running.client.get(Download.waitReason, at: path) == "disk-space")
            #expect(!fileExists("\(disk.path)/big"))
            await disk.remount("size=60m")
            #expect(try await running.client.wait(path) == "\(disk.path)/big")
            #expect(readFile("\(disk.path)/big/b") == readFile(shelf.folder("big/b")))
            #expect(await eventually { listFolder(disk.path) == ["big"] }, "\(listFolder(disk.path))")
            #expect(shelf.requests("big.tar.gz") == 1)
            return true
        }
        #expect(isDone == true)
    }
}

@Suite(.timeLimit(.minutes(10))) struct `An unpacked folder` {
    private let shelf = ArchiveShelf()

    @Test func `of a batch is deleted with it, and so are its files`() async throws {
        await shelf.pack("levels.tar.gz")
        await shelf.packMany("many.tar.gz", 2_000)
        let running = try await Running.start()
        let items: [(String, [String: Variant])] = [
            (shelf.url("levels.tar.gz"), extract), (shelf.url("many.tar.gz"), extract), (shelf.url("levels.tar.gz"), [:]),
        ]
        let (batch, _) = try await running.client.batch(items, running.options([:]))
        #expect(try await running.client.wait(batch: batch) == [3, 0, 0])
        #expect(await running.holds("levels", "many", "levels.tar.gz"), "\(running.world.files)")
        // Another folder has the name of one of them.
        rename(running.file("levels"), running.file("moved"))
        mkdir(running.file("levels"), 0o755)
        let error = await thrown { try await running.client.call(Batch.remove, at: batch, true) }
        #expect(error?.name == todokuError("NotAllowed") && error?.message.contains("another folder") == true, "\(error as Any)")
        #expect(await running.holds("levels", "moved"), "\(running.world.files)")
    }
}

/// The archives are large, so that an extraction takes a while. Several at a time would keep all processors from other tests.
@Suite(.serialized, .timeLimit(.minutes(20))) struct `An extraction` {
    private let shelf = ArchiveShelf()
    /// The numbers of files of the archives that are tried one after another, until an extraction takes long enough.
    private static let counts = [5_000, 20_000, 80_000]

    /// Starts downloads of a large archive until `steer`, called as soon as one is being unpacked, is early enough.
    private func catchOne(
        _ running: Running, _ steer: (ObjectPath) async throws -> Void
    ) async throws -> ObjectPath? {
        for count in Self.counts {
            await shelf.packMany("many.tar.gz", count)
            let path = try await running.download(shelf.url("many.tar.gz"), extract)
            #expect(await running.client.signals.hasBeen("extracting", path))
            guard await thrown({ try await steer(path) }) == nil else { continue }
            // PauseAll reaches its downloads one after the other.
            var state = ""
            #expect(
                try await eventually {
                    state = try await running.client.get(Download.state, at: path)
                    return ["paused", "waiting", "cancelled", "finished"].contains(state)
                })
            if state != "finished" { return path }
            try await running.client.call(Manager.resumeAll, ())
        }
        return nil
    }

    /// Whether the folder has all files of an archive of `count` files.
    private func isWhole(_ folder: String, _ count: Int = counts[0]) -> Bool {
        let names = listFolder("\(folder)/f")
        return names.count == 100 && names.allSatisfy { listFolder("\(folder)/f/\($0)").count >= count / 100 }
            && readFile("\(folder)/f/99/199") == Array("0000000199".utf8)
    }

    @Test func `that is cancelled leaves nothing`() async throws {
        let running = try await Running.start()
        let path = try #require(try await catchOne(running) { try await running.client.cancel($0) })
        #expect(await running.client.signals.isIn("cancelled", path))
        #expect(await eventually { running.world.files.allSatisfy { !$0.hasPrefix(".todoku") } }, "\(running.world.files)")
        // A retry downloads it again.
        let before = shelf.requests("many.tar.gz")
        try await running.client.retry(path)
        let folder = try await running.client.wait(path)
        #expect(isWhole(folder))
        #expect(shelf.requests("many.tar.gz") == before + 1)
    }

    @Test(arguments: [false, true])
    func `that is paused goes on without a download`(all: Bool) async throws {
        let running = try await Running.start()
        let client = running.client
        let path = try #require(
            try await catchOne(running) { if all { try await client.call(Manager.pauseAll, ()) } else { try await client.pause($0) } })
        #expect(await client.signals.isIn(all ? "waiting" : "paused", path))
        let told = await client.signals.of(path).compactMap { $0.changed?["Extracted"] }
        #expect(told.last.map { $0 == .double(-1) } ?? true, "\(told)")
        let before = shelf.requests("many.tar.gz")
        if all { try await client.call(Manager.resumeAll, ()) } else { try await client.resume(path) }
        let folder = try await client.wait(path)
        #expect(isWhole(folder))
        #expect(shelf.requests("many.tar.gz") == before)
        #expect(await eventually { running.world.files.allSatisfy { !$0.hasPrefix(".todoku") } }, "\(running.world.files)")
    }

    @Test(arguments: [SIGKILL, SIGTERM])
    func `that is interrupted goes on in the next process, without a download`(signal: Int32) async throws {
        let running = try await Running.start()
        var (daemon, names, isCaught) = (running.daemon, Set<String>(), false)
        // An extraction may end before the signal comes.
        for count in Self.counts where !isCaught {
            let name = "many \(count)"
            names.insert(name)
            await shelf.packMany("many.tar.gz", count)
            let path = try await running.download(shelf.url("many.tar.gz"), ["extract": .string(name)])
            #expect(await running.client.signals.hasBeen("extracting", path))
            if signal == SIGKILL {
                await running.world.kill(daemon)
            } else {
                #expect(await running.world.stop(daemon).status == 0)
            }
            isCaught = !fileExists(running.file(name))
            daemon = await running.world.start()
            #expect(try await running.client.wait(path) == running.file(name))
            #expect(isWhole(running.file(name), count))
        }
        #expect(isCaught)
        #expect(shelf.requests("many.tar.gz") == names.count)
        let whole = names
        #expect(await eventually { Set(running.world.files) == whole }, "\(running.world.files)")
    }

    @Test func `that is killed again and again ends as one whole folder`() async throws {
        let running = try await Running.start()
        var (daemon, random) = (running.daemon, SeededRandom(5))
        await shelf.packMany("many.tar.gz", 5_000)
        for round in 1...5 {
            let name = "many \(round)"
            let path = try await running.download(shelf.url("many.tar.gz"), ["extract": .string(name)])
            #expect(await running.client.signals.hasBeen("extracting", path))
            for _ in 0..<Int.random(in: 1...3, using: &random) {
                await pause(milliseconds: Int.random(in: 0...400, using: &random))
                await running.world.kill(daemon)
                daemon = await running.world.start()
            }
            #expect(try await running.client.wait(path) == running.file(name))
            #expect(isWhole(running.file(name), 5_000))
            #expect(await eventually { running.world.files.count == round }, "\(running.world.files)")
        }
        #expect(shelf.requests("many.tar.gz") == 5)
    }

    @Test func `is shown by the toast of progress and by KDE's job`() async throws {
        let running = try await Running.start()
        let toasts = try await OddServer(name: "mako", at: running.world.bus.address)
        let jobs = try await StandInJobServer(on: running.world.bus.address)
        let options: [String: Variant] = ["extract": .bool(true), "notify": .string("always")]
        var isTold = false
        // An extraction may end before the notification server has taken the toast.
        for count in Self.counts where !isTold {
            await shelf.packMany("many.tar.gz", count)
            let bytes = try #require(readFile(shelf.folder("many.tar.gz")))
            let gate = Gate()
            let server = ScriptedServer { _, reply in
                reply.head(200, length: bytes.count)
                var sent = 0
                while !gate.isOpen, sent < 10_000, reply.send(bytes[sent...sent]) {
                    sent += 1
                    poll(nil, 0, 100)
                }
                reply.send(bytes[sent...])
                reply.close()
            }
            let path = try await running.download(server.url("/many.tar.gz"), options)
            // After a slow call, as on a busy machine, the service shows no progress for a minute.
            #expect(await eventually(within: .seconds(150)) { await toasts.received.last?.summary == "ダウンロード中" })
            #expect(await eventually { await jobs.open.count == 1 })
            gate.open()
            _ = try await running.client.wait(path)
            // Toasts arrive in order. So once the last toast is there, the toast of the extraction either came before it or never comes.
            #expect(await eventually { await toasts.received.last?.summary == "ダウンロードが完了しました" })
            isTold = await toasts.received.contains { $0.summary == "展開中" && $0.body.hasPrefix("many.tar.gz — ") }
        }
        #expect(isTold)
        // The job server has a connection of its own, which may be read later.
        #expect(await eventually { await jobs.hasTold("アーカイブを展開中") })
        // The toast of progress is closed for good.
        #expect(await eventually { await toasts.received.last?.summary == "ダウンロードが完了しました" })
    }

    @Test func `tells how far it is`() async throws {
        let running = try await Running.start()
        await shelf.packMany("many.tar.gz", Self.counts[0])
        let path = try await running.download(shelf.url("many.tar.gz"), extract)
        _ = try await running.client.wait(path)
        let told = await running.client.signals.of(path).compactMap { $0.changed?["Extracted"] }.compactMap(Double.init)
        #expect(told.first == 0 && told.last == -1, "\(told)")
        #expect(told.dropLast() == told.dropLast().sorted()[...] && told.allSatisfy { $0 <= 1 }, "\(told)")
    }
}
