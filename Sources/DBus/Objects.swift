internal import CDBus
public import EventLoop

/// An error that can answer a call.
public protocol DBusErrorConvertible: Error {
    var dbusError: DBusError { get }
}
extension DBusError: DBusErrorConvertible {
    public var dbusError: DBusError { self }
}

/// A call that has not been answered yet. It is answered exactly once: if it is dropped, it answers `NoReply` itself.
@BusActor public final class PendingCall {
    /// The message keeps its arguments while the handler runs.
    public private(set) var message: Message
    /// The caller; `.user` if the connection has no gate.
    public internal(set) var caller = CallerIdentity.user
    private let connection: Connection
    private(set) var isAnswered = false
    /// Whether the method may answer with this error name. Checked only in builds with assertions.
    var permits: ((String) -> Bool)?

    init(message: Message, connection: Connection) { (self.message, self.connection) = (message, connection) }

    isolated deinit {
        if !isAnswered { fail(DBusError("org.freedesktop.DBus.Error.NoReply", "the service dropped the call without an answer")) }
    }

    public var sender: String { message.sender }

    /// Drops the arguments of a call that is answered later. libdbus stops reading while 63 MiB of messages live, so unanswered calls must
    /// be small.
    func forgetArguments() { if !isAnswered, !message.signature.isEmpty { message = message.withoutArguments() } }

    /// Sends no answer, because the caller has left.
    func giveUp() { isAnswered = true }

    func succeed(_ write: (inout Writer) -> Void) { if let reply = take({ $0.reply(write) }) { connection.send(reply) } }

    func fail(_ error: DBusError) { if let reply = take(failing: error) { connection.send(reply) } }

    /// Sends `message`, which replies to this call.
    func send(_ message: Message) { if let message = take({ _ in message }) { connection.send(message) } }

    /// The error as a message to send later; nil if the caller wants none or the call has been answered.
    func take(failing error: DBusError) -> Message? {
        assert(permits?(error.name) ?? true, "\(message.interface).\(message.member) fails with \(error.name), which its XML does not name")
        return take { $0.reply(error) }
    }

    /// The answer as a message to send later; nil if the caller wants none or the call has been answered.
    func take(_ make: (Message) -> Message) -> Message? {
        guard !isAnswered else { return nil }
        isAnswered = true
        return message.wantsReply ? make(message) : nil
    }
}

/// The answer that a handler must give.
@BusActor public struct Reply<Out: Sendable> {
    public let call: PendingCall
    private let write: @Sendable (Out, inout Writer) -> Void

    init(_ call: PendingCall, _ write: @escaping @Sendable (Out, inout Writer) -> Void) { (self.call, self.write) = (call, write) }

    /// Answers now.
    public func callAsFunction(_ out: Out) { call.succeed { write(out, &$0) } }
    public func fail(_ error: any DBusErrorConvertible) { call.fail(error.dbusError) }

    /// The answer, to be sent later; nil if the caller wants none.
    public func message(_ out: Out) -> Message? { call.take { $0.reply { write(out, &$0) } } }
    public func message(failing error: any DBusErrorConvertible) -> Message? { call.take(failing: error.dbusError) }
}
extension Reply where Out == Void {
    public func callAsFunction() { self(()) }
    public func message() -> Message? { message(()) }

    /// This reply as a reply with a value. The answer is still sent without a value.
    public func withoutValue<Other>() -> Reply<Other> { Reply<Other>(call) { [write] _, writer in write((), &writer) } }
}

/// An answer that is one array or one dictionary, written element by element, so that other work may run in between.
///
/// `Element` of a dictionary is a pair of key and value.
@BusActor public final class LongAnswer<Element> {
    private let call: PendingCall
    private let message: Message
    private var whole: Writer
    private var array: Writer
    private var isOpen = true

    /// The bytes so far; at least as many as on the wire. The bus disconnects a sender of more than 64 MiB.
    public var bytes: Int { array.bytes }

    private init(_ call: PendingCall, _ signature: String) {
        self.call = call
        message = call.message.emptyReply()
        whole = Writer(appendingTo: message.raw)
        array = whole.opened(Int(kArray), signature)
    }

