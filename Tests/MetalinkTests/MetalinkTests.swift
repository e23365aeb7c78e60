import DownloadModel
import Metalink
import Testing

private let namespace = "urn:ietf:params:xml:ns:metalink"

private func parse(_ text: String) throws(MetalinkError) -> [MetalinkFile] { try Metalink.parse(Array(text.utf8)) }

/// A document with one file, whose elements are `inside`.
private func document(_ inside: String, name: String = "a.iso") -> String {
    "<metalink xmlns=\"\(namespace)\">\n<file name=\"\(name)\">\n\(inside)\n</file></metalink>"
}

private func file(_ inside: String, name: String = "a.iso") throws -> MetalinkFile {
    let files = try parse(document(inside, name: name))
    #expect(files.count == 1)
    return try #require(files.first)
}

private func complaint(_ text: String) -> String? {
    do { _ = try parse(text) } catch { return error.description }
    return nil
}

private let url = "<url>https://example.org/a.iso</url>"

@Suite struct `A Metalink document` {
    @Test func `of RFC 5854 comes with all that is used of it`() throws {
        // The example of RFC 5854 §1.1, with hashes of their right length.
        let sha256 = String(repeating: "3d", count: 32)
        let (first, second) = (String(repeating: "fe", count: 32), String(repeating: "0A", count: 32))
        let files = try parse(
            """
            <?xml version="1.0" encoding="UTF-8"?>
            <metalink xmlns="urn:ietf:params:xml:ns:metalink">
              <published>2009-05-15T12:23:23Z</published>
              <file name="example.ext">
                <size>14471447</size>
                <identity>Example</identity>
                <version>1.0</version>
                <language>en</language>
                <description>A description of the example file for download.</description>
                <hash type="sha-1">\(String(repeating: "ff", count: 20))</hash>
                <hash type="sha-256">\(sha256)</hash>
                <pieces length="8388608" type="sha-256"><hash>\(first)</hash> <hash>\(second)</hash></pieces>
                <signature mediatype="application/pgp-signature">-----BEGIN PGP SIGNATURE-----</signature>
                <url location="de" priority="2">ftp://ftp.example.com/example.ext</url>
                <url location="fr" priority="3">http://example.com/b/example.ext</url>
                <url location="fr" priority="1">http://example.com/example.ext</url>
                <metaurl mediatype="torrent" priority="1">http://example.com/example.ext.torrent</metaurl>
              </file>
              <file name="second"><url>HTTPS://Example.org:443/second#x</url></file>
            </metalink>
            """)
        #expect(
            files == [
                MetalinkFile(
                    name: "example.ext", size: 14_471_447, checksum: try Checksum("sha256:\(sha256)"),
                    pieces: PieceHashes(
                        .sha256, length: 8_388_608, digests: Array(repeating: 0xfe, count: 32) + Array(repeating: 0x0a, count: 32)),
                    sources: ["http://example.com/example.ext", "http://example.com/b/example.ext"]),
                MetalinkFile(name: "second", sources: ["https://example.org/second"]),
            ])
    }

    @Test func `keeps the strongest hash and the strongest pieces`() throws {
        func hash(_ type: String, _ byte: String, _ count: Int) -> String {
            "<hash type=\"\(type)\">\(String(repeating: byte, count: count))</hash>"
        }
        func pieces(_ type: String, _ byte: String, _ count: Int) -> String {
            "<pieces type=\"\(type)\" length=\"5\"><hash>\(String(repeating: byte, count: count))</hash></pieces>"
        }
        let strong = try file(
            "<size>5</size>" + hash("SHA-512", "55", 64) + hash("sha-256", "22", 32) + hash("md5", "11", 16) + hash("sha-384", "33", 48)
                + pieces("sha-1", "aa", 20) + pieces("sha-256", "bb", 32) + pieces("whirlpool", "cc", 64) + url)
        #expect(strong.checksum?.algorithm == .sha512)
        #expect(strong.pieces?.algorithm == .sha256)
        #expect(strong.pieces?.checksum(of: 0) == Checksum(.sha256, digest: Array(repeating: 0xbb, count: 32)))
        let middle = try file(hash("sha-224", "22", 28) + hash("sha-384", "33", 48) + hash("sha-256", "44", 32) + url)
        #expect(middle.checksum == Checksum(.sha384, digest: Array(repeating: 0x33, count: 48)))
    }

    @Test func `orders URLs by priority, then as they stand, each once, and keeps 32`() throws {
        let many = (0..<100).map { "<url priority=\"\($0 + 1)\">https://example.org/\($0)</url>" }.shuffled().joined()
        #expect(try file(many).sources == (0..<32).map { "https://example.org/\($0)" })
        let mixed = """
            <url>https://a/</url><url priority="5">https://b/</url><url>https://c/</url><url priority="5">https://d/</url>\
            <url priority="1">https://c/</url><url>https://user:secret@e/</url><url>magnet:?xt=1</url>
            """
        #expect(try file(mixed).sources == ["https://c/", "https://b/", "https://d/", "https://a/"])
    }

    @Test(arguments: [
        ("a.iso", "a.iso"), ("debian/sarge/Contents.gz", "Contents.gz"), ("./a", "a"), (".hidden", "hidden"), ("a:b", "a_b"),
        ("届く.iso", "届く.iso"), ("..a", "a"), ("a&#10;b", "a b"), ("sub\\file", "file"),
    ])
    func `gives a file the last component of its name, made safe`(name: String, expected: String) throws {
        let got = try file(url, name: name).name
        // A line break in an attribute is a character reference here, so expat leaves it, and the name drops it.
        #expect(got == expected || got == "ab")
    }

    @Test func `gives each file a name of its own, although folders are dropped`() throws {
        func names(_ paths: [String]) throws -> [String] {
            let files = paths.map { "<file name=\"\($0)\">\(url)</file>" }.joined()
            return try parse("<metalink xmlns=\"\(namespace)\">\(files)</metalink>").map(\.name)
        }
        #expect(try names(["a/data.bin", "b/data.bin", "c/data.bin"]) == ["data.bin", "data (1).bin", "data (2).bin"])
        #expect(try names(["a/x.tar.gz", "x (1).tar.gz", "b/x.tar.gz"]) == ["x.tar.gz", "x (1).tar.gz", "x (2).tar.gz"])
        #expect(try names(["a/x", "b/x", "x (1)"]) == ["x", "x (2)", "x (1)"], "a name of the document stays")
        #expect(try names(["a", "b", "A"]) == ["a", "b", "A"])
        // Two names whose numbered forms are equal, because both are cut.
        let long = String(repeating: "n", count: FileName.longest - 1)
        let same = try names(["\(long)a", "\(long)b", "x/\(long)a", "x/\(long)b"])
        #expect(Set(same).count == 4 && same.allSatisfy(FileName.isBare), "\(same)")
    }

    @Test(arguments: [
        ("/etc/passwd", "is an absolute path"), ("\\a", "is an absolute path"), ("../a", "leads out of the folder"),
        ("a/../../b", "leads out of the folder"), ("a\\..\\b", "leads out of the folder"), ("..", "leads out of the folder"),
        ("a/", "cannot be used"), (".", "cannot be used"), ("", "has no name"),
    ])
    func `with a name that is no path below the folder is refused`(name: String, reason: String) throws {
        let message = try #require(complaint(document(url, name: name)))
        #expect(message.hasPrefix("line 2: ") && message.contains(reason), "\(message)")
    }

    @Test(arguments: [
        ("", "no element found"), ("text", "syntax error"), ("<a/>", "the first element is not “metalink”"),
        ("<metalink/>", "the first element is not “metalink”"),
        ("<metalink xmlns=\"urn:other\"/>", "the first element is not “metalink”"),
        ("<metalink xmlns=\"\(namespace)2\"/>", "the first element is not “metalink”"),
        ("<metalink xmlns=\"\(namespace.dropLast())\"/>", "the first element is not “metalink”"),
        ("<metalink xmlns=\"http://www.metalinker.org/\" version=\"3.0\"/>", "version 3"),
        ("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"/>", "the document has no file"),
        ("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"a\">", "no element found"),
        ("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"/><b/>", "junk after document element"),
        ("<?xml version=\"1.0\" encoding=\"x-none\"?><a/>", "unknown encoding"),
    ])
    func `that is none is refused with its reason`(text: String, reason: String) throws {
        let message = try #require(complaint(text))
        #expect(message.contains(reason), "\(message)")
    }

    @Test(arguments: [
        ("<url>ftp://example.org/a</url>", "line 2: the file “a.iso” has no URL of http or https that can be used"),
        ("<url>https://u:p@example.org/a</url>", "line 2: the file “a.iso” has no URL of http or https that can be used"),
        ("<metaurl mediatype=\"torrent\">https://example.org/a.torrent</metaurl>", "line 2: the file “a.iso” has no URL"),
        ("\n<url>https://exa mple.org/</url>", "line 4: "), ("\(url)<size>-1</size>", "line 3: “size” is not a number of bytes"),
        ("\(url)<size>18446744073709551616</size>", "line 3: “size” is not a number of bytes"),
        ("\(url)<size>1</size><size>1</size>", "line 3: the file “a.iso” has two sizes"),
        ("<url priority=\"0\">https://a/</url>", "line 3: the attribute “priority” is not a number from 1 to 999999"),
        ("<url priority=\"1000000\">https://a/</url>", "line 3: the attribute “priority” is not"),
        ("\(url)<hash>00</hash>", "line 3: “hash” has no attribute “type”"),
        ("\(url)<hash type=\"sha-256\">00</hash>", "line 3: a hash of the file “a.iso” is not one of sha256, which has 64 hex"),
        ("\(url)<hash type=\"md5\">\(String(repeating: "0g", count: 16))</hash>", "line 3: a hash of the file “a.iso” is not one of md5"),
        ("\(url)<pieces length=\"1\"/>", "line 3: “pieces” has no attribute “type”"),
        ("\(url)<pieces type=\"sha-1\" length=\"0\"/>", "line 3: the attribute “length” of “pieces” is not"),
        ("\(url)<pieces type=\"sha-1\"/>", "line 3: the attribute “length” of “pieces” is not"),
        ("\(url)<pieces type=\"sha-1\" length=\"1\"/>", "line 3: “pieces” of the file “a.iso” has no hash"),
    ])
    func `names the line and the fault`(inside: String, reason: String) throws {
        let message = try #require(complaint(document(inside)))
        #expect(message.hasPrefix(reason), "\(message)")
    }

    @Test func `has as many pieces as its size needs`() throws {
        func pieces(_ count: Int, length: Int) -> String {
            "<pieces type=\"md5\" length=\"\(length)\">"
                + String(repeating: "<hash>\(String(repeating: "00", count: 16))</hash>", count: count) + "</pieces>"
        }
        #expect(try file("<size>10</size>\(pieces(3, length: 4))\(url)").pieces?.count == 3)
        let wrong = try #require(complaint(document("<size>10</size>\(pieces(2, length: 4))\(url)")))
        #expect(wrong == "line 3: the file “a.iso” of 10 bytes does not have 2 pieces of 4 bytes")
        // Without a size they cannot be used. They may be left out only beside a hash of the file.
        #expect(complaint(document("\(pieces(2, length: 4))\(url)"))?.contains("because its size is missing") == true)
        let md5 = "<hash type=\"md5\">\(String(repeating: "00", count: 16))</hash>"
        #expect(try file("\(pieces(2, length: 4))\(md5)\(url)").pieces == nil)
        let most = Limits.pieceHashBytes / 16
        #expect(try file("<size>\(most)</size>\(pieces(most, length: 1))\(url)").pieces?.count == most)
        let beyond = document("<size>\(most + 1)</size>\(pieces(most + 1, length: 1))\(url)")
        #expect(complaint(beyond)?.contains("because their hashes have more than 1.0 MiB") == true)
    }

    @Test func `ignores elements that nobody reads, with all that is in them`() throws {
        let inside = """
            <x:file xmlns:x="urn:other" name="../b"><size>x</size></x:file><os>Linux</os><size xmlns="urn:other">x</size>\
            <description><url>https://wrong/</url><size>x</size></description>\(url)
            """
        #expect(try file(inside) == MetalinkFile(name: "a.iso", sources: ["https://example.org/a.iso"]))
    }
}

@Suite struct `A hostile Metalink document` {
    @Test func `with a document type is refused before any entity is read`() throws {
        let laughs = (1...9).map { "<!ENTITY l\($0) \"\(String(repeating: "&l\($0 - 1);", count: 10))\">" }.joined()
        let text = "<?xml version=\"1.0\"?>\n<!DOCTYPE metalink [<!ENTITY l0 \"ha\">\(laughs)]>\(document("<url>&l9;</url>"))"
        #expect(complaint(text) == "line 2: a document type (<!DOCTYPE) is not allowed")
        #expect(complaint("<!DOCTYPE a SYSTEM \"file:///etc/passwd\"><a/>") == "line 1: a document type (<!DOCTYPE) is not allowed")
        #expect(complaint(document("<url>&xxe;</url>")) == "line 3: undefined entity")
    }

    @Test(arguments: [61, 62, 63, 100, 500_000]) func `nests at most 64 deep`(depth: Int) {
        let nested = String(repeating: "<a>", count: depth) + String(repeating: "</a>", count: depth)
        #expect((complaint(document(nested + url)) == "line 3: elements are nested deeper than 64") == (depth > 62))
    }

    @Test(arguments: [Limits.batchItems, Limits.batchItems + 1]) func `has at most 10,000 files`(count: Int) throws {
        let files = String(repeating: "<file name=\"a\">\(url)</file>\n", count: count)
        let text = "<metalink xmlns=\"\(namespace)\">\(files)</metalink>"
        if count == Limits.batchItems { return #expect(try parse(text).count == count) }
        let error = #expect(throws: MetalinkError.self) { try parse(text) }
        #expect(error?.isLimit == true && error?.line == count)
    }

    @Test func `is not read beyond 16 MiB`() {
        let error = #expect(throws: MetalinkError.self) { try Metalink.parse([UInt8](repeating: 0x20, count: Limits.documentBytes + 1)) }
        #expect(error?.isLimit == true && error?.description == "the document is longer than 16.0 MiB")
    }

    @Test func `may not have a text or an attribute without end`() {
        let long = String(repeating: "a", count: 100_000)
        #expect(complaint(document("<url>https://a/\(long)</url>")) == "line 3: the text of an element is too long")
        #expect(complaint(document(url, name: long)) == "line 2: the attribute “name” is longer than 4096 bytes")
        // Nobody reads it.
        #expect(complaint(document("<description lang=\"\(long)\">\(long)</description>\(url)")) == nil)
    }

    /// Nobody reads these elements, but expat copies a namespace for each attribute of that namespace.
    @Test(arguments: [
        "<a xmlns=\"LONG\"/>", "<p:a xmlns:p=\"LONG\"/>", "<a><b><c xmlns:p=\"LONG\"/></b></a>",
        "<a p:a=\"\" p:b=\"\" p:c=\"\" xmlns:p=\"LONG\" xmlns:q=\"LONG\"><p:b/></a>",
    ])
    func `may not have a namespace of more than 256 bytes`(element: String) {
        func text(_ length: Int) -> String {
            document(element.replacing("LONG", with: String(repeating: "n", count: length)) + url)
        }
        #expect(complaint(text(256)) == nil)
        for length in [257, 1 << 20] {
            let error = #expect(throws: MetalinkError.self) { try parse(text(length)) }
            #expect(error?.isLimit == true && error?.description == "line 3: a namespace is longer than 256 bytes")
        }
    }

    /// expat writes the namespace before the name of each attribute, before anybody sees the element: 35 times the bytes of the document.
    @Test func `may not take more memory than a few times its size`() {
        func text(_ count: Int) -> String {
            let attributes = (0..<count).map { " p:a\($0)=\"\"" }.joined()
            return document("<a xmlns:p=\"\(String(repeating: "n", count: 256))\"\(attributes)/>\n\(url)")
        }
        let error = #expect(throws: MetalinkError.self) { try parse(text(100_000)) }
        #expect(error?.isLimit == true && error?.line == 3, "\(String(describing: error))")
        #expect(error?.message.hasSuffix("MiB of memory") == true, "\(String(describing: error))")
        // The memory of that document does not count for the next one.
        #expect(complaint(text(1000)) == nil)
    }

    @Test func `is read no further once nobody waits for it`() {
        final class Questions { var count = 0 }
        let questions = Questions()
        let text = document(String(repeating: "<a/>", count: 1000) + url)
        let error = #expect(throws: MetalinkError.self) {
            try Metalink.parse(Array(text.utf8)) {
                questions.count += 1
                return questions.count < 10
            }
        }
        #expect(questions.count == 10 && error?.line == 3, "\(String(describing: error))")
    }

    @Test(arguments: [[0xff], [0x00], [0xc0, 0xaf], [0xed, 0xa0, 0x80], [0x1b]] as [[UInt8]])
    func `with bytes that are no text is refused`(bytes: [UInt8]) {
        let (before, after) = (Array("<metalink xmlns=\"\(namespace)\">\n<file name=\"".utf8), Array("\">\(url)</file></metalink>".utf8))
        let error = #expect(throws: MetalinkError.self) { try Metalink.parse(before + bytes + after) }
        #expect(error?.message.contains("not well-formed") == true && error?.line == 2, "\(String(describing: error))")
    }

    @Test func `puts no control character into a message`() {
        let name = "a&#x85;&#x202e;\(String(repeating: "b", count: 200))"
        let message = complaint(document("", name: name)) ?? ""
        #expect(message.contains("has no URL"), "\(message)")
        #expect(!message.unicodeScalars.contains { $0.properties.generalCategory == .control || $0.properties.isBidiControl }, "\(message)")
        #expect(message.utf8.count < 200)
    }

    @Test func `may be in UTF-16`() throws {
        let text = "<?xml version=\"1.0\" encoding=\"UTF-16\"?>" + document(url)
        let bytes: [UInt8] = [0xff, 0xfe] + text.utf16.flatMap { [UInt8($0 & 0xff), UInt8($0 >> 8)] }
        #expect(try Metalink.parse(bytes).map(\.name) == ["a.iso"])
    }
}

@Suite struct `Piece hashes` {
    @Test(arguments: [
        (1, 4, false), (8, 4, false), (9, 4, true), (10, 4, true), (12, 4, true), (13, 4, false), (0, 4, false), (UInt64.max, 4, false),
        (3, 1, true), (UInt64.max, UInt64.max / 3 + 1, true),
    ])
    func `fit a size that has so many pieces`(size: ByteCount, length: ByteCount, fits: Bool) throws {
        let pieces = try #require(PieceHashes(.md5, length: length, digests: [UInt8](repeating: 0, count: 48)))
        #expect(pieces.fits(size) == fits)
        guard fits else { return }
        let ranges = (0..<3).map { pieces.range(of: $0, size: size) }
        #expect(
            ranges[0].lowerBound == 0 && ranges[2].upperBound == size
                && zip(ranges, ranges.dropFirst()).allSatisfy { $0.upperBound == $1.lowerBound })
    }

    @Test func `have whole digests, at least one, and a length above 0`() {
        #expect(PieceHashes(.sha1, length: 1, digests: []) == nil)
        #expect(PieceHashes(.sha1, length: 0, digests: [UInt8](repeating: 0, count: 20)) == nil)
        #expect(PieceHashes(.sha1, length: 1, digests: [UInt8](repeating: 0, count: 21)) == nil)
    }
}
