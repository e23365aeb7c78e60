import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing
import TransferEngine

@Suite(.timeLimit(.minutes(5))) struct `A machine without a network` {
    @Test(.enabled("only root can make a network of its own") { await Child.run(["unshare", "-n", "true"]).status == 0 })
    func `waits for one, unless the host is this machine`() async {
        await #expect(processExitsWith: .success) {
            // The Glibc module does not export unshare(2). From here on, this thread and the threads that it starts have no network.
            let unshare = unsafeBitCast(try #require(dlsym(nil, "unshare")), to: (@convention(c) (Int32) -> Int32).self)
            try #require(unshare(0x4000_0000) == 0, "unshare: \(String(cString: strerror(errno)))")
            let log = EventLog()
            let engine = Engine(configuration: EngineConfiguration(version: "0", environment: [:])) { log.take($0) }
            let urls = [
                "http://192.0.2.1/x", "http://[2001:db8::1]/x", "http://files.example.org/x", "http://127.0.0.1:9/x", "http://[::1]:9/x",
            ]
            for (number, url) in urls.enumerated() {
                var request = TransferRequest(
                    number: DownloadNumber(UInt64(number)), url: try DownloadURL(url), directory: "/tmp", partName: ".todoku-off.part")
                request.stallTimeout = .seconds(240)  // as in `EngineFixture`
                engine.start(request)
            }
            for number in urls.indices {
                let end = await log.end(of: DownloadNumber(UInt64(number)))
                let failure = try #require(end.failure)
                #expect(failure.name == .network && failure.isRetryable)
                #expect(failure.wait == (number < 3 ? .offline : nil), "\(urls[number]): \(failure)")
            }
        }
    }

    @Test func `is not assumed if a server refuses`() async throws {
        let fixture = await EngineFixture()
        #expect(try await fixture.run("http://127.0.0.1:\(closedPort())/x").failure?.wait == nil)
    }
}
