/// The folders that the service chooses: those of assets, and that of their manifests and signatures.
public struct AssetFolders: Sendable {
    /// Default directories: `<data>/<app>/<name>`.
    private let data: String
    /// The fetched manifests and signatures.
    public let manifests: String

    /// - Parameters:
    ///   - dataHome: as the environment has it. The directories of assets, which are compared with it, have no superfluous slashes.
    ///   - state: the folder of the service's database.
    public init(dataHome: String, state: String) { (data, manifests) = ("\(dataHome)/todoku/assets".tidyPath, "\(state)/manifests") }

    public func directory(of key: AssetKey) -> String { "\(data)/\(key.app)/\(key.name)" }

    /// Whether the service itself has chosen `directory`. Then hidden folders in its path are allowed.
    public func contains(_ directory: String) -> Bool {
        directory.isSameBytes(as: manifests) || directory.utf8.starts(with: "\(data)/".utf8)
    }
}
