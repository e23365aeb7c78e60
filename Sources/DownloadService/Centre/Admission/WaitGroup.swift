internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling

/// One call of `WaitAll`: a filter for the downloads that it waits for, and the outcomes of those that have ended.
///
/// There may be 100,000 downloads, so the group holds a filter and a counter, not a list. It waits for the first end of each matching
/// download that was listed and unfinished at the call (`tick`). Only a filter for values that change needs a list of the downloads
/// that matched at the call: a filter for some of the unfinished states, or for metadata.
@BusActor final class WaitGroup {
    /// The filter of the call. Empty once `members` alone tells which downloads count, because its metadata may take much memory.
    private var filter: DownloadFilter
    /// The downloads that matched at the call; nil: all that match.
    private(set) var members: Set<DownloadNumber>?
    private let tick: UInt64
    private let reply: Reply<(UInt32, UInt32, UInt32)>
    private(set) var remaining = 0
    /// While the listed downloads are being counted: the unfinished downloads counted so far, and all downloads that have ended since the
    /// call. nil: all are counted.
    private var gathering: (open: NumberSet, ended: [DownloadNumber: DownloadState])? = (NumberSet(), [:])
    /// All unfinished downloads were counted, without visiting each.
    private var countsAll = false
    private var counts = (finished: UInt32(0), failed: UInt32(0), cancelled: UInt32(0))
    private let holdsEnd: (DownloadNumber) -> Bool
    /// Whether the signals of an end that was counted still waited then.
    private(set) var countsHeldEnd = false

    /// - Parameter holdsEnd: whether the signals of the end of a download still wait.
    init(
        _ filter: DownloadFilter, _ tick: UInt64, _ reply: Reply<(UInt32, UInt32, UInt32)>, holdsEnd: @escaping (DownloadNumber) -> Bool
    ) {
        (self.filter, self.tick, self.reply, self.holdsEnd) = (filter, tick, reply, holdsEnd)
        let open = DownloadFilter.stateNames.filter { !Self.ends.contains($0) }
        let selectsByState = filter.states.map { !$0.isDisjoint(with: open) && !$0.isSuperset(of: open) } ?? false
        if selectsByState || !filter.metadata.isEmpty { members = [] }
    }

    private static let ends: Set = ["finished", "failed", "cancelled"]

    /// Whether the filter matches unfinished downloads, of any state or of some.
    private var matchesUnfinished: Bool { filter.states.map { !$0.isSubset(of: Self.ends) } ?? true }

    var sender: String { reply.call.sender }

    /// The answer; nil if the caller wants none.
    var answer: Message? { reply.message(counts) }

    /// Counts a listed download, if the filter matches and the caller may see the download.
    ///
    /// - Parameter liveSince: as for `take`.
    func gather(_ download: ManagedDownload, liveSince: UInt64) {
        guard liveSince < tick, reply.call.caller.owns(download) else { return }
        if gathering?.ended[download.number] != nil {
            // The download was unfinished at the call. Its state then is not known.
            guard matchesUnfinished, filter.matchesEver(download), filter.matchesMetadata(of: download) else { return }
        } else {
            guard filter.matches(download) else { return }
            if download.state.hasEnded { return count(download.number, download.state) }
        }
        remaining += 1
        gathering?.open.insert(download.number)
        members?.insert(download.number)
    }

    /// Counts `count` unfinished downloads at once, for a call that waits for all.
    func gather(open count: Int) {
        remaining += count
        countsAll = true
    }

    /// All listed downloads are counted.
    func endGathering() {
        guard let (open, ended) = gathering else { return }
        gathering = nil
        if members != nil { filter = DownloadFilter() }
        for (number, state) in ended where countsAll || open.contains(number) {
            members?.remove(number)
            count(number, state)
            remaining -= 1
        }
    }

    var isDone: Bool { gathering == nil && remaining == 0 }

    /// `download` has ended.
    ///
    /// - Parameter liveSince: when, in ticks of `Callers`, the download was listed, or restarted after an end; 0: long ago.
    /// - Returns: whether `download` was the last to wait for.
    func take(_ download: ManagedDownload, liveSince: UInt64) -> Bool {
        if gathering != nil {
            if liveSince < tick { gathering?.ended[download.number] = download.state }
            return false
        }
        if members != nil {
            guard members?.remove(download.number) != nil else { return false }
        } else {
            guard liveSince < tick, reply.call.caller.owns(download), filter.matchesEver(download) else { return false }
        }
        count(download.number, download.state)
        remaining -= 1
        return remaining == 0
    }

    private func count(_ number: DownloadNumber, _ state: DownloadState) {
        if !countsHeldEnd { countsHeldEnd = holdsEnd(number) }
        switch state {
        case .finished: counts.finished +|= 1
        case .failed: counts.failed +|= 1
        default: counts.cancelled +|= 1
        }
    }
}

extension DownloadFilter {
    /// Whether the filter matches `download` by the keys whose values never change.
    @BusActor func matchesEver(_ download: ManagedDownload) -> Bool {
        if let app, app != download.record.options.app { return false }
        if let tag, tag != download.record.options.tag { return false }
        if let batch { return download.record.batch.map { BusName.path(ofBatch: $0) } == batch }
        return true
    }

    /// False if the entry alone shows that `matches` is false. This check avoids an object and the computation of a wait for each of
    /// 100,000 downloads.
    @BusActor func mayMatch(_ entry: ScheduledDownload, in scheduler: Scheduler) -> Bool {
        guard let states, !scheduler.hasPass else { return true }
        switch entry.state {
        // The bus may show such a download as waiting: for its host, or for a rule of the host.
        case .queued, .active: return states.contains(entry.state.name) || states.contains("waiting")
        default: return states.contains(entry.state.name)
        }
    }

    /// Whether the filter matches `download` as it is now, apart from the keys `after` and `limit`.
    @BusActor func matches(_ download: ManagedDownload) -> Bool {
        guard matchesEver(download), states?.contains(download.shownState.name) ?? true else { return false }
        return matchesMetadata(of: download)
    }

    /// Whether the download's metadata has all keys of the filter, with the same values. An integer of another type is the same if its
    /// value is.
    @BusActor func matchesMetadata(of download: ManagedDownload) -> Bool {
        guard !metadata.isEmpty else { return true }
        let bytes = download.record.options.metadata
        guard !bytes.isEmpty, let own = Message.value([String: Variant].self, from: bytes) else { return false }
        return metadata.allSatisfy { key, value in own[key]?.isSameValue(as: value) ?? false }
    }
}
