internal import Assets
internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import PartFiles

/// The manager's calls about assets.
extension AssetCentre {
    /// The most registered assets, and the most of one application.
    private static let (mostAssets, mostOfApp) = (1000, 100)

    /// The options of downloads that an asset's downloads and its toast may have.
    private static let options: Set<String> = [
        "directory", "headers", "header-list", "cookies", "user-agent", "referrer", "username", "password", "proxy", "allow-metered",
        "allow-private", "allow-downgrade", "connections", "speed-limit", "stall-timeout", "retries", "priority", "request-interval",
        "notify", "title", "body", "icon", "sound", "show-progress", "desktop-id", "activate",
    ]

    func register(
        _ app: String, _ name: String, _ url: String, _ dictionary: [String: Variant], _ reply: Reply<ObjectPath>
    ) throws(Refusal) {
        let caller = reply.call.caller
        try Self.refuse(app, to: caller)
        let key = try AssetKey(app: app, name: name)
        let own = folders.directory(of: key)
        var (rest, update, publicKey) = (dictionary, AssetUpdatePolicy.manual, [UInt8]())
        if let value = rest.removeValue(forKey: "update") { update = try Self.policy(value) }
        if let value = rest.removeValue(forKey: "public-key") { publicKey = try Self.key(value) }
        for key in rest.keys.sorted() where !Self.options.contains(key) {
            throw Refusal(.invalidOption, "RegisterAsset has no option “\(shown(key))”; its interface file lists them.")
        }
        rest["app"] = .string(app)
        if caller != .user, rest["directory"] != nil { try reply.refuseSandboxed("choose the folder of an asset") }
        let options = try DownloadOptions(decoding: rest, from: caller, defaultDirectory: own, settings: list.settings)
        let address = try DownloadURL(url)
        try options.checkAddress(of: address, list.settings)
        let wanted = Admission.Wanted(url: address, options: options)
        try checkRoom(for: key)
        let (directory, isDefault) = (options.directory ?? own, options.directory == nil)
        let (allowHidden, arrival) = (allowsHiddenFolders, diskCalls.nextArrival())
        diskCalls.perform(at: .path(directory), within: DiskPatience.folder, setting: .registration(key)) {
            AssetFiles.prepare(directory, isDefault: isDefault, allowHidden: allowHidden)
        } then: { [self] result in
            switch result ?? .failure(.silentFolder(directory)) {
            case .failure(let refusal): reply.fail(refusal)
            case .success(let (directory, found, identity)):
                var record = AssetRecord(key: key, manifestURL: wanted.url, options: wanted.options, directory: directory)
                record.options.directory = nil
                (record.update, record.publicKey) = (update, publicKey)
                // The later call has registered the asset in its own folder, so a call that names another folder is refused below.
                if diskCalls.isSet(.registration(key), after: arrival),
                    updater[key]?.record.directory.isSameBytes(as: directory) ?? true
                {
                    return journal.answer(reply, BusName.path(ofAsset: key))
                }
                do throws(Refusal) {
                    try checkRoom(for: key)  // other calls may have come while the folder was checked
                    // A registered asset keeps its directory, whichever directory this call names.
                    let isNew = updater[key] == nil
                    let use = AssetFiles.Use(identity: identity, target: found)
                    if isNew, let failure = claim(use, of: directory, for: key) { throw Refusal(failure.name, failure.message) }
                    try decide(reply) { answer in
                        if case .registered(let key) = answer { BusName.path(ofAsset: key) } else { nil }
                    } _: {
                        .register(record, found: found, $0)
                    }
                    // Otherwise, the call was refused.
                    if let held = updater[key]?.record, !held.isLeaving, held.directory.isSameBytes(as: directory) {
                        diskCalls.noteSet(.registration(key), at: arrival)
                    }
                } catch { reply.fail(error) }
                if updater[key] == nil { places.release(key) }
            }
        }
    }

    private func checkRoom(for key: AssetKey) throws(Refusal) {
        guard updater[key] == nil else { return }
        guard updater.assets.count < Self.mostAssets, updater.assets.count(of: key.app) < Self.mostOfApp else {
            throw Refusal(
                .limitExceeded, "At most \(Self.mostAssets) assets may be registered, \(Self.mostOfApp) of them by one application.")
        }
    }

