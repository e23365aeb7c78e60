internal import DownloadModel
internal import Transport

/// The cookies of a transfer: the cookies that it began with, and the cookies that its servers have set.
struct TransferJar {
    /// nil: no request was made yet.
    fileprivate var cookies: CookieJar?
    /// `ResponseHead.cookieBytes` of the responses that have set cookies in `cookies`.
    fileprivate var setBytes = 0
    /// Whether servers have set any cookie in the transfer.
    fileprivate var hasChanged = false

    init() {}
}

extension Transfer {
    /// The cookies for the next request. If servers have set too many cookies, the transfer forgets the cookies of servers. So no server
    /// makes the memory of a transfer grow.
    func cookies() throws(CurlError) -> CookieJar {
        if let known = jar.cookies {
            if jar.setBytes <= Limits.setCookieBytes { return known }
            // A cookie that is set again replaces the earlier one, so the jar may hold less than was set.
            jar.setBytes = Self.cost(of: known.lines) -| Self.cost(of: request.cookies)
            if jar.setBytes <= Limits.setCookieBytes / 2 { return known }
        }
        let fresh = try CookieJar(request.cookies)
        (jar.cookies, jar.setBytes) = (fresh, 0)
        return fresh
    }

    /// The approximate memory for cookies with these lines.
    private static func cost(of lines: [String]) -> Int { lines.reduce(0) { $0 +| $1.utf8.count +| ResponseHead.cookieCost } }

    /// An exchange has ended.
    ///
    /// - Parameter bytes: `ResponseHead.cookieBytes` of its responses.
    func noteCookies(bytes: Int) {
        guard bytes > 0 else { return }
        jar.setBytes = jar.setBytes +| bytes
        jar.hasChanged = true
    }

    /// Reports the cookies at the end, if servers have set some, and the service may keep so many.
    func reportCookies() {
        guard jar.hasChanged, let lines = jar.cookies?.lines else { return }
        let bytes = lines.reduce(0) { $0 +| $1.utf8.count }
        if bytes <= Limits.keptCookieBytes { events.append(.cookies(request.number, lines)) }
    }
}
