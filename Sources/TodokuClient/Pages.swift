internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop

// Lists that the service answers in pages of 1,000.
extension ClientCore {
    /// All pages of `Describe`, with each download once.
    func describe(_ filter: DownloadFilter, properties: [String]) async throws(ClientError) -> [DownloadDescription] {
        try await readingAgain { () async throws(ClientError) in try await pages(filter, properties: properties) }
    }

    private func pages(_ filter: DownloadFilter, properties: [String]) async throws(ClientError) -> [DownloadDescription] {
        var filter = filter
        var result: [DownloadDescription] = []
        while true {
            let page = try await call(Manager.describe, (filter.dictionary, properties), repeatable: true)
            for structure in page {
                let (path, values) = structure.fields
                result.append(DownloadDescription(DownloadReference(path), values))
            }
            guard page.count >= filter.limit, let last = result.last else { return Self.latest(of: result) }
            filter.after = last.reference.objectPath
        }
    }

    /// The last description of each download. A download that ends between two pages moves to the end of the list, so both pages may
    /// have it.
    private static func latest(of pages: [DownloadDescription]) -> [DownloadDescription] {
        var seen: Set<DownloadReference> = []
        return pages.reversed().filter { seen.insert($0.reference).inserted }.reversed()
    }

    /// All pages of `ListBatches`.
    func batches(_ filter: BatchFilter) async throws(ClientError) -> [BatchReference] {
        try await readingAgain { () async throws(ClientError) in
            var filter = filter
            var result: [BatchReference] = []
            while true {
                let page = try await call(Manager.listBatches, filter.dictionary, repeatable: true)
                result += page.map { BatchReference($0) }
                guard page.count >= filter.limit, let last = page.last else { return result }
                filter.after = last
            }
        }
    }

    /// Reads a list. If the last element of a page leaves the list before the next page, the list is read again from the start, at most
    /// three times.
    private func readingAgain<Element>(
        _ read: @BusActor () async throws(ClientError) -> [Element]
    ) async throws(ClientError) -> [Element] {
        var beginnings = 0
        while true {
            do throws(ClientError) {
                return try await read()
            } catch {
                beginnings += 1
                guard error.errorName == .noSuchObject, beginnings <= 3 else { throw error }
            }
        }
    }
}
