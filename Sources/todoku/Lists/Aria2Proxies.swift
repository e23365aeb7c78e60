internal import DownloadModel
internal import Localization

/// The proxies that an input file of aria2 names for one URL.
struct Aria2Proxies: Equatable {
    /// The names of the options, without `no-proxy`.
    static let names = ["all", "http", "https"].flatMap { ["\($0)-proxy", "\($0)-proxy-user", "\($0)-proxy-passwd"] }

    /// By the option's name. Empty: the proxy of an earlier line is erased.
    private var addresses: [String: ProxyAddress?] = [:]
    private var logins: [String: String] = [:]
    private var exceptions: [String]?

    mutating func set(_ name: String, to value: String) throws(Aria2Options.Fault) {
        if name == "no-proxy" {
            exceptions = value.split(separator: ",").map { $0.filter { $0 != " " }.lowercased() }
        } else if name.hasSuffix("-proxy") {
            addresses[name] = .some(try Self.address(value))
        } else {
            logins[name] = value
        }
    }

    /// The proxy for `url`; nil: the file names none.
    func address(for url: DownloadURL) throws(Aria2Options.Fault) -> ProxyAddress? {
        if exceptions?.contains(where: { ProxyException.covers($0, host: url.host, port: url.port) }) == true {
            return try Self.address("direct://")
        }
        let names = ["\(url.scheme)-proxy", "all-proxy"]
        for name in names {
            guard let address = addresses[name] ?? nil else { continue }
            guard let user = logins["\(name)-user"] else { return address }
            let password = logins["\(name)-passwd"].map { ":\(Self.encoded($0))" } ?? ""
            let parts = address.withoutCredentials.text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
            guard parts.count == 2 else { return address }
            return try Self.address("\(parts[0])//\(Self.encoded(user))\(password)@\(parts[1].dropFirst())")
        }
        return names.contains { addresses.keys.contains($0) } ? try Self.address("direct://") : nil
    }

    /// aria2 takes a proxy without a scheme for one of http. nil: `value` is empty.
    private static func address(_ value: String) throws(Aria2Options.Fault) -> ProxyAddress? {
        guard !value.isEmpty else { return nil }
        do throws(Refusal) { return try ProxyAddress(value.contains("://") ? value : "http://\(value)") } catch {
            throw Aria2Options.Fault(catalog.explanation(name: error.name.busName, CommandWords.replacingKeys(in: error.message)))
        }
    }

    private static func encoded(_ text: String) -> String {
        text.utf8.map { byte in
            let scalar = Unicode.Scalar(byte)
            if byte < 0x80, scalar.properties.isAlphabetic || scalar.properties.numericType != nil { return String(scalar) }
            return "\(byte < 16 ? "%0" : "%")\(String(byte, radix: 16))"
        }.joined()
    }
}
