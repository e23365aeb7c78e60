import DBus
import DownloaderInterface
import Glibc
import PushInterface
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(10))) struct `The example of a push` {
    private static let program = "\(repository)/examples/push/push.py"
    private static let python = "/usr/bin/python3"

    @Test func `gets its image while it does not run`() async throws {
        let id = "org.example.Push"
        let lines = String(decoding: readFile("\(repository)/examples/push/\(id).service") ?? [], as: UTF8.self).split(separator: "\n")
        #expect(lines == ["[D-BUS Service]", "Name=\(id)", "Exec=/usr/libexec/push.py"])
        let world = try await PushWorld(names: [id: "\(Self.python) \(Self.program)"])
        let distributor = await world.distributor()
        let file = await Served(type: "image/jpeg")
        func start() async -> Child.Exit {
            await Child.run(
                [Self.python, Self.program, "127.0.0.1", world.folder],
                environment: world.bus.environment.merging(["PUSH_REHEARSAL": "1"]) { $1 })
        }
        // The example waits only 25 seconds for an answer. On a busy machine, the start of the program may take longer, so List starts it.
        _ = try await world.call(Push.list, "")
        // `Register` waits 10 seconds for an endpoint. An app without one asks at its next start.
        var exit = await start()
        if exit.output.contains("endpoint: \n") {
            #expect(
                await eventually {
                    exit = await start()
                    return !exit.output.contains("endpoint: \n")
                })
        }
        #expect(exit.status == 0, "package python3-gi: \(exit.errors)")
        let pairs = exit.output.split(separator: "\n").map { $0.split(separator: ": ", maxSplits: 1).map(String.init) }
        var registration = Dictionary(uniqueKeysWithValues: pairs.map { ($0[0], Variant.string($0.count > 1 ? $0[1] : "")) })
        registration["version"] = .uint32(2)
        #expect(await world.bus.hasOwner(id) == false)
        await world.send(file.message(["url": "\"\(file.server.url("/today.jpg"))\""]), to: registration)
        // The app was started, and made the image the current one.
        #expect(await eventually { readFile("\(world.folder)/current") == file.bytes })
        #expect(readFile("\(world.folder)/today.jpg") == file.bytes)
        // An app that dies before it has answered is started again. This one also ends by itself, ten seconds after its last call.
        #expect(await world.hasAnswered(id, "background"))
        _ = await world.bus.end(id, by: SIGTERM)
        #expect(await world.bus.waitForOwner(id, present: false))
        _ = distributor
    }
}
