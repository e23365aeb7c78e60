import Testing
import WebPush

/// RFC 8291, Appendix A.
private enum Vector {
    static func bytes(_ text: String) -> [UInt8] { Base64URL.decode(text.utf8) ?? [] }
    static let plain = Array("When I grow up, I want to be a watermelon".utf8)
    static let privateKey = bytes("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94")
    static let publicKey = bytes("BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4")
    static let authSecret = bytes("BTBZMqHH6r4Tts7J_aSIgg")
    static let body = bytes(
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4"
            + "Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN")

    static func keys() throws -> WebPushKeys {
        try #require(WebPushKeys(privateKey: privateKey, publicKey: publicKey, authSecret: authSecret))
    }
}

@Suite struct `A Web Push message` {
    @Test func `of RFC 8291 is decrypted`() throws {
        #expect(try Vector.keys().decrypt(Vector.body) == Vector.plain)
    }

    @Test func `with any changed byte is refused`() throws {
        let keys = try Vector.keys()
        // The record's size is no part of the cryptography: a larger one changes nothing.
        for index in Vector.body.indices where !(16..<20).contains(index) {
            var body = Vector.body
            body[index] ^= 1
            #expect(throws: WebPushError.self, "byte \(index)") { try keys.decrypt(body) }
        }
    }

    @Test func `that is cut anywhere is refused`() throws {
        let keys = try Vector.keys()
        for count in 0..<Vector.body.count {
            #expect(throws: WebPushError.self, "\(count) bytes") { try keys.decrypt(Array(Vector.body[..<count])) }
        }
        #expect(throws: WebPushError.notAuthentic) { try keys.decrypt(Vector.body + [0]) }
    }

    @Test func `for other keys is refused`() throws {
        #expect(throws: WebPushError.notAuthentic) { try WebPushKeys.generate().decrypt(Vector.body) }
        let other = try #require(
            WebPushKeys(
                privateKey: Vector.privateKey, publicKey: Vector.publicKey, authSecret: [UInt8](repeating: 0, count: 16)))
        #expect(throws: WebPushError.notAuthentic) { try other.decrypt(Vector.body) }
    }

    @Test func `says what is wrong with it`() throws {
        let keys = try Vector.keys()
        func complaint(_ change: (inout [UInt8]) -> Void) -> String? {
            var body = Vector.body
            change(&body)
            do throws(WebPushError) { _ = try keys.decrypt(body) } catch { return error.description }
            return nil
        }
        let start = "the message is not encrypted as RFC 8291 says: "
        #expect(complaint { $0 = Array("{\"url\": \"x\"}".utf8) } == start + "its header has 86 bytes, and it has 12")
        #expect(complaint { $0[20] = 64 } == start + "the key in its header has 64 bytes instead of 65")
        #expect(complaint { $0[21] = 2 } == start + "the key in its header is not an uncompressed point")
        #expect(complaint { $0[85] ^= 1 } == start + "the key in its header is not on the curve P-256")
        #expect(complaint { $0[16...19] = [0, 0, 0, 18] } == start + "it has more than one record")
        #expect(complaint { $0[16...19] = [0, 0, 0, 0] } == start + "it has more than one record")
        #expect(complaint { $0.removeLast($0.count - 90) } == start + "its record is too short")
    }

    @Test func `keys are made at random, and have their lengths`() throws {
        let (one, other) = (try WebPushKeys.generate(), try WebPushKeys.generate())
        #expect(one != other && one.privateKey.count == 32 && WebPushKeys.isPoint(one.publicKey) && one.authSecret.count == 16)
        #expect(WebPushKeys(privateKey: [1], publicKey: one.publicKey, authSecret: one.authSecret) == nil)
    }
}

@Suite struct `base64url` {
    @Test(arguments: 0...67) func `gives back what went in`(count: Int) {
        let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 77 &+ 200) }
        let text = Base64URL.encode(bytes)
        #expect(Base64URL.decode(text.utf8) == bytes)
        let padding = String(repeating: "=", count: (4 - text.utf8.count % 4) % 4)
        #expect(Base64URL.decode((text + padding).utf8) == bytes)
    }

    @Test(arguments: ["A", "AAAAA", "AB=", "A===", "=", "AA=A", "AB", "A A", "é", "AA\n", "AAA===", "Zm9v===="])
    func `refuses what it would not write`(text: String) { #expect(Base64URL.decode(text.utf8) == nil) }

    @Test func `reads the other alphabet`() { #expect(Base64URL.decode("+/+/".utf8) == Base64URL.decode("-_-_".utf8)) }
}
