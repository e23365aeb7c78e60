public import DBus
public import DownloadModel
internal import DownloaderInterface
internal import WebPush

/// What a registration allows a push to fetch, and where to. These are the options of `Register`.
public struct PushRules: Equatable, Sendable {
    public static let mostHosts = 32
    public static let mostTypes = 16
    static let defaultMaxSize: ByteCount = 10 << 20
    /// The options of `Download` that `Register` has, too.
    private static let shared: Set<String> = [
        "max-size", "directory", "filename", "if-exists", "allow-metered", "allow-private", "activate",
    ]

    /// In lower case; "*.example.org" stands for all hosts below.
    public var hosts: [String] = []
    public var maxSize = Self.defaultMaxSize
    /// Media types and ranges, in lower case; empty: any.
    public var types: [String] = []
    public var directory: String?
    public var fileName: String?
    public var ifExists = ExistingFilePolicy.rename
    public var allowsMetered = false
    public var allowsPrivate = false
    /// The bus name of the app that is called.
    public var activate: String
    /// The public key of the app's server, in base64url.
    public var vapid: String?

    /// Decodes and checks the options of a call. Does not access the disk.
    ///
    /// - Throws: `InvalidOption` naming the key that is unknown, is missing, has the wrong type or an impossible value; `NotAllowed` for an
    ///   option that a sandboxed app may not use.
    public init(decoding options: [String: Variant], app: String, from caller: CallerIdentity) throws(Refusal) {
        var common: [String: Variant] = ["app": .string(app), "activate": .string(app)]
        for (key, value) in options.sorted(by: { $0.key < $1.key }) {
            switch key {
            case "hosts": hosts = try Self.hosts(value)
            case "types": types = try Self.types(value)
            case "vapid": break
            case _ where Self.shared.contains(key): common[key] = value
            default: throw Refusal(.invalidOption, "There is no option “\(shown(key))”; see Register in org.todoku.Push1.xml.")
            }
        }
        guard !hosts.isEmpty else { throw Refusal(.invalidOption, "Option hosts must name the hosts that files may come from.") }
        let decoded = try DownloadOptions(decoding: common)
        maxSize = decoded.maxSize ?? Self.defaultMaxSize
        (directory, fileName) = (decoded.directory, decoded.fileName)
        ifExists = decoded.ifExists
        allowsMetered = common["allow-metered"] == .bool(true)
        allowsPrivate = common["allow-private"] == .bool(true)
        activate = decoded.activate ?? app
        if let value = options["vapid"] { vapid = try Self.vapid(value) }
        try checkSandbox(options, caller)
    }

    /// Checks the options of an app in a sandbox, and sets `if-exists` to `rename`.
    private mutating func checkSandbox(_ options: [String: Variant], _ caller: CallerIdentity) throws(Refusal) {
        guard case .app(let id, _) = caller else { return }
        func refuse(_ key: String, _ what: String) -> Refusal {
            Refusal(.notAllowed, "Option \(key): an app in a sandbox may not \(what).")
        }
        if options["directory"] != nil { throw refuse("directory", "choose the folder") }
        if ifExists == .replace { throw refuse("if-exists", "replace files") }
        // `Download` from a sandbox does the same. `skip` would also pass off a file of the user's as the pushed file.
        ifExists = .rename
        if allowsPrivate { throw refuse("allow-private", "reach this machine or a private network") }
        guard activate == id || activate.hasPrefix(id + ".") else { throw refuse("activate", "have another application started") }
    }

    private static func hosts(_ value: Variant) throws(Refusal) -> [String] {
        guard let given = value.strings else { throw wrongType("hosts", "as", value) }
        guard (1...mostHosts).contains(given.count) else {
            throw Refusal(.invalidOption, "Option hosts takes 1 to \(mostHosts) hosts, not \(given.count).")
        }
        return try given.map { (text: String) throws(Refusal) -> String in
            let name = text.hasPrefix("*.") ? String(text.dropFirst(2)) : text
            // The parser of URLs knows what a host is, and gives it in the form that a URL's host has.
            guard (1...253).contains(name.utf8.count), !name.utf8.contains(where: { "/?#@\\ ".utf8.contains($0) }),
                let url = try? DownloadURL("https://\(name.contains(":") ? "[\(name)]" : name)/")
            else { throw Refusal(.invalidOption, "Option hosts: “\(shown(text))” is not the name or address of a host.") }
            return text.hasPrefix("*.") ? "*.\(url.host)" : url.host
        }
    }

