internal import DBus
internal import EventLoop
internal import TestSupport
internal import Testing

@testable internal import Desktop

/// Icon marks whose connections the test makes.
@BusActor private final class Icons: Sendable {
    let bus: PrivateBus
    let session: Connection
    private(set) var dials = 0
    /// How many connections fail.
    var failures = 0
    private(set) lazy var entries = LauncherEntries(session: session, changed: {}) { [unowned self] () throws(DBusError) in
        dials += 1
        guard dials > failures else { throw DBusError.failed("the bus is full") }
        return try Connection.open(address: bus.address)
    }

    init(on bus: PrivateBus) throws {
        self.bus = bus
        session = try Connection.open(address: bus.address)
    }

    func show(_ count: Int64) { entries.show(count == 0 ? [:] : ["org.example.App": IconMark(count: count, progress: nil)]) }
}

@Suite struct `Dock icon marks` {
    @Test func `are shown by the next connection after a failed one`() async throws {
        let bus = await PrivateBus()
        let dock = try await StandInDock(on: bus.address)
        let icons = try await Icons(on: bus)
        await BusActor.run {
            icons.failures = 2
            icons.entries.watch()
        }
        #expect(await eventually { await icons.entries.hasDock })
        // Show the mark repeatedly, as real callers do.
        #expect(
            await eventually {
                await icons.show(3)
                return await dock.mark(of: "org.example.App")?.count == 3
            })
        #expect(await icons.dials == 3)
    }

    @Test func `of a restarted dock outlive the marks of the old dock`() async throws {
        let bus = await PrivateBus()
        let dock = try await StandInDock(on: bus.address)
        let icons = try await Icons(on: bus)
        await icons.entries.watch()
        #expect(await eventually { await icons.entries.hasDock })
        await icons.show(1)
        #expect(await eventually { await dock.mark(of: "org.example.App")?.count == 1 })
        await icons.show(0)
        try await dock.vanish()
        #expect(await eventually { await !icons.entries.hasDock })
        try await dock.appear()
        #expect(await eventually { await icons.entries.hasDock })
        await icons.show(2)
        #expect(await eventually { await dock.mark(of: "org.example.App")?.count == 2 })
        // Wait until the old mark's connection would have closed.
        await withCheckedContinuation { done in
            BusActor.spawn { Poller.shared.schedule(after: LauncherEntries.linger) { done.resume() } }
        }
        let mark = try #require(await dock.mark(of: "org.example.App"))
        await icons.show(3)
        #expect(await eventually { await dock.mark(of: "org.example.App")?.count == 3 })
        #expect(await dock.mark(of: "org.example.App")?.sender == mark.sender)
        #expect(await icons.dials == 2)
    }
}
