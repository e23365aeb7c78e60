internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop

// Lists that the service answers in pages of 1,000.
extension ClientCore {
    /// How many times a list is read from the start because downloads keep ending between two pages.
    private static let mostReadings = 16

    /// Called with each page of `Describe` as it comes, before any later signal. A download may be in several pages, the newest last.
    typealias PageReceiver = @BusActor ([DownloadDescription]) -> Void

    /// All pages of `Describe`, with each download once.
    func describe(
        _ filter: DownloadFilter, properties: [String], arrives: PageReceiver = { _ in }
    ) async throws(ClientError) -> [DownloadDescription] {
        var cut: [DownloadDescription] = []
        for _ in 0..<Self.mostReadings {
            let (read, isWhole) = try await readingAgain { () async throws(ClientError) in
                try await pages(filter, properties: properties, arrives)
            }
            if isWhole { return Self.latest(of: read) }
            // The downloads that have ended are behind all others now, so the next reading begins with others.
            cut = Self.latest(of: cut + read)
        }
        return cut
    }

    /// - Parameter properties: with `State` and `EndedAt`, or empty for all.
    /// - Returns: what was read, up to the first page that may have skipped downloads; and whether there is no such page.
    private func pages(
        _ filter: DownloadFilter, properties: [String], _ arrives: PageReceiver
    ) async throws(ClientError) -> (read: [DownloadDescription], isWhole: Bool) {
        var filter = filter
        var result: [DownloadDescription] = []
        while true {
            let (before, asked) = (result.last, WallTime(microseconds: wallClock()))
            let page = try await nextPage(&filter, properties: properties)
            let descriptions = page.map { DownloadDescription(DownloadReference($0.fields.0), $0.fields.1) }
            arrives(descriptions)
            result += descriptions
            // If the download in the key `after` has ended, it may have been behind all others when the service answered. Then the page
            // has skipped those between its former place and its new one.
            if let before, !before.state.hasEnded, try await hasEnded(before.reference) { return (result, false) }
            guard page.count >= filter.limit, let last = result.last else { return (result, true) }
            // The page is in the order of its call, but the states may be newer.
            if last.state.hasEnded, let ended = last.endedAt, ended >= asked { return (result, false) }
            filter.after = last.reference.objectPath
        }
    }

    /// The next page of `Describe`. While the answer would be too long, the limit of `filter` is reduced.
    private func nextPage(
        _ filter: inout DownloadFilter, properties: [String]
    ) async throws(ClientError) -> [Structure<ObjectPath, [String: Variant]>] {
        while true {
            do throws(ClientError) {
                return try await call(Manager.describe, (filter.dictionary, properties), repeatable: true)
            } catch {
                guard error.errorName == .limitExceeded, filter.shrink() else { throw error }
            }
        }
    }

    /// Whether a download has ended, or is off the list.
    private func hasEnded(_ download: DownloadReference) async throws(ClientError) -> Bool {
        do throws(ClientError) {
            let state = try await call(Standard.get, (Download.interface, Download.state.name), at: download, repeatable: true)
            return state.string.map { DownloadDescription.State($0).hasEnded } ?? false
        } catch {
            guard error.cause == .unknownDownload else { throw error }
            return true
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
    private func readingAgain<List>(
        _ read: @BusActor () async throws(ClientError) -> List
    ) async throws(ClientError) -> List {
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

extension DownloadFilter {
    /// Reduces the limit to an eighth: so few of the longest descriptions fit into one answer.
    ///
    /// - Returns: false if the limit is 1 already.
    mutating func shrink() -> Bool {
        guard limit > 1 else { return false }
        limit = max(1, limit / 8)
        return true
    }
}
