internal import Assets
package import DownloadModel

/// Instants as manifests have them (RFC 3339).
package enum ManifestTime {
    package static func parse(_ text: String) -> WallTime? { Timestamp.parse(text) }
}
