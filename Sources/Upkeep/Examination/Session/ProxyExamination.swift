internal import DBus
internal import Desktop
internal import DownloadModel
internal import EventLoop
internal import Transport

/// The proxies that the service would use, found as the service finds them.
@BusActor enum ProxyExamination {
    /// Nobody is asked for anything at this host: `.invalid` never exists (RFC 2606). A proxy script sees its name.
    private static let host = "example.invalid"

    /// - Parameter environment: the environment of the service if it runs, else that of this session.
    static func findings(_ session: BusProbe, _ environment: [String: String]) async -> [Finding] {
        let settings = ProxySettings(environment: environment)
        let desktop = DesktopProxies(connection: session.connection, environment: environment, patience: BusProbe.patience)
        var findings: [Finding] = []
        for scheme in ["https", "http"] {
            guard let url = try? DownloadURL("\(scheme)://\(host)/") else { continue }
            if let choice = settings.choice(for: url) {
                findings.append(finding(scheme, choice, "by the environment"))
            } else {
                findings.append(finding(scheme, await desktop.choice(for: url), "by the settings of the desktop"))
            }
        }
        return findings
    }

    private static func finding(_ scheme: String, _ choice: ProxyChoice, _ source: String) -> Finding {
        switch choice {
        case .direct: Finding(.proxy, .found, "\(scheme) goes without a proxy, \(source)")
        case .through(let proxy): Finding(.proxy, .found, "\(scheme) goes through \(withoutCredentials(proxy)), \(source)")
        case .unknown(let reason):
            Finding(
                .proxy, .wrong, "the proxy for \(scheme) is not known, so nothing is sent: \(reason)",
                advice: "Mend the proxy settings of the desktop, or set \(scheme)_proxy or no_proxy in the environment of the service.")
        }
    }

    /// A proxy's URL without user and password.
    static func withoutCredentials(_ proxy: String) -> String {
        guard let at = proxy.utf8.lastIndex(of: UInt8(ascii: "@")) else { return proxy }
        let rest = proxy[at...].dropFirst()
        guard let scheme = proxy.firstRange(of: "://"), scheme.upperBound <= at else { return String(rest) }
        return "\(proxy[..<scheme.upperBound])\(rest)"
    }
}
