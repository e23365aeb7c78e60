internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    @Suite(.timeLimit(.minutes(10))) struct `A file system that tells of impossible room` {
        /// The number of blocks (about 4 KiB each) that statvfs(2) reports.
        @Test(arguments: ["18446744073709551615", "9223372036854775808", "4503599627370496"])
        func `is believed only as far as possible, and no download waits for ever`(blocks: String) async throws {
            let (lane, place) = (try await Lane(try await Shim.compiled()), Place())
            let server = ScriptedServer { request, reply in reply.serve(Bodies.large, for: request, entityTag: "\"v1\"") }
            let fault = Fault(kind: .enospc, at: 3, isLasting: true, disk: .downloads)
            #expect(await lane.start(place, fault, more: ["FAULTSHIM_BLOCKS": blocks]) == nil)
            let path = try await lane.download(server.url("/a.bin"), ["directory": .string(place.files), "notify": .string("never")])
            #expect(await eventually { place.hits > 0 })
            place.stopFaults()
            let end = try await lane.settle([path])[path.value]
            let words = await lane.lastWords()
            #expect(end?.state == "finished", "\(end as Any)\(words)")
            let isWhole = fileHolds(end?.path ?? "", Bodies.large)
            #expect(isWhole)
            #expect(await lane.end(SIGTERM).status == 0)
        }
    }
}
