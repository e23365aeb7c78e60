internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling

/// The queries of callers about downloads and batches on the list.
extension Commands {
    /// Answers `reply` when all selected downloads have ended: those that `filter` matches at the call and that the caller may see.
    /// Downloads queued later do not count.
    func waitAll(_ filter: DownloadFilter, _ reply: Reply<(UInt32, UInt32, UInt32)>) throws(Refusal) {
        let batch = try filter.batch.map { (path) throws(Refusal) in try list.named(path, for: reply.call.caller) }
        let group = WaitGroup(filter, callers.nextTick(), reply, holdsEnd: journal.gate.isWaiting)
        try callers.wait(group)
        var walk: Scheduler.Walk
        var (app, tag): (String?, String?) = (nil, nil)
        if let batch {
            walk = list.scheduler.walk(batch)
        } else if filter == DownloadFilter(), reply.call.caller == .user {
            // The count is known without visiting each of 100,000 downloads.
            group.gather(open: list.scheduler.order.count)
            walk = list.scheduler.walkOfEnded()
        } else {
            (app, tag) = (reply.call.caller.app ?? filter.app, filter.tag)
            walk = list.scheduler.walk(app: app, tag: tag)
        }
        do throws(Refusal) {
            try journal.write(for: reply.call) { [self] in
                let step = StepTime()
                repeat {
                    for _ in 0..<filter.portion {
                        guard let number = walk.next() else {
                            finish(group, reply)
                            return true
                        }
                        guard let entry = list.scheduler.listed(number, app: app, tag: tag),
                            entry.state.hasEnded || filter.mayMatch(entry, in: list.scheduler), let download = list.peek(number)
                        else { continue }
                        group.gather(download, liveSince: callers.liveTick(of: number))
                    }
                } while !step.isOver
                return false
            }
        } catch {
            callers.forget(group)
            throw error
        }
    }

    private func finish(_ group: WaitGroup, _ reply: Reply<(UInt32, UInt32, UInt32)>) {
        do throws(Refusal) {
            if try callers.endGathering(group) { journal.answerEnd(reply, isHeld: group.countsHeldEnd, group.answer) }
        } catch { reply.fail(error) }
    }

    /// Answers with the downloads that `filter` matches.
    func list(_ filter: DownloadFilter, _ reply: Reply<[ObjectPath]>) throws(Refusal) {
        let search = try DownloadSearch(filter, in: list, for: reply.call.caller)
        try journal.write(for: reply.call) { [self] in
            guard search.goOn(StepTime()) else { return false }
            journal.answerRead(reply.message(search.found.map(\.path)), holdingEnd: search.holdsEnd(journal))
            return true
        }
    }

    /// Answers with the origins that refused requests.
    func listSlowedHosts(_ reply: Reply<[String: [String: Variant]]>) throws(Refusal) {
        let paces = list.scheduler.slowedOrigins(now: .now)
        var rest = paces.keys.sorted(by: >)
        let answer = LongAnswer(reply)
        try journal.write(for: reply.call) {
            let step = StepTime()
            while let origin = rest.popLast() {
                if let pace = paces[origin] { answer.append(origin, SlowedHost(pace).dictionary) }
                if step.isOver { return false }
            }
            answer.send()
            return true
        }
    }

    /// Answers with the downloads that `filter` matches, each with the properties in `rows`; with `LimitExceeded` if they are too long.
    func describe(
        _ filter: DownloadFilter, _ rows: [PropertyRow<ManagedDownload>], _ reply: Reply<[Structure<ObjectPath, [String: Variant]>]>
    ) throws(Refusal) {
        let search = try DownloadSearch(filter, in: list, for: reply.call.caller)
        var described = 0
        let answer = LongAnswer(reply)
        try journal.write(for: reply.call) { [self] in
            let step = StepTime()
            guard search.goOn(step) else { return false }
            while described < search.found.count {
                if step.isOver { return false }
                DownloadFace.readable.describe(search.found[described], at: search.found[described].path, rows, in: answer)
                described += 1
                if answer.bytes > Limits.answerBytes {
                    reply.fail(Self.tooLong)
                    return true
                }
            }
            journal.answerRead(answer.finished(), holdingEnd: search.holdsEnd(journal))
            return true
        }
    }

    private static let tooLong = Refusal(
        .limitExceeded,
        "The answer would be longer than \(Limits.answerBytes >> 20) MiB; ask for fewer downloads (key limit), or for fewer properties.")

