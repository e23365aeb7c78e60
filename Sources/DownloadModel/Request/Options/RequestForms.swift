// The forms of options that are parts of a request.

extension OptionForm where V == [Cookie] {
    /// Cookies, each as a line of the Netscape cookie file format. The database has them in one text, a line each.
    static var cookies: OptionForm {
        OptionForm(signature: "as") { key, value throws(Refusal) in
            guard case .texts(let lines) = value else { throw .wrongType(key, "as") }
            guard lines.count <= Limits.cookies else {
                throw Refusal(.limitExceeded, "Option \(key) takes at most \(Limits.cookies) cookies.")
            }
            var cookies: [Cookie] = []
            for (index, line) in lines.enumerated() {
                do throws(Refusal) { cookies.append(try Cookie(line: line)) } catch {
                    throw Refusal(error.name, "Option \(key), item \(index): \(error.message)")
                }
            }
            guard Cookie.fit(cookies) else { throw Refusal(.limitExceeded, "Option \(key) takes at most \(Limits.cookieBytes) bytes.") }
            return cookies
        } encode: {
            .texts($0.map(\.line))
        } text: {
            $0.map(\.line).joined(separator: "\n")
        } parse: { text in
            var cookies: [Cookie] = []
            for line in text.utf8.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false) {
                let line = String(decoding: line, as: UTF8.self)
                guard let cookie = try? Cookie(line: line), cookie.line.isSameBytes(as: line) else { return nil }
                cookies.append(cookie)
            }
            return Cookie.fit(cookies) ? cookies : nil
        }
    }
}

extension OptionForm where V == [HeaderField] {
    /// Header fields that may repeat, in their order. Like `headers`, this form writes no text.
    static var headerList: OptionForm {
        OptionForm(signature: "a(ss)") { key, value throws(Refusal) in
            guard case .fieldList(let fields) = value else { throw .wrongType(key, "a(ss)") }
            try RequestHeaders.check(fields, key)
            return fields
        } encode: {
            .fieldList($0)
        } text: { _ in
            ""
        } parse: { _ in
            nil
        }
    }
}

extension OptionForm where V == [UInt8] {
    /// Bytes, stored as hexadecimal digits in the database.
    ///
    /// - Parameter most: the most bytes.
    static func bytes(most: Int) -> OptionForm {
        OptionForm(signature: "ay") { key, value throws(Refusal) in
            guard case .bytes(let bytes) = value else { throw .wrongType(key, "ay") }
            guard bytes.count <= most else { throw Refusal(.limitExceeded, "Option \(key) takes at most \(most) bytes.") }
            return bytes
        } encode: {
            .bytes($0)
        } text: {
            hexadecimal($0)
        } parse: {
            $0.utf8.count / 2 <= most ? DownloadModel.bytes(ofHexadecimal: $0.utf8) : nil
        }
    }
}
