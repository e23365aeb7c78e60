internal import CCrypto

/// Ed25519 signatures (RFC 8032) by libcrypto, which is loaded on first use. Keys have 32 bytes, signatures 64.
package enum Signature {
    package static let length = 64
    package static let keyLength = 32

    package enum Verdict: Equatable {
        case valid
        case invalid
        /// Whether it is valid cannot be found out.
        case unknown(reason: String)
    }

    /// Whether `signature` is that of `bytes` by the owner of `publicKey`.
    package static func verify(_ signature: [UInt8], of bytes: [UInt8], by publicKey: [UInt8]) -> Verdict {
        if let text = todoku_crypto_load() { return .unknown(reason: String(cString: text)) }
        guard signature.count == length, publicKey.count == keyLength else { return .invalid }
        guard let context = md_ctx_new() else { return .unknown(reason: "no memory") }
        defer { md_ctx_free(context) }
        guard let key = ed25519_public(publicKey, publicKey.count) else { return .invalid }
        defer { ed25519_free(key) }
        return ed25519_verify(context, key, signature, signature.count, bytes, bytes.count) == 1 ? .valid : .invalid
    }

    /// The signature of `bytes`, and the public key that verifies it; nil if libcrypto is not there, or the key has another length.
    package static func sign(_ bytes: [UInt8], by privateKey: [UInt8]) -> (signature: [UInt8], publicKey: [UInt8])? {
        guard todoku_crypto_load() == nil, privateKey.count == keyLength, let context = md_ctx_new() else { return nil }
        defer { md_ctx_free(context) }
        guard let key = ed25519_private(privateKey, privateKey.count) else { return nil }
        defer { ed25519_free(key) }
        var (signature, publicKey) = ([UInt8](repeating: 0, count: length), [UInt8](repeating: 0, count: keyLength))
        guard ed25519_sign(context, key, &signature, bytes, bytes.count) == 1, ed25519_get_public(key, &publicKey) == 1 else { return nil }
        return (signature, publicKey)
    }
}
