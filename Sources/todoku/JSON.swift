/// A JSON value (RFC 8259) to be written; members keep their order.
indirect enum JSON: Equatable {
    case null
    case bool(Bool)
    case unsigned(UInt64)
    case integer(Int64)
    /// Not finite: written as null.
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

    /// Control characters are escaped, DEL and C1 too, so that a terminal shows the text harmlessly; so are the two line separators that
    /// JavaScript takes for line ends.
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
