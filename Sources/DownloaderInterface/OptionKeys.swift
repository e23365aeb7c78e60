public import DBus
public import DownloadModel

/// The options of `Download`: the one place where the bus's dictionary and `DownloadOptions` meet.
public enum OptionKey: String, CaseIterable, Sendable {
    case app, token, directory, filename
    case ifExists = "if-exists"
    case headers
    case userAgent = "user-agent"
    case referrer, username, password, checksum, size
    case maxSize = "max-size"
    case expectType = "expect-type"
    case start, priority
    case speedLimit = "speed-limit"
    case stallTimeout = "stall-timeout"
    case notBefore = "not-before"
    case deadline
    case allowMetered = "allow-metered"
    case allowPrivate = "allow-private"
    case allowDowngrade = "allow-downgrade"
    case requestInterval = "request-interval"
    case renewable
    case onlyIfChanged = "only-if-changed"
    case activate
    case retries, tag, notify
    case notifyDelay = "notify-delay"
    case title, body, icon, sound
    case showProgress = "show-progress"
    case desktopID = "desktop-id"
    case metadata

    /// The type of its value.
    public var signature: String {
        switch self {
        case .headers: "a{ss}"
        case .size, .maxSize, .speedLimit, .notBefore, .deadline: "t"
        case .start, .showProgress, .renewable, .allowMetered, .allowPrivate, .allowDowngrade, .onlyIfChanged: "b"
        case .priority: "i"
        case .stallTimeout, .retries, .requestInterval, .notifyDelay: "u"
        case .metadata: "a{sv}"
        default: "s"
        }
    }
}

extension DownloadOptions {
    /// Reads the dictionary of a call. What it names is checked; the disk is not looked at.
    ///
    /// - Parameter defaults: what the dictionary does not name: of an item of a batch, the batch's.
    /// - Throws: `InvalidOption` naming the key that is unknown, has the wrong type or an impossible value; `LimitExceeded`.
    public init(decoding dictionary: [String: Variant], over defaults: DownloadOptions = DownloadOptions()) throws(Refusal) {
        self = defaults
        for (name, value) in dictionary.sorted(by: { $0.key < $1.key }) {
            guard let key = OptionKey(rawValue: name) else {
                throw Refusal(.invalidOption, "There is no option “\(shown(name))”; the property SupportedOptions lists them.")
            }
            guard value.type == key.signature else {
                throw Refusal(.invalidOption, "Option \(name) takes the type \(key.signature), not \(value.type.prefix(64)).")
            }
            try take(key, value)
        }
        if token != nil, app.isEmpty { throw Refusal(.invalidOption, "Option token needs the option app.") }
        if let size, let maxSize, size > maxSize { throw Refusal(.invalidOption, "Option size is larger than option max-size.") }
    }

