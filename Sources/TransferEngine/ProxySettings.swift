internal import DownloadModel
internal import Glibc

/// Which proxy to take for a host, by the usual environment variables, read as curl does: `http_proxy` (lower case only), `https_proxy`,
/// `all_proxy` (either case), `no_proxy` (either case).
public struct ProxySettings: Equatable, Sendable {
    /// Proxy URLs as given; nil: none.
    public var http: String?
    public var https: String?
    /// Host names (with their subdomains), addresses, address ranges as "10.0.0.0/8"; "*": every host.
    public var exceptions: [String] = []

    /// Whether the environment names a proxy: then it alone counts.
    var isSet: Bool { http != nil || https != nil }

    public static let none = ProxySettings(environment: [:])

    public init(environment: [String: String]) {
        func value(_ names: String...) -> String? { names.lazy.compactMap { environment[$0] }.first { !$0.isEmpty } }
        let all = value("all_proxy", "ALL_PROXY")
        http = value("http_proxy") ?? all  // HTTP_PROXY can be set by a request header where CGI is in play
        https = value("https_proxy", "HTTPS_PROXY") ?? all
        exceptions = (value("no_proxy", "NO_PROXY") ?? "").split { $0 == "," || $0 == " " || $0 == "\t" }.map { $0.lowercased() }
    }

    /// The proxy's URL for `url`; nil: straight to the host.
    func proxy(for url: DownloadURL) -> String? {
        guard let proxy = url.scheme == "https" ? https : http, !exceptions.contains("*") else { return nil }
        let host = url.host.hasSuffix(".") ? String(url.host.dropLast()) : url.host
        return exceptions.contains { ProxySettings.matches($0, host) } ? nil : proxy
    }

    private static func matches(_ exception: String, _ host: String) -> Bool {
        if let address = AddressBytes(host) {
            let parts = exception.split(separator: "/", maxSplits: 1)
            guard let network = parts.first.flatMap({ AddressBytes(String($0)) }), network.bytes.count == address.bytes.count else {
                return false
            }
            let all = address.bytes.count * 8
            guard let length = parts.count == 2 ? Int(parts[1]) : all, (0...all).contains(length) else { return false }
            return address.hasPrefix(of: network, bits: length)
        }
        let name = exception.hasPrefix(".") ? exception.dropFirst() : exception[...]
        return !name.isEmpty && (host == name || host.hasSuffix(".\(name)"))
    }
}

/// An IPv4 or IPv6 address in network order.
private struct AddressBytes {
    let bytes: [UInt8]

    init?(_ text: String) {
        let text = text.hasPrefix("[") && text.hasSuffix("]") ? String(text.dropFirst().dropLast()) : text
        for (family, count) in [(AF_INET, 4), (AF_INET6, 16)] {
            var bytes = [UInt8](repeating: 0, count: count)
            if inet_pton(family, text, &bytes) == 1 {
                self.bytes = bytes
                return
            }
        }
        return nil
    }

    func hasPrefix(of other: AddressBytes, bits: Int) -> Bool {
        (0..<bits).allSatisfy { (bytes[$0 / 8] ^ other.bytes[$0 / 8]) & (0x80 >> UInt8($0 % 8)) == 0 }
    }
}

/// The environment of this process.
public func processEnvironment() -> [String: String] {
    var result: [String: String] = [:]
    var entry = environ
    while let text = entry.pointee {
        let pair = String(cString: text).split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        if pair.count == 2 { result[String(pair[0])] = String(pair[1]) }
        entry += 1
    }
    return result
}
