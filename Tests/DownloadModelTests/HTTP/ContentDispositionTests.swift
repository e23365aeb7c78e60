import DownloadModel
import Glibc
import TestSupport
import Testing

/// The decoder that the service injects, with the system's iconv.
let iconvDecoder: ForeignDecoder = { charset, bytes in
    guard let converter = iconv_open("UTF-8", charset), Int(bitPattern: converter) != -1 else { return nil }
    defer { iconv_close(converter) }
    var input = bytes.map { CChar(bitPattern: $0) }
    var output = [UInt8](repeating: 0, count: bytes.count * 4 + 16)
    let written: Int? = input.withUnsafeMutableBufferPointer { input in
        output.withUnsafeMutableBytes { output in
            var (from, fromLeft) = (input.baseAddress, input.count)
            var (to, toLeft) = (output.baseAddress?.assumingMemoryBound(to: CChar.self), output.count)
            guard iconv(converter, &from, &fromLeft, &to, &toLeft) != Int.max, fromLeft == 0 else { return nil }
            return output.count - toLeft
        }
    }
    return written.flatMap { String(validating: output.prefix($0), as: UTF8.self) }
}

/// The bytes of `text` in UTF-8, with `<93 FA>` for bytes in hexadecimal.
private func field(_ text: String) -> [UInt8] {
    var bytes: [UInt8] = []
    var rest = text[...]
    while let open = rest.firstIndex(of: "<"), let close = rest[open...].firstIndex(of: ">") {
        bytes += Array(rest[..<open].utf8)
        bytes += rest[rest.index(after: open)..<close].split(separator: " ").map { UInt8($0, radix: 16)! }
        rest = rest[rest.index(after: close)...]
    }
    return bytes + Array(rest.utf8)
}

@Suite struct `Content-Disposition` {
    private func name(_ text: String) -> String? { ContentDisposition.fileName(from: field(text), decode: iconvDecoder) }

