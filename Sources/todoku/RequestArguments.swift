internal import ArgumentParser
internal import DownloadModel
internal import Glibc
internal import Localization
internal import TodokuClient

/// How a download is wanted: the options that `get` and `add` share, one for each of the contract's.
struct RequestArguments: ParsableArguments {
    @Option(
        name: .shortAndLong, help: ArgumentHelp("Where to put it, folder and name; for one URL.", valueName: "file"), completion: .file())
    var output: String?

    @Option(name: .shortAndLong, help: "The folder to put it in.", completion: .directory)
    var directory: String?

    @Option(help: ArgumentHelp("Its name, instead of the server's; for one URL.", valueName: "name"))
    var filename: String?

    @Option(help: "Where the name is taken (default: rename, to “name (1)”).")
    var ifExists: ExistingFilePolicy?

    @Option(
        name: [.customShort("H"), .long],
        help: ArgumentHelp("A request header, for the first server only; may be repeated.", valueName: "name: value"),
        transform: RequestArguments.parseHeader)
    var header: [HeaderField] = []

    @Option(help: "The User-Agent to give.")
    var userAgent: String?

    @Option(help: ArgumentHelp("The page that led here (the header Referer).", valueName: "url"))
    var referrer: String?

    @OptionGroup var login: CredentialArguments

    @Option(help: ArgumentHelp("sha256:<hex>, or sha512, sha1, md5; another file fails. For one URL.", valueName: "checksum"))
    var checksum: String?

    @Option(help: "The size it must have. For one URL.", transform: Amounts.parseBytes)
    var size: ByteCount?

    @Option(help: ArgumentHelp("The most it may have, as in 10MiB.", valueName: "size"), transform: Amounts.parseBytes)
    var maxSize: ByteCount?

    @Option(help: ArgumentHelp("The media type it must have, as in image/png or image/*.", valueName: "type"))
    var expectType: String?

    @Option(
        help: ArgumentHelp("Not before this time: 23:30, 2026-12-24T03:00, +2h, @SECONDS.", valueName: "time"),
        transform: Amounts.parseInstant)
    var notBefore: WallTime?

    @Option(
        help: ArgumentHelp("Give up so long after the first start, waits included.", valueName: "time"), transform: Amounts.parseDuration)
    var deadline: Duration?

    @Flag(help: "Not over a metered link (a phone's, say); wait for another.")
    var notMetered = false

    @Flag(help: "Not to this machine or a private network: for URLs of strangers.")
    var notPrivate = false

    @Flag(help: "Follow redirects from https to http, without a checksum too.")
    var allowDowngrade = false

    @Option(
        help: ArgumentHelp("Least time between requests to one host, over all downloads with this option.", valueName: "time"),
        transform: Amounts.parseDuration)
    var requestInterval: Duration?

    @Flag(help: "Keep the copy held where the server has nothing newer.")
    var onlyIfChanged = false

    @Option(help: ArgumentHelp("D-Bus activatable application to call at the end.", valueName: "name"))
    var activate: String?

    @Flag(help: "Where the server takes the link no more, wait for ‘todoku renew’.")
    var renewable = false

    @Flag(help: "Add it paused; ‘todoku resume’ starts it.")
    var paused = false

    @Option(parsing: .unconditional, help: "Higher first; 0 where not given.")
    var priority: Int32?

    @Option(
        name: [.customLong("speed-limit"), .customLong("limit-rate")],
        help: ArgumentHelp("Most bytes per second, as in 500K.", valueName: "speed"),
        transform: Amounts.parseSpeed)
    var speedLimit: Speed?

    @Option(
        help: ArgumentHelp("Give an attempt up after so long without a byte (default: 30s).", valueName: "time"),
        transform: Amounts.parseDuration)
    var stallTimeout: Duration?

    @Option(help: ArgumentHelp("How often to try again where the server refuses or is not reached (default: 10).", valueName: "count"))
    var retries: UInt32?

    @Option(help: "A name of your own for a group of downloads.")
    var tag: String?

    @Option(help: ArgumentHelp("The application it belongs to, as in org.example.App.", valueName: "id"))
    var app: String?

    @Option(help: "A name of your own for this download, so that asking twice queues it once; needs --app. For one URL.")
    var token: String?

    @Option(help: "Whether to post a toast at its end (default: background).")
    var notify: NotifyPolicy?

    @Option(help: "The completion toast's title.")
    var title: String?

    @Option(help: "The completion toast's text.")
    var body: String?

    @Option(help: ArgumentHelp("The toasts' icon, a name or a file.", valueName: "icon"))
    var icon: String?

