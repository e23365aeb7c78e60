/// A JSON value (RFC 8259), as programs under test print them.
public indirect enum JSON: Equatable, Sendable {
    case null
    case bool(Bool)
    case number(Double)
    case string(String)
    case array([JSON])
    case object([String: JSON])

    public var string: String? { if case .string(let value) = self { value } else { nil } }
    public var number: Double? { if case .number(let value) = self { value } else { nil } }
    public var bool: Bool? { if case .bool(let value) = self { value } else { nil } }
    public var array: [JSON]? { if case .array(let value) = self { value } else { nil } }
    public var object: [String: JSON]? { if case .object(let value) = self { value } else { nil } }
    public subscript(_ key: String) -> JSON? { object?[key] }

    /// nil if `text` is not one JSON value, or is nested deeper than 100.
    public init?(_ text: String) {
        var reader = JSONReader(rest: text.unicodeScalars[...])
        guard let value = reader.value(depth: 100) else { return nil }
        reader.skipSpace()
        guard reader.rest.isEmpty else { return nil }
        self = value
    }
}

private struct JSONReader {
    var rest: Substring.UnicodeScalarView

    mutating func skipSpace() { rest = rest.drop { " \t\r\n".unicodeScalars.contains($0) } }

    mutating func take(_ text: String) -> Bool {
        guard rest.starts(with: text.unicodeScalars) else { return false }
        rest = rest.dropFirst(text.unicodeScalars.count)
        return true
    }

    mutating func value(depth: Int) -> JSON? {
        skipSpace()
        guard depth > 0, let first = rest.first else { return nil }
        switch first {
        case "{": return object(depth: depth)
        case "[": return array(depth: depth)
        case "\"": return string().map { .string($0) }
        default:
            if take("null") { return .null }
            if take("true") { return .bool(true) }
            if take("false") { return .bool(false) }
            let digits = rest.prefix { "+-.0123456789eE".unicodeScalars.contains($0) }
            rest = rest.dropFirst(digits.count)
            return Double(String(digits)).map { .number($0) }
        }
    }

    private mutating func array(depth: Int) -> JSON? {
        guard take("[") else { return nil }
        var values: [JSON] = []
        skipSpace()
        if take("]") { return .array([]) }
        while true {
            guard let value = value(depth: depth - 1) else { return nil }
            values.append(value)
            skipSpace()
            if take("]") { return .array(values) }
            guard take(",") else { return nil }
        }
    }

    private mutating func object(depth: Int) -> JSON? {
        guard take("{") else { return nil }
        var values: [String: JSON] = [:]
        skipSpace()
        if take("}") { return .object([:]) }
        while true {
            skipSpace()
            guard let key = string() else { return nil }
            skipSpace()
            guard take(":"), let value = value(depth: depth - 1) else { return nil }
            values[key] = value
            skipSpace()
            if take("}") { return .object(values) }
            guard take(",") else { return nil }
        }
    }

    private mutating func string() -> String? {
        guard take("\"") else { return nil }
        var units: [UInt16] = []
        while let scalar = rest.popFirst() {
            switch scalar {
            case "\"": return String(decoding: units, as: UTF16.self)
            case "\\":
                guard let escape = rest.popFirst() else { return nil }
                switch escape {
                case "n": units.append(10)
                case "t": units.append(9)
                case "r": units.append(13)
                case "b": units.append(8)
                case "f": units.append(12)
                case "u":
                    guard let unit = UInt16(String(rest.prefix(4)), radix: 16) else { return nil }
                    rest = rest.dropFirst(4)
                    units.append(unit)
                default: units += Array(String(escape).utf16)
                }
            default: units += Array(String(scalar).utf16)
            }
        }
        return nil
    }
}
