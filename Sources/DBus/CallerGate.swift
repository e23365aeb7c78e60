public import EventLoop
internal import Glibc

/// Who a call comes from, as far as callers are told apart.
public enum CallerIdentity: Hashable, Sendable {
    /// A program outside of any sandbox: it may do what the user may.
    case user
    /// A program in a sandbox, which speaks for the application of this id and for no other; and whether it may reach the network itself.
    case app(String, hasNetwork: Bool = true)
}

/// What a look at a connection's process came to.
public enum CallerFinding: Sendable {
    case known(CallerIdentity)
    /// It cannot be told: the calls at hand are answered with this error, and the next one asks anew.
    case refused(DBusError)
}

/// Finds out who is behind a connection before the first of its calls is answered.
///
/// A connection is asked about once, by one exchange with the bus and one look by threads of its own; what was found is kept until the bus
/// says that its unique name, which is never given again, has left. Calls that come meanwhile are held, in their order, and other
/// connections do not wait for them. Calls of one that leaves before it is known are dropped: who would be answerable for them is gone.
///
/// What is held is bounded: libdbus reads nothing more, not even the answer that is waited for, while 63 MiB of messages live.
@BusActor public final class CallerGate {
    /// Most calls of one connection that are held.
    public static let mostCalls = 10_000
    /// Most bytes of calls that are held for all connections together; each call counts `callOverhead` more than its message has.
    public static let mostBytes = 32 << 20
    private static let callOverhead = 1024
    /// For so long the look at a process is waited for.
    private static let patience: Duration = .seconds(10)

    private struct Held {
        var calls: [PendingCall] = []
        var bytes = 0
    }

    private let inspect: @Sendable (ConnectionCredentials, Duration) -> CallerFinding
    private let limitError: (String) -> DBusError
    private var known: [String: CallerIdentity] = [:]
    private var held: [String: Held] = [:] { didSet { asks(!held.isEmpty) } }
    private let asks: (Bool) -> Void
    private var heldBytes = 0
    private weak var connection: Connection?

    /// Connections that are known or asked about.
    public var connectionCount: Int { known.count + held.count }

    /// - Parameters:
    ///   - limitError: makes the error for a call beyond the bounds, of a sentence that says which.
    ///   - asks: told whether calls are held, each time when that may have changed.
    ///   - inspect: tells who it is, on a thread of `Pool.callers`, by what the bus says of the connection; the duration is the time since
    ///     boot
    ///     (`CLOCK_BOOTTIME`) at which its first call was there.
    public init(
        limitError: @escaping (String) -> DBusError, asks: @escaping (Bool) -> Void = { _ in },
        inspect: @escaping @Sendable (ConnectionCredentials, Duration) -> CallerFinding
    ) { (self.limitError, self.asks, self.inspect) = (limitError, asks, inspect) }

    func attach(to connection: Connection) { self.connection = connection }

    /// Who `sender` is; nil: not known yet, `hold` asks.
    func identity(of sender: String) -> CallerIdentity? { known[sender] }

    /// Keeps `call` until its sender is known.
    func hold(_ call: PendingCall) {
        let sender = call.sender
        if held[sender] == nil {
            held[sender] = Held()
            begin(sender)
        }
        let bytes = call.message.wireSize + Self.callOverhead
        guard held[sender]?.calls.count ?? 0 < Self.mostCalls else {
            return call.fail(limitError("At most \(Self.mostCalls) calls of a connection may wait until it is known who calls."))
        }
        guard heldBytes + bytes <= Self.mostBytes else {
            return call.fail(limitError("At most \(Self.mostBytes) bytes of calls may wait until it is known who calls; try again."))
        }
        held[sender]?.calls.append(call)
        held[sender]?.bytes += bytes
        heldBytes += bytes
    }

    private func begin(_ sender: String) {
        // The rule is with the bus before the question: one that leaves in between is told of, one that left before answers no question.
        connection?.addMatch(Self.rule(for: sender))
        var now = timespec()
        clock_gettime(CLOCK_BOOTTIME, &now)
        let arrival = Duration.seconds(now.tv_sec) + .nanoseconds(now.tv_nsec)
        BusActor.spawn { [weak self] in await self?.ask(sender, arrival) }
    }

    private func ask(_ sender: String, _ arrival: Duration) async {
        guard let connection else { return }
        do throws(DBusError) {
            let credentials = try await connection.call(BusDaemon.getConnectionCredentials, on: BusDaemon.name, at: BusDaemon.path, sender)
            guard held[sender] != nil else { return }
            let finding = await Pool.callers.value(within: Self.patience) { [inspect] in inspect(credentials, arrival) }
            settle(sender, finding ?? .refused(DBusError.failed("The caller’s process could not be looked at in time; try again.")))
        } catch  where error.name == "org.freedesktop.DBus.Error.NameHasNoOwner" {
            left(sender)
        } catch { settle(sender, .refused(error)) }
    }

    private func settle(_ sender: String, _ finding: CallerFinding) {
        guard let entry = held.removeValue(forKey: sender) else { return }  // it has left
        heldBytes -= entry.bytes
        switch finding {
        case .known(let identity):
            known[sender] = identity
            for call in entry.calls { connection?.answer(call, from: identity) }
        case .refused(let error):
            connection?.removeMatch(Self.rule(for: sender))
            for call in entry.calls { call.fail(error) }
        }
    }

    /// Takes the bus's signals that a name has another owner.
    func take(_ message: Message) {
        guard let (name, _, owner) = BusDaemon.nameOwnerChanged.read(message), owner.isEmpty else { return }
        left(name)
    }

    private func left(_ sender: String) {
        let wasKnown = known.removeValue(forKey: sender) != nil
        let entry = held.removeValue(forKey: sender)
        guard wasKnown || entry != nil else { return }
        connection?.removeMatch(Self.rule(for: sender))
        guard let entry else { return }
        heldBytes -= entry.bytes
        for call in entry.calls { call.giveUp() }
    }

    private static func rule(for sender: String) -> MatchRule {
        var rule = MatchRule(sender: BusDaemon.name, interface: BusDaemon.name, member: BusDaemon.nameOwnerChanged.name)
        rule.argument0 = sender
        return rule
    }
}
