import DownloadModel
import TestSupport
import Testing

@Suite struct `File names` {
    @Test(arguments: [
        ("report.pdf", "report.pdf"), ("届け物.zip", "届け物.zip"), ("a b.txt", "a b.txt"), ("👨‍👩‍👧.png", "👨👩👧.png"),
        ("/etc/passwd", "passwd"), ("../../.bashrc", "bashrc"), ("C:\\Users\\me\\a.txt", "a.txt"), ("a/b\\c.txt", "c.txt"),
        ("...hidden", "hidden"), (" . .hidden", "hidden"), ("\u{3000}名前\u{3000}", "名前"), ("a.txt. . ", "a.txt"), ("name.", "name"),
        ("a\u{0}b\nc\u{7F}d\u{85}.txt", "abcd.txt"), ("invoice\u{202E}fdp.exe", "invoicefdp.exe"),
        ("a\u{200B}\u{FEFF}b\u{2066}c\u{2069}", "abc"),
        ("\u{200E}.bashrc", "bashrc"), (".\u{301}x", "\u{301}x"), ("a:b*c?d\"e<f>g|h", "a_b_c_d_e_f_g_h"),
        ("CON", "_CON"), ("con.txt", "_con.txt"), ("Nul.tar.gz", "_Nul.tar.gz"), ("com1", "_com1"), ("COM¹.txt", "_COM¹.txt"),
        ("LPT9 .txt", "_LPT9 .txt"), ("aux", "_aux"), ("CONIN$", "_CONIN$"), ("com10", "com10"), ("console", "console"), ("comX", "comX"),
        ("-rf", "-rf"), ("a%2Fb", "a%2Fb"), ("~", "~"),
    ])
    func `are made safe`(given: String, expected: String) {
        #expect(FileName.safe(given).map { Array($0.utf8) } == Array(expected.utf8))
    }

