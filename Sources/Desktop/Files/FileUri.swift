internal import DownloadModel

/// The `file:` URI of an absolute path (RFC 8089).
func fileUri(_ path: String) -> String { "file://" + percentEncoded(path: path) }
