internal import DBus

extension Tape {
    /// A value of any type that the wire can carry, at most `levels` deep.
    mutating func variant(levels: Int = 5) -> Variant {
        let signature = type(levels: levels)
        // A signature has at most 255 bytes on the wire.
        return value(of: signature.utf8.count < 200 ? signature : "s")
    }

    /// A complete type.
    mutating func type(levels: Int) -> String {
        let basic = Array("sbutixdynqog")
        switch choice(levels > 0 ? 20 : 12) {
        case let index where index < 12: return String(basic[index])
        case 12, 13: return "a" + type(levels: levels - 1)
        case 14: return "a{s" + type(levels: levels - 1) + "}"
        case 15: return "a{" + String(basic[choice(12)]) + type(levels: levels - 1) + "}"
        case 16: return "(" + (0...choice(4)).map { _ in type(levels: levels - 1) }.joined() + ")"
        case 17: return "a{ss}"
        case 18: return "a{sv}"
        default: return "v"
        }
    }

    /// A value of the type `signature`.
    mutating func value(of signature: String) -> Variant {
        var rest = Substring(signature)
        return value(&rest)
    }

    private mutating func value(_ rest: inout Substring) -> Variant {
        switch rest.removeFirst() {
        case "b": return .bool(flag())
        case "y": return .byte(byte())
        case "n": return .int16(number())
        case "q": return .uint16(number())
        case "i": return .int32(number())
        case "u": return .uint32(number())
        case "x": return .int64(number())
        case "t": return .uint64(number())
        case "d": return .double(Double(bitPattern: number()))
        case "o": return .objectPath(ObjectPath(flag() ? "/" : "/a/" + text().filter { $0.isASCII && ($0.isLetter || $0.isNumber) } + "_"))
        case "g": return .signature(type(levels: 2))
        case "v":
            // A value with more than 32 levels is refused, as it should be.
            guard variants < 6 else { return .variant(.byte(byte())) }
            variants += 1
            defer { variants -= 1 }
            return .variant(variant(levels: 2))
        case "(":
            var fields: [Variant] = []
            while rest.first != ")" { fields.append(value(&rest)) }
            rest.removeFirst()
            return .structure(fields)
        case "a":
            let element = Self.first(of: rest)
            rest = rest.dropFirst(element.count)
            let count = choice(5)
            guard element.hasPrefix("{") else { return .array(of: String(element), (0..<count).map { _ in value(of: String(element)) }) }
            let (key, content) = (String(element.dropFirst().prefix(1)), String(element.dropFirst(2).dropLast()))
            return .dictionary(
                key: key, value: content, (0..<count).map { _ in Variant.Entry(key: value(of: key), value: value(of: content)) })
        default: return .string(longText())
        }
    }

    /// The first complete type, or dictionary entry, in a signature.
    static func first(of signature: Substring) -> Substring {
        var depth = 0
        for index in signature.indices {
            switch signature[index] {
            case "(", "{": depth += 1
            case ")", "}": depth -= 1
            case "a": continue
            default: break
            }
            if depth == 0 { return signature[...index] }
        }
        return signature
    }
}
