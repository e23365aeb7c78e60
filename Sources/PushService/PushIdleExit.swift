internal import DBus
internal import EventLoop
internal import Logging
internal import PushInterface

/// Ends the idle program: some time after the last hold ended and the last call came.
@BusActor final class PushIdleExit {
    /// One reason to stay.
    @BusActor final class Hold {
        private weak var idleExit: PushIdleExit?

        fileprivate init(_ idleExit: PushIdleExit) { self.idleExit = idleExit }

        /// Whether the reason applies now.
        var isHeld = false {
            didSet { if isHeld != oldValue { idleExit?.changed(by: isHeld ? 1 : -1) } }
        }
    }

    private let connection: Connection
    private let idle: Duration
    private let log: Logger
    private var leave: (() -> Void)?
    private var held = 0
    private var idleSince: ContinuousClock.Instant?
    private var timer: Poller.Token?

    init(connection: Connection, idle: Duration, log: Logger) { (self.connection, self.idle, self.log) = (connection, idle, log) }

    func makeHold() -> Hold { Hold(self) }

    /// From now on the program may leave. When `leave` is called, the name has been released, and no call has arrived since.
    func begin(leave: @escaping () -> Void) {
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
        let before = connection.callsReceived
        do {
            try connection.releaseName(Push.busName)
            connection.dispatchArrived()  // calls sent to us before the name was released
            guard connection.callsReceived == before else {
                if try connection.requestName(Push.busName) {
                    idleSince = nil
                    return look()
                }
                log.notice("another todoku-push took the bus name while this one was exiting")
                return leave?() ?? ()
            }
        } catch { log.notice("the bus name could not be released", metadata: ["cause": "\(error.message)"]) }
        log.info("nothing to do: leaving")
        leave?()
    }
}
