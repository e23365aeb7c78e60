public import DownloadModel

extension Scheduler {
    /// A walk over all rows, for a new database. It has parts, because 100,000 rows take long; the scheduler may decide between two parts.
    ///
    /// A row is as new as its part of the walk. Changes that the scheduler decides during the walk must be saved after it, in the same
    /// commit.
    public struct RowWalk {
        fileprivate enum Part {
            case settings
            case batches(ArraySlice<BatchNumber>)
            case downloads(page: UInt64)
            case sweeps(page: UInt64)
            /// The failed sweeps after the given number. The walk looks them up late, because a deletion may fail during the walk.
            case failedSweeps(after: DownloadNumber)
        }

        fileprivate var parts: ArraySlice<Part>
    }

    /// The most rows of one part.
    private static var part: Int { 768 }

    public func walkRows() -> RowWalk {
        var parts: [RowWalk.Part] = [.settings]
        parts += batches.numbers.sorted().chunked(by: Self.part).map { .batches($0) }
        parts += entries.pages.keys.sorted().map { .downloads(page: $0) }
        parts += sweeps.pages.map { .sweeps(page: $0) }
        parts.append(.failedSweeps(after: DownloadNumber(0)))
        return RowWalk(parts: parts[...])
    }

    /// The rows of the next part; nil after the last.
    ///
    /// Includes the rows of additions that are not on disk yet, because their changes are saved in the same commit. Also includes saved
    /// downloads that have no place in the queue yet.
    public func nextRows(_ walk: inout RowWalk) -> [StoreChange]? {
        switch walk.parts.popFirst() {
        case .settings: [.set(settings)] + gate.lastRequests().map { .requested($0) }
        case .batches(let numbers): numbers.compactMap { batches[$0].map { .putBatch($0.record) } }
        case .downloads(let page):
            entries.pages[page]?.values.sorted { $0.number < $1.number }.map { .put($0.record) } ?? []
        case .sweeps(let page):
            sweeps.rows(page: page)
        case .failedSweeps(let last): failedSweeps(after: last, &walk)
        case nil: nil
        }
    }

    private func failedSweeps(after last: DownloadNumber, _ walk: inout RowWalk) -> [StoreChange] {
        let rest = sweeps.failed.filter { $0.key > last }.sorted { $0.key < $1.key }
        let part = rest.prefix(Self.part)
        if part.count < rest.count, let next = part.last?.key { walk.parts.append(.failedSweeps(after: next)) }
        return part.map { sweeps.row($0.key) }
    }
}

extension Array {
    /// The elements in order, in slices of `length`; the last may be shorter.
    fileprivate func chunked(by length: Int) -> [ArraySlice<Element>] {
        stride(from: 0, to: count, by: length).map { self[$0...].prefix(length) }
    }
}
