internal import DBus
internal import DownloaderInterface

// What the programs of this package need beside the public API.

extension DownloaderClient {
    /// The first download of a query: in queue order the first that has not ended, else the one that ended first. nil: there is none.
    package func first(of query: DownloadQuery) async throws(ClientError) -> DownloadDescription? {
        var filter = query.filter
        filter.limit = 1
        return try await core.call(Manager.describe, (filter.dictionary, []), repeatable: true).first.map { structure in
            DownloadDescription(DownloadReference(structure.fields.0), structure.fields.1)
        }
    }
}
