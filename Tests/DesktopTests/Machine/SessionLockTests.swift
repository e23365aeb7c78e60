internal import DBus
internal import EventLoop
internal import TestSupport
internal import Testing

@testable internal import Desktop

@Suite(.timeLimit(.minutes(10))) struct `A lock of the session against sleep` {
    @Test @BusActor func `is released if it is granted too late, and the next program is asked meanwhile`() async throws {
        let (machine, session) = (await PrivateBus(), await PrivateBus())
        let address = machine.address
        let logind = try StandInLogind(on: address)
        let portal = try StandInPortal(on: session.address)
        let manager = try StandInSessionManager(on: session.address)
        portal.isHanging = true
        let system = SystemBus(redial: .seconds(3600)) { () throws(DBusError) in try Connection.open(address: address) }
        let connection = try Connection.open(address: session.address)
        let awake = Awake(system: system, session: connection, patience: .milliseconds(1)) { _ in }
        awake.keep(true)
        #expect(await eventually { portal.calls == ["Inhibit 4"] && manager.calls.first == "Inhibit 4" })
        portal.answer()
        #expect(await eventually { portal.calls == ["Inhibit 4", "Close"] })
        withExtendedLifetime((machine, session, logind, awake)) {}
    }
}
