internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import DBus
@testable internal import Desktop

/// Records the network state on a machine of two private buses, with or without a kernel route.
@BusActor private final class Watcher: Sendable {
    let machine: PrivateBus
    let session: PrivateBus
    private(set) var told: [NetworkCondition?] = []
    private(set) var dials = 0
    var hasRoute = true
    private(set) var state: NetworkState?
    /// Our end of the socket that stands for the kernel's reports of changed routes; -1: none was made.
    private var routes: Int32 = -1

    init() async throws {
        (machine, session) = (await PrivateBus(), await PrivateBus())
        let address = machine.address
        let system = SystemBus(redial: .seconds(3600)) { [weak self] () throws(DBusError) in
            self?.dials += 1
            return try await Connection.open(address: address, within: .seconds(60))
        }
        state = NetworkState(
            system: system, session: try Connection.open(address: session.address), watchRoutes: { [weak self] in self?.watchRoutes($0) }
        ) { [weak self] in
            self?.hasRoute ?? true
        } report: { [weak self] in
            self?.told.append($0)
        }
    }

    isolated deinit { if routes >= 0 { close(routes) } }

    private func watchRoutes(_ changed: @escaping @BusActor () -> Void) -> RouteWatch? {
        if routes >= 0 { close(routes) }
        var ends: [Int32] = [-1, -1]
        let kind = Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        guard socketpair(AF_UNIX, kind, 0, &ends) == 0 else { return nil }
        routes = ends[1]
        return RouteWatch(descriptor: ends[0], changed)
    }

    /// The kernel reports a changed route. False if nobody listens.
    @discardableResult func changeRoute() -> Bool { send(routes, "route", 5, Int32(MSG_NOSIGNAL)) == 5 }

    func watch() { state?.needed(true) }
    func has(_ condition: NetworkCondition?) async -> Bool { await eventually { told.last == .some(condition) } }
}

@Suite(.timeLimit(.minutes(10))) struct `The system bus` {
    @BusActor private final class Visitor {
        var told: [Bool] = []
        var dials = 0
        var dialled: (() -> Void)?
        var member: SystemBus.Member?
    }

    @Test @BusActor func `is reconnected after a loss while somebody needs it`() async throws {
        let (first, second) = (await PrivateBus(), await PrivateBus())
        let visitor = Visitor()
        let system = SystemBus(redial: .milliseconds(1)) { () throws(DBusError) in
            visitor.dials += 1
            if visitor.dials == 2 { throw DBusError("org.example.Error", "It is not back yet.") }
            return try await Connection.open(address: visitor.dials == 1 ? first.address : second.address, within: .seconds(60))
        }
        let member = system.join { visitor.told.append($0 != nil) }
        #expect(await eventually { visitor.told == [true] })
        await first.stop()
        #expect(await eventually { visitor.told == [true, false, true] })
        #expect(visitor.dials == 3)
        system.leave(member)
    }

    @Test @BusActor func `is absent also for a member that joins during a reconnection that fails`() async throws {
        let bus = await PrivateBus()
        let (visitor, late) = (Visitor(), Visitor())
        let system = SystemBus(redial: .milliseconds(1)) { () throws(DBusError) in
            visitor.dials += 1
            if visitor.dials == 1 { return try await Connection.open(address: bus.address, within: .seconds(60)) }
            visitor.dialled?()
            visitor.dialled = nil
            throw DBusError("org.example.Error", "It is not back yet.")
        }
        let member = system.join { visitor.told.append($0 != nil) }
        #expect(await eventually { visitor.told == [true] })
        visitor.dialled = { late.member = system.join { late.told.append($0 != nil) } }
        await bus.stop()
        #expect(await eventually { late.told == [false] })
        #expect(visitor.told == [true, false])
        system.leave(member)
        if let member = late.member { system.leave(member) }
    }

    @Test @BusActor func `is reconnected also if a member that joins after the loss fails to connect`() async throws {
        let (first, second) = (await PrivateBus(), await PrivateBus())
        let (visitor, late) = (Visitor(), Visitor())
        let redial = Duration.milliseconds(1)
        let system = SystemBus(redial: redial) { () throws(DBusError) in
            visitor.dials += 1
            if visitor.dials == 2 {
                // This attempt takes longer than the delay before the reconnection, which began earlier.
                await withCheckedContinuation { continuation in
                    Poller.shared.schedule(after: redial) { continuation.resume() }
                }
                throw DBusError("org.example.Error", "It is not back yet.")
            }
            return try await Connection.open(address: visitor.dials == 1 ? first.address : second.address, within: .seconds(60))
        }
        let member = system.join {
            visitor.told.append($0 != nil)
            if visitor.told.count == 2 { late.member = system.join { late.told.append($0 != nil) } }
        }
        #expect(await eventually { visitor.told == [true] })
        await first.stop()
        #expect(await eventually { late.told == [false, true] })
        #expect(visitor.told == [true, false, true])
        system.leave(member)
        if let member = late.member { system.leave(member) }
    }
}

