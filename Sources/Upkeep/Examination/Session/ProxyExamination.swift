internal import DBus
internal import Desktop
internal import DownloadModel
internal import EventLoop
internal import Transport

/// The proxies that the service would use, found as the service finds them.
@BusActor enum ProxyExamination {
    /// A host that never exists (`.invalid`, RFC 2606), and that gets no request. A proxy script sees its name.
    private static let host = "example.invalid"

    /// - Parameters:
    ///   - start: the environment that counts, that of the service.
    ///   - shell: the environment of this command, in which a user may have set a proxy in vain.
    static func findings(_ session: BusProbe, _ start: StartEnvironment, shell: [String: String]) async -> [Finding] {
        let (settings, own) = (ProxySettings(environment: start.variables), ProxySettings(environment: shell))
        let desktop = DesktopProxies(connection: session.connection, environment: start.variables, patience: BusProbe.patience)
        var findings: [Finding] = []
        for scheme in ["https", "http"] {
            guard let url = try? DownloadURL("\(scheme)://\(host)/") else { continue }
            let named = settings.choice(for: url)
            var (choice, source) = (named ?? .direct, start.origin)
            if named == nil { (choice, source) = (await desktop.choice(for: url), Phrase("by the settings of the desktop")) }
            var advice: Phrase?
            if start.source != .command, let wanted = own.choice(for: url), wanted != named {
                let names = ["\(scheme)_proxy", "\(scheme.uppercased())_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"]
                let remedy = start.advice(for: names.filter { shell[$0]?.isEmpty == false })
                advice = Phrase("The proxy variables of this shell are others. \(remedy)")
            }
            findings.append(finding(scheme, choice, source, advice))
        }
        return findings
    }

    private static func finding(_ scheme: String, _ choice: ProxyChoice, _ source: Phrase, _ advice: Phrase?) -> Finding {
        switch choice {
        case .direct: Finding(.proxy, .found, Phrase("\(scheme) goes without a proxy, \(source)"), advice: advice)
        case .through(let proxy):
            Finding(.proxy, .found, Phrase("\(scheme) goes through \(withoutCredentials(proxy)), \(source)"), advice: advice)
        case .unknown(let reason):
            Finding(
                .proxy, .wrong, Phrase("the proxy for \(scheme) is not known, so nothing is sent: \(Phrase(foreign: reason))"),
                advice: Phrase(
                    "Mend the proxy settings of the desktop, or set \(scheme)_proxy or no_proxy in the environment of the service."))
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
