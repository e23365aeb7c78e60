// SPDX-License-Identifier: Apache-2.0
import DownloadModel
import Scheduling

/// Downloads with mirrors, by the engine's contract (docs/mechanisms/mirrors.md).
extension World {
    /// The mirrors of a resource in a world of mirrors; else none. No mirror has the URL of a download. The first one is at a host and port
    /// where downloads of other resources go, too.
    func mirrors(of resource: Int, _ a: Int) -> [String] {
        // The URL of resource 4 is on this machine, and needs no network.
        guard hasMirrors, resource != 4 else { return [] }
        return ["h\((resource + 1) % 2):8080", "h2"].prefix(1 + a % 2).map { "http://\($0)/\(resource)" }
    }

    /// The version that a source sends; below 0: wrong bytes. Without a checksum, nothing proves that a mirror has the same bytes, so they
    /// count as another version, and none are wrong.
    func version(_ resource: Resource, at source: Int, for record: DownloadRecord) -> Int {
        if record.mirrors.isEmpty { return resource.version }
        guard record.options.checksum != nil else { return resource.version + 1000 * source }
        return resource.wrong.contains(source) ? -100 - source : resource.version
    }

    /// The mood of a source.
    func mood(_ resource: Resource, at source: Int) -> Int { source == 0 ? resource.mood : resource.mirrorMoods[source - 1] }

    /// A request has failed: the transfer asks the next source, or fails if none is left.
    ///
    /// - Returns: false if the transfer ends by this failure, because the failure says nothing about the source, or the download has no
    ///   mirrors.
    func movesOn(_ entry: ScheduledDownload, _ failure: DownloadFailure) -> Bool {
        let (number, record) = (entry.number, entry.record)
        guard !record.mirrors.isEmpty, SourceFault(failure) != nil, var transfer = transfers[number], !transfer.isStopping else {
            return false
        }
        flush(number)
        if transfer.holds { transfer.begun = resume(number) }
        var failure = failure
        if failure.retryAfter != nil { failure.origin = transfer.origin }
        transfer.failures[transfer.source] = failure
        transfer.hasBegun = false
        transfers[number] = transfer
        var known = record.knownSources
        for (source, failure) in transfer.failures where known[source].left != .wrongBytes { known[source].left = SourceFault(failure) }
        tell("\(number) leaves its source \(known[transfer.source].url)")
        if plant != .unmoved { decide(.moved(transfer.id, failure)) }
        decide(.sources(entry, known))
        // No other request may keep bytes from the next one.
        if hasStretches { for request in transfers[number]?.further ?? [] { leave(request, of: number, nil) } }
        // The scheduler may have stopped the transfer in these turns.
        guard var next = transfers[number], !next.isStopping else { return true }
        guard let source = known.indices.first(where: { next.failures[$0] == nil && known[$0].left != .wrongBytes }) else {
            failAtAllSources(entry, next)
            return true
        }
        let origin = (try? DownloadURL(known[source].url).origin) ?? ""
        (next.source, next.origin, next.awaits, next.isStalled, next.hops) = (source, origin, true, false, 0)
        next.question += 1
        transfers[number] = next
        checkSource(entry, source)
        tell("\(number) asks \(known[source].url)")
        decide(.asks(next.id, host: DownloadURL.host(of: origin), origin: origin, isAnswered: false, question: next.question))
        return true
    }

    /// The transfer fails with the failure that promises most: a retryable one with the shortest pause, else that of the first source.
    private func failAtAllSources(_ entry: ScheduledDownload, _ transfer: Transfer) {
        let number = entry.number
        let failures = transfer.failures.sorted { $0.key < $1.key }.map(\.value)
        let retryable = failures.filter(\.isRetryable).min { ($0.retryAfter ?? .zero) < ($1.retryAfter ?? .zero) }
        let failure = retryable ?? failures[0]
        if let pause = failure.retryAfter, !isBeingResumed(number) { floors[number] = now + pause }
        let held = transfer.holds ? transfer.begun : entry.record.resume
        let progress = (held?.written ?? 0) > transfer.heldBefore
        end(number, .failed(failure, madeProgress: progress, held), isByRequest: false)
    }

    // MARK: Invariants

    /// A source that had wrong bytes on disk is not asked again after a restart.
    func checkSource(_ entry: ScheduledDownload, _ source: Int) {
        guard blamed[entry.number]?.contains(source) == true else { return }
        fail("\(entry.number) asks \(entry.record.sourceURLs[source]) again, which had wrong bytes")
    }

    /// A source is blamed only for a file that it alone has brought. A download fails for wrong bytes only if all its sources are to blame.
    func checkBlame() {
        guard hasMirrors else { return }
        for entry in scheduler.entries.values where !entry.record.mirrors.isEmpty {
            let (known, guilty) = (entry.record.knownSources, guilty[entry.number] ?? [])
            for place in known.indices where known[place].left == .wrongBytes && !guilty.contains(place) {
                fail("\(entry.number) blames \(known[place].url) for the bytes of others")
            }
            guard entry.state.failure?.name == .checksumMismatch else { continue }
            for place in known.indices where !guilty.contains(place) {
                fail("\(entry.number) fails for wrong bytes, and never had the whole file of \(known[place].url) alone")
            }
        }
    }
}
