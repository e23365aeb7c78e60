internal import DownloadModel
internal import EventLoop
internal import Scheduling

/// Where a part of the service says what has happened, or what somebody wishes. The scheduler decides, and its decisions are carried out.
@BusActor protocol EventSink: AnyObject {
    /// - Returns: the reason why the state of a download does not allow what is asked for.
    @discardableResult func decide(_ events: [Scheduler.Event]) -> IllegalTransition?
}

extension EventSink {
    @discardableResult func decide(_ events: Scheduler.Event...) -> IllegalTransition? { decide(events) }
}

/// The executor of the service.
typealias ServiceExecutor = TurnExecutor<Downloader>

extension TurnExecutor: EventSink {
    /// Lets the scheduler decide by what a caller asks for, and performs the actions.
    ///
    /// - Throws: where the state of the download does not allow the request.
    func ask(_ event: Scheduler.Event) throws(IllegalTransition) {
        if let refusal = decide(event) { throw refusal }
    }
}
