internal import DBus
internal import DownloadModel
internal import EventLoop
internal import PushInterface
internal import PushModel
internal import WebPush

/// Who registered: an app's id and its name for the registration.
struct RegistrationKey: Hashable, Sendable {
    let app: String
    let name: String

    /// Most bytes of a description. A distributor must ignore a call with a longer one (UnifiedPush, “Resources”).
    private static let longestDescription = 100

    /// The description that a distributor may show. A long id is cut, because the name tells the registrations of the app apart.
    var shortDescription: String {
        let ending = ": \(name)"
        return "\(FileName.prefix(app, bytes: Self.longestDescription -| ending.utf8.count))\(ending)"
    }
}

/// One registration of an app, as it is on disk.
struct Registration: Sendable {
    static let mostFetched = 32

    /// Counts since the registration began.
    struct Counts: Equatable, Sendable {
        var received: UInt64 = 0
        var fetched: UInt64 = 0
        var unchanged: UInt64 = 0
        var failed: UInt64 = 0
        var refused: [PushRefusalReason: UInt64] = [:]
    }

    let key: RegistrationKey
    /// The distributor's name for the registration. Whoever knows the token may send messages.
    let token: String
    let keys: WebPushKeys
    let created: WallTime
    /// Whether an app in a sandbox registered last.
    var isSandboxed: Bool
    /// The options as they were given, and what they mean.
    var options: [String: Variant]
    var rules: PushRules
    /// The bus name of the distributor that has the registration, or may have it because it gave no answer; empty: none.
    var distributor = ""
    /// Empty: none.
    var endpoint = ""
    /// The version of the distributor's interface that gave the endpoint; 0: there is none.
    var version: UInt32 = 0
    var counts = Counts()
    /// The files that were fetched last, oldest first.
    var fetched: [FetchedCopy] = []
    /// The id of the last message whose download is on the service's list; empty: none.
    var lastDownload = ""

    init(
        key: RegistrationKey, token: String, keys: WebPushKeys, created: WallTime, isSandboxed: Bool, options: [String: Variant],
        rules: PushRules
    ) {
        (self.key, self.token, self.keys, self.created) = (key, token, keys, created)
        (self.isSandboxed, self.options, self.rules) = (isSandboxed, options, rules)
    }

    /// The caller by whose rights the options count.
    static func caller(app: String, isSandboxed: Bool) -> CallerIdentity { isSandboxed ? .app(app) : .user }

    mutating func takeOptions(of other: Registration) {
        (options, rules, isSandboxed) = (other.options, other.rules, other.isSandboxed)
    }

    mutating func remember(_ copy: FetchedCopy) {
        fetched.removeAll { $0.url == copy.url && $0.sha256 == copy.sha256 || $0.path == copy.path }
        fetched.append(copy)
        if fetched.count > Self.mostFetched { fetched.removeFirst() }
    }
}

/// A file that was fetched, and how it looked then.
struct FetchedCopy: Equatable, Sendable {
    let url: String
    let sha256: String
    let path: String
    let stamp: FileStamp
}

/// A message that the rules allow, from its arrival until the app has answered.
struct PendingPush: Sendable {
    /// 32 hexadecimal digits; part of the token of its download, so that a repeated `Fetch` joins the first one.
    let id: String
    let token: String
    /// The app of the registration; empty: an earlier version of the program did not save it.
    let app: String
    var push: AcceptedPush
    let arrived: WallTime
    /// The options of the registration when the message arrived; nil: an earlier version of the program did not save them.
    let options: [String: Variant]?
    let isSandboxed: Bool
    /// nil: not fetched yet.
    var outcome: Outcome?

    /// When the file is too late.
    var end: WallTime { WallTime(microseconds: push.validUntil *| 1_000_000) }

    /// Whether a later message about the file gave it more time than its download has.
    var isProlonged: Bool { arrived.microseconds +| push.patience *| 1000 +| 1_000_000 < end.microseconds }

    /// Whether the service may have a download of the message, for which nobody waits once the message is gone.
    var mayHaveDownload: Bool { outcome.map { $0.error == ErrorName.expired.busName } ?? true }

    /// What the file is fetched by: what the registration allowed when the message arrived.
    func rules(_ registration: Registration) -> PushRules {
        let app = registration.key.app
        let saved = options.flatMap {
            try? PushRules(decoding: $0, app: app, from: Registration.caller(app: app, isSandboxed: isSandboxed))
        }
        return saved ?? registration.rules
    }

    struct Outcome: Equatable, Sendable {
        var result: PushOutcome
        var path = ""
        var error = ""
        var message = ""
        var ended: WallTime
        /// Whether the service has a download of it. Not in the record.
        var hasDownload = false

        init(
            _ result: PushOutcome, path: String = "", error: String = "", message: String = "",
            ended: WallTime = WallTime(microseconds: wallClock()), hasDownload: Bool = false
        ) {
            (self.result, self.path, self.error, self.message) = (result, path, error, message)
            (self.ended, self.hasDownload) = (ended, hasDownload)
        }
    }
}

// MARK: Records on disk

// A record is a dictionary a{sv} in D-Bus' wire format.

