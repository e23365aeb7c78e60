internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    @Suite(.timeLimit(.minutes(5))) struct `A download that crashes the service` {
        /// The end of the name of the part file that crashes the daemon.
        private let bad = "-1.part"

        private func download(_ lane: Lane, _ place: Place, _ url: String) async throws -> ObjectPath {
            try await lane.download(url, ["directory": .string(place.files), "notify": .string("never")])
        }

        @Test func `twice is set aside by the next start, and the others resume`() async throws {
            let (lane, place) = (try await Lane(try await Shim.compiled()), Place())
            // The daemon must not crash before it has answered the call.
            let gate = Gate()
            defer { gate.open() }
            let server = ScriptedServer { request, reply in
                gate.wait()
                reply.serve(Bodies.large, for: request, entityTag: "\"v1\"")
            }
            let trap = ["FAULTSHIM_TRAP": bad]
            #expect(await lane.start(place, more: trap) == nil)
            let path = try await download(lane, place, server.url("/bad.bin"))
            gate.open()
            let crash = try await lane.crash()
            #expect(crash == 128 + SIGILL || crash == 128 + SIGTRAP, "\(crash)")
            let marks = "\(place.state)/todoku/crashes"
            #expect(readFile(marks) == Array("1\n".utf8))
            // The download is retried, and crashes the daemon again.
            _ = await lane.start(place, more: trap)
            _ = try await lane.crash()
            #expect(readFile(marks) == Array("1\n1\n".utf8))
            // The service does not try a third time, because the download would crash it again.
            #expect(await lane.start(place, more: trap) == nil)
            let aside = try await lane.describe()[path.value]
            #expect(aside?.state == "failed" && aside?.error.name == "org.todoku.Error.Interrupted", "\(aside as Any)")
            #expect(aside.map { isClear($0.error.message) } == true)
            let other = try await download(lane, place, server.url("/good.bin"))
            #expect(try await lane.settle([other])[other.value]?.state == "finished")
            #expect(await eventually { !fileExists(marks) })
            #expect(await lane.end(SIGTERM).status == 0)
            // The defect is mended: a retry fetches the file.
            #expect(await lane.start(place) == nil)
            #expect(try await lane.describe()[path.value]?.state == "failed")
            try await lane.retry(path)
            let end = try await lane.settle([path])[path.value]
            #expect(end?.state == "finished", "\(end as Any)")
            let isWhole = fileHolds(end?.path ?? "", Bodies.large)
            #expect(isWhole)
            #expect(await lane.end(SIGTERM).status == 0)
        }

        @Test(
            arguments: [
                ("FAULTSHIM_OVERFLOW", "-1.part", "a stack that overflows on the thread of the transfers"),
                ("FAULTSHIM_TRAP_NAMED", "-1.part", "a trap in the pool, where the file gets its name"),
            ])
        func `leaves its mark, whichever thread worked on it`(variable: String, name: String, what: String) async throws {
            let (lane, place) = (try await Lane(try await Shim.compiled()), Place())
            // The daemon must not crash before it has answered the call.
            let gate = Gate()
            defer { gate.open() }
            let server = ScriptedServer { request, reply in
                gate.wait()
                reply.serve(Bodies.large, for: request, entityTag: "\"v1\"")
            }
            #expect(await lane.start(place, more: [variable: name]) == nil)
            _ = try await download(lane, place, server.url("/bad.bin"))
            gate.open()
            let crash = try await lane.crash()
            #expect([SIGILL, SIGTRAP, SIGSEGV].contains(crash - 128), "\(what): \(crash)")
            #expect(readFile("\(place.state)/todoku/crashes") == Array("1\n".utf8), "\(what)")
        }

        @Test func `once resumes, and a kill does not count`() async throws {
            let (lane, place) = (try await Lane(try await Shim.compiled()), Place())
            let gate = Gate()
            defer { gate.open() }
            let server = ScriptedServer { request, reply in
                guard !gate.isOpen else { return reply.serve(Bodies.large, for: request, entityTag: "\"v1\"") }
                reply.head(200, ["ETag": "\"v1\""], length: Bodies.large.count)
                reply.send(Bodies.large[..<100_000])
                gate.wait()
            }
            let marks = "\(place.state)/todoku/crashes"
            #expect(await lane.start(place) == nil)
            let path = try await download(lane, place, server.url("/a.bin"))
            for number in 1...3 {
                #expect(await server.waitForRequests(number))
                await lane.end(SIGKILL)
                #expect(!fileExists(marks))
                #expect(await lane.start(place) == nil)
            }
            // A signal from outside ends the daemon: the crash counts against the only transfer.
            #expect(await server.waitForRequests(4))
            #expect(await lane.end(SIGILL).status == 128 + SIGILL)
            #expect(readFile(marks) == Array("1\n".utf8))
            gate.open()
            #expect(await lane.start(place) == nil)
            #expect(try await lane.settle([path])[path.value]?.state == "finished")
            #expect(await eventually { !fileExists(marks) })
            #expect(await lane.end(SIGTERM).status == 0)
        }

        /// The other cases crash at one write, or with one connection.
        @Test(arguments: [Way.several, .mirrors])
        func `with eight segments counts once for each crash, whatever the number of its connections`(way: Way) async throws {
            let (lane, place) = (try await Lane(try await Shim.compiled()), Place())
            let gate = Gate()
            defer { gate.open() }
            let servers = CaseServers(Bodies.large, way, middle: .wait(gate))
            let marks = "\(place.state)/todoku/crashes"
            let more = try await servers.options(place)
            #expect(await lane.start(place) == nil)
            let path = try await lane.download(
                servers.url, ["directory": .string(place.files), "notify": .string("never")].merging(more) { $1 })
            #expect(await eventually { servers.areAllSent })
            await lane.end(SIGKILL)
            #expect(!fileExists(marks))
            for crash in 1...2 {
                servers.forgetResponses()
                #expect(await lane.start(place) == nil)
                #expect(await eventually { servers.areAllSent }, "before crash \(crash)")
                #expect(await lane.end(SIGILL).status == 128 + SIGILL)
                #expect(readFile(marks) == Array(repeatElement("1\n", count: crash).joined().utf8))
            }
            servers.forgetResponses()
            #expect(await lane.start(place) == nil)
            let aside = try await lane.describe()[path.value]
            #expect(aside?.state == "failed" && aside?.error.name == "org.todoku.Error.Interrupted", "\(aside as Any)")
            gate.open()
            try await lane.retry(path)
            let end = try await lane.settle([path])[path.value]
            #expect(end?.state == "finished", "\(end as Any)")
            let isWhole = fileHolds(end?.path ?? "", Bodies.large)
            #expect(isWhole)
            var verdict = Verdict(row: "", name: "")
            servers.expectSeveral(&verdict)
            #expect(verdict.wrong == [])
            #expect(await eventually { !fileExists(marks) && listFolder(place.files) == ["a.bin"] }, "\(listFolder(place.files))")
            #expect(await lane.end(SIGTERM).status == 0)
        }
    }
}
