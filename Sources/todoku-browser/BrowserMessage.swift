internal import DBus
internal import DownloadModel
internal import JSON

/// A request of the extension. docs/browser.md describes the messages.
enum BrowserMessage: Equatable, Sendable {
    /// Queue a download.
    case download(BrowserDownload)
    /// Report the state of the service.
    case status
    /// Remove a download that an earlier message queued, and delete its file.
    case remove(ObjectPath)

    /// - Throws: an error that names the field at fault.
    init(_ bytes: [UInt8]) throws(JSONError) {
        let value = try JSONValue(bytes, mostBytes: Int(clamping: MessageReader.mostBytes), mostDepth: 4)
        let fields = try JSONFields(value)
        switch try fields.string("type") {
        case "download": self = .download(try BrowserDownload(fields))
        case "status":
            try fields.expectOnly(["type"])
            self = .status
        case "remove":
            try fields.expectOnly(["type", "download"])
            let path = try fields.string("download")
            guard ObjectPath.isValid(path) else { throw JSONError("\(fields.path["download"]) is not an object path") }
            self = .remove(ObjectPath(path))
        default: throw JSONError("\(fields.path["type"]) is not download, status or remove")
        }
    }
}

/// A download as the extension sends it.
struct BrowserDownload: Equatable, Sendable {
    /// The URL as the browser writes it. The service checks the URL.
    var url: String
    /// Options of the method `Download`, with their names on the bus.
    var options: [String: Variant] = [:]

    private static let keys: Set<String> = [
        "type", "url", "referrer", "user-agent", "filename", "cookies", "headers", "post-data", "post-type", "private",
    ]

    init(_ fields: JSONFields) throws(JSONError) {
        try fields.expectOnly(Self.keys)
        url = try fields.string("url")
        // A referrer that is too long for the option is left out: the file may be downloaded without it.
        if let referrer = try fields.optionalString("referrer"), !referrer.isEmpty, referrer.utf8.count <= Limits.urlBytes {
            options["referrer"] = .string(referrer)
        }
        if let agent = try fields.optionalString("user-agent"), !agent.isEmpty { options["user-agent"] = .string(agent) }
        // A server or a page chose the name. The service would refuse an unsafe name.
        if let name = try fields.optionalString("filename"), let safe = FileName.safe(name) { options["filename"] = .string(safe) }
        if let cookies = try Self.cookies(fields), !cookies.isEmpty { options["cookies"] = .strings(cookies) }
        if let headers = try Self.headers(fields), !headers.isEmpty { options["header-list"] = .array(of: "(ss)", headers) }
        if try fields.optionalBool("private") == true { options["private"] = .bool(true) }
        if let data = try fields.optionalString("post-data") {
            guard data.utf8.count <= Limits.postBytes else {
                throw JSONError("\(fields.path["post-data"]) has \(data.utf8.count) bytes; at most \(Limits.postBytes) are allowed")
            }
            options["post-data"] = .array(of: "y", data.utf8.map { .byte($0) })
        }
        if let type = try fields.optionalString("post-type") { options["post-type"] = .string(type) }
    }

    /// The lines for the option `cookies`; nil: the field is absent.
    private static func cookies(_ fields: JSONFields) throws(JSONError) -> [String]? {
        guard let values = try fields.optionalArray("cookies") else { return nil }
        var lines: [String] = []
        for (index, value) in values.enumerated() {
            let cookie = try BrowserCookie(try JSONFields(value, at: fields.path["cookies"][index]))
            if let line = cookie.line { lines.append(line) }
        }
        return lines
    }

    /// The structures for the option `header-list`; nil: the field is absent.
    private static func headers(_ fields: JSONFields) throws(JSONError) -> [Variant]? {
        guard let values = try fields.optionalArray("headers") else { return nil }
        var headers: [Variant] = []
        for (index, value) in values.enumerated() {
            let header = try JSONFields(value, at: fields.path["headers"][index])
            try header.expectOnly(["name", "value"])
            headers.append(.structure([.string(try header.string("name")), .string(try header.string("value"))]))
        }
        return headers
    }
}
