import DownloadModel
import EventLoop
import Glibc
import PartFiles
import Synchronization
import TestSupport
import Testing

@testable internal import Extraction

@Suite struct `A full disk` {
    private let archive = Place((0..<64).reduce(TarBytes()) { $0.adding("d/\($1)", patternBytes(65_536, seed: UInt64($1))) }.whole)

    @Test func `is told before anything is written, with what is missing`() async throws {
        let done = try await SmallDisk.withDisk(bytes: 2 << 20) { disk in
            var request = archive.request(in: disk.path)
            request.reserve = .bytes(0)
            guard case .noSpace(let shortage?)? = archive.unpack(request).failure else { return false }
            #expect(shortage.missing > 2 << 20 && shortage.missing < 3 << 20)
            let failure = ExtractionFailure.noSpace(shortage).diskFailure(folder: "/d")
            #expect(failure?.wait == .diskSpace && failure?.missingBytes == shortage.missing)
            return true
        }
        #expect(done ?? true)
    }

    @Test func `in the middle keeps the unpacked files, and a later run continues`() async throws {
        let done = try await SmallDisk.withDisk(bytes: 2 << 20) { disk in
            var request = archive.request(in: disk.path)
            request.reserve = .bytes(0)
            request.expectedSize = 0  // a wrong manifest
            let result = archive.unpack(request)
            #expect(result.failure == .noSpace(nil), "\(result)")
            #expect(listFolder(disk.path) == [".todoku-journal-new", ".todoku-unpack-new"])
            await disk.remount("size=8m")
            request = archive.request(in: disk.path)
            let folder = archive.unpack(request).folder
            #expect(folder.map { $0.kept > 10 && $0.entries == 64 } ?? false)
            for number in 0..<64 { #expect(readFile("\(disk.path)/new/d/\(number)") == patternBytes(65_536, seed: UInt64(number))) }
            return true
        }
        #expect(done ?? true)
    }

    /// As on a share that gives our files to another user. Only a new file would show the owner of ours, and a file system without free
    /// inodes takes none.
    @Test func `does not make a whole folder count as another's, nor as lost`() async throws {
        let done = try await SmallDisk.withDisk(bytes: 1 << 20) { disk in
            let place = Place(TarBytes().adding("a", [1]).whole)
            var request = place.request(in: disk.path)
            request.reserve = .bytes(0)
            #expect(place.unpack(request).folder?.entries == 1)
            #expect(chown("\(disk.path)/.todoku-journal-new", 65534, 65534) == 0)
            await disk.remount("nr_inodes=4")
            #expect(place.unpack(place.request(in: disk.path)).failure == .noSpace(nil))
            guard case .failed(let error) = FolderNaming.name("new", as: "b", directory: disk.path, policy: .rename, allowHidden: true)
            else { return false }
            #expect(error.code == ENOSPC && listFolder(disk.path) == [".todoku-journal-new", "new"])
            // With room, the journal turns out to be another user's.
            await disk.remount("nr_inodes=100")
            #expect(place.unpack(place.request(in: disk.path)).failure == .taken(path: "\(disk.path)/new"))
            return true
        }
        #expect(done ?? true)
    }

    @Test func `that is read-only is an error of the disk`() async throws {
        let done = try await SmallDisk.withDisk(bytes: 1 << 20) { disk in
            await disk.remount("ro")
            let small = Place(TarBytes().adding("a").whole)
            guard case .disk(let error)? = small.unpack(small.request(in: disk.path)).failure else { return false }
            return error.code == EROFS
        }
        #expect(done ?? true)
    }
}

@Suite struct `An extraction` {
    @Test func `stops between two chunks, says how far it is, and continues`() {
        let place = Place((0..<20).reduce(TarBytes()) { $0.adding("\($1)", patternBytes(600_000, seed: UInt64($1))) }.whole)
        let control = ExtractionControl()
        var calls = ExtractionCalls.here
        let writes = Atomic<Int>(0)
        calls.before = { step in
            if step == .write, control.progress.written > 3_000_000 {
                control.cancel()
                writes.add(1, ordering: .relaxed)
            }
        }
        #expect(place.unpack(place.request(), control, calls: calls).failure == .cancelled)
        #expect(writes.load(ordering: .relaxed) == 1)
        let progress = control.progress
        #expect(progress.entries == 5 && progress.written > 3_000_000 && progress.written < 3_600_000)
        #expect(
            progress.size == UInt64(status(place.archive).st_size) && progress.read >= progress.written && progress.read < progress.size)
        let again = ExtractionControl()
        let folder = place.unpack(place.request(), again).folder
        #expect(folder?.kept == 5 && folder?.entries == 20 && folder?.bytes == 12_000_000)
        #expect(again.progress.written == 12_000_000 && again.progress.entries == 20)
    }

