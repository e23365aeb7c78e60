import DownloadModel
import Testing

@Suite struct `Content-Range` {
    @Test(
        arguments: [
            ("bytes 0-499/1234", 0, 500, 1234 as UInt64?), ("bytes 500-1233/1234", 500, 1234, 1234), ("bytes 5-5/*", 5, 6, nil),
            ("Bytes 0-0/1", 0, 1, 1),
            (" bytes 0-0/1 ", 0, 1, 1), ("bytes 0-18446744073709551613/18446744073709551615", 0, UInt64.max - 1, UInt64.max),
        ] as [(String, UInt64, UInt64, UInt64?)])
    func `is read half-open, with the complete length`(field: String, lower: UInt64, upper: UInt64, length: UInt64?) throws {
        let parsed = try #require(Range<UInt64>.fromContentRange(field))
        #expect(parsed.range == lower..<upper)
        #expect(parsed.length == length)
    }

    @Test(arguments: [
        "bytes 5-4/10", "bytes 0-10/10", "bytes 1-2", "octets 0-1/2", "", "bytes", "bytes ", "bytes */10", "bytes 0-/10", "bytes -1/10",
        "bytes 0-1/", "bytes 0-1/2/3", "bytes 0-1-2/3", "bytes +0-1/2", "bytes 0 - 1/2", "bytes=0-1/2", "bytes 0-1/x", "bytes 0x0-1/2",
        "bytes 0-18446744073709551615/*", "bytes 0-18446744073709551616/*", "bytes 99999999999999999999-1/*", "bytes ０-１/２",
    ])
    func `refuses a field that is malformed or impossible`(field: String) { #expect(Range<UInt64>.fromContentRange(field) == nil) }

    @Test(arguments: [
        (0 as UInt64, 500 as UInt64, "bytes=0-499"), (500, 501, "bytes=500-500"), (500, .max, "bytes=500-"), (0, .max, "bytes=0-"),
    ])
    func `is requested with inclusive bounds`(lower: UInt64, upper: UInt64, wire: String) { #expect((lower..<upper).rangeHeader == wire) }

    @Test(arguments: [
        ("bytes */1234", 1234 as UInt64?), ("BYTES */0", 0), ("bytes */*", nil), ("bytes 0-1/2", nil), ("bytes *", nil), ("", nil),
    ])
    func `of a 416 gives the complete length`(field: String, length: UInt64?) { #expect(Range<UInt64>.unsatisfiedLength(field) == length) }
}

private let noon2024 = WallTime(microseconds: 1_718_452_800_000_000)  // Sat, 15 Jun 2024 12:00:00 GMT

@Suite struct `HTTP dates` {
    @Test(
        arguments: [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777), ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
            ("Sun Nov  6 08:49:37 1994", 784_111_777),
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0), ("Thu, 29 Feb 2024 23:59:59 GMT", 1_709_251_199),
            ("Tue, 29 Feb 2000 00:00:00 GMT", 951_782_400),
            ("Sat, 15 Jun 2024 12:00:00 GMT", 1_718_452_800), ("Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799),
            ("Sat, 31 Dec 2016 23:59:60 GMT", 1_483_228_799), (" Sun, 06 Nov 1994 08:49:37 GMT ", 784_111_777),
            ("Tuesday, 19-Jan-38 03:14:07 GMT", 2_147_483_647), ("Wednesday, 01-Jan-70 00:00:00 GMT", 0),
        ] as [(String, UInt64)])
    func `are read in all three forms`(field: String, seconds: UInt64) {
        #expect(HTTPDate.parse(field) == WallTime(microseconds: seconds * 1_000_000))
    }

    @Test(arguments: [
        "", "now", "Sun, 06 Nov 1994 08:49:37", "Sun, 06 Nov 1994 08:49:37 JST", "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 94 08:49:37 GMT",
        "Xxx, 06 Nov 1994 08:49:37 GMT", "Sun 06 Nov 1994 08:49:37 GMT", "Sun, 32 Jan 1994 08:49:37 GMT", "Wed, 29 Feb 2023 00:00:00 GMT",
        "Mon, 29 Feb 2100 00:00:00 GMT", "Sun, 00 Nov 1994 08:49:37 GMT", "Sun, 06 nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 24:00:00 GMT",
        "Sun, 06 Nov 1994 08:60:00 GMT", "Sun, 06 Nov 1994 08:49:61 GMT", "Sun, 06 Nov 1994 8:49:37 GMT", "Wed, 31 Dec 1969 23:59:59 GMT",
        "Sun Nov 06 08:49:37 94", "Sunday, 06-Nov-1994 08:49:37 GMT", "Sun, 06-Nov-94 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 GMT x",
        "Sun, -6 Nov 1994 08:49:37 GMT", "1718452800",
    ])
    func `that are malformed or impossible are refused`(field: String) { #expect(HTTPDate.parse(field) == nil) }

    @Test(arguments: [
        ("Saturday, 15-Jun-74 12:00:00 GMT", "Fri, 15 Jun 2074 12:00:00 GMT"),
        ("Sunday, 15-Jun-75 12:00:00 GMT", "Sun, 15 Jun 1975 12:00:00 GMT"),
    ])
    func `of two-digit years lie at most 50 years ahead`(short: String, long: String) throws {
        let expected = try #require(HTTPDate.parse(long))
        #expect(HTTPDate.parse(short, now: noon2024) == expected)
    }
}

@Suite struct `Retry-After` {
    @Test(
        arguments: [
            ("120", 120), ("0", 0), (" 5 ", 5), ("86400", 86_400), ("86401", 86_400), ("99999999999999999999999", 86_400),
            ("Sat, 15 Jun 2024 12:01:30 GMT", 90), ("Sat, 15 Jun 2024 11:00:00 GMT", 0), ("Saturday, 15-Jun-24 12:00:01 GMT", 1),
            ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400),
        ] as [(String, Int)])
    func `is a delay from nothing to a day`(field: String, seconds: Int) {
        #expect(RetryAfter.delay(field, now: noon2024) == .seconds(seconds))
    }

    @Test(arguments: ["", " ", "-1", "1.5", "soon", "1 2", "0x10", "٣"])
    func `is ignored if it is malformed`(field: String) { #expect(RetryAfter.delay(field, now: noon2024) == nil) }
}

@Suite struct `Validators` {
    private static let modified = "Sat, 15 Jun 2024 12:00:00 GMT"

    @Test(arguments: [#""abc""#, #""""#, #""W/abc""#, "\"é-届\""])
    func `are the strong entity tag where there is one`(tag: String) {
        let validator = Validator(entityTag: tag, lastModified: Self.modified, date: "Sat, 15 Jun 2024 13:00:00 GMT")
        #expect(validator == .entityTag(tag))
        #expect(validator?.ifRange == tag)
    }

    @Test(arguments: [
        ("Sat, 15 Jun 2024 12:01:00 GMT" as String?, true), ("Sun, 16 Jun 2024 00:00:00 GMT", true),
        ("Sat, 15 Jun 2024 12:00:59 GMT", false),
        ("Sat, 15 Jun 2024 12:00:00 GMT", false), ("Sat, 15 Jun 2024 11:00:00 GMT", false), ("yesterday", false), (nil, false),
    ])
    func `are the Last-Modified only if the Date is a minute later`(date: String?, isStrong: Bool) {
        let validator = Validator(entityTag: nil, lastModified: Self.modified, date: date)
        #expect(validator == (isStrong ? .lastModified(Self.modified) : nil))
    }

    @Test(arguments: [#"W/"abc""#, #"W/"""#])
    func `are never weak, nor a date beside a weak tag`(tag: String) {
        #expect(Validator(entityTag: tag, lastModified: Self.modified, date: "Sun, 16 Jun 2024 00:00:00 GMT") == nil)
    }

    @Test func `are never a tag that was not UTF-8, nor a date beside one`() {
        // 0xE9 and 0xE8, which are "é" and "è" in Latin-1, both become U+FFFD.
        let tags = [0xE9, 0xE8].map { String(decoding: Array("\"caf".utf8) + [UInt8($0)] + Array("\"".utf8), as: UTF8.self) }
        for tag in tags {
            #expect(Validator(entityTag: tag, lastModified: Self.modified, date: "Sun, 16 Jun 2024 00:00:00 GMT") == nil)
            #expect(CopyValidators(entityTag: tag, lastModified: nil, date: nil, vary: nil, source: "http://a/") == nil)
        }
    }

    @Test func `are compared by their bytes, not by what Unicode calls equivalent`() throws {
        let (composed, decomposed) = ("\"caf\u{E9}\"", "\"cafe\u{301}\"")
        #expect(composed == decomposed)  // Swift's strings are equal
        let validator = try #require(Validator(entityTag: composed, lastModified: nil, date: nil))
        #expect(validator != .entityTag(decomposed) && validator == .entityTag(composed))
        #expect(!validator.matches(entityTag: decomposed, lastModified: nil))
        #expect(Set([validator, .entityTag(decomposed)]).count == 2)
        let held = CopyValidators(entityTag: "W/" + composed, lastModified: nil, source: "http://a/")
        #expect(!held.matches(entityTag: decomposed, lastModified: nil) && held.matches(entityTag: composed, lastModified: nil))
        #expect(held != CopyValidators(entityTag: "W/" + decomposed, lastModified: nil, source: "http://a/"))
    }

    @Test(arguments: ["abc", "\"", "", "\"a\"b\"", "\"a b\"", "w/\"a\"", "\"" + String(repeating: "a", count: 2000) + "\""])
    func `ignore a malformed tag`(tag: String) {
        #expect(Validator(entityTag: tag, lastModified: nil, date: nil) == nil)
        let dated = Validator(entityTag: tag, lastModified: Self.modified, date: "Sun, 16 Jun 2024 00:00:00 GMT")
        #expect(dated == .lastModified(Self.modified))
    }

    @Test func `match unless a field says otherwise`() {
        let tag = Validator.entityTag(#""a""#)
        #expect(tag.matches(entityTag: #""a""#, lastModified: nil))
        #expect(tag.matches(entityTag: nil, lastModified: nil))
        #expect(tag.matches(entityTag: nil, lastModified: Self.modified))
        #expect(!tag.matches(entityTag: #""b""#, lastModified: nil))
        #expect(!tag.matches(entityTag: #"W/"a""#, lastModified: nil))
        #expect(!tag.matches(entityTag: "", lastModified: nil))
        let date = Validator.lastModified(Self.modified)
        #expect(date.matches(entityTag: #""new""#, lastModified: Self.modified))
        #expect(date.matches(entityTag: nil, lastModified: nil))
        #expect(date.matches(entityTag: nil, lastModified: "Sat Jun 15 12:00:00 2024"))
        #expect(!date.matches(entityTag: nil, lastModified: "Sat, 15 Jun 2024 12:00:01 GMT"))
        #expect(!date.matches(entityTag: nil, lastModified: "garbage"))
    }
}

@Suite struct `Checksums` {
    private static let md5 = "d41d8cd98f00b204e9800998ecf8427e"

    @Test(
        arguments: [
            ("md5:\(md5)", Checksum.Algorithm.md5), ("MD5:\(md5.uppercased())", .md5),
            ("Sha1:" + String(repeating: "0a", count: 20), .sha1),
            ("sha256:" + String(repeating: "fF", count: 32), .sha256), ("SHA512:" + String(repeating: "00", count: 64), .sha512),
            ("sha384:" + String(repeating: "a1", count: 48), .sha384), ("sha224:" + String(repeating: "b2", count: 28), .sha224),
        ] as [(String, Checksum.Algorithm)])
    func `are read in any case and written in lower case`(text: String, algorithm: Checksum.Algorithm) throws {
        let checksum = try Checksum(text)
        #expect(checksum.algorithm == algorithm)
        #expect(checksum.digest.count == algorithm.length)
        #expect(checksum.description == text.lowercased())
    }

    @Test(arguments: [
        ("", "no \":\""), (md5, "no \":\""), ("crc32:00000000", "does not know"), (":\(md5)", "does not know"),
        ("sha256:\(md5)", "64 hexadecimal digits, and 32"),
        ("md5:", "32 hexadecimal digits, and 0"), ("md5:\(md5)0", "and 33"), ("md5: \(md5)", "not a hexadecimal digit"),
        ("md5:\(md5) ", "not a hexadecimal digit"),
        ("md5:g" + md5.dropFirst(), "not a hexadecimal digit"), ("md5:\(md5):", "not a hexadecimal digit"),
    ])
    func `that are malformed are refused with what is wrong`(text: String, why: String) {
        let refusal = #expect(throws: Refusal.self) { try Checksum(text) }
        #expect(refusal?.name == .invalidOption)
        #expect(refusal?.message.hasPrefix("checksum: ") == true)
        #expect(refusal?.message.contains(why) == true, "\(refusal?.message ?? "")")
    }
}
