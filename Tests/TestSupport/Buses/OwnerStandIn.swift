public import DBus
public import EventLoop

/// An application that owns its names, and is called about its downloads (`org.freedesktop.Application.ActivateAction`).
@BusActor public final class StandInOwner: ObjectTree {
    private static let face = Face<StandInOwner>(
        "org.freedesktop.Application", xml: { "" },
        methods: [
            Row(
                MethodOf(
                    "org.freedesktop.Application", "ActivateAction", in: String.self, [Variant].self, [String: Variant].self)
            ) { owner, terms, reply in
                owner.take(terms.1)
                if owner.answers { reply() } else { owner.unanswered.append(reply) }
            }
        ])

    private let connection: Connection
    private let paths: Set<String>
    private var answers = true
    private var unanswered: [DBus.Reply<Void>] = []
    /// The calls so far, as "object path, outcome", in order.
    public private(set) var told: [String] = []

    /// - Parameter names: bus names of characters that an object path allows.
    public init(on address: String, _ names: [String]) throws {
        paths = Set(names.map { "/" + $0.split(separator: ".").joined(separator: "/") })
        connection = try Connection.open(address: address)
        connection.export(self)
        for name in names {
            guard try connection.requestName(name) else { throw DBusError.failed("\(name) has an owner") }
        }
    }

    public convenience init(on address: String, _ name: String) throws { try self.init(on: address, [name]) }

    /// From now on, calls are answered only when `release` is called.
    public func hold() { answers = false }

    /// Answers the held calls, and from now on each call at once.
    public func release() {
        answers = true
        for reply in unanswered { reply() }
        unanswered = []
    }

    private func take(_ parameters: [Variant]) {
        guard let first = parameters.first, case .structure(let parts) = first, parts.count == 4 else {
            return told.append("\(parameters)")
        }
        guard case .objectPath(let download) = parts[0] else { return told.append("\(parts)") }
        told.append("\(download) \(parts[1].string ?? "")")
    }

    public func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? { paths.contains(path) ? [Self.face.of(self)] : nil }
    public func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
}
