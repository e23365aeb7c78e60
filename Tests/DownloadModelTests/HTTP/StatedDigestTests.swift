import DownloadModel
import TestSupport
import Testing

/// The digests of "hello", by coreutils.
private let sha256 = "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="
private let sha512 = "m3HSJL1i83hdltRq0+o9czGb+8KJDKra4t/3JRlnPKcjI8PZm6XBHXx6zG4UuMXaDEZjR1wuXDre9G9zvN7AQw=="
private let ofHello256 = checksum("sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824")
private let ofHello512 = checksum(
    "sha512:9b71d224bd62f3785d96d46ad3ea3d73319bfbc2890caadae2dff72519673ca72323c3d99ba5c11d7c7acc6e14b8c5da0c4663475c2e5c3adef46f73bcdec043"
)

private func checksum(_ text: String) -> Checksum {
    guard let checksum = try? Checksum(text) else { preconditionFailure(text) }
    return checksum
}

/// Another digest of the right length.
private let other256 = base64([UInt8](repeating: 7, count: 32))

private func ofRepr(_ field: String) -> StatedDigests { StatedDigests(reprDigest: Array(field.utf8), digest: nil, contentDigest: nil) }
private func ofOld(_ field: String) -> StatedDigests { StatedDigests(reprDigest: nil, digest: Array(field.utf8), contentDigest: nil) }

@Suite struct `A stated digest` {
    @Test(
        arguments: [
            ("sha-256=:\(sha256):", ofHello256), ("sha-512=:\(sha512):", ofHello512),
            ("  sha-256=:\(sha256): ", ofHello256),
            ("sha-512=:\(sha512):, sha-256=:\(sha256):", ofHello256),
            ("md5=:XUFAKrxLKna5cZ2REBfFkg==:,\tsha-512=:\(sha512):", ofHello512),
            ("sha-256=:\(sha256):;a;b=1;c=\"x,=\\\"\\\\\";d=?0;*e=:AA==:;f=tok/en:*", ofHello256),
            (
                "id-sha-256=\"no bytes\", a, b=?1, c=-1.5, d=@1659578233, e=%\"f%c3%bc\", f=(1 \"2\";x   tok);y=2, g=(), sha-256=:\(sha256):",
                ofHello256
            ),
            // RFC 9651 §4.2.7: padding may be missing.
            ("sha-256=:\(sha256.dropLast()):", ofHello256),
            // §4.2.2: of two members with one key, the last counts.
            ("sha-256=:\(other256):, sha-256=:\(sha256):", ofHello256),
            ("sha-256=:AAAA:, sha-512=:\(sha512):", ofHello512),
            ("sha-256=\"\(sha256)\", sha-512=:\(sha512):", ofHello512),
        ] as [(String, Checksum)])
    func `is read from a dictionary of structured fields`(field: String, expected: Checksum) {
        #expect(ofRepr(field).preferred == expected)
        #expect(StatedDigests(reprDigest: nil, digest: nil, contentDigest: Array(field.utf8)).preferred == expected)
    }

    @Test(arguments: [
        "", " ", ",", "sha-256", "sha-256=", "sha-256=:", "sha-256=:\(sha256)", "sha-256=\(sha256)", "SHA-256=:\(sha256):",
        "sha-256=:\(sha256):,", "sha-256=:\(sha256):, ", ",sha-256=:\(sha256):", "sha-256=:\(sha256): x", "sha-256 =:\(sha256):",
        "sha-256= :\(sha256):", "\tsha-256=:\(sha256):", "sha-256=:\(sha256):;", "sha-256=:\(sha256):;A", "sha-256=:\(sha256):;a=",
        "sha-256=:\(sha256.dropLast(4)):", "sha-256=:\(sha256) :", "sha-256=:A\(sha256):", "sha-256=:!\(sha256.dropFirst()):",
        "sha-256=:\(sha256):, sha-256=1", "sha-256=:\(sha256):, sha-256=:AAAA:", "sha-256=:\(sha256):, \u{E9}", "a=\", sha-256=:\(sha256):",
        "a=\"\\x\", sha-256=:\(sha256):", "a=(, sha-256=:\(sha256):", "a=(1, sha-256=:\(sha256):", "a=(\"1\"2), sha-256=:\(sha256):",
        "a=?2, sha-256=:\(sha256):", "a=-, sha-256=:\(sha256):", "a=1234567890123456, sha-256=:\(sha256):",
        "a=1234567890123.1, sha-256=:\(sha256):", "a=1.1234, sha-256=:\(sha256):", "a=1., sha-256=:\(sha256):",
        "a=@1.5, sha-256=:\(sha256):",
        "a=%\"%C3\", sha-256=:\(sha256):", "a=%\"%c\", sha-256=:\(sha256):", "a=%x, sha-256=:\(sha256):",
        // Weak or unknown algorithms.
        "md5=:XUFAKrxLKna5cZ2REBfFkg==:", "sha=:qvTGHdzF6KLavt4PO0gs2a6pQ00=:", "sha-1=:qvTGHdzF6KLavt4PO0gs2a6pQ00=:",
        "sha256=:\(sha256):", "unixsum=:AAAA:", "sha-384=:AAAA:",
    ])
    func `is not read from a field that is malformed, weak or of another length`(field: String) {
        #expect(ofRepr(field) == StatedDigests() && ofRepr(field).preferred == nil)
    }

