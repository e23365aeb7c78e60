/// The digests that a response states of the file it brings, or of its body: `Repr-Digest` and `Content-Digest` (RFC 9530), `Digest` (RFC
/// 3230).
///
/// Only sha-256 and sha-512 count, because another file with the same weaker digest can be made. A malformed field is ignored, as RFC 9651
/// §4.2 requires, and so is a malformed element of `Digest`.
public struct StatedDigests: Equatable, Sendable {
    /// A longer field is ignored.
    static let longestField = 4096

    /// At most one for each algorithm.
    private(set) var checksums: [Checksum] = []

    /// None.
    public init() {}

    /// For each algorithm, the first field that states its digest counts.
    ///
    /// - Parameters: the values of the fields, with the values of several field lines joined by a comma; nil: there is no such field.
    ///   For digests of the file, `contentDigest` must be nil unless the body is the whole representation.
    public init(reprDigest: [UInt8]?, digest: [UInt8]?, contentDigest: [UInt8]?) {
        add(reprDigest, Self.inDictionary)
        add(digest, Self.inList)
        add(contentDigest, Self.inDictionary)
    }

    /// The digest to check. sha-256 is preferred, because many processors have instructions for it.
    public var preferred: Checksum? { checksums.first { $0.algorithm == .sha256 } ?? checksums.first }

    /// Whether these digests and `held`, which a response stated earlier, cannot be of the same bytes.
    public func contradict(_ held: Checksum?) -> Bool {
        guard let held else { return false }
        return checksums.contains { $0.algorithm == held.algorithm && $0 != held }
    }

    private mutating func add(_ field: [UInt8]?, _ read: ([UInt8]) -> [Checksum]) {
        guard let field, field.count <= Self.longestField else { return }
        for found in read(field) where !checksums.contains(where: { $0.algorithm == found.algorithm }) { checksums.append(found) }
    }

    /// The algorithms that count, by the names of both registries in lower case.
    private static let algorithms: [(name: String, algorithm: Checksum.Algorithm)] = [("sha-256", .sha256), ("sha-512", .sha512)]

    /// `sha-256=:…:, sha-512=:…:`
    private static func inDictionary(_ field: [UInt8]) -> [Checksum] {
        guard let members = StructuredDictionary.members(field) else { return [] }
        return algorithms.compactMap { name, algorithm in
            members.last { $0.key == name }?.bytes.flatMap { Checksum(algorithm, digest: $0) }
        }
    }

    /// `SHA-256=…,SHA-512=…`. The names are case-insensitive (RFC 3230 §4.1.1). A field that states two digests by one algorithm states
    /// none.
    private static func inList(_ field: [UInt8]) -> [Checksum] {
        var found: [Checksum.Algorithm: Set<Checksum>] = [:]
        for element in field.split(separator: UInt8(ascii: ",")) {
            let element = element.trimmingBlanks
            guard let equals = element.firstIndex(of: UInt8(ascii: "=")),
                let row = algorithms.first(where: { isName(element[..<equals], $0.name) }),
                let checksum = EncodedWords.base64(element[equals...].dropFirst()).flatMap({ Checksum(row.algorithm, digest: $0) })
            else { continue }
            found[row.algorithm, default: []].insert(checksum)
        }
        return algorithms.compactMap { found[$0.algorithm].flatMap { $0.count == 1 ? $0.first : nil } }
    }

    private static func isName(_ bytes: ArraySlice<UInt8>, _ name: String) -> Bool {
        bytes.elementsEqual(name.utf8) { byte, own in
            ((UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte) ? byte | 0x20 : byte) == own
        }
    }
}
