// SPDX-License-Identifier: Apache-2.0
import DownloadModel
import Scheduling

/// Downloads with mirrors, by the engine's contract (docs/mechanisms/mirrors.md).
extension World {
    /// The hosts of the mirrors, in the order of preference.
    static let mirrorHosts = ["h1:8080", "h2"]

    /// The mirrors of a resource in a world of mirrors.
    func mirrors(of resource: Int, _ a: Int) -> [String] {
        // The URL of resource 4 is on this machine, and needs no network.
        guard hasMirrors, resource != 4 else { return [] }
        return Self.mirrorHosts.prefix(1 + a % 2).map { "http://\($0)/\(resource)" }
    }

    /// The place of a URL among the sources of a download; 0: the URL of the download.
    func source(of url: String, _ record: DownloadRecord) -> Int { record.sourceURLs.firstIndex(of: url) ?? 0 }

    /// What a source sends: bytes of the resource's version, or wrong ones. Without a checksum, nothing says that a mirror has the same
    /// bytes, so they count as others. A source without mirrors, or without a checksum, never sends wrong bytes.
    func version(_ resource: Resource, at source: Int, for record: DownloadRecord) -> Int {
        if record.mirrors.isEmpty { return resource.version }
        guard record.options.checksum != nil else { return resource.version + 1000 * source }
        return resource.wrong.contains(source) ? -100 - source : resource.version
    }

    /// The mood of a source.
    func mood(_ resource: Resource, at source: Int) -> Int { source == 0 ? resource.mood : resource.mirrorMoods[source - 1] }

    /// The bytes that were received from a source count for the checks of blame.
    func brought(_ number: DownloadNumber, _ transfer: Transfer) {
        guard let record = scheduler[number]?.record, record.options.checksum != nil, transfer.version != wanted[number],
            case let urls = record.sourceURLs, urls.indices.contains(transfer.source)
        else { return }
        guilty[number, default: []].insert(urls[transfer.source])
    }

    /// A request has failed: the transfer asks the next source.
    ///
    /// - Returns: false if the failure says nothing about the source, or the download has no mirrors. Then the transfer ends.
    func movesOn(_ entry: ScheduledDownload, _ failure: DownloadFailure) -> Bool {
        let number = entry.number
        guard !entry.record.mirrors.isEmpty, let fault = SourceFault(failure), var transfer = transfers[number], !transfer.isStopping else {
            return false
        }
        if transfer.holds { flush(number) }
        let urls = entry.record.sourceURLs
        var failure = failure
        if failure.retryAfter != nil { failure.origin = transfer.origin }
        transfer.failures[transfer.source] = failure
        transfer.begun = transfer.holds ? resume(number) : transfer.begun
        (transfer.hasBegun, transfer.isUntold, transfer.isStalled) = (false, false, false)
        transfers[number] = transfer
        var known = entry.record.knownSources
        for (source, failure) in transfer.failures where known[source].left != .wrongBytes {
            known[source].left = SourceFault(failure) ?? fault
        }
        tell("\(number) has lost its source \(urls[transfer.source])")
        if plant != .unmoved { decide(.moved(transfer.id, failure)) }
        decide(.sources(entry, known))
        // The scheduler may have stopped the transfer in these turns.
        guard transfers[number]?.isStopping == false else { return true }
        guard let next = urls.indices.first(where: { transfer.failures[$0] == nil && known[$0].left != .wrongBytes }) else {
            let failures = transfer.failures.sorted { $0.key < $1.key }.map(\.value)
            let hopeful = failures.filter(\.isRetryable).min { ($0.retryAfter ?? .zero) < ($1.retryAfter ?? .zero) } ?? failures[0]
            if let pause = hopeful.retryAfter { floors[number] = now + pause }
            let (part, old) = (transfer.begun, entry.record.resume)
            let progress = (part?.written ?? 0) > (old?.written ?? 0)
            end(number, .failed(hopeful, madeProgress: progress, transfer.holds ? part : old), isByRequest: false)
            return true
        }
        let origin = (try? DownloadURL(urls[next]).origin) ?? ""
        (transfer.source, transfer.origin, transfer.awaits, transfer.hops) = (next, origin, true, 0)
        transfers[number] = transfer
        sharing.remove(number)
        checkSource(entry, urls[next])
        tell("\(number) turns to \(urls[next])")
        decide(.asks(transfer.id, host: DownloadURL.host(of: origin), origin: origin, isAnswered: false))
        return true
    }

    /// A source that had wrong bytes on disk is not asked again after a kill.
    func checkSource(_ entry: ScheduledDownload, _ url: String) {
        if blamed[entry.number]?.contains(url) == true { fail("\(entry.number) asks \(url) again, which had wrong bytes") }
    }

    /// A source is blamed only for bytes that it has brought; and a download with mirrors is wrong only if all its sources are.
    func checkBlame() {
        guard hasMirrors else { return }
        for entry in scheduler.entries.values where !entry.record.mirrors.isEmpty {
            let (record, guilty) = (entry.record, guilty[entry.number] ?? [])
            for source in record.sources where source.left == .wrongBytes && !guilty.contains(source.url) {
                fail("\(entry.number) blames \(source.url) for bytes of others")
            }
            guard record.state.failure?.name == .checksumMismatch else { continue }
            for url in record.sourceURLs where !guilty.contains(url) { fail("\(entry.number) has failed, and never tried \(url) alone") }
        }
    }
}
