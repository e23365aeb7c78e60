public import DBus
public import DownloadModel
public import EventLoop

/// The proxy that the desktop's settings name for a URL: by the portal (`org.freedesktop.portal.ProxyResolver`), which reads GNOME's settings and
/// runs proxy scripts; in KDE by its own file first, which the portal may not know.
@BusActor public final class DesktopProxies {
    /// For so long an answer is waited for: a script may have to be fetched.
    public static let patience: Duration = .seconds(10)
    private static let lookup = MethodOf("org.freedesktop.portal.ProxyResolver", "Lookup", in: String.self, out: [String].self)
    private static let path = ObjectPath("/org/freedesktop/portal/desktop")

    private let connection: Connection
    private let patience: Duration
    /// nil: no KDE.
    private let kdeFile: String?

    public init(
        connection: Connection, environment: [String: String] = Folders.environment(), patience: Duration = DesktopProxies.patience
    ) {
        (self.connection, self.patience) = (connection, patience)
        let isKDE = environment["XDG_CURRENT_DESKTOP"]?.split(separator: ":").contains("KDE") ?? false
        let folder = environment["XDG_CONFIG_HOME"].flatMap { $0.hasPrefix("/") ? $0 : nil } ?? "\(Folders.home(environment))/.config"
        kdeFile = isKDE ? "\(folder)/kioslaverc" : nil
    }

    public func choice(for url: DownloadURL) async -> ProxyChoice {
        guard let kdeFile else { return await ask(url, orElse: .direct) }
        let read = await Pool.shared.value(within: patience) { Folders.smallFile(kdeFile) }
        guard let read else { return .unknown("\(kdeFile) did not answer") }
        switch KDEProxies(read ?? "").setting(for: url) {
        case .choice(let choice): return choice
        // Only somebody who runs scripts can tell.
        case .script: return await ask(url, orElse: .unknown("no portal is there to run the proxy script"))
        case .unset: return await ask(url, orElse: .direct)
        }
    }

    /// - Parameter absent: what holds where there is no such portal.
    private func ask(_ url: DownloadURL, orElse absent: ProxyChoice) async -> ProxyChoice {
        do throws(DBusError) {
            // The query is nobody's business: what a script decides by is scheme, host and path.
            return ProxyChoice(
                resolved: try await connection.call(Self.lookup, on: FilePortal.name, at: Self.path, url.redacted, timeout: patience))
        } catch {
            let bus = "org.freedesktop.DBus.Error."
            let missing = ["ServiceUnknown", "NameHasNoOwner", "UnknownMethod", "UnknownInterface", "UnknownObject"]
            if missing.contains(where: { error.name == bus + $0 }) || error.name.hasPrefix(bus + "Spawn.") { return absent }
            return .unknown("the portal answered \(error.name)")
        }
    }
}

/// The group "Proxy Settings" of KDE's `kioslaverc`.
struct KDEProxies {
    enum Setting: Equatable {
        case unset
        case choice(ProxyChoice)
        case script
    }

    private var values: [String: String] = [:]

    init(_ text: String) {
        var isInGroup = false
        for line in text.split(separator: "\n") {
            if line.hasPrefix("[") { isInGroup = line.hasPrefix("[Proxy Settings]") }
            guard isInGroup, let equals = line.firstIndex(of: "=") else { continue }
            // "Key[$e]=": may be expanded.
            let key = line[..<equals].prefix { $0 != "[" && $0 != " " }
            values[String(key)] = String(line[line.index(after: equals)...].drop { $0 == " " })
        }
    }

    func setting(for url: DownloadURL) -> Setting {
        switch values["ProxyType"] ?? "0" {
        case "0": return .unset
        case "1": return .choice(manual(for: url))
        case "2", "3": return .script
        case "4": return .unset  // the environment's, which were looked at before
        default: return .choice(.unknown("ProxyType of kioslaverc is not known"))
        }
    }

    private func manual(for url: DownloadURL) -> ProxyChoice {
        let isListed = (values["NoProxyFor"] ?? "").split { $0 == "," || $0 == " " }.contains { Self.covers($0.lowercased(), url.host) }
        if isListed != (values["ReversedException"] == "true") { return .direct }
        guard let proxy = value(url.scheme == "https" ? "httpsProxy" : "httpProxy") ?? value("socksProxy") else { return .direct }
        // "http://host 8080", or with a colon; "http://host 0" is none.
        let parts = proxy.split(separator: " ")
        var text = String(parts[0])
        if parts.count > 1 { text = (text.hasSuffix("/") ? String(text.dropLast()) : text) + ":" + parts[1] }
        return ProxyChoice(resolved: [text.contains("://") ? text : "http://\(text)"])
    }

    private func value(_ key: String) -> String? {
        values[key].flatMap { $0.isEmpty || $0.hasSuffix(" 0") || $0.first == " " ? nil : $0 }
    }

    private static func covers(_ exception: String, _ host: String) -> Bool {
        let name = exception.hasPrefix("*.") ? exception.dropFirst(2) : exception.hasPrefix(".") ? exception.dropFirst() : exception[...]
        return !name.isEmpty && (host == name || host.hasSuffix(".\(name)"))
    }
}
