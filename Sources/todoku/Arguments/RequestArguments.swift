internal import ArgumentParser
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Localization
internal import TodokuClient

/// The download options that `get`, `add`, `batch` and `fetch` share.
struct RequestArguments: ParsableArguments {
    @Option(
        name: .shortAndLong, help: ArgumentHelp("Path of the file, folder and name; for one URL.", valueName: "file"), completion: .file())
    var output: String?

    @Option(name: .shortAndLong, help: .option(\.directory), completion: .directory)
    var directory: String?

    @Flag(name: [.customShort("p"), .long], help: "Make the folder of --output, --directory or --extract, if it is missing.")
    var parents = false

    @Option(help: .option(\.fileName, "name"))
    var filename: String?

    @Option(help: "What to do if the name is taken (default: rename, to “name (1)”); ask asks at the terminal.")
    var ifExists: ExistingFileChoice?

    @OptionGroup var extract: ExtractArguments

    @Option(help: .option(\.mirrors, "url"))
    var mirror: [String] = []

    @Flag(help: .option(\.findsMirrors))
    var findMirrors = false

    // Read by `check`, and not by a transform: ArgumentParser would repeat a wrong value, which may be a secret.
    @Option(name: [.customShort("H"), .long], help: .option(\.headers, "name: value"))
    var header: [String] = []

    @Option(help: .option(\.cookies, "file"), completion: .file())
    var loadCookies: String?

    @Option(help: .option(\.postData, "text"))
    var postData: String?

    @Option(help: ArgumentHelp("Send the bytes of a file as --post-data.", valueName: "file"), completion: .file())
    var postFile: String?

    @Option(help: .option(\.postType, "type"))
    var postType: String?

    @Option(help: .option(\.userAgent))
    var userAgent: String?

    @Option(help: .option(\.referrer, "url"))
    var referrer: String?

    @OptionGroup var login: CredentialArguments

    /// Read in `check` instead of by ArgumentParser, whose errors repeat the value: it may contain a password.
    @Option(help: .option(\.proxy, "url"))
    var proxy: String?

    @Option(help: .option(\.checksum, "checksum"))
    var checksum: String?

    /// Read in `check`, too: its error names the flag already, and the value may have two million digits.
    @Option(help: .option(\.pieceHashes, "hashes"))
    var pieceHashes: String?

    @Option(parsing: .unconditional, help: .option(\.size), transform: Amounts.parseBytes)
    var size: ByteCount?

    @Option(parsing: .unconditional, help: .option(\.maxSize, "size"), transform: Amounts.parseBytes)
    var maxSize: ByteCount?

    @Option(help: .option(\.expectType, "type"))
    var expectType: String?

    @Option(
        parsing: .unconditional, help: .option(\.notBefore, "time"),
        transform: Amounts.parseInstant)
    var notBefore: WallTime?

    @Option(
        parsing: .unconditional, help: .option(\.deadline, "time"), transform: Amounts.parseDuration)
    var deadline: Duration?

    @Flag(help: .option(\.allowsMetered))
    var notMetered = false

    @Flag(help: .option(\.allowsPrivate))
    var notPrivate = false

    @Flag(help: .option(\.allowsDowngrade))
    var allowDowngrade = false

    @Option(
        parsing: .unconditional, help: .option(\.requestInterval, "time"),
        transform: Amounts.parseDuration)
    var requestInterval: Duration?

    @Flag(help: .option(\.onlyIfChanged))
    var onlyIfChanged = false

    @Flag(name: .customLong("private"), help: .option(\.isPrivate))
    var isPrivate = false

    @Option(help: .option(\.activate, "name"))
    var activate: String?

    @Flag(help: .option(\.renewable))
    var renewable = false

    @Flag(help: .option(\.start))
    var paused = false

    @Option(parsing: .unconditional, help: .option(\.priority), transform: RequestArguments.parsePriority)
    var priority: Int32?

    @Option(
        name: [.customLong("speed-limit"), .customLong("limit-rate")], parsing: .unconditional,
        help: .option(\.speedLimit, "speed"),
        transform: Amounts.parseSpeed)
    var speedLimit: Speed?

    @Option(parsing: .unconditional, help: .option(\.connections, "count"), transform: RequestArguments.parseConnections)
    var connections: UInt32?

    @Option(
        parsing: .unconditional, help: .option(\.stallTimeout, "time"),
        transform: RequestArguments.parseStallTimeout)
    var stallTimeout: Duration?

