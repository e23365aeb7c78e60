import DBus
import EventLoop
import Glibc
import PushInterface
import TestSupport
import Testing

@testable import Upkeep

/// ‘todoku backup’, ‘reset’ and ‘restore’, with registrations.
@Suite(.timeLimit(.minutes(10))) struct `The state of pushes` {
    private static let command = builtProgram("todoku", variable: "TODOKU")

    private func run(_ world: PushWorld, _ arguments: String...) async -> Child.Exit {
        await Child.run([Self.command] + arguments, environment: world.bus.environment, folder: world.bus.folder.path)
    }

    @Test func `is backed up, ends with a reset, and works again after a restore`() async throws {
        let world = try await PushWorld()
        let distributor = await world.distributor()
        let app = try await AppStandIn(world)
        let registration = try await world.registered()
        let token = try #require(world.registrationFiles.first)

        let backup = await run(world, "backup", "copy.db")
        #expect(backup.status == 0 && backup.errors == "", "\(backup)")
        #expect(backup.output.hasPrefix("\(world.bus.folder("copy.db")) (0 downloads, 1 registration for pushes, "), "\(backup)")
        var status = stat()
        #expect(stat(world.bus.folder("copy.db"), &status) == 0 && status.st_mode & 0o777 == 0o600)

        let reset = await run(world, "reset", "--yes")
        #expect(reset.status == 0 && reset.errors == "" && reset.output.contains("1 registration for pushes, "), "\(reset)")
        #expect(await eventually { distributor.lines("unregister 2 \(token)").count == 1 })
        #expect(try await world.call(Push.list, "").isEmpty)
        #expect(world.registrationFiles.isEmpty)
        let kept = try #require(listFolder(world.bus.folder("state/todoku")).first { $0.hasPrefix("backup-") })

        // The copy of the reset is as good as the backup.
        for copy in ["copy.db", world.bus.folder("state/todoku/\(kept)")] {
            #expect(try await world.call(Push.list, "").isEmpty)
            let known = distributor.lines("endpoint \(token)").count
            let restored = await run(world, "restore", "--yes", copy)
            #expect(restored.status == 0 && restored.output.contains("1 registration for pushes is back\n"), "\(restored)")
            // The distributor has forgotten the token, and gives another endpoint, before anybody else calls todoku-push.
            #expect(await eventually { distributor.lines("endpoint \(token)").count > known })
            let back = try await world.registered()
            #expect(back["public-key"] == registration["public-key"] && back["auth-secret"] == registration["auth-secret"])
            let endpoint = distributor.lines("endpoint \(token)").last?.split(separator: " ").last.map(String.init) ?? ""
            #expect(try await eventually { try await world.entry()["endpoint"] == .string(endpoint) })
            #expect(world.registrationFiles == [token])
            #expect(stat("\(world.state)/registrations/\(token)", &status) == 0 && status.st_mode & 0o777 == 0o600)
            if copy == "copy.db" { #expect(await run(world, "reset", "--yes").status == 0) }
        }

        // A server that knows the keys can go on.
        let file = await Served()
        await world.send(file.message(), to: try await world.registered())
        #expect(await app.wasCalled())
        #expect(await app.calls.first?.bytes == file.bytes)
    }

    @Test func `keeps a registration that was made after the backup`() async throws {
        let world = try await PushWorld()
        _ = try await world.register()
        _ = try await world.register("other")
        #expect(await run(world, "backup", "copy.db").status == 0)
        #expect(await run(world, "reset", "--yes").status == 0)
        let new = try await world.register()
        let restored = await run(world, "restore", "--yes", "--json", "copy.db")
        #expect(restored.status == 0, "\(restored)")
        #expect(JSON(restored.output)?["restored-push-registrations"]?.number == 1, "\(restored)")
        #expect(try await world.call(Push.list, "").count == 2)
        #expect(try await world.entry()["public-key"] == new["public-key"])
    }

    @Test(arguments: [false, true])
    func `is named before a reset is confirmed, also where the queue is damaged`(isDamaged: Bool) async throws {
        let world = try await PushWorld(hasService: false)
        _ = try await world.register()
        if isDamaged { writeFile(world.bus.folder("state/todoku/todoku.db"), patternBytes(9000)) }
        let exit = await Child.converse(
            "'\(Self.command)' reset", question: "[y/N]", ["n\n"], environment: world.bus.environment, folder: world.bus.folder)
        #expect(exit.status == 3 && exit.output.contains("- 1 registration for pushes ends"), "\(exit)")
        #expect(try await world.call(Push.list, "").count == 1)
    }

    @Test func `is in its folder or in the copy, whenever a reset or a restore is killed`() async throws {
        let world = try await PushWorld()
        let registration = try await world.register()
        let folder = world.bus.folder("state/todoku")
        func kill(after seconds: String, _ arguments: String...) async {
            _ = await Child.run(
                ["timeout", "-s", "KILL", seconds, Self.command] + arguments, environment: world.bus.environment,
                folder: world.bus.folder.path)
        }
        for seconds in ["0.02", "0.05", "0.1", "0.2", "0.4", "0.8"] {
            for name in listFolder(folder) where name.hasPrefix("backup-") { unlink("\(folder)/\(name)") }
            await kill(after: seconds, "reset", "--yes")
            if try await world.call(Push.list, "").isEmpty {
                let copy = try #require(listFolder(folder).first { $0.hasPrefix("backup-") && $0.hasSuffix(".db") }, "\(seconds)")
                await kill(after: seconds, "restore", "--yes", "\(folder)/\(copy)")
                let restored = await run(world, "restore", "--yes", "\(folder)/\(copy)")
                #expect(restored.status == 0, "\(seconds): \(restored)")
            }
            #expect(try await world.entry()["public-key"] == registration["public-key"], "\(seconds)")
        }
    }

    @Test func `comes back by another restore if the first cannot save it, and the former queue stays in a copy`() async throws {
        let world = try await PushWorld()
        _ = try await world.register()
        let token = try #require(world.registrationFiles.first)
        #expect(await run(world, "backup", "copy.db").status == 0)
        #expect(await run(world, "reset", "--yes").status == 0)
        // A folder in the way of a record, as a full disk.
        let obstacle = "\(world.state)/registrations/.new-\(token)"
        #expect(mkdir(obstacle, 0o700) == 0)
        let failed = await run(world, "restore", "--yes", "copy.db")
        #expect(failed.status == 3 && failed.output == "", "\(failed)")
        #expect(failed.errors.hasPrefix("todoku: the former queue is kept in \(world.bus.folder("state/todoku"))/backup-"), "\(failed)")
        #expect(failed.errors.hasSuffix(": File exists; remove the cause and restore again.\n"), "\(failed)")
        #expect(rmdir(obstacle) == 0)
        let restored = await run(world, "restore", "--yes", "copy.db")
        #expect(restored.status == 0 && restored.output.contains("1 registration for pushes is back\n"), "\(restored)")
        #expect(try await world.call(Push.list, "").count == 1)
    }

    @Test func `has a registration once that was ended and made again during a reset`() throws {
        let tokens = ["a", "b", "c"].map { String(repeating: $0, count: 32) }
        /// The records of a folder with registrations of these tokens and names.
        func records(_ registrations: [(token: String, name: String)]) throws -> PushRecords {
            let temporary = TemporaryFolder("todoku-push-records")
            let folder = PushFolder(temporary.path)
            #expect(folder.make() == 0)
            for (token, name) in registrations {
                let record: [String: Variant] = [
                    "token": .string(token), "app": .string(PushWorld.app), "name": .string(name),
                ]
                #expect(folder.replace(token, in: PushFolder.registrations, by: Message.bytes(of: record)))
            }
            return try withExtendedLifetime(temporary) { try PushRecords(of: folder) }
        }
        let first = try records([(tokens[0], "again"), (tokens[1], "ended")])
        let both = first.adding(try records([(tokens[2], "again")]))
        #expect(both.count == 2 && both.files.keys.sorted() == tokens[1...].map { "registrations/\($0)" }, "\(both)")
        #expect(both.owners[tokens[2]]?.name == "again" && both.owners[tokens[1]]?.name == "ended")
    }

    /// A stranger's backup may have anything.
    @Test func `comes back once if a backup has one registration twice`() async throws {
        let world = try await PushWorld()
        _ = try await world.register()
        await world.kill()
        let token = try #require(world.registrationFiles.first)
        let bytes = try #require(readFile("\(world.state)/registrations/\(token)"))
        var record = try #require(Message.value([String: Variant].self, from: bytes))
        let other = String(repeating: "0", count: 32)
        record["token"] = .string(other)
        writeFile("\(world.state)/registrations/\(other)", Message.bytes(of: record), mode: 0o600)
        #expect(await run(world, "backup", "copy.db").output.contains(", 2 registrations for pushes, "))
        #expect(await run(world, "reset", "--yes").status == 0 && world.registrationFiles.isEmpty)
        let restored = await run(world, "restore", "--yes", "copy.db")
        #expect(restored.status == 0 && restored.output.contains("1 registration for pushes is back\n"), "\(restored)")
        #expect(world.registrationFiles == [other])
        #expect(try await world.call(Push.list, "").count == 1)
    }

    @Test func `that cannot be read is named, and left alone`() async throws {
        let world = try await PushWorld()
        _ = try await world.register()
        let damaged = "\(world.state)/registrations/damaged"
        writeFile(damaged, Array("damaged".utf8))
        for arguments in [["backup", "copy.db"], ["reset", "--yes"]] {
            let exit = await Child.run(
                [Self.command] + arguments, environment: world.bus.environment, folder: world.bus.folder.path)
            #expect(exit.status == 0 && exit.errors == "todoku: \(damaged) cannot be read, and is left out\n", "\(exit)")
        }
        #expect(world.registrationFiles == ["damaged"])
    }

    /// A stranger's backup must not write elsewhere.
    @Test func `of a backup with names that lead out of the folder changes nothing`() async throws {
        let world = try await PushWorld()
        _ = try await world.register()
        #expect(await run(world, "backup", "copy.db").status == 0)
        let token = try #require(world.registrationFiles.first)
        for name in ["registrations/../../../../up", "registrations/\(token)/../x", "registrations/", "registrations/short", "other"] {
            let sql = "UPDATE attachment SET name = 'push/\(name)'"
            let code = "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1])\nc.execute(sys.argv[2])\nc.commit()"
            writeFile(world.bus.folder("odd.db"), try #require(readFile(world.bus.folder("copy.db"))))
            #expect(await Child.run(["python3", "-c", code, world.bus.folder("odd.db"), sql]).status == 0)
            let restored = await run(world, "restore", "--yes", "odd.db")
            #expect(restored.status == 3 && restored.errors.contains("push/\(name)"), "\(restored)")
        }
        #expect(world.registrationFiles == [token])
    }

    /// As while a restore writes.
    @Test func `is not read by a start while another program writes it`() async throws {
        #expect(try await inTime { try await waitsForTheOther() }, "each time, the other program wrote for longer than 15 seconds")
    }

    /// - Returns: whether the other program has written before todoku-push gave up.
    private func waitsForTheOther() async throws -> Bool {
        let world = try await PushWorld()
        _ = try await world.register()
        let token = try #require(world.registrationFiles.first)
        let record = try #require(readFile("\(world.state)/registrations/\(token)"))
        await world.kill()
        var lock = PushFolder(world.state).lock(within: .seconds(60))
        let isLocked = lock != nil
        #expect(isLocked)
        #expect(unlink("\(world.state)/registrations/\(token)") == 0)
        let begin = ContinuousClock.now
        async let list = world.call(Push.list, "")
        // todoku-push has opened the lock, and waits for it for 15 seconds. The test itself asks the bus for the process, because another
        // program might start too late.
        let hasTried = await eventually {
            guard
                let process = try? await world.connection.call(
                    BusDaemon.getConnectionUnixProcessID, on: BusDaemon.name, at: BusDaemon.path, Push.busName)
            else { return false }
            return openFiles(of: Int32(process), below: world.state) == 1
        }
        writeFile("\(world.state)/registrations/\(token)", record, mode: 0o600)
        lock = nil
        let registrations = try? await list
        if registrations == nil, ContinuousClock.now - begin >= .seconds(15) { return false }
        #expect(hasTried && registrations?.count == 1)
        return true
    }
}