    @Test(arguments: [
        (#"attachment; filename="example.html""#, "example.html"), (#"INLINE; FILENAME= "an example.html""#, "an example.html"),
        ("attachment; filename=example.html", "example.html"), ("attachment;filename=an example.html ;x=y", "an example.html"),
        (#"attachment; filename="a\"b\\c.txt""#, #"a"b\c.txt"#), (#"attachment; filename="a;b=c.txt"; size=3"#, "a;b=c.txt"),
        (#"attachment; name="x;filename=y"; filename=z"#, "z"), (#"attachment; filename="a"; filename="b""#, "a"),
        ("filename=bare.txt", "bare.txt"), (#"filename="bare;.txt""#, "bare;.txt"), (#"attachment; filename="open.txt"#, "open.txt"),
        (#"attachment ; ; filename = "a.txt""#, "a.txt"), (#"attachment; filename="a" junk; x=1"#, "a"),
        (#"attachment; filename="届け物.zip""#, "届け物.zip"), (#""foo; filename=bar;baz"; filename=qux"#, "qux"),
        (#"attachment; "x; filename=y"; filename=z"#, "z"), (#"attachment; a"b; filename=y"; filename=z"#, "z"),
    ])
    func `gives the name in filename, quoted or not`(text: String, expected: String) { #expect(name(text) == expected) }

    @Test(arguments: [
        ("attachment; filename*=UTF-8''%E5%B1%8A%E3%81%91%E7%89%A9.zip", "届け物.zip"),
        (#"attachment; filename="EURO rates"; filename*=utf-8''%e2%82%ac%20rates"#, "€ rates"),
        (#"attachment; filename*=utf-8'ja'%E5%B1%8A.zip; filename="fallback.zip""#, "届.zip"),
        ("attachment; filename*=iso-8859-1'en'%A3%20rates", "£ rates"),
        (#"attachment; filename*="UTF-8''a%20b.txt""#, "a b.txt"),
        ("attachment; filename*=Shift_JIS''%93%FA%96%7B%8C%EA.txt", "日本語.txt"),
        ("attachment; filename*=UTF-8''it's.txt", "it's.txt"),
        ("attachment; filename*=iso-8859-1''100%20%80.txt", "100 €.txt"), ("attachment; filename*=windows-1252''%93a%94.txt", "“a”.txt"),
        ("attachment; filename*=EUC-KR''%C7%D1%B1%DB.txt", "한글.txt"), ("attachment; filename*=ks_c_5601-1987''%8C%63.txt", "똠.txt"),
    ])
    func `gives filename* before filename`(text: String, expected: String) { #expect(name(text) == expected) }

    @Test(arguments: [#""foo; filename=bar""#, #"attachment; "foo; filename=bar""#, #"attachment; x="foo; filename=bar""#])
    func `is not looked for inside a quoted string`(text: String) { #expect(name(text) == nil) }

    @Test(arguments: [
        "attachment; filename*=UTF-8''%FF.txt; filename=a.txt", "attachment; filename*=UTF-8''%E5%ZZ; filename=a.txt",
        "attachment; filename*=koi8-r''%C1; filename=a.txt", "attachment; filename*=a.b; filename=a.txt",
        "attachment; filename*=UTF-8''; filename=a.txt", "attachment; filename*0=x; filename*1=y; filename=a.txt",
        "attachment; filename*0*=UTF-8''x; filename=a.txt",
    ])
    func `falls back to filename if filename* is broken or continued`(text: String) { #expect(name(text) == "a.txt") }

    @Test(arguments: [
        (#"attachment; filename="<93 FA 96 7B 8C EA>.txt""#, "日本語.txt"), ("attachment; filename=<93 FA 96 7B 8C EA>.txt", "日本語.txt"),
        (#"attachment; filename="<95 5C 8E A6>.txt""#, "表示.txt"), (#"attachment; filename="<8E A6 95 5C>"; size=1"#, "示表"),
        (#"attachment; filename="<83 5C 83 74 83 67 88 EA 97 97>.xlsx""#, "ソフト一覧.xlsx"), (#"attachment; filename="<87 40>.txt""#, "①.txt"),
        (#"attachment; filename="<C6 FC CB DC B8 EC>.txt""#, "日本語.txt"), (#"attachment; filename="<C6 CF A4 B1 CA AA>.zip""#, "届け物.zip"),
        (#"attachment; filename="<A5 AB A5 BF A5 AB A5 CA>.txt""#, "カタカナ.txt"),
        (#"attachment; filename="<93 FA 96 7B B6 C0>.txt""#, "日本ｶﾀ.txt"),
        (#"attachment; filename="caf<E9>.txt""#, "café.txt"),
        // A Korean server's bytes do not differ from Japanese ones. Only a name that says its charset (`filename*`) is read as Korean.
        (#"attachment; filename="<C0 DA B7 E1>.zip""#, "切戟.zip"), (#"attachment; filename="<C7 D1 B1 DB>.txt""#, "廃越.txt"),
        (#"attachment; filename="<C7 D1 B1 DB>.txt"; filename*=EUC-KR''%C7%D1%B1%DB.txt"#, "한글.txt"),
        // Neither Japanese charset has these bytes.
        (#"attachment; filename="<C0 DA 20 FD FE>.txt""#, "ÀÚ ýþ.txt"),
    ])
    func `reads bytes that are not UTF-8 as Shift_JIS or EUC-JP, else as windows-1252`(text: String, expected: String) {
        #expect(name(text) == expected)
    }

    @Test(arguments: [
        (#"attachment; filename="=?UTF-8?B?5bGK44GR54mpLnppcA==?=""#, "届け物.zip"),
        (#"attachment; filename="=?utf-8?q?=E5=B1=8A=E3=81=91_=E7=89=A9.zip?=""#, "届け 物.zip"),
        (#"attachment; filename="=?ISO-2022-JP?B?GyRCRk8kMUoqGyhCLnppcA==?=""#, "届け物.zip"),
        (#"attachment; filename="=?Shift_JIS?B?k82Cr5WoLnppcA==?=""#, "届け物.zip"),
        (#"attachment; filename="=?Shift_JIS?B?k82Cr5Woa?=""#, nil),
        (#"attachment; filename="=?koi8-r?B?wQ==?=""#, nil), (#"attachment; filename="=?UTF-8?X?a?=""#, nil),
        (#"attachment; filename="=?UTF-8?B?5bE=?= =?UTF-8?B?ii56aXA=?=""#, "届.zip"),
        (#"attachment; filename="=?UTF-8?Q?a?= and =?iso-8859-1*en?Q?=E9?=.txt""#, "a and é.txt"),
        ("attachment; filename==?UTF-8?Q?a=25b?=", "a%b"),
    ])
    func `decodes encoded words`(text: String, expected: String?) {
        if let expected { #expect(name(text) == expected) } else { #expect(name(text)?.hasPrefix("=?") == true) }
    }

    @Test(arguments: [
        ("attachment; filename=%E5%B1%8A%E3%81%91%E7%89%A9.zip", "届け物.zip"), (#"attachment; filename="a%20b.txt""#, "a b.txt"),
        ("attachment; filename=100%.txt", "100%.txt"), ("attachment; filename=%FF.txt", "%FF.txt"),
        ("attachment; filename=50%25%.txt", "50%25%.txt"),
    ])
    func `decodes percent-encoding that is valid UTF-8`(text: String, expected: String) { #expect(name(text) == expected) }

    @Test(arguments: [
        "", "attachment", "inline;", "attachment; filename", "attachment; filename=", #"attachment; filename="""#, ";;;=;", "=", "\"",
        "\"\\",
    ])
    func `gives nothing where there is no name`(text: String) { #expect(name(text) == nil) }

    @Test func `takes any bytes`() {
        var random = SeededRandom(7)
        let pieces = [
            "filename", "*", "=", "\"", "\\", ";", "=?", "?=", "?B?", "utf-8", "''", "%E5", "%", "<95>", "<5C>", "<FF>", " ", "attachment",
        ]
        for _ in 0..<3000 {
            let text = (0..<Int.random(in: 0..<14, using: &random)).map { _ in pieces.randomElement(using: &random)! }.joined()
            _ = FileName.safe(name(text) ?? "")
        }
    }
}