    private mutating func take(_ key: OptionKey, _ value: Variant) throws(Refusal) {
        func text(_ value: Variant, most: Int = 1024) throws(Refusal) -> String {
            let text = value.string ?? ""
            guard text.utf8.count <= most else { throw Refusal(.invalidOption, "Option \(key.rawValue) is longer than \(most) bytes.") }
            guard !text.unicodeScalars.contains(where: { $0.value < 0x20 || $0.value == 0x7f }) else {
                throw Refusal(.invalidOption, "Option \(key.rawValue) holds a line break or another control character.")
            }
            return text
        }
        func choice<C: RawRepresentable & CaseIterable>(_: C.Type) throws(Refusal) -> C where C.RawValue == String {
            if let choice = C(rawValue: value.string ?? "") { return choice }
            throw Refusal(.invalidOption, "Option \(key.rawValue) is one of \(C.allCases.map(\.rawValue).joined(separator: ", ")).")
        }
        switch key {
        case .app:
            app = try text(value, most: 255)
            guard !app.isEmpty else { throw Refusal(.invalidOption, "Option app is empty.") }
        case .token:
            let token = try text(value, most: 64)
            let isWord = token.utf8.allSatisfy {
                (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) || (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0)
                    || (UInt8(ascii: "a")...UInt8(ascii: "z")).contains($0) || $0 == UInt8(ascii: "_")
            }
            guard !token.isEmpty, isWord else { throw Refusal(.invalidOption, "Option token is 1 to 64 of A–Z, a–z, 0–9 and _.") }
            self.token = token
        case .directory:
            let folder = try text(value, most: 4096)
            guard folder.hasPrefix("/") else {
                throw Refusal(.invalidOption, "Option directory must be an absolute path, not “\(shown(folder))”.")
            }
            directory = folder
        case .filename:
            let name = try text(value, most: 4096)
            guard FileName.isBare(name) else {
                throw Refusal(
                    .invalidOption,
                    """
                    Option filename must be a bare name of at most 240 bytes, not hidden, without a slash and without control characters or \
                    invisible ones (such as bidi marks).
                    """)
            }
            fileName = name
        case .ifExists: ifExists = try choice(ExistingFilePolicy.self)
        case .headers: headers = try Self.headers(value.stringPairs ?? [])
        case .userAgent: userAgent = try text(value)
        case .referrer: referrer = Referrer.withoutSecrets(try text(value, most: Limits.urlBytes))
        case .username: username = try text(value)
        case .password: password = try text(value)
        case .checksum: checksum = try Checksum(try text(value))
        case .size: size = value.uint64
        case .maxSize: maxSize = value.uint64
        case .expectType:
            let type = try text(value, most: 255).lowercased()
            guard Self.isMediaRange(type) else {
                throw Refusal(.invalidOption, "Option expect-type is a media type as “image/png”, or “image/*”.")
            }
            expectType = type
        case .notBefore: notBefore = value.uint64.flatMap { $0 == 0 ? nil : WallTime(microseconds: $0) }
        case .deadline: deadline = value.uint64.flatMap { $0 == 0 ? nil : .milliseconds(Int64(clamping: min($0, Limits.longestDeadline))) }
        case .renewable: renewable = value.bool ?? false
        case .allowMetered: allowsMetered = value.bool ?? true
        case .allowPrivate: allowsPrivate = value.bool ?? true
        case .allowDowngrade: allowsDowngrade = value.bool ?? false
        case .requestInterval: requestInterval = value.uint32.flatMap { $0 == 0 ? nil : .milliseconds(Int($0)) }
        case .onlyIfChanged: onlyIfChanged = value.bool ?? false
        case .activate:
            let name = try text(value, most: 255)
            guard BusName.isApplicationName(name) else {
                throw Refusal(
                    .invalidOption, "Option activate must be the bus name of an application as org.example.App, not “\(shown(name))”.")
            }
            activate = name
        case .start: start = value.bool ?? true
        case .priority: priority = value.int32 ?? 0
        case .speedLimit: speedLimit = value.uint64.flatMap { $0 == 0 ? nil : $0 }
        case .stallTimeout:
            guard let milliseconds = value.uint32, milliseconds > 0 else {
                throw Refusal(.invalidOption, "Option stall-timeout is a number of milliseconds above 0.")
            }
            stallTimeout = .milliseconds(Int(milliseconds))
        case .retries: retries = value.uint32 ?? 10
        case .tag: tag = try text(value, most: 255)
        case .notify: notify = try choice(NotifyPolicy.self)
        case .notifyDelay:
            let delay = Duration.milliseconds(Int(value.uint32 ?? 0))
            guard delay <= Limits.longestNotifyDelay else {
                throw Refusal(.invalidOption, "Option notify-delay is at most \(Limits.longestNotifyDelay.wholeMilliseconds) ms.")
            }
            notifyDelay = delay
        case .title: title = try text(value)
        case .body: body = try text(value, most: 4096)
        case .icon: icon = try text(value, most: 4096)
        case .sound:
            sound = try text(value, most: 255)
            guard !sound.contains("/") else {
                throw Refusal(.invalidOption, "Option sound is a name of the sound theme as complete-download, not a file.")
            }
        case .showProgress: showProgress = value.bool ?? true
        case .desktopID:
            guard let id = DesktopID(try text(value, most: 255)) else {
                throw Refusal(
                    .invalidOption,
                    "Option desktop-id must be the name of a desktop entry as org.example.App, not “\(shown(value.string ?? ""))”.")
            }
            desktopID = id
        case .metadata:
            let bytes = Message.bytes(of: value.vardict ?? [:])
            guard bytes.count <= Limits.metadataBytes else {
                throw Refusal(.limitExceeded, "Option metadata takes at most \(Limits.metadataBytes) bytes.")
            }
            metadata = bytes
        }
    }

