internal import DownloadModel
internal import TestSupport
internal import Testing

@testable internal import DownloadStore

/// The test prints times, but does not check them, because they depend on the machine's other work.
@Suite struct `Ten thousand records` {
    private let folder = TemporaryFolder()

    @Test func `are saved in one commit and read again, all of them`() async throws {
        let records = (1...10_000).map { $0 % 10 == 0 ? fullRecord($0) : plainRecord($0) }
        let clock = ContinuousClock()
        let store = Store(folder: folder.path)
        _ = try await store.open()
        let saving = try await clock.measure { try await store.commit(records.map { .put($0) }, nextNumber: DownloadNumber(10_001)) }
        await store.close()
        var state: StoredState?
        let loading = try await clock.measure { state = try await store.open() }
        #expect(state?.records == records)
        #expect(state?.nextNumber == DownloadNumber(10_001))
        #expect(Store.hasPending(folder: folder.path))
        await store.close()
        print("10,000 records: saved in \(saving), loaded in \(loading)")
    }
}
