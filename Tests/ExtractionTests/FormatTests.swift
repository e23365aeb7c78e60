import DownloadModel
import Glibc
import TestSupport
import Testing

@testable internal import Extraction

/// Writes files of each supported kind into `folder`.
func writeSample(_ folder: String) {
    for name in ["data", "data/levels", "data/empty", "bin"] { mkdir("\(folder)/\(name)", 0o755) }
    writeFile("\(folder)/data/levels/1.map", patternBytes(300_000, seed: 1))
    writeFile("\(folder)/data/levels/写真 1.jpg", patternBytes(70_000, seed: 2), mode: 0o600)
    writeFile("\(folder)/data/" + String(repeating: "long-", count: 40) + ".txt", patternBytes(513, seed: 3))
    writeFile("\(folder)/data/nothing", [])
    writeFile("\(folder)/bin/run", Array("#!/bin/sh\n".utf8), mode: 0o755)
    writeFile("\(folder)/.hidden", [1, 2, 3])
    symlink("../data/levels/1.map", "\(folder)/bin/first")
    symlink("levels", "\(folder)/data/maps")
    symlink("..", "\(folder)/data/up")
}

@Suite struct `An archive` {
    static let makers = [
        "bsdtar --format ustar -cf $1 -C $2 .", "bsdtar --format pax -cf $1 -C $2 .", "tar --format gnu -cf $1 -C $2 .",
        "tar --format gnu -cf $1 -C $2 .hidden bin data", "bsdtar --format v7 -cf $1 -C $2 bin .hidden data/levels data/maps",
        "bsdtar --format gnutar --gzip -cf $1 -C $2 .", "bsdtar --format pax --bzip2 -cf $1 -C $2 .",
        "bsdtar --format pax --xz -cf $1 -C $2 .", "bsdtar --format pax --zstd -cf $1 -C $2 .",
        "tar --posix -cf - -C $2 . | gzip >$1; head -c 5000 /dev/zero >>$1",
        "tar -cf $1.tar -C $2 . && split -b 100000 $1.tar $1- && for p in $1-*; do gzip -c $p; done >$1; rm $1-* $1.tar",
        "tar -cf $1.tar -C $2 . && split -b 100000 $1.tar $1- && for p in $1-*; do xz -c $p; done >$1; rm $1-* $1.tar",
        "tar -cf $1.tar -C $2 . && split -b 100000 $1.tar $1- && for p in $1-*; do bzip2 -c $p; done >$1; rm $1-* $1.tar",
        "tar -cf $1.tar -C $2 . && split -b 100000 $1.tar $1- && for p in $1-*; do zstd -qc $p; done >$1; rm $1-* $1.tar",
        "cd $2 && zip -qry $1.zip . && mv $1.zip $1", "cd $2 && zip -qry0 $1.zip . && mv $1.zip $1",
        "bsdtar --format zip -cf $1 -C $2 .", "cd $2 && zip -qryZ bzip2 $1.zip . && mv $1.zip $1",
        "cd $2 && zip -qry -fz $1.zip . && mv $1.zip $1", "bsdtar --format 7zip -cf $1 -C $2 .",
        "bsdtar --format 7zip --options compression=ppmd -cf $1 -C $2 .",
        "bsdtar --format 7zip --options compression=deflate -cf $1 -C $2 .",
        "cd $2 && 7z a -t7z -snl -m0=lzma2 $1.7z . >/dev/null && mv $1.7z $1",
        "cd $2 && 7z a -t7z -snl -ms=off $1.7z . >/dev/null && mv $1.7z $1",
    ]

