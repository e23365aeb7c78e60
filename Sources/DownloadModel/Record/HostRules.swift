/// What is asked of one host and its subdomains, over all applications, batches, redirects and retries.
public struct HostRule: Equatable, Sendable {
    /// Most transfers at a time; 0: no limit; nil: as `Settings.maxPerHost`.
    public var connections: UInt32?
    /// At least this long between the starts of requests; zero: none; nil: not said.
    public var requestInterval: Duration?

    public init(connections: UInt32? = nil, requestInterval: Duration? = nil) {
        (self.connections, self.requestInterval) = (connections, requestInterval)
    }

    public var isEmpty: Bool { connections == nil && requestInterval == nil }

    /// This rule, and where it says nothing, `other`.
    func over(_ other: HostRule?) -> HostRule {
        HostRule(connections: connections ?? other?.connections, requestInterval: requestInterval ?? other?.requestInterval)
    }
}

/// The rules of all hosts.
public struct HostRules: Equatable, Sendable {
    /// The name under which the rule of all hosts is kept that have none of their own.
    public static let others = "*"
    /// What a service asks of everybody who uses it (musicbrainz.org/doc/MusicBrainz_API/Rate_Limiting: one request a second).
    public static let builtIn = ["musicbrainz.org": HostRule(requestInterval: .seconds(1))]

    /// What was set, by host in lower case.
    public private(set) var given: [String: HostRule] = [:]

    public init() {}

    /// All that hold: a rule that was set, where it says nothing, the built-in one.
    public var all: [String: HostRule] {
        var all = Self.builtIn
        for (host, rule) in given { all[host] = rule.over(Self.builtIn[host]) }
        return all
    }

    /// Sets the rule of `host`; an empty one takes it away, so that the built-in one holds again, where there is one.
    ///
    /// - Throws: `LimitExceeded` beyond `Limits.hostRules`.
    public mutating func set(_ host: String, _ rule: HostRule) throws(Refusal) {
        guard rule.isEmpty || given[host] != nil || given.count < Limits.hostRules else {
            throw Refusal(.limitExceeded, "At most \(Limits.hostRules) hosts may have a rule.")
        }
        given[host] = rule.isEmpty ? nil : rule
    }

    /// The rule of `host`, and under what name its requests are counted: that of the domain that has the rule, so that subdomains share it;
    /// where only the rule of all others holds, the host's own.
    public func governing(_ host: String) -> (name: String, rule: HostRule) {
        let host = host.hasSuffix(".") ? String(host.dropLast()) : host  // the root's dot makes no other host of it
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

    /// An address has no subdomains: the rule of 0.1 is none for 127.0.0.1.
    private func isAddress(_ host: String) -> Bool {
        host.utf8.contains(UInt8(ascii: ":"))
            || host.utf8.allSatisfy { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) || $0 == UInt8(ascii: ".") }
    }
}
