/// The fields of an object, with errors that name them.
public struct JSONFields: Sendable {
    public let path: JSONPath
    private let members: [String: JSONValue]

    /// - Throws: if `value` is no object.
    public init(_ value: JSONValue, at path: JSONPath = JSONPath()) throws(JSONError) {
        guard case .object(let members) = value else { throw JSONError("\(path) is not an object") }
        (self.path, self.members) = (path, members)
    }

    /// All keys, in no order.
    public var keys: some Collection<String> { members.keys }

    /// nil: the field is absent. A field that is `null` is there.
    public subscript(_ key: String) -> JSONValue? { members[key] }

    /// Refuses fields that nobody reads.
    public func expectOnly(_ known: Set<String>) throws(JSONError) {
        if let other = members.keys.filter({ !known.contains($0) }).min() { throw JSONError("\(path[other]) is not known") }
    }

    public func string(_ key: String) throws(JSONError) -> String { try required(key, try optionalString(key)) }

    public func optionalString(_ key: String) throws(JSONError) -> String? {
        try field(key, "a text") { if case .string(let value) = $0 { value } else { nil } }
    }

    public func optionalBool(_ key: String) throws(JSONError) -> Bool? {
        try field(key, "true or false") { if case .bool(let value) = $0 { value } else { nil } }
    }

    public func integer(_ key: String, in bounds: ClosedRange<Int64>) throws(JSONError) -> Int64 {
        try required(key, try optionalInteger(key, in: bounds))
    }

    public func optionalInteger(_ key: String, in bounds: ClosedRange<Int64>) throws(JSONError) -> Int64? {
        try field(key, "a whole number from \(bounds.lowerBound) to \(bounds.upperBound)") {
            if case .integer(let value) = $0, bounds.contains(value) { value } else { nil }
        }
    }

    public func optionalArray(_ key: String) throws(JSONError) -> [JSONValue]? {
        try field(key, "a list") { if case .array(let value) = $0 { value } else { nil } }
    }

    private func field<Value>(_ key: String, _ kind: String, _ convert: (JSONValue) -> Value?) throws(JSONError) -> Value? {
        guard let value = members[key] else { return nil }
        guard let converted = convert(value) else { throw JSONError("\(path[key]) is not \(kind)") }
        return converted
    }

    private func required<Value>(_ key: String, _ value: Value?) throws(JSONError) -> Value {
        guard let value else { throw JSONError("\(path[key]) is missing") }
        return value
    }
}
