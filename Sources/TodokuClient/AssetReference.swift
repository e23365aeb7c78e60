internal import DBus
public import DownloadModel
internal import DownloaderInterface

/// Identifies an asset by its object path on the bus.
public struct AssetReference: Hashable, Sendable, CustomStringConvertible {
    public let path: String
    /// As the caller named the asset.
    public let description: String

    init(_ path: ObjectPath) { (self.path, description) = (path.value, path.value) }
    var objectPath: ObjectPath { ObjectPath(path) }

    /// The asset at `path`, named as APP/NAME; nil: no asset has such a path.
    init?(named path: ObjectPath) {
        guard path.value.hasPrefix(BusName.assetsPath + "/") else { return nil }
        let parts = path.value.dropFirst(BusName.assetsPath.utf8.count).split(separator: "/").compactMap { ObjectPath.unescape($0) }
        guard parts.count == 2, let key = try? AssetKey(app: parts[0], name: parts[1]) else { return nil }
        self.init(key)
    }

    public init(_ key: AssetKey) { (path, description) = (BusName.path(ofAsset: key).value, "\(key)") }

    public static func == (a: AssetReference, b: AssetReference) -> Bool { a.path == b.path }
    public func hash(into hasher: inout Hasher) { hasher.combine(path) }

    /// Reads `APP/NAME`, or an object path of the service; nil for any other text.
    public init?(_ text: String) {
        if text.hasPrefix(BusName.assetsPath + "/"), ObjectPath.isValid(text) {
            self.init(ObjectPath(text))
            return
        }
        let parts = text.split(separator: "/", omittingEmptySubsequences: false).map(String.init)
        guard parts.count == 2, let key = try? AssetKey(app: parts[0], name: parts[1]) else { return nil }
        self.init(key)
    }
}

/// An asset as the service describes it.
public struct AssetDescription: Equatable, Sendable {
    /// What an asset is doing, or how its last update ended: the contract's words.
    public enum Stage: Hashable, Sendable {
        case idle, checking, downloading, verifying, extracting, ready, failed, cancelled
        /// A stage that is newer than this client.
        case other(String)

        static let known: [Stage] = [.idle, .checking, .downloading, .verifying, .extracting, .ready, .failed, .cancelled]

        init(_ name: String) { self = Self.known.first { $0.name == name } ?? .other(name) }

        public var name: String { if case .other(let name) = self { name } else { "\(self)" } }

        /// Whether a check or an update is under way.
        public var isUnderWay: Bool {
            switch self {
            case .checking, .downloading, .verifying, .extracting: true
            default: false
            }
        }
    }

    /// How far a stage is, in bytes. While extracting, the bytes are those of the archive.
    public struct Progress: Equatable, Sendable {
        public var done: ByteCount
        /// nil: unknown.
        public var total: ByteCount?

        public init(done: ByteCount, total: ByteCount?) { (self.done, self.total) = (done, total) }

        /// 0.0–1.0; nil while the total is unknown.
        public var fraction: Double? { total.map { $0 == 0 ? 1 : min(1, Double(done) / Double($0)) } }
    }

    public let reference: AssetReference
    public internal(set) var app = ""
    public internal(set) var name = ""
    public internal(set) var manifestURL = ""
    /// Empty: none.
    public internal(set) var installedVersion = ""
    /// Empty: not known.
    public internal(set) var latestVersion = ""
    public internal(set) var stage = Stage.idle
    /// As in the D-Bus contract.
    public internal(set) var status = ""
    /// The link to the installed version.
    public internal(set) var path = ""
    /// The download of the manifest while the stage is `checking`; else of the archive that is being installed, also after a failure.
    public internal(set) var download: DownloadReference?
    /// Why the last update failed; nil if it did not.
    public internal(set) var error: AssetError?
    /// How far the stage is; nil: not known. Only a watch of assets reports it.
    public var progress: Progress? {
        get { reported?.stage == stage ? reported?.progress : nil }
        set { reported = newValue.map { Reported(stage: stage, progress: $0) } }
    }

    /// The progress of a stage. It may come before the stage itself is announced.
    struct Reported: Equatable, Sendable {
        var stage: Stage
        var progress: Progress
    }

    var reported: Reported?

    init(_ reference: AssetReference, _ values: [String: Variant]) {
        self.reference = reference
        apply(values)
    }

    /// Applies the given properties; a property of an unexpected type is ignored.
    mutating func apply(_ values: [String: Variant]) {
        func text(_ property: PropertyOf<String>, _ former: String) -> String { values[property.name]?.string ?? former }
        let before = stage
        (app, name, manifestURL) = (text(Asset.app, app), text(Asset.name, name), text(Asset.manifestUrl, manifestURL))
        installedVersion = text(Asset.installedVersion, installedVersion)
        latestVersion = text(Asset.latestVersion, latestVersion)
        (status, path) = (text(Asset.status, status), text(Asset.path, path))
        stage = Stage(text(Asset.stage, stage.name))
        if let value = values[Asset.download.name].flatMap({ ObjectPath($0) }) {
            download = value.value == "/" ? nil : DownloadReference(value)
        }
        if let value = values[Asset.error.name].flatMap({ EndError($0) }) {
            error = value.name.isEmpty ? nil : AssetError(name: value.name, message: value.message)
        }
        if stage != before, !stage.isUnderWay || stage == .checking { reported = nil }
    }
}

