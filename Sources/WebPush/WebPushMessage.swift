internal import CCrypto

extension WebPushKeys {
    /// The bytes of the header before the key: salt, record size, length of the key (RFC 8188 §2.1).
    private static let fixedHeader = 21
    private static let tagLength = 16

    /// Decrypts the body of a push message (RFC 8291; the content coding `aes128gcm` of RFC 8188, with one record).
    ///
    /// - Returns: the plain text, without padding.
    public func decrypt(_ body: [UInt8]) throws(WebPushError) -> [UInt8] {
        if let reason = todoku_crypto_load() { throw .unavailable(String(cString: reason)) }
        guard body.count > Self.fixedHeader else { throw .malformed("its header has 86 bytes, and it has \(body.count)") }
        let salt = Array(body[..<16])
        let recordSize = body[16..<20].reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
        guard Int(body[20]) == Self.pointLength else { throw .malformed("the key in its header has \(body[20]) bytes instead of 65") }
        let rest = body.dropFirst(Self.fixedHeader)
        let sender = Array(rest.prefix(Self.pointLength))
        guard Self.isPoint(sender) else { throw .malformed("the key in its header is not an uncompressed point") }
        let record = rest.dropFirst(Self.pointLength)
        guard record.count > Self.tagLength else { throw .malformed("its record is too short") }
        guard recordSize >= 18, record.count <= recordSize else { throw .malformed("it has more than one record") }

        let (key, nonce) = try contentKey(sender: sender, salt: salt)
        let cipherText = Array(record.dropLast(Self.tagLength))
        var plain = [UInt8](repeating: 0, count: cipherText.count)
        guard todoku_aes_128_gcm_open(key, nonce, cipherText, cipherText.count, Array(record.suffix(Self.tagLength)), &plain) == 1 else {
            throw .notAuthentic
        }
        // The last record ends with 2 and any number of zeros (RFC 8188 §2).
        guard let end = plain.lastIndex(where: { $0 != 0 }), plain[end] == 2 else { throw .malformed("its padding is wrong") }
        return Array(plain[..<end])
    }

    /// The key and the nonce of the record (RFC 8291 §3.4, RFC 8188 §2.2 and §2.3).
    private func contentKey(sender: [UInt8], salt: [UInt8]) throws(WebPushError) -> (key: [UInt8], nonce: [UInt8]) {
        var shared = [UInt8](repeating: 0, count: 32)
        guard todoku_p256_agree(privateKey, publicKey, sender, &shared) == 1 else {
            throw .malformed("the key in its header is not on the curve P-256")
        }
        let info = Array("WebPush: info\0".utf8) + publicKey + sender
        let input = try Self.hkdf(salt: authSecret, input: shared, info: info, count: 32)
        let key = try Self.hkdf(salt: salt, input: input, info: Array("Content-Encoding: aes128gcm\0".utf8), count: 16)
        let nonce = try Self.hkdf(salt: salt, input: input, info: Array("Content-Encoding: nonce\0".utf8), count: 12)
        return (key, nonce)
    }

    /// HKDF with SHA-256 (RFC 5869), for at most 32 bytes.
    private static func hkdf(salt: [UInt8], input: [UInt8], info: [UInt8], count: Int) throws(WebPushError) -> [UInt8] {
        Array(try hmac(try hmac(salt, input), info + [1]).prefix(count))
    }

    private static func hmac(_ key: [UInt8], _ bytes: [UInt8]) throws(WebPushError) -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: 32)
        guard todoku_hmac_sha256(key, key.count, bytes, bytes.count, &digest) == 1 else { throw .unavailable("libcrypto has no HMAC") }
        return digest
    }
}
