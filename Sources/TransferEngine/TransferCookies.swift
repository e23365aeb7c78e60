internal import DownloadModel
internal import Transport

/// The cookies of a transfer: those that it began with, and those that its servers have set.
struct TransferJar {
    /// nil: no request was made yet.
    fileprivate var cookies: CookieJar?
    /// The bytes of the cookies that servers have set in `cookies`.
    fileprivate var setBytes = 0
    /// Whether servers have set any cookie in the transfer.
    fileprivate var hasChanged = false

    init() {}
}

extension Transfer {
    /// The cookies for the next request. Servers that set too many lose theirs, so that none makes the transfer grow.
    func cookies() throws(CurlError) -> CookieJar {
        if let known = jar.cookies, jar.setBytes <= Limits.setCookieBytes { return known }
        let fresh = try CookieJar(request.cookies)
        (jar.cookies, jar.setBytes) = (fresh, 0)
        return fresh
    }

    /// An exchange has ended, whose responses have set cookies of so many bytes.
    func noteCookies(bytes: Int) {
        guard bytes > 0 else { return }
        jar.setBytes = jar.setBytes +| bytes
        jar.hasChanged = true
    }

    /// Reports the cookies at the end, if servers have set some that are not too many to keep.
    func reportCookies() {
        guard jar.hasChanged, let lines = jar.cookies?.lines else { return }
        let bytes = lines.reduce(0) { $0 +| $1.utf8.count }
        if bytes <= Limits.keptCookieBytes { events.append(.cookies(request.number, lines)) }
    }
}
