public import DBus
public import EventLoop

/// An application that owns its name, and is called about its downloads (`org.freedesktop.Application.ActivateAction`).
@BusActor public final class StandInOwner: ObjectTree {
    private static let face = Face<StandInOwner>(
        "org.freedesktop.Application", xml: { "" },
        methods: [
            Row(
                MethodOf(
                    "org.freedesktop.Application", "ActivateAction", in: String.self, [Variant].self, [String: Variant].self)
            ) { owner, terms, reply in
                owner.take(terms.1)
                reply()
            }
        ])

    private let connection: Connection
    private let path: String
    /// The calls so far, as "object path, outcome", in order.
    public private(set) var told: [String] = []

    /// - Parameter name: a bus name of characters that an object path allows.
    public init(on address: String, _ name: String) throws {
        path = "/" + name.split(separator: ".").joined(separator: "/")
        connection = try Connection.open(address: address)
        connection.export(self)
        guard try connection.requestName(name) else { throw DBusError.failed("\(name) has an owner") }
    }

    private func take(_ parameters: [Variant]) {
        guard let first = parameters.first, case .structure(let parts) = first, parts.count == 4 else {
            return told.append("\(parameters)")
        }
        guard case .objectPath(let download) = parts[0] else { return told.append("\(parts)") }
        told.append("\(download) \(parts[1].string ?? "")")
    }

    public func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? { path == self.path ? [Self.face.of(self)] : nil }
    public func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
}
