internal import ArgumentParser
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Localization
internal import TodokuClient

struct MetalinkCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "metalink", abstract: "Queue the files of a Metalink document as one batch.",
        discussion: """
            The document is a Metalink of version 4 (RFC 5854, .meta4). It names files with their sizes, hashes and URLs. Each file goes to its \
            best URL, is checked by its strongest hash, and gets the document's name without folders. If one file is refused, nothing is queued. \
            A URL is fetched first, by the service. The command prints the batch's number and returns. With --wait it shows the progress and \
            waits for the end.

            The options apply to every file. --title, --body, --icon, --sound and --notify set the one toast at the end of the batch. Headers, \
            referrer and credentials are for a document in a file, and go to the first URL of each of its files.

            While a document is fetched from its URL, Ctrl-C cancels this download, and nothing is queued. After that, Ctrl-C ends the command \
            at once, and leaves the batch to the service. “todoku cancel” with the batch's number cancels it.

            EXAMPLES:
              todoku metalink --wait --directory ~/Downloads https://example.org/release.meta4
              curl -s https://example.org/release.meta4 | todoku metalink -
            """)

    @Argument(help: ArgumentHelp("The document: a file or a URL; - is standard input.", valueName: "file"), completion: .file())
    var file: String

    @Flag(name: .shortAndLong, help: "Show the progress and wait for the end.") var wait = false
    @OptionGroup(title: "Request") var request: RequestArguments
    @OptionGroup var output: OutputArguments
    @Flag(name: .shortAndLong, help: "Print errors only.") var quiet = false
    @OptionGroup var refusedExec: RefusedExecArguments

    private var isURL: Bool {
        let name = file.lowercased()
        return name.hasPrefix("http://") || name.hasPrefix("https://")
    }

    func validate() throws {
        try refusedExec.refuse(for: "todoku metalink")
        try request.checkForList()
        // The path is not repeated: a URL may have secrets.
        if !isURL, let meant = CommandFailure.suggestion(forFile: file) {
            throw ValidationError(catalog.text("There is no such file. Did you mean %1$s?", meant))
        }
        if file == "-", request.login.passwordFile == "-" || request.loadCookies == "-" {
            throw ValidationError(
                catalog.text(
                    "Standard input gives the document, so it cannot give the password or cookies; use a file for one of them."))
        }
        // They would go to all servers that the document names.
        if isURL, request.login.user != nil || request.referrer != nil || !request.header.isEmpty {
            let fault = catalog.text(
                "Headers, referrer and credentials do not go with the URL of a document; fetch it with todoku get, then give its file.")
            throw ValidationError(fault)
        }
    }

    func run() throws {
        let json = output.json
        let (request, document) = Program.require(json: json) { () throws(CommandFailure) in
            (try self.request.request(for: isURL ? [file] : []), isURL ? try DocumentFile.empty(for: file) : try DocumentFile(path: file))
        }
        Program.run(json: json, handlesInterrupt: true) { client in
            if isURL { try await document.fetch(file, request, client, isQuiet: quiet) }
            return try await BatchFollower.run(client, json: json, isQuiet: quiet, waits: wait) {
                do throws(ClientError) {
                    return try await client.downloadMetalink(document.descriptor, request)
                } catch { throw document.failure(error) }
            }
        }
    }
}

/// A document as a regular file that the service can read.
struct DocumentFile {
    let name: String
    /// Open until the program ends.
    let descriptor: Int32

    private init(_ name: String, _ descriptor: Int32) { (self.name, self.descriptor) = (name, descriptor) }

