/// An error as it travels on the bus: its name and one English sentence.
public struct DBusError: Error, Equatable, Sendable {
    public var name: String
    public var message: String
    public init(_ name: String, _ message: String) { (self.name, self.message) = (name, message) }

    public static func invalidArgs(_ message: String) -> DBusError { DBusError("org.freedesktop.DBus.Error.InvalidArgs", message) }
    public static func unknownMethod(_ message: String) -> DBusError { DBusError("org.freedesktop.DBus.Error.UnknownMethod", message) }
    public static func unknownObject(_ message: String) -> DBusError { DBusError("org.freedesktop.DBus.Error.UnknownObject", message) }
    public static func unknownInterface(_ message: String) -> DBusError {
        DBusError("org.freedesktop.DBus.Error.UnknownInterface", message)
    }
    public static func unknownProperty(_ message: String) -> DBusError { DBusError("org.freedesktop.DBus.Error.UnknownProperty", message) }
    public static func propertyReadOnly(_ message: String) -> DBusError {
        DBusError("org.freedesktop.DBus.Error.PropertyReadOnly", message)
    }
    public static func limitsExceeded(_ message: String) -> DBusError { DBusError("org.freedesktop.DBus.Error.LimitsExceeded", message) }
    static func tooLong(_ values: String, advice: String) -> DBusError {
        limitsExceeded("\(values) would be longer than \(Writer.mostBytes >> 20) MiB; \(advice)")
    }
    static func tooDeep(_ values: String) -> DBusError {
        limitsExceeded("\(values) would be nested more than \(Writer.mostLevels) deep")
    }
    static func noDescriptor(_ values: String) -> DBusError {
        limitsExceeded("a file descriptor of \(values) cannot be passed on: it is not open, or there are too many")
    }
    public static func failed(_ message: String) -> DBusError { DBusError("org.freedesktop.DBus.Error.Failed", message) }
    public static func disconnected(_ message: String) -> DBusError { DBusError("org.freedesktop.DBus.Error.Disconnected", message) }
}

extension DBusError {
    /// Whether nobody owns the name that was called, and the bus could start nobody for it.
    public var isNotThere: Bool {
        let bus = "org.freedesktop.DBus.Error."
        return name == bus + "ServiceUnknown" || name == bus + "NameHasNoOwner" || name.hasPrefix(bus + "Spawn.")
    }

    /// Most bytes of an error's text that we send. It leaves room for a path of 4 KiB, but not for a MiB that a caller sent.
    static let longest = 8 << 10

    /// This error, with its text cut to `longest`.
    var bounded: DBusError {
        guard message.utf8.count > Self.longest else { return self }
        return DBusError(name, String(decoding: message.utf8.prefix(Self.longest - 8), as: UTF8.self) + "…")
    }
}

/// A name or path for an error message, cut if it is too long. D-Bus names have at most 255 bytes, but a caller may send any text.
func brief(_ text: String) -> String {
    text.utf8.count <= 255 ? text : String(String.UnicodeScalarView(text.unicodeScalars.prefix(60))) + "…"
}

/// A D-Bus object path.
public struct ObjectPath: Hashable, Comparable, Sendable, CustomStringConvertible {
    public let value: String
    /// - Precondition: `value` is valid (D-Bus specification, "Valid Object Paths"); see `isValid`.
    public init(_ value: String) { self.value = value }
    public static func < (a: ObjectPath, b: ObjectPath) -> Bool { a.value < b.value }
    public var description: String { value }

    public static func isValid(_ text: String) -> Bool {
        let bytes = text.utf8  // bytes, because "/" followed by a combining mark is one character
        guard bytes.first == UInt8(ascii: "/") else { return false }
        if bytes.count == 1 { return true }
        return bytes.dropFirst().split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false).allSatisfy { element in
            !element.isEmpty && element.allSatisfy { isElementByte($0) }
        }
    }

    static func isElementByte(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
            UInt8(ascii: "_"):
            true
        default: false
        }
    }

    /// Escapes `text` as one element of a path, as sd-bus does. Bytes other than `[A-Za-z0-9]`, and a leading digit, become `_` and two
    /// hexadecimal digits; the empty string becomes `_`. Reversible.
    public static func escape(_ text: String) -> String {
        if text.isEmpty { return "_" }
        let (digits, underscore) = (Array("0123456789abcdef".utf8), UInt8(ascii: "_"))
        var result: [UInt8] = []
        result.reserveCapacity(text.utf8.count)
        for byte in text.utf8 {
            let isDigit = (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
            if isElementByte(byte), byte != underscore, !(result.isEmpty && isDigit) {
                result.append(byte)
            } else {
                result += [underscore, digits[Int(byte >> 4)], digits[Int(byte & 15)]]
            }
        }
        return String(decoding: result, as: UTF8.self)
    }

    /// The value of a digit as `escape` writes it.
    private static func nibble(_ digit: UInt8) -> UInt8? {
        "0123456789abcdef".utf8.enumerated().first { $0.element == digit }.map { UInt8(truncatingIfNeeded: $0.offset) }
    }

    /// Reverses `escape`; nil if `element` is not in its form.
    public static func unescape(_ element: some StringProtocol) -> String? {
        if element == "_" { return "" }
        var bytes: [UInt8] = []
        var rest = Array(element.utf8)[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "_") else {
                bytes.append(byte)
                continue
            }
            guard let high = rest.popFirst().flatMap(nibble), let low = rest.popFirst().flatMap(nibble) else { return nil }
            bytes.append(high << 4 | low)
        }
        return String(validating: bytes, as: UTF8.self)
    }
}
