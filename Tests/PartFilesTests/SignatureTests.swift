internal import PartFiles
internal import Testing

@Suite struct `A signature` {
    /// RFC 8032 §7.1, "TEST 1" to "TEST 3".
    static let vectors: [(secret: String, key: String, message: String, signature: String)] = [
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
        ),
        (
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
        ),
        (
            "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
        ),
    ]

    private static func bytes(_ text: String) -> [UInt8] {
        let digits = Array(text)
        return stride(from: 0, to: digits.count, by: 2).map { UInt8(String(digits[$0...($0 + 1)]), radix: 16)! }
    }

    @Test(arguments: vectors)
    func `is verified and made as RFC 8032 has it`(vector: (secret: String, key: String, message: String, signature: String)) {
        let (key, message, signature) = (Self.bytes(vector.key), Self.bytes(vector.message), Self.bytes(vector.signature))
        #expect(Signature.verify(signature, of: message, by: key) == .valid)
        let made = Signature.sign(message, by: Self.bytes(vector.secret))
        #expect(made?.signature == signature && made?.publicKey == key)
    }

    @Test func `of other bytes, by another key, changed or of another length is invalid`() {
        let (key, message, signature) = (
            Self.bytes(Self.vectors[2].key), Self.bytes(Self.vectors[2].message), Self.bytes(Self.vectors[2].signature)
        )
        #expect(Signature.verify(signature, of: message + [0], by: key) == .invalid)
        #expect(Signature.verify(signature, of: message, by: Self.bytes(Self.vectors[0].key)) == .invalid)
        for index in signature.indices {
            var changed = signature
            changed[index] ^= 1
            #expect(Signature.verify(changed, of: message, by: key) == .invalid)
        }
        for length in [0, 63, 65] {
            #expect(Signature.verify(Array((signature + [0]).prefix(length)), of: message, by: key) == .invalid)
        }
        for length in [0, 31, 33] { #expect(Signature.verify(signature, of: message, by: Array((key + [0]).prefix(length))) == .invalid) }
    }
}
