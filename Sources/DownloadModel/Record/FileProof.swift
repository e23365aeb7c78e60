/// By what the bytes of a file are proved, the strongest first. Raw values are those of the D-Bus contract (property `ProvedBy`).
public enum FileProof: String, CaseIterable, Sendable {
    /// The caller's option `checksum`.
    case checksum
    /// The caller's option `piece-hashes`.
    case pieces
    /// A digest that the server stated: `StatedDigests`.
    case reprDigest = "repr-digest"
    /// The file has as many bytes as the server announced, or as the option `size` says.
    case length
}