    @Test(arguments: makers) func `is unpacked as it was packed`(maker: String) async {
        if underSanitizer() != nil, maker.contains("7z") { return print("memory has no bound under a sanitizer, so 7z is refused") }
        let (place, sample) = (Place(), TemporaryFolder("todoku-sample"))
        writeSample(sample.path)
        let isZip = maker.contains("zip -q") || maker.contains("format zip") || maker.contains("7z")
        let isPart = maker.contains("v7")
        if !isZip { link(sample("data/levels/1.map"), sample("data/same.map")) }
        await shell(maker.replacing("ustar", with: "ustar --exclude long-*"), place.archive, sample.path)
        chmod(sample("data/levels/写真 1.jpg"), 0o644)
        var expected = tree(sample.path)
        if maker.contains("ustar") { expected = expected.filter { !$0.key.contains("long-") } }  // this format has no such names
        if isPart { expected = expected.filter { isInPart($0.key) } }
        let result = place.unpack()
        #expect(result.folder?.path == "\(place.files)/new", "\(result)")
        #expect(tree("\(place.files)/new") == expected)
        #expect(status("\(place.files)/new/data/levels/1.map").st_mtim.tv_sec / 2 == status(sample("data/levels/1.map")).st_mtim.tv_sec / 2)
        if !isZip, !isPart { #expect(inode(of: "\(place.files)/new/data/same.map") == inode(of: "\(place.files)/new/data/levels/1.map")) }
        // The answer stays the same until the caller has recorded it.
        #expect(place.unpack().folder?.path == "\(place.files)/new")
        #expect(Unpacking.forget(directory: place.files, name: "new"))
        #expect(listFolder(place.files) == ["new"])
        #expect(place.unpack().failure == .taken(path: "\(place.files)/new"))
    }

    private func isInPart(_ path: String) -> Bool {
        path == "data" || path == ".hidden" || ["bin", "data/levels", "data/maps"].contains { path == $0 || path.hasPrefix("\($0)/") }
    }

    @Test(arguments: ["--format gnu", "--format posix --sparse-version=0.0", "--format posix --sparse-version=0.1", "--format posix"])
    func `with holes is unpacked with the same bytes`(options: String) async {
        let (place, sample) = (Place(), TemporaryFolder("todoku-sample"))
        let file = open(sample("sparse"), O_RDWR | O_CREAT | O_CLOEXEC, 0o644)
        for offset in [0, 3 << 20, 9 << 20] { pwrite(file, "abcdef", 6, off_t(offset)) }
        ftruncate(file, 20 << 20)
        close(file)
        await shell("tar -S \(options) -cf $1 -C $2 sparse", place.archive, sample.path)
        let result = place.unpack()
        #expect(result.folder?.bytes == 20 << 20, "\(result)")
        #expect(tree("\(place.files)/new") == tree(sample.path))
        #expect(status("\(place.files)/new/sparse").st_blocks < 2048)
    }

    @Test func `may have data that its links do not need`() {
        let place = Place(
            TarBytes().adding("a", [1]).addingPax([("size", "6000000")]).adding("b", type: "1", patternBytes(6_000_000), link: "a").whole)
        let result = place.unpack()
        #expect(result.folder?.bytes == 1 && readFile("\(place.files)/new/b") == [1], "\(result)")
    }

    @Test func `without entries makes an empty folder`() {
        #expect(Place(TarBytes().whole).unpack().folder?.entries == 0)
        let zip = Place(ZipBytes().whole).unpack()
        #expect(zip.folder?.entries == 0, "\(zip)")
    }

    @Test func `gets modes of our own, and no owner, list or attribute`() async {
        let (place, sample) = (Place(), TemporaryFolder("todoku-sample"))
        writeFile(sample("a"), [1], mode: 0o666)
        chmod(sample("a"), 0o666)
        writeFile(sample("b"), [1])
        chmod(sample("b"), 0o710)
        mkdir(sample("c"), 0o777)
        chmod(sample("c"), 0o3777)
        await shell(
            "setfattr -n user.test -v 1 $2/a 2>/dev/null || true; tar --xattrs --acls --owner 7 -cf $1 -C $2 .", place.archive, sample.path)
        #expect(place.unpack().folder != nil)
        #expect(status("\(place.files)/new/a").st_mode & 0o7777 == 0o644 && status("\(place.files)/new/b").st_mode & 0o7777 == 0o755)
        #expect(status("\(place.files)/new/c").st_mode & 0o7777 == 0o755 && status("\(place.files)/new/a").st_uid == geteuid())
        #expect((try? extendedAttribute("user.test", of: "\(place.files)/new/a")) == .some(nil))
    }

    @Test func `keeps the bytes of names that are not UTF-8, and reads Japanese ones in a zip if asked`() {
        let name: [UInt8] = [0x8E, 0xCA, 0x90, 0x5E]  // 写真 in Shift_JIS
        for bytes in [TarBytes().adding("", [1], nameBytes: name).whole, ZipBytes().adding(ZipBytes.Entry(name: name)).whole] {
            let place = Place(bytes)
            #expect(place.unpack().folder != nil)
            let found = listFolder("\(place.files)/new")
            #expect(found.count == 1 && found[0] != "写真")
        }
        let place = Place(ZipBytes().adding(ZipBytes.Entry(name: name)).whole)
        var request = place.request()
        request.decode = { _, _ in nil }  // the child has its own
        #expect(place.unpack(request).folder != nil)
        #expect(listFolder("\(place.files)/new") == ["写真"])
    }

    @Test func `reads UTF-8 names in a zip that says so`() {
        let place = Place(ZipBytes().adding("写真/é.txt", [1], flags: 0x800).whole)
        #expect(place.unpack().folder != nil)
        #expect(tree("\(place.files)/new").keys.sorted() == ["写真", "写真/é.txt"])
    }

    @Test func `obeys the umask`() async {
        let place = Place(TarBytes().adding("d/", type: "5").adding("d/f", [1], mode: 0o755).whole)
        let program = builtProgram("todoku-unpack", variable: "TODOKU_UNPACK")
        await shell("umask 077; $1 $2 $3 new a 0", program, place.archive, place.files)
        #expect(status("\(place.files)/new/d/f").st_mode & 0o777 == 0o700 && status("\(place.files)/new/d").st_mode & 0o777 == 0o700)
    }
}
