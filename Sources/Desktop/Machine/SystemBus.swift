internal import DBus
public import EventLoop

/// The system bus, connected while at least one member needs it. A missing or silent system bus is normal.
@BusActor public final class SystemBus {
    /// The longest wait for an answer of the bus. Nothing else waits for it.
    static let patience: Duration = .seconds(10)
    /// The delay before the first reconnection after a lost connection. The delay doubles after each failure, up to `longestRedial`.
    private static let redial: Duration = .seconds(5)
    private static let longestRedial: Duration = .seconds(300)

    /// Identifies one user of the bus.
    struct Member: Hashable { fileprivate let number: UInt64 }

    private let dial: @BusActor () async throws(DBusError) -> Connection
    private let redial: Duration
    private var members: [Member: @BusActor (Connection?) -> Void] = [:]
    /// The members that were told nothing yet.
    private var untold: Set<Member> = []
    private var next: UInt64 = 0
    private var connection: Connection?
    private var isDialling = false
    /// The delay before the next reconnection; nil: no connection was lost, so a failed attempt is not repeated.
    private var delay: Duration?
    private var timer: Poller.Token?

    public convenience init() {
        self.init { () throws(DBusError) in try await Connection.system(within: Self.patience) }
    }

    init(redial: Duration = SystemBus.redial, dial: @escaping @BusActor () async throws(DBusError) -> Connection) {
        (self.redial, self.dial) = (redial, dial)
    }

    /// Calls `told` with the connection once it is made, with nil if it fails or is lost, and again after a reconnection. The calls end
    /// with `leave`.
    func join(_ told: @escaping @BusActor (Connection?) -> Void) -> Member {
        next += 1
        let member = Member(number: next)
        members[member] = told
        if let connection {
            told(connection)
        } else {
            untold.insert(member)
            connect()
        }
        return member
    }

    func leave(_ member: Member) {
        members[member] = nil
        untold.remove(member)
        if members.isEmpty { (connection, delay) = (nil, nil) }  // releasing the last reference closes the connection
    }

    private func connect() {
        guard !isDialling else { return }
        isDialling = true
        BusActor.spawn { [self] in
            let found = try? await dial()
            isDialling = false
            guard !members.isEmpty else { return }
            guard let found else {
                // Every other member has been told already that the system bus cannot be reached.
                tell(nil, to: untold)
                return connectLater()
            }
            (connection, delay) = (found, nil)
            found.onDisconnect = { [weak self] in
                guard let self else { return }
                (connection, delay) = (nil, redial)
                tell(nil, to: Set(members.keys))
                connectLater()
            }
            tell(found, to: Set(members.keys))
        }
    }

    private func connectLater() {
        guard let delay, timer == nil else { return }
        self.delay = min(delay * 2, Self.longestRedial)
        timer = Poller.shared.schedule(after: delay) { [weak self] in
            guard let self else { return }
            timer = nil
            if !members.isEmpty, connection == nil { connect() }
        }
    }

    private func tell(_ connection: Connection?, to listeners: Set<Member>) {
        untold.subtract(listeners)
        for member in listeners.sorted(by: { $0.number < $1.number }) { members[member]?(connection) }
    }
}
