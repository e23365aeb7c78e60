internal import DownloadModel
internal import EventLoop
internal import Transport

/// Requests whose host has no address.
extension Engine {
    /// Further names are not asked for, so that no transfer waits long behind name servers that do not answer.
    private static let mostNames = 4
    private static let pool = Pool(name: "todoku-names", width: mostNames)

    /// The host of a segment's request could not be resolved. libcurl does not tell whether the host does not exist or the name servers do
    /// not answer, so the system's resolver is asked once more.
    ///
    /// - Parameter failure: what is reported unless the host does not exist.
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

    /// Meanwhile the transfer may have ended, and a later transfer may have the same number.
    private func resolverAnswered(_ number: DownloadNumber, _ lookup: UInt64, _ failure: DownloadFailure) {
        namesAsked -= 1
        guard let transfer = transfers[number], transfer.conclusion == nil,
            let segment = transfer.segments.first(where: { $0.lookup == lookup })
        else { return }
        segment.lookup = nil
        fail(segment, failure)
    }
}
