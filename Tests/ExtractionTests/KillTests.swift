import DownloadModel
import Glibc
import PartFiles
import TestSupport
import Testing

@testable internal import Extraction

private let program = builtProgram("todoku-unpack", variable: "TODOKU_UNPACK")

/// An archive of many kinds of entries, and the tree that it makes.
private func sampleArchive(_ place: Place, zip: Bool) async -> [String: String] {
    let sample = TemporaryFolder("todoku-sample")
    writeSample(sample.path)
    for number in 0..<12 {
        mkdir(sample("d\(number % 4)"), 0o755)
        writeFile(sample("d\(number % 4)/\(number)"), patternBytes(number * 9000, seed: UInt64(number)))
    }
    if !zip { for number in 0..<3 { link(sample("d1/1"), sample("d0/link\(number)")) } }
    chmod(sample("data/levels/写真 1.jpg"), 0o644)
    if zip {
        await shell("cd $2 && zip -qry $1.zip . && mv $1.zip $1", place.archive, sample.path)
    } else {
        await shell("tar --sort=name --posix -cf - -C $2 . | gzip >$1", place.archive, sample.path)
    }
    return tree(sample.path)
}

@Suite struct `A killed extraction` {
    private func run(_ place: Place, at step: Int, each: Bool, fingerprint: String = "a") async -> Child.Exit {
        let words = [program, place.archive, place.files, "new", fingerprint, "\(step)"]
        return await Child.run(words + (each ? ["each"] : []))
    }

    /// A run that is not killed, in a place of its own, and how long it took.
    private func wholeRun(of archive: [UInt8]?, each: Bool) async -> (exit: Child.Exit, place: Place, time: Duration) {
        let (place, begun) = (Place(archive), ContinuousClock.now)
        let exit = await run(place, at: 0, each: each)
        return (exit, place, ContinuousClock.now - begun)
    }

    private func steps(_ exit: Child.Exit) -> Int { exit.output.split(separator: " ").last.flatMap { Int($0.prefix { $0 != "\n" }) } ?? 0 }

    @Test(arguments: [false, true], [false, true]) func `continues to the same tree, at whatever step it was killed`(zip: Bool, each: Bool)
        async
    {
        let first = Place()
        let expected = await sampleArchive(first, zip: zip)
        // A run that takes ten seconds writes a checkpoint. A faster run does not have the steps of this checkpoint.
        let whole = await repeated {
            await wholeRun(of: readFile(first.archive), each: each)
        } until: {
            $0.time < .seconds(10)
        }
        let count = steps(whole.exit)
        #expect(tree("\(whole.place.files)/new") == expected && count > 60, "\(whole.exit)")
        var random = SeededRandom(zip ? 3 : 4)
        // Kill at each step once, or at 60 of the steps. Every third run is killed again while it continues.
        let all = Array(1...count)
        let points = all.count <= 60 ? all : (0..<60).map { all[$0 * all.count / 60] }
        var kept: UInt64 = 0
        for (index, point) in points.enumerated() {
            let place = Place(readFile(first.archive))
            let killed = await run(place, at: point, each: each)
            // If each whole run took ten seconds, `count` has the steps of a checkpoint. A faster run may end before the last ones.
            let isFaster = whole.time >= .seconds(10) && killed.status == 0 && (1..<point).contains(steps(killed))
            #expect(killed.status == 128 + SIGKILL || isFaster, "step \(point): \(killed)")
            let isNamed = fileExists("\(place.files)/new")
            #expect(!isNamed || tree("\(place.files)/new") == expected, "step \(point): the name is that of a whole folder")
            if index % 3 == 0 { _ = await run(place, at: Int.random(in: 1...count, using: &random), each: each) }
            let result = place.unpack()
            #expect(result.folder?.path == "\(place.files)/new", "step \(point): \(result)")
            kept += result.folder?.kept ?? 0
            #expect(tree("\(place.files)/new") == expected, "step \(point)")
            Unpacking.forget(directory: place.files, name: "new")
            #expect(listFolder(place.files) == ["new"], "step \(point)")
        }
        #expect(kept > 0)
    }

