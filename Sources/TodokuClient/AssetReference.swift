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
public struct AssetDescription: Sendable {
    public let reference: AssetReference
    public let app: String
    public let name: String
    public let manifestURL: String
    /// Empty: none.
    public let installedVersion: String
    /// Empty: not known.
    public let latestVersion: String
    /// As in the D-Bus contract.
    public let stage: String
    public let status: String
    /// The link to the installed version.
    public let path: String
    /// Why the last update failed; the texts are empty if it did not.
    public let error: (name: String, message: String)

    init(_ reference: AssetReference, _ values: [String: Variant]) {
        func text<V>(_ property: PropertyOf<V>) -> String { values[property.name]?.string ?? "" }
        self.reference = reference
        (app, name, manifestURL) = (text(Asset.app), text(Asset.name), text(Asset.manifestUrl))
        (installedVersion, latestVersion) = (text(Asset.installedVersion), text(Asset.latestVersion))
        (stage, status, path) = (text(Asset.stage), text(Asset.status), text(Asset.path))
        let error = values[Asset.error.name].flatMap { EndError($0) } ?? EndError()
        self.error = (error.name, error.message)
    }
}

extension DownloaderClient {
    // MARK: Assets

    /// Registers an asset, or changes a registered one.
    ///
    /// - Parameters:
    ///   - directory: the folder of the asset's own; nil: the service's choice.
    ///   - publicKey: the Ed25519 key that signs the manifest; empty: the manifest is not signed.
    ///   - request: the options of the asset's downloads and of its toast.
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
    public func check(_ asset: AssetReference) async throws(ClientError) -> (isNewer: Bool, version: String) {
        let (isNewer, version) = try await of(asset) { () async throws(ClientError) in
            try await core.wait(Asset.check, at: asset.objectPath)
        }
        return (isNewer, version)
    }

    /// Brings the latest version, without a time limit. If the service goes away meanwhile, the call is repeated.
    ///
    /// - Parameter force: also bring the version that a rollback has left.
    public func update(_ asset: AssetReference, force: Bool = false) async throws(ClientError) -> (isChanged: Bool, path: String) {
        let options: [String: Variant] = force ? ["force": .bool(true)] : [:]
        let (isChanged, path) = try await of(asset) { () async throws(ClientError) in
            try await core.wait(Asset.update, at: asset.objectPath, options)
        }
        return (isChanged, path)
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
        do throws(ClientError) { return try await call() } catch {
            guard error.cause == .unknownDownload else { throw error }
            throw ClientError(error.cause, name: error.name, message: "There is no asset \(asset).")
        }
    }
}
