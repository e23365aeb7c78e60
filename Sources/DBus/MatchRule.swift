/// The signals that a subscription receives; a nil field matches everything.
public struct MatchRule: Sendable {
    public var sender: String?
    public var path: String?
    public var interface: String?
    public var member: String?
    public var argument0: String?
    /// The first argument is this name, or a name below it.
    public var argument0Namespace: String?

    public init(sender: String? = nil, path: String? = nil, interface: String? = nil, member: String? = nil) {
        (self.sender, self.path, self.interface, self.member) = (sender, path, interface, member)
    }

    var text: String {
        var text = "type='signal'"
        let terms = [
            ("sender", sender), ("path", path), ("interface", interface), ("member", member), ("arg0", argument0),
            ("arg0namespace", argument0Namespace),
        ]
        for (key, value) in terms {
            if let value { text += ",\(key)='\(Self.escaped(value))'" }
        }
        return text
    }

    /// Escapes a value. Within quotes every byte stands for itself; a quote must be outside of them (specification, "Match Rules").
    private static func escaped(_ value: String) -> String {
        // By bytes: for Swift, a quote and a combining mark behind it are one character.
        value.utf8.split(separator: UInt8(ascii: "'"), omittingEmptySubsequences: false).map { String(decoding: $0, as: UTF8.self) }
            .joined(separator: "'\\''")
    }

    /// The bus's own messages have its well-known name as sender, all others a unique name. So a sender with another well-known name cannot
    /// be compared here. The bus has matched it already, except for messages addressed to us: they pass no rules and are refused.
    private func isFrom(_ sender: String, _ message: Message) -> Bool {
        sender.hasPrefix(":") || sender == BusDaemon.name ? message.sender == sender : !message.isAddressed
    }

    func matches(_ message: Message) -> Bool {
        (interface == nil || interface == message.interface) && (member == nil || member == message.member)
            && (path == nil || path == message.path) && (sender.map { isFrom($0, message) } ?? true)
            && (argument0.map { (try? message.first(String.self)) == $0 } ?? true)
            && (argument0Namespace.map { space in
                (try? message.first(String.self)).map { $0 == space || $0.hasPrefix(space + ".") } ?? false
            } ?? true)
    }
}