    /// `type/subtype` or `type/*` (RFC 9110 §12.5.1), without parameters.
    private static func isMediaRange(_ text: String) -> Bool {
        let parts = text.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
        guard parts.count == 2, !parts[0].isEmpty, !parts[1].isEmpty else { return false }
        return parts[0].allSatisfy { isTokenByte($0) && $0 != UInt8(ascii: "*") }
            && (parts[1].elementsEqual("*".utf8) || parts[1].allSatisfy(isTokenByte))
    }

    /// The options of `ReplaceUrl`.
    public static let ofFreshLink: Set<OptionKey> = [.headers, .referrer, .username, .password]

    /// - Throws: `InvalidOption` for a name that is no token (RFC 9110 §5.1), a value with CR, LF or NUL, or a field that is ours;
    ///   `LimitExceeded` over 64 KiB.
    public static func headers(_ pairs: [(String, String)]) throws(Refusal) -> [HeaderField] {
        var bytes = 0
        var fields: [HeaderField] = []
        for (name, value) in pairs {
            guard !name.isEmpty, name.utf8.allSatisfy(isTokenByte) else {
                throw Refusal(.invalidOption, "Option headers: “\(shown(name))” is no header name.")
            }
            guard !value.utf8.contains(where: { $0 == 13 || $0 == 10 || $0 == 0 }) else {
                throw Refusal(.invalidOption, "Option headers: the value of “\(shown(name))” holds a line break.")
            }
            guard !ownFields.contains(name.lowercased()) else {
                throw Refusal(.invalidOption, "Option headers: \(name) is set by the service itself.")
            }
            bytes += name.utf8.count + value.utf8.count + 4
            fields.append(HeaderField(name: name, value: value))
        }
        guard bytes <= Limits.headerBytes else {
            throw Refusal(.limitExceeded, "Option headers takes at most \(Limits.headerBytes) bytes.")
        }
        return fields
    }

    /// Fields without which a transfer would not be what its record says.
    private static let ownFields: Set<String> = [
        "range", "if-range", "if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "accept-encoding", "host",
        "connection",
        "keep-alive", "proxy-connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "http2-settings", "expect",
        "proxy-authorization",
    ]

    private static func isTokenByte(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"): true
        default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
        }
    }
}

extension FreshLink {
    /// Reads the arguments of `ReplaceUrl`.
    ///
    /// - Throws: what is wrong with the URL; `InvalidOption`, naming the key, for an option that this call does not take, or that is malformed.
    public init(_ url: String, decoding dictionary: [String: Variant]) throws(Refusal) {
        self.init(try DownloadURL(url))
        for name in dictionary.keys.sorted() where !(OptionKey(rawValue: name).map(DownloadOptions.ofFreshLink.contains) ?? false) {
            let known = DownloadOptions.ofFreshLink.map(\.rawValue).sorted().joined(separator: ", ")
            throw Refusal(.invalidOption, "ReplaceUrl has no option “\(shown(name))”; it takes \(known).")
        }
        let options = try DownloadOptions(decoding: dictionary)
        if dictionary[OptionKey.headers.rawValue] != nil { headers = options.headers }
        (referrer, username, password) = (options.referrer, options.username, options.password)
    }
}

/// A caller's text as an error's message may hold it: on one line, at most 64 scalars (a character may be made of any number of them).
public func shown(_ text: String) -> String {
    String(
        String.UnicodeScalarView(
            text.unicodeScalars.prefix(64).map {
                $0.properties.generalCategory == .control || $0.properties.isBidiControl ? "\u{FFFD}" : $0
            }))
}
