// The options of a download. CONTRIBUTING.md, "An option of `Download`", says how to add one.

extension OptionRow {
    /// In the order of the documentation.
    public static let all: [OptionRow] = ofCaller + ofFile + ofSource + ofRequest + ofTurn + ofShow

    /// Options that say where the file goes and how it is requested. `DownloadToFd` refuses them, because its caller gives an open file.
    public static let ofPlace = [\DownloadOptions.directory, \.fileName, \.ifExists, \.extract, \.onlyIfChanged].compactMap { of($0)?.key }

    /// Options that a Metalink document gives for each file.
    public static let ofDocument = [\DownloadOptions.fileName, \.checksum, \.pieceHashes, \.size, \.mirrors].compactMap { of($0)?.key }

    /// Options of `ReplaceUrl`: those that belong to the replaced URL.
    public static let ofURL = ofHeaders + withURL

    private static let withURL = [\DownloadOptions.cookies, \.referrer, \.username, \.password].compactMap { of($0)?.key }

    /// The two options that set `DownloadOptions.headers`. The database has a line for each field instead.
    public static let ofHeaders = ["headers", headerListKey]

    /// The second of them. A call's dictionary has no order, and no name twice.
    public static let headerListKey = "header-list"

    private static let ofCaller: [OptionRow] = [
        OptionRow(
            "app", \.app, .text(most: 255).checked { $0.isEmpty ? "is empty." : nil },
            // By bytes: files are found by the id, such as the overrides of Flatpak, and `==` takes U+212A (the kelvin sign) for a K.
            sandbox: .rule { $1.app.isSameBytes(as: $0.app) ? nil : "use the id of another app; its own is \($1.app)" },
            help: "Id of the application that owns the download, such as org.example.App."),
        OptionRow(
            "token", \.token, .text(most: 64).checked { isToken($0) ? nil : "must have 1 to 64 characters of A–Z, a–z, 0–9 and _." },
            sandbox: .free,
            help: "Your name for this download: repeating the command queues it once. Needs --app; for one URL."),
        OptionRow("tag", \.tag, .text(most: 255), sandbox: .free, help: "Your name for a group of downloads."),
        OptionRow(
            "metadata", \.metadata, .dictionary(most: Limits.metadataBytes), sandbox: .free,
            help: "Your own data to keep with the download; may be repeated."),
        OptionRow(
            "private", \.isPrivate, .flag, sandbox: .free,
            help: "Keep no trace of it: soon after its end it leaves the list, and no toast or log has its name."),
        OptionRow(
            "activate", \.activate,
            .text(most: 255).checked {
                isApplicationName($0) ? nil : "must be the bus name of an application, such as org.example.App, not “\(shown($0))”."
            },
            sandbox: .rule { $0.activate.map($1.isOwn) == true ? nil : "have another application started" },
            help: "D-Bus activatable application to call when the download ends."),
    ]

    private static let ofFile: [OptionRow] = [
        OptionRow(
            "directory", \.directory,
            .text(most: 4096).checked { $0.isAbsolutePath ? nil : "must be an absolute path, not “\(shown($0))”." },
            sandbox: .rule {
                guard $0.directory.map($1.isFolder) ?? true else { return "choose the folder; its downloads go to \($1.folder)" }
                $0.directory = nil
                return nil
            },
            help: "Folder of the file."),
        OptionRow(
            "filename", \.fileName,
            .text(most: 4096).checked {
                FileName.isBare($0)
                    ? nil
                    : """
                    must be a bare name of at most 240 bytes, not hidden, without a slash and without control characters or invisible ones \
                    (such as bidi marks).
                    """
            },
            sandbox: .free, help: "Name of the file, instead of the server's; for one URL."),
        OptionRow(
            "if-exists", \.ifExists, .choice,
            sandbox: .rule { options, _ in
                if options.ifExists == .replace { return "replace files" }
                // `skip` and `fail` would reveal which names exist.
                options.ifExists = .rename
                return nil
            },
            help: "What to do if the name is taken (default: rename, to “name (1)”)."),
        OptionRow(
            "extract", \.extract,
            .folder.checked {
                $0.name.map(isFolderName) ?? true
                    ? nil
                    : """
                    must be true, the bare name of a folder, or its absolute path. The name has at most \(FileName.longest) bytes, is not hidden, \
                    and has no control characters or invisible ones.
                    """
            },
            none: .flag(false),
            // An absolute path has set the directory.
            sandbox: .rule {
                guard $0.directory.map($1.isFolder) ?? true else { return "choose the folder; its downloads go to \($1.folder)" }
                $0.directory = nil
                return nil
            },
            help: "Unpack the archive into a folder named after it. --extract=FOLDER names the folder, for one URL."),
        OptionRow(
            "checksum", \.checksum, .checksum, sandbox: .free,
            help: "sha256:<hex>, or sha512, sha384, sha224, sha1, md5; any other file fails. For one URL."),
        OptionRow(
            "piece-hashes", \.pieceHashes, .pieceHashes, sandbox: .free,
            help: "sha256:BYTES:<hex>, the digests of the file's pieces of BYTES bytes, one after another. Needs --size; for one URL."),
        OptionRow("size", \.size, .uint64, sandbox: .free, help: "Expected size of the file; any other size fails. For one URL."),
        OptionRow("max-size", \.maxSize, .uint64, sandbox: .free, help: "Largest size of the file, such as 10MiB."),
        OptionRow(
            "expect-type", \.expectType,
            .text(most: 255).mapped { $0.lowercased() }.checked {
                isMediaRange($0) ? nil : "must be a media type, such as “image/png” or “image/*”."
            },
            sandbox: .free, help: "Expected media type, such as image/png or image/*; any other type fails."),
        OptionRow(
            "only-if-changed", \.onlyIfChanged, .flag, sandbox: .free,
            help: "Keep the last downloaded copy if the server has nothing newer."),
    ]

