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
            async let added = lane.connection.call(
                Manager.download, on: BusName.service, at: BusName.managerPath, (server.url("/a"), options), timeout: .seconds(60))
            #expect(await eventually { place.held > 0 })
            let steering: [() async throws(DBusError) -> Void] = [
                { () throws(DBusError) in try await lane.connection.call(Download.cancel, on: BusName.service, at: path, ()) },
                { () throws(DBusError) in try await lane.connection.call(Download.remove, on: BusName.service, at: path, false) },
                { () throws(DBusError) in
                    _ = try await lane.connection.call(Standard.getAll, on: BusName.service, at: path, Download.interface)
                },
            ]
            for call in steering {
                do throws(DBusError) {
                    try await call()
                    Issue.record("a download that is not on disk was steered")
                } catch {
                    #expect(error.name == "org.freedesktop.DBus.Error.UnknownObject", "\(error)")
                }
            }
            place.hold(false)
            #expect(try await added == path)
            #expect(try await lane.settle([path])[path.value]?.state == "finished")
            #expect(await lane.count("Completed", path) == 1)
            await lane.end(SIGTERM)
        }
    }
}
