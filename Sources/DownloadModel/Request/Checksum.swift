/// An expected digest with its algorithm.
public struct Checksum: Hashable, Sendable {
    public enum Algorithm: String, CaseIterable, Sendable {
        case sha256, sha512, sha384, sha224, sha1, md5
        /// Bytes of the digest.
        public var length: Int {
            switch self {
            case .sha256: 32
            case .sha512: 64
            case .sha384: 48
            case .sha224: 28
            case .sha1: 20
            case .md5: 16
            }
        }
    }

    public let algorithm: Algorithm
    public let digest: [UInt8]

    /// nil unless `digest` has the algorithm's length.
    public init?(_ algorithm: Algorithm, digest: [UInt8]) {
        guard digest.count == algorithm.length else { return nil }
        (self.algorithm, self.digest) = (algorithm, digest)
    }
}

extension Checksum: CustomStringConvertible {
    /// Reads the option `checksum`: `sha256:<hex>`, any case.
    ///
    /// - Throws: `InvalidOption`, which names the fault.
    public init(_ text: String) throws(Refusal) {
        func invalid(_ what: String) -> Refusal { Refusal(.invalidOption, "checksum: \(what)") }
        let names = Algorithm.allCases.map(\.rawValue).joined(separator: ", ")
        guard let colon = text.firstIndex(of: ":") else {
            throw invalid("there is no \":\" after the algorithm; write it as in sha256:<hexadecimal digits>.")
        }
        guard let algorithm = Algorithm(rawValue: text[..<colon].lowercased()) else {
            throw invalid("Todoku does not know the algorithm; use one of \(names).")
        }
        let digits = text[text.index(after: colon)...].utf8
        guard digits.allSatisfy({ PercentEncoding.hexadecimal($0) != nil }) else {
            throw invalid("a character after the \":\" is not a hexadecimal digit.")
        }
        guard digits.count == algorithm.length * 2, let digest = bytes(ofHexadecimal: digits) else {
            throw invalid("\(algorithm.rawValue) has \(algorithm.length * 2) hexadecimal digits, and \(digits.count) were given.")
        }
        (self.algorithm, self.digest) = (algorithm, digest)
    }

    /// `sha256:<hex>`, lower case.
    public var description: String {
        "\(algorithm.rawValue):\(hexadecimal(digest))"
    }
}