    @Test(
        arguments: [
            ("SHA-256=\(sha256)", ofHello256), ("sha-256=\(sha256)", ofHello256), ("Sha-512=\(sha512)", ofHello512),
            ("SHA-512=\(sha512),SHA-256=\(sha256)", ofHello256), (" UNIXsum=30637 , ,SHA-256=\(sha256)\t", ofHello256),
            ("MD5=XUFAKrxLKna5cZ2REBfFkg==,SHA=qvTGHdzF6KLavt4PO0gs2a6pQ00=,SHA-512=\(sha512)", ofHello512),
            ("SHA-256=\(sha256),SHA-256=\(sha256)", ofHello256), ("nonsense;,SHA-256=\(sha256)", ofHello256),
        ] as [(String, Checksum)])
    func `is read from Digest, whose algorithms have names in any case`(field: String, expected: Checksum) {
        #expect(ofOld(field).preferred == expected)
    }

    @Test(arguments: [
        "", ",", "=", "SHA-256", "SHA-256=", "SHA-256=:\(sha256):", "SHA-256=\(sha256) x", "SHA-256 =\(sha256)", "SHA256=\(sha256)",
        "SHA-256=2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", "MD5=XUFAKrxLKna5cZ2REBfFkg==",
        "\u{17F}HA-256=\(sha256)",
        // Two different digests by one algorithm say nothing.
        "SHA-256=\(sha256),SHA-256=\(other256)",
    ])
    func `is not read from a Digest that is malformed, weak or contradictory`(field: String) {
        #expect(ofOld(field) == StatedDigests())
    }

    @Test func `counts by the first field that states it, for each algorithm`() {
        let all = StatedDigests(
            reprDigest: Array("sha-512=:\(sha512):".utf8), digest: Array("SHA-256=\(sha256)".utf8),
            contentDigest: Array("sha-256=:\(other256):".utf8))
        #expect(all.preferred == ofHello256)
        #expect(!all.contradict(ofHello512) && !all.contradict(ofHello256) && !all.contradict(nil))
        #expect(all.contradict(Checksum(.sha256, digest: [UInt8](repeating: 7, count: 32))))
        #expect(all.contradict(Checksum(.sha512, digest: [UInt8](repeating: 7, count: 64))))
        // Nothing is known about another algorithm.
        #expect(!StatedDigests(reprDigest: Array("sha-512=:\(sha512):".utf8), digest: nil, contentDigest: nil).contradict(ofHello256))
    }

    @Test func `is not read from a field of more than 4096 bytes`() {
        let digest = "sha-256=:\(sha256):"
        for (length, isRead) in [(4096, true), (4097, false)] {
            let filler = "a=\"" + String(repeating: "x", count: length - digest.utf8.count - 5) + "\","
            #expect((ofRepr(filler + digest).preferred != nil) == isRead)
        }
    }

    /// Each input is made of pieces of right fields, so that it comes far into the parser.
    @Test func `of any bytes does not trap`() {
        let pieces = [
            "sha-256", "=", ":", sha256, sha512, ",", " ", "\t", ";", "(", ")", "\"", "\\", "?", "0", "1", "@", "%", "-", ".", "a", "*",
            "\u{0}",
            "\u{FF}", "%\"", "sha-512=:", "SHA-256=", "==",
        ]
        var random = SeededRandom(9530)
        for _ in 0..<20_000 {
            let field = (0..<Int.random(in: 0...12, using: &random)).map { _ in pieces.randomElement(using: &random)! }.joined()
            for digests in [ofRepr(field), ofOld(field)] {
                if let preferred = digests.preferred { #expect(preferred == ofHello256 || preferred == ofHello512, "\(field)") }
            }
        }
    }
}
