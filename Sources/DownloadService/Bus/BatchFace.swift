internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling

/// `org.todoku.Batch1`: one batch on the bus.
enum BatchFace {
    static let face = Face<ManagedBatch>(
        Batch.interface, xml: { InterfaceXML.element(of: Batch.interface) }, methods: methods, properties: properties,
        signals: [Batch.completed.name: Batch.completed.signature],
        permits: { DocumentedErrors.permits($1, of: $0, in: Batch.interface) })

    private static let methods: [Row<ManagedBatch>] = [
        Row(Batch.pause) { batch, _, reply in try apply(.pause, "paused", batch, reply) },
        Row(Batch.resume) { batch, _, reply in
            try reply.refuseWithoutNetwork()
            let (ledger, downloader) = (batch.downloader.ledger, batch.downloader)
            try reply.refuseSandboxedPlace(of: ledger.members(of: batch.entry).filter { !$0.state.hasEnded }, downloader)
            try apply(.resume, "resumed", batch, reply)
        },
        Row(Batch.cancel) { batch, _, reply in try apply(.cancel, "cancelled", batch, reply) },
        Row(Batch.remove) { batch, deletesFiles, reply in try batch.downloader.remove(batch, deletingFiles: deletesFiles, reply) },
        Row(Batch.wait) { batch, options, reply in
            if let key = options.keys.sorted().first { throw Refusal(.invalidOption, "Wait has no option “\(shown(key))”.") }
            // Through the journal: an end that is not on disk yet has not been announced.
            if batch.entry.hasEnded { return batch.downloader.journal.post(reply.message(batch.entry.outcomes.wire)) }
            try batch.downloader.callers.wait(reply, for: batch)
        },
    ]

    @BusActor private static func apply(
        _ event: DownloadEvent, _ participle: String, _ batch: ManagedBatch, _ reply: Reply<Void>
    ) throws(Refusal) {
        guard !batch.entry.hasEnded else { throw Refusal(.invalidState, "A batch that has ended cannot be \(participle).") }
        let downloader = batch.downloader
        downloader.decideOnMany {
            $0.apply(event, to: batch.entry, answering: $1, now: $2)
        } answer: {
            downloader.answerChange(reply)
        }
    }

    private static let properties: [PropertyRow<ManagedBatch>] = [
        PropertyRow(Batch.title) { $0.record.title ?? "" },
        PropertyRow(Batch.remaining) { $0.entry.remaining },
        PropertyRow(Batch.succeeded) { $0.entry.outcomes.finished },
        PropertyRow(Batch.failed) { $0.entry.outcomes.failed },
        PropertyRow(Batch.cancelled) { $0.entry.outcomes.cancelled },
        PropertyRow(Batch.received) { $0.sums.received },
        PropertyRow(Batch.total) { $0.sums.total.wireTotal },
        PropertyRow(Batch.fraction) { batch in
            let sums = batch.sums
            return wireFraction(received: sums.received, total: sums.total)
        },
    ]
}
