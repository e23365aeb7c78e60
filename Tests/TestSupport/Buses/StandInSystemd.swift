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
            Row(MethodOf(manager, "ResetFailedUnit", in: String.self)) { systemd, unit, reply in
                systemd.reset.append(unit)
                reply()
            },
            Row(MethodOf(manager, "GetUnitFileState", in: String.self, out: String.self)) { systemd, unit, reply in
                guard let state = systemd.unitFiles[unit] else {
                    throw DBusError("org.freedesktop.DBus.Error.FileNotFound", "No such file or directory")
                }
                reply(state)
            },
        ])

    private let connection: Connection
    private var isSubscribed = false
    /// The started units, in order.
    public private(set) var units: [(name: String, properties: [String: Variant])] = []
    /// The failed units that were forgotten on request.
    public private(set) var reset: [String] = []
    public var refuses = false
    /// The states of unit files, by their names.
    public var unitFiles: [String: String] = [:]

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
        let final = environment
        BusActor.spawn { [weak self] in
            let exit = await Child.run(arguments, environment: final)
            self?.report(unit, exit.status == 0 ? "inactive" : "failed")
        }
    }

    private func report(_ unit: String, _ state: String) {
        guard isSubscribed else { return }
        let path = ObjectPath("\(Self.path)/unit/\(ObjectPath.escape(unit))")
        connection.send(
            Standard.propertiesChanged.message(from: path, ("org.freedesktop.systemd1.Unit", ["ActiveState": .string(state)], [])))
    }

    private final class Tree: ObjectTree {
        private weak var systemd: StandInSystemd?
        init(_ systemd: StandInSystemd) { self.systemd = systemd }
        func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? {
            path == StandInSystemd.path ? systemd.map { [StandInSystemd.face.of($0)] } : nil
        }
        func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
    }
}
