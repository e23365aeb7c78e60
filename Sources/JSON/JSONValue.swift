internal import CJSON

/// A JSON value (RFC 8259), read by jansson, which is loaded on first use.
public indirect enum JSONValue: Hashable, Sendable {
    case null
    case bool(Bool)
    /// A number without fraction and exponent.
    case integer(Int64)
    case real(Double)
    case string(String)
    case array([JSONValue])
    case object([String: JSONValue])

    /// Reads one object or array, which is all of `bytes`.
    ///
    /// A key may be there once in an object. Refused are invalid UTF-8, U+0000 and numbers beyond 64 bits.
    /// - Parameters:
    ///   - mostBytes: a longer text is refused, unread.
    ///   - mostDepth: how many objects and arrays may be inside each other; at most 2,048 count.
    /// - Throws: an error that names the field, if a field is at fault, or the line.
    public init(_ bytes: [UInt8], mostBytes: Int, mostDepth: Int = 16) throws(JSONError) {
        guard bytes.count <= mostBytes else { throw JSONError("the text has \(bytes.count) bytes; at most \(mostBytes) are allowed") }
        if let reason = todoku_json_load() { throw JSONError("JSON cannot be read: \(String(cString: reason))") }
        var error = json_error_t()
        guard let root = bytes.withUnsafeBytes({ json_parse($0.baseAddress, $0.count, &error) }) else {
            throw JSONError("line \(max(1, error.line)): \(printable(String(cString: json_error_text(&error))))")
        }
        defer { json_free(root) }
        self = try Self.copy(root, JSONPath(), deepest: mostDepth)
    }

    /// - Parameter value: lent.
    private static func copy(_ value: UnsafeMutablePointer<json_t>, _ path: JSONPath, deepest: Int) throws(JSONError) -> JSONValue {
        switch json_kind(value) {
        case JSON_TRUE: return .bool(true)
        case JSON_FALSE: return .bool(false)
        case JSON_INTEGER: return .integer(json_integer(value))
        case JSON_REAL: return .real(json_real(value))
        case JSON_STRING: return .string(json_text(value).map { String(cString: $0) } ?? "")
        case JSON_ARRAY:
            guard deepest > 0 else { throw JSONError("\(path) is nested too deep") }
            var elements: [JSONValue] = []
            while let element = json_element(value, elements.count) {
                elements.append(try copy(element, path[elements.count], deepest: deepest &- 1))
            }
            return .array(elements)
        case JSON_OBJECT:
            guard deepest > 0 else { throw JSONError("\(path) is nested too deep") }
            var members: [String: JSONValue] = [:]
            var member = json_first_member(value)
            while let current = member {
                guard let name = json_member_key(current), let content = json_member_value(current) else { break }
                let key = String(cString: name)
                // To jansson, keys are bytes. To Swift, a letter with an accent and its two-part form are the same key.
                guard members.updateValue(try copy(content, path[key], deepest: deepest &- 1), forKey: key) == nil else {
                    throw JSONError("\(path[key]) is there twice")
                }
                member = json_next_member(value, current)
            }
            return .object(members)
        default: return .null
        }
    }
}

/// Why a text is not the JSON that was expected: one sentence, without a full stop, that names the field.
public struct JSONError: Error, Equatable, Sendable, CustomStringConvertible {
    public let message: String
    public init(_ message: String) { self.message = message }
    public var description: String { message }

    /// The message without the piece of the text that jansson quotes, of at most 20 bytes. For a log, if the text may be private.
    public var messageWithoutQuote: String {
        guard let quote = message.utf8.firstRange(of: " near '".utf8) else { return message }
        return String(message[..<quote.lowerBound])
    }
}

/// The place of a value in a text, such as `files[2].sha256`. Keys are the sender's: they are shortened and have no control characters.
public struct JSONPath: Sendable, CustomStringConvertible {
    private static let longestKey = 64
    private static let longest = 256
    private let text: String

    /// The whole text.
    public init() { text = "" }
    private init(_ text: String) {
        self.text = text.utf8.count > Self.longest ? "\(String(text.unicodeScalars.prefix(Self.longest)))…" : text
    }

    public subscript(_ key: String) -> JSONPath {
        var name = printable(String(String.UnicodeScalarView(key.unicodeScalars.prefix(Self.longestKey))))
        if key.unicodeScalars.count > Self.longestKey { name += "…" }
        return JSONPath(text.isEmpty ? name : "\(text).\(name)")
    }

    public subscript(_ index: some BinaryInteger) -> JSONPath { JSONPath("\(text)[\(index)]") }

    public var description: String { text.isEmpty ? "the text" : "“\(text)”" }
}

/// A text of the sender's for a message: a control character becomes "?".
private func printable(_ text: String) -> String {
    String(String.UnicodeScalarView(text.unicodeScalars.map { $0.value < 32 || (127...159).contains($0.value) ? "?" : $0 }))
}