    /// Answers with the object paths of the batches that match and that the caller may see. The oldest comes first, or the newest if the
    /// filter says so. Works in steps.
    ///
    /// - Throws: `NoSuchObject` if `after` is no batch that the caller may see.
    func listBatches(_ filter: BatchFilter, _ reply: Reply<[ObjectPath]>) throws(Refusal) {
        let caller = reply.call.caller
        var last: BatchNumber?
        if let after = filter.after {
            guard let batch = list.batch(at: after.value, for: caller) else {
                throw Refusal(.noSuchObject, "Filter key after: there is no batch \(shown(after.value)).")
            }
            last = batch.number
        }
        var walk = list.batches.walk(isReversed: filter.isNewestFirst)
        var found: [ManagedBatch] = []
        try journal.write(for: reply.call) { [self] in
            let step = StepTime()
            while found.count < filter.limit, let number = walk.next() {
                if let batch = list.batch(number), caller.owns(batch), (filter.app ?? batch.record.app) == batch.record.app,
                    (filter.hasEnded ?? batch.entry.hasEnded) == batch.entry.hasEnded,
                    last.map({ filter.isNewestFirst ? number < $0 : number > $0 }) ?? true
                {
                    found.append(batch)
                }
                if step.isOver { return false }
            }
            let holdsEnd = found.contains { $0.entry.hasEnded && journal.holdsEnd(of: $0.number) }
            journal.answerRead(reply.message(found.map(\.path)), holdingEnd: holdsEnd)
            return true
        }
    }
}

extension DownloadFilter {
    /// The number of downloads visited between two checks of the clock: one if up to 64 KiB of metadata are compared for each.
    fileprivate var portion: Int { metadata.isEmpty ? 100 : 1 }
}

extension DownloadList {
    /// The batch that a filter names.
    fileprivate func named(_ path: ObjectPath, for caller: CallerIdentity) throws(Refusal) -> ScheduledBatch {
        guard let batch = batch(at: path.value, for: caller) else {
            throw Refusal(.noSuchObject, "Filter key batch: there is no batch \(shown(path.value)).")
        }
        return batch.entry
    }
}

/// Finds, in steps, the downloads that a filter matches and that a caller may see. The order is: unfinished downloads in queue order, then
/// ended downloads, oldest first; or all of these in reverse.
@BusActor private final class DownloadSearch {
    private let filter: DownloadFilter
    private let list: DownloadList
    private let caller: CallerIdentity
    private let (app, tag): (String?, String?)
    private var walk: Scheduler.Walk
    /// The number in the key `after`, until the search has passed it.
    private var after: DownloadNumber?
    private(set) var found: [ManagedDownload] = []
    private var isOver = false

    /// - Throws: `NoSuchObject` for the key `after` or `batch`.
    init(_ filter: DownloadFilter, in list: DownloadList, for caller: CallerIdentity) throws(Refusal) {
        (self.filter, self.list, self.caller) = (filter, list, caller)
        var after: DownloadRecord?
        if let path = filter.after {
            guard let download = list.download(at: path.value, for: caller) else {
                throw Refusal(.noSuchObject, "Filter key after: there is no download \(path).")
            }
            after = download.record
        }
        self.after = after?.number
        let batch = try filter.batch.map { (path) throws(Refusal) in try list.named(path, for: caller) }
        // The download in the key `after` may belong to another app or batch, or to none. Then the narrower walk does not contain it.
        if let batch, after == nil || after?.batch == batch.number {
            (app, tag) = (nil, nil)
            walk = list.scheduler.walk(batch, isReversed: filter.isNewestFirst)
        } else {
            // An app in a sandbox sees its own downloads only, whichever app the filter names.
            let wanted = caller.app ?? filter.app
            app = wanted == after?.options.app ?? wanted ? wanted : nil
            tag = filter.tag == after?.options.tag ?? filter.tag ? filter.tag : nil
            walk = list.scheduler.walk(app: app, tag: tag, isReversed: filter.isNewestFirst)
        }
    }

    /// - Returns: whether the search is over.
    func goOn(_ step: StepTime) -> Bool {
        while !isOver {
            if step.isOver { return false }
            for _ in 0..<filter.portion where !isOver { look() }
        }
        return true
    }

    /// Whether the end of a found download is not on disk yet.
    func holdsEnd(_ journal: Journal) -> Bool {
        !journal.gate.isClear && found.contains { $0.state.hasEnded && journal.holdsEnd(of: $0.number) }
    }

    private func look() {
        guard let number = walk.next() else { return isOver = true }
        guard let entry = list.scheduler.listed(number, app: app, tag: tag) else { return }
        if let after {
            if number == after { self.after = nil }
            return
        }
        guard filter.mayMatch(entry, in: list.scheduler), let download = list.peek(number), caller.owns(download),
            filter.matches(download)
        else { return }
        found.append(download)
        isOver = found.count == filter.limit
    }
}
