import DBus
import DownloaderInterface
import EventLoop

/// A service in states that are hard to reach with the real one: hanging, or changing between two calls of a client.
@BusActor final class StandInService: Sendable {
    private static let face = Face<StandInService>(
        Manager.interface, xml: { "" },
        methods: [
            Row(Manager.describe) { service, arguments, reply in
                service.asked += 1
                if service.asked == service.hangs {
                    // The bus answers so for a program that does not answer in time.
                    throw DBusError("org.freedesktop.DBus.Error.NoReply", "it hangs")
                }
                let states = Set(arguments.0["states"]?.strings ?? [])
                let found = service.downloads.filter { states.contains($0.state) }
                let limit = Int(arguments.0["limit"]?.uint32 ?? 1000)
                reply(found.prefix(limit).map { Structure(ObjectPath($0.path), ["State": .string($0.state)]) })
                service.answered(states)
            }
        ],
        properties: [
            PropertyRow(Manager.active) { service in UInt32(service.downloads.count { $0.state == "active" }) },
            PropertyRow(Manager.remaining) { UInt32($0.downloads.count) },
            PropertyRow(Manager.language) { _ in "en" },
        ])

    private let connection: Connection
    var downloads: [(path: String, state: String)] = []
    /// Called after each answered `Describe` with the requested states.
    var answered: (Set<String>) -> Void = { _ in }
    private(set) var asked = 0
    /// The number of the `Describe` call that fails with NoReply; 0: none.
    var hangs = 0

    init(on address: String) throws {
        connection = try Connection.open(address: address)
        connection.export(Tree(self))
        guard try connection.requestName(BusName.service) else { throw DBusError.failed("\(BusName.service) has an owner") }
    }

    private final class Tree: ObjectTree {
        private weak var service: StandInService?
        init(_ service: StandInService) { self.service = service }
        func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? {
            path == BusName.managerPath.value ? service.map { [StandInService.face.of($0)] } : nil
        }
        func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
    }

    /// Signals that a count has changed.
    func tellChange() {
        connection.send(Standard.propertiesChanged.message(from: BusName.managerPath, (Manager.interface, [:], [])))
    }

    func tellEnd(_ path: String, _ state: String) {
        connection.send(Manager.downloadEnded.message(from: BusName.managerPath, (ObjectPath(path), state, "")))
    }

    func tellRemoval(_ path: String) {
        connection.send(Manager.downloadRemoved.message(from: BusName.managerPath, ObjectPath(path)))
    }
}
