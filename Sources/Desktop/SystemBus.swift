internal import DBus
public import EventLoop

/// The system bus, connected to as long as somebody needs it. That there is none, or that it does not answer, is normal.
@BusActor public final class SystemBus {
    /// For so long an answer of the bus is waited for. Nobody waits for it with anything else.
    static let patience: Duration = .seconds(10)
    /// So long after a bus has gone it is looked whether it is back, and then twice as long again and again, up to the longest.
    private static let redial: Duration = .seconds(5)
    private static let longestRedial: Duration = .seconds(300)

    /// Names somebody who needs it.
    struct Member: Hashable { fileprivate let number: UInt64 }

    private let dial: @BusActor () async throws(DBusError) -> Connection
    private let redial: Duration
    private var members: [Member: @BusActor (Connection?) -> Void] = [:]
    private var next: UInt64 = 0
    private var connection: Connection?
    private var isDialling = false

    public convenience init() {
        self.init { () throws(DBusError) in try await Connection.system(within: Self.patience) }
    }

    init(redial: Duration = SystemBus.redial, dial: @escaping @BusActor () async throws(DBusError) -> Connection) {
        (self.redial, self.dial) = (redial, dial)
    }

    /// Calls `told` with the connection, at once where there is one; with nil where there is no bus, and when it goes; and again when one
    /// that has gone is back. Until `leave`.
    func join(_ told: @escaping @BusActor (Connection?) -> Void) -> Member {
        next += 1
        let member = Member(number: next)
        members[member] = told
        if let connection { told(connection) } else { connect() }
        return member
    }

    func leave(_ member: Member) {
        members[member] = nil
        if members.isEmpty { connection = nil }  // with its last reference it is closed
    }

    /// - Parameter delay: one that has gone is waited for, and looked for again after so long.
    private func connect(againAfter delay: Duration? = nil) {
        guard !isDialling else { return }
        isDialling = true
        BusActor.spawn { [self] in
            let found = try? await dial()
            isDialling = false
            guard !members.isEmpty else { return }
            if found == nil, let delay { return connectLater(after: delay) }
            connection = found
            found?.onDisconnect = { [weak self] in
                guard let self else { return }
                connection = nil
                tell(nil)
                connectLater(after: redial)
            }
            tell(found)
        }
    }

    private func connectLater(after delay: Duration) {
        Poller.shared.schedule(after: delay) { [weak self] in
            guard let self, !members.isEmpty, connection == nil else { return }
            connect(againAfter: min(delay * 2, Self.longestRedial))
        }
    }

    private func tell(_ connection: Connection?) {
        for member in members.keys.sorted(by: { $0.number < $1.number }) { members[member]?(connection) }
    }
}
