internal import DownloadModel

/// The group "Proxy Settings" of KDE's `kioslaverc`, interpreted as KConfig and KIO do.
struct KDEProxies: Equatable {
    private var values: [String: String] = [:]
    /// Keys that a file of lower priority has made immutable (`[$i]`).
    private var frozen: Set<String> = []
    private var isFrozen = false

    /// Adds the text of a file with a higher priority than all files before.
    mutating func add(_ text: String) {
        guard !isFrozen else { return }
        var isInGroup = false
        var freezes = false
        var newlyFrozen: Set<String> = []
        for line in text.split(whereSeparator: \.isNewline) {
            let line = line.drop { $0 == " " || $0 == "\t" }
            if line.first == "[" {
                isInGroup = line.hasPrefix("[Proxy Settings]")
                if isInGroup || line.hasPrefix("[$"), line.drop(while: { $0 != "$" }).contains("i") { freezes = true }
                continue
            }
            guard isInGroup, line.first != "#", let equals = line.firstIndex(of: "=") else { continue }
            let name = line[..<equals]
            let key = String(name.prefix { $0 != "[" }.trimmingBlanks)
            if name.dropFirst(key.count).contains("[$"), name.drop(while: { $0 != "$" }).contains("i") { newlyFrozen.insert(key) }
            if !frozen.contains(key) { values[key] = String(line[line.index(after: equals)...].trimmingBlanks) }
        }
        frozen.formUnion(newlyFrozen)
        isFrozen = freezes
    }

    /// - Parameter environment: the source of the proxies for ProxyType 4, where the file holds variable names.
    func setting(for url: DownloadURL, _ environment: [String: String] = [:]) -> ProxySetting {
        switch values["ProxyType"] ?? "" {
        case "0", "": .choice(.direct)
        case "1": .choice(choice(for: url) { values[$0] })
        case "2": .script(script)
        case "3": .script("")
        case "4": .choice(choice(for: url) { values[$0].flatMap { environment[$0] } })
        default: .choice(.unknown("Todoku does not know the ProxyType in kioslaverc"))
        }
    }

    /// The script's URL. KDE may store a local file as a bare path.
    private var script: String {
        let text = values["Proxy Config Script"] ?? ""
        return text.isAbsolutePath ? fileURI(of: text) : text
    }

    private func choice(for url: DownloadURL, by value: (String) -> String?) -> ProxyChoice {
        let list = (value("NoProxyFor") ?? "").split { $0 == "," || $0 == " " }.map { $0.lowercased() }
        func isCovered(_ entry: String) -> Bool { ProxyException.covers(entry, host: url.host, port: url.port) }
        if values["ReversedException"] == "true" {
            // KIO matches an entry as a suffix of the host name. In doubt, use the proxy.
            guard list.contains(where: { url.host.hasSuffix($0) || isCovered($0) }) else { return .direct }
        } else if list.contains(where: isCovered) {
            return .direct
        }
        // "http://host 0" means no proxy.
        let given = [url.scheme == "https" ? "httpsProxy" : "httpProxy", "socksProxy"].lazy.compactMap(value)
        guard let proxy = given.first(where: { !$0.isEmpty && !$0.hasSuffix(" 0") }) else { return .direct }
        // The port follows a blank ("http://host 8080") or a colon.
        let parts = proxy.split(separator: " ")
        guard let first = parts.first else { return .unknown("a proxy in kioslaverc is blank") }
        var text = String(first)
        if parts.count > 1 { text = (text.hasSuffix("/") ? String(text.dropLast()) : text) + ":" + parts[1] }
        return ProxyChoice(resolved: [text.contains("://") ? text : "http://\(text)"])
    }
}