    @Test func `unpacks no file again that was complete`() async {
        let place = Place((0..<50).reduce(TarBytes()) { $0.adding("\($1)", patternBytes(2000, seed: UInt64($1))) }.whole)
        let killed = await run(place, at: 150, each: false)
        #expect(killed.status == 128 + SIGKILL)
        let part = "\(place.files)/.todoku-unpack-new"
        let done = listFolder(part)
        let inodes = done.map { inode(of: "\(part)/\($0)") }
        let result = place.unpack()
        #expect(result.folder.map { Int($0.kept) + 1 >= done.count && $0.kept > 20 } ?? false, "\(result), \(done.count)")
        let same = zip(done, inodes).count { inode(of: "\(place.files)/new/\($0)") == $1 }
        #expect(same >= done.count - 1)
    }

    @Test func `starts from the beginning for another archive, and leaves nothing of the first`() async {
        let place = Place((0..<50).reduce(TarBytes()) { $0.adding("old/\($1)", [1]) }.whole)
        #expect(await run(place, at: 100, each: false).status == 128 + SIGKILL)
        place.write(TarBytes().adding("b", [1]).whole)
        #expect(place.unpack("other").folder?.kept == 0)
        #expect(tree("\(place.files)/new").keys.sorted() == ["b"])
    }

    @Test func `unpacks again what somebody changed meanwhile`() async {
        let place = Place((0..<50).reduce(TarBytes()) { $0.adding("\($1)", patternBytes(2000, seed: UInt64($1))) }.whole)
        #expect(await run(place, at: 150, each: false).status == 128 + SIGKILL)
        let part = "\(place.files)/.todoku-unpack-new"
        unlink("\(part)/3")
        truncate("\(part)/4", 10)
        unlink("\(part)/5")
        symlink("4", "\(part)/5")
        #expect(place.unpack().folder != nil)
        for number in 0..<50 { #expect(readFile("\(place.files)/new/\(number)") == patternBytes(2000, seed: UInt64(number))) }
    }

    @Test func `is discarded without a trace`() async {
        let place = Place((0..<50).reduce(TarBytes()) { $0.adding("a/b/\($1)", [1]) }.whole)
        #expect(await run(place, at: 100, each: false).status == 128 + SIGKILL)
        #expect(Unpacking.discard(directory: place.files, name: "new") == .removed)
        #expect(listFolder(place.files) == [])
    }
}

@Suite struct `A power cut` {
    /// Unflushed bytes are lost, cut, or zeros; the journal is as last written. The boot is another one.
    @Test(arguments: 1...30) func `costs only what was not flushed`(seed: Int) async {
        var random = SeededRandom(UInt64(seed))
        let count = 40
        let place = Place((0..<count).reduce(TarBytes()) { $0.adding("d\($1 % 3)/\($1)", patternBytes(3000, seed: UInt64($1))) }.whole)
        let durable = Int.random(in: 0..<count, using: &random)
        // Stop a run, then change its journal to claim a checkpoint after `durable` entries.
        let control = ExtractionControl()
        var calls = ExtractionCalls.here
        let last = Int.random(in: durable...count, using: &random)
        calls.before = { step in
            if step == .makeFile, control.progress.entries >= UInt64(last) { control.cancel() }
        }
        _ = place.unpack(place.request(), control, calls: calls)
        let part = "\(place.files)/.todoku-unpack-new"
        guard fileExists(part), var journal = ExtractionJournal(readFile("\(place.files)/.todoku-journal-new") ?? []) else { return }
        #expect(journal.written >= UInt64(min(last, count)) || last == count)
        journal.durable = min(UInt64(durable), journal.written)
        writeFile("\(place.files)/.todoku-journal-new", journal.encoded())
        for number in Int(journal.durable)..<count {
            let path = "\(part)/d\(number % 3)/\(number)"
            guard fileExists(path) else { continue }
            switch Int.random(in: 0..<4, using: &random) {
            case 0: unlink(path)
            case 1: truncate(path, Int.random(in: 0...3000, using: &random))
            case 2: writeFile(path, [UInt8](repeating: 0, count: 3000))
            default: break
            }
        }
        var later = ExtractionCalls.here
        later.boot = "another-boot"
        let result = place.unpack(calls: later)
        #expect(result.folder?.kept == journal.durable, "\(result)")
        for number in 0..<count {
            #expect(readFile("\(place.files)/new/d\(number % 3)/\(number)") == patternBytes(3000, seed: UInt64(number)))
        }
    }

