internal import CCurl

/// Where the certificates are by which https servers, and https proxies, are checked.
public struct CertificateStore: Equatable, Sendable {
    /// A file with all of them.
    public var file: String?
    /// A folder with one file for each.
    public var folder: String?

    public init(file: String? = nil, folder: String? = nil) { (self.file, self.folder) = (file, folder) }

    /// The store that libcurl is built with. Without file and folder, its TLS library has a store of its own. Loads libcurl, so it blocks.
    ///
    /// - Returns: nil if libcurl cannot be loaded.
    public static func builtIn() -> CertificateStore? {
        guard todoku_curl_load() == nil, let handle = try? EasyHandle() else { return nil }
        return CertificateStore(file: handle.text(CURLINFO_CAINFO), folder: handle.text(CURLINFO_CAPATH))
    }

    /// The store that the environment names; without one, this store. A file replaces the folder of this store, too, and a folder its file:
    /// a TLS library accepts what either of them vouches for.
    public func replaced(by environment: [String: String]) -> CertificateStore {
        func named(_ key: String) -> String? { environment[key].flatMap { $0.isEmpty ? nil : $0 } }
        let other = CertificateStore(file: named("SSL_CERT_FILE"), folder: named("SSL_CERT_DIR"))
        return other == CertificateStore() ? self : other
    }
}
