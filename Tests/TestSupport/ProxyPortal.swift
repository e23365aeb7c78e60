public import DBus
public import EventLoop

/// A desktop portal that knows of proxies (`org.freedesktop.portal.ProxyResolver`).
@BusActor public final class StandInProxyPortal: ObjectTree {
    private static let interface = "org.freedesktop.portal.ProxyResolver"
    private static let face = Face<StandInProxyPortal>(
        interface, xml: { "" },
        methods: [
            Row(MethodOf(interface, "Lookup", in: String.self, out: [String].self)) { portal, url, reply in
                portal.asked.append(url)
                guard let answer = portal.answer(url) else { throw DBusError.failed("the proxy script cannot be fetched") }
                reply(answer)
            }
        ])

    private let connection: Connection
    public private(set) var asked: [String] = []
    /// nil: an error.
    private let answer: @BusActor (String) -> [String]?

    public init(on address: String, answer: @escaping @BusActor (String) -> [String]?) throws {
        self.answer = answer
        connection = try Connection.open(address: address)
        connection.export(self)
        guard try connection.requestName("org.freedesktop.portal.Desktop") else { throw DBusError.failed("the portal's name has an owner") }
    }

    public func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? {
        path == "/org/freedesktop/portal/desktop" ? [Self.face.of(self)] : nil
    }
    public func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
}
