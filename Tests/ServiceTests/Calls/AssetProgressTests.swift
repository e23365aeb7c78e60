internal import DownloadModel
internal import EventLoop
internal import TestSupport
internal import Testing

@testable internal import DownloadService

/// The reports that were sent, in order.
@BusActor private final class Sent {
    private(set) var reports: [AssetProgress.Report] = []
    private(set) var instants: [ContinuousClock.Instant] = []
    func take(_ report: AssetProgress.Report) {
        reports.append(report)
        instants.append(.now)
    }
}

private func report(_ done: ByteCount, _ stage: String = "downloading") -> AssetProgress.Report {
    AssetProgress.Report(stage: stage, done: done, total: 100)
}

@BusActor @Suite struct `The progress of an asset` {
    /// Longer than the service's, because a busy machine may stop a test between two reports.
    private static let interval: Duration = .seconds(2)

    private let key: AssetKey
    private let sent = Sent()
    private let progress: AssetProgress

    init() throws {
        key = try AssetKey(app: "org.example.App", name: "maps")
        let sent = sent
        progress = AssetProgress(interval: Self.interval) { _, report in sent.take(report) }
    }

    @Test func `ends with the last report, however soon it came after the one before`() async {
        let begun = ContinuousClock.now
        for done in [10, 20, 30] as [ByteCount] { progress.report(report(done), of: key) }
        #expect(sent.reports == [report(10)])
        #expect(await eventually { sent.reports.count > 1 })
        #expect(sent.reports == [report(10), report(30)])
        #expect(sent.instants.last.map { $0 - begun >= Self.interval } == true)
    }

    @Test func `is told before the next stage, and once`() async {
        progress.report(report(10), of: key)
        progress.report(report(100), of: key)
        progress.flush(key)
        #expect(sent.reports == [report(10), report(100)])
        progress.flush(key)
        progress.report(report(5, "extracting"), of: key)
        #expect(await eventually { sent.reports.count > 2 })
        #expect(sent.reports.suffix(1) == [report(5, "extracting")] && sent.reports.count == 3)
    }

    @Test func `is not told of an asset that is gone`() async throws {
        let other = try AssetKey(app: "org.example.App", name: "voices")
        progress.report(report(10), of: key)
        progress.report(report(20), of: key)
        progress.forget(key)
        progress.report(report(1), of: other)
        progress.report(report(2), of: other)
        // The report of the other asset comes later than that of the gone one would have come.
        #expect(await eventually { sent.reports.last == report(2) })
        #expect(sent.reports == [report(10), report(1), report(2)])
    }
}