    @Option(parsing: .unconditional, help: .option(\.retries, "count"), transform: RequestArguments.parseRetries)
    var retries: UInt32?

    @Option(help: .option(\.tag))
    var tag: String?

    @Option(help: .option(\.app, "id"))
    var app: String?

    @Option(help: .option(\.token))
    var token: String?

    @Option(help: .option(\.notify))
    var notify: NotifyPolicy?

    @Option(help: .option(\.title))
    var title: String?

    @Option(help: .option(\.body))
    var body: String?

    @Option(help: .option(\.icon, "icon"))
    var icon: String?

    @Option(help: .option(\.sound, "name"))
    var sound: String?

    @Option(
        parsing: .unconditional, help: .option(\.notifyDelay, "time"), transform: RequestArguments.parseNotifyDelay)
    var notifyDelay: Duration?

    @Option(
        name: .customLong("desktop-id"), help: .option(\.desktopID, "name"),
        transform: RequestArguments.parseDesktopID)
    var desktopID: DesktopID?

    @Flag(inversion: .prefixedNo, help: .option(\.showProgress))
    var showProgress: Bool?

    @Option(
        help: .option(\.metadata, "key=value"),
        transform: RequestArguments.parseMetadata)
    var metadata: [KeptText] = []

    /// A key with its text.
    struct KeptText: Equatable, Sendable {
        let key: String
        let text: String
    }

    /// For the command's `validate`: options that name one file need a single URL.
    ///
    /// - Parameter mayAsk: the command asks for `--if-exists ask`.
    func check(urls: [String], mayAsk: Bool = false) throws {
        try extract.check(urls: urls)
        if let option = urls.count > 1 ? optionsOfOne.first : nil {
            throw ValidationError(catalog.text("%1$s is for one URL, but %2$s are given.", "--\(option)", String(urls.count)))
        }
        try check(mayAsk: mayAsk)
    }

    /// For `validate` of a command that queues a list.
    ///
    /// - Parameter mayNameFolders: the list itself may name folders.
    func checkForList(mayNameFolders: Bool = false) throws {
        if let option = optionsOfOne.first { throw ValidationError(catalog.text("%1$s is for one URL, not for a list.", "--\(option)")) }
        try check(mayNameFolders: mayNameFolders)
    }

    private func check(mayNameFolders: Bool = false, mayAsk: Bool = false) throws {
        if output != nil, directory != nil || filename != nil {
            throw ValidationError(
                catalog.text("--output already gives the folder and the name; leave --directory and --filename out."))
        }
        if extract.isPath, output != nil || directory != nil {
            throw ValidationError(
                catalog.text("--extract with a path already gives the folder; leave --output and --directory out."))
        }
        if parents, output == nil, directory == nil, !extract.isPath, !mayNameFolders {
            throw ValidationError(catalog.text("%1$s needs %2$s or %3$s.", "--parents", "--output, --directory", "--extract=PATH"))
        }
        try Self.check(header)
        if ifExists == .ask { try checkQuestion(mayAsk) }
        if postData != nil, postFile != nil {
            throw ValidationError(catalog.text("The body is given twice: by --post-data and by --post-file."))
        }
        if postType != nil, postData == nil, postFile == nil {
            throw ValidationError(catalog.text("%1$s needs %2$s or %3$s.", "--post-type", "--post-data", "--post-file"))
        }
        if [loadCookies, postFile, login.passwordFile].count(where: { $0 == "-" }) > 1 {
            throw ValidationError(
                catalog.text("Standard input gives one file only; --load-cookies, --post-file and --password-file share it."))
        }
        if token != nil, app == nil { throw ValidationError(catalog.text("%1$s needs %2$s.", "--token", "--app")) }
        if let checksum {
            do throws(Refusal) { _ = try Checksum(checksum) } catch { throw ValidationError(catalog.explanation(error)) }
        }
        if let pieceHashes {
            do throws(Refusal) { _ = try PieceHashes(pieceHashes) } catch { throw ValidationError(catalog.explanation(error)) }
        }
        if let proxy { try Self.check(proxy: proxy) }
        if output == "-" {
            throw ValidationError(
                catalog.text("Standard output is no file that the service could write. Write instead: cat \"$(todoku fetch URL)\""))
        }
        if let output, LocalPath.isFolder(output) {
            throw ValidationError(catalog.text("“%1$s” is a folder; give it as --directory.", output))
        }
        if let output, try LocalPath.split(output) == nil {
            throw ValidationError(catalog.text("--output “%1$s” does not end in a file name.", output))
        }
    }

