internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import TestSupport
internal import Testing

@Suite(.timeLimit(.minutes(5))) struct `The removal of a batch` {
    private let paused: [String: Variant] = ["start": .bool(false)]

    /// A batch of more than a few members is removed in several turns, so its call waits.
    @Test func `is answered when the batch is off the list, also if 256 calls of the connection wait`() async throws {
        let running = try await Running.start()
        let limited = try await running.world.client()
        let held = try await running.download("http://127.0.0.1:1/held", paused)
        let (batch, members) = try await running.batch((0..<200).map { "http://127.0.0.1:1/\($0)" }, paused)
        #expect(members.count == 200)
        await withTaskGroup(of: DBusError?.self) { group in
            for _ in 0...Limits.waitingCallsPerConnection {
                group.addTask { await thrown { try await limited.call(Download.wait, at: held, [:], timeout: .seconds(300)) } }
            }
            // The one call above the limit is answered first.
            let first = await group.next() ?? nil
            #expect(first?.name == todokuError("LimitExceeded"))
            let refusal = await thrown { try await limited.call(Batch.remove, at: batch, false, timeout: .seconds(300)) }
            #expect(refusal == nil)
            let left = try? await limited.list()
            #expect(left == [held])
            try? await running.client.cancel(held)
            for await end in group { #expect(end?.name == todokuError("Cancelled")) }
        }
    }
}
