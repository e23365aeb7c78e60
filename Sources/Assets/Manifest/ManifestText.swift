public import DownloadModel
internal import JSON

/// Reads a manifest: a JSON object (RFC 8259) with the fields `version`, `url` and `sha256`; optional are `size`, `unpacked-size`,
/// `timestamp` and `mirrors`. Other fields are ignored, so that publishers may add their own.
public enum ManifestText {
    /// The most bytes of a manifest.
    public static let mostBytes = 64 << 10
    /// The most bytes of a version.
    public static let longestVersion = 128
    public static let mostMirrors = 32

    /// - Parameters:
    ///   - bytes: the whole document.
    ///   - base: the URL that the document came from. Relative URLs in it are resolved against `base` (RFC 3986 §5.2).
    /// - Throws: `Manifest`; the message names the first field that is wrong.
    public static func parse(_ bytes: [UInt8], from base: DownloadURL) throws(DownloadFailure) -> AssetManifest {
        do throws(JSONError) {
            let fields = try JSONFields(JSONValue(bytes, mostBytes: mostBytes))
            var manifest = AssetManifest(
                version: try version(fields), url: try url(try fields.string("url"), at: fields.path["url"], from: base),
                sha256: try digest(fields))
            manifest.size = try size("size", fields)
            manifest.unpackedSize = try size("unpacked-size", fields)
            if let text = try fields.optionalString("timestamp") {
                guard let time = Timestamp.parse(text) else {
                    throw JSONError("\(fields.path["timestamp"]) is no instant of RFC 3339, such as 2026-11-24T18:30:00Z")
                }
                manifest.timestamp = time
            }
            let mirrors = try fields.optionalArray("mirrors") ?? []
            guard mirrors.count <= mostMirrors else { throw JSONError("\(fields.path["mirrors"]) has more than \(mostMirrors) URLs") }
            for (index, mirror) in mirrors.enumerated() {
                let path = fields.path["mirrors"][index]
                guard case .string(let text) = mirror else { throw JSONError("\(path) is not a text") }
                let mirror = try url(text, at: path, from: base)
                guard !manifest.sources.contains(where: { $0.isSameBytes(as: mirror) }) else {
                    throw JSONError("\(path) is a URL that is there already")
                }
                manifest.mirrors.append(mirror)
            }
            return manifest
        } catch {
            throw DownloadFailure(.manifest, "The manifest at \(base) cannot be used: \(error).")
        }
    }

    private static func version(_ fields: JSONFields) throws(JSONError) -> String {
        let version = try fields.string("version")
        guard !version.isEmpty else { throw JSONError("\(fields.path["version"]) is empty") }
        guard version.utf8.count <= longestVersion else {
            throw JSONError("\(fields.path["version"]) has more than \(longestVersion) bytes")
        }
        guard !version.unicodeScalars.contains(where: { $0.properties.generalCategory == .control }) else {
            throw JSONError("\(fields.path["version"]) has a control character in it")
        }
        return version
    }

    private static func url(_ text: String, at path: JSONPath, from base: DownloadURL) throws(JSONError) -> String {
        guard !text.isEmpty else { throw JSONError("\(path) is empty") }
        do throws(Refusal) {
            let url = try DownloadURL(location: Array(text.utf8), from: base)
            guard base.scheme == "http" || url.scheme == "https" else { throw Refusal(.unsafeRedirect, "it leads from https to http.") }
            return url.text
        } catch {
            throw JSONError("\(path): \(error.message.last == "." ? String(error.message.dropLast()) : error.message)")
        }
    }

    private static func digest(_ fields: JSONFields) throws(JSONError) -> Checksum {
        let text = try fields.string("sha256")
        guard text.utf8.count == 64, let checksum = try? Checksum("sha256:\(text)") else {
            throw JSONError("\(fields.path["sha256"]) is not a SHA-256 digest of 64 hexadecimal digits")
        }
        return checksum
    }

    private static func size(_ key: String, _ fields: JSONFields) throws(JSONError) -> ByteCount? {
        try fields.optionalInteger(key, in: 0...Int64.max).map { ByteCount(clamping: $0) }
    }
}
