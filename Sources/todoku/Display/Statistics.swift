internal import DownloadModel
internal import TodokuClient

/// Counts of ended downloads: by outcome, host, application and day.
struct Statistics {
    /// What is counted of one download.
    struct Entry {
        var state = DownloadDescription.State.finished
        /// The error's name on the bus, and the server's status; nil: the download has not failed.
        var error: String?
        var httpStatus: UInt32?
        /// Bytes of the file.
        var received: ByteCount = 0
        var host = ""
        var app = ""
        var endedAt = WallTime(microseconds: 0)
    }

    struct Count: Equatable {
        var downloads: UInt64 = 0
        var failed: UInt64 = 0
        var cancelled: UInt64 = 0
        var received: ByteCount = 0

        mutating func add(_ entry: Entry) {
            downloads += 1
            if entry.state == .failed { failed += 1 }
            if entry.state == .cancelled { cancelled += 1 }
            received +|= entry.received
        }
    }

    /// How downloads ended. Failures with different errors or statuses differ.
    struct Outcome: Hashable {
        let state: String
        let error: String?
        let httpStatus: UInt32?
    }

    private(set) var all = Count()
    private(set) var outcomes: [Outcome: Count] = [:]
    private(set) var hosts: [String: Count] = [:]
    private(set) var apps: [String: Count] = [:]
    /// By the local date, "2026-11-28".
    private(set) var days: [String: Count] = [:]
    private(set) var first: WallTime?

    /// - Parameter since: only downloads that ended then or later; nil: all.
    init(_ entries: [Entry], since: WallTime?) {
        for entry in entries where since.map({ entry.endedAt >= $0 }) ?? true {
            all.add(entry)
            let outcome = Outcome(state: entry.state.name, error: entry.error, httpStatus: entry.httpStatus)
            outcomes[outcome, default: Count()].add(entry)
            hosts[entry.host, default: Count()].add(entry)
            apps[entry.app, default: Count()].add(entry)
            days[Self.day(of: entry.endedAt), default: Count()].add(entry)
            first = min(first ?? entry.endedAt, entry.endedAt)
        }
    }

    static func day(of time: WallTime) -> String { String(Clock.text(time).prefix { $0 != " " }) }

    /// Most days of a plot.
    static let mostDays = 31

    /// The days from the first end to `now`, also those without an end, at most the last `mostDays`.
    func daysInOrder(now: WallTime) -> [String] {
        guard let first else { return [] }
        var days: [String] = []
        // Half a day at a time, because a day may have 23 hours.
        var time = max(first, now + .seconds(-(Self.mostDays - 1) * 24 * 3600))
        while time < now {
            let day = Self.day(of: time)
            if days.last != day { days.append(day) }
            time = time + .seconds(12 * 3600)
        }
        let today = Self.day(of: now)
        if days.last != today { days.append(today) }
        return days.suffix(Self.mostDays)
    }

    /// Finished ones first, then failures, the most frequent first, then the others.
    var outcomesInOrder: [(Outcome, Count)] {
        func rank(_ outcome: Outcome) -> Int { ["finished", "failed"].firstIndex(of: outcome.state) ?? 2 }
        func name(_ outcome: Outcome) -> String { "\(outcome.state) \(outcome.error ?? "") \(outcome.httpStatus ?? 0)" }
        return outcomes.map { ($0.key, $0.value) }.sorted { a, b in
            if rank(a.0) != rank(b.0) { return rank(a.0) < rank(b.0) }
            if a.1.downloads != b.1.downloads { return a.1.downloads > b.1.downloads }
            return name(a.0) < name(b.0)
        }
    }

    /// The most bytes first.
    static func inOrder(_ counts: [String: Count]) -> [(String, Count)] {
        counts.map { ($0.key, $0.value) }.sorted { a, b in
            if a.1.received != b.1.received { return a.1.received > b.1.received }
            if a.1.downloads != b.1.downloads { return a.1.downloads > b.1.downloads }
            return a.0 < b.0
        }
    }
}

extension Statistics.Entry {
    /// nil: the download has not ended.
    init?(_ download: DownloadDescription) {
        guard download.state.hasEnded else { return nil }
        (state, received, app) = (download.state, download.received, download.app)
        error = download.state == .failed ? download.error?.name : nil
        httpStatus = download.state == .failed ? download.error?.httpStatus : nil
        host = (try? DownloadURL(download.url))?.host ?? ""
        endedAt = download.endedAt ?? WallTime(microseconds: 0)
    }
}

extension Statistics {
    /// Numbers are bytes, or microseconds since the Unix epoch. Days are local dates.
    func json(since: WallTime?) -> JSON {
        func named(_ key: String, _ counts: [(String, Count)]) -> JSON {
            .array(counts.map { name, count in .object(count.json(after: [(key, .string(name))])) })
        }
        let outcomes: [JSON] = outcomesInOrder.map { outcome, count in
            .object(
                count.json(after: [
                    ("state", .string(outcome.state)), ("error", JSON(outcome.error)), ("http-status", JSON(outcome.httpStatus)),
                ]))
        }
        var members = all.json(after: [("since", JSON(since?.microseconds))])
        members.append(("outcomes", .array(outcomes)))
        members.append(("hosts", named("host", Self.inOrder(hosts))))
        members.append(("apps", named("app", Self.inOrder(apps))))
        members.append(("days", named("day", days.map { ($0.key, $0.value) }.sorted { $0.0 < $1.0 })))
        return .object(members)
    }
}

extension Statistics.Count {
    /// The counts behind other members.
    fileprivate func json(after members: [(String, JSON)]) -> [(String, JSON)] {
        var members = members
        members.append(("downloads", .unsigned(downloads)))
        members.append(("failed", .unsigned(failed)))
        members.append(("cancelled", .unsigned(cancelled)))
        members.append(("received", .unsigned(received)))
        return members
    }
}
