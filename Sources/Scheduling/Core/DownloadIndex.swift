public import DownloadModel

/// Finds the downloads of an app or a tag among 100,000.
struct DownloadIndex {
    private var apps = KeyTable<String, NumberSet>()
    private var tags = KeyTable<String, NumberSet>()
    /// The bytes that the downloads and batches of an app hold (`heldBytes` of `DownloadOptions` and `BatchRecord`).
    private var bytes = KeyTable<String, Int>()

    mutating func insert(_ record: DownloadRecord) {
        if !record.options.app.isEmpty { apps.insert(record.number, at: record.options.app) }
        count(record, 1)
        if !record.options.tag.isEmpty { tags.insert(record.number, at: record.options.tag) }
    }

    /// Downloads in runs of the same app and tag. Most members of a batch are one run, and each run is looked up once.
    struct Runs {
        fileprivate struct Run {
            let app: String
            let tag: String
            var numbers: [DownloadNumber]
            var bytes: Int
        }

        fileprivate var all: [Run] = []

        mutating func append(_ record: DownloadRecord) {
            let (app, tag, bytes) = (record.options.app, record.options.tag, record.options.heldBytes(with: record.url))
            if let last = all.indices.last, all[last].app == app, all[last].tag == tag {
                all[last].numbers.append(record.number)
                all[last].bytes += bytes
            } else {
                all.append(Run(app: app, tag: tag, numbers: [record.number], bytes: bytes))
            }
        }
    }

    mutating func insert(_ runs: Runs) {
        for run in runs.all {
            if !run.app.isEmpty { apps[run.app, default: NumberSet()].insert(run.numbers) }
            if !run.app.isEmpty { add(run.bytes, of: run.app) }
            if !run.tag.isEmpty { tags[run.tag, default: NumberSet()].insert(run.numbers) }
        }
    }

    mutating func remove(_ runs: Runs) {
        for run in runs.all {
            apps.remove(run.numbers, at: run.app)
            if !run.app.isEmpty { add(-run.bytes, of: run.app) }
            tags.remove(run.numbers, at: run.tag)
        }
    }

    func count(of app: String) -> Int { apps[app]?.count ?? 0 }
    func bytes(of app: String) -> Int { bytes[app] ?? 0 }

    mutating func remove(_ record: DownloadRecord) {
        apps.remove(record.number, at: record.options.app)
        count(record, -1)
        tags.remove(record.number, at: record.options.tag)
    }

    /// Adds (`sign` 1) or subtracts (-1) the bytes that `record` holds.
    mutating func count(_ record: DownloadRecord, _ sign: Int) {
        let app = record.options.app
        if !app.isEmpty { add(sign * record.options.heldBytes(with: record.url), of: app) }
    }

    /// Adds (`sign` 1) or subtracts (-1) the bytes that `batch` holds beside its members.
    mutating func count(_ batch: BatchRecord, _ sign: Int) {
        if !batch.app.isEmpty { add(sign * batch.heldBytes, of: batch.app) }
    }

    private mutating func add(_ held: Int, of app: String) {
        guard held != 0 else { return }
        let sum = bytes(of: app) + held
        bytes[app] = sum == 0 ? nil : sum
    }

    /// The smaller of the two sets; nil if neither app nor tag is given, so that any download may match.
    func candidates(app: String?, tag: String?) -> NumberSet? {
        let ofApp = app.flatMap { $0.isEmpty ? nil : apps[$0] ?? NumberSet() }
        let ofTag = tag.flatMap { $0.isEmpty ? nil : tags[$0] ?? NumberSet() }
        return [ofApp, ofTag].compactMap { $0 }.min { $0.count < $1.count }
    }
}

extension Scheduler {
    /// The number of unfinished downloads of `app`, which is not empty, and the bytes that all its downloads and batches hold.
    public func holdings(of app: String) -> (remaining: Int, bytes: Int) {
        (index.count(of: app) - ended.count(of: app), index.bytes(of: app))
    }

    /// Above this number, sorting the candidates costs more than walking through all downloads until a caller has enough.
    private static let fewCandidates = 2000

    /// A walk over the downloads that are listed now: unfinished downloads in queue order, then ended downloads, oldest end first; or all
    /// of these in reverse.
    public struct Walk: IteratorProtocol {
        fileprivate enum Part {
            case queue(DownloadQueue.Walk)
            case numbers(ArraySlice<DownloadNumber>)
        }

        fileprivate var parts: [Part]

        public mutating func next() -> DownloadNumber? {
            while let part = parts.first {
                switch part {
                case .queue(var walk):
                    if let number = walk.next() {
                        parts[0] = .queue(walk)
                        return number
                    }
                case .numbers(var numbers):
                    if let number = numbers.popFirst() {
                        parts[0] = .numbers(numbers)
                        return number
                    }
                }
                parts.removeFirst()
            }
            return nil
        }
    }

    /// - Parameters:
    ///   - app: nil: any application. The walk may also contain downloads of other applications: check each with `listed`.
    ///   - tag: likewise.
    public func walk(app: String?, tag: String?, isReversed: Bool = false) -> Walk {
        if let candidates = index.candidates(app: app, tag: tag), candidates.count <= Self.fewCandidates {
            let sorted = candidates.compactMap { entries[$0] }.sorted { Self.comesBefore(isReversed ? $1 : $0, isReversed ? $0 : $1) }
            return Walk(parts: [.numbers(sorted.map(\.number)[...])])
        }
        let parts: [Walk.Part] = [.queue(order.walk(isReversed: isReversed)), .queue(ended.walk(isReversed: isReversed))]
        return Walk(parts: isReversed ? parts.reversed() : parts)
    }

    /// A walk over the members of `batch`, in the same order.
    public func walk(_ batch: ScheduledBatch, isReversed: Bool = false) -> Walk {
        let members = orderedMembers(of: batch)
        return Walk(parts: [.numbers(isReversed ? members.reversed()[...] : members[...])])
    }

    /// A walk over the ended downloads, oldest end first.
    public func walkOfEnded() -> Walk { Walk(parts: [.queue(ended.walk())]) }

    /// The listed download with this number, if it has `app` and `tag` (nil: any).
    public func listed(_ number: DownloadNumber, app: String?, tag: String?) -> ScheduledDownload? {
        guard let entry = entries[number], entry.isEntered, app.map({ $0 == entry.record.options.app }) ?? true,
            tag.map({ $0 == entry.record.options.tag }) ?? true
        else { return nil }
        return entry
    }

    /// At most `most` downloads of `app` (nil: any application): the first downloads of `walk`, or, of an app with many downloads, any of
    /// its downloads. Does not visit the downloads of other applications.
    public func some(_ most: Int, app: String?) -> [ScheduledDownload] {
        if let candidates = index.candidates(app: app, tag: nil), candidates.count > Self.fewCandidates {
            return candidates.prefix(most).compactMap { listed($0, app: app, tag: nil) }
        }
        var walk = walk(app: app, tag: nil)
        var found: [ScheduledDownload] = []
        while found.count < most, let number = walk.next() {
            if let entry = listed(number, app: app, tag: nil) { found.append(entry) }
        }
        return found
    }

    /// The order of `List`: `order`, then `ended`.
    private static func comesBefore(_ a: ScheduledDownload, _ b: ScheduledDownload) -> Bool {
        let (x, y) = (a.record, b.record)
        switch (x.state.hasEnded, y.state.hasEnded) {
        case (false, true): return true
        case (true, false): return false
        case (true, true): return a.ending < b.ending
        case (false, false):
            return (y.options.priority, x.position, x.number) < (x.options.priority, y.position, y.number)
        }
    }
}
