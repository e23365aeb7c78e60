import DownloadModel
import Glibc
import TestSupport
import Testing

@testable internal import Extraction

private let program = builtProgram("todoku-unpack", variable: "TODOKU_UNPACK")

@Suite struct `A bomb` {
    static let makers = [
        "head -c 100M /dev/zero >$2/a && tar -C $2 -c a | gzip >$1", "head -c 100M /dev/zero >$2/a && tar -C $2 -c a | xz -1 >$1",
        "head -c 100M /dev/zero >$2/a && tar -C $2 -c a | bzip2 >$1", "head -c 100M /dev/zero >$2/a && tar -C $2 -c a | zstd -q >$1",
        "head -c 100M /dev/zero >$2/a && cd $2 && zip -q $1.zip a && mv $1.zip $1",
        "truncate -s 1T $2/a && tar -S -C $2 -cf $1 a",
        "mkdir $2/d && cd $2/d && for i in $(seq 9); do head -c 10M /dev/zero >$i; done && tar -C $2 -c d | gzip >$1",
    ]

    @Test(arguments: makers) func `is refused before it fills the disk, and in little memory`(maker: String) async {
        let (place, sample) = (Place(), TemporaryFolder("todoku-sample"))
        await shell(maker, place.archive, sample.path)
        let exit = await Child.run([program, place.archive, place.files, "new", "a", "0"])
        #expect(exit.output.contains("it would make more than 64.0 MiB"), "\(exit)")
        expectMemory(exit, below: 40)
        #expect(listFolder(place.files) == [])
    }

    @Test func `of a declared size is refused before a byte is written`() {
        let place = Place(TarBytes().adding("a", [1], size: 1 << 40).bytes)
        var calls = ExtractionCalls.here
        calls.before = { #expect($0 != .makeFile) }
        #expect(place.unpack(calls: calls).failure == .excessive("The archive is not unpacked: it would make more than 64.0 MiB."))
        #expect(Place(TarBytes().adding("a", [1], size: .max).bytes).failure() != nil)
    }

    @Test func `is bounded by what the manifest says, too`() {
        var limits = ExtractionLimits()
        limits.unpacked = 9
        let place = Place(TarBytes().adding("a", [1, 2, 3, 4, 5]).adding("b", [1, 2, 3, 4, 5]).whole)
        #expect(place.failure(limits: limits) == .excessive("The archive is not unpacked: it would make more than 9 B."))
        limits.unpacked = 10
        #expect(place.unpack(limits: limits).folder?.bytes == 10)
    }

    @Test func `of entries is refused, those that paths imply among them`() {
        var limits = ExtractionLimits()
        limits.entries = 20
        let many = "The archive is not unpacked: it has more than 20 entries."
        let tar = (0..<21).reduce(TarBytes()) { $0.adding("\($1)") }
        let deep = (0..<7).reduce(TarBytes()) { $0.adding("\($1)/a/b") }
        let roots = (0..<21).reduce(TarBytes()) { bytes, _ in bytes.adding("./", type: "5") }
        let zip = (0..<21).reduce(ZipBytes()) { $0.adding("\($1)") }
        for bytes in [tar.whole, deep.whole, roots.whole, zip.whole] { #expect(Place(bytes).failure(limits: limits) == .excessive(many)) }
        #expect(Place((0..<20).reduce(ZipBytes()) { $0.adding("\($1)") }.whole).unpack(limits: limits).folder?.entries == 20)
    }

    @Test func `of a zip's directory is refused before it is in memory`() async {
        // 600,000 entries that share one file.
        let place = Place()
        let script = """
            import struct, sys
            n, local = 600000, b"PK\\3\\4" + struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 0, 0, 0, 0, 1, 0) + b"a"
            one = b"PK\\1\\2" + struct.pack("<HHHHHHIIIHHHHHII", 788, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0)
            directory = b"".join(one[:42] + struct.pack("<I", i) + b"a" for i in range(n))
            end = b"PK\\5\\6" + struct.pack("<HHHHIIH", 0, 0, 65535, 65535, len(directory), len(local), 0)
            open(sys.argv[1], "wb").write(local + directory + end)
            """
        await shell("python3 -c \"$2\" $1", place.archive, script)
        let exit = await Child.run([program, place.archive, place.files, "new", "a", "0"])
        #expect(exit.output.contains("more than 100000 entries"), "\(exit)")
        expectMemory(exit, below: 60)
    }

    @Test func `of a header is refused before it is in memory`() async {
        // A very long map of holes (GNU's old form): each block of 512 bytes has 21 holes.
        var bytes = TarBytes().adding("a", type: "S").bytes
        bytes.replaceSubrange(257..<265, with: Array("ustar  \u{0}".utf8))
        bytes.replaceSubrange(386..<410, with: Array("00000000000\u{0}00000000000\u{0}".utf8))
        bytes[482] = 1
        for index in 148..<156 { bytes[index] = 0x20 }
        let sum = bytes.prefix(512).reduce(0) { $0 + Int($1) }
        bytes.replaceSubrange(148..<154, with: Array(("000000" + String(sum, radix: 8)).suffix(6).utf8))
        var more = [UInt8](repeating: 0x30, count: 504) + [1] + [UInt8](repeating: 0, count: 7)
        for hole in 0..<21 { more[hole * 24 + 11] = 0; more[hole * 24 + 23] = 0 }
        let place = Place(bytes)
        writeFile("\(place.archive).more", (0..<20_000).flatMap { _ in more })
        await shell("for i in 1 2 3 4 5 6 7 8 9 10; do cat $1.more; done >>$1; rm $1.more; gzip -c $1 >$1.gz; mv $1.gz $1", place.archive)
        let exit = await Child.run([program, place.archive, place.files, "new", "a", "0"])
        #expect(exit.output.contains("one of its headers is too long"), "\(exit)")
        expectMemory(exit, below: 40)
    }

    @Test(arguments: ["xz --lzma2=dict=256MiB", "zstd -q -1 --long=28"]) func `of a window is refused by its limit`(packer: String) async {
        let place = Place(TarBytes().adding("a", patternBytes(500_000)).whole)
        // Pack from a pipe, whose size the packer does not know, so that the window is as wide as requested.
        await shell("cat $1 | \(packer) -c >$1.new && mv $1.new $1", place.archive)
        #expect(
            place.failure() == .excessive("The archive is not unpacked: its decompression needs a window of more than 128.0 MiB."))
    }

    @Test func `of zeros behind the end is refused`() async {
        let place = Place(TarBytes().adding("a").whole)
        await shell("{ cat $1; head -c 40M /dev/zero; } | gzip >$1.new && mv $1.new $1", place.archive)
        #expect(place.failure() == .damaged(entry: nil, reason: "more than 16 MiB follow its end"))
    }

    /// Fails if a program that said "peak KIB" had more memory resident than `limit` MiB.
    private func expectMemory(_ exit: Child.Exit, below limit: Int, _ location: SourceLocation = #_sourceLocation) {
        let peak = exit.output.split(separator: "\n").first { $0.hasPrefix("peak ") }.flatMap { Int($0.dropFirst(5)) }
        guard underSanitizer() == nil else { return print("memory is not measured under a sanitizer") }
        #expect(peak.map { $0 < limit << 10 } ?? false, "\(exit.output)", sourceLocation: location)
    }
}

@Suite struct `A cut or damaged archive` {
    static let makers = [
        "bsdtar --format pax -cf $1 -C $2 .", "bsdtar --format pax --gzip -cf $1 -C $2 .", "bsdtar --format pax --bzip2 -cf $1 -C $2 .",
        "bsdtar --format pax --xz -cf $1 -C $2 .", "bsdtar --format pax --zstd -cf $1 -C $2 .",
        "cd $2 && zip -qry $1.zip . && mv $1.zip $1", "bsdtar --format 7zip -cf $1 -C $2 .",
    ]

