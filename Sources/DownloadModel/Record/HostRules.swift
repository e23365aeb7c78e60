/// The limits for requests to one host and its subdomains. They hold over all applications, batches, redirects and retries.
public struct HostRule: Equatable, Sendable {
    /// Most connections at a time, further ones of a transfer included; 0: no limit; nil: `Settings.maxPerHost` limits the transfers.
    public var connections: UInt32?
    /// Least time between the starts of two requests; zero: none; nil: not set.
    public var requestInterval: Duration?

    public init(connections: UInt32? = nil, requestInterval: Duration? = nil) {
        (self.connections, self.requestInterval) = (connections, requestInterval)
    }

    public var isEmpty: Bool { connections == nil && requestInterval == nil }

    /// This rule, with `other` for the values that are not set.
    func over(_ other: HostRule?) -> HostRule {
        HostRule(connections: connections ?? other?.connections, requestInterval: requestInterval ?? other?.requestInterval)
    }
}

/// The rules of all hosts.
public struct HostRules: Equatable, Sendable {
    /// The key of the rule for all hosts without a rule of their own.
    public static let others = "*"
    /// Limits that a service requires of all its users (musicbrainz.org/doc/MusicBrainz_API/Rate_Limiting: one request a second).
    public static let builtIn = ["musicbrainz.org": HostRule(requestInterval: .seconds(1))]

    /// The rules that the user set, by host in lower case.
    public private(set) var given: [String: HostRule] = [:]

    public init() {}

    /// All rules in effect: those that were set, completed by the built-in ones.
    public var all: [String: HostRule] {
        var all = Self.builtIn
        for (host, rule) in given { all[host] = rule.over(Self.builtIn[host]) }
        return all
    }

    /// Sets the rule of `host`. An empty rule removes it, so that a built-in rule for the host takes effect again.
    ///
    /// - Throws: `LimitExceeded` beyond `Limits.hostRules`.
    public mutating func set(_ host: String, _ rule: HostRule) throws(Refusal) {
        guard rule.isEmpty || given[host] != nil || given.count < Limits.hostRules else {
            throw Refusal(.limitExceeded, "At most \(Limits.hostRules) hosts may have a rule; remove one first.")
        }
        given[host] = rule.isEmpty ? nil : rule
    }

    /// The hosts whose given rule differs from `before`.
    package func changes(since before: HostRules) -> Set<String> {
        Set(given.keys).union(before.given.keys).filter { given[$0] != before.given[$0] }
    }

    /// The rule of `host`, and the name under which its requests are counted. That name is the domain with the rule, so that subdomains
    /// share the limit. If only the rule for all other hosts applies, the name is the host itself.
    public func governing(_ host: String) -> (name: String, rule: HostRule) {
        let host = host.hasSuffix(".") ? String(host.dropLast()) : host  // a host with and without the DNS root's dot is the same host
        var name = host[...]
        while true {
            let candidate = String(name)
            if let rule = given[candidate] { return (candidate, rule.over(Self.builtIn[candidate])) }
            if let rule = Self.builtIn[candidate] { return (candidate, rule) }
            guard !isAddress(host), let dot = name.firstIndex(of: ".") else { break }
            name = name[name.index(after: dot)...]
        }
        return (host, given[Self.others] ?? HostRule())
    }

    /// An address has no subdomains: a rule for 0.1 does not cover 127.0.0.1.
    private func isAddress(_ host: String) -> Bool {
        host.utf8.contains(UInt8(ascii: ":"))
            || host.utf8.allSatisfy { $0.isDigit || $0 == UInt8(ascii: ".") }
    }
}
