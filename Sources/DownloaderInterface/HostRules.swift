public import DBus
public import DownloadModel

/// The rules of all hosts on the bus: `a{sa{sv}}`, a dictionary for each host.
public struct HostRuleTable: DBusBasic, Equatable {
    public var rules: [String: HostRule]
    public init(_ rules: [String: HostRule]) { self.rules = rules }

    public static var signature: String { "a{sa{sv}}" }
    public func write(to writer: inout Writer) { rules.mapValues(\.dictionary).write(to: &writer) }
    public init(from reader: inout Reader) throws(DBusError) {
        let table = try [String: [String: Variant]](from: &reader)
        rules = table.mapValues { HostRule(known: $0) }
    }

    public var variant: Variant {
        .dictionary(
            key: "s", value: "a{sv}",
            rules.sorted { $0.key < $1.key }.map { Variant.Entry(key: .string($0.key), value: .dictionary($0.value.dictionary)) })
    }

    public init?(_ variant: Variant) {
        guard case .dictionary("s", "a{sv}", let entries) = variant else { return nil }
        rules = [:]
        for entry in entries {
            guard let host = entry.key.string, let rule = entry.value.vardict else { return nil }
            rules[host] = HostRule(known: rule)
        }
    }
}

extension HostRule {
    private static let connectionsKey = "connections"
    private static let intervalKey = "request-interval"

    /// `connections` `u`, `request-interval` `u` in milliseconds. A missing key means "not set".
    public var dictionary: [String: Variant] {
        var dictionary: [String: Variant] = [:]
        if let connections { dictionary[Self.connectionsKey] = .uint32(connections) }
        if let requestInterval { dictionary[Self.intervalKey] = .uint32(UInt32(clamping: requestInterval.wholeMilliseconds)) }
        return dictionary
    }

    /// - Throws: `InvalidOption` naming the key that is unknown or has the wrong type, or a number that does not fit.
    public init(decoding dictionary: [String: Variant]) throws(Refusal) {
        for (key, value) in dictionary.sorted(by: { $0.key < $1.key }) {
            guard key == Self.connectionsKey || key == Self.intervalKey else {
                throw Refusal(
                    .invalidOption, "A host rule has no key “\(shown(key))”; the keys are \(Self.connectionsKey), \(Self.intervalKey).")
            }
            guard value.uint32 != nil else {
                throw Refusal(.invalidOption, "Key \(key) of a host rule \(value.mismatch(with: "u")).")
            }
        }
        self.init(known: dictionary)
    }

    fileprivate init(known dictionary: [String: Variant]) {
        self.init(
            connections: dictionary[Self.connectionsKey]?.uint32,
            requestInterval: dictionary[Self.intervalKey]?.uint32.map { .milliseconds(Int64($0)) })
    }
}

extension HostRules {
    /// The key of a host's rule: lower case, without a dot at the end. `*` is for all other hosts.
    ///
    /// - Throws: `InvalidOption` if `host` is neither a host name nor an address.
    public static func name(of host: String) throws(Refusal) -> String {
        if host == others { return host }
        let isAddress = host.utf8.contains(UInt8(ascii: ":"))
        guard !host.utf8.contains(where: { "/@?#[]".utf8.contains($0) }),
            let url = try? DownloadURL("http://\(isAddress ? "[\(host)]" : host)/")
        else {
            throw Refusal(.invalidOption, "“\(shown(host))” is not a host name; write it like example.org, or give * for all other hosts.")
        }
        return url.host.hasSuffix(".") ? String(url.host.dropLast()) : url.host
    }
}
