extension JSONValue {
    /// The value as JSON on one line, without blanks. The members of an object are in the order of their keys.
    ///
    /// Control characters are escaped, and so are U+2028 and U+2029, which are line ends in JavaScript. A number that is not finite becomes
    /// `null`.
    public var text: String {
        var text = ""
        write(to: &text)
        return text
    }

    private func write(to text: inout String) {
        switch self {
        case .null: text += "null"
        case .bool(let value): text.append(value ? "true" : "false")
        case .integer(let value): text.append(String(value))
        case .real(let value): text.append(value.isFinite ? "\(value)" : "null")
        case .string(let value): Self.quote(value, to: &text)
        case .array(let values):
            text += "["
            for (index, value) in values.enumerated() {
                if index > 0 { text += "," }
                value.write(to: &text)
            }
            text += "]"
        case .object(let members):
            text += "{"
            for (index, member) in members.sorted(by: { $0.key < $1.key }).enumerated() {
                if index > 0 { text += "," }
                Self.quote(member.key, to: &text)
                text += ":"
                member.value.write(to: &text)
            }
            text += "}"
        }
    }

    private static func quote(_ value: String, to text: inout String) {
        text += "\""
        for scalar in value.unicodeScalars {
            switch scalar.value {
            case 0x22: text += "\\\""
            case 0x5c: text += "\\\\"
            case 0x0a: text += "\\n"
            case 0x00...0x1f, 0x7f...0x9f, 0x2028, 0x2029:
                let digits = String(scalar.value, radix: 16)
                text += "\\u" + String(repeating: "0", count: max(0, 4 &- digits.utf8.count)) + digits
            default: text.unicodeScalars.append(scalar)
            }
        }
        text += "\""
    }
}