    @Option(help: ArgumentHelp("Name of the completion toast's sound; empty: silent.", valueName: "name"))
    var sound: String?

    @Option(
        help: ArgumentHelp("From the end to the toast, an hour at most.", valueName: "time"), transform: Amounts.parseDuration)
    var notifyDelay: Duration?

    @Option(
        name: .customLong("desktop-id"), help: ArgumentHelp("Desktop entry whose dock icon carries count and progress.", valueName: "name"))
    var desktopID: String?

    @Flag(inversion: .prefixedNo, help: "Whether its progress is shown: as a toast, on the dock, as a job (default: shown).")
    var showProgress: Bool?

    @Option(
        help: ArgumentHelp("Data of your own to keep with it; may be repeated.", valueName: "key=value"),
        transform: RequestArguments.parseMetadata)
    var metadata: [KeptText] = []

    /// A key with its text.
    struct KeptText: Equatable, Sendable {
        let key: String
        let text: String
    }

    /// For `validate` of the command: what names one file goes with one URL.
    func check(urls: [String]) throws {
        if let option = urls.count > 1 ? optionsOfOne.first : nil {
            throw ValidationError("--\(option) is for one URL, and \(urls.count) are given.")
        }
        try check()
    }

    /// For `validate` of the command that queues a list.
    func checkForList() throws {
        if let option = optionsOfOne.first { throw ValidationError("--\(option) is for one URL, and not for a list.") }
        try check()
    }

    private func check() throws {
        if output != nil, directory != nil || filename != nil { throw ValidationError("--output says both --directory and --filename.") }
        if token != nil, app == nil { throw ValidationError("--token needs --app.") }
        if let checksum {
            do throws(Refusal) { _ = try Checksum(checksum) } catch { throw ValidationError(error.message) }
        }
        if let output, LocalPath.isFolder(output) { throw ValidationError("“\(output)” is a folder; give it by --directory.") }
        if let output, LocalPath.split(output) == nil { throw ValidationError("--output “\(output)” has no file name at its end.") }
    }

    private var optionsOfOne: [String] {
        [
            ("output", output != nil), ("filename", filename != nil), ("checksum", checksum != nil), ("size", size != nil),
            ("token", token != nil),
        ]
        .filter(\.1).map(\.0)
    }

    /// - Throws: where the password can be neither read nor asked for.
    func request() throws(CommandFailure) -> DownloadRequest {
        var request = DownloadRequest()
        if let output, let (folder, name) = LocalPath.split(output) {
            (request.directory, request.fileName) = (folder, name)
        } else {
            (request.directory, request.fileName) = (directory.map { LocalPath.absolute($0) }, filename)
        }
        request.ifExists = ifExists
        request.headers = header
        (request.userAgent, request.referrer) = (userAgent, referrer)
        (request.username, request.password) = try login.read()
        (request.checksum, request.size, request.maxSize) = (checksum, size, maxSize)
        if paused { request.start = false }
        (request.expectType, request.notBefore, request.deadline) = (expectType, notBefore, deadline)
        if renewable { request.renewable = true }
        if notMetered { request.allowsMetered = false }
        if notPrivate { request.allowsPrivate = false }
        if allowDowngrade { request.allowsDowngrade = true }
        if onlyIfChanged { request.onlyIfChanged = true }
        (request.requestInterval, request.activate) = (requestInterval, activate)
        (request.priority, request.speedLimit, request.stallTimeout, request.retries) = (priority, speedLimit, stallTimeout, retries)
        (request.tag, request.app, request.token) = (tag, app, token)
        (request.notify, request.title, request.body, request.icon, request.sound) = (notify, title, body, icon, sound)
        request.showProgress = showProgress
        (request.notifyDelay, request.desktopID) = (notifyDelay, desktopID)
        for entry in metadata { request.setMetadata(entry.text, for: entry.key) }
        return request
    }

    @Sendable static func parseHeader(_ text: String) throws -> HeaderField {
        guard let colon = text.firstIndex(of: ":"), colon > text.startIndex else {
            throw ValidationError("“\(text)” is no header; write it as in 'Accept: text/html'.")
        }
        let value = text[text.index(after: colon)...].drop { $0 == " " || $0 == "\t" }
        return HeaderField(name: String(text[..<colon]), value: String(value))
    }

    @Sendable static func parseMetadata(_ text: String) throws -> KeptText {
        guard let equals = text.firstIndex(of: "="), equals > text.startIndex else {
            throw ValidationError("“\(text)” is no metadata; write it as in key=value.")
        }
        return KeptText(key: String(text[..<equals]), text: String(text[text.index(after: equals)...]))
    }
}
