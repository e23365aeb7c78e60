internal import DownloadModel

/// The options of a download in the column `options`. Each option that is not the default has a line `key=value`, with the key of the bus.
/// Durations are in microseconds, `metadata` is in hexadecimal digits, and each header field has its own line `header`. A backslash and a
/// line feed in a value are `\\` and `\n`.
enum OptionsText {
    static func text(of options: DownloadOptions) -> String {
        var text = ""
        func line(_ key: String, _ value: String) {
            text += key
            text += "="
            for scalar in value.unicodeScalars {
                switch scalar {
                case "\\": text += "\\\\"
                case "\n": text += "\\n"
                default: text.unicodeScalars.append(scalar)
                }
            }
            text += "\n"
        }
        for row in rows { if let value = row.text(in: options) { line(row.key, value) } }
        for header in options.headers { line("header", "\(header.name): \(header.value)") }
        if options.isSandboxed { line("sandboxed", "true") }
        if let isNamed = options.isNamedByPublicServer { line("named-by-public-server", isNamed ? "true" : "false") }
        if options.isPostSent { line("post-sent", "true") }
        if options.hasForgottenSecrets { line("secrets-forgotten", "true") }
        return text
    }

    /// - Returns: the readable options, and whether these are all.
    static func read(_ text: String) -> (options: DownloadOptions, isWhole: Bool) {
        var (options, isWhole) = (DownloadOptions(), true)
        for line in text.utf8.split(separator: UInt8(ascii: "\n")) {
            guard let equals = line.firstIndex(of: UInt8(ascii: "=")), let key = String(line[..<equals]),
                let value = unescaped(line[line.index(after: equals)...])
            else {
                isWhole = false
                continue
            }
            if !take(key, value, &options) { isWhole = false }
        }
        // The unreadable option may have been the checksum.
        if !isWhole { options.checksum = nobodys }
        return (options, isWhole)
    }

    private static func unescaped(_ value: Substring.UTF8View) -> String? {
        guard value.contains(UInt8(ascii: "\\")) else { return String(value) }
        var bytes: [UInt8] = []
        var rest = value.makeIterator()
        while let byte = rest.next() {
            guard byte == UInt8(ascii: "\\") else {
                bytes.append(byte)
                continue
            }
            switch rest.next() {
            case UInt8(ascii: "\\")?: bytes.append(UInt8(ascii: "\\"))
            case UInt8(ascii: "n")?: bytes.append(UInt8(ascii: "\n"))
            default: return nil
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    private static func take(header line: String, _ options: inout DownloadOptions) -> Bool {
        let scalars = line.unicodeScalars
        guard let colon = scalars.firstIndex(of: ":"), scalars[scalars.index(after: colon)...].first == " ",
            !scalars.contains(where: { $0 == "\r" || $0 == "\n" })
        else { return false }
        let value = scalars[scalars.index(colon, offsetBy: 2)...]
        options.headers.append(HeaderField(name: String(scalars[..<colon]), value: String(value)))
        return true
    }

    private static func take(_ key: String, _ value: String, _ options: inout DownloadOptions) -> Bool {
        switch key {
        case "header": return take(header: value, &options)
        case "sandboxed":
            options.isSandboxed = true
            return value == "true"
        case "named-by-public-server":
            options.isNamedByPublicServer = value != "false"
            return value == "true" || value == "false"
        case "post-sent":
            options.isPostSent = true
            return value == "true"
        case "secrets-forgotten":
            options.hasForgottenSecrets = true
            return value == "true"
        default: return OptionRow.byKey[key]?.take(text: value, into: &options) ?? false
        }
    }

    /// Each header field has its own line.
    private static let rows = OptionRow.all.filter { !OptionRow.ofHeaders.contains($0.key) }

    /// A digest that no file has: a download whose checksum cannot be read must not pass unverified.
    private static let nobodys = Checksum(.sha256, digest: [UInt8](repeating: 0, count: Checksum.Algorithm.sha256.length))

    // MARK: From version 2

    /// SQL that makes this text from the columns of schema version 2.
    static let ofVersion2: String = {
        func escaped(_ column: String) -> String { "replace(replace(\(column), '\\', '\\\\'), char(10), '\\n')" }
        func line(_ key: String, _ value: String, where condition: String) -> String {
            "iif(\(condition), '\(key)=' || \(value) || char(10), '')"
        }
        func texts(_ columns: (key: String, column: String, standard: String?)...) -> [String] {
            columns.map { key, column, standard in
                line(key, escaped(column), where: "\(column) IS NOT " + (standard.map { "'\($0)'" } ?? "NULL"))
            }
        }
        func numbers(_ columns: (key: String, column: String, standard: Int?)...) -> [String] {
            columns.map { key, column, standard in line(key, column, where: "\(column) IS NOT " + (standard.map { "\($0)" } ?? "NULL")) }
        }
        func sizes(_ columns: (key: String, column: String)...) -> [String] {
            // Stored as the bit pattern of 64 bits.
            columns.map { line($0.key, "printf('%llu', \($0.column))", where: "\($0.column) IS NOT NULL") }
        }
        let fields =
            texts(
                ("app", "app", ""), ("token", "token", nil), ("directory", "wanted_directory", nil), ("filename", "wanted_file_name", nil),
                ("if-exists", "if_exists", "rename"), ("user-agent", "user_agent", nil), ("referrer", "referrer", nil),
                ("username", "username", nil), ("password", "password", nil), ("checksum", "checksum", nil),
                ("expect-type", "expect_type", nil), ("tag", "tag", ""), ("notify", "notify", "background"), ("title", "title", nil),
                ("body", "body", nil), ("icon", "icon", nil), ("sound", "sound", "complete-download"))
            + numbers(
                ("priority", "priority", 0), ("stall-timeout", "stall_timeout", 30_000_000), ("retries", "retries", 10),
                ("deadline", "deadline", nil))
            + sizes(("size", "size"), ("max-size", "max_size"), ("speed-limit", "speed_limit"), ("not-before", "not_before"))
            + [
                line("start", "'false'", where: "NOT start"), line("show-progress", "'false'", where: "NOT show_progress"),
                line("renewable", "'true'", where: "renewable"), line("metadata", "lower(hex(metadata))", where: "length(metadata)"),
                // Each field is "Name: value" CR LF.
                """
                iif(headers = '', '', 'header=' || replace(replace(substr(headers, 1, length(headers) - 2), '\\', '\\\\'),
                    char(13, 10), char(10) || 'header=') || char(10))
                """,
            ]
        return fields.joined(separator: " || ")
    }()
}
