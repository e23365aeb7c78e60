import DBus
import Glibc
import PushInterface
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(10)), .disabled(if: underSanitizer() != nil, "the shim and a sanitizer intercept the same calls"))
struct `A registration on a disk that hangs` {
    @Test func `is what it was before a refused call, also after a restart`() async throws {
        let (world, shim, place) = (try await PushWorld(hasService: false), try await Shim.compiled(), Place())
        // Every write to a file of the folder waits while `place` is held. Deletions do not wait.
        let variables = ["XDG_STATE_HOME": world.bus.folder("state"), "FAULTSHIM_ROOTS": world.state, "FAULTSHIM_HOLD": ""]
        await world.setEnvironment(place.environment(shim, nil, more: variables))
        _ = try await world.register("old")
        place.hold(true)
        async let registered = world.error(Push.register, (PushWorld.app, "new", world.options()))
        #expect(await eventually { place.held == 1 })
        #expect(await registered?.name == "org.todoku.Error.Storage")
        // A second thread would delete the file of the refused registration now, before the late write makes it.
        let unregistered = await world.error(Push.unregister, (PushWorld.app, "old"))
        #expect(unregistered?.name == "org.todoku.Error.Storage")
        place.hold(false)
        // The answer comes when the store has written all changes before. The late write would end later on a thread of its own.
        _ = try await world.register("later")
        #expect(await eventually { listFolder("\(world.state)/registrations").allSatisfy { !$0.hasPrefix(".") } })
        await world.kill()
        let names = try await world.call(Push.list, PushWorld.app).map { $0["name"] }
        #expect(names == [.string("old"), .string("later")])
    }

    @Test func `is made again at its distributor if its end is refused`() async throws {
        #expect(try await inTime { try await refuseEnd() }, "each time, the answer of the distributor came after the refusal")
    }

    @Test func `is not made at a distributor that appears before the call is refused`() async throws {
        #expect(try await inTime { try await refuseBesideDistributor() }, "each time, the distributor appeared after the refusal")
    }

    /// - Returns: whether the distributor has ended the registration before the end was refused, after 15 s.
    private func refuseEnd() async throws -> Bool {
        let (world, shim, place) = (try await PushWorld(hasService: false), try await Shim.compiled(), Place())
        let variables = ["XDG_STATE_HOME": world.bus.folder("state"), "FAULTSHIM_ROOTS": world.state, "FAULTSHIM_HOLD": ""]
        await world.setEnvironment(place.environment(shim, nil, more: variables))
        let distributor = await world.distributor(versions: [2])
        _ = try await world.registered("old")
        // With another key, the distributor is called again, and does not answer yet.
        distributor.signal(SIGSTOP)
        let key = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
        _ = try await world.register("old", ["vapid": .string(key)])
        place.hold(true)
        async let made = world.error(Push.register, (PushWorld.app, "new", world.options()))
        #expect(await eventually { place.held == 1 })
        async let ended = world.error(Push.unregister, (PushWorld.app, "old"))
        // The list stays so only until the calls are refused.
        _ = try await eventually(within: .seconds(20)) {
            try await world.call(Push.list, PushWorld.app).map { $0["name"] } == [.string("new")]
        }
        // The distributor answers the call in flight, and then learns that the registration has ended.
        distributor.signal(SIGCONT)
        #expect(await ended?.name == "org.todoku.Error.Storage")
        #expect(await made?.name == "org.todoku.Error.Storage")
        #expect(await eventually { distributor.output.split(separator: "\n").last { $0.contains("register 2 ") }?.hasSuffix(key) == true })
        let hasEnded = !distributor.lines("unregister 2 ").isEmpty
        place.hold(false)
        _ = try await world.registered("later")
        return hasEnded
    }

    /// - Returns: whether the program has seen the distributor before the calls were refused, after 15 s.
    private func refuseBesideDistributor() async throws -> Bool {
        let (world, shim, place) = (try await PushWorld(hasService: false), try await Shim.compiled(), Place())
        let variables = ["XDG_STATE_HOME": world.bus.folder("state"), "FAULTSHIM_ROOTS": world.state, "FAULTSHIM_HOLD": ""]
        await world.setEnvironment(place.environment(shim, nil, more: variables))
        let key = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
        _ = try await world.register("old")
        place.hold(true)
        async let registered = world.error(Push.register, (PushWorld.app, "new", world.options()))
        #expect(await eventually { place.held == 1 })
        async let changed = world.error(Push.register, (PushWorld.app, "old", world.options(["vapid": .string(key)])))
        // The bus tells the program of the distributor before it passes on the call of List.
        let distributor = await world.distributor(versions: [2])
        let hasAppeared = try await world.call(Push.list, PushWorld.app).contains { $0["name"] == .string("new") }
        #expect(await registered?.name == "org.todoku.Error.Storage")
        #expect(await changed?.name == "org.todoku.Error.Storage")
        place.hold(false)
        _ = try await world.registered("later")
        func tokens() -> Set<Substring> { Set(distributor.lines("register 2").map { $0.split(separator: " ")[2] }) }
        #expect(await eventually { tokens().count >= 2 })
        #expect(tokens().count == 2)
        #expect(distributor.lines("register 2").allSatisfy { !$0.hasSuffix(key) })
        return hasAppeared
    }
}