    @Test(arguments: makers) func `is refused wherever it is cut`(maker: String) async {
        let (place, sample) = (Place(), TemporaryFolder("todoku-sample"))
        writeSample(sample.path)
        await shell(maker, place.archive, sample.path)
        var whole = readFile(place.archive) ?? []
        // Bytes behind a tar's end may be cut off.
        if maker.contains("pax -cf") { whole.removeLast(whole.reversed().prefix { $0 == 0 }.count) }
        var random = SeededRandom(1)
        let cuts = [whole.count - 1, 1, 511, 512, whole.count / 2] + (0..<40).map { _ in Int.random(in: 1..<whole.count, using: &random) }
        for cut in cuts {
            place.write(Array(whole[..<cut]))
            let failure = place.failure()
            switch failure {
            case .damaged, .unsupported: break
            default: Issue.record("cut at \(cut) of \(whole.count): \(String(describing: failure))")
            }
        }
    }

    @Test func `is refused if a plain tar ends between two entries`() {
        #expect(Place(TarBytes().adding("a", [1]).adding("b").bytes).failure() == .damaged(entry: "b", reason: "it ends too early"))
    }

    @Test(arguments: makers) func `never traps, hangs or leaves the folder when bytes are flipped`(maker: String) async {
        let (place, sample) = (Place(), TemporaryFolder("todoku-sample"))
        writeSample(sample.path)
        await shell(maker, place.archive, sample.path)
        let whole = readFile(place.archive) ?? []
        var random = SeededRandom(2)
        for round in 0..<60 {
            var bytes = whole
            let most = round % 2 == 0 ? whole.count : min(2048, whole.count)
            for _ in 0..<Int.random(in: 1...4, using: &random) {
                bytes[Int.random(in: 0..<most, using: &random)] = UInt8.random(in: 0...255, using: &random)
            }
            place.write(bytes)
            _ = place.unpack()
            #expect(Set(listFolder(place.files)).isSubset(of: ["new", ".todoku-journal-new"]))
            #expect(listFolder(place.folder.path) == ["archive", "files"])
            #expect(FolderRemoval.remove("new", directory: place.files, allowHidden: true, control: ExtractionControl()) == .removed)
            Unpacking.forget(directory: place.files, name: "new")
        }
    }

    @Test func `is refused if a compressed stream is followed by something else`() async {
        let place = Place(TarBytes().adding("a", [1]).whole)
        await shell("gzip -c $1 >$1.new && echo hello >>$1.new && mv $1.new $1", place.archive)
        #expect(place.failure() == .damaged(entry: nil, reason: "something else follows its end"))
    }
}
