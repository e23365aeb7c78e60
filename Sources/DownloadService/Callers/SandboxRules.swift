internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling

// The rules for an app in a sandbox (docs/dbus.md, "From a sandbox"). The app sees only downloads with its own `app` id.

extension CallerIdentity {
    /// The only application whose downloads this caller may see; nil: all.
    var app: String? { if case .app(let id, _) = self { id } else { nil } }

    /// A caller sees a batch only if it may see every member.
    @BusActor func owns(_ batch: ManagedBatch) -> Bool { app.map { $0 == batch.record.app } ?? true }

    @BusActor func owns(_ download: ManagedDownload) -> Bool { app.map { $0 == download.record.options.app } ?? true }
}

extension PendingCall {
    /// Whose limits the call counts towards: the connection, or the sandboxed app, which may have many connections.
    var holder: String { caller.app.map { "app \($0)" } ?? sender }
}

extension Reply {
    /// - Throws: `NotAllowed` if the caller is in a sandbox; `what` completes "An app in a sandbox may not …".
    func refuseSandboxed(_ what: String) throws(Refusal) {
        if call.caller != .user { throw Refusal(.notAllowed, "An app in a sandbox may not \(what).") }
    }

    /// Checks the destinations of `entries` again, before a sandboxed app starts them again. The user may have queued a download for the
    /// app with options that the app may not use, or may have changed `DefaultDirectory` since.
    ///
    /// - Throws: `NotAllowed` if the app could not queue all downloads like this now.
    @BusActor func refuseSandboxedPlace(of entries: [ScheduledDownload], default folder: String) throws(Refusal) {
        guard call.caller != .user else { return }
        var allowed = folder
        for entry in entries {
            let record = entry.record
            if record.isToDescriptor { continue }
            if record.options.ifExists == .replace { try refuseSandboxed("replace files, which this download would do") }
            // Most downloads have the same folder, in the same spelling.
            if record.directory.isSameBytes(as: allowed) { continue }
            guard Sandbox(app: record.options.app, folder: folder, allowsPrivate: false).isFolder(record.directory) else {
                throw Refusal(
                    .notAllowed,
                    "An app in a sandbox may write into \(folder) only, and this download goes to another folder; queue it again.")
            }
            allowed = record.directory
        }
    }
}

extension Reply {
    /// - Throws: `NotAllowed` if the caller's sandbox has no network: the caller must not get network through us.
    func refuseWithoutNetwork() throws(Refusal) { try SandboxRules.checkNetwork(of: call.caller) }
}

enum SandboxRules {
    /// - Throws: `NotAllowed` for an app whose sandbox has no network.
    static func checkNetwork(of caller: CallerIdentity) throws(Refusal) {
        guard case .app(let id, false) = caller else { return }
        throw Refusal(.notAllowed, "The sandbox of \(id) has no network (share=network), so nothing is downloaded for it.")
    }

    /// - Throws: `NotAllowed` if the fresh `url` names an address that is forbidden to the download, or to the caller that gives the URL.
    static func checkRenewal(
        of options: DownloadOptions, by url: DownloadURL, from caller: CallerIdentity, _ settings: Settings
    ) throws(Refusal) {
        var options = options
        if caller != .user { options.isSandboxed = true }
        try options.checkAddress(of: url, settings)
    }
}

extension DownloadOptions {
    /// Reads the options of a call by `caller`. For a sandboxed app, `app` is its own id and `directory` the default folder, whether or not
    /// the options name them.
    ///
    /// - Throws: as `init(decoding:)`; `NotAllowed`, naming the key, for an option that a sandboxed app may not use.
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
        let sandbox = Sandbox(app: id, folder: defaultDirectory, allowsPrivate: settings.allowsPrivateFromSandbox)
        for row in OptionRow.all where dictionary[row.key] != nil {
            guard case .rule(let rule) = row.sandbox, let what = rule(&self, sandbox) else { continue }
            throw Refusal(.notAllowed, "Option \(row.key): an app in a sandbox may not \(what).")
        }
    }

    /// Whether the download must stay away from this machine and from private networks. Evaluated at each use, because the user may
    /// withdraw the permission of sandboxes (`SandboxPrivate`).
    func refusesPrivate(_ settings: Settings) -> Bool { !allowsPrivate || isSandboxed && !settings.allowsPrivateFromSandbox }

    /// - Throws: as `checkAddress`, if a mirror contains a forbidden address.
    func checkMirrors(_ settings: Settings) throws(Refusal) {
        guard !mirrors.isEmpty, refusesPrivate(settings) else { return }
        for mirror in mirrors { if let url = try? DownloadURL(mirror) { try checkAddress(of: url, settings) } }
    }

    /// - Throws: `NotAllowed` if `url` contains a forbidden address literally. Host names are not looked up.
    func checkAddress(of url: DownloadURL, _ settings: Settings) throws(Refusal) {
        guard url.isHostLiteralPrivate, refusesPrivate(settings) else { return }
        throw Refusal(
            .notAllowed, "\(url.host) is this machine or in a private network, where this download may not go (option allow-private).")
    }
}
