internal import DownloadModel
internal import EventLoop
internal import Scheduling

/// Takes the events and requests that the parts of the service report. The scheduler decides, and its decisions are carried out.
@BusActor protocol EventSink: AnyObject {
    /// - Returns: the reason why a download's state does not allow the request; nil if it does.
    @discardableResult func decide(_ events: [Scheduler.Event]) -> IllegalTransition?
}

extension EventSink {
    @discardableResult func decide(_ events: Scheduler.Event...) -> IllegalTransition? { decide(events) }
}

/// The executor of the service.
typealias ServiceExecutor = TurnExecutor<Downloader>

extension TurnExecutor: EventSink {
    /// Passes a caller's request to the scheduler, and performs the actions.
    ///
    /// - Throws: if the state of the download does not allow the request.
    func ask(_ event: Scheduler.Event) throws(IllegalTransition) {
        if let refusal = decide(event) { throw refusal }
    }
}
