internal import DownloadModel
internal import Glibc
internal import Localization
internal import TodokuClient

/// The options of one URL in an input file of aria2 (aria2c(1) 1.37, "Input File"). docs/guides/from-aria2.md has the same table.
struct Aria2Options: Equatable {
    /// Why an option or its value is refused.
    struct Fault: Error, Equatable {
        let text: String
        /// The option whose line has the fault; nil: the line that is read has it.
        let option: String?

        init(_ text: String, about option: String? = nil) { (self.text, self.option) = (text, option) }
    }

    /// Why an option has no effect here.
    enum Reason: CaseIterable {
        case bitTorrent, metalink, otherProtocol, automatic, missing

        var text: String {
            switch self {
            case .bitTorrent: catalog.text("it is for BitTorrent")
            case .metalink: catalog.text("it is for Metalink documents, which “todoku metalink” queues")
            case .otherProtocol: catalog.text("it is for FTP and SFTP")
            case .automatic: catalog.text("Todoku decides this by itself")
            case .missing: catalog.text("Todoku has nothing like it")
            }
        }
    }

    /// The options that have an effect.
    static let mapped = Set(own).union(Aria2Proxies.names)

    private static let own = [
        "allow-overwrite", "auto-file-renaming", "checksum", "conditional-get", "connect-timeout", "dir", "dry-run", "hash-check-only",
        "header", "http-no-cache", "http-passwd", "http-user", "max-connection-per-server", "max-download-limit", "max-tries", "no-proxy",
        "out", "parameterized-uri", "pause", "referer", "split", "timeout", "user-agent",
    ]

    /// The options that have no effect, which a warning says.
    static let ignored: [String: Reason] = {
        var reasons: [String: Reason] = [:]
        for (reason, names) in groups { for name in names { reasons[name] = reason } }
        return reasons
    }()

    private static let groups: [Reason: [String]] = [
        .bitTorrent: [
            "bt-enable-hook-after-hash-check", "bt-enable-lpd", "bt-exclude-tracker", "bt-external-ip", "bt-force-encryption",
            "bt-hash-check-seed", "bt-load-saved-metadata", "bt-max-peers", "bt-metadata-only", "bt-min-crypto-level",
            "bt-prioritize-piece", "bt-remove-unselected-file", "bt-request-peer-speed-limit", "bt-require-crypto", "bt-save-metadata",
            "bt-seed-unverified", "bt-stop-timeout", "bt-tracker", "bt-tracker-connect-timeout", "bt-tracker-interval",
            "bt-tracker-timeout", "enable-peer-exchange", "follow-torrent", "index-out", "max-upload-limit", "pause-metadata",
            "rpc-save-upload-metadata", "seed-ratio", "seed-time", "select-file",
        ],
        .metalink: [
            "follow-metalink", "metalink-base-uri", "metalink-enable-unique-protocol", "metalink-language", "metalink-location",
            "metalink-os", "metalink-preferred-protocol", "metalink-version",
        ],
        .otherProtocol: [
            "ftp-passwd", "ftp-pasv", "ftp-proxy", "ftp-proxy-passwd", "ftp-proxy-user", "ftp-reuse-connection", "ftp-type", "ftp-user",
            "ssh-host-key-md",
        ],
        .automatic: [
            "allow-piece-length-change", "always-resume", "async-dns", "content-disposition-default-utf8", "continue",
            "enable-http-keep-alive", "enable-http-pipelining", "enable-mmap", "file-allocation", "force-save", "http-accept-gzip",
            "http-auth-challenge", "max-file-not-found", "max-mmap-limit", "max-resume-failure-tries", "min-split-size",
            "no-file-allocation-limit", "piece-length", "proxy-method", "realtime-chunk-checksum", "remove-control-file", "retry-wait",
            "reuse-uri", "stream-piece-selector", "uri-selector", "use-head",
        ],
        .missing: ["check-integrity", "gid", "lowest-speed-limit", "no-netrc", "remote-time"],
    ]

    /// The options that set an option of a download, by its key. The first one that a file has is meant by an error about the key.
    static func names(setting key: String) -> [String] { key == "proxy" ? Aria2Proxies.names : setting[key] ?? [] }

