/// Which signals a subscription wants; nil fields match all.
public struct MatchRule: Sendable {
    public var sender: String?
    public var path: String?
    public var interface: String?
    public var member: String?
    public var argument0: String?

    public init(sender: String? = nil, path: String? = nil, interface: String? = nil, member: String? = nil) {
        (self.sender, self.path, self.interface, self.member) = (sender, path, interface, member)
    }

    var text: String {
        var text = "type='signal'"
        for (key, value) in [("sender", sender), ("path", path), ("interface", interface), ("member", member), ("arg0", argument0)] {
            if let value { text += ",\(key)='\(Self.escaped(value))'" }
        }
        return text
    }

    /// Between quotes all bytes stand for themselves; a quote is written outside of them (specification, "Match Rules").
    private static func escaped(_ value: String) -> String {
        value.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''")
    }

    /// The bus itself is known by its name and a connection by its unique one. Another well-known sender cannot be compared with the
    /// unique name in the message: there the bus has matched it, but for messages to us alone, which pass no rules and are not taken.
    private func isFrom(_ sender: String, _ message: Message) -> Bool {
        sender.hasPrefix(":") || sender == BusDaemon.name ? message.sender == sender : !message.isAddressed
    }

    func matches(_ message: Message) -> Bool {
        (interface == nil || interface == message.interface) && (member == nil || member == message.member)
            && (path == nil || path == message.path) && (sender.map { isFrom($0, message) } ?? true)
            && (argument0.map { (try? message.first(String.self)) == $0 } ?? true)
    }
}
