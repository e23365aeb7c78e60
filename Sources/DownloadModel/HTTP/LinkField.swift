/// Reads the field `Link` (RFC 8288), as far as it names duplicates of the file (RFC 6249).
public enum LinkField {
    public struct Duplicate: Equatable, Sendable {
        /// A reference, relative to the URL of the response.
        public var reference: [UInt8]
        /// The lower, the better; from 1.
        public var priority: UInt32
    }

    /// The priority of a duplicate that states none (RFC 6249 §3.1).
    static let lowestPriority: UInt32 = 999_999

    /// The duplicates that `field` names, best first. A link that is malformed ends the reading; those before it count.
    ///
    /// A link with the parameter `anchor` is of another resource (RFC 8288 §3.2), and is left out. Of several parameters of one name, the
    /// first counts (§3). Takes time in proportion to the length of the field.
    public static func duplicates(in field: [UInt8]) -> [Duplicate] {
        var reader = Reader(rest: field[...])
        var found: [Duplicate] = []
        while let link = reader.link() {
            let relations = (link["rel"] ?? []).split(separator: 0x20).map { String(decoding: $0, as: UTF8.self).lowercased() }
            guard relations.contains("duplicate"), link["anchor"] == nil else { continue }
            let priority = link["pri"].flatMap { decimal($0, as: UInt32.self) }.flatMap { $0 > 0 ? $0 : nil }
            found.append(Duplicate(reference: reader.reference, priority: priority ?? lowestPriority))
        }
        // The sort keeps the order of equal priorities.
        return found.enumerated().sorted { ($0.element.priority, $0.offset) < ($1.element.priority, $1.offset) }.map(\.element)
    }

    private struct Reader {
        var rest: ArraySlice<UInt8>
        /// The reference of the last link.
        var reference: [UInt8] = []

        /// The parameters of the next link, by their names in lower case; nil: there is none, or it is malformed.
        mutating func link() -> [String: [UInt8]]? {
            // An empty element of the list is no error (RFC 9110 §5.6.1).
            while let byte = rest.first, byte.isBlank || byte == UInt8(ascii: ",") { rest.removeFirst() }
            guard take("<"), let end = rest.firstIndex(of: UInt8(ascii: ">")) else { return nil }
            reference = Array(rest[..<end])
            rest = rest[end...].dropFirst()
            var parameters: [String: [UInt8]] = [:]
            while true {
                skipBlanks()
                guard take(";") else { break }
                skipBlanks()
                let name = String(decoding: token(), as: UTF8.self).lowercased()
                skipBlanks()
                var value: [UInt8] = []
                if take("=") {
                    skipBlanks()
                    guard let given = take("\"") ? quoted() : Array(token()) else { return nil }
                    value = given
                }
                if !name.isEmpty, parameters[name] == nil { parameters[name] = value }
            }
            guard rest.isEmpty || rest.first == UInt8(ascii: ",") else { return nil }
            return parameters
        }

        private mutating func take(_ character: Unicode.Scalar) -> Bool {
            guard rest.first == UInt8(ascii: character) else { return false }
            rest.removeFirst()
            return true
        }

        private mutating func skipBlanks() { rest = rest.drop(while: \.isBlank) }

        private mutating func token() -> ArraySlice<UInt8> {
            let token = rest.prefix { !$0.isBlank && !";,=\"".utf8.contains($0) }
            rest = rest[token.endIndex...]
            return token
        }

        /// The rest of a quoted string (RFC 9110 §5.6.4); nil: it has no end.
        private mutating func quoted() -> [UInt8]? {
            var text: [UInt8] = []
            while var byte = rest.popFirst() {
                if byte == UInt8(ascii: "\"") { return text }
                if byte == UInt8(ascii: "\\") {
                    guard let escaped = rest.popFirst() else { return nil }
                    byte = escaped
                }
                text.append(byte)
            }
            return nil
        }
    }
}