    @Test(arguments: ["", ".", "..", "...", "/", "a/", "a\\", " ", "\u{3000}", "\u{0}", "\u{200B}.\u{202E} ", "../", ". . ."])
    func `without any safe character are refused`(given: String) { #expect(FileName.safe(given) == nil) }

    @Test(arguments: [
        (String(repeating: "a", count: 300) + ".tar.gz", String(repeating: "a", count: 233) + ".tar.gz"),
        (String(repeating: "あ", count: 100) + ".pdf", String(repeating: "あ", count: 78) + ".pdf"),
        (String(repeating: "a", count: 300), String(repeating: "a", count: 240)),
        (String(repeating: "a", count: 239) + " b", String(repeating: "a", count: 239)),
        (
            String(repeating: "a", count: 230) + "." + String(repeating: "b", count: 30),
            String(repeating: "a", count: 230) + "." + String(repeating: "b", count: 9)
        ),
        (String(repeating: "e\u{301}", count: 100) + ".txt", String(repeating: "e\u{301}", count: 78) + ".txt"),
        ("a" + String(repeating: "\u{301}", count: 200) + ".txt", "a" + String(repeating: "\u{301}", count: 117) + ".txt"),
        ("a. " + String(repeating: "b", count: 300), "a. " + String(repeating: "b", count: 237)),
    ])
    func `are cut between characters and keep their extension`(given: String, expected: String) {
        #expect(FileName.safe(given) == expected)
    }

    @Test(arguments: [
        "", ".", "..", ".hidden", "a/b", "/", "a\nb", "a\u{0}", "\u{7F}", "a\u{85}", "a\u{202E}gpj.exe", "\u{2066}x", "a\u{200B}",
        "a\u{2028}b", "a\u{FEFF}",
        String(repeating: "あ", count: 81),
    ])
    func `that are not bare are told from`(name: String) { #expect(!FileName.isBare(name)) }

    @Test(arguments: ["a", "a.txt", "届け物.zip", " a", "a\\b", "-", "a..", String(repeating: "あ", count: 80)])
    func `those that a caller may give`(name: String) { #expect(FileName.isBare(name)) }

    @Test(arguments: [
        ("name.ext", 1, "name (1).ext"), ("archive.tar.gz", 1, "archive (1).tar.gz"), ("ARCHIVE.TAR.XZ", 2, "ARCHIVE (2).TAR.XZ"),
        ("name", 12, "name (12)"), ("名前.zip", 3, "名前 (3).zip"), ("a.b c", 1, "a.b c (1)"), ("name.", 1, "name. (1)"),
        (".tar.gz", 1, ".tar (1).gz"), (".profile", 1, ".profile (1)"), ("v1.2.tar", 1, "v1.2 (1).tar"),
        (String(repeating: "a", count: 236) + ".txt", 1_234_567_890_123, String(repeating: "a", count: 235) + " (1234567890123).txt"),
        (String(repeating: "あ", count: 80), 100_000_000_000_000, String(repeating: "あ", count: 79) + " (100000000000000)"),
    ])
    func `are numbered before the extension, within 255 bytes`(name: String, number: Int, expected: String) {
        let numbered = FileName.numbered(name, number)
        #expect(numbered == expected)
        #expect(numbered.utf8.count <= 255)
    }

    @Test(arguments: [
        ("attachment; filename=\"a.txt\"", "http://h/b.txt", "a.txt"), ("attachment", "http://h/b.txt", "b.txt"),
        ("attachment; filename=\"..\"", "http://h/b.txt", "b.txt"), ("attachment; filename=\"../../x/.a\"", "http://h/b", "a"),
        (nil, "http://h/b.txt?x=y/z.zip", "b.txt"), (nil, "http://h/", "h"), (nil, "http://h/a/", "h-a"),
        (nil, "http://h/%2E%2E%2F", "h"), (nil, "http://h/a%2Fb.txt", "b.txt"), (nil, "http://h/a%00%0A.txt", "a.txt"),
        (nil, "http://h/%E5%B1%8A%E3%81%91%E7%89%A9.zip", "届け物.zip"), (nil, "http://h/届け物.zip", "届け物.zip"),
        (nil, "http://h/%93%FA%96%7B%8C%EA.txt", "日本語.txt"), (nil, "http://h/%C6%FC%CB%DC%B8%EC.txt", "日本語.txt"),
        (nil, "http://h/caf%E9.txt", "café.txt"),
    ])
    func `come from the header, else from the URL`(header: String?, url: String, expected: String) throws {
        let name = FileName.chosen(contentDisposition: header.map { Array($0.utf8) }, url: try DownloadURL(url), decode: iconvDecoder)
        #expect(name == expected)
    }

    @Test(arguments: [
        ("https://example.org/", "text/html", "example.org.html"), ("https://example.org", nil, "example.org"),
        ("https://example.org/pub/", "text/html", "example.org-pub.html"), ("https://example.org/a/pub/?x=1", "x/y", "example.org-pub"),
        ("https://example.org:8443/pub//", "application/json", "example.org-pub.json"), ("https://h/a.html/", "text/html", "h-a.html"),
        ("https://h/A.HTML/", "text/html", "h-A.HTML"), ("https://h/%E5%B1%8A%E3%81%91/", "image/png", "h-届け.png"),
        ("https://h/.git/", "text/plain", "h-git.txt"), ("https://h/a%2Fb/", nil, "h-b"), ("https://h/%20/", "text/html", "h.html"),
        ("https://h/b/%2E%2E%2F", nil, "h-b"), ("https://[::1]/", "text/html", "__1.html"), ("https://example.org./", nil, "example.org"),
        ("https://h/\(String(repeating: "x", count: 300))/", "text/html", "h-\(String(repeating: "x", count: 233)).html"),
        ("https://con/", nil, "_con"),
    ])
    func `of a folder's URL name the host, the folder and the type`(url: String, type: String?, expected: String) throws {
        let name = FileName.chosen(contentDisposition: nil, url: try DownloadURL(url), mediaType: type, decode: iconvDecoder)
        #expect(name == expected)
        #expect(FileName.isBare(name))
        #expect(FileName.ofURL(try DownloadURL(url)) == nil)
    }

    @Test func `are safe whatever they are made of`() {
        let alphabet: [Character] =
            Array("ab.. //\\\\:*?\"<>|\u{0}\n\u{7F}\u{85}\u{200B}\u{202E}\u{2066}\u{FEFF}\u{301}é届👨‍👩‍👧\u{3000}()CONul1¹") + ["\r\n"]
        var random = SeededRandom(20_240_607)
        for round in 0..<5000 {
            let length = Int.random(in: 0..<(round.isMultiple(of: 20) ? 400 : 12), using: &random)
            let given = String((0..<length).map { _ in alphabet.randomElement(using: &random)! })
            let kinds = [given, "CON" + given, given + ".tar.gz", String(repeating: "x", count: 238) + given]
            for given in kinds {
                guard let name = FileName.safe(given) else { continue }
                let bytes = Array(name.utf8)
                #expect(!bytes.isEmpty && bytes.count <= 240, "\(given.debugDescription)")
                #expect(bytes.first != UInt8(ascii: ".") && bytes.last != UInt8(ascii: "."), "\(given.debugDescription)")
                #expect(!bytes.contains(where: { $0 < 0x20 || $0 == 0x7F || "/\\:*?\"<>|".utf8.contains($0) }), "\(given.debugDescription)")
                #expect(
                    !name.unicodeScalars.contains(where: { $0.properties.isBidiControl || $0 == "\u{200B}" }), "\(given.debugDescription)")
                #expect(FileName.safe(name).map { Array($0.utf8) } == bytes, "\(given.debugDescription)")
                #expect(FileName.isBare(name), "\(given.debugDescription)")
                #expect(FileName.numbered(name, round).utf8.count <= 255, "\(given.debugDescription)")
            }
        }
    }
}