    func unregister(_ path: ObjectPath, deletesData: Bool, _ reply: Reply<Void>) throws(Refusal) {
        guard let key = key(at: path.value, for: reply.call.caller) else {
            throw Refusal(.noSuchObject, "There is no asset \(shown(path.value)).")
        }
        try decide(reply) { answer in
            if case .done = answer { () } else { nil }
        } _: {
            .unregister(key, deletesData: deletesData, $0)
        }
    }

    func paths(of app: String, for caller: CallerIdentity) -> [ObjectPath] {
        // A sandboxed app sees only its own assets.
        let wanted = app.isEmpty ? caller.app ?? "" : app
        guard caller.app.map({ $0 == wanted }) ?? true else { return [] }
        let keys = wanted.isEmpty ? updater.assets.keys : updater.keys(of: wanted)
        return keys.map { BusName.path(ofAsset: $0) }
    }

    func updateAll(
        _ app: String, _ options: [String: Variant], _ reply: Reply<[Structure<ObjectPath, Bool, String>]>
    ) throws(Refusal) {
        try Self.refuse(app, to: reply.call.caller)
        try SandboxRules.checkNetwork(of: reply.call.caller)
        let forces = try AssetFace.forces(options, of: "UpdateAssets")
        try decide(reply) { answer in
            guard case .allUpdated(let updates) = answer else { return nil }
            return updates.map { Structure(BusName.path(ofAsset: $0.key), $0.isChanged, $0.path) }
        } _: {
            .updateAll(app: app, forces: forces, $0)
        }
    }

    /// The asset at an object path, if `caller` may see it.
    func key(at path: String, for caller: CallerIdentity) -> AssetKey? {
        guard path.hasPrefix(BusName.assetsPath + "/") else { return nil }
        let parts = path.dropFirst(BusName.assetsPath.utf8.count +| 1).split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 2, let app = ObjectPath.unescape(parts[0]), let name = ObjectPath.unescape(parts[1]),
            let key = try? AssetKey(app: app, name: name), updater[key] != nil, BusName.path(ofAsset: key).value == path
        else { return nil }
        return caller.app.map { $0 == app } ?? true ? key : nil
    }

    /// The names below `path` in the object tree; nil: `path` is no node above assets.
    func children(of path: String, for caller: CallerIdentity) -> [String]? {
        if path == BusName.assetsPath {
            guard let own = caller.app else { return updater.assets.apps.map { ObjectPath.escape($0) }.sorted() }
            return updater.assets.count(of: own) > 0 ? [ObjectPath.escape(own)] : []
        }
        guard path.hasPrefix(BusName.assetsPath + "/") else { return nil }
        guard let app = ObjectPath.unescape(path.dropFirst(BusName.assetsPath.utf8.count +| 1)), caller.app.map({ $0 == app }) ?? true
        else { return [] }
        return updater.keys(of: app).map { ObjectPath.escape($0.name) }.sorted()
    }

    private static func refuse(_ app: String, to caller: CallerIdentity) throws(Refusal) {
        guard let own = caller.app, own != app else { return }
        throw Refusal(.notAllowed, "An app in a sandbox may not use the id of another app; its own is \(own).")
    }

    private static func policy(_ value: Variant) throws(Refusal) -> AssetUpdatePolicy {
        guard let word = value.string else {
            throw Refusal(.invalidOption, "Option update takes the type s, not \(value.type.prefix(64)).")
        }
        guard let policy = AssetUpdatePolicy(rawValue: word) else {
            let words = AssetUpdatePolicy.allCases.map(\.rawValue).joined(separator: ", ")
            throw Refusal(.invalidOption, "Option update must be one of \(words), not “\(shown(word))”.")
        }
        return policy
    }

    private static func key(_ value: Variant) throws(Refusal) -> [UInt8] {
        guard case .array("y", let elements) = value else {
            throw Refusal(.invalidOption, "Option public-key takes the type ay, not \(value.type.prefix(64)).")
        }
        let bytes = elements.compactMap { if case .byte(let byte) = $0 { byte } else { nil } }
        guard bytes.count == PartFiles.Signature.keyLength else {
            throw Refusal(.invalidOption, "Option public-key must be an Ed25519 key of 32 bytes, not \(bytes.count).")
        }
        return bytes
    }
}