    public convenience init(_ reply: Reply<[Element]>) where Element: DBusValue { self.init(reply.call, Element.signature) }

    public convenience init<Key: DBusValue, Value: DBusValue>(_ reply: Reply<[Key: Value]>) where Element == (Key, Value) {
        self.init(reply.call, "{" + Key.signature + Value.signature + "}")
    }

    /// Appends an entry of a dictionary. The caller must not append a key twice.
    public func append<Key: DBusValue, Value: DBusValue>(_ key: Key, _ value: Value) where Element == (Key, Value) {
        append { array in
            array.container(Int(kDictEntry), nil) { entry in
                key.write(to: &entry)
                value.write(to: &entry)
            }
        }
    }

    /// Appends an element. Only `send` sends the answer. Without `send`, the call is answered like any dropped call.
    func append(_ write: (inout Writer) -> Void) { write(&array) }

    /// - Precondition: called once, at the end.
    public func send() {
        close()
        call.send(message)
    }

    /// The answer, to be sent later; nil if the caller wants none.
    ///
    /// - Precondition: called once, at the end.
    public func finished() -> Message? {
        close()
        return call.take { _ in message }
    }

    private func close() {
        isOpen = false
        whole.close(&array)
    }

    isolated deinit { if isOpen { whole.close(&array) } }
}

/// A method of an interface, and its handler.
public struct Row<Object: AnyObject & Sendable>: Sendable {
    let name: String
    let inSignature: String
    let outSignature: String
    let handle: @BusActor @Sendable (Object, PendingCall) throws -> Void

    /// - Parameter body: answers through its `Reply`, now or later, or throws an error, which is the answer.
    public init<In, Out>(_ method: MethodOf<In, Out>, _ body: @escaping @BusActor @Sendable (Object, In, Reply<Out>) throws -> Void) {
        (name, inSignature, outSignature) = (method.name, method.inSignature, method.outSignature)
        handle = { object, call in
            let arguments = try call.message.read(method.readIn)
            try body(object, arguments, Reply(call, method.writeOut))
        }
    }

    /// For a method whose first argument is an array that may be long: `body` may read the elements later.
    public init<Element: DBusValue, Rest: DBusValue, Out>(
        _ method: MethodOf<([Element], Rest), Out>,
        reading body: @escaping @BusActor @Sendable (Object, ArrayArgument<Element>, Rest, Reply<Out>) throws -> Void
    ) {
        (name, inSignature, outSignature) = (method.name, method.inSignature, method.outSignature)
        handle = { object, call in
            let elements = try ArrayArgument<Element>(firstOf: call.message)
            let rest = try call.message.read { (reader: inout Reader) throws(DBusError) -> Rest in
                reader.skip()
                return try Rest(from: &reader)
            }
            try body(object, elements, rest, Reply(call, method.writeOut))
        }
    }
}

/// An array argument whose elements are read one by one, also after the call's handler has returned.
///
/// The array keeps the whole message in memory. Because libdbus stops reading while 63 MiB of messages live, read all elements soon, then
/// release the array.
@BusActor public final class ArrayArgument<Element: DBusValue> {
    private let message: Message  // the reader points into it
    private var reader: Reader

    init(firstOf message: Message) throws(DBusError) {
        self.message = message
        reader = try message.read { (reader: inout Reader) throws(DBusError) -> Reader in try reader.elements() }
    }

    /// The number of elements, counted up to `most`.
    public func count(upTo most: Int) throws(DBusError) -> Int {
        var rest = try message.read { (reader: inout Reader) throws(DBusError) -> Reader in try reader.elements() }
        var count = 0
        while count < most, rest.type != Reader.end {
            rest.skip()
            count += 1
        }
        return count
    }

    /// The next element; nil after the last one.
    public func next() throws(DBusError) -> Element? { reader.type == Reader.end ? nil : try Element(from: &reader) }
}

/// A property of an interface, with its getter and setter.
public struct PropertyRow<Object: AnyObject & Sendable>: Sendable {
    public let name: String
    public let signature: String
    public let isTold: Bool
    let get: @BusActor @Sendable (Object) -> Variant
    /// Writes the value as a variant without making one.
    let write: @BusActor @Sendable (Object, inout Writer) -> Void
    let set: (@BusActor @Sendable (Object, Variant, Reply<Void>) throws -> Void)?