extension Registration {
    var record: [String: Variant] {
        [
            "app": .string(key.app), "name": .string(key.name), "token": .string(token), "created": .uint64(created.microseconds),
            "private-key": .string(Base64URL.encode(keys.privateKey)), "public-key": .string(Base64URL.encode(keys.publicKey)),
            "auth-secret": .string(Base64URL.encode(keys.authSecret)), "sandboxed": .bool(isSandboxed),
            "options": .dictionary(options), "distributor": .string(distributor), "endpoint": .string(endpoint),
            "version": .uint32(version), "received": .uint64(counts.received), "fetched": .uint64(counts.fetched),
            "unchanged": .uint64(counts.unchanged), "failed": .uint64(counts.failed),
            "refused": .dictionary(Dictionary(uniqueKeysWithValues: counts.refused.map { ($0.rawValue, .uint64($1)) })),
            "copies": .array(of: "(ssstttxx)", fetched.map(\.variant)), "last-download": .string(lastDownload),
        ]
    }

    /// nil: the record is damaged.
    init?(record: [String: Variant]) {
        func bytes(_ key: String) -> [UInt8]? { record[key]?.string.flatMap { Base64URL.decode($0.utf8) } }
        guard let app = record["app"]?.string, let name = record["name"]?.string, let token = record["token"]?.string,
            let created = record["created"]?.uint64, let privateKey = bytes("private-key"), let publicKey = bytes("public-key"),
            let authSecret = bytes("auth-secret"),
            let keys = WebPushKeys(privateKey: privateKey, publicKey: publicKey, authSecret: authSecret),
            let options = record["options"]?.vardict, let isSandboxed = record["sandboxed"]?.bool,
            let rules = try? PushRules(decoding: options, app: app, from: Self.caller(app: app, isSandboxed: isSandboxed))
        else { return nil }
        self.init(
            key: RegistrationKey(app: app, name: name), token: token, keys: keys, created: WallTime(microseconds: created),
            isSandboxed: isSandboxed, options: options, rules: rules)
        distributor = record["distributor"]?.string ?? ""
        endpoint = record["endpoint"]?.string ?? ""
        version = endpoint.isEmpty ? 0 : record["version"]?.uint32 ?? 0
        counts.received = record["received"]?.uint64 ?? 0
        counts.fetched = record["fetched"]?.uint64 ?? 0
        counts.unchanged = record["unchanged"]?.uint64 ?? 0
        counts.failed = record["failed"]?.uint64 ?? 0
        for (key, value) in record["refused"]?.vardict ?? [:] {
            if let reason = PushRefusalReason(rawValue: key) { counts.refused[reason] = value.uint64 }
        }
        if case .array(_, let copies)? = record["copies"] { fetched = copies.suffix(Self.mostFetched).compactMap(FetchedCopy.init) }
        lastDownload = record["last-download"]?.string ?? ""
    }
}

extension FetchedCopy {
    fileprivate var variant: Variant {
        .structure([
            .string(url), .string(sha256), .string(path), .uint64(stamp.device), .uint64(stamp.inode), .uint64(stamp.size),
            .int64(stamp.seconds), .int64(stamp.nanoseconds),
        ])
    }

    fileprivate init?(_ variant: Variant) {
        guard case .structure(let fields) = variant, fields.count == 8, let url = fields[0].string, let sha256 = fields[1].string,
            let path = fields[2].string, let device = fields[3].uint64, let inode = fields[4].uint64, let size = fields[5].uint64,
            let seconds = fields[6].int64, let nanoseconds = fields[7].int64
        else { return nil }
        (self.url, self.sha256, self.path) = (url, sha256, path)
        stamp = FileStamp(device: device, inode: inode, size: size, seconds: seconds, nanoseconds: nanoseconds)
    }
}

extension PendingPush {
    var record: [String: Variant] {
        var record: [String: Variant] = [
            "id": .string(id), "token": .string(token), "app": .string(app), "arrived": .uint64(arrived.microseconds),
            "url": .string(push.url), "sha256": .string(push.sha256), "size": .uint64(push.size), "valid-until": .uint64(push.validUntil),
            "patience": .uint64(push.patience),
        ]
        if let type = push.type { record["type"] = .string(type) }
        if let options { (record["options"], record["sandboxed"]) = (.dictionary(options), .bool(isSandboxed)) }
        if let outcome {
            record["result"] = .string(outcome.result.rawValue)
            record["path"] = .string(outcome.path)
            record["error"] = .string(outcome.error)
            record["message"] = .string(outcome.message)
            record["ended"] = .uint64(outcome.ended.microseconds)
        }
        return record
    }

    /// nil: the record is damaged.
    init?(record: [String: Variant]) {
        guard let id = record["id"]?.string, let token = record["token"]?.string, let arrived = record["arrived"]?.uint64,
            let url = record["url"]?.string, let sha256 = record["sha256"]?.string, let size = record["size"]?.uint64,
            let validUntil = record["valid-until"]?.uint64, let patience = record["patience"]?.uint64
        else { return nil }
        self.init(
            id: id, token: token, app: record["app"]?.string ?? "",
            push: AcceptedPush(
                url: url, sha256: sha256, size: size, type: record["type"]?.string, validUntil: validUntil, patience: patience),
            arrived: WallTime(microseconds: arrived), options: record["options"]?.vardict,
            isSandboxed: record["sandboxed"]?.bool ?? false, outcome: nil)
        guard let word = record["result"]?.string else { return }
        guard let result = PushOutcome(rawValue: word), let ended = record["ended"]?.uint64 else { return nil }
        outcome = Outcome(
            result, path: record["path"]?.string ?? "", error: record["error"]?.string ?? "",
            message: record["message"]?.string ?? "", ended: WallTime(microseconds: ended))
    }
}
