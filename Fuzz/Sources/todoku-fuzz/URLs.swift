internal import DownloadModel

/// The bytes as a URL; and, cut at the first line breaks, as the parts of a URL with a user, a password and a query that must not be told.
func fuzzURL(_ bytes: [UInt8]) {
    let text = String(decoding: bytes, as: UTF8.self)
    if let url = try? DownloadURL(text) { checkURL(url) }
    for base in ["https://a.example:81/b/c;d?q", "http://[::1]"] {
        guard let base = try? DownloadURL(base), let url = try? DownloadURL(location: bytes, from: base) else { continue }
        checkURL(url)
    }
    for uri in [text, "file://\(text)"] {
        if let path = localPath(ofFileURI: uri) {
            check(path.utf8.first == UInt8(ascii: "/") && !path.utf8.contains(0), "\(path) from \(uri)")
        }
    }

    let parts = bytes.split(separator: 10, maxSplits: 3, omittingEmptySubsequences: false).map { String(decoding: $0, as: UTF8.self) }
    func part(_ index: Int, without marks: String) -> String {
        guard parts.indices.contains(index) else { return "" }
        // Scalars: a slash with a combining mark after it is another character.
        return String(String.UnicodeScalarView(parts[index].unicodeScalars.filter { !marks.unicodeScalars.contains($0) }))
    }
    let (user, host, path, query) = (part(0, without: "/?#"), part(1, without: "@/?#"), part(2, without: "?"), part(3, without: ""))
    let given = "https://\(user)\(secret):\(secret)\(user)@\(host)/\(path)?\(secret)\(query)"
    do throws(Refusal) {
        let url = try DownloadURL(given)
        checkURL(url)
        check(url.password?.contains(secret) == true, "the password of \(given)")
        check(path.utf8.contains(UInt8(ascii: "#")) || url.query?.contains(secret) == true, "the query of \(given)")
        for told in [url.redacted, url.description, "\(url)", url.origin, url.host, url.path, url.lastPathComponent] {
            check(!told.contains(secret), "\(told) tells of \(given)")
        }
        check(!url.text.prefix { $0 != "?" }.contains(secret), "\(url.text) tells of \(given)")
    } catch {
        check(!error.message.contains(secret), "\(error.message) tells of \(given)")
        check([.invalidUrl, .limitExceeded].contains(error.name), "\(error)")
    }
}

private let secret = "s3cr3t"

private func checkURL(_ url: DownloadURL) {
    check((try? DownloadURL(url.text)) == url.withoutCredentials, "\(url.text) is another URL")
    check(url.redacted.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }, "\(url.redacted.debugDescription)")
    check(url.text.utf8.count <= Limits.urlBytes, "\(url.text.utf8.count) bytes")
    check(!url.redacted.contains("?") && !url.redacted.contains("#"), url.redacted)
    check(!url.host.contains("@") && !url.host.contains("/"), url.host)
    check(url.path.hasPrefix("/") && !url.lastPathComponent.contains("/"), url.path)
    check(!url.path.split(separator: "/").contains { [".", ".."].contains($0.lowercased().replacing("%2e")) }, url.path)
    for text in [url.username, url.password] {
        check(text?.unicodeScalars.contains { $0.value < 0x20 || $0.value == 0x7F } != true, "\(text.debugDescription)")
    }
    _ = url.isHostLiteralPrivate
}

extension DownloadURL {
    /// The same URL as its `text` tells it.
    fileprivate var withoutCredentials: DownloadURL? {
        guard username != nil || password != nil else { return self }
        return try? DownloadURL("\(scheme)://\(host.contains(":") ? "[\(host)]" : host):\(port)\(path)\(query.map { "?" + $0 } ?? "")")
    }
}

extension String {
    /// Every "%2e" as a dot.
    fileprivate func replacing(_ escape: String) -> String {
        split(separator: escape, omittingEmptySubsequences: false).joined(separator: ".")
    }
}
