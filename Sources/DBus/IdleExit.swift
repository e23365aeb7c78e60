public import EventLoop

/// Ends an idle service that the bus starts on demand: some time after the last hold ended and the last call came.
@BusActor public final class IdleExit {
    /// Why the program ends.
    public enum Reason: Sendable, CustomStringConvertible {
        case idle
        /// Another process took the name while this one was exiting.
        case nameTaken
        /// The bus name could not be released. The program ends nevertheless.
        case nameNotReleased(DBusError)

        public var description: String {
            switch self {
            case .idle: "nothing to do"
            case .nameTaken: "another process took the bus name while this one was exiting"
            case .nameNotReleased(let error): "nothing to do, and the bus name could not be released: \(error.message)"
            }
        }
    }

    /// One reason for the service to keep running. Its owner says when the reason begins and ends.
    @BusActor public final class Hold {
        private weak var idleExit: IdleExit?

        fileprivate init(_ idleExit: IdleExit) { self.idleExit = idleExit }

        /// Whether the reason applies now.
        public var isHeld = false {
            didSet { if isHeld != oldValue { idleExit?.changed(by: isHeld ? 1 : -1) } }
        }
    }

    /// The time for the messages that came before the release of the name. If some are left after that time, the program does not exit.
    private static let lastMessages: Duration = .seconds(1)
    /// If the program is ended within this time after `regained`, systemd has probably ended it.
    private static let reactionTime: Duration = .seconds(30)

    private let connection: Connection
    private let name: String
    private let idle: Duration
    private var leave: ((Reason) -> Void)?
    /// The number of holds that are held.
    private var held = 0
    private var idleSince: ContinuousClock.Instant?
    private var timer: Poller.Token?
    /// When the released name was requested again, because a call had arrived meanwhile.
    private var regained: ContinuousClock.Instant?

    /// - Parameters:
    ///   - name: the name that the service owns.
    ///   - idle: the time without any hold or call after which the service exits.
    public init(connection: Connection, name: String, idle: Duration) { (self.connection, self.name, self.idle) = (connection, name, idle) }

    public func makeHold() -> Hold { Hold(self) }

    /// Allows the service to exit from now on.
    ///
    /// - Parameter leave: ends the program. The name has been released, and no call has arrived since, unless the release failed or another
    ///   service took the name.
    public func begin(leave: @escaping (Reason) -> Void) {
        self.leave = leave
        look()
    }

    private func changed(by step: Int) {
        held += step
        if leave != nil { look() }
    }

    private func look() {
        if held > 0 {
            idleSince = nil
            if let timer { Poller.shared.cancel(timer) }
            timer = nil
        } else if idleSince == nil {
            idleSince = .now
            arm()
        }
    }

    private func arm() {
        timer = Poller.shared.schedule(at: max(idleSince ?? .now, connection.lastCall) + idle) { [self] in
            timer = nil
            due()
        }
    }

    private func due() {
        guard held == 0 else { return look() }
        guard connection.lastCall + idle <= .now else { return arm() }
        regained = nil
        let before = connection.callsReceived
        do throws(DBusError) {
            try connection.releaseName(name)
            let areAllHandled = connection.dispatchArrived(for: Self.lastMessages)  // calls sent to us before the name was released
            guard areAllHandled, connection.callsReceived == before else {
                if try connection.requestName(name) {
                    (regained, idleSince) = (.now, nil)
                    return look()
                }
                leave?(.nameTaken)
                return
            }
        } catch {
            leave?(.nameNotReleased(error))
            return
        }
        leave?(.idle)
    }

    /// Has the bus start the next process if this one ends because its name had no owner for a moment. Call last, when all is saved.
    ///
    /// systemd ends a service of `Type=dbus` that releases its name (systemd.service(5)), even if the service requests the name again at
    /// once for a call that has just arrived. The service has answered this call, so no other call would start the work that it asks for.
    public func startSuccessor() {
        guard let regained, .now - regained < Self.reactionTime else { return }
        try? connection.releaseName(name)  // while the name has an owner, the bus starts nothing
        try? connection.tell(BusDaemon.startServiceByName, on: BusDaemon.name, at: BusDaemon.path, (name, 0))
    }
}