    private static let setting = [
        "checksum": ["checksum"], "connections": ["split", "max-connection-per-server"], "directory": ["dir", "out"], "filename": ["out"],
        "if-exists": ["allow-overwrite", "auto-file-renaming"], "only-if-changed": ["conditional-get"], "password": ["http-passwd"],
        "referrer": ["referer"], "retries": ["max-tries"], "speed-limit": ["max-download-limit"],
        "stall-timeout": ["timeout", "connect-timeout"], "start": ["pause"], "user-agent": ["user-agent"], "username": ["http-user"],
    ]

    private var allowsOverwrite: Bool?
    private var renames: Bool?
    private var checksum: String?
    private var directory: String?
    private var out: String?
    private var headers: [HeaderField] = []
    private var user: String?
    private var password: String?
    private var referrer: String?
    private var userAgent: String?
    private var speedLimit: Speed?
    private var retries: UInt32?
    private var connections: UInt32?
    private var connectionsPerServer: UInt32?
    /// In seconds.
    private var timeouts: [UInt32] = []
    private var isPaused: Bool?
    private var onlyIfChanged: Bool?
    private var proxies = Aria2Proxies()

    /// Sets an option; a later one of the same name wins, and headers add up.
    ///
    /// - Returns: why the option has no effect; nil: it has one.
    /// - Throws: if the value is wrong, or means what Todoku cannot do, or the name is none of an input file.
    mutating func set(_ name: String, to value: String) throws(Fault) -> Reason? {
        switch name {
        case "allow-overwrite": allowsOverwrite = try Self.truth(name, value)
        case "auto-file-renaming": renames = try Self.truth(name, value)
        case "checksum": checksum = try Self.checksum(value)
        case "conditional-get": onlyIfChanged = try Self.truth(name, value)
        case "connect-timeout", "timeout": timeouts.append(try Self.number(name, value, most: 600))
        case "dir": directory = try Self.folder(value)
        case "dry-run", "hash-check-only", "parameterized-uri": try Self.refuseTrue(name, value)
        case "header": headers.append(try Self.header(value))
        case "http-no-cache":
            if try Self.truth(name, value) { headers.append(HeaderField(name: "Cache-Control", value: "no-cache")) }
        case "http-passwd": password = value
        case "http-user": user = value
        case "max-connection-per-server": connectionsPerServer = try Self.number(name, value)
        case "max-download-limit": speedLimit = try Self.speed(value)
        case "max-tries": retries = try Self.retries(value)
        case "no-proxy": try proxies.set(name, to: value)
        case "out": out = try Self.name(value)
        case "pause": isPaused = try Self.truth(name, value)
        case "referer": referrer = value
        case "split": connections = try Self.number(name, value)
        case "user-agent": userAgent = value
        default:
            if let reason = Self.ignored[name] { return reason }
            if Aria2Proxies.names.contains(name) {
                try proxies.set(name, to: value)
                return nil
            }
            throw Fault(catalog.text("“%1$s” is not an option of an aria2 input file", String(name.prefix(40))))
        }
        return nil
    }

    /// - Parameters:
    ///   - uris: how many URLs the file has.
    ///   - batchDirectory: the folder that the command line names; nil: none.
    func request(for url: DownloadURL, uris: Int, in batchDirectory: String?) throws(Fault) -> DownloadRequest {
        var request = DownloadRequest()
        try setPlace(of: &request, in: batchDirectory)
        if allowsOverwrite == true {
            request.ifExists = .replace
        } else if let renames {
            request.ifExists = renames ? .rename : .fail
        }
        request.checksum = checksum
        if !headers.isEmpty { request.headers = headers }
        request.set(\.username, to: user)
        request.set(\.password, to: password)
        request.set(\.referrer, to: referrer == "*" ? url.text : referrer)
        request.set(\.userAgent, to: userAgent)
        request.set(\.proxy, to: try proxies.address(for: url))
        request.set(\.speedLimit, to: speedLimit)
        request.set(\.retries, to: retries)
        let perServer = connectionsPerServer.map { $0 *| UInt32(clamping: uris) }
        if let most = [connections, perServer].compactMap(\.self).min() {
            request.connections = min(most, DownloadOptions.mostConnections)
        }
        if let seconds = timeouts.max() { request.stallTimeout = .seconds(seconds) }
        if let isPaused { request.start = !isPaused }
        request.set(\.onlyIfChanged, to: onlyIfChanged)
        return request
    }