    public init<Value>(_ property: PropertyOf<Value>, _ get: @escaping @BusActor @Sendable (Object) -> Value) {
        (name, signature, isTold) = (property.name, property.signature, property.change == .told)
        self.get = { get($0).variant }
        write = { get($0).writeAsVariant(to: &$1) }
        set = nil
    }

    public init<Value>(
        _ property: PropertyOf<Value>, _ get: @escaping @BusActor @Sendable (Object) -> Value,
        set: @escaping @BusActor @Sendable (Object, Value, Reply<Void>) throws -> Void
    ) {
        (name, signature, isTold) = (property.name, property.signature, property.change == .told)
        self.get = { get($0).variant }
        write = { get($0).writeAsVariant(to: &$1) }
        self.set = { object, variant, reply in
            guard let value = Value(variant) else {
                throw DBusError.invalidArgs("\(property.name) \(variant.mismatch(with: property.signature))")
            }
            try set(object, value, reply)
        }
    }
}

extension PropertyRow {
    private init(
        _ row: PropertyRow<some AnyObject & Sendable>, get: @escaping @BusActor @Sendable (Object) -> Variant,
        write: @escaping @BusActor @Sendable (Object, inout Writer) -> Void
    ) {
        (name, signature, isTold, set) = (row.name, row.signature, row.isTold, nil)
        (self.get, self.write) = (get, write)
    }

    /// This row for an object that holds an `Object`. It cannot be set.
    public func of<Outer>(_ inner: @escaping @BusActor @Sendable (Outer) -> Object) -> PropertyRow<Outer> {
        PropertyRow<Outer>(self, get: { [get] in get(inner($0)) }, write: { [write] in write(inner($0), &$1) })
    }
}

/// An interface as a table: methods, properties, and its introspection data (an `<interface>` element).
public struct Face<Object: AnyObject & Sendable>: Sendable {
    public let interface: String
    /// Computed on demand.
    public let xml: @Sendable () -> String
    public let methods: [String: Row<Object>]
    public let properties: [PropertyRow<Object>]
    /// Properties whose changes are announced, in the order of `toldValues`.
    public let told: [PropertyRow<Object>]
    /// The properties in the order of `GetAll`: by name.
    let sorted: [PropertyRow<Object>]
    public let signals: [String: String]
    /// Whether a method (first name) may answer with an error (second name).
    let permits: @Sendable (String, String) -> Bool

    /// - Parameter permits: checked for each error answer to a method call, only in builds with assertions.
    public init(
        _ interface: String, xml: @escaping @Sendable () -> String, methods: [Row<Object>], properties: [PropertyRow<Object>] = [],
        signals: [String: String] = [:], permits: @escaping @Sendable (_ method: String, _ error: String) -> Bool = { _, _ in true }
    ) {
        (self.interface, self.xml, self.properties, self.signals) = (interface, xml, properties, signals)
        self.permits = permits
        sorted = properties.sorted { $0.name < $1.name }
        told = sorted.filter(\.isTold)
        self.methods = Dictionary(methods.map { ($0.name, $0) }) { first, _ in first }
    }

    /// This interface of `object`.
    public func of(_ object: Object) -> BoundFace { BoundFace(face: self, object: object) }

    /// Values of the properties that `wanted` selects; all by default.
    @BusActor public func values(of object: Object, _ wanted: (PropertyRow<Object>) -> Bool = { _ in true }) -> [String: Variant] {
        var values: [String: Variant] = [:]
        for property in properties where wanted(property) { values[property.name] = property.get(object) }
        return values
    }

    /// Writes the path of `object` and its properties in `rows`, in the order of `rows`.
    ///
    @BusActor public func describe(
        _ object: Object, at path: ObjectPath, _ rows: [PropertyRow<Object>],
        in answer: borrowing LongAnswer<Structure<ObjectPath, [String: Variant]>>
    ) {
        answer.append { array in
            array.container(Int(kStruct), nil) { structure in
                path.write(to: &structure)
                write(rows, of: object, to: &structure)
            }
        }
    }

