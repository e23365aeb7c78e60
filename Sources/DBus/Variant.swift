internal import CDBus

/// A value of any D-Bus type, the content of a variant `v`. It keeps every type that a caller may send, so that the value can be returned
/// unchanged.
public indirect enum Variant: Hashable, Sendable {
    case byte(UInt8)
    case bool(Bool)
    case int16(Int16)
    case uint16(UInt16)
    case int32(Int32)
    case uint32(UInt32)
    case int64(Int64)
    case uint64(UInt64)
    case double(Double)
    case string(String)
    case objectPath(ObjectPath)
    case signature(String)
    /// The elements have the type `of`, a complete signature.
    case array(of: String, [Variant])
    case dictionary(key: String, value: String, [Entry])
    case structure([Variant])
    case variant(Variant)

    public struct Entry: Hashable, Sendable {
        public let key: Variant
        public let value: Variant
        public init(key: Variant, value: Variant) { (self.key, self.value) = (key, value) }
    }

    /// Like `==`, but strings are the same only if their bytes are. `==` takes canonically equivalent strings for the same.
    public func isSameBytes(as other: Variant) -> Bool {
        if case .string(let own) = self, case .string(let other) = other { return own.utf8.elementsEqual(other.utf8) }
        return self == other
    }

    /// The signature of the content.
    public var type: String {
        switch self {
        case .byte: "y"
        case .bool: "b"
        case .int16: "n"
        case .uint16: "q"
        case .int32: "i"
        case .uint32: "u"
        case .int64: "x"
        case .uint64: "t"
        case .double: "d"
        case .string: "s"
        case .objectPath: "o"
        case .signature: "g"
        case .array(let element, _): "a" + element
        case .dictionary(let key, let value, _): "a{" + key + value + "}"
        case .structure(let fields): "(" + fields.map(\.type).joined() + ")"
        case .variant: "v"
        }
    }
}

extension Variant: DBusValue {
    public static var signature: String { "v" }

    public func write(to writer: inout Writer) {
        writer.container(Int(kVariant), type) { inner in writeContent(to: &inner) }
    }

    private func writeContent(to writer: inout Writer) {
        switch self {
        case .byte(let value): value.write(to: &writer)
        case .bool(let value): value.write(to: &writer)
        case .int16(let value): value.write(to: &writer)
        case .uint16(let value): value.write(to: &writer)
        case .int32(let value): value.write(to: &writer)
        case .uint32(let value): value.write(to: &writer)
        case .int64(let value): value.write(to: &writer)
        case .uint64(let value): value.write(to: &writer)
        case .double(let value): value.write(to: &writer)
        case .string(let value): value.write(to: &writer)
        case .objectPath(let value): value.write(to: &writer)
        case .signature(let value): writer.string(Int(kSignature), value)
        case .array(let element, let values):
            writer.container(Int(kArray), element) { inner in for value in values { value.writeContent(to: &inner) } }
        case .dictionary(let key, let value, let entries):
            writer.container(Int(kArray), "{" + key + value + "}") { inner in
                for entry in entries {
                    inner.container(Int(kDictEntry), nil) { pair in
                        entry.key.writeContent(to: &pair)
                        entry.value.writeContent(to: &pair)
                    }
                }
            }
        case .structure(let fields):
            writer.container(Int(kStruct), nil) { inner in for field in fields { field.writeContent(to: &inner) } }
        case .variant(let value): value.write(to: &writer)
        }
    }

    public init(from reader: inout Reader) throws(DBusError) {
        self = try reader.container(Int(kVariant)) { (inner: inout Reader) throws(DBusError) -> Variant in try Variant(content: &inner) }
    }

