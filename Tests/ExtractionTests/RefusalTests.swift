import DownloadModel
import Glibc
import TestSupport
import Testing

@testable internal import Extraction

@Suite struct `A hostile archive` {
    struct Case: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let bytes: [UInt8]
        let defect: EntryDefect
        /// The entry that the error names; nil: not checked.
        var entry: String?
    }

    /// A file that an archive names outside of its folder. No other process of the tests has this file.
    static let outside = "/tmp/todoku-outside-\(getpid())"

    private static func tar(_ what: String, _ defect: EntryDefect, entry: String? = nil, _ make: (TarBytes) -> TarBytes) -> Case {
        Case(testDescription: "a tar with \(what)", bytes: make(TarBytes()).whole, defect: defect, entry: entry)
    }

    private static func zip(_ what: String, _ defect: EntryDefect, entry: String? = nil, _ make: (ZipBytes) -> ZipBytes) -> Case {
        Case(testDescription: "a zip with \(what)", bytes: make(ZipBytes()).whole, defect: defect, entry: entry)
    }

    static let cases: [Case] = [
        tar("..", .parentReference, entry: "../x") { $0.adding("ok").adding("../x") },
        tar(".. inside", .parentReference, entry: "a/../x") { $0.adding("a/../x") },
        tar(".. at the end", .parentReference) { $0.adding("a/..", type: "5") },
        tar("an absolute path", .absolutePath, entry: outside) { $0.adding(outside) },
        tar("a link without a name", .noName) { $0.adding("./", type: "2", link: "a") },
        tar("a line break", .controlCharacter) { $0.adding("a\nb") },
        tar("an escape", .controlCharacter) { $0.adding("a\u{1B}[2J") },
        tar("a C1 control", .controlCharacter) { $0.addingPax([("path", "a\u{9B}b")]).adding("x") },
        tar("a name of 256 bytes", .longName) { $0.addingPax([("path", String(repeating: "n", count: 256))]).adding("x") },
        tar("a path of 1025 bytes", .longPath(limit: 1024)) { $0.addingPax([("path", String(repeating: "n/", count: 600))]).adding("x") },
        tar("33 levels", .tooDeep(limit: 32)) { $0.addingPax([("path", String(repeating: "n/", count: 33) + "x")]).adding("x") },
        tar("a name twice", .duplicate, entry: "a") { $0.adding("a", [1]).adding("b").adding("./a", [2]) },
        tar("a folder twice", .duplicate) { $0.adding("a/", type: "5").adding("a", type: "5") },
        tar("a file over a folder", .duplicate) { $0.adding("a/b").adding("a") },
        tar("a folder over a file", .duplicate) { $0.adding("a").adding("a", type: "5") },
        tar("a link over a folder", .duplicate) { $0.adding("a/", type: "5").adding("a", type: "2", link: "b") },
        tar("names that differ in case", .caseClash, entry: "readme") { $0.adding("README").adding("readme") },
        tar("folders that differ in case", .caseClash, entry: "DATA/b") { $0.adding("data/a").adding("DATA/b") },
        tar("names that differ in form", .caseClash) { $0.adding("e\u{301}").adding("\u{E9}") },
        tar("a path through a file", .insideOfNoFolder, entry: "a/b") { $0.adding("a").adding("a/b") },
        tar("a path through a link", .insideOfNoFolder) {
            $0.adding("d/", type: "5").adding("a", type: "2", link: "d").adding("a/b", [1])
        },
        tar("an absolute link", .absoluteLink(target: "/etc"), entry: "a") { $0.adding("a", type: "2", link: "/etc") },
        tar("a link out", .linkOutside(target: ".."), entry: "a") { $0.adding("a", type: "2", link: "..") },
        tar("a deep link out", .linkOutside(target: "../../../x")) { $0.adding("a/b/c", type: "2", link: "../../../x") },
        tar("a link that leads out by another", .indirectLink(target: "x/y/up/..")) {
            $0.adding("x/y/z/").adding("x/y/up", type: "2", link: "../..").adding("t", type: "2", link: "x/y/up/..")
        },
        tar("a link to nothing", .unusableLink) { $0.adding("a", type: "2", link: "") },
        tar("a link to a control character", .unusableLink) { $0.adding("a", type: "2", link: "b\u{7}") },
        tar("a hard link to a later file", .hardLinkToNothing(target: "b")) { $0.adding("a", type: "1", link: "b").adding("b") },
        tar("a hard link out", .hardLinkToNothing(target: "../b")) { $0.adding("a", type: "1", link: "../b") },
        tar("an absolute hard link", .hardLinkToNothing(target: "/etc/passwd")) { $0.adding("a", type: "1", link: "/etc/passwd") },
        tar("a hard link to itself", .hardLinkToNothing(target: "a")) { $0.adding("a", type: "1", link: "a") },
        tar("a hard link to a link", .hardLinkToNothing(target: "l")) {
            $0.adding("l", type: "2", link: "x").adding("a", type: "1", link: "l")
        },
        tar("a hard link to a folder", .hardLinkToNothing(target: "d")) { $0.adding("d/", type: "5").adding("a", type: "1", link: "d") },
        tar("a character device", .device, entry: "null") { $0.adding("null", type: "3") },
        tar("a block device", .device) { $0.adding("sda", type: "4") },
        tar("a pipe", .fifo) { $0.adding("p", type: "6") },
        tar("a set-user-ID file", .setUserID, entry: "su") { $0.adding("su", mode: 0o4755) },
        tar("a set-group-ID file", .setUserID) { $0.adding("su", mode: 0o2755) },
        zip("..", .parentReference, entry: "../x") { $0.adding("ok").adding("../x") },
        zip("an absolute path", .absolutePath) { $0.adding("/x") },
        zip("a name twice", .duplicate) { $0.adding("a", [1]).adding("a", [2]) },
        zip("a link out", .linkOutside(target: "../x")) { $0.adding("a", Array("../x".utf8), mode: 0o120777) },
        zip("an absolute link", .absoluteLink(target: "/etc")) { $0.adding("a", Array("/etc".utf8), mode: 0o120777) },
        zip("a path through a link", .insideOfNoFolder) {
            $0.adding("d/").adding("a", Array("d".utf8), mode: 0o120777).adding("a/b", [1])
        },
        zip("a device", .device) { $0.adding("a", mode: 0o020666) },
        zip("a socket", .socket) { $0.adding("a", mode: 0o140666) },
        zip("a set-user-ID file", .setUserID) { $0.adding("a", mode: 0o104755) },
        zip("an encrypted file", .encrypted, entry: "secret") { $0.adding("secret", [UInt8](repeating: 1, count: 64), flags: 1) },
    ]

    @Test(arguments: cases) func `is refused as a whole, by the name of the entry`(test: Case) {
        guard case .refused(let entry, let defect)? = Place(test.bytes).failure() else {
            Issue.record("\(Place(test.bytes).unpack())")
            return
        }
        #expect(defect == test.defect && entry == test.entry ?? entry, "\(entry): \(defect)")
    }

    @Test func `with a method that has no bound is refused where memory has none`() async {
        let place = Place()
        let script = """
            import zipfile, sys
            with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_LZMA) as z: z.writestr("a", b"x" * 10000)
            """
        await shell("python3 -c \"$2\" $1", place.archive, script)
        #expect(place.unpack(calls: .here).failure == .refused(entry: "a", .method("lzma")))
        guard underSanitizer() == nil else { return print("memory has no bound under a sanitizer") }
        #expect(place.unpack().folder?.bytes == 10_000)
    }

    @Test func `of 7z is refused if it is damaged or encrypted`() async {
        guard underSanitizer() == nil else { return print("memory has no bound under a sanitizer, so 7z is refused") }
        let magic: [UInt8] = [0x37, 0x7A, 0xBC, 0xAF, 0x27, 0x1C, 0, 4]
        guard case .damaged(nil, _)? = Place(magic).failure() else {
            Issue.record("cut")
            return
        }
        let (place, sample) = (Place(), TemporaryFolder("todoku-sample"))
        writeFile(sample("secret"), patternBytes(100_000))
        #expect(place.unpack(calls: .here).failure != nil)
        await shell("7z a -t7z -psecret $1.7z $2/secret >/dev/null && mv $1.7z $1", place.archive, sample.path)
        #expect(place.failure() == .refused(entry: "secret", .encrypted))
        await shell("rm $1; 7z a -t7z -psecret -mhe=on $1.7z $2/secret >/dev/null && mv $1.7z $1", place.archive, sample.path)
        #expect(place.failure() == .unsupported(found: "an encrypted 7z archive"))
    }

    static let others: [(String, [UInt8])] = [
        ("a RAR archive", Array("Rar!\u{1A}\u{7}\u{1}".utf8)),
        ("a cpio archive", Array("070701".utf8)), ("a Debian package", Array("!<arch>\ndebian-binary".utf8)), ("an empty file", []),
        ("a web page", Array("\n <!DOCTYPE HTML><title>Login</title>".utf8)), ("no archive that Todoku knows", Array("hello".utf8)),
        ("a file of lz4", [4, 0x22, 0x4D, 0x18, 0]), ("a program", [0x7F, 0x45, 0x4C, 0x46, 2]),
        ("no archive that Todoku knows", patternBytes(5000)),
        ("a damaged tar archive", Array(TarBytes().adding("a").whole.dropFirst(0)).with(100, 0xFF)),
    ]

    @Test(arguments: others) func `of another format is refused by its name`(found: String, bytes: [UInt8]) {
        #expect(Place(bytes).failure() == .unsupported(found: found))
    }

    @Test(arguments: ["gzip", "bzip2", "xz", "zstd"]) func `that is a compressed file of another kind is refused by its name`(
        program: String
    ) async {
        for (bytes, found) in [
            (Array("hello".utf8), "no archive that Todoku knows"), ([], "nothing"), ([0x1F, 0x8B, 8], "no archive that Todoku knows"),
        ] {
            let place = Place(bytes)
            await shell("\(program) -c <$1 >$1.new && mv $1.new $1", place.archive)
            #expect(place.failure() == .unsupported(found: "a file of \(program) that holds no tar archive, but \(found)"))
        }
    }

    @Test func `does not follow a link that came in the folder's place`() async {
        let place = Place(TarBytes().adding("d/a", [1]).whole)
        let other = place.folder.makeFolder("other")
        symlink(other, "\(place.files)/.todoku-unpack-new")
        #expect(place.unpack().failure != nil)
        #expect(listFolder(other) == [])
        unlink("\(place.files)/.todoku-unpack-new")
        // A link that is planted meanwhile is not followed either.
        var calls = ExtractionCalls.here
        let part = "\(place.files)/.todoku-unpack-new"
        calls.before = { step in
            guard step == .makeFile else { return }
            rename("\(part)/d", "\(part)/kept")
            symlink(other, "\(part)/d")
        }
        _ = place.unpack(calls: calls)
        #expect(listFolder(other) == [])
    }
}

extension [UInt8] {
    func with(_ place: Int, _ byte: UInt8) -> [UInt8] {
        var changed = self
        changed[place] = byte
        return changed
    }
}
