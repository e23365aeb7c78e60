internal import DownloadModel
internal import JSON

/// A push message as the app's server wrote it.
public struct PushMessage: Equatable, Sendable {
    /// Most bytes of the JSON text, and of the encrypted message around it.
    public static let mostBytes = 4096
    private static let keys: Set<String> = ["url", "sha256", "size", "valid-until", "type"]

    public var url: String
    /// 64 hexadecimal digits, in lower case.
    public var sha256: String
    public var size: UInt64
    /// Seconds since the Unix epoch.
    public var validUntil: UInt64
    public var type: String?

    /// - Throws: `length` or `format`, naming the field at fault.
    public init(_ bytes: [UInt8]) throws(PushRefusal) {
        guard !bytes.isEmpty else { throw PushRefusal(.length, "the message is empty") }
        guard bytes.count <= Self.mostBytes else {
            throw PushRefusal(.length, "the message has \(bytes.count) bytes; at most \(Self.mostBytes) are allowed")
        }
        do throws(JSONError) {
            let fields = try JSONFields(try JSONValue(bytes, mostBytes: Self.mostBytes, mostDepth: 2))
            try fields.expectOnly(Self.keys)
            url = try fields.string("url")
            let digest = try fields.string("sha256")
            guard digest.utf8.count == 64, let checksum = try? Checksum("sha256:\(digest)") else {
                throw JSONError("“sha256” is not 64 hexadecimal digits")
            }
            sha256 = String(checksum.description.dropFirst("sha256:".utf8.count))
            size = UInt64(clamping: try fields.integer("size", in: 0...Int64.max))
            validUntil = UInt64(clamping: try fields.integer("valid-until", in: 0...Int64.max))
            type = try fields.optionalString("type")
        } catch { throw PushRefusal(.format, error.messageWithoutQuote) }
    }
}

/// A message that the rules allow.
public struct AcceptedPush: Hashable, Sendable {
    public var url: String
    public var sha256: String
    public var size: UInt64
    /// The media type or range that the file must have; nil: any.
    public var type: String?
    /// Seconds since the Unix epoch.
    public var validUntil: UInt64
    /// Milliseconds that the file may take, from the message's arrival. Fixed, because a repeated `Fetch` must have the same options.
    public var patience: UInt64

    public init(url: String, sha256: String, size: UInt64, type: String?, validUntil: UInt64, patience: UInt64) {
        (self.url, self.sha256, self.size, self.type) = (url, sha256, size, type)
        (self.validUntil, self.patience) = (validUntil, patience)
    }

    /// Whether both name the same file.
    public func isSameFile(as other: AcceptedPush) -> Bool { url == other.url && sha256 == other.sha256 }
}
