internal import DownloadModel
internal import EventLoop
internal import TestSupport
internal import Testing

@testable internal import Desktop

/// At login, a server may answer its first call and fail the next.
@Suite struct `Toasts on a server that is still starting` {
    /// Without its capabilities, it is unknown whether the server reads markup and has buttons.
    @Test func `are not sent before the server has told its capabilities`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let server = try await OddServer(name: "Plasma", .hidesCapabilities)
            let reports = Reports()
            // The first retry, after half of that time, may come before a test on a busy machine goes on.
            let notifier = reports.make(patience: .seconds(40))
            await notifier.show(EndToast.finished(1, "<b>.zip"))
            expect(await eventually { await server.askedForCapabilities >= 1 }, is: true)
            await server.behave(.answers)
            expect(await reports.contains(.shown(DownloadNumber(1))), is: true)
            let received = await server.received
            expect(received.map(\.body), is: ["&lt;b&gt;.zip (29.0 MiB)"])
            expect(received.map(\.actions.isEmpty), is: [false])
            await bus.stop()
        }
    }
}
