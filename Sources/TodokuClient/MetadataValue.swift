internal import DBus

/// A value of the caller's own data (option `metadata`), which the service keeps and returns.
///
/// ```swift
/// request.metadata = ["chapter": 3, "title": "Arrival", "tags": ["audio", "new"]]
/// ```
///
/// ``DownloaderClient/metadata(of:)`` returns each value as it was set. Another program may have set a value of another D-Bus type: then a
/// byte or a smaller integer is `integer`, a path or a signature is `string`, and a structure is `array`.
public indirect enum MetadataValue: Hashable, Sendable {
    case bool(Bool)
    /// `x` on the bus.
    case integer(Int64)
    /// `t` on the bus: for numbers above `Int64.max`.
    case unsigned(UInt64)
    case double(Double)
    /// A call with a NUL in a text is refused, because NUL ends a text on the bus.
    case string(String)
    /// `as` on the bus if all elements are texts, else `av`.
    case array([MetadataValue])
    /// `a{sv}` on the bus.
    case dictionary([String: MetadataValue])

    public var bool: Bool? { if case .bool(let value) = self { value } else { nil } }
    /// nil for a number above `Int64.max`, too.
    public var integer: Int64? {
        switch self {
        case .integer(let value): value
        case .unsigned(let value): Int64(exactly: value)
        default: nil
        }
    }
    public var double: Double? { if case .double(let value) = self { value } else { nil } }
    public var string: String? { if case .string(let value) = self { value } else { nil } }
    public var array: [MetadataValue]? { if case .array(let value) = self { value } else { nil } }
    public var dictionary: [String: MetadataValue]? { if case .dictionary(let value) = self { value } else { nil } }
}

extension MetadataValue: ExpressibleByBooleanLiteral, ExpressibleByIntegerLiteral, ExpressibleByFloatLiteral, ExpressibleByStringLiteral,
    ExpressibleByArrayLiteral, ExpressibleByDictionaryLiteral
{
    public init(booleanLiteral value: Bool) { self = .bool(value) }
    public init(integerLiteral value: Int64) { self = .integer(value) }
    public init(floatLiteral value: Double) { self = .double(value) }
    public init(stringLiteral value: String) { self = .string(value) }
    public init(arrayLiteral elements: MetadataValue...) { self = .array(elements) }
    /// If a key is there twice, its last value counts.
    public init(dictionaryLiteral elements: (String, MetadataValue)...) {
        self = .dictionary(Dictionary(elements, uniquingKeysWith: { $1 }))
    }
}

extension MetadataValue {
    init(_ value: Variant) {
        switch value {
        case .byte(let number): self = .integer(Int64(clamping: number))
        case .bool(let value): self = .bool(value)
        case .int16(let number): self = .integer(Int64(clamping: number))
        case .uint16(let number): self = .integer(Int64(clamping: number))
        case .int32(let number): self = .integer(Int64(clamping: number))
        case .uint32(let number): self = .integer(Int64(clamping: number))
        case .int64(let number): self = .integer(number)
        case .uint64(let number): self = .unsigned(number)
        case .double(let number): self = .double(number)
        case .string(let text): self = .string(text)
        case .objectPath(let path): self = .string(path.value)
        case .signature(let text): self = .string(text)
        case .array(_, let elements): self = .array(elements.map { MetadataValue($0) })
        case .structure(let fields): self = .array(fields.map { MetadataValue($0) })
        case .variant(let inner): self = MetadataValue(inner)
        case .dictionary(_, _, let entries):
            // A key of another type becomes its text: a number becomes decimal digits.
            let pairs = entries.map { (MetadataValue($0.key).keyText, MetadataValue($0.value)) }
            self = .dictionary(Dictionary(pairs, uniquingKeysWith: { $1 }))
        }
    }

    private var keyText: String {
        switch self {
        case .bool(let value): "\(value)"
        case .integer(let number): "\(number)"
        case .unsigned(let number): "\(number)"
        case .double(let number): "\(number)"
        case .string(let text): text
        case .array, .dictionary: ""  // D-Bus allows no such key
        }
    }

    var variant: Variant {
        switch self {
        case .bool(let value): .bool(value)
        case .integer(let number): .int64(number)
        case .unsigned(let number): .uint64(number)
        case .double(let number): .double(number)
        case .string(let text): .string(text)
        case .dictionary(let values): .dictionary(values.mapValues(\.variant))
        case .array(let values): Self.list(of: values)
        }
    }

    private static func list(of values: [MetadataValue]) -> Variant {
        let texts = values.compactMap(\.string)
        if texts.count == values.count { return .strings(texts) }
        return .array(of: "v", values.map { Variant.variant($0.variant) })
    }
}
