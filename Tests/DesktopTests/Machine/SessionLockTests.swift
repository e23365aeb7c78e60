internal import DBus
internal import EventLoop
internal import TestSupport
internal import Testing

@testable internal import Desktop

/// A session whose portal holds back its locks, and a machine with a logind. No program of the session gets any time to answer.
@BusActor private final class HangingPortal: Sendable {
    let buses: (machine: PrivateBus, session: PrivateBus)
    let logind: StandInLogind
    let portal: StandInPortal
    let manager: StandInSessionManager
    let connection: Connection
    let awake: Awake

    init() async throws {
        buses = (await PrivateBus(), await PrivateBus())
        let address = buses.machine.address
        logind = try StandInLogind(on: address)
        portal = try StandInPortal(on: buses.session.address)
        manager = try StandInSessionManager(on: buses.session.address)
        portal.isHanging = true
        let system = SystemBus(redial: .seconds(3600)) { () throws(DBusError) in try Connection.open(address: address) }
        connection = try Connection.open(address: buses.session.address)
        awake = Awake(system: system, session: connection, patience: .zero) { _ in }
    }

    /// Grants the held lock. A release that follows at once has arrived when this function returns.
    func grant() async throws {
        portal.answer()
        try await hear(StandInPortal.name)
    }

    /// Returns once all answers of a program have arrived, and also the calls that they cause.
    func hear(_ name: String) async throws {
        // The first answer comes after the others. The second call goes after all calls that the others cause.
        for _ in 0..<2 { try await connection.call(Standard.ping, on: name, at: ObjectPath("/"), (), timeout: .seconds(120)) }
    }
}

@Suite(.timeLimit(.minutes(10))) struct `A lock of the session against sleep` {
    @Test @BusActor func `is released if it is granted when no bytes move any more`() async throws {
        let session = try await HangingPortal()
        session.manager.refuses = true
        session.awake.keep(true)
        #expect(await eventually { session.portal.calls == ["Inhibit 4"] && session.logind.held == ["block", "delay"] })
        session.awake.keep(false)
        #expect(await eventually { session.logind.held == [] })
        try await session.grant()
        #expect(await eventually { session.portal.calls == ["Inhibit 4", "Close"] })
        withExtendedLifetime(session) {}
    }

    @Test @BusActor func `is kept if it is granted late, and asked for only once of a program that hangs`() async throws {
        let session = try await HangingPortal()
        session.manager.refuses = true
        session.awake.keep(true)
        #expect(await eventually { session.portal.calls == ["Inhibit 4"] && session.manager.calls.count == 1 })
        // Until the refusal has arrived, the manager would not be asked again.
        try await session.hear("org.gnome.SessionManager")
        try session.logind.vanish()  // the locks are requested again
        #expect(await eventually { session.manager.calls.count == 2 })
        try await session.grant()
        #expect(session.portal.calls == ["Inhibit 4"])
        session.awake.release()
        #expect(await eventually { session.portal.calls == ["Inhibit 4", "Close"] })
        withExtendedLifetime(session) {}
    }

    @Test @BusActor func `is asked for again if its program restarts, and is then released there`() async throws {
        let session = try await HangingPortal()
        session.manager.refuses = true
        session.portal.isHanging = false
        session.awake.keep(true)
        #expect(await eventually { session.portal.calls == ["Inhibit 4"] && session.logind.held == ["block", "delay"] })
        try session.portal.vanish()
        let next = try StandInPortal(on: session.buses.session.address)
        #expect(await eventually { next.calls == ["Inhibit 4"] })
        try await session.hear(StandInPortal.name)
        #expect(next.calls == ["Inhibit 4"], "it knows nothing of the first portal's lock")
        session.awake.release()
        #expect(await eventually { next.calls == ["Inhibit 4", "Close"] })
        #expect(session.logind.asked.count == 2, "logind's locks were not taken again")
        withExtendedLifetime(session) {}
    }

    @Test @BusActor func `is held by one program, also if another one grants it late`() async throws {
        let session = try await HangingPortal()
        session.awake.keep(true)
        #expect(await eventually { session.portal.calls == ["Inhibit 4"] && session.manager.calls == ["Inhibit 4"] })
        try await session.grant()
        // Either answer may arrive first.
        #expect(await eventually { session.portal.calls.count + session.manager.calls.count == 3 })
        session.awake.release()
        #expect(await eventually { session.portal.calls.last == "Close" && session.manager.calls.last == "Uninhibit 77" })
        withExtendedLifetime(session) {}
    }
}
