internal import DBus
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import Desktop

/// Starts a private session for a toast test. GIO has one session bus per process, so each test that shows toasts runs in its own process
/// (an exit test), where this becomes the session.
func beginSession(activatable: [String: String] = [:], display: Display? = nil) async -> PrivateBus {
    // A program that outlives a crashed test must not hold the test's pipe, because the test runner waits until the pipe closes.
    for descriptor in 3..<256 as Range<Int32> { _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC) }
    let bus = await PrivateBus(activatable: activatable, extra: display.map { ["DISPLAY": $0.name] } ?? [:])
    for (key, value) in bus.environment { setenv(key, value, 1) }
    if display == nil { unsetenv("DISPLAY") }
    return bus
}

/// Records a notifier's reports in order.
@BusActor final class Reports {
    private(set) var events: [ToastEvent] = []
    /// The sounds that the server leaves to us; `events` leaves them out.
    private(set) var sounds: [String] = []
    nonisolated init() {}
    func take(_ event: ToastEvent) { if case .sounds(let name) = event { sounds.append(name) } else { events.append(event) } }

    nonisolated func make(patience: Duration = Notifier.patience, pause: Duration = Notifier.progressPause) -> Notifier {
        Notifier(patience: patience, pause: pause) {
            try? Connection.session()
        } report: {
            self.take($0)
        }
    }

    nonisolated func contains(_ event: ToastEvent, within limit: Duration = .seconds(60)) async -> Bool {
        await eventually(within: limit) { await events.contains(event) }
    }
}

extension Notifier {
    /// Shows the toast again and again, as the service does, until `isShown`. A single one may be dropped: before the notifier hears of a
    /// new server, and for `progressPause` after a call that took longer than `slowCall`, as it may on a busy machine.
    nonisolated func show(_ toast: ProgressToast, until isShown: () async -> Bool) async -> Bool {
        await eventually(within: Self.progressPause + .seconds(60)) {
            await show(toast)
            return await isShown()
        }
    }
}

/// `#expect(value == expected)` whose comment has both values: an exit test passes on only the comments of its issues.
func expect<V: Equatable>(_ value: V, is expected: V, sourceLocation: SourceLocation = #_sourceLocation) {
    #expect(value == expected, "\(value) is not \(expected), line \(sourceLocation.line)", sourceLocation: sourceLocation)
}

extension EndToast {
    static func finished(_ number: UInt64, _ fileName: String = "写真アーカイブ.zip") -> EndToast {
        EndToast(
            number: DownloadNumber(number), kind: .finished(path: "/tmp/\(fileName)"), summary: ToastTexts.japanese.finishedSummary,
            body: ToastTexts.japanese.finishedBody(fileName: fileName, size: 30_408_704), host: "example.org")
    }

    static func failed(_ number: UInt64, _ remedy: Remedy? = nil) -> EndToast {
        EndToast(
            number: DownloadNumber(number), kind: .failed(remedy), summary: ToastTexts.japanese.failedSummary,
            body: ToastTexts.japanese.failedBody(
                fileName: "<i>写真</i>.zip", failure: DownloadFailure(.httpStatus, "the server said no", httpStatus: 404)))
    }
}

extension ProgressToast {
    static func of(_ received: ByteCount, total: ByteCount? = 30_408_704, round: UInt64 = 0) -> ProgressToast {
        ProgressToast([Part(name: "写真アーカイブ.zip", received: received, total: total)], round: round)
    }
}

extension ToastEvent {
    static func shown(_ number: DownloadNumber) -> ToastEvent { .shown(number, isClickable: true) }
}
