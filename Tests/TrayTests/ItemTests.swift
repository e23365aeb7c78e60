import DBus
import EventLoop
import StatusNotifier
import TestSupport
import Testing

@Suite struct `An item of the tray` {
    @Test @BusActor func `is not registered by a watcher that accepts it after it has given its name away`() async throws {
        let bus = await PrivateBus()
        let panel = try TrayPanel(on: bus.address)
        panel.isHanging = true
        let connection = try Connection.open(address: bus.address)
        let item = StatusNotifierItem("test", on: connection, menu: DBusMenu(), StatusNotifierItem.Appearance())
        #expect(await eventually { panel.attempts == 1 })
        try panel.vanish()
        panel.answer()
        // This call arrives after the answer.
        let id = try await panel.connection.call(
            Standard.get, on: connection.uniqueName, at: ItemInterface.path, (ItemInterface.name, "Id"), timeout: .seconds(120))
        #expect(id == .string("test") && !item.isRegistered)
        try panel.appear()
        #expect(await eventually { item.isRegistered })
        withExtendedLifetime((bus, panel)) {}
    }

    @Test @BusActor func `signals a change that comes between its offer and the answer of the watcher`() async throws {
        let bus = await PrivateBus()
        let panel = try TrayPanel(on: bus.address)
        panel.isHanging = true
        let connection = try Connection.open(address: bus.address)
        let item = StatusNotifierItem("test", on: connection, menu: DBusMenu(), StatusNotifierItem.Appearance())
        #expect(await eventually { panel.attempts == 1 })
        var changed = StatusNotifierItem.Appearance()
        changed.status = .active
        item.show(changed)
        panel.answer()
        #expect(await eventually { panel.count("NewStatus Active") == 1 })
        withExtendedLifetime((bus, panel, item)) {}
    }
}
