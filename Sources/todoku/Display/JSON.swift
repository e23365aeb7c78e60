/// A JSON value (RFC 8259) for output; members keep their order.
indirect enum JSON: Equatable {
    case null
    case bool(Bool)
    case unsigned(UInt64)
    case integer(Int64)
    /// Written as null unless finite.
    case number(Double)
    case string(String)
    case array([JSON])
    case object([(String, JSON)])

    /// On one line, without blanks.
    var text: String {
        var text = ""
        write(to: &text)
        return text
    }

    private func write(to text: inout String) {
        switch self {
        case .null: text += "null"
        case .bool(let value): text += value ? "true" : "false"
        case .unsigned(let value): text += String(value)
        case .integer(let value): text += String(value)
        case .number(let value): text += value.isFinite ? "\(value)" : "null"
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
            for (index, member) in members.enumerated() {
                if index > 0 { text += "," }
                Self.quote(member.0, to: &text)
                text += ":"
                member.1.write(to: &text)
            }
            text += "}"
        }
    }

    /// Escapes control characters, including DEL and C1, so that they do not control a terminal. Also escapes the two line separators that
    /// JavaScript treats as line ends.
    private static func quote(_ value: String, to text: inout String) {
        text += "\""
        for scalar in value.unicodeScalars {
            switch scalar {
            case "\"": text += "\\\""
            case "\\": text += "\\\\"
            case "\n": text += "\\n"
            case "\r": text += "\\r"
            case "\t": text += "\\t"
            case _ where scalar.value < 0x20 || (0x7f...0x9f).contains(scalar.value) || scalar.value == 0x2028 || scalar.value == 0x2029:
                let digits = String(scalar.value, radix: 16)
                text += "\\u" + String(repeating: "0", count: 4 - digits.utf8.count) + digits
            default: text.unicodeScalars.append(scalar)
            }
        }
        text += "\""
    }

    static func == (a: JSON, b: JSON) -> Bool { a.text == b.text }
}

extension JSON {
    init(_ value: String?) { self = value.map { .string($0) } ?? .null }
    init(_ value: UInt64?) { self = value.map { .unsigned($0) } ?? .null }
    init(_ value: UInt32?) { self = value.map { .unsigned(UInt64($0)) } ?? .null }
    init(_ value: Double?) { self = value.map { .number($0) } ?? .null }
}