/// Why an update failed.
public struct AssetError: Error, Equatable, Sendable {
    /// The error's name on the bus, such as `org.todoku.Error.Signature`.
    public var name: String
    public var message: String
}

extension DownloaderClient {
    // MARK: Assets

    /// Registers an asset, or changes a registered one.
    ///
    /// - Parameters:
    ///   - key: the application and the application's name for the asset.
    ///   - url: where the manifest is.
    ///   - update: when the service checks the asset without a call.
    ///   - publicKey: the Ed25519 key that signs the manifest; empty: the manifest is not signed.
    ///   - request: the options of the asset's downloads and of its toast; its `directory` is the asset's own folder.
    public func registerAsset(
        _ key: AssetKey, manifest url: String, update: AssetUpdatePolicy = .manual, publicKey: [UInt8] = [],
        _ request: DownloadRequest = DownloadRequest()
    ) async throws(ClientError) -> AssetReference {
        var options = request.options
        options["update"] = .string(update.rawValue)
        if !publicKey.isEmpty { options["public-key"] = .array(of: "y", publicKey.map { .byte($0) }) }
        return AssetReference(try await core.call(Manager.registerAsset, (key.app, key.name, url, options), repeatable: true))
    }

    public func unregisterAsset(_ asset: AssetReference, deleteData: Bool) async throws(ClientError) {
        try await core.call(Manager.unregisterAsset, (asset.objectPath, deleteData))
    }

    /// The assets of an application, by name; of all applications if `app` is empty.
    public func assets(of app: String = "") async throws(ClientError) -> [AssetReference] {
        try await core.call(Manager.assets, app, repeatable: true).map { AssetReference($0) }
    }

    public func describe(_ asset: AssetReference) async throws(ClientError) -> AssetDescription {
        try await of(asset) { () async throws(ClientError) in
            AssetDescription(asset, try await core.call(Standard.getAll, Asset.interface, at: asset.objectPath, repeatable: true))
        }
    }

    /// Fetches the manifest: whether there is a newer version, and which is the latest.
    ///
    /// - Throws: `ClientError`; `CancellationError` when the task is cancelled. The check itself continues.
    public func check(_ asset: AssetReference) async throws -> (isNewer: Bool, version: String) {
        let (isNewer, version) = try await of(asset, long: { try await core.wait(Asset.check, at: asset.objectPath) })
        return (isNewer, version)
    }

    /// Brings the latest version, without a time limit. If the service goes away meanwhile, the call is repeated.
    ///
    /// - Parameters:
    ///   - asset: the asset to update.
    ///   - force: also bring the version that a rollback has left.
    /// - Throws: `ClientError`; `CancellationError` when the task is cancelled. The update itself continues; `cancel(_:)` stops it.
    public func update(_ asset: AssetReference, force: Bool = false) async throws -> (isChanged: Bool, path: String) {
        let options: [String: Variant] = force ? ["force": .bool(true)] : [:]
        let (isChanged, path) = try await of(asset, long: { try await core.wait(Asset.update, at: asset.objectPath, options) })
        return (isChanged, path)
    }

    /// Calls `receive` with the present state of each of `assets`, and again at each change, in order, on the client's thread. nil watches
    /// all assets, also those that are registered later. A watch never starts the service: if it does not run, nothing is under way.
    /// If the service runs but does not answer, the watch asks again until it does.
    ///
    /// - Returns: after the first calls, or after the first call that is not answered within a minute. The watch lasts until `stop`, or
    ///   until it is released.
    public func watchAssets(
        _ assets: [AssetReference]? = nil, _ receive: @escaping @Sendable (AssetNews) -> Void
    ) async throws(ClientError) -> Watch {
        let core = core
        return Watch(try await onLoop { () async throws(ClientError) in try await core.watchAssets(assets, receive) }, of: core)
    }

    /// Leads back to the version before; returns the path.
    public func rollBack(_ asset: AssetReference) async throws(ClientError) -> String {
        try await of(asset) { () async throws(ClientError) in
            try await core.call(Asset.rollback, (), at: asset.objectPath, repeatable: false)
        }
    }

    /// Stops what is under way.
    public func cancel(_ asset: AssetReference) async throws(ClientError) {
        try await of(asset) { () async throws(ClientError) in
            try await core.call(Asset.cancel, (), at: asset.objectPath, repeatable: true)
        }
    }

    /// Calls an asset. If there is none, the error names it in the words of its caller.
    private func of<Result>(
        _ asset: AssetReference, _ call: () async throws(ClientError) -> Result
    ) async throws(ClientError) -> Result {
        do throws(ClientError) { return try await call() } catch { throw error.naming(asset) }
    }

    /// The same for a call that may take long.
    private func of<Result>(_ asset: AssetReference, long call: () async throws -> Result) async throws -> Result {
        do { return try await call() } catch let error as ClientError { throw error.naming(asset) }
    }
}

extension ClientError {
    fileprivate func naming(_ asset: AssetReference) -> ClientError {
        cause == .unknownDownload ? ClientError(cause, name: name, message: "There is no asset \(asset).") : self
    }
}
