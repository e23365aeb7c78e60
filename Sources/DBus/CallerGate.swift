public import EventLoop
internal import Glibc

/// The identity of a caller, as far as the service distinguishes callers.
public enum CallerIdentity: Hashable, Sendable {
    /// A program outside of any sandbox: it may do whatever the user may.
    case user
    /// A program in a sandbox. It speaks for the application with this id and for no other. `hasNetwork`: whether it may use the network
    /// itself.
    case app(String, hasNetwork: Bool = true)
}

/// The result of inspecting a connection's process.
public enum CallerFinding: Sendable {
    case known(CallerIdentity)
    /// The caller cannot be identified. Its held calls get this error, and its next call begins a new inspection.
    case refused(DBusError)
}

/// Identifies the program behind a connection before its first call is answered.
///
/// A connection is inspected once, by one call to the bus and one inspection on a thread of the gate's own pool. The result is kept until
/// the bus reports that the connection's unique name has left; a unique name is never reused. Calls that arrive meanwhile are held in
/// order. Calls of other connections do not wait. If a connection leaves before it is identified, its calls are dropped.
///
/// The held calls are bounded, because libdbus stops reading while 63 MiB of messages or 256 descriptors live. It would then not even read
/// the answer that the gate waits for. When the process has reached its limit of open files, a message with a further descriptor makes
/// libdbus close the connection to the bus.
@BusActor public final class CallerGate {
    /// Most held calls of one connection.
    public static let mostCalls = 10_000
    /// Most bytes of held calls over all connections. Each call counts `callOverhead` more than the size of its message.
    public static let mostBytes = 32 << 20
    private static let callOverhead = 1024
    /// Most descriptors that came with the held calls of all connections.
    public static let mostDescriptors = 128

    private struct Held {
        var calls: [PendingCall] = []
        var bytes = 0
        var descriptors = 0
    }

    private let inspect: @Sendable (ConnectionCredentials, Duration) -> CallerFinding
    private let limitError: (String) -> DBusError
    private var known: [String: CallerIdentity] = [:]
    private var held: [String: Held] = [:] { didSet { asks(isAsking) } }
    private let asks: (Bool) -> Void
    private var heldBytes = 0
    private var heldDescriptors = 0
    private weak var connection: Connection?
    /// Connections whose inspection has not returned, although it may be too late for their calls. Those that never begin are left out.
    private var inspected: Set<String> = []
    private let patience: Duration

    /// Whether calls are held.
    public var isAsking: Bool { !held.isEmpty }
    /// Connections that are known or being identified.
    public var connectionCount: Int { known.count + held.count }

    /// - Parameters:
    ///   - limitError: makes the error for a call beyond a bound, from a sentence that names the bound.
    ///   - patience: most time for the inspection of a process.
    ///   - asks: called with whether calls are held, each time this may have changed.
    ///   - inspect: identifies the caller from the bus's credentials, on a thread of `Pool.callers`. The duration is the time since boot
    ///     (`CLOCK_BOOTTIME`) at which the connection's first call arrived.
    public init(
        limitError: @escaping (String) -> DBusError, patience: Duration = .seconds(10), asks: @escaping (Bool) -> Void = { _ in },
        inspect: @escaping @Sendable (ConnectionCredentials, Duration) -> CallerFinding
    ) { (self.limitError, self.patience, self.asks, self.inspect) = (limitError, patience, asks, inspect) }

    func attach(to connection: Connection) { self.connection = connection }

    /// The identity of `sender`; nil while unknown (call `hold`).
    func identity(of sender: String) -> CallerIdentity? { known[sender] }

    /// Keeps `call` until its sender is known.
    func hold(_ call: PendingCall) {
        let sender = call.sender
        if held[sender] == nil {
            // The last inspection still hangs, and a further one would hang, too.
            guard !inspected.contains(sender) else { return call.fail(Self.notInTime) }
            held[sender] = Held()
            begin(sender)
        }
        let weight = call.message.weight
        let bytes = weight.bytes + Self.callOverhead
        guard held[sender]?.calls.count ?? 0 < Self.mostCalls else {
            return call.fail(limitError("At most \(Self.mostCalls) calls of one connection may wait until its caller is identified."))
        }
        guard heldBytes + bytes <= Self.mostBytes else {
            return call.fail(limitError("At most \(Self.mostBytes) bytes of calls may wait until their callers are identified; try again."))
        }
        guard heldDescriptors + weight.descriptors <= Self.mostDescriptors else {
            return call.fail(
                limitError("At most \(Self.mostDescriptors) descriptors may wait until their callers are identified; try again."))
        }
        held[sender]?.calls.append(call)
        held[sender]?.bytes += bytes
        held[sender]?.descriptors += weight.descriptors
        heldBytes += bytes
        heldDescriptors += weight.descriptors
    }

    private func begin(_ sender: String) {
        // Add the match rule before asking. Then a signal reports a sender that leaves in between, and an error reports a sender that left
        // earlier.
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
            // Before the inspection can begin: its thread could not say so in time on a busy machine.
            inspected.insert(sender)
            let outcome = await Pool.callers.outcome(within: patience, late: { [self] _ in inspected.remove(sender) }) { [inspect] in
                inspect(credentials, arrival)
            }
            if case .hangs = outcome {} else { inspected.remove(sender) }
            let finding: CallerFinding = if case .value(let finding) = outcome { finding } else { .refused(Self.notInTime) }
            settle(sender, finding)
        } catch  where error.name == "org.freedesktop.DBus.Error.NameHasNoOwner" {
            left(sender)
        } catch { settle(sender, .refused(error)) }
    }

    private static let notInTime = DBusError.failed("The caller’s process could not be inspected in time; try again.")

    private func settle(_ sender: String, _ finding: CallerFinding) {
        guard let entry = held.removeValue(forKey: sender) else { return }  // the sender has left
        release(entry)
        switch finding {
        case .known(let identity):
            known[sender] = identity
            connection?.answerSoon(entry.calls, from: identity)
        case .refused(let error):
            connection?.removeMatch(Self.rule(for: sender))
            for call in entry.calls { call.fail(error) }
        }
    }

    /// Handles the bus's signal that a name has lost its owner.
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
        release(entry)
        for call in entry.calls { call.giveUp() }
    }

    private func release(_ entry: Held) {
        heldBytes -= entry.bytes
        heldDescriptors -= entry.descriptors
    }

    private static func rule(for sender: String) -> MatchRule {
        var rule = MatchRule(sender: BusDaemon.name, interface: BusDaemon.name, member: BusDaemon.nameOwnerChanged.name)
        rule.argument0 = sender
        return rule
    }
}
