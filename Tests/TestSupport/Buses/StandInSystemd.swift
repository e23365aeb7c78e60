public import DBus
public import EventLoop
internal import Glibc

/// The systemd of a session, as far as it starts programs as transient units and reports their ends. The programs are real.
@BusActor public final class StandInSystemd: Sendable {
    public nonisolated static let name = "org.freedesktop.systemd1"
    private static let path = "/org/freedesktop/systemd1"
    private static let manager = "org.freedesktop.systemd1.Manager"
    private typealias Property = Structure<String, Variant>
    private static let face = Face<StandInSystemd>(
        manager, xml: { "" },
        methods: [
            Row(MethodOf(manager, "Subscribe")) { systemd, _, reply in
                systemd.isSubscribed = true
                reply()
            },
            Row(
                MethodOf(
                    manager, "StartTransientUnit", in: String.self, String.self, [Property].self,
                    [Structure<String, [Property]>].self, out: ObjectPath.self)
            ) { systemd, terms, reply in
                guard !systemd.refuses else { throw DBusError("org.freedesktop.DBus.Error.InvalidArgs", "no") }
                var properties: [String: Variant] = [:]
                for property in terms.2 { properties[property.fields.0] = property.fields.1 }
                systemd.units.append((terms.0, properties))
                reply(ObjectPath("\(path)/job/\(systemd.units.count)"))
                systemd.run(terms.0, properties)
            },
            Row(MethodOf(manager, "GetUnitFileState", in: String.self, out: String.self)) { systemd, unit, reply in
                guard let state = systemd.unitFiles[unit] else {
                    throw DBusError("org.freedesktop.DBus.Error.FileNotFound", "No such file or directory")
                }
                reply(state)
            },
            Row(MethodOf(manager, "LoadUnit", in: String.self, out: ObjectPath.self)) { _, unit, reply in
                reply(ObjectPath("\(path)/unit/\(ObjectPath.escape(unit))"))
            },
        ], properties: [PropertyRow(PropertyOf(manager, "Environment", [String].self)) { $0.environment }])
    private static let unitFace = Face<StandInSystemd>(
        service, xml: { "" }, methods: [], properties: [PropertyRow(PropertyOf(service, "ExecStart", Commands.self)) { $0.commands }])
    private static let service = "org.freedesktop.systemd1.Service"

    private let connection: Connection
    private var isSubscribed = false
    /// The started units, in order.
    public private(set) var units: [(name: String, properties: [String: Variant])] = []
    public var refuses = false
    /// The variables that it starts units with, as NAME=VALUE.
    public var environment: [String] = []
    /// The states of unit files, by their names.
    public var unitFiles: [String: String] = [:]
    /// The command lines of every unit.
    public var commands = Commands([])

    public init(on address: String) throws {
        connection = try Connection.open(address: address)
        connection.export(Tree(self))
        guard try connection.requestName(Self.name) else { throw DBusError.failed("\(Self.name) has an owner") }
    }

    private func run(_ unit: String, _ properties: [String: Variant]) {
        guard case .array(_, let commands)? = properties["ExecStart"], case .structure(let parts)? = commands.first, parts.count == 3,
            let arguments = parts[1].strings
        else { return report(unit, "failed") }
        var environment: [String: String] = [:]
        for entry in properties["Environment"]?.strings ?? [] {
            let pair = entry.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            environment[pair[0]] = pair[1]
        }
        let (final, command) = (environment, arguments.map { Self.expanded($0) })
        // Its job has a number, and has not begun.
        report(unit, "inactive", job: 7)
        BusActor.spawn { [weak self] in
            let exit = await Child.run(command, environment: final)
            self?.report(unit, exit.status == 0 ? "inactive" : "failed")
        }
    }

    /// An argument as systemd passes it on (systemd.service(5), "Command lines"): `$$` is a dollar sign, and every other dollar sign begins
    /// the name of a variable. Here the value of a variable is "VALUE", and its name stays behind the value.
    private static func expanded(_ argument: String) -> String {
        var text = String.UnicodeScalarView()
        var rest = argument.unicodeScalars[...]
        while let scalar = rest.popFirst() {
            if scalar != "$" || rest.first == "$" { text.append(scalar) } else { text.append(contentsOf: "VALUE".unicodeScalars) }
            if scalar == "$", rest.first == "$" { rest.removeFirst() }
        }
        return String(text)
    }

    /// - Parameter job: the number of the unit's job; 0: none.
    private func report(_ unit: String, _ state: String, job: UInt32 = 0) {
        guard isSubscribed else { return }
        let path = ObjectPath("\(Self.path)/unit/\(ObjectPath.escape(unit))")
        let changed: [String: Variant] = [
            "ActiveState": .string(state), "Job": .structure([.uint32(job), .objectPath(ObjectPath("/"))]),
        ]
        connection.send(Standard.propertiesChanged.message(from: path, ("org.freedesktop.systemd1.Unit", changed, [])))
    }

    private final class Tree: ObjectTree {
        private weak var systemd: StandInSystemd?
        init(_ systemd: StandInSystemd) { self.systemd = systemd }
        func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? {
            if path.hasPrefix("\(StandInSystemd.path)/unit/") { return systemd.map { [StandInSystemd.unitFace.of($0)] } }
            return path == StandInSystemd.path ? systemd.map { [StandInSystemd.face.of($0)] } : nil
        }
        func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
    }
}

extension StandInSystemd {
    /// Command lines, as in the property `ExecStart` of a unit, which has more fields about the last run.
    public struct Commands: DBusBasic {
        private let lines: [Structure<String, [String]>]

        /// - Parameter lines: the program and its arguments, each.
        public init(_ lines: [[String]]) { self.lines = lines.map { Structure<String, [String]>($0.first ?? "", $0) } }

        public static var signature: String { [Structure<String, [String]>].signature }
        public func write(to writer: inout Writer) { lines.write(to: &writer) }
        public init(from reader: inout Reader) throws(DBusError) { lines = try [Structure<String, [String]>](from: &reader) }
        public init?(_ variant: Variant) { return nil }
        public var variant: Variant {
            .array(of: "(sas)", lines.map { .structure([.string($0.fields.0), .strings($0.fields.1)]) })
        }
    }
}
