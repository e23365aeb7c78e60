internal import DownloadModel
internal import TestSupport
internal import Testing

@testable internal import DownloadStore

/// The limits are those of an unoptimised build on a machine that does other work; what was measured is far below.
@Suite(.serialized) struct `Ten thousand records` {
    private let folder = TemporaryFolder()

    @Test func `are saved in one commit and read again in no time`() async throws {
        let records = (1...10_000).map { $0 % 10 == 0 ? fullRecord($0) : plainRecord($0) }
        let clock = ContinuousClock()
        let store = Store(folder: folder.path)
        let opening = try await clock.measure { _ = try await store.open() }
        let saving = try await clock.measure { try await store.commit(records.map { .put($0) }, nextNumber: DownloadNumber(10_001)) }
        var lone: [Duration] = []
        for record in records.prefix(50) {
            lone.append(try await clock.measure { try await store.commit([.put(record)], nextNumber: DownloadNumber(10_001)) })
        }
        let closing = await clock.measure { await store.close() }
        var state: StoredState?
        let loading = try await clock.measure { state = try await store.open() }
        #expect(state?.records == records)
        let asking = clock.measure { #expect(Store.hasPending(folder: folder.path)) }
        await store.close()
        print("opening \(opening), saving \(saving), a lone commit \(lone.sorted()[25])")
        print("closing \(closing), loading \(loading), asking \(asking)")
        #expect(saving < .seconds(5))
        #expect(loading < .seconds(2))
    }
}
