internal import CCurl

/// A libcurl easy handle and the memory that its options point to. All of it is freed together, once.
struct EasyHandle: ~Copyable {
    let raw: UnsafeMutableRawPointer
    private var headers: UnsafeMutablePointer<curl_slist>?
    /// libcurl writes the cause of a failure here; it must outlive the handle's last use.
    private let errorText: UnsafeMutablePointer<CChar>
    /// Kept until the handle is freed.
    private var jar: CookieJar?

    init() throws(CurlError) {
        guard let raw = easy_init() else { throw CurlError(.noMemory, "curl_easy_init failed") }
        self.raw = raw
        errorText = .allocate(capacity: Int(CURL_ERROR_SIZE))
        errorText.initialize(repeating: 0, count: Int(CURL_ERROR_SIZE))
        set(CURLOPT_ERRORBUFFER, UnsafeMutableRawPointer(errorText))
    }

    deinit {
        easy_cleanup(raw)
        if let headers { slist_free_all(headers) }
        errorText.deallocate()
    }

    /// Sets an option; libcurl copies strings. An option that libcurl rejects is our mistake, and stops a build with assertions.
    func set(_ option: CURLoption, _ value: String) { check(easy_setopt(raw, option, value)) }
    func set(_ option: CURLoption, _ value: Int) { check(easy_setopt(raw, option, value)) }
    func set(_ option: CURLoption, _ value: UnsafeMutableRawPointer?) { check(easy_setopt(raw, option, value)) }
    func set(_ option: CURLoption, _ value: @escaping curl_write_callback) { check(easy_setopt(raw, option, value)) }
    func set(_ option: CURLoption, _ value: @escaping curl_prereq_callback) { check(easy_setopt(raw, option, value)) }
    func set(_ option: CURLoption, _ value: @escaping curl_opensocket_callback) { check(easy_setopt(raw, option, value)) }

    /// Sets the path of a store of certificates; nil: none, not even the one that libcurl is built with.
    func set(_ option: CURLoption, path: String?) {
        if let path { return set(option, path) }
        // Not checked: where the TLS library has no folders of certificates, libcurl rejects the option, and there is nothing to take away.
        _ = easy_setopt(raw, option, nil as UnsafeMutableRawPointer?)
    }

    /// Sets the request's own header lines ("Name: value"), in this order.
    mutating func setHeaders(_ lines: [String]) {
        guard headers == nil else { return }
        for line in lines {
            guard let longer = slist_append(headers, line) else { break }
            headers = longer
        }
        if let headers { check(easy_setopt(raw, CURLOPT_HTTPHEADER, headers)) }
    }

    /// Makes the request a POST with this body, which libcurl copies.
    func setBody(_ body: [UInt8]) {
        set(CURLOPT_POSTFIELDSIZE, body.count)
        // One byte more, because libcurl takes a null pointer for no body.
        var bytes = body
        bytes.append(0)
        let raw = raw
        let code = bytes.withUnsafeMutableBytes { easy_setopt(raw, CURLOPT_COPYPOSTFIELDS, $0.baseAddress) }
        check(code)
    }

    /// Takes the cookies of `jar` into requests, and those of responses into `jar`.
    mutating func use(_ jar: CookieJar) {
        self.jar = jar
        set(CURLOPT_SHARE, jar.share)
        set(CURLOPT_COOKIEFILE, "")  // reads no file: it turns the cookies on
    }

    private func check(_ code: CURLcode) {
        assert(code == CURLE_OK, "curl_easy_setopt: \(code.rawValue)")
    }

    func text(_ info: CURLINFO) -> String? {
        var value: UnsafeMutablePointer<CChar>?
        guard easy_getinfo(raw, info, &value) == CURLE_OK, let value else { return nil }
        return String(cString: value)
    }

    func number(_ info: CURLINFO) -> Int {
        var value = 0
        return easy_getinfo(raw, info, &value) == CURLE_OK ? value : 0
    }

    /// The cookies that the handle uses, as lines of the Netscape cookie file format; those in UTF-8.
    var cookies: [String] {
        var list: UnsafeMutablePointer<curl_slist>?
        guard easy_getinfo(raw, CURLINFO_COOKIELIST, &list) == CURLE_OK, let first = list else { return [] }
        defer { slist_free_all(first) }
        var lines: [String] = []
        var next: UnsafeMutablePointer<curl_slist>? = first
        while let item = next {
            if let data = item.pointee.data, let line = String(validatingCString: data) { lines.append(line) }
            next = item.pointee.next
        }
        return lines
    }

    /// The last connection's socket; nil if the connection was closed.
    var socket: Int32? {
        var value: curl_socket_t = -1
        return easy_getinfo(raw, CURLINFO_ACTIVESOCKET, &value) == CURLE_OK && value >= 0 ? value : nil
    }

    /// The cause of the last failure in the words of libcurl or its TLS library; may be empty.
    var errorDetail: String { String(cString: errorText) }
}
