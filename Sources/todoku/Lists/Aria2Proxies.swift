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
            exceptions = value.lowercased().filter { $0 != " " }.split(separator: ",").map { String($0) }
        } else if name.hasSuffix("-proxy") {
            try addresses.updateValue(Self.address(value, of: name), forKey: name)
        } else {
            logins[name] = value
        }
    }

    /// The proxy for `url`; nil: the file names none.
    func address(for url: DownloadURL) throws(Aria2Options.Fault) -> ProxyAddress? {
        if exceptions?.contains(where: { ProxyException.covers($0, host: url.host, port: url.port) }) == true {
            return try Self.address("direct://", of: "no-proxy")
        }
        var isErased = false
        for name in ["\(url.scheme)-proxy", "all-proxy"] {
            guard let entry = addresses[name] else { continue }
            if let address = entry { return try withLogin(address, name) }
            isErased = true
        }
        guard isErased else { return nil }
        return try Self.address("direct://", of: "all-proxy")
    }

    /// `address` with the user and the password that the options beside `name` give.
    private func withLogin(_ address: ProxyAddress, _ name: String) throws(Aria2Options.Fault) -> ProxyAddress? {
        guard let user = logins["\(name)-user"] else { return address }
        let password = logins["\(name)-passwd"].map { ":\(Self.encoded($0))" } ?? ""
        // "http:", "", "host:3128"
        let parts = address.withoutCredentials.text.split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 3 else { return address }
        return try Self.address("\(parts[0])//\(Self.encoded(user))\(password)@\(parts[2])", of: "\(name)-user")
    }

    /// aria2 takes a proxy without a scheme for one of http, and a proxy without a port for one at the default port of its scheme. nil:
    /// `value` is empty.
    ///
    /// - Parameter name: the option that gives the address, for the fault.
    private static func address(_ value: String, of name: String) throws(Aria2Options.Fault) -> ProxyAddress? {
        guard !value.isEmpty else { return nil }
        do throws(Refusal) {
            let address = try ProxyAddress(value.contains("://") ? value : "http://\(value)")
            guard let port = missingPort(of: address) else { return address }
            return try ProxyAddress("\(address.text):\(port)")
        } catch {
            throw Aria2Options.Fault(catalog.explanation(error).replacing("--proxy", with: "“\(name)”"), about: name)
        }
    }

    /// The port that aria2 takes for a proxy of http or https without one; nil: the address has a port, or another scheme. libcurl would
    /// take 1080 for a proxy of http.
    private static func missingPort(of address: ProxyAddress) -> Int? {
        let parts = address.withoutCredentials.text.split(separator: "/")
        // "[::1]" has colons, and no port.
        guard parts.count == 2, let port = ["http:": 80, "https:": 443][String(parts[0])] else { return nil }
        return parts[1].hasSuffix("]") || !parts[1].contains(":") ? port : nil
    }

    /// Percent-encodes all bytes but letters and digits of ASCII.
    private static func encoded(_ text: String) -> String {
        var result = ""
        for byte in text.utf8 {
            let character = Character(Unicode.Scalar(byte))
            if character.isASCII, character.isLetter || character.isNumber {
                result.append(character)
            } else {
                result.append(byte < 16 ? "%0" : "%")
                result.append(String(byte, radix: 16))
            }
        }
        return result
    }
}
