package import DownloadModel

/// The proxy for a host from the usual environment variables, read as curl does: `http_proxy` (lower case only), `https_proxy`, `all_proxy`
/// (either case), `no_proxy` (either case).
public struct ProxySettings: Equatable, Sendable {
    /// Proxy URLs as given; nil: none.
    public var http: String?
    public var https: String?
    /// Host names (with their subdomains), addresses and address ranges such as "10.0.0.0/8"; "*" is every host.
    public var exceptions: [String] = []

    public static let none = ProxySettings(environment: [:])

    public init(environment: [String: String]) {
        func value(_ names: String...) -> String? { names.lazy.compactMap { environment[$0] }.first { !$0.isEmpty } }
        let all = value("all_proxy", "ALL_PROXY")
        http = value("http_proxy") ?? all  // under CGI a request header can set HTTP_PROXY
        https = value("https_proxy", "HTTPS_PROXY") ?? all
        exceptions = (value("no_proxy", "NO_PROXY") ?? "").split { $0 == "," || $0 == " " || $0 == "\t" }.map { $0.lowercased() }
    }

    /// The environment's choice for `url`; nil if it neither excepts the host nor names a proxy for the scheme, so that the desktop's
    /// settings decide.
    package func choice(for url: DownloadURL) -> ProxyChoice? {
        if exceptions.contains(where: { $0 == "*" || ProxyException.covers($0, host: url.host, port: url.port) }) { return .direct }
        return (url.scheme == "https" ? https : http).map { .through($0) }
    }
}
