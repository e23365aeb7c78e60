internal import CCrypto

/// The keys of one registration (RFC 8291): a key pair on the curve P-256, and the authentication secret. libcrypto is loaded on first use.
public struct WebPushKeys: Hashable, Sendable {
    static let pointLength = 65
    static let secretLength = 16

    /// 32 bytes, big-endian. Leaves this process only for its own file.
    public let privateKey: [UInt8]
    /// The uncompressed point of 65 bytes, `p256dh` of the Push API.
    public let publicKey: [UInt8]
    /// 16 bytes, `auth` of the Push API.
    public let authSecret: [UInt8]

    /// nil unless all have their lengths.
    public init?(privateKey: [UInt8], publicKey: [UInt8], authSecret: [UInt8]) {
        guard privateKey.count == 32, Self.isPoint(publicKey), authSecret.count == Self.secretLength else { return nil }
        (self.privateKey, self.publicKey, self.authSecret) = (privateKey, publicKey, authSecret)
    }

    /// Makes new keys.
    public static func generate() throws(WebPushError) -> WebPushKeys {
        if let reason = todoku_crypto_load() { throw .unavailable(String(cString: reason)) }
        var (secret, point) = ([UInt8](repeating: 0, count: 32), [UInt8](repeating: 0, count: pointLength))
        guard todoku_p256_generate(&secret, &point) == 1 else { throw .unavailable("libcrypto makes no key on the curve P-256") }
        var random = SystemRandomNumberGenerator()
        let auth = (0..<secretLength).map { _ in UInt8.random(in: 0...255, using: &random) }
        guard let keys = WebPushKeys(privateKey: secret, publicKey: point, authSecret: auth) else {
            throw .unavailable("libcrypto made a key of another form")
        }
        return keys
    }

    /// Whether `bytes` have the form of an uncompressed point. Whether the point is on the curve is not checked.
    public static func isPoint(_ bytes: [UInt8]) -> Bool { bytes.count == pointLength && bytes[0] == 4 }
}

/// Why a message cannot be decrypted: one sentence, without a full stop.
public enum WebPushError: Error, Equatable, Sendable, CustomStringConvertible {
    /// libcrypto is missing, or one of its calls has failed.
    case unavailable(String)
    /// The bytes are no message of RFC 8291.
    case malformed(String)
    /// The message is not from somebody who has the public key and the secret, or it was changed on its way.
    case notAuthentic

    public var description: String {
        switch self {
        case .unavailable(let reason): "the message cannot be decrypted: \(reason)"
        case .malformed(let what): "the message is not encrypted as RFC 8291 says: \(what)"
        case .notAuthentic: "the message was encrypted for other keys, or was changed on its way"
        }
    }
}
