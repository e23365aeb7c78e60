internal import DBus
internal import DownloaderInterface

// What the programs of this package need beside the public API.

extension DownloaderClient {
    /// The first download of a query: in queue order the first that has not ended, else the one that ended first. nil: there is none.
    package func first(of query: DownloadQuery) async throws(ClientError) -> DownloadDescription? {
        var filter = query.filter
        filter.limit = 1
        return try await page(filter).first
    }

    /// The downloads of a query that ended last, the latest first.
    ///
    /// - Parameter count: how many at most, 1 to 1,000.
    package func latest(_ count: Int, of query: DownloadQuery) async throws(ClientError) -> [DownloadDescription] {
        var filter = query.filter
        (filter.limit, filter.isNewestFirst) = (count, true)
        return try await page(filter)
    }

    /// The finished downloads by the paths of their files. If several have the same path, it is the one that ended last.
    package func finishedFiles() async throws(ClientError) -> [String: DownloadReference] {
        let properties = [Download.state.name, Download.endedAt.name, Download.path.name]
        let finished = try await core.describe(DownloadQuery(states: [.finished]).filter, properties: properties)
        return finished.reduce(into: [:]) { files, download in
            if let path = download.path { files[path] = download.reference }
        }
    }

    private func page(_ filter: DownloadFilter) async throws(ClientError) -> [DownloadDescription] {
        try await core.call(Manager.describe, (filter.dictionary, []), repeatable: true).map { structure in
            DownloadDescription(DownloadReference(structure.fields.0), structure.fields.1)
        }
    }

    /// Calls `report` on the client's thread whenever the service has not answered a call for `delay`. Calls without a time limit, such as
    /// `wait`, are not reported.
    package func reportSlowAnswers(after delay: Duration, _ report: @escaping @Sendable () -> Void) async {
        await core.reportSlowAnswers(after: delay, report)
    }
}

extension ClientCore {
    fileprivate func reportSlowAnswers(after delay: Duration, _ report: @escaping @Sendable () -> Void) {
        slowAnswers = (delay, report)
    }
}