    private static let ofSource: [OptionRow] = [
        OptionRow(
            "mirrors", \.mirrors, .urls(most: Limits.mirrors), sandbox: .free,
            help: "Another URL of the same file; may be repeated. Best with --checksum. For one URL."),
        OptionRow(
            "find-mirrors", \.findsMirrors, .flag, sandbox: .free,
            help: "Also use the mirrors that the server names; they count only with --checksum or --piece-hashes."),
        OptionRow(
            "proxy", \.proxy, .proxy,
            // A proxy could lead into a private network, and `direct://` past the proxy that hides the user's address.
            sandbox: .rule { options, _ in options.proxy == nil ? nil : "choose a proxy; the user's settings decide" },
            help: "Proxy for this download, such as http://host:3128 or socks5h://host:1080; direct:// for none."),
        OptionRow(
            "allow-private", \.allowsPrivate, .flag,
            sandbox: .rule {
                $0.allowsPrivate && !$1.allowsPrivate
                    ? "reach this machine or a private network, unless the user allows it (SandboxPrivate)" : nil
            },
            help: "Never connect to this machine or a private network; for URLs from strangers."),
        OptionRow(
            "allow-downgrade", \.allowsDowngrade, .flag, sandbox: .free,
            help: "Follow redirects from https to http even without a checksum."),
        OptionRow(
            "renewable", \.renewable, .flag, sandbox: .free,
            help: "If the link expires, wait for ‘todoku renew’ instead of failing."),
    ]

    private static let ofRequest: [OptionRow] = [
        OptionRow(
            "headers", \.headers, .headers, sandbox: .free, help: "Request header, sent to the first server only; may be repeated."),
        OptionRow(
            headerListKey, \.headers, .headerList, sandbox: .free,
            help: "Request headers in this order, of which names may repeat; --header sends them so."),
        OptionRow(
            "cookies", \.cookies, .cookies, sandbox: .free,
            help: "Send the cookies of a file in the Netscape format (cookies.txt), each to its own hosts only."),
        OptionRow(
            "post-data", \.postData, .bytes(most: Limits.postBytes), sandbox: .free,
            help: "Send this text in the body of a POST request, once; --post-file sends a file. For one URL."),
        OptionRow(
            "post-type", \.postType,
            .text(most: 255).checked { isMediaType($0) ? nil : "must be a media type, such as “application/json”." }, sandbox: .free,
            help: "Media type of the body (default: \(DownloadOptions.formType))."),
        OptionRow("user-agent", \.userAgent, .text(), sandbox: .free, help: "User-Agent to send."),
        OptionRow(
            "referrer", \.referrer, .text(most: Limits.urlBytes).mapped(Referrer.withoutSecrets), sandbox: .free,
            help: "Page that links to the file (the header Referer)."),
        OptionRow("username", \.username, .text(), sandbox: .free, help: "User name, sent to the first server only."),
        OptionRow("password", \.password, .text(), sandbox: .free, help: "Password, sent to the first server only."),
    ]

    private static let ofTurn: [OptionRow] = [
        OptionRow("start", \.start, .flag, sandbox: .free, help: "Queue it paused; ‘todoku resume’ starts it."),
        OptionRow(
            "priority", \.priority, .int32,
            sandbox: .rule { options, _ in options.priority > 0 ? Sandbox.mayNotGoFirst : nil },
            help: "A higher number starts first (default: 0)."),
        OptionRow("speed-limit", \.speedLimit, .uint64, none: .uint64(0), sandbox: .free, help: "Most bytes per second, such as 500K."),
        OptionRow(
            "connections", \.connections,
            .uint32.checked {
                $0 <= DownloadOptions.mostConnections ? nil : "must be a number from 0 (automatic) to \(DownloadOptions.mostConnections)."
            },
            sandbox: .free, help: "Most connections at a time, each for a part of the file; at most 16 (default: automatic)."),
        OptionRow(
            "stall-timeout", \.stallTimeout, .milliseconds.checked { $0 > .zero ? nil : "must be a number of milliseconds above 0." },
            sandbox: .free, help: "End an attempt that brings less than a byte a second for this time (default: 30s)."),
        OptionRow(
            "retries", \.retries, .uint32, sandbox: .free,
            help: "Most retries if the server refuses or cannot be reached (default: 10)."),
        OptionRow(
            "not-before", \.notBefore, .instant, none: .uint64(0), sandbox: .free,
            help: "Do not start before this time: 23:30, 2026-12-24T03:00, +2h, @SECONDS."),
        OptionRow(
            "deadline", \.deadline, .longMilliseconds(most: Limits.longestDeadline), none: .uint64(0), sandbox: .free,
            help: "Fail after this time since the first start, waits included."),
        OptionRow(
            "allow-metered", \.allowsMetered, .flag, sandbox: .free,
            help: "Wait for an unmetered connection."),
        OptionRow(
            "request-interval", \.requestInterval, .milliseconds, none: .uint32(0), sandbox: .free,
            help: "Shortest time between requests to one host by all downloads with the same value."),
    ]

