internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling

// What an app in a sandbox may do (docs/dbus.md, "From a sandbox"). Its downloads are those of its own `app` id; no others are there for
// it.

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

    /// What says where `download` writes is checked again before an app in a sandbox sets it going anew: the user may have queued it for
    /// the app with options of his own, or may have changed `DefaultDirectory` since.
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
            if record.options.ifExists == .replace { try refuseSandboxed("replace files, which this download would do") }
            // Most are of one folder, in the same words.
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
    /// - Throws: `NotAllowed` where the caller is in a sandbox that has no network: it gets none through us.
    func refuseWithoutNetwork() throws(Refusal) { try SandboxRules.checkNetwork(of: call.caller) }
}

enum SandboxRules {
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
}

extension DownloadOptions {
    /// Reads the dictionary of a call by `caller`. In a sandbox `app` is its own id, named or not, and `directory` the default, named or
    /// not.
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
        let sandbox = Sandbox(app: id, folder: defaultDirectory, allowsPrivate: settings.allowsPrivateFromSandbox)
        for row in OptionRow.all where dictionary[row.key] != nil {
            guard case .rule(let rule) = row.sandbox, let what = rule(&self, sandbox) else { continue }
            throw Refusal(.notAllowed, "Option \(row.key): an app in a sandbox may not \(what).")
        }
    }

    /// Whether the download stays away from this machine and from private networks. Asked at each use: the user may have taken back what
    /// was allowed to sandboxes.
    func refusesPrivate(_ settings: Settings) -> Bool { !allowsPrivate || isSandboxed && !settings.allowsPrivateFromSandbox }

    /// - Throws: `NotAllowed` where `url` names, without a look-up, an address that the download must stay away from.
    func checkAddress(of url: DownloadURL, _ settings: Settings) throws(Refusal) {
        guard url.isHostLiteralPrivate, refusesPrivate(settings) else { return }
        throw Refusal(
            .notAllowed, "\(url.host) is this machine or in a private network, where this download may not go (option allow-private).")
    }
}
