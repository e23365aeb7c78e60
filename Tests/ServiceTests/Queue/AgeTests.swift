internal import DBus
internal import DownloadModel
internal import DownloadStore
internal import DownloaderInterface
internal import Glibc
internal import TestSupport
internal import Testing

@Suite struct `An ended download` {
    /// Writes the database of a stopped service, with downloads that ended `ages` ago.
    private func store(_ world: ServiceWorld, endedBefore ages: [Duration]) async throws {
        let now = WallTime(microseconds: UInt64(time(nil)) * 1_000_000)
        let changes = ages.enumerated().map { index, age in
            var record = DownloadRecord(
                number: DownloadNumber(UInt64(index + 1)), url: "http://127.0.0.1:1/\(index + 1)", options: DownloadOptions(),
                directory: world.folder, state: .cancelled, queuedAt: now + (.zero - age), position: Int64(index))
            record.endedAt = now + (.zero - age)
            return StoreChange.put(record)
        }
        let store = Store(folder: world.state)
        _ = try await store.open { _ in }
        try await store.commit(changes, nextNumber: DownloadNumber(UInt64(ages.count + 1)))
        await store.close()
    }

    @Test func `is kept for 30 days and no longer`() async throws {
        let world = await ServiceWorld()
        let day = Duration.seconds(24 * 3600)
        try await store(world, endedBefore: [day * 31, day * 29, .zero])
        _ = await world.start()
        let client = try await world.client()
        #expect(try await client.list().map(\.value) == [2, 3].map { "\(BusName.downloadsPath)/\($0)" })
    }

    @Test func `makes room for a newer one beyond 10,000`() async throws {
        let world = await ServiceWorld()
        try await store(world, endedBefore: (0..<10_003).map { .seconds(10_003 - $0) })
        _ = await world.start()
        let client = try await world.client()
        #expect(try await client.list(["limit": .uint32(1)]).map(\.value) == ["\(BusName.downloadsPath)/4"])
        #expect(try await client.call(Manager.clearEnded, ()) == 10_000)
    }
}
