internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling

/// One call of `WaitAll`: which downloads it waits for, and what those that have ended came to.
///
/// It holds a filter and a counter, and no list of downloads, of which there may be 100,000: what matches, and was on the list and had not
/// ended when it was called (`tick`), is waited for until its first end. Only where the filter names some of the states that a download has
/// before its end must those be held that were in them.
@BusActor final class WaitGroup {
    private let filter: DownloadFilter
    /// Those that were in the states named; nil: all that match.
    private(set) var members: Set<DownloadNumber>?
    private let tick: UInt64
    private let reply: Reply<(UInt32, UInt32, UInt32)>
    private(set) var remaining = 0
    private var counts = (finished: UInt32(0), failed: UInt32(0), cancelled: UInt32(0))

    init(_ filter: DownloadFilter, _ tick: UInt64, _ reply: Reply<(UInt32, UInt32, UInt32)>) {
        (self.filter, self.tick, self.reply) = (filter, tick, reply)
        let open = DownloadFilter.stateNames.filter { !Self.ends.contains($0) }
        if let states = filter.states, !states.isDisjoint(with: open), !states.isSuperset(of: open) { members = [] }
    }

    private static let ends: Set = ["finished", "failed", "cancelled"]

    var sender: String { reply.call.sender }

    /// The answer; nil where the caller wants none.
    var answer: Message? { reply.message(counts) }

    /// Takes in a download of the list if it is asked for, and the caller may see it.
    func gather(_ download: ManagedDownload) {
        guard reply.call.caller.owns(download), filter.matches(download) else { return }
        if download.state.hasEnded { return count(download) }
        remaining += 1
        members?.insert(download.number)
    }

    /// Takes in so many that have not ended, of a call that asks for all.
    func gather(open count: Int) { remaining += count }

    /// `download` has ended.
    ///
    /// - Parameter liveSince: when, by the ticks of `Callers`, it came on the list or began again after an end; 0: long ago.
    /// - Returns: whether it was the last that was waited for.
    func take(_ download: ManagedDownload, liveSince: UInt64) -> Bool {
        if members != nil {
            guard members?.remove(download.number) != nil else { return false }
        } else {
            guard liveSince < tick, reply.call.caller.owns(download), filter.matchesEver(download) else { return false }
        }
        count(download)
        remaining -= 1
        return remaining == 0
    }

    private func count(_ download: ManagedDownload) {
        switch download.state {
        case .finished: counts.finished +|= 1
        case .failed: counts.failed +|= 1
        default: counts.cancelled +|= 1
        }
    }
}

extension DownloadFilter {
    /// Whether it asks for `download`, as far as that does not change.
    @BusActor func matchesEver(_ download: ManagedDownload) -> Bool {
        if let app, app != download.record.options.app { return false }
        if let tag, tag != download.record.options.tag { return false }
        if let batch { return download.record.batch.map { BusName.path(ofBatch: $0) } == batch }
        return true
    }

    /// False where `matches` is false for certain, by the entry alone: of a hundred thousand no object is made, and not looked at what each
    /// waits for.
    @BusActor func mayMatch(_ entry: LedgerEntry, in ledger: Ledger) -> Bool {
        guard let states, !ledger.hasPass else { return true }
        switch entry.state {
        // As the bus sees it, it may wait: for its host, or for a rule of it.
        case .queued, .active: return states.contains(entry.state.name) || states.contains("waiting")
        default: return states.contains(entry.state.name)
        }
    }

    /// Whether it asks for `download` as it is now; `after` and `limit` aside.
    @BusActor func matches(_ download: ManagedDownload) -> Bool {
        matchesEver(download) && states?.contains(download.shownState.name) ?? true
    }
}
