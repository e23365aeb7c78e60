internal import EventLoop
internal import Glibc
internal import TestSupport

@testable internal import DBus

/// The declarations of the service that these tests export and call.
enum Shelf {
    static let interface = "org.todoku.Shelf1"
    static let add = MethodOf(interface, "Add", in: UInt32.self, UInt32.self, out: UInt32.self)
    static let echo = MethodOf(interface, "Echo", in: Variant.self, out: Variant.self)
    static let echoAll = MethodOf(interface, "EchoAll", in: [String: Variant].self, out: [Structure<ObjectPath, [String: Variant]>].self)
    static let mix = MethodOf(
        interface, "Mix", in: [String].self, [String: String].self, Structure<Int32, Double>.self, ObjectPath.self, Bool.self,
        out: String.self, Int64.self)
    static let length = MethodOf(interface, "Length", in: String.self, out: UInt64.self)
    static let `repeat` = MethodOf(interface, "Repeat", in: String.self, UInt32.self, out: String.self)
    static let join = MethodOf(interface, "Join", in: [String].self, String.self, out: String.self)
    static let keep = MethodOf(interface, "Keep", in: Variant.self, out: String.self)
    static let answerKept = MethodOf(interface, "AnswerKept", out: UInt32.self)
    static let dropKept = MethodOf(interface, "DropKept", out: UInt32.self)
    static let drop = MethodOf(interface, "Drop")
    static let fail = MethodOf(interface, "Fail", in: String.self, String.self)
    static let touch = MethodOf(interface, "Touch", in: String.self)
    static let open = MethodOf(interface, "Open", in: String.self, out: FileDescriptor.self)
    static let closed = MethodOf(interface, "Closed", out: FileDescriptor.self)

    static let changed = SignalOf(interface, "Changed", String.self, UInt32.self)

    static let label = PropertyOf(interface, "Label", String.self, writable: true)
    static let count = PropertyOf(interface, "Count", UInt32.self)
    static let ratio = PropertyOf(interface, "Ratio", Double.self, change: .untold)
    static let tags = PropertyOf(interface, "Tags", [String].self, writable: true)

    static let xml = """
          <interface name="org.todoku.Shelf1">
            <method name="Add"><arg name="a" type="u" direction="in"/><arg name="b" type="u" direction="in"/><arg name="sum" type="u" direction="out"/></method>
            <method name="Echo"><arg name="value" type="v" direction="in"/><arg name="same" type="v" direction="out"/></method>
            <signal name="Changed"><arg name="what" type="s"/><arg name="times" type="u"/></signal>
            <property name="Label" type="s" access="readwrite"/>
            <property name="Count" type="u" access="read"/>
            <property name="Ratio" type="d" access="read"><annotation name="org.freedesktop.DBus.Property.EmitsChangedSignal" value="false"/></property>
            <property name="Tags" type="as" access="readwrite"/>
          </interface>
        """

    static let face = Face<ShelfObject>(
        interface, xml: { xml },
        methods: [
            Row(add) { object, terms, reply in
                object.calls.append("Add")
                reply(terms.0 &+ terms.1)
            },
            Row(echo) { object, value, reply in
                object.seen.append(value)
                reply(value)
            },
            Row(echoAll) { _, values, reply in reply([Structure(ObjectPath("/a"), values)]) },
            Row(mix) { _, arguments, reply in
                let (names, pairs, numbers, path, flag) = arguments
                let text = "\(names) \(pairs.sorted { $0.key < $1.key }.map { $0.key + $0.value }) \(numbers.fields) \(path) \(flag)"
                reply((text, -5))
            },
            Row(length) { _, text, reply in reply(UInt64(text.utf8.count)) },
            Row(`repeat`) { _, arguments, reply in reply(String(repeating: arguments.0, count: Int(arguments.1))) },
            Row(
                join,
                reading: { _, words, end, reply in
                    var text = "\(try words.count(upTo: 3)) "
                    text += try words.next() ?? ""
                    // Read the rest after the handler has returned, in other turns of the loop.
                    BusActor.spawn {
                        while let word = try? words.next() { text += word }
                        reply(text + end)
                    }
                }),
            Row(keep) { object, _, reply in object.kept.append(reply) },
            Row(answerKept) { object, _, reply in
                let kept = object.kept
                object.kept = []
                for other in kept { other("later") }
                reply(UInt32(kept.count))
            },
            Row(dropKept) { object, _, reply in
                let count = object.kept.count
                object.kept = []
                reply(UInt32(count))
            },
            Row(drop) { _, _, _ in },
            Row(fail) { _, error, _ in throw DBusError(error.0, error.1) },
            Row(touch) { object, text, reply in
                object.calls.append(text)
                object.touched?(text)
                reply()
            },
            Row(open) { _, path, reply in
                let descriptor = Glibc.open(path, O_RDONLY | O_CLOEXEC)
                guard descriptor >= 0 else { throw DBusError.failed("there is no file \(path)") }
                reply(FileDescriptor(descriptor))
                close(descriptor)
            },
            Row(closed) { _, _, reply in reply(FileDescriptor(-1)) },
        ],
        properties: [
            PropertyRow(label, { $0.label }) { object, value, reply in
                guard value != "forbidden" else { throw DBusError("org.todoku.Error.Forbidden", "not this one") }
                object.label = value
                reply()
            },
            PropertyRow(count) { $0.number },
            PropertyRow(ratio) { _ in 0.5 },
            PropertyRow(tags, { $0.tags }) { object, value, reply in
                object.tags = value
                reply()
            },
        ],
        signals: ["Changed": "su"])
}

