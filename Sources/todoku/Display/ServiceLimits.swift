internal import DownloadModel
internal import EventLoop
internal import TodokuClient

/// What the service knows of its queue and of hosts: why downloads stay queued, or wait for their host.
struct ServiceLimits {
    let status: ServiceStatus
    /// The origins ("https://example.org:443") that refused requests, without those that refused only private downloads. nil: not known.
    var slowed: [String: SlowedHost]?

    init(_ status: ServiceStatus) { self.status = status }

    /// Asks the service once, for all of `downloads`. It also asks about refusals for one that waits for a place at its host: such a
    /// download often waits for its turn a moment later.
    @BusActor init(_ client: DownloaderClient, explaining downloads: [DownloadDescription]) async throws(ClientError) {
        status = try await client.status()
        if downloads.contains(where: { Reason.isForHost($0) }) { slowed = try await client.slowedHosts() }
    }

    /// nil: no reason of `downloads` needs the limits.
    @BusActor static func needed(
        by downloads: [DownloadDescription], _ client: DownloaderClient
    ) async throws(ClientError) -> ServiceLimits? {
        guard downloads.contains(where: { $0.state == .queued || Reason.isForHost($0) }) else { return nil }
        return try await ServiceLimits(client, explaining: downloads)
    }
}