    private func checkQuestion(_ mayAsk: Bool) throws {
        guard mayAsk else {
            throw ValidationError(
                catalog.text("--if-exists ask is for todoku get and todoku add; use rename, replace, skip or fail."))
        }
        guard !extract.isGiven else {
            throw ValidationError(catalog.text("--if-exists ask does not go with --extract; use rename, skip or fail."))
        }
        guard Terminal.canAsk, !CommandLine.arguments.contains("--json") else {
            throw ValidationError(
                catalog.text("There is no terminal to ask what to do if the name is taken; use rename, replace, skip or fail."))
        }
    }

    /// The given options that `Fetch` of the service refuses.
    var optionsOfDownload: [String] {
        [("extract", extract.isGiven), ("private", isPrivate), ("post-data", postData != nil), ("post-file", postFile != nil)]
            .filter(\.1).map(\.0)
    }

    private var optionsOfOne: [String] {
        [
            ("output", output != nil), ("filename", filename != nil), ("checksum", checksum != nil), ("size", size != nil),
            ("post-data", postData != nil), ("post-file", postFile != nil), ("mirror", !mirror.isEmpty),
            ("piece-hashes", pieceHashes != nil), ("token", token != nil), ("extract=FOLDER", extract.text != nil),
        ]
        .filter(\.1).map(\.0)
    }

    /// Makes the missing folders, if that is asked for.
    ///
    /// - Parameter urls: the URLs of the downloads, if they are known. They choose among too many cookies.
    /// - Throws: if the folders cannot be made, if a file cannot be read, or if the password can neither be read nor be asked for.
    func request(for urls: [String] = []) throws(CommandFailure) -> DownloadRequest {
        var request = DownloadRequest()
        let path = try output.flatMap { text throws(CommandFailure) in try LocalPath.split(text) }
        let folder = try directory.map { text throws(CommandFailure) in try LocalPath.absolute(text) }
        request.set(\.directory, to: path?.folder ?? folder)
        request.set(\.fileName, to: path?.name ?? filename)
        let extraction = try extract.folder()
        request.set(\.extract, to: extraction)
        let above = extract.isPath ? extraction?.name.map { LocalPath.folder(of: $0) } : nil
        if parents, let folder = path?.folder ?? folder ?? above { try LocalPath.makeFolder(folder) }
        let (username, password) = try login.read()
        request.set(\.username, to: username)
        request.set(\.password, to: password)
        if let proxy, let address = try? ProxyAddress(proxy) { request.proxy = address }
        request.set(\.ifExists, to: ifExists?.policy)
        if !header.isEmpty { request.headers = header.compactMap { RequestArguments.header($0) } }
        if let loadCookies { request.cookies = try Self.cookies(in: loadCookies, for: urls) }
        if let postData { request.postData = Array(postData.utf8) }
        if let postFile { request.postData = try Self.body(in: postFile) }
        request.set(\.postType, to: postType)
        if !mirror.isEmpty { request.mirrors = mirror }
        if findMirrors { request.findsMirrors = true }
        request.set(\.userAgent, to: userAgent)
        request.set(\.referrer, to: referrer)
        request.checksum = checksum
        if let pieceHashes, let hashes = try? PieceHashes(pieceHashes) { request.pieceHashes = hashes }
        request.set(\.size, to: size)
        request.set(\.maxSize, to: maxSize)
        request.set(\.expectType, to: expectType)
        request.set(\.notBefore, to: notBefore)
        request.set(\.deadline, to: deadline)
        if paused { request.start = false }
        if renewable { request.renewable = true }
        if notMetered { request.allowsMetered = false }
        if notPrivate { request.allowsPrivate = false }
        if allowDowngrade { request.allowsDowngrade = true }
        if onlyIfChanged { request.onlyIfChanged = true }
        if isPrivate { request.isPrivate = true }
        request.set(\.requestInterval, to: requestInterval)
        request.set(\.activate, to: activate)
        request.set(\.priority, to: priority)
        request.set(\.speedLimit, to: speedLimit)
        request.set(\.connections, to: connections)
        request.set(\.stallTimeout, to: stallTimeout)
        request.set(\.retries, to: retries)
        request.set(\.tag, to: tag)
        request.set(\.app, to: app)
        request.set(\.token, to: token)
        request.set(\.notify, to: notify)
        request.set(\.notifyDelay, to: notifyDelay)
        request.set(\.title, to: title)
        request.set(\.body, to: body)
        request.set(\.icon, to: icon)
        request.set(\.sound, to: sound)
        request.set(\.showProgress, to: showProgress)
        request.set(\.desktopID, to: desktopID)
        for entry in metadata { request.metadata[entry.key] = .string(entry.text) }
        return request
    }

