internal import CDBus
internal import Glibc
internal import Synchronization

/// A Swift type with one D-Bus type. The signature is static, so a method's Swift types declare its wire types.
public protocol DBusValue: Sendable {
    static var signature: String { get }
    func write(to writer: inout Writer)
    init(from reader: inout Reader) throws(DBusError)
}

extension DBusValue {
    /// Writes the value inside a variant.
    func writeAsVariant(to writer: inout Writer) { writer.container(Int(kVariant), Self.signature) { write(to: &$0) } }
}

/// Appends values to a message.
public struct Writer: ~Copyable {
    /// Most bytes of one message. The bus disconnects the sender of an array of more than 64 MiB (D-Bus specification, "Container types"),
    /// and libdbus does not check what it sends.
    static let mostBytes = 64 << 20
    /// Most nesting of containers, also over variants. The bus disconnects the sender of more.
    static let mostLevels = 64

    private var iterator = DBusMessageIter()
    private var level = 0
    /// The bytes of the values on the wire, with the most padding that each value, except a byte, may need. So they may be too many.
    private(set) var bytes = 0

    private var isTooDeep = false
    /// Whether a text has been cut at a NUL.
    private(set) var isCut = false
    /// Whether libdbus could not duplicate a descriptor. Either the descriptor is not open, or the process has too many open files.
    private var lacksDescriptor = false

    /// Why the message must not be sent; nil: it may be.
    ///
    /// - Parameters:
    ///   - message: names the message.
    ///   - advice: says what to do about a message that is too long.
    func fault(of message: @autoclosure () -> String, advice: String) -> DBusError? {
        if bytes > Self.mostBytes { return .tooLong(message(), advice: advice) }
        if isTooDeep { return .tooDeep(message()) }
        if lacksDescriptor { return .noDescriptor(message()) }
        return nil
    }

    init(appendingTo message: OpaquePointer) { dbus_message_iter_init_append(message, &iterator) }
    private init() {}

    mutating func basic<T: BitwiseCopyable>(_ type: Int, _ value: T) {
        bytes += type == Int(kByte) ? 1 : 8
        let isAppended = withUnsafePointer(to: value) { dbus_message_iter_append_basic(&iterator, Int32(type), $0) } != 0
        // While there is memory, only a descriptor can fail.
        if !isAppended { lacksDescriptor = true }
    }

    /// A string ends at its first NUL, which the wire format cannot hold.
    mutating func string(_ type: Int, _ value: String) {
        let count = value.utf8.count
        bytes += count
        value.withCString { text in
            if strlen(text) < count { isCut = true }
            basic(type, text)
        }
    }

    mutating func container(_ type: Int, _ signature: String?, _ body: (inout Writer) -> Void) {
        var inner = opened(type, signature)
        body(&inner)
        close(&inner)
    }

    /// A writer into a new container. Until `close`, nothing else may be written here.
    mutating func opened(_ type: Int, _ signature: String?) -> Writer {
        var inner = Writer()
        inner.level = level + 1
        if inner.level > Self.mostLevels { isTooDeep = true }
        bytes += 8 + (signature?.utf8.count ?? 0)
        if let signature {
            // `withCString` lends the text; passed as it is, it would be copied.
            _ = signature.withCString { dbus_message_iter_open_container(&iterator, Int32(type), $0, &inner.iterator) }
        } else {
            dbus_message_iter_open_container(&iterator, Int32(type), nil, &inner.iterator)
        }
        return inner
    }

    mutating func close(_ inner: inout Writer) {
        bytes += inner.bytes
        isTooDeep = isTooDeep || inner.isTooDeep
        isCut = isCut || inner.isCut
        lacksDescriptor = lacksDescriptor || inner.lacksDescriptor
        dbus_message_iter_close_container(&iterator, &inner.iterator)
    }
}

/// Reads values from a message. Its limits keep the memory in proportion to the message, and keep the values small enough to be sent again.
public struct Reader: ~Copyable {
    /// Most nesting of containers. The bus allows 64 and disconnects a sender of more; we send received values again inside containers of
    /// our own.
    static let mostLevels = 32
    /// Most strings, variant values and other elements of arrays in one message. One byte on the wire may take some 50 bytes here, and
    /// some calls of libdbus.
    /// An option of 1 MiB of bytes is in a variant.
    static let mostValues = 1_100_000

    private var iterator = DBusMessageIter()
    private var level = 0
    private var values = 0

    /// The `type` after the last value.
    static let end = Int(kInvalid)

    init(reading message: OpaquePointer) { dbus_message_iter_init(message, &iterator) }
    private init() {}

    var type: Int { mutating get { Int(dbus_message_iter_get_arg_type(&iterator)) } }
    var elementType: Int { mutating get { Int(dbus_message_iter_get_element_type(&iterator)) } }

