internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop

// What an app in a sandbox may do (docs/dbus.md, "From a sandbox"). Its downloads are those of its own `app` id; no others are there for it.

extension CallerIdentity {
    /// The only application whose downloads are there for this caller; nil: all are.
    var app: String? { if case .app(let id, _) = self { id } else { nil } }

    /// A batch is there for whoever all its members are there for.
    @BusActor func owns(_ batch: ManagedBatch) -> Bool { app.map { $0 == batch.record.app } ?? true }

    @BusActor func owns(_ download: ManagedDownload) -> Bool { app.map { $0 == download.record.options.app } ?? true }
}

extension Reply {
    /// - Throws: `NotAllowed` where the caller is in a sandbox; `what` completes "An app in a sandbox may not …".
    func refuseSandboxed(_ what: String) throws(Refusal) {
        if call.caller != .user { throw Refusal(.notAllowed, "An app in a sandbox may not \(what).") }
    }

    /// What says where `download` writes is checked again before an app in a sandbox sets it going anew: the user may have queued it for the app
    /// with options of his own, or may have changed `DefaultDirectory` since.
    ///
    /// - Throws: `NotAllowed` where the app could not queue it so now.
    @BusActor func refuseSandboxedPlace(of download: ManagedDownload) throws(Refusal) {
        try refuseSandboxedPlace(of: [download.entry], download.downloader)
    }

    /// The same of what a batch would set going, one of which is enough to refuse all.
    @BusActor func refuseSandboxedPlace(of entries: [LedgerEntry], _ downloader: Downloader) throws(Refusal) {
        guard call.caller != .user else { return }
        let folder = downloader.defaultDirectory
        var allowed = folder
        for entry in entries {
            let record = entry.record
            if record.isToDescriptor { continue }
            if record.options.ifExists == .replace { try refuseSandboxed("replace files, and this download does") }
            // Most are of one folder, in the same words.
            if record.directory == allowed { continue }
            guard SandboxRules.plain(record.directory) == SandboxRules.plain(folder) else {
                throw Refusal(
                    .notAllowed,
                    "An app in a sandbox may write into \(folder) only, and this download goes to another folder; queue it anew.")
            }
            allowed = record.directory
        }
    }
}

extension Reply {
    /// - Throws: `NotAllowed` where the caller is in a sandbox that has no network: it gets none through us.
    func refuseWithoutNetwork() throws(Refusal) { try SandboxRules.checkNetwork(of: call.caller) }
}

enum SandboxRules {
    static let priority = "give a priority above 0"

    /// - Throws: `NotAllowed` for an app whose sandbox has no network.
    static func checkNetwork(of caller: CallerIdentity) throws(Refusal) {
        guard case .app(let id, false) = caller else { return }
        throw Refusal(.notAllowed, "The sandbox of \(id) has no network (share=network), so nothing is downloaded for it.")
    }

    /// - Throws: `NotAllowed` where a fresh `url` names an address that the download, or who gives it, must stay away from.
    static func checkRenewal(
        of options: DownloadOptions, by url: DownloadURL, from caller: CallerIdentity, _ settings: Settings
    ) throws(Refusal) {
        var options = options
        if caller != .user { options.isSandboxed = true }
        try options.checkAddress(of: url, settings)
    }

    /// Whether a desktop entry is one that snapd makes for the snap of this id: `NAME_ENTRY`, of an instance `NAME+KEY_ENTRY` (snapd,
    /// `DesktopPrefix` in snap/info.go), whose names no other snap's begin with.
    fileprivate static func isEntry(_ name: String, ofSnap id: String) -> Bool {
        guard id.hasPrefix("snap.") else { return false }
        let instance = id.dropFirst(5).split(separator: "_")
        return name.hasPrefix(instance.joined(separator: "+") + "_")
    }

    /// `path` without superfluous slashes and dots, by its text alone.
    fileprivate static func plain(_ path: String) -> String {
        "/" + path.split(separator: "/").filter { $0 != "." }.joined(separator: "/")
    }
}

extension DownloadOptions {
    /// Reads the dictionary of a call by `caller`. In a sandbox `app` is its own id, named or not, and `directory` the default, named or not.
    ///
    /// - Throws: as `init(decoding:)`; `NotAllowed`, naming the key, for what an app in a sandbox may not ask for.
    init(
        decoding dictionary: [String: Variant], over defaults: DownloadOptions = DownloadOptions(), from caller: CallerIdentity,
        defaultDirectory: String, settings: Settings
    ) throws(Refusal) {
        guard case .app(let id, _) = caller else {
            try self.init(decoding: dictionary, over: defaults)
            return
        }
        try SandboxRules.checkNetwork(of: caller)
        let dictionary = dictionary.merging(["app": .string(id)]) { given, _ in given }
        try self.init(decoding: dictionary, over: defaults)
        isSandboxed = true
        for key in OptionKey.allCases where dictionary[key.rawValue] != nil {
            func notAllowed(_ what: String) -> Refusal {
                Refusal(.notAllowed, "Option \(key.rawValue): an app in a sandbox may not \(what).")
            }
            switch key {
            case .app: if app != id { throw notAllowed("speak for another; it is \(id)") }
            case .directory:
                guard directory.map({ SandboxRules.plain($0) == SandboxRules.plain(defaultDirectory) }) ?? true else {
                    throw notAllowed("choose the folder; its downloads go to \(defaultDirectory)")
                }
                directory = nil
            case .ifExists:
                if ifExists == .replace { throw notAllowed("replace files") }
                // Whether a download is skipped or fails would tell which names are there.
                ifExists = .rename
            case .priority: if priority > 0 { throw notAllowed(SandboxRules.priority) }
            case .activate:
                guard activate == id || activate?.hasPrefix(id + ".") == true else { throw notAllowed("have another application called") }
            case .desktopID:
                guard let name = desktopID?.name, name == id || name.hasPrefix(id + ".") || SandboxRules.isEntry(name, ofSnap: id) else {
                    throw notAllowed("mark another's icon")
                }
            // The notification server reads it, outside: a file there may be anything, and one that never ends stops it.
            case .icon:
                if icon?.contains(where: { $0 == "/" || $0 == ":" }) == true { throw notAllowed("choose a file as an icon, but a name") }
            case .allowPrivate:
                if allowsPrivate, !settings.allowsPrivateFromSandbox {
                    throw notAllowed("reach this machine or a private network, unless the user allows it (SandboxPrivate)")
                }
            // A new option is to be thought about here.
            case .token, .filename, .headers, .userAgent, .referrer, .username, .password, .checksum, .size, .maxSize, .start, .speedLimit,
                .stallTimeout, .retries, .expectType, .notBefore, .deadline, .renewable, .allowMetered, .allowDowngrade, .requestInterval,
                .onlyIfChanged,
                .tag, .notify, .notifyDelay, .title, .body, .sound,
                .showProgress, .metadata:
                break
            }
        }
    }

    /// Whether the download stays away from this machine and from private networks. Asked at each use: the user may have taken back what was
    /// allowed to sandboxes.
    func refusesPrivate(_ settings: Settings) -> Bool { !allowsPrivate || isSandboxed && !settings.allowsPrivateFromSandbox }

    /// - Throws: `NotAllowed` where `url` names, without a look-up, an address that the download must stay away from.
    func checkAddress(of url: DownloadURL, _ settings: Settings) throws(Refusal) {
        guard url.isHostLiteralPrivate, refusesPrivate(settings) else { return }
        throw Refusal(
            .notAllowed, "\(url.host) is this machine or in a private network, where this download may not go (option allow-private).")
    }
}
