/// The content of `Referer` (RFC 9110 §10.1.3). It never holds user, password or fragment. An http server learns nothing of an https page.
public enum Referrer {
    /// `text` without user, password and fragment. `text` may be anything, such as a page of another scheme or a part of a URL.
    public static func withoutSecrets(_ text: String) -> String {
        let bytes = Array(text.utf8.prefix { $0 != UInt8(ascii: "#") })
        // The authority follows "//", at the start or after the scheme.
        let slash = UInt8(ascii: "/")
        guard let first = bytes.firstIndex(of: slash), first &+ 1 < bytes.count, bytes[first &+ 1] == slash,
            first == 0 || bytes[first &- 1] == UInt8(ascii: ":")
        else { return String(decoding: bytes, as: UTF8.self) }
        let authority = bytes[(first &+ 2)...]
        let end = authority.firstIndex { "/?\\".utf8.contains($0) } ?? authority.endIndex
        guard let at = authority[..<end].lastIndex(of: UInt8(ascii: "@")) else { return String(decoding: bytes, as: UTF8.self) }
        return String(decoding: bytes[..<(first &+ 2)] + bytes[(at &+ 1)...], as: UTF8.self)
    }

    /// The `Referer` for a request to `url`, from `text`; nil: send none.
    public static func sent(_ text: String, to url: DownloadURL) -> String? {
        let isSecure = text.drop { $0 == " " }.prefix(6).lowercased() == "https:"
        let shown = withoutSecrets(text)
        return shown.isEmpty || isSecure && url.scheme != "https" ? nil : shown
    }
}

/// A fresh link for a download, with its options. If the new link has another origin, the options of the old link are dropped.
public struct FreshLink: Sendable {
    public let url: DownloadURL
    /// nil: the download's headers stay.
    public var headers: [HeaderField]?
    /// nil: the download's cookies stay, whatever the origin, because each cookie names its hosts.
    public var cookies: [Cookie]?
    public var referrer: String?
    public var username: String?
    public var password: String?
    /// nil: the download's proxy stays, whatever the origin. `ReplaceUrl` does not change it.
    package var proxy: ProxyAddress??
    /// As `DownloadOptions.isNamedByPublicServer`; nil: the caller of `ReplaceUrl` has named the URL.
    package var isNamedByPublicServer: Bool?

    public init(_ url: DownloadURL) { self.url = url }

    /// Replaces the options that belong to the URL.
    ///
    /// - Parameter old: the download's URL before.
    package func apply(to options: inout DownloadOptions, from old: String) {
        if (try? DownloadURL(old))?.origin != url.origin {
            (options.headers, options.referrer, options.username, options.password) = ([], nil, nil, nil)
        }
        options.isNamedByPublicServer = isNamedByPublicServer
        if let headers { options.headers = headers }
        if let cookies { options.cookies = cookies }
        if let proxy { options.proxy = proxy }
        if let referrer { options.referrer = referrer.isEmpty ? nil : Referrer.withoutSecrets(referrer) }
        if let username = username ?? url.username {
            (options.username, options.password) = (username, password ?? (self.username == nil ? url.password : nil))
        } else if let password {
            options.password = password
        }
    }
}