    @Test func `that is cancelled before it begins makes nothing`() {
        let place = Place(TarBytes().adding("a").whole)
        let control = ExtractionControl()
        control.cancel()
        #expect(place.unpack(place.request(), control).failure == .cancelled)
    }

    @Test func `closes its new folder if the file system does not tell which one it is`() {
        let place = Place(TarBytes().adding("a", [1]).whole)
        var calls = ExtractionCalls.here
        calls.identify = { _, _ in nil }
        guard case .disk(let error)? = place.unpack(calls: calls).failure else { return #expect(Bool(false)) }
        #expect(error.code == ESTALE && openFiles(of: getpid(), below: place.files) == 0)
        #expect(place.unpack().folder?.entries == 1)
    }

    @Test func `runs on a thread of the disk, and answers on the loop`() async {
        let place = Place(TarBytes().adding("a", [1]).whole)
        let request = place.request()
        let path: String? = await withCheckedContinuation { continuation in
            Unpacking.start(request, ExtractionControl(), calls: .child()) { continuation.resume(returning: $0.folder?.path) }
        }
        close(request.archive)
        #expect(path == "\(place.files)/new")
    }

    @Test func `leaves alone what has the name already`() {
        let place = Place(TarBytes().adding("a", [1]).whole)
        place.folder.makeFolder("files/new")
        #expect(place.unpack().failure == .taken(path: "\(place.files)/new"))
        #expect(listFolder(place.files) == ["new"])
        rmdir("\(place.files)/new")
        // The same holds for a folder that takes the name meanwhile.
        var calls = ExtractionCalls.here
        let path = "\(place.files)/new"
        calls.before = { if $0 == .rename { mkdir(path, 0o755) } }
        #expect(place.unpack(calls: calls).failure == .taken(path: path))
        #expect(listFolder(path) == [])
        rmdir(path)
        #expect(place.unpack().folder?.path == path)
    }

    @Test func `of an archive that cannot be read is an error of the disk`() {
        let place = Place(TarBytes().adding("a", [1]).whole)
        var request = place.request()
        close(request.archive)
        // A read at the first address of a process fails with EIO, as on a disk that fails.
        request.archive = open("/proc/\(getpid())/mem", O_RDONLY | O_CLOEXEC)
        #expect(place.unpack(request, calls: .here).failure == .disk(DiskError("read the archive", EIO)))
        #expect(place.unpack().folder?.entries == 1)
    }

    @Test(arguments: ["", ".hidden", "a/b", "..", String(repeating: "n", count: 201)]) func `takes no name that is none`(name: String) {
        let place = Place(TarBytes().adding("a", [1]).whole)
        var request = place.request()
        request.name = name
        guard case .disk? = place.unpack(request).failure else { return #expect(Bool(false), "\(name)") }
        #expect(listFolder(place.files) == [])
    }
}

@Suite struct `The removal of a folder` {
    private let folder = TemporaryFolder("todoku-removal")

    private func remove(_ name: String = "v1", _ control: ExtractionControl = ExtractionControl()) -> FolderRemoval.Outcome {
        FolderRemoval.remove(name, directory: folder.path, allowHidden: true, control: control)
    }

    @Test func `takes all that is in it, and nothing that links lead to`() {
        let other = folder.makeFolder("other")
        writeFile("\(other)/kept", [1])
        for name in ["v1", "v1/a", "v1/a/b", "v1/closed"] { folder.makeFolder(name) }
        writeFile(folder("v1/a/b/file"), [1])
        writeFile(folder("v1/closed/file"), [1])
        for (target, name) in [(other, "v1/link"), ("../../other", "v1/a/link"), ("nowhere", "v1/a/dead"), ("kept", "v1/closed/link")] {
            symlink(target, folder(name))
        }
        mkfifo(folder("v1/pipe"), 0o600)
        chmod(folder("v1/closed"), 0o500)
        #expect(remove() == .removed)
        #expect(listFolder(folder.path) == ["other"] && listFolder(other) == ["kept"])
        #expect(remove() == .removed)
    }

    @Test func `has no bound in depth or width`() async {
        folder.makeFolder("v1")
        // 3,000 levels are deeper than any path can be long.
        var here = open(folder("v1"), O_RDONLY | O_DIRECTORY)
        for level in 0..<3000 {
            mkdirat(here, "d", 0o755)
            close(openat(here, "f\(level)", O_CREAT | O_WRONLY, 0o644))
            let next = openat(here, "d", O_RDONLY | O_DIRECTORY)
            close(here)
            here = next
        }
        close(here)
        folder.makeFolder("v1/wide")
        for number in 0..<3000 { writeFile(folder("v1/wide/\(number)"), []) }
        #expect(remove() == .removed)
        // Other tests of this process open and close files of their own.
        #expect(listFolder(folder.path) == [] && openFiles(of: getpid(), below: folder.path) == 0)
    }

    @Test func `continues where it was cancelled`() {
        folder.makeFolder("v1")
        for number in 0..<100 { writeFile(folder("v1/\(number)"), []) }
        let control = ExtractionControl()
        control.cancel()
        #expect(remove("v1", control) == .cancelled)
        #expect(listFolder(folder.path) == [".todoku-gone-v1"])  // the whole version is gone
        folder.makeFolder("v1")  // the folder is created again meanwhile
        #expect(remove() == .removed)
        #expect(listFolder(folder.path) == [])
    }

    @Test func `says that a file may not be deleted`() async {
        folder.makeFolder("v1")
        writeFile(folder("v1/fixed"), [1])
        // Only root may make a file immutable, and not on every file system.
        guard await Child.run(["sh", "-c", "chattr +i \"$0\"", folder("v1/fixed")]).status == 0 else {
            return print("no file can be made immutable here")
        }
        let outcome = remove()
        _ = await Child.run(["chattr", "-i", folder(".todoku-gone-v1/fixed")])
        guard case .failed(let error) = outcome else { return #expect(Bool(false), "\(outcome)") }
        #expect(error.code == EPERM && error.action.contains("fixed"), "\(error)")
        #expect(error.failure(folder: folder.path).name == .permissionDenied)
        #expect(remove() == .removed)
    }

    @Test func `refuses what is no folder`() {
        writeFile(folder("v1"), [1])
        guard case .failed = remove() else { return #expect(Bool(false)) }
        symlink("v1", folder("v2"))
        guard case .failed = remove("v2") else { return #expect(Bool(false)) }
        #expect(listFolder(folder.path) == ["v1", "v2"])
    }

    @Test func `does not enter another file system`() async throws {
        let done = try await SmallDisk.withDisk(bytes: 1 << 20) { disk in
            writeFile("\(disk.path)/kept", [1])
            let mount = folder.makeFolder("mount")
            folder.makeFolder("v1")
            let place = folder.makeFolder("v1/disk")
            await disk.show(at: place, true)
            let outcome = remove()
            await disk.show(at: "\(folder.path)/.todoku-gone-v1/disk", false)
            guard case .failed = outcome else { return false }
            #expect(readFile("\(disk.path)/kept") == [1] && fileExists(mount))
            return true
        }
        #expect(done ?? true)
        #expect(remove() == .removed)
    }
}

@Suite struct `The link of the current version` {
    private let folder = TemporaryFolder("todoku-link")

    private func point(to version: String, calls: ExtractionCalls = ExtractionCalls()) -> DiskError? {
        if case .failure(let error) = VersionLink.point("current", to: version, directory: folder.path, allowHidden: true, calls: calls) {
            return error
        }
        return nil
    }
    private var current: String? {
        (try? VersionLink.current("current", directory: folder.path, allowHidden: true).get()) ?? nil
    }

    @Test func `names the version that it was pointed to`() {
        for version in ["1", "2"] {
            folder.makeFolder(version)
            #expect(point(to: version) == nil)
            #expect(current == version && target(of: folder("current")) == version)
        }
        #expect(point(to: "2") == nil && point(to: "3")?.code == ENOENT && current == "2")
        #expect(listFolder(folder.path) == ["1", "2", "current"])
    }

    @Test func `replaces nothing that is no link of ours`() {
        folder.makeFolder("1")
        writeFile(folder("current"), [1])
        #expect(point(to: "1")?.refusal?.hasSuffix("is no link: Todoku did not make it.") == true)
        unlink(folder("current"))
        symlink("/tmp", folder("current"))
        #expect(point(to: "1")?.refusal?.hasSuffix("leads somewhere else: Todoku did not make it.") == true)
        #expect(current == nil && target(of: folder("current")) == "/tmp")
        for version in ["..", "", "a/b"] { #expect(point(to: version) != nil) }
    }

    @Test func `is never missing or mixed for who reads meanwhile`() async {
        for version in ["1", "2"] {
            folder.makeFolder(version)
            for name in ["a", "b"] { writeFile(folder("\(version)/\(name)"), Array(version.utf8)) }
        }
        #expect(point(to: "1") == nil)
        let isDone = Atomic<Bool>(false)
        let reads = Atomic<Int>(0)
        let wrong = Atomic<Int>(0)
        let link = folder("current")
        await withCheckedContinuation { (ended: CheckedContinuation<Void, Never>) in
            startThread("reader") {
                while !isDone.load(ordering: .relaxed) {
                    // Act like a program that needs one version: open the folder once, then the files in it.
                    let held = open(link, O_RDONLY | O_DIRECTORY)
                    var found: [UInt8] = []
                    for name in ["a", "b"] {
                        let file = openat(held, name, O_RDONLY)
                        var byte: UInt8 = 0
                        if read(file, &byte, 1) == 1 { found.append(byte) }
                        close(file)
                    }
                    close(held)
                    if found.count != 2 || found[0] != found[1] { wrong.add(1, ordering: .relaxed) }
                    reads.add(1, ordering: .relaxed)
                }
                ended.resume()
            }
            // The reader may begin late, and only what it reads during the switches counts.
            var round = 0
            while round < 200 || reads.load(ordering: .relaxed) < 100 {
                #expect(point(to: round % 2 == 0 ? "2" : "1") == nil)
                round += 1
            }
            isDone.store(true, ordering: .relaxed)
        }
        #expect(wrong.load(ordering: .relaxed) == 0 && reads.load(ordering: .relaxed) >= 100)
    }

    @Test func `survives an end at any step`() {
        for version in ["1", "2"] { folder.makeFolder(version) }
        #expect(point(to: "1") == nil)
        symlink("2", folder(".todoku-switch-current"))  // as left by a kill before the rename
        #expect(current == "1" && point(to: "2") == nil && current == "2")
        #expect(listFolder(folder.path) == ["1", "2", "current"])
    }
}
