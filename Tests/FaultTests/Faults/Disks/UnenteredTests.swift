internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    /// The commit of a new download takes as long as the test wants.
    @Suite(.timeLimit(.minutes(5))) struct `A download whose row is not on disk yet` {
        @Test func `is not there for any caller, and ends only after it was added`() async throws {
            #expect(try await inTime { try await addSlowly() }, "each time, the commit was released too late")
        }

        /// - Returns: false: the service may have refused the call before the test released the commit. The service waits at most 15 s.
        private func addSlowly() async throws -> Bool {
            let place = Place()
            let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
            let lane = try await Lane(try await Shim.compiled())
            let ending = await lane.start(place, more: ["FAULTSHIM_HOLD": "todoku.db-wal"])
            try #require(ending == nil, "\(ending?.errors ?? "")")
            let path = ObjectPath("/org/todoku/Downloader1/download/by_token/org_2eexample_2eApp/new")
            let options: [String: Variant] = [
                "directory": .string(place.files), "notify": .string("never"), "app": .string("org.example.App"), "token": .string("new"),
            ]
            place.hold(true)
            let begun = ContinuousClock.now
            async let added = lane.connection.call(
                Manager.download, on: BusName.service, at: BusName.managerPath, (server.url("/a"), options), timeout: .seconds(60))
            #expect(await eventually { place.held > 0 })
            let unknown = "org.freedesktop.DBus.Error.UnknownObject"
            #expect(await errorName(lane, path, Download.cancel, ()) == unknown)
            #expect(await errorName(lane, path, Download.remove, false) == unknown)
            #expect(await errorName(lane, path, Standard.getAll, Download.interface) == unknown)
            place.hold(false)
            guard ContinuousClock.now - begun < .seconds(14) else {
                _ = try? await added
                await lane.end(SIGKILL)
                return false
            }
            #expect(try await added == path)
            #expect(try await lane.settle([path])[path.value]?.state == "finished")
            #expect(await lane.count("Completed", path) == 1)
            await lane.end(SIGTERM)
            return true
        }
    }
}

/// The name of the error with which a call fails; nil: it succeeds.
@BusActor private func errorName<In: Sendable, Out: Sendable>(
    _ lane: Lane, _ path: ObjectPath, _ method: MethodOf<In, Out>, _ arguments: In
) async -> String? {
    do {
        _ = try await lane.connection.call(method, on: BusName.service, at: path, arguments, timeout: .seconds(60))
        return nil
    } catch { return error.name }
}