    /// - Parameter path: `-` is standard input. What is no regular file is copied into one.
    init(path: String) throws(CommandFailure) {
        name = path == "-" ? catalog.text("standard input") : path
        let source = path == "-" ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC)
        var status = stat()
        guard source >= 0, fstat(source, &status) == 0 else { throw Self.unreadable(name, errno) }
        guard status.st_mode & S_IFMT != S_IFDIR else { throw Self.unreadable(name, EISDIR) }
        if status.st_mode & S_IFMT == S_IFREG {
            descriptor = source
            return
        }
        let copy = try Self.temporary(for: name)
        descriptor = copy
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        var total = 0
        // The service refuses a document that is longer than this.
        while total <= Limits.documentBytes {
            let count = uninterrupted { read(source, &buffer, buffer.count) }
            guard count >= 0 else { throw Self.unreadable(name, errno) }
            if count == 0 { return }
            let failure = buffer.withUnsafeBytes { writeAll(UnsafeRawBufferPointer(rebasing: $0[..<count]), to: copy) }
            guard failure == 0 else { throw Self.unreadable(name, failure) }
            total += count
        }
    }

    /// An empty file for the document at a URL.
    static func empty(for url: String) throws(CommandFailure) -> DocumentFile {
        let shown = (try? DownloadURL(url))?.redacted ?? catalog.text("the document")
        return DocumentFile(shown, try temporary(for: shown))
    }

    /// Fetches the document by the service. The download is removed from the list afterwards. Ctrl-C cancels it. SIGINT must be blocked.
    ///
    /// - Parameter isQuiet: says neither that everything is paused, nor what Ctrl-C has done.
    @BusActor func fetch(_ url: String, _ request: DownloadRequest, _ client: DownloaderClient, isQuiet: Bool) async throws {
        var own = DownloadRequest()
        (own.maxSize, own.notify, own.showProgress) = (ByteCount(Limits.documentBytes), .never, false)
        (own.userAgent, own.allowsPrivate, own.allowsMetered) = (request.userAgent, request.allowsPrivate, request.allowsMetered)
        own.set(\.proxy, to: request.proxy)
        // Each cookie goes to its own hosts only, and the log must not have the URL either.
        if !request.cookies.isEmpty { own.cookies = request.cookies }
        if request.isPrivate { own.isPrivate = true }
        if !request.app.isEmpty { own.app = request.app }
        let asked = own
        let farewell = isQuiet ? nil : catalog.text("the document is no longer fetched, and nothing is queued")
        try await Interrupt.run(saying: farewell) { () async throws -> DownloadReference in
            do throws(ClientError) { return try await client.download(url, into: descriptor, asked) } catch {
                throw CommandFailure(error, about: url, number: 1, of: 1)
            }
        } follow: { download in
            if !isQuiet { await PauseNotice(client).tell() }
            do { _ = try await client.wait(for: download) } catch {
                try? await client.remove(download)
                guard let error = error as? ClientError else { throw error }
                throw CommandFailure(.ended, catalog.text("%1$s: %2$s", name, catalog.explanation(error)), name: error.name)
            }
            try? await client.remove(download)
        } cancel: { download in
            try? await client.remove(download)
        }
    }

    /// The service's refusal, with the name of the document.
    func failure(_ error: ClientError) -> CommandFailure {
        let prefix = "The Metalink document: "
        guard error.cause == .refused, error.message.hasPrefix(prefix) else { return CommandFailure(error).namingParents(error) }
        let reason = catalog.explanation(name: error.name, String(error.message.dropFirst(prefix.count)))
        return CommandFailure(.refused, catalog.text("%1$s: %2$s", name, reason), name: error.name)
    }

    /// An open file without a name.
    private static func temporary(for name: String) throws(CommandFailure) -> Int32 {
        var path = Array("\(temporaryFolder() ?? "/tmp")/todoku-XXXXXX".utf8CString)
        let descriptor = mkstemp(&path)
        guard descriptor >= 0 else { throw unreadable(name, errno) }
        unlink(path)
        return descriptor
    }

    /// - Parameter error: taken from errno before this call, because the first use of the catalogue looks for files of the locale.
    private static func unreadable(_ name: String, _ error: Int32) -> CommandFailure {
        CommandFailure(.usage, catalog.text("cannot read “%1$s”: %2$s", name, String(cString: strerror(error))))
    }
}
