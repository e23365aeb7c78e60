public import DBus
public import EventLoop

/// A desktop portal that looks up proxies (`org.freedesktop.portal.ProxyResolver`).
@BusActor public final class StandInProxyPortal: ObjectTree {
    private static let interface = "org.freedesktop.portal.ProxyResolver"
    private static let face = Face<StandInProxyPortal>(
        interface, xml: { "" },
        methods: [
            Row(MethodOf(interface, "Lookup", in: String.self, out: [String].self)) { portal, url, reply in
                portal.asked.append(url)
                guard !portal.hangs else { return portal.held.append(reply) }
                guard let answer = portal.answer(url) else { throw DBusError.failed("the proxy script cannot be fetched") }
                reply(answer)
            }
        ])

    private let connection: Connection
    private let hangs: Bool
    private var held: [Any] = []
    public private(set) var asked: [String] = []
    /// nil: an error.
    private let answer: @BusActor (String) -> [String]?

    /// - Parameter hangs: whether it never answers.
    public init(on address: String, hangs: Bool = false, answer: @escaping @BusActor (String) -> [String]?) throws {
        (self.answer, self.hangs) = (answer, hangs)
        connection = try Connection.open(address: address)
        connection.export(self)
        guard try connection.requestName("org.freedesktop.portal.Desktop") else { throw DBusError.failed("the portal's name has an owner") }
    }

    /// Releases the name.
    public func leave() throws { try connection.releaseName("org.freedesktop.portal.Desktop") }

    public func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? {
        path == "/org/freedesktop/portal/desktop" ? [Self.face.of(self)] : nil
    }
    public func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
}
