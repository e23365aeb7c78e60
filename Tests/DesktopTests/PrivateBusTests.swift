internal import TestSupport
internal import Testing

@Suite struct `A private bus` {
    @Test func `activates only what the test gave it`() async {
        let bus = await PrivateBus(activatable: ["org.todoku.Gone": "/nonexistent/program"])
        #expect(!(await bus.hasOwner("org.freedesktop.Notifications")))
        let names = await Child.run(
            ["dbus-send", "--session", "--dest=org.freedesktop.DBus", "--print-reply", "/", "org.freedesktop.DBus.ListActivatableNames"],
            environment: bus.environment)
        #expect(names.output.contains("org.todoku.Gone"))
        #expect(!names.output.contains("org.freedesktop.Notifications"))
        await bus.stop()
    }
}
