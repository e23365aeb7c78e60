internal import CCurl

/// The cookies of one download, which its exchanges have in common, and no exchange of another download. Used by one thread.
///
/// libcurl decides which cookies a response may set, and which of them a request carries (RFC 6265): by domain, path, expiry and the
/// `Secure` flag, and by the public suffix list if libcurl is built with libpsl.
package final class CookieJar {
    /// A handle of libcurl (`CURLSH`). Every easy handle that uses it holds this object, because libcurl frees no share that is in use.
    let share: UnsafeMutableRawPointer

    /// - Parameter lines: the first cookies, as lines of the Netscape cookie file format. libcurl ignores a line that it cannot read.
    package init(_ lines: [String]) throws(CurlError) {
        guard let share = share_init() else { throw CurlError(.noMemory, "curl_share_init failed") }
        self.share = share
        guard share_cookies(share) == CURLSHE_OK else { throw CurlError(.other, "curl_share_setopt failed") }
        if lines.isEmpty { return }
        var easy = try EasyHandle()
        easy.use(self)
        for line in lines { easy.set(CURLOPT_COOKIELIST, line) }
    }

    deinit { _ = share_cleanup(share) }

    /// All cookies, as lines of the Netscape cookie file format. Some may have expired: libcurl drops these when they are used. Those that
    /// are not UTF-8 are left out.
    package var lines: [String] {
        do throws(CurlError) {
            var easy = try EasyHandle()
            easy.use(self)
            return easy.cookies
        } catch {
            return []
        }
    }
}