    private static func types(_ value: Variant) throws(Refusal) -> [String] {
        guard let given = value.strings else { throw wrongType("types", "as", value) }
        guard given.count <= mostTypes else {
            throw Refusal(.invalidOption, "Option types takes at most \(mostTypes) media types, not \(given.count).")
        }
        return try given.map { (text: String) throws(Refusal) -> String in
            guard let type = mediaType(text) else {
                throw Refusal(.invalidOption, "Option types: “\(shown(text))” is not a media type, such as image/png or image/*.")
            }
            return type
        }
    }

    /// In lower case; nil: `text` is no media type or range, as the option `expect-type` takes.
    static func mediaType(_ text: String) -> String? { (try? DownloadOptions(decoding: ["expect-type": .string(text)]))?.expectType }

    private static func vapid(_ value: Variant) throws(Refusal) -> String {
        guard let text = value.string else { throw wrongType("vapid", "s", value) }
        guard text.utf8.count <= 128, let key = Base64URL.decode(text.utf8), WebPushKeys.isPoint(key) else {
            throw Refusal(.invalidOption, "Option vapid must be a public key of 65 bytes in base64url, as in RFC 8292.")
        }
        return text
    }

    private static func wrongType(_ key: String, _ type: String, _ value: Variant) -> Refusal {
        Refusal(.invalidOption, "Option \(key) takes the type \(type), not \(value.type.prefix(64)).")
    }
}

// MARK: Messages

/// Why a message was refused: the key of its count.
public enum PushRefusalReason: String, CaseIterable, Sendable {
    case length, encryption, format, scheme, host, size, type, expired, full
}

public struct PushRefusal: Error, Equatable, Sendable {
    public let reason: PushRefusalReason
    /// A sentence without a full stop. It does not repeat the URL.
    public let text: String
    public init(_ reason: PushRefusalReason, _ text: String) { (self.reason, self.text) = (reason, text) }
}

extension PushRules {
    /// Most seconds that a file may be waited for.
    package static let longestWait: UInt64 = 366 * 24 * 3600

    /// - Throws: which rule the message breaks.
    public func check(_ message: PushMessage, now: WallTime) throws(PushRefusal) -> AcceptedPush {
        let url: DownloadURL
        do throws(Refusal) { url = try DownloadURL(message.url) } catch { throw PushRefusal(.format, "“url”: \(error.message)") }
        guard url.username == nil, url.password == nil else { throw PushRefusal(.format, "“url” has a user name or a password in it") }
        guard url.scheme == "https" || url.scheme == "http" && allowsPrivate && isLoopbackAddress(url.host) else {
            throw PushRefusal(.scheme, "“url” is not an https URL")
        }
        guard hosts.contains(where: { Self.matches(url.host, $0) }) else {
            throw PushRefusal(.host, "the host of “url” is not one of the option hosts")
        }
        guard message.size <= maxSize else {
            throw PushRefusal(.size, "“size” is \(message.size) bytes; the option max-size allows \(maxSize)")
        }
        let type = try type(of: message)
        let left = (WallTime(microseconds: message.validUntil *| 1_000_000) - now).wholeMilliseconds
        guard left > 0 else { throw PushRefusal(.expired, "“valid-until” is not in the future") }
        return AcceptedPush(
            url: url.text, sha256: message.sha256, size: message.size, type: type,
            validUntil: message.validUntil, patience: min(UInt64(clamping: left), Self.longestWait *| 1000))
    }

    /// The media type that the file must have; nil: any.
    private func type(of message: PushMessage) throws(PushRefusal) -> String? {
        guard let given = message.type else {
            guard types.count <= 1 else {
                throw PushRefusal(.type, "“type” is missing, and the option types allows \(types.count) types")
            }
            return types.first
        }
        guard let type = Self.mediaType(given), !type.hasSuffix("/*") else { throw PushRefusal(.type, "“type” is not a media type") }
        guard types.isEmpty || types.contains(where: { Self.covers($0, type) }) else {
            throw PushRefusal(.type, "“type” is not one of the option types")
        }
        return type
    }

    private static func covers(_ range: String, _ type: String) -> Bool {
        range == type || range.hasSuffix("/*") && type.hasPrefix(range.dropLast())
    }

    private static func matches(_ host: String, _ rule: String) -> Bool {
        rule.hasPrefix("*.") ? host.hasSuffix(rule.dropFirst()) && host.utf8.count > rule.utf8.count &- 1 : host == rule
    }
}
