internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// A call that waits for the disk of the downloads.
enum DiskCall: CaseIterable, Sendable { case trash, openFile, directory, defaultDirectory, registerAsset }

extension `The fault campaign` {
    /// The disk of the downloads hangs, and the disk of the queue does not.
    @Suite struct `A service that is told to end while a disk hangs` {
        private static let fault = Fault(kind: .hang, at: 1_000_000, isLasting: true, disk: .downloads)

        @Test(arguments: DiskCall.allCases) @BusActor func `answers a call that waits for the disk`(call: DiskCall) async throws {
            let place = Place()
            let folder = place.folder.makeFolder("files/next")
            let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
            let lane = try await Lane(try await Shim.compiled())
            let ending = await lane.start(place, Self.fault)
            try #require(ending == nil, "\(ending?.errors ?? "")")
            let options: [String: Variant] = ["directory": .string(place.files), "notify": .string("never")]
            let finished = try await lane.download(server.url("/a.bin"), options)
            #expect(try await lane.settle([finished])[finished.value]?.state == "finished")
            let held = try await lane.download(server.url("/b.bin"), options.merging(["start": .bool(false)]) { $1 })
            place.reach(Self.fault)
            async let answer = lane.failure(of: call, finished, held, folder)
            #expect(await eventually { place.hits > 0 })
            // A service that does not wait for the call leaves at once. One that waits leaves only if it has refused the call by then.
            _ = await lane.leaves(within: .seconds(1))
            place.stopFaults()
            let failure = await answer
            #expect(failure?.message.contains("did not answer") ?? true, "\(failure?.name ?? "")")
            #expect(await lane.end(SIGTERM).status == 0)
        }

        /// Each call is refused after 5 s, and the next one has come by then. So the work on calls never ends.
        @Test @BusActor func `leaves after half a minute, although calls keep coming that wait for the disk`() async throws {
            let place = Place()
            let lane = try await Lane(try await Shim.compiled())
            let ending = await lane.start(place, Self.fault)
            try #require(ending == nil, "\(ending?.errors ?? "")")
            place.reach(Self.fault)
            let arguments = (Manager.interface, Manager.defaultDirectory.name, Variant.string(place.files))
            try lane.connection.tell(Standard.set, on: BusName.service, at: BusName.managerPath, arguments)
            #expect(await eventually { place.hits > 0 })
            // The half minute begins.
            _ = await lane.leaves(within: .seconds(1))
            place.putClockAhead(seconds: 30)
            let hasLeft = try await eventually {
                try lane.connection.tell(Standard.set, on: BusName.service, at: BusName.managerPath, arguments)
                return !lane.hasName
            }
            #expect(hasLeft, "it works on calls without a bound")
            place.stopFaults()
            #expect(await lane.end(SIGTERM).status == 0)
        }
    }
}

extension Lane {
    /// Makes `call`, about a finished download or one that has not started, or with a folder.
    ///
    /// - Returns: the error; nil: the call succeeded.
    fileprivate func failure(of call: DiskCall, _ finished: ObjectPath, _ held: ObjectPath, _ folder: String) async -> DBusError? {
        do throws(DBusError) {
            switch call {
            case .trash: try await trash(finished)
            case .openFile: try await openFile(finished)
            case .directory:
                let arguments = (Download.interface, Download.directory.name, Variant.string(folder))
                try await connection.call(Standard.set, on: BusName.service, at: held, arguments, timeout: .seconds(60))
            case .defaultDirectory: try await set(Manager.defaultDirectory.name, .string(folder))
            case .registerAsset:
                _ = try await registerAsset(
                    "org.example.App", "maps", "https://example.org/maps.json",
                    ["directory": .string(folder), "notify": .string("never")])
            }
            return nil
        } catch { return error }
    }
}