@Suite struct `The state of the network` {
    @Test(
        arguments: [
            (20, 4, 0, true, NetworkCondition.open), (20, 4, 0, false, .init(reach: .offline)), (10, 0, 0, false, .init(reach: .offline)),
            (40, 1, 1, false, .init(reach: .offline, isMetered: true)), (70, 1, 0, false, .init(reach: .offline)),
            (70, 1, 0, true, .open), (60, 3, 0, false, .init(reach: .limited)), (50, 3, 1, false, .init(reach: .limited, isMetered: true)),
            (60, 4, 0, true, .init(reach: .limited)), (0, 0, 0, false, .open), (70, 4, 4, false, .open),
            (70, 2, 0, true, .init(reach: .captive)), (20, 2, 0, false, .init(reach: .captive)), (70, 4, 1, true, .init(isMetered: true)),
            (70, 4, 3, true, .init(isMetered: true)),
        ] as [(UInt32, UInt32, UInt32, Bool, NetworkCondition)])
    func `is what NetworkManager says, unless the kernel still has a route`(
        state: UInt32, connectivity: UInt32, metered: UInt32, hasRoute: Bool, condition: NetworkCondition
    ) async throws {
        let watcher = try await Watcher()
        let manager = try await StandInNetworkManager(
            on: watcher.machine.address, state: state, connectivity: connectivity, metered: metered)
        await watcher.begin(hasRoute)
        #expect(await watcher.has(condition))
        withExtendedLifetime(manager) {}
    }

    @Test func `follows changes, exits and restarts of NetworkManager`() async throws {
        let watcher = try await Watcher()
        let manager = try await StandInNetworkManager(on: watcher.machine.address)
        #expect(await watcher.dials == 0, "nobody has asked yet")
        await watcher.begin(false)
        #expect(await watcher.has(.open))
        await manager.set("State", 20)
        #expect(await watcher.has(.init(reach: .offline)))
        await manager.set("State", 70)
        #expect(await watcher.has(.open))
        try await manager.vanish()
        await manager.setSilently("Connectivity", 2)
        try await manager.appear()
        #expect(await watcher.has(.init(reach: .captive)))
        await watcher.machine.stop()
        #expect(await watcher.has(.open), "where nobody is left, it is tried")
        #expect(await watcher.dials == 1)
    }

    @Test func `is no longer offline once the kernel has a route, of which NetworkManager says nothing`() async throws {
        let watcher = try await Watcher()
        let manager = try await StandInNetworkManager(on: watcher.machine.address, state: 20)
        await watcher.begin(false)
        #expect(await watcher.has(.init(reach: .offline)))
        #expect(await watcher.changeRoute(), "nobody watches the routes")
        await BusActor.run { watcher.hasRoute = true }
        await watcher.changeRoute()
        #expect(await watcher.has(.open))
        #expect(await watcher.told.count { $0 == .some(.init(reach: .offline)) } == 1, "a report without a route changes nothing")
        #expect(await eventually { await !watcher.changeRoute() }, "no route wakes a machine that has a network")
        withExtendedLifetime(manager) {}
    }

    @Test func `comes from the portal until NetworkManager appears`() async throws {
        let watcher = try await Watcher()
        let portal = try await StandInPortal(on: watcher.session.address)
        await portal.set("available", .bool(false))
        await watcher.begin(false)
        #expect(await watcher.has(.init(reach: .offline)))
        await portal.set("available", .bool(true))
        await portal.set("metered", .bool(true))
        #expect(await watcher.has(.init(isMetered: true)))
        await portal.set("connectivity", .uint32(3))
        #expect(await watcher.has(.init(reach: .captive, isMetered: true)))
        let manager = try await StandInNetworkManager(on: watcher.machine.address)
        #expect(await watcher.has(.open))
        withExtendedLifetime(manager) {}
    }

    @Test func `becomes unknown, and disconnects from the bus, when nobody needs it`() async throws {
        let watcher = try await Watcher()
        let manager = try await StandInNetworkManager(on: watcher.machine.address, metered: 1)
        await watcher.begin(true)
        #expect(await watcher.has(.init(isMetered: true)))
        await BusActor.run { watcher.state?.needed(false) }
        #expect(await watcher.has(nil))
        await watcher.begin(true)
        #expect(await watcher.has(.init(isMetered: true)))
        #expect(await watcher.dials == 2)
        withExtendedLifetime(manager) {}
    }

    @Test func `counts as open if no answer comes`() async throws {
        let watcher = try await Watcher()
        // A program that owns the name, but never answers.
        let mute = try await Connection.open(address: watcher.machine.address)
        #expect(try await mute.requestName(StandInNetworkManager.name))
        await mute.hold()
        await watcher.begin(true)
        #expect(await watcher.has(.open))
    }

    /// Each restart takes its question back, so no question is unanswered for 25 seconds. On a busy machine, the second question may come
    /// too late, and the test begins again.
    @Test @BusActor func `counts as open just as soon if NetworkManager restarts before its first answer`() async throws {
        var restarts: [Int] = []
        while restarts.count < 5, restarts.last ?? 0 < 2 {
            let watcher = try await Watcher()
            let calls = Calls()
            // It gets each call, and never answers.
            let mute = try Connection.open(address: watcher.machine.address)
            mute.observer = { if $0.kind == .call { calls.count += 1 } }
            #expect(try mute.requestName(StandInNetworkManager.name))
            watcher.begin(true)
            let isOpen = try await eventually {
                if calls.count > calls.seen {
                    calls.seen = calls.count
                    try mute.releaseName(StandInNetworkManager.name)
                    calls.restarts += try mute.requestName(StandInNetworkManager.name) ? 1 : 0
                }
                return watcher.told.last == .some(.open)
            }
            #expect(isOpen, "\(calls.restarts) restarts, \(calls.count) calls")
            restarts.append(calls.restarts)
        }
        #expect(restarts.last ?? 0 > 1, "restarts before it counted as open: \(restarts)")
    }
}

/// The calls that a stand-in gets, those that were looked at, and the restarts that it has feigned.
@BusActor private final class Calls {
    var count = 0
    var seen = 0
    var restarts = 0
}

extension Watcher {
    fileprivate func begin(_ hasRoute: Bool) {
        self.hasRoute = hasRoute
        watch()
    }
}