    /// Reads the next value of any type. `Reader` limits depth and number.
    private init(content reader: inout Reader) throws(DBusError) {
        try reader.count()
        switch Int32(reader.type) {
        case kByte: self = .byte(try UInt8(from: &reader))
        case kBool: self = .bool(try Bool(from: &reader))
        case kInt16: self = .int16(try Int16(from: &reader))
        case kUInt16: self = .uint16(try UInt16(from: &reader))
        case kInt32: self = .int32(try Int32(from: &reader))
        case kUInt32: self = .uint32(try UInt32(from: &reader))
        case kInt64: self = .int64(try Int64(from: &reader))
        case kUInt64: self = .uint64(try UInt64(from: &reader))
        case kDouble: self = .double(try Double(from: &reader))
        case kString: self = .string(try String(from: &reader))
        case kPath: self = .objectPath(try ObjectPath(from: &reader))
        case kSignature: self = .signature(try reader.string(Int(kSignature)))
        case kVariant: self = .variant(try Variant(from: &reader))
        case kStruct:
            self = .structure(
                try reader.container(Int(kStruct)) { (inner: inout Reader) throws(DBusError) -> [Variant] in
                    var fields: [Variant] = []
                    while inner.type != Int(kInvalid) { fields.append(try Variant(content: &inner)) }
                    return fields
                })
        case kArray:
            let signature = reader.nextSignature
            if reader.elementType == Int(kDictEntry) {
                let key = String(signature.dropFirst(2).prefix(1))
                let value = String(signature.dropFirst(3).dropLast())
                let entries = try reader.container(Int(kArray)) { (inner: inout Reader) throws(DBusError) -> [Entry] in
                    var entries: [Entry] = []
                    while inner.type != Int(kInvalid) {
                        entries.append(
                            try inner.container(Int(kDictEntry)) { (pair: inout Reader) throws(DBusError) -> Entry in
                                Entry(key: try Variant(content: &pair), value: try Variant(content: &pair))
                            })
                    }
                    return entries
                }
                self = .dictionary(key: key, value: value, entries)
            } else {
                let values = try reader.container(Int(kArray)) { (inner: inout Reader) throws(DBusError) -> [Variant] in
                    var values: [Variant] = []
                    while inner.type != Int(kInvalid) { values.append(try Variant(content: &inner)) }
                    return values
                }
                self = .array(of: String(signature.dropFirst()), values)
            }
        default: throw .invalidArgs("values of this type (file descriptors in a variant) are not accepted")
        }
    }
}

// Conversions between Swift values and variants.
extension Variant {
    public init(_ value: some DBusBasic) { self = value.variant }
    public static func strings(_ values: [String]) -> Variant { .array(of: "s", values.map { .string($0) }) }
    /// `a{sv}`
    public static func dictionary(_ values: [String: Variant]) -> Variant {
        .dictionary(key: "s", value: "v", values.sorted { $0.key < $1.key }.map { Entry(key: .string($0.key), value: .variant($0.value)) })
    }
    /// `a{ss}`
    public static func dictionary(_ values: [(String, String)]) -> Variant {
        .dictionary(key: "s", value: "s", values.map { Entry(key: .string($0.0), value: .string($0.1)) })
    }

    public var string: String? { if case .string(let value) = self { value } else { nil } }
    public var bool: Bool? { if case .bool(let value) = self { value } else { nil } }
    public var double: Double? { if case .double(let value) = self { value } else { nil } }
    public var objectPath: ObjectPath? { if case .objectPath(let value) = self { value } else { nil } }
    /// `as`
    public var strings: [String]? {
        guard case .array("s", let values) = self else { return nil }
        return values.compactMap(\.string)
    }
    /// `a{ss}`, in the sender's order.
    public var stringPairs: [(String, String)]? {
        guard case .dictionary("s", "s", let entries) = self else { return nil }
        return entries.compactMap { entry in entry.key.string.flatMap { key in entry.value.string.map { (key, $0) } } }
    }
    /// `a{sv}`
    public var vardict: [String: Variant]? {
        guard case .dictionary("s", "v", let entries) = self else { return nil }
        var result: [String: Variant] = [:]
        for entry in entries { if case .string(let key) = entry.key, case .variant(let value) = entry.value { result[key] = value } }
        return result
    }
}

/// The types with a variant case of their own; used to declare properties.
public protocol DBusBasic: DBusValue {
    var variant: Variant { get }
    init?(_ variant: Variant)
}
extension Bool: DBusBasic {
    public var variant: Variant { .bool(self) }
    public init?(_ variant: Variant) { if let value = variant.bool { self = value } else { return nil } }
}
extension Int32: DBusBasic {
    public var variant: Variant { .int32(self) }
    public init?(_ variant: Variant) { if let value = variant.int32 { self = value } else { return nil } }
}
extension UInt32: DBusBasic {
    public var variant: Variant { .uint32(self) }
    public init?(_ variant: Variant) { if let value = variant.uint32 { self = value } else { return nil } }
}
extension Int64: DBusBasic {
    public var variant: Variant { .int64(self) }
    public init?(_ variant: Variant) { if let value = variant.int64 { self = value } else { return nil } }
}
extension UInt64: DBusBasic {
    public var variant: Variant { .uint64(self) }
    public init?(_ variant: Variant) { if let value = variant.uint64 { self = value } else { return nil } }
}
extension Double: DBusBasic {
    public var variant: Variant { .double(self) }
    public init?(_ variant: Variant) { if let value = variant.double { self = value } else { return nil } }
}
extension String: DBusBasic {
    public var variant: Variant { .string(self) }
    public init?(_ variant: Variant) { if let value = variant.string { self = value } else { return nil } }
}
extension ObjectPath: DBusBasic {
    public var variant: Variant { .objectPath(self) }
    public init?(_ variant: Variant) { if let value = variant.objectPath { self = value } else { return nil } }
}
extension [String]: DBusBasic {
    public var variant: Variant { .strings(self) }
    public init?(_ variant: Variant) { if let value = variant.strings { self = value } else { return nil } }
}