@BusActor final class ShelfObject: Sendable {
    var label = "first"
    var number: UInt32 = 7
    var tags = ["a", "b"]
    var calls: [String] = []
    var seen: [Variant] = []
    var kept: [DBus.Reply<String>] = []
    var touched: ((String) -> Void)?
}

/// One object at /org/todoku/shelf/first, and nodes above it.
@BusActor final class ShelfTree: ObjectTree {
    nonisolated static let path = ObjectPath("/org/todoku/shelf/first")
    let object = ShelfObject()

    func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? { path == Self.path.value ? [Shelf.face.of(object)] : nil }

    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] {
        let prefix = path == "/" ? "/" : path + "/"
        guard Self.path.value.hasPrefix(prefix) else { return [] }
        return [String(Self.path.value.dropFirst(prefix.utf8.count).prefix { $0 != "/" })]
    }
}

/// A service under the name org.todoku.Shelf1 on a bus of its own, in this process, and clients that are foreign programs.
@BusActor final class TestService: Sendable {
    nonisolated static let name = "org.todoku.Shelf1"
    let bus: PrivateBus
    let connection: Connection
    let tree = ShelfTree()
    var object: ShelfObject { tree.object }

    init(holding: Bool = false) async throws {
        bus = await PrivateBus()
        connection = try Connection.open(address: bus.address)
        if holding { connection.hold() }
        guard try connection.requestName(Self.name) else { throw DBusError.failed("the name has an owner") }
        if !holding { connection.export(tree) }
    }

    /// A client of ours on a connection of its own.
    func client() throws -> Connection { try Connection.open(address: bus.address) }

    /// Runs busctl(1), which gives up after four minutes. Returns its output without the newline, or its error.
    func busctl(_ arguments: String...) async -> Child.Exit {
        await Child.run(["busctl", "--user", "--timeout=240", "--no-pager"] + arguments, environment: bus.environment)
    }

    /// `busctl call` on the object (or another), `arguments` from the interface on.
    func call(_ arguments: String..., at path: String = ShelfTree.path.value) async -> Child.Exit {
        await Child.run(
            ["busctl", "--user", "--timeout=240", "call", Self.name, path] + arguments, environment: bus.environment)
    }

    /// `gdbus call` on the object (or another).
    func gdbus(_ method: String, _ arguments: String..., at path: String = ShelfTree.path.value) async -> Child.Exit {
        await Child.run(
            ["gdbus", "call", "--session", "--timeout", "240", "--dest", Self.name, "--object-path", path, "--method", method] + arguments,
            environment: bus.environment)
    }
}

extension Connection {
    /// As the call with a timeout, for as long as a busy machine may need: the bus, and the loop on which all tests run, may pause.
    func call<In, Out>(
        _ method: MethodOf<In, Out>, on destination: String, at path: ObjectPath, _ arguments: In
    ) async throws(DBusError) -> Out {
        try await call(method, on: destination, at: path, arguments, timeout: .seconds(240))
    }
}

extension TestService {
    /// Makes the bus write a call to the connection `name`, which its owner must answer. Does not wait for the answer.
    func ping(_ name: String) throws {
        connection.send(Message.call(to: name, path: "/", interface: "a.b", member: "C"))
        try passOn()
    }

    /// Blocks until the bus has passed on all sent messages.
    func passOn() throws { _ = try connection.requestName("org.todoku.Barrier") }  // the bus answers in order
}