    @Test(arguments: [true, false]) func `finds no count that was noted before its flush`(isFlushedWhole: Bool) {
        let place = Place((0..<30).reduce(TarBytes()) { $0.adding("d\($1 % 3)/\($1)", patternBytes(3000)) }.whole)
        let steps = Recorded()
        var calls = ExtractionCalls.here
        calls.isFlushedWhole = isFlushedWhole
        calls.before = { steps.add($0) }
        #expect(place.unpack(calls: calls).folder != nil)
        // The expected order: the last change of the folder, its flush, the journal and its flush, the name and its flush.
        let changes: [ExtractionStep] = [.makeFolder, .makeFile, .write, .endFile]
        let list = steps.list
        let flush = list.lastIndex(of: .flush) ?? 0
        #expect(list.lastIndex { changes.contains($0) } ?? .max < flush)
        #expect(Array(list[flush...]) == [.flush, .journal, .flushJournal, .rename, .flushParent])
    }

    @Test func `has a journal that does not count as missing if a read of it fails`() throws {
        // A read at the first address of a process fails with EIO, as on a disk that fails.
        let process = try OpenFolder.open("/proc/\(getpid())", allowHidden: true)
        #expect(throws: DiskError("read mem", EIO)) { try ExtractionJournal.read("mem", in: process) }
        let missing = try ExtractionJournal.read("none", in: process)
        #expect(missing == nil)
    }

    @Test func `leaves a journal that is whole, or none that counts`() {
        var journal = ExtractionJournal(
            archiveSize: 7, fingerprint: [1, 2, 3], folder: FileIdentity(device: 1, inode: 2, mount: 3, boot: "b", born: -4))
        (journal.written, journal.durable, journal.bytes, journal.isWhole) = (9, 8, 1 << 40, true)
        let bytes = journal.encoded()
        #expect(bytes.count == ExtractionJournal.size && ExtractionJournal(bytes) == journal)
        for place in bytes.indices { #expect(ExtractionJournal(bytes.with(place, bytes[place] ^ 1)) == nil) }
        for count in [0, 1, 511] { #expect(ExtractionJournal(Array(bytes.prefix(count))) == nil) }
        #expect(journal.count(in: FileIdentity(device: 1, inode: 2, mount: 3, boot: "b", born: -4)) == 9)
        #expect(journal.count(in: FileIdentity(device: 5, inode: 2, mount: 6, boot: "c", born: -4)) == 8)
        #expect(journal.count(in: FileIdentity(device: 1, inode: 2, mount: 4, boot: "b", born: -4)) == 8)
        #expect(journal.count(in: FileIdentity(device: 5, inode: 2, mount: 6, boot: "b", born: -4)) == 8)
        #expect(journal.count(in: FileIdentity(device: 5, inode: 2, mount: 6, boot: "b")) == nil)
        #expect(journal.count(in: FileIdentity(device: 1, inode: 9, mount: 3, boot: "b", born: -4)) == nil)
        #expect(journal.count(in: FileIdentity(device: 1, inode: 2, mount: 3, boot: "b", born: 5)) == nil)
    }
}

/// The steps of a run, on its one thread.
final class Recorded: Sendable {
    // Only the thread of the run uses it, and the test after the run.
    private nonisolated(unsafe) var steps: [ExtractionStep] = []
    func add(_ step: ExtractionStep) { steps.append(step) }
    var list: [ExtractionStep] { steps }
}