    /// The signature of the next value.
    var nextSignature: String {
        mutating get {
            guard let text = dbus_message_iter_get_signature(&iterator) else { return "" }
            defer { dbus_free(text) }
            return String(cString: text)
        }
    }

    mutating func skip() { dbus_message_iter_next(&iterator) }

    /// A reader for the elements of the next array. This reader's position does not change.
    mutating func elements() throws(DBusError) -> Reader {
        guard type == Int(kArray) else { throw .invalidArgs("a value has the wrong type") }
        var inner = Reader()
        inner.level = level + 1
        dbus_message_iter_recurse(&iterator, &inner.iterator)
        return inner
    }

    mutating func basic<T: BitwiseCopyable>(_ type: Int, zero: T) throws(DBusError) -> T {
        guard self.type == type else { throw .invalidArgs("a value has the wrong type") }
        var value = zero
        dbus_message_iter_get_basic(&iterator, &value)
        dbus_message_iter_next(&iterator)
        return value
    }

    /// Counts a value that takes more memory or time here than on the wire.
    mutating func count() throws(DBusError) {
        values += 1
        if values > Self.mostValues {
            throw .limitsExceeded("a message may hold at most \(Self.mostValues) strings, values in variants and elements of arrays")
        }
    }

    /// Reads the next element of an array. The element counts once, unless values in it have been counted.
    fileprivate mutating func element<Element: DBusValue>() throws(DBusError) -> Element {
        let before = values
        let element = try Element(from: &self)
        if values == before { try count() }
        return element
    }

    mutating func string(_ type: Int) throws(DBusError) -> String {
        guard self.type == type else { throw .invalidArgs("a value has the wrong type") }
        try count()
        var pointer: UnsafePointer<CChar>?
        dbus_message_iter_get_basic(&iterator, &pointer)
        defer { dbus_message_iter_next(&iterator) }
        return pointer.map { String(cString: $0) } ?? ""
    }

    /// Reads the next container with `body`, then moves past it.
    mutating func container<R>(_ type: Int, _ body: (inout Reader) throws(DBusError) -> R) throws(DBusError) -> R {
        guard self.type == type else { throw .invalidArgs("a value has the wrong type") }
        guard level < Self.mostLevels else { throw .limitsExceeded("values may be nested at most \(Self.mostLevels) deep") }
        var inner = Reader()
        inner.level = level + 1
        inner.values = values
        dbus_message_iter_recurse(&iterator, &inner.iterator)
        let result = try body(&inner)
        values = inner.values
        dbus_message_iter_next(&iterator)
        return result
    }
}

extension UInt8: DBusValue {
    public static var signature: String { "y" }
    public func write(to writer: inout Writer) { writer.basic(Int(kByte), self) }
    public init(from reader: inout Reader) throws(DBusError) { self = try reader.basic(Int(kByte), zero: 0) }
}
extension Bool: DBusValue {
    public static var signature: String { "b" }
    public func write(to writer: inout Writer) { writer.basic(Int(kBool), dbus_bool_t(self ? 1 : 0)) }
    public init(from reader: inout Reader) throws(DBusError) { self = try reader.basic(Int(kBool), zero: dbus_bool_t(0)) != 0 }
}
extension Int16: DBusValue {
    public static var signature: String { "n" }
    public func write(to writer: inout Writer) { writer.basic(Int(kInt16), self) }
    public init(from reader: inout Reader) throws(DBusError) { self = try reader.basic(Int(kInt16), zero: 0) }
}
extension UInt16: DBusValue {
    public static var signature: String { "q" }
    public func write(to writer: inout Writer) { writer.basic(Int(kUInt16), self) }
    public init(from reader: inout Reader) throws(DBusError) { self = try reader.basic(Int(kUInt16), zero: 0) }
}
extension Int32: DBusValue {
    public static var signature: String { "i" }
    public func write(to writer: inout Writer) { writer.basic(Int(kInt32), self) }
    public init(from reader: inout Reader) throws(DBusError) { self = try reader.basic(Int(kInt32), zero: 0) }
}
extension UInt32: DBusValue {
    public static var signature: String { "u" }
    public func write(to writer: inout Writer) { writer.basic(Int(kUInt32), self) }
    public init(from reader: inout Reader) throws(DBusError) { self = try reader.basic(Int(kUInt32), zero: 0) }
}
extension Int64: DBusValue {
    public static var signature: String { "x" }
    public func write(to writer: inout Writer) { writer.basic(Int(kInt64), self) }
    public init(from reader: inout Reader) throws(DBusError) { self = try reader.basic(Int(kInt64), zero: 0) }
}
extension UInt64: DBusValue {
    public static var signature: String { "t" }
    public func write(to writer: inout Writer) { writer.basic(Int(kUInt64), self) }
    public init(from reader: inout Reader) throws(DBusError) { self = try reader.basic(Int(kUInt64), zero: 0) }
}
extension Double: DBusValue {
    public static var signature: String { "d" }
    public func write(to writer: inout Writer) { writer.basic(Int(kDouble), self) }
    public init(from reader: inout Reader) throws(DBusError) { self = try reader.basic(Int(kDouble), zero: 0) }
}
extension String: DBusValue {
    public static var signature: String { "s" }
    public func write(to writer: inout Writer) { writer.string(Int(kString), self) }
    public init(from reader: inout Reader) throws(DBusError) { self = try reader.string(Int(kString)) }
}
extension ObjectPath: DBusValue {
    public static var signature: String { "o" }
    public func write(to writer: inout Writer) { writer.string(Int(kPath), value) }
    public init(from reader: inout Reader) throws(DBusError) { self.init(try reader.string(Int(kPath))) }
}

