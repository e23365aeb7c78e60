internal import DownloadModel
internal import Localization

/// A cookie file in the Netscape format (`cookies.txt`).
struct CookieFile: Equatable {
    let name: String
    /// Without those that have expired, in the order of the file.
    let cookies: [Cookie]

    /// Most bytes of a file. Browsers keep a few thousand cookies.
    private static let longest = 16 << 20

    /// - Parameters:
    ///   - file: a path; `-` is standard input.
    ///   - now: cookies that expire before are skipped.
    init(file: String, now: WallTime) throws(CommandFailure) {
        guard let bytes = try InputFile.read(file, most: Self.longest) else {
            let most = catalog.size(ByteCount(clamping: Self.longest))
            throw CommandFailure(.usage, catalog.text("“%1$s” is too long for a cookie file: at most %2$s", file, most))
        }
        try self.init(bytes, name: file, now: now)
    }

    /// - Throws: naming the first line that is no cookie.
    init(_ bytes: [UInt8], name: String, now: WallTime) throws(CommandFailure) {
        var cookies: [Cookie] = []
        let mark: [UInt8] = [0xEF, 0xBB, 0xBF]  // a byte order mark, as Windows' Notepad writes
        let text = bytes.starts(with: mark) ? bytes.dropFirst(mark.count) : bytes[...]
        var number = 0
        for written in text.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false) {
            number &+= 1
            let bare = written.last == UInt8(ascii: "\r") ? written.dropLast() : written
            guard let line = String(validating: bare, as: UTF8.self) else {
                throw CommandFailure(.usage, catalog.text("%1$s, line %2$s: it is not UTF-8", name, String(number)))
            }
            if Cookie.isComment(line) || line.utf8.allSatisfy({ $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") }) { continue }
            do throws(Refusal) {
                let cookie = try Cookie(line: line)
                if !cookie.isExpired(at: now) { cookies.append(cookie) }
            } catch {
                let reason = catalog.explanation(error, namesFlag: false)
                throw CommandFailure(.usage, catalog.text("%1$s, line %2$s: %3$s", name, String(number), reason))
            }
        }
        (self.name, self.cookies) = (name, cookies)
    }

    /// The cookies for downloads of `urls`.
    ///
    /// A redirect may lead to any site, so a browser may send any of its cookies, and so do curl and wget. All of them go to the service,
    /// which sends each to its own hosts. If they are more than a download may have, those of the sites of `urls` go.
    ///
    /// - Returns: the cookies, and how many cookies of the file are left out.
    /// - Throws: if even these are too many.
    func cookies(for urls: [String]) throws(CommandFailure) -> (cookies: [Cookie], leftOut: Int) {
        if Cookie.fit(cookies) { return (cookies, 0) }
        let sites = Set(urls.compactMap { try? DownloadURL($0).host }.map(Cookie.site))
        let own = cookies.filter { sites.contains(Cookie.site(of: $0.domain)) }
        guard !own.isEmpty, Cookie.fit(own) else {
            throw CommandFailure(
                .usage,
                catalog.text(
                    "“%1$s” has more cookies than a download may have (%2$s, in %3$s); keep those of the sites that it leads to", name,
                    catalog.count(Limits.cookies), catalog.size(ByteCount(clamping: Limits.cookieBytes))))
        }
        return (own, cookies.count &- own.count)
    }
}