    private static func body(in path: String) throws(CommandFailure) -> [UInt8] {
        if let bytes = try InputFile.read(path, most: Limits.postBytes) { return bytes }
        let most = catalog.size(ByteCount(clamping: Limits.postBytes))
        throw CommandFailure(.usage, catalog.text("“%1$s” is too long for the body of a request: at most %2$s", path, most))
    }

    /// The cookies of a file for downloads of `urls`.
    static func cookies(in path: String, for urls: [String]) throws(CommandFailure) -> [Cookie] {
        let file = try CookieFile(file: path, now: WallTime(microseconds: wallClock()))
        let (cookies, leftOut) = try file.cookies(for: urls)
        if leftOut > 0 {
            Output.complain(
                catalog.text(
                    "“%1$s” has more cookies than a download may have; those of the same site are sent (%2$s of %3$s)", path,
                    catalog.count(cookies.count), catalog.count(file.cookies.count)))
        }
        return cookies
    }

    /// Refuses what is no header, without repeating it: the value may be a secret.
    static func check(_ headers: [String]) throws {
        guard headers.allSatisfy({ header($0) != nil }) else {
            throw ValidationError(catalog.text("A --header has no “:” after its name; write it like 'Accept: text/html'."))
        }
    }

    /// "Name: value"; nil: it is no header.
    static func header(_ text: String) -> HeaderField? {
        guard let (name, value) = text.divided(at: ":"), !name.isEmpty else { return nil }
        return HeaderField(name: String(name), value: String(value.drop { $0 == " " || $0 == "\t" }))
    }

    @Sendable static func parsePriority(_ text: String) throws -> Int32 {
        if let priority = Int32(text) { return priority }
        throw ValidationError(
            catalog.text("“%1$s” is not a priority; write a whole number such as 10 or -1. A higher number starts first.", text))
    }

    @Sendable static func parseConnections(_ text: String) throws -> UInt32 {
        let most = DownloadOptions.mostConnections
        if let count = UInt32(text), count <= most { return count }
        throw ValidationError(
            catalog.text(
                "“%1$s” is not a number of connections; write a whole number from 1 to %2$s, or 0 (automatic).", text, String(most)))
    }

    @Sendable static func parseRetries(_ text: String) throws -> UInt32 {
        if let count = UInt32(text) { return count }
        throw ValidationError(
            catalog.text("“%1$s” is not a number of retries; write a whole number from 0 (none) to %2$s.", text, String(UInt32.max)))
    }

    // The service's sentences about these times count in milliseconds.

    @Sendable static func parseStallTimeout(_ text: String) throws -> Duration {
        let timeout = try Amounts.parseDuration(text)
        if timeout > .zero { return timeout }
        throw ValidationError(catalog.text("“%1$s” is too short; write a time above 0, such as 30s.", text))
    }

    @Sendable static func parseNotifyDelay(_ text: String) throws -> Duration {
        let (delay, most) = (try Amounts.parseDuration(text), Limits.longestNotifyDelay)
        if delay <= most { return delay }
        throw ValidationError(
            catalog.text("“%1$s” is too long; write a time of at most %2$s, such as 30s.", text, catalog.duration(most)))
    }

    @Sendable static func parseDesktopID(_ text: String) throws -> DesktopID {
        if let id = DesktopID(text) { return id }
        throw ValidationError(catalog.text("“%1$s” is not the name of a desktop entry; write it like org.example.App.", text))
    }

    @Sendable static func parseMetadata(_ text: String) throws -> KeptText {
        guard let (key, value) = text.divided(at: "="), !key.isEmpty else {
            throw ValidationError(catalog.text("“%1$s” is not metadata; write it like key=value.", text))
        }
        return KeptText(key: String(key), text: String(value))
    }
}

extension ArgumentHelp {
    /// The help text of a service's option.
    static func option(_ option: PartialKeyPath<DownloadOptions>, _ valueName: String? = nil) -> ArgumentHelp {
        ArgumentHelp(OptionRow.of(option)?.help ?? "", valueName: valueName)
    }
}
