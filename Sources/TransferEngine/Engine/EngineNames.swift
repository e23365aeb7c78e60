internal import DownloadModel
internal import EventLoop
internal import Transport

/// Requests whose host has no address.
extension Engine {
    /// Most look-ups of one engine at a time. Other transfers fail at once, so that none waits behind name servers that do not answer.
    private static let mostNames = 4
    /// Each look-up has a thread of its own. There are at most 17 engines. The exit does not wait for these threads.
    private static let pool = Pool(name: "todoku-names", width: 17 * mostNames)

    /// The host of a segment's request could not be resolved. libcurl does not tell a host that does not exist from name servers that do
    /// not answer. So ask the system's resolver once more.
    ///
    /// - Parameter failure: reported unless the host does not exist.
    func failUnresolved(_ segment: Segment, _ failure: DownloadFailure) {
        guard namesAsked < Self.mostNames else { return fail(segment, failure) }
        segment.endExchange()
        namesAsked += 1
        lookups += 1
        segment.lookup = lookups
        let (number, lookup, host) = (segment.id.download, lookups, segment.url.host)
        let isHostMissing = configuration.isHostMissing
        Self.pool.perform {
            isHostMissing(host)
        } then: { [self] isMissing in
            command { $0.resolverAnswered(number, lookup, isMissing ? FailureMapping.missingHost(host) : failure) }
        }
    }

    /// The resolver has answered. Meanwhile the transfer may have ended, and a later transfer may have the same number.
    private func resolverAnswered(_ number: DownloadNumber, _ lookup: UInt64, _ failure: DownloadFailure) {
        namesAsked -= 1
        guard let transfer = transfers[number], transfer.conclusion == nil,
            let segment = transfer.segments.first(where: { $0.lookup == lookup })
        else { return }
        segment.lookup = nil
        fail(segment, failure)
    }
}