    /// Writes the properties of `object` in `rows` as one `a{sv}`; only those in `names`, if given.
    ///
    /// It makes no dictionary: sorting one for each of 1,000 objects took more than half of the time. The rows are taken by index, because
    /// in generic code an iterator allocates memory for each element.
    @BusActor func write(_ rows: [PropertyRow<Object>], named names: Set<String>? = nil, of object: Object, to writer: inout Writer) {
        writer.container(Int(kArray), "{sv}") { values in
            for index in rows.indices {
                let row = rows[index]
                if let names, !names.contains(row.name) { continue }
                values.container(Int(kDictEntry), nil) { entry in
                    row.name.write(to: &entry)
                    row.write(object, &entry)
                }
            }
        }
    }

    /// The signal `PropertiesChanged`, with the present values of the announced properties in `names`.
    @BusActor public func changes(of object: Object, at path: ObjectPath, in names: Set<String>) -> Message {
        let signal = Standard.propertiesChanged
        return Message.signal(path: path.value, interface: signal.interface, member: signal.name) { writer in
            interface.write(to: &writer)
            write(told, named: names, of: object, to: &writer)
            [String]().write(to: &writer)
        }
    }

    /// Values of the properties whose changes are announced, without their names, for comparing.
    @BusActor public func toldValues(of object: Object) -> [Variant] {
        var values: [Variant] = []
        values.reserveCapacity(told.count)
        for index in told.indices { values.append(told[index].get(object)) }  // by index, as in `write`
        return values
    }

    /// Each method's name with its signatures, and each property's name with its signature. A test compares them with the XML.
    public var members: [String] {
        methods.values.map { "method \($0.name)(\($0.inSignature))->(\($0.outSignature))" }
            + properties.map {
                "property \($0.name) \($0.signature) \($0.set == nil ? "read" : "readwrite") \($0.isTold ? "true" : "false")"
            }
    }
}

/// An interface of one object.
public struct BoundFace {
    let interface: String
    let xml: @Sendable () -> String
    let invoke: @BusActor (String, PendingCall) throws -> Bool
    let get: @BusActor (String) -> Variant?
    let getAll: @BusActor () -> [String: Variant]
    /// Writes what `getAll` returns, in the same order.
    let writeAll: @BusActor (inout Writer) -> Void
    let set: @BusActor (String, Variant, Reply<Void>) throws -> Bool

    init<Object: AnyObject & Sendable>(face: Face<Object>, object: Object) {
        interface = face.interface
        xml = face.xml
        invoke = { member, call in
            guard let row = face.methods[member] else { return false }
            assert(
                {
                    call.permits = { face.permits(member, $0) }
                    return true
                }())
            guard call.message.signature == row.inSignature else {
                throw DBusError.invalidArgs("\(face.interface).\(member) takes (\(row.inSignature)), not (\(call.message.signature))")
            }
            try row.handle(object, call)
            return true
        }
        get = { name in face.properties.first { $0.name == name }?.get(object) }
        getAll = { face.values(of: object) }
        writeAll = { face.write(face.sorted, of: object, to: &$0) }
        set = { name, value, reply in
            guard let property = face.properties.first(where: { $0.name == name }) else { return false }
            guard let set = property.set else { throw DBusError.propertyReadOnly("\(name) cannot be set") }
            try set(object, value, reply)
            return true
        }
    }
}

/// The objects that a connection serves. An object that `caller` may not see does not exist for that caller.
@BusActor public protocol ObjectTree: AnyObject {
    /// The interfaces of the object at `path`; nil if there is no object.
    func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]?
    /// At most `limit` names one level below `path`.
    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String]
    /// Takes the answer to a call that reads properties of the object at `path`, to send it later.
    ///
    /// - Returns: false if the answer is to be sent now.
    func postpones(_ answer: Message, from path: String) -> Bool
}

extension ObjectTree {
    public func postpones(_ answer: Message, from path: String) -> Bool { false }
}

extension Connection {
    /// Most children that introspection lists.
    static let listedChildren = 1000

