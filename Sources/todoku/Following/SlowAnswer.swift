internal import EventLoop
internal import Localization
internal import TodokuClient

/// Says once at a terminal that the service does not answer. Without that, a command would be silent up to the time limit of a call.
@BusActor enum SlowAnswer {
    /// A start of the service takes less than this.
    private static let delay: Duration = .seconds(5)
    private static var isTold = false

    static func watch(_ client: DownloaderClient) async {
        guard Terminal.errorsAreSeen else { return }
        // The client calls on its own thread, which is this program's loop.
        await client.reportSlowAnswers(after: delay) { BusActor.assumeIsolated { tell() } }
    }

    private static func tell() {
        guard !isTold else { return }
        isTold = true
        Interrupt.follower?.leave()
        Output.complain(catalog.text("the download service has not answered yet; waiting for a minute at most"))
    }
}