extension Array: DBusValue where Element: DBusValue {
    public static var signature: String { "a" + Element.signature }
    public func write(to writer: inout Writer) {
        writer.container(Int(kArray), Element.signature) { inner in for element in self { element.write(to: &inner) } }
    }
    public init(from reader: inout Reader) throws(DBusError) {
        self = try reader.container(Int(kArray)) { (inner: inout Reader) throws(DBusError) -> [Element] in
            var result: [Element] = []
            while inner.type != Int(kInvalid) { result.append(try inner.element()) }
            return result
        }
    }
}

/// Entries are written in the order of their keys, so that other programs print the same text each time.
extension Dictionary: DBusValue where Key: DBusValue & Comparable, Value: DBusValue {
    public static var signature: String { "a{" + Key.signature + Value.signature + "}" }
    public func write(to writer: inout Writer) {
        writer.container(Int(kArray), "{" + Key.signature + Value.signature + "}") { inner in
            for key in keys.sorted() {
                inner.container(Int(kDictEntry), nil) { entry in
                    key.write(to: &entry)
                    self[key]?.write(to: &entry)
                }
            }
        }
    }
    /// Refuses a repeated key.
    public init(from reader: inout Reader) throws(DBusError) {
        self = try reader.container(Int(kArray)) { (inner: inout Reader) throws(DBusError) -> [Key: Value] in
            var result: [Key: Value] = [:]
            while inner.type != Int(kInvalid) {
                let (key, value) = try inner.container(Int(kDictEntry)) { (entry: inout Reader) throws(DBusError) -> (Key, Value) in
                    (try Key(from: &entry), try Value(from: &entry))
                }
                guard result.updateValue(value, forKey: key) == nil else { throw .invalidArgs("the key \(brief("\(key)")) is there twice") }
            }
            return result
        }
    }
}

/// A D-Bus structure, such as `(ssa{sv})`.
public struct Structure<each Field: DBusValue>: DBusValue {
    public let fields: (repeat each Field)
    public init(_ fields: repeat each Field) { self.fields = (repeat each fields) }

    public static var signature: String {
        var text = "("
        repeat text += (each Field).signature
        return text + ")"
    }
    public func write(to writer: inout Writer) {
        writer.container(Int(kStruct), nil) { inner in repeat (each fields).write(to: &inner) }
    }
    public init(from reader: inout Reader) throws(DBusError) {
        fields = try reader.container(Int(kStruct)) { (inner: inout Reader) throws(DBusError) -> (repeat each Field) in
            (repeat try (each Field)(from: &inner))
        }
    }
}

/// The descriptor of an open file (`h`). It is lent for sending, or received; a received one is closed with the last copy of this value,
/// unless it is taken.
public struct FileDescriptor: DBusValue {
    /// Valid while this value lives. After `take`, valid while its new owner keeps it open.
    public let number: Int32
    private let received: ReceivedDescriptor?

    /// Lends a descriptor. The caller still owns it.
    public init(_ number: Int32) { (self.number, received) = (number, nil) }

    /// Takes a received descriptor out of this value and its copies; the caller must close it. A lent descriptor still belongs to its
    /// lender.
    public consuming func take() -> Int32 {
        received?.giveUp()
        return number
    }

    public static var signature: String { "h" }
    /// libdbus sends a duplicate; the caller still owns the descriptor.
    public func write(to writer: inout Writer) { writer.basic(Int(kUnixFD), number) }
    /// Adopts libdbus' duplicate. The descriptor gets its owner before the next argument is read, so that an error there does not leak it.
    public init(from reader: inout Reader) throws(DBusError) {
        let number = try reader.basic(Int(kUnixFD), zero: Int32(-1))
        guard number >= 0 else { throw .limitsExceeded("the file descriptor of the message cannot be opened: there are too many") }
        (self.number, received) = (number, ReceivedDescriptor(number))
    }
}

/// Closes a received descriptor, unless it was taken.
private final class ReceivedDescriptor: Sendable {
    private let number: Int32
    private let isOurs = Atomic<Bool>(true)

    init(_ number: Int32) { self.number = number }

    func giveUp() { isOurs.store(false, ordering: .relaxed) }

    deinit { if isOurs.load(ordering: .relaxed) { close(number) } }
}