    func answer(_ call: PendingCall, from tree: any ObjectTree) {
        do {
            try route(call, in: tree)
        } catch let error as any DBusErrorConvertible {
            call.fail(error.dbusError)
        } catch {
            call.fail(.failed("\(error)"))
        }
    }

    /// The interface Peer is missing here, because libdbus answers it itself for every path.
    private func route(_ call: PendingCall, in tree: any ObjectTree) throws {
        let message = call.message
        let path = message.path
        let faces = tree.faces(at: path, for: call.caller)
        switch (message.interface, message.member) {
        case (Standard.introspectable, _), ("", "Introspect"):
            guard message.member == "Introspect" else {
                throw DBusError.unknownMethod("\(Standard.introspectable) has no method \(message.member)")
            }
            let children = tree.children(of: path, limit: Self.listedChildren, for: call.caller)
            guard faces != nil || !children.isEmpty else { throw DBusError.unknownObject("there is no object \(brief(path))") }
            try check(message, "Introspect", "")
            Reply(call, Standard.introspect.writeOut)(Standard.document(faces: faces, children: children))
        case (Standard.properties, let member):
            guard let faces else { throw DBusError.unknownObject("there is no object \(brief(path))") }
            try routeProperty(call, member, faces, in: tree)
        case (let interface, let member):
            guard let faces else {
                // An intermediate node exists, but has no interfaces of ours.
                if tree.children(of: path, limit: 1, for: call.caller).isEmpty {
                    throw DBusError.unknownObject("there is no object \(brief(path))")
                }
                throw DBusError.unknownInterface("\(brief(path)) has no interface \(interface.isEmpty ? "with \(member)" : interface)")
            }
            let candidates = interface.isEmpty ? faces : faces.filter { $0.interface == interface }
            if candidates.isEmpty { throw DBusError.unknownInterface("\(brief(path)) has no interface \(brief(interface))") }
            for face in candidates where try face.invoke(member, call) { return }
            throw DBusError.unknownMethod("\(interface.isEmpty ? brief(path) : interface) has no method \(member)")
        }
    }

    private func check(_ message: Message, _ member: String, _ signature: String) throws(DBusError) {
        guard message.signature == signature else { throw .invalidArgs("\(member) takes (\(signature)), not (\(message.signature))") }
    }

    private func routeProperty(_ call: PendingCall, _ member: String, _ faces: [BoundFace], in tree: any ObjectTree) throws {
        let message = call.message
        func answer(_ write: (inout Writer) -> Void) {
            guard let answer = call.take({ $0.reply(write) }), !tree.postpones(answer, from: message.path) else { return }
            send(answer)
        }
        func named(_ interface: String) throws(DBusError) -> [BoundFace] {
            if interface.isEmpty || Standard.all.contains(interface) { return interface.isEmpty ? faces : [] }
            let found = faces.filter { $0.interface == interface }
            if found.isEmpty { throw .unknownInterface("\(brief(message.path)) has no interface \(brief(interface))") }
            return found
        }
        switch member {
        case "Get":
            try check(message, member, "ss")
            let (interface, name) = try message.read(Standard.get.readIn)
            for face in try named(interface) {
                if let value = face.get(name) { return answer { Standard.get.writeOut(value, &$0) } }
            }
            throw DBusError.unknownProperty("\(brief(interface)) has no property \(brief(name))")
        case "GetAll":
            try check(message, member, "s")
            let interface = try message.read(Standard.getAll.readIn)
            let named = try named(interface)
            if named.count == 1 { return answer { named[0].writeAll(&$0) } }
            var values: [String: Variant] = [:]
            for face in named { values.merge(face.getAll()) { first, _ in first } }
            answer { Standard.getAll.writeOut(values, &$0) }
        case "Set":
            try check(message, member, "ssv")
            let (interface, name, value) = try message.read(Standard.set.readIn)
            for face in try named(interface) where try face.set(name, value, Reply(call, Standard.set.writeOut)) { return }
            throw DBusError.unknownProperty("\(brief(interface)) has no property \(brief(name))")
        default: throw DBusError.unknownMethod("\(Standard.properties) has no method \(member)")
        }
    }
}
