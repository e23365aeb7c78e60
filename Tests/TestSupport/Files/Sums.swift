/// The digest of `bytes` by a program of coreutils, which is not the code under test.
public func digest(of bytes: [UInt8], by program: String = "sha256sum") async -> [UInt8] {
    let folder = TemporaryFolder("todoku-sum")
    writeFile(folder("bytes"), bytes)
    let digits = Array(await Child.run([program, folder("bytes")]).output.prefix { $0 != " " })
    return stride(from: 0, to: digits.count, by: 2).compactMap { UInt8(String(digits[$0...($0 + 1)]), radix: 16) }
}

/// The option `piece-hashes` of a file, by programs of coreutils. At least one byte.
public func pieceHashes(of bytes: [UInt8], length: Int) async -> String {
    let folder = TemporaryFolder("todoku-sum")
    writeFile(folder("bytes"), bytes)
    let sums = await Child.run(["split", "-b", "\(length)", "--filter", "sha256sum", folder("bytes")]).output
    return "sha256:\(length):" + sums.split(separator: "\n").map { $0.prefix { $0 != " " } }.joined()
}

/// Two lower-case digits for each byte.
public func hexadecimal(_ bytes: [UInt8]) -> String { bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined() }

/// RFC 4648 §4.
public func base64(_ bytes: [UInt8]) -> String {
    let letters = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
    var text = ""
    for start in stride(from: 0, to: bytes.count, by: 3) {
        let group = bytes[start..<min(start + 3, bytes.count)]
        let bits = (0..<3).reduce(0) { $0 << 8 | (start + $1 < group.endIndex ? Int(group[start + $1]) : 0) }
        for place in 0..<4 { text.append(place <= group.count ? letters[bits >> (18 - 6 * place) & 63] : "=") }
    }
    return text
}