    private static let ofShow: [OptionRow] = [
        OptionRow("notify", \.notify, .choice, sandbox: .free, help: "Whether to show a toast at the end (default: background)."),
        OptionRow(
            "notify-delay", \.notifyDelay,
            .milliseconds.checked {
                $0 <= Limits.longestNotifyDelay ? nil : "must be at most \(Limits.longestNotifyDelay.wholeMilliseconds) ms."
            },
            sandbox: .free, help: "Delay between the end and the toast, at most an hour."),
        OptionRow("title", \.title, .text(), sandbox: .free, help: "Title of the completion toast."),
        OptionRow("body", \.body, .text(most: 4096), sandbox: .free, help: "Text of the completion toast."),
        OptionRow(
            "icon", \.icon, .text(most: 4096),
            // The notification server reads the file outside of the sandbox. A path could name any file, and an endless one would hang the
            // server.
            sandbox: .rule { options, _ in
                options.icon?.utf8.contains { $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: ":") } == true
                    ? "choose a file as an icon; give the name of an icon" : nil
            },
            help: "Icon of the toasts, a name or a file."),
        OptionRow(
            "sound", \.sound,
            .text(most: 255).checked {
                $0.utf8.contains(UInt8(ascii: "/"))
                    ? "must be the name of a sound in the sound theme, such as complete-download, not a file." : nil
            },
            sandbox: .free, help: "Sound of the completion toast, by name; empty: silent."),
        OptionRow(
            "show-progress", \.showProgress, .flag, sandbox: .free,
            help: "Whether to show progress: as a toast, on the dock, as a job (default: shown)."),
        OptionRow(
            "desktop-id", \.desktopID, .desktopID,
            sandbox: .rule {
                guard let name = $0.desktopID?.name, $1.isOwn(name) || $1.isEntryOfSnap(name) else { return "mark the icon of another app" }
                return nil
            },
            help: "Desktop entry whose dock icon shows count and progress."),
    ]
}

extension Sandbox {
    /// Completes "An app in a sandbox may not …".
    public static let mayNotGoFirst = "give a priority above 0"
}

// MARK: Checks

private func isToken(_ text: String) -> Bool {
    !text.isEmpty && text.utf8.allSatisfy { $0.isLetter || $0.isDigit || $0 == UInt8(ascii: "_") }
}

/// Whether `text` is a bare name, or an absolute path that ends in one.
private func isFolderName(_ text: String) -> Bool { FileName.isBare(text.isAbsolutePath ? String(text.tidyPath.lastPathComponent) : text) }

/// `type/subtype` or `type/*` (RFC 9110 §12.5.1), without parameters.
private func isMediaRange(_ text: String) -> Bool {
    let parts = text.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
    guard parts.count == 2, !parts[0].isEmpty, !parts[1].isEmpty else { return false }
    return parts[0].allSatisfy { RequestHeaders.isTokenByte($0) && $0 != UInt8(ascii: "*") }
        && (parts[1].elementsEqual("*".utf8) || parts[1].allSatisfy(RequestHeaders.isTokenByte))
}

/// A media type without "*". Parameters may follow a semicolon.
private func isMediaType(_ text: String) -> Bool {
    var type = text.utf8.prefix { $0 != UInt8(ascii: ";") }
    while type.last == UInt8(ascii: " ") { type.removeLast() }
    return !type.contains(UInt8(ascii: "*")) && isMediaRange(String(decoding: type, as: UTF8.self))
}

/// Whether `name` can be an application's well-known name (D-Bus specification, "Bus names"; org.freedesktop.Application derives the object
/// path from it).
private func isApplicationName(_ name: String) -> Bool {
    let parts = name.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
    return name.utf8.count <= 255 && parts.count >= 2
        && parts.allSatisfy { part in
            guard let first = part.first, !first.isDigit else { return false }
            return part.allSatisfy { $0.isLetter || $0.isDigit || $0 == UInt8(ascii: "_") || $0 == UInt8(ascii: "-") }
        }
}
