internal import DownloadModel

/// GNOME's settings in the output of `gsettings list-recursively org.gnome.system.proxy`, interpreted as GLib's own resolver does.
struct GNOMEProxies: Equatable {
    static let schema = "org.gnome.system.proxy"

    /// The values as GVariant text, by key: "mode", "http host" …
    private var values: [String: String] = [:]

    init(_ text: String) {
        for line in text.split(separator: "\n") where line.hasPrefix(Self.schema) {
            let parts = line.dropFirst(Self.schema.count).split(separator: " ", maxSplits: 2, omittingEmptySubsequences: false)
            guard parts.count == 3 else { continue }
            let key = parts[0].isEmpty ? String(parts[1]) : "\(parts[0].dropFirst()) \(parts[1])"
            values[key] = String(parts[2])
        }
    }

    func setting(for url: DownloadURL) -> ProxySetting {
        switch string("mode") {
        case "none": .choice(.direct)
        case "manual": .choice(manual(for: url))
        case "auto": .script(string("autoconfig-url") ?? "")
        default: .choice(.unknown("the proxy mode that gsettings prints is not understood"))
        }
    }

    /// The proxy of the URL's scheme, else the SOCKS proxy. For https last the http proxy, if `use-same-proxy` is set.
    private func manual(for url: DownloadURL) -> ProxyChoice {
        guard let hosts = values["ignore-hosts"], let exceptions = GVariantText.strings(hosts) else {
            return .unknown("the list of hosts without a proxy that gsettings prints is not understood")
        }
        if exceptions.contains(where: { ProxyException.covers($0, host: url.host, port: url.port) }) { return .direct }
        if let own = proxy(url.scheme) ?? proxy("socks") { return own }
        if url.scheme == "https", values["use-same-proxy"] == "true", let http = proxy("http") { return http }
        return .direct
    }

    private func proxy(_ kind: String) -> ProxyChoice? {
        guard let text = values["\(kind) host"], let host = GVariantText.strings(text)?.first else {
            return .unknown("the \(kind) proxy that gsettings prints is not understood")
        }
        guard !host.isEmpty else { return nil }
        let port = values["\(kind) port"].flatMap { UInt16($0) } ?? 0
        let place = "\(host.contains(":") && !host.hasPrefix("[") ? "[\(host)]" : host):\(port > 0 ? port : kind == "socks" ? 1080 : 80)"
        guard kind != "socks" else { return ProxyChoice(resolved: ["socks5://\(place)"]) }
        return ProxyChoice(resolved: ["http://\(credentials)\(place)"])
    }

    private var credentials: String {
        guard values["http use-authentication"] == "true", let user = string("http authentication-user"), !user.isEmpty else { return "" }
        return "\(Self.encoded(user)):\(Self.encoded(string("http authentication-password") ?? ""))@"
    }

    private static func encoded(_ text: String) -> String {
        text.utf8.reduce(into: "") { result, byte in
            let scalar = Unicode.Scalar(byte)
            if scalar.properties.isAlphabetic && byte < 0x80 || (0x30...0x39).contains(byte) {
                result.unicodeScalars.append(scalar)
            } else {
                result += (byte < 16 ? "%0" : "%") + String(byte, radix: 16)
            }
        }
    }

    private func string(_ key: String) -> String? { values[key].flatMap { GVariantText.strings($0)?.first } }
}

/// The text format of GVariant, for strings only.
enum GVariantText {
    /// The strings of `'a'`, `['a', "b"]` or `@as []`; nil for anything else.
    static func strings(_ text: String) -> [String]? {
        var rest = Substring(text.hasPrefix("@as ") ? text.dropFirst(4) : text[...])
        let isArray = rest.first == "["
        if isArray { rest.removeFirst() }
        var result: [String] = []
        while let first = rest.first {
            if isArray, first == "]" { return rest.count == 1 ? result : nil }
            if !result.isEmpty {
                guard isArray, rest.hasPrefix(", ") else { return nil }
                rest = rest.dropFirst(2)
            }
            guard let string = takeString(&rest) else { return nil }
            result.append(string)
            if !isArray { return rest.isEmpty ? result : nil }
        }
        return nil
    }

    private static func takeString(_ rest: inout Substring) -> String? {
        guard let quote = rest.popFirst(), quote == "'" || quote == "\"" else { return nil }
        var result = ""
        while let character = rest.popFirst() {
            switch character {
            case quote: return result
            case "\\":
                guard let escaped = rest.popFirst() else { return nil }
                guard let scalar = unescaped(escaped, &rest) else { return nil }
                result.unicodeScalars.append(scalar)
            default: result.append(character)
            }
        }
        return nil
    }

    private static func unescaped(_ character: Character, _ rest: inout Substring) -> Unicode.Scalar? {
        let plain: [Character: Unicode.Scalar] = ["n": "\n", "t": "\t", "r": "\r", "a": "\u{7}", "b": "\u{8}", "f": "\u{C}", "v": "\u{B}"]
        if let scalar = plain[character] { return scalar }
        guard character == "u" || character == "U" else { return character.unicodeScalars.first }
        let digits = rest.prefix(character == "u" ? 4 : 8)
        rest = rest.dropFirst(digits.count)
        return UInt32(digits, radix: 16).flatMap { Unicode.Scalar($0) }
    }
}
