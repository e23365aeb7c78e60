internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import PushInterface
internal import PushModel
internal import WebPush

/// `org.unifiedpush.Connector1` and `org.unifiedpush.Connector2`: what the distributor calls.
///
/// The token proves who calls: only the distributor has it, and those before it. The distributor may itself be in a sandbox.
@BusActor final class ConnectorObject {
    private let link: DistributorLink
    private let deliveries: Deliveries

    init(link: DistributorLink, deliveries: Deliveries) { (self.link, self.deliveries) = (link, deliveries) }

    static let version1 = Face<ConnectorObject>(
        UnifiedPush.Version1.connector, xml: { UnifiedPush.Version1.connectorXML },
        methods: [
            Row(UnifiedPush.Version1.message) { object, arguments, reply in
                object.receive(arguments.0, arguments.1, version: 1, reply, ())
            },
            Row(UnifiedPush.Version1.newEndpoint) { object, arguments, reply in
                object.newEndpoint(arguments.0, arguments.1, version: 1, reply, ())
            },
            Row(UnifiedPush.Version1.unregistered) { object, token, reply in
                object.unregistered(token, reply, ())
            },
        ])

    static let version2 = Face<ConnectorObject>(
        UnifiedPush.Version2.connector, xml: { UnifiedPush.Version2.connectorXML },
        methods: [
            Row(UnifiedPush.Version2.message) { object, arguments, reply in
                let token = try text("token", in: arguments)
                let id = arguments["id"]?.string
                object.receive(token, try message(in: arguments), version: 2, reply, id.map { ["id": .string($0)] } ?? [:])
            },
            Row(UnifiedPush.Version2.newEndpoint) { object, arguments, reply in
                object.newEndpoint(try text("token", in: arguments), try text("endpoint", in: arguments), version: 2, reply, [:])
            },
            Row(UnifiedPush.Version2.unregistered) { object, arguments, reply in
                object.unregistered(try text("token", in: arguments), reply, [:])
            },
        ])

    private static func text(_ key: String, in arguments: [String: Variant]) throws(DBusError) -> String {
        guard let text = arguments[key]?.string else { throw .invalidArgs("the argument \(key) is missing, or not of the type s") }
        return text
    }

    /// The bytes of a message. In a string, which cannot hold every byte, they are base64url.
    private static func message(in arguments: [String: Variant]) throws(DBusError) -> [UInt8] {
        switch arguments["message"] {
        case .array("y", let values)?:
            return values.compactMap { if case .byte(let byte) = $0 { byte } else { nil } }
        case .string(let text)?:
            // Bytes that are no base64url are refused as what they are: no encrypted message.
            return Base64URL.decode(text.utf8.prefix(3 * PushMessage.mostBytes)) ?? Array(text.utf8.prefix(PushMessage.mostBytes + 1))
        default: throw .invalidArgs("the argument message is missing, or of neither the type ay nor s")
        }
    }

    private func newEndpoint<Out: Sendable>(_ token: String, _ endpoint: String, version: UInt32, _ reply: Reply<Out>, _ answer: Out) {
        BusActor.spawn { [self] in
            do throws(Refusal) {
                try await link.newEndpoint(token, endpoint, version: version, by: reply.call.sender)
                reply(answer)
            } catch { reply.fail(error) }
        }
    }

    private func unregistered<Out: Sendable>(_ token: String, _ reply: Reply<Out>, _ answer: Out) {
        BusActor.spawn { [self] in
            await link.unregistered(token, by: reply.call.sender)
            reply(answer)
        }
    }

    private func receive<Out: Sendable>(_ token: String, _ bytes: [UInt8], version: UInt32, _ reply: Reply<Out>, _ answer: Out) {
        BusActor.spawn { [self] in
            do throws(Refusal) {
                try await deliveries.receive(token, bytes, version: version)
                reply(answer)
            } catch { reply.fail(error) }
        }
    }
}

/// The object tree: `org.todoku.Push1`, the connector, and the nodes between.
@BusActor final class PushTree: ObjectTree {
    private let faces: [String: [BoundFace]]

    init(_ push: PushObject, _ connector: ConnectorObject) {
        faces = [
            Push.path.value: [PushObject.face.of(push)],
            UnifiedPush.connectorPath.value: [ConnectorObject.version1.of(connector), ConnectorObject.version2.of(connector)],
        ]
    }

    func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? { faces[path] }

    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] {
        let prefix = path == "/" ? "/" : path + "/"
        let names = faces.keys.filter { $0.hasPrefix(prefix) }.map { String($0.dropFirst(prefix.utf8.count).prefix { $0 != "/" }) }
        return Array(Set(names).sorted().prefix(limit))
    }
}
