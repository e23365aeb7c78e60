internal import Scheduling
internal import TransferEngine

extension Scheduler.Response {
    /// The part of the engine's facts that the scheduler decides by.
    init(_ facts: TransferFacts) {
        self.init(
            fileName: facts.fileName, mediaType: facts.mediaType, source: facts.source, total: facts.total, offset: facts.offset,
            isResumable: facts.isResumable)
        (connection, otherRepresentations) = (facts.connection, facts.otherRepresentations)
    }
}