    /// aria2's `out` is relative to `dir`, and may have folders.
    private func setPlace(of request: inout DownloadRequest, in batchDirectory: String?) throws(Fault) {
        var folder: String?
        if let directory {
            folder = try Self.path("dir") { () throws(CommandFailure) in try LocalPath.absolute(directory) }
        }
        if let out {
            let parts = out.pathComponents
            request.fileName = parts.last.map(String.init)
            if parts.count > 1 {
                guard let base = folder ?? batchDirectory else {
                    throw Fault(catalog.text("“out” has a folder in it, so “dir” or --directory must be given"), about: "out")
                }
                let above = parts.dropLast().joined(separator: "/")
                folder = try Self.path("out") { () throws(CommandFailure) in try LocalPath.absolute(above, in: base) }
            }
        }
        request.set(\.directory, to: folder)
    }

    // MARK: Values

    private static func truth(_ name: String, _ value: String) throws(Fault) -> Bool {
        if let truth = Bool(value) { return truth }
        throw Fault(catalog.text("“%1$s” takes true or false", name))
    }

    private static func refuseTrue(_ name: String, _ value: String) throws(Fault) {
        guard try truth(name, value) else { return }
        throw Fault(
            name == "parameterized-uri"
                ? catalog.text("Todoku does not expand a URL; write a line for each")
                : catalog.text("“%1$s” asks for no download, but a batch downloads; remove the line", name))
    }

    /// - Parameter most: nil: any that 32 bits hold.
    private static func number(_ name: String, _ value: String, most: UInt32? = nil) throws(Fault) -> UInt32 {
        if let number = UInt32(value), number > 0, number <= most ?? .max { return number }
        throw Fault(
            most.map { catalog.text("“%1$s” takes a whole number from 1 to %2$s", name, catalog.count($0)) }
                ?? catalog.text("“%1$s” takes a whole number above 0", name))
    }

    /// aria2 counts the first attempt, too, and 0 means without a limit.
    private static func retries(_ value: String) throws(Fault) -> UInt32 {
        guard let tries = UInt32(value) else { throw Fault(catalog.text("“max-tries” takes a whole number")) }
        return tries == 0 ? .max : tries -| 1
    }

    private static func speed(_ value: String) throws(Fault) -> Speed {
        if let speed = Amounts.bytes(value) { return speed }
        throw Fault(catalog.text("“%1$s” is not a speed; write it like 500K or 2M", value))
    }

    private static func folder(_ value: String) throws(Fault) -> String {
        guard !value.isEmpty else { throw Fault(catalog.text("“dir” is empty")) }
        // As aria2 does, which knows no other variable.
        guard value.contains("${HOME}"), let home = getenv("HOME") else { return value }
        return value.replacing("${HOME}", with: try path("dir") { () throws(CommandFailure) in try ArgumentText.path(home) })
    }

    private static func path(_ option: String, _ make: () throws(CommandFailure) -> String) throws(Fault) -> String {
        do throws(CommandFailure) { return try make() } catch { throw Fault(error.message, about: option) }
    }

    private static func name(_ value: String) throws(Fault) -> String {
        let parts = value.pathComponents
        guard !parts.isEmpty, !value.hasSuffix("/"), !parts.contains(".."), !parts.contains(".") else {
            throw Fault(catalog.text("“out” must be the name of a file below its folder"))
        }
        return value
    }

    /// The value may be a secret, so the message does not repeat it.
    private static func header(_ value: String) throws(Fault) -> HeaderField {
        guard let header = RequestArguments.header(value) else { throw Fault(catalog.text("the header has no “:” after its name")) }
        // The service would not tell which of several headers it refuses.
        do throws(Refusal) { try RequestHeaders.check([header], "headers") } catch {
            throw Fault(catalog.explanation(error).replacing("--header", with: "“header”"))
        }
        return header
    }

    /// `sha-256=HEX` to `sha256:HEX`.
    private static func checksum(_ value: String) throws(Fault) -> String {
        let parts = value.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        let algorithm = parts[0].lowercased().filter { $0 != "-" }
        guard parts.count == 2, Checksum.Algorithm(rawValue: algorithm) != nil else {
            throw Fault(catalog.text("Todoku checks md5, sha-1, sha-224, sha-256, sha-384 and sha-512; write it like checksum=sha-256=HEX"))
        }
        let text = "\(algorithm):\(parts[1])"
        do throws(Refusal) { _ = try Checksum(text) } catch {
            throw Fault(catalog.explanation(error, namesFlag: false))
        }
        return text
    }
}
