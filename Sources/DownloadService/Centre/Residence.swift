internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Logging

/// When the service leaves by itself: a while after nothing keeps it.
@BusActor final class Residence {
    private let connection: Connection
    private let idle: Duration
    private let log: Logger
    private let isKept: () -> Bool
    private let leave: () -> Void
    private var idleSince: ContinuousClock.Instant?
    private var timer: Poller.Token?

    /// - Parameters:
    ///   - idle: how long nothing must keep the service before it leaves; calls count.
    ///   - leave: ends the program; the name has been released and nothing has come since.
    init(connection: Connection, idle: Duration, log: Logger, isKept: @escaping () -> Bool, leave: @escaping () -> Void) {
        (self.connection, self.idle, self.log, self.isKept, self.leave) = (connection, idle, log, isKept, leave)
    }

    /// Something that may have kept the service has begun or ended.
    func changed() {
        if isKept() {
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
        guard !isKept() else { return changed() }
        guard connection.lastCall + idle <= .now else { return arm() }
        let before = connection.callsReceived
        do {
            try connection.releaseName(BusName.service)
            connection.dispatchArrived()  // what was sent to us before the name was gone
            guard connection.callsReceived == before else {
                if try connection.requestName(BusName.service) {
                    idleSince = nil
                    return changed()
                }
                log.notice("another service took the name while this one was leaving")
                return leave()
            }
        } catch { log.notice("the name could not be released", metadata: ["cause": "\(error.message)"]) }
        log.info("nothing to do: leaving")
        leave()
    }
}
