internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import PartFiles

/// An Ed25519 key that signs manifests (RFC 8032).
package struct SigningKey: Sendable {
    private let secret: [UInt8]
    package let publicKey: [UInt8]

    /// Most bytes of a key's file.
    private static let longestFile = 8 << 10
    /// The bytes before the secret in PKCS #8 (RFC 8410 §7).
    private static let head: [UInt8] = [0x30, 0x2E, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2B, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20]

    private init(_ secret: [UInt8]) throws(PackingError) {
        guard let (_, publicKey) = PartFiles.Signature.sign([], by: secret) else {
            throw PackingError("libcrypto cannot use Ed25519 here")
        }
        (self.secret, self.publicKey) = (secret, publicKey)
    }

    /// The 64 hexadecimal digits that `todoku asset add --public-key` takes.
    package var publicText: String { hexadecimal(publicKey) }

    package func sign(_ bytes: [UInt8]) throws(PackingError) -> [UInt8] {
        guard let (signature, _) = PartFiles.Signature.sign(bytes, by: secret) else {
            throw PackingError("libcrypto could not sign the manifest")
        }
        return signature
    }

    /// Reads a private key as `openssl genpkey -algorithm ed25519` writes it (PKCS #8 in PEM), or as 64 hexadecimal digits. Blocks.
    ///
    /// - Returns: also whether others may read the file.
    package static func read(_ path: String) throws(PackingError) -> (key: SigningKey, isShared: Bool) {
        // Waits for the writer of a pipe, such as <(gpg -d key.gpg).
        let file = open(path, O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { throw .of(path, "cannot be read", errno) }
        defer { close(file) }
        var status = stat()
        guard fstat(file, &status) == 0, let bytes = try? readToEnd(file, atMost: longestFile) else {
            throw PackingError("“\(path)” is no Ed25519 private key: it has more than \(longestFile) bytes, or cannot be read")
        }
        let text = String(decoding: bytes, as: UTF8.self)
        guard let secret = secret(in: text) else {
            let reason =
                text.contains("ENCRYPTED") ? "it is encrypted; decrypt it first" : "it is neither PKCS #8 in PEM nor 64 hexadecimal digits"
            throw PackingError("“\(path)” is no Ed25519 private key that can be used: \(reason)")
        }
        return (try SigningKey(secret), status.st_mode & 0o077 != 0)
    }

    private static func secret(in text: String) -> [UInt8]? {
        let lines = text.split(whereSeparator: \.isNewline).map { $0.filter { !$0.isWhitespace } }
        if lines.count == 1, let hex = try? Checksum("sha256:\(lines[0])") { return hex.digest }
        guard let start = lines.firstIndex(of: "-----BEGINPRIVATEKEY-----"), let end = lines.firstIndex(of: "-----ENDPRIVATEKEY-----"),
            start < end, let bytes = Base64.decode(lines[..<end].dropFirst(start +| 1).joined()), bytes.starts(with: head),
            bytes.count == 48
        else { return nil }
        return Array(bytes.suffix(PartFiles.Signature.keyLength))
    }

    /// Makes a key, and writes it to a new file that only its owner can read (mode 600). A file that is there already stays as it is.
    package static func make(at path: String) throws(PackingError) -> SigningKey {
        var random = SystemRandomNumberGenerator()  // getrandom(2)
        let key = try SigningKey((0..<PartFiles.Signature.keyLength).map { _ in UInt8.random(in: .min ... .max, using: &random) })
        let file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw .of(path, "cannot be made", errno) }
        defer { close(file) }
        let text = "-----BEGIN PRIVATE KEY-----\n\(Base64.encode(head + key.secret))\n-----END PRIVATE KEY-----\n"
        let code = Array(text.utf8).withUnsafeBytes { writeAll($0, to: file) }
        guard code == 0, fsync(file) == 0 else {
            let failure = code == 0 ? errno : code
            unlink(path)
            throw .of(path, "cannot be written", failure)
        }
        return key
    }
}

/// RFC 4648 §4.
enum Base64 {
    private static let letters = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)

    static func encode(_ bytes: [UInt8]) -> String {
        var text: [UInt8] = []
        for start in stride(from: 0, to: bytes.count, by: 3) {
            let group = Array(bytes[start...].prefix(3))
            let bits = (0..<3).reduce(UInt32(0)) { $0 << 8 | (group.count > $1 ? UInt32(group[$1]) : 0) }
            for place in 0..<4 {
                let letter = letters[Int(truncatingIfNeeded: bits >> (18 - 6 * UInt32(clamping: place)) & 63)]
                text.append(place <= group.count ? letter : UInt8(ascii: "="))
            }
        }
        return String(decoding: text, as: UTF8.self)
    }

    static func decode(_ text: some StringProtocol) -> [UInt8]? {
        var (bytes, bits, count): ([UInt8], UInt32, UInt32) = ([], 0, 0)
        for letter in text.utf8.reversed().drop(while: { $0 == UInt8(ascii: "=") }).reversed() {
            guard let value = letters.firstIndex(of: letter) else { return nil }
            bits = bits << 6 | UInt32(clamping: value)
            count +|= 6
            if count >= 8 {
                count -|= 8
                bytes.append(UInt8(truncatingIfNeeded: bits >> count))
            }
        }
        return bytes
    }
}
