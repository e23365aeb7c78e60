internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling

/// A batch on the bus, with the commands that its calls use.
@BusActor final class BatchObject {
    let batch: ManagedBatch
    let commands: Commands

    init(_ batch: ManagedBatch, _ commands: Commands) { (self.batch, self.commands) = (batch, commands) }

    fileprivate var sums: (received: ByteCount, total: ByteCount?) { commands.list.sums(of: batch) }
}

/// `org.todoku.Batch1`: one batch on the bus.
enum BatchFace {
    static let face = Face<BatchObject>(
        Batch.interface, xml: { InterfaceXML.element(of: Batch.interface) }, methods: methods, properties: properties,
        signals: [Batch.completed.name: Batch.completed.signature],
        permits: { DocumentedErrors.permits($1, of: $0, in: Batch.interface) })

    private static let methods: [Row<BatchObject>] = [
        Row(Batch.pause) { object, _, reply in try apply(.pause, "paused", object, reply) },
        Row(Batch.resume) { object, _, reply in
            try reply.refuseWithoutNetwork()
            let list = object.commands.list
            let members = list.scheduler.members(of: object.batch.entry).filter { !$0.state.hasEnded }
            try reply.refuseSandboxedPlace(of: members, default: list.defaultDirectory)
            try apply(.resume, "resumed", object, reply)
        },
        Row(Batch.cancel) { object, _, reply in try apply(.cancel, "cancelled", object, reply) },
        Row(Batch.retry) { object, _, reply in
            try reply.refuseWithoutNetwork()
            let (commands, entry) = (object.commands, object.batch.entry)
            let failed = commands.list.scheduler.members(of: entry).filter(\.mayRetryFailure)
            guard !failed.isEmpty else {
                throw Refusal(.invalidState, "No download of the batch has failed, so there is nothing to retry.")
            }
            try reply.refuseSandboxedPlace(of: failed, default: commands.list.defaultDirectory)
            try commands.changeMany(for: reply.call) {
                .retryBatch(entry, answering: $0)
            } answer: {
                commands.answerChange(reply)
            }
        },
        Row(Batch.remove) { object, deletesFiles, reply in
            try object.commands.remove(object.batch, deletingFiles: deletesFiles, reply)
        },
        Row(Batch.wait) { object, options, reply in
            if let key = options.keys.sorted().first { throw Refusal(.invalidOption, "Wait has no option “\(shown(key))”.") }
            let (entry, journal) = (object.batch.entry, object.commands.journal)
            guard entry.hasEnded else { return try object.commands.callers.wait(reply, for: object.batch) }
            journal.answerEnd(reply, isHeld: journal.gate.isWaiting(entry.number), reply.message(entry.outcomes.wire))
        },
    ]

    @BusActor private static func apply(
        _ event: DownloadEvent, _ participle: String, _ object: BatchObject, _ reply: Reply<Void>
    ) throws(Refusal) {
        let (entry, commands) = (object.batch.entry, object.commands)
        guard !entry.hasEnded else { throw Refusal(.invalidState, "A batch that has ended cannot be \(participle).") }
        try commands.changeMany(for: reply.call) {
            .steerBatch(entry, event, answering: $0)
        } answer: {
            commands.answerChange(reply)
        }
    }

    private static let properties: [PropertyRow<BatchObject>] = [
        PropertyRow(Batch.title) { $0.batch.record.title ?? "" },
        PropertyRow(Batch.remaining) { $0.batch.entry.counts.remaining },
        PropertyRow(Batch.succeeded) { $0.batch.entry.outcomes.finished },
        PropertyRow(Batch.failed) { $0.batch.entry.outcomes.failed },
        PropertyRow(Batch.cancelled) { $0.batch.entry.outcomes.cancelled },
        PropertyRow(Batch.received) { $0.sums.received },
        PropertyRow(Batch.total) { $0.sums.total.wireTotal },
        PropertyRow(Batch.fraction) { object in
            let sums = object.sums
            return wireFraction(received: sums.received, total: sums.total)
        },
    ]
}
