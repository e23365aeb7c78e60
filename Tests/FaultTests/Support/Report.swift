internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// Serial, because each part by itself uses both processors. Disabled under sanitizers, which intercept the same calls as the shim: the
/// release build runs the campaign.
@Suite(.serialized, .disabled(if: underSanitizer() != nil, "the shim and a sanitizer intercept the same calls"))
struct `The fault campaign` {}

/// How much of the campaign runs: all of it (`TODOKU_FAULTS=full`), or a sample that fits into CI.
enum Length {
    static let isFull: Bool = {
        switch getenv("TODOKU_FAULTS").map({ String(cString: $0) }) ?? "" {
        case "full": return true
        case "", "short": return false
        case let other: preconditionFailure("TODOKU_FAULTS is full or short, not \(other)")
        }
    }()
    /// A seed other than CI's, for runs at night.
    static let seed = getenv("TODOKU_FAULTS_SEED").flatMap { UInt64(String(cString: $0)) } ?? 1
    /// How many cases run at a time. They wait more than they compute.
    static let lanes = getenv("TODOKU_FAULTS_LANES").flatMap { Int(String(cString: $0)) } ?? 8

    /// The file with the table. Runs side by side need one each.
    static let table = getenv("TODOKU_FAULTS_TABLE").map { String(cString: $0) } ?? "fault-campaign.md"

    /// The cases to run, by how their names begin in the list of wrong ones: `TODOKU_FAULTS_CASE="eio at call 15"`.
    static let only = getenv("TODOKU_FAULTS_CASE").map { String(cString: $0) }

    /// In a short run, at most `count` of `all`, evenly spread; in a full run, all.
    static func sample<Case>(_ all: [Case], _ count: Int) -> [Case] {
        guard !isFull, only == nil, all.count > count else { return all }
        return (0..<count).map { all[$0 * all.count / count] }
    }
}

/// The result of a case.
struct Verdict: Sendable {
    /// The row of the table that the case belongs to.
    var row: String
    /// The exact case, so that it can be run again.
    var name: String
    /// Files that were right byte for byte.
    var right = 0
    /// Reported errors, each with a clear sentence.
    var errors = 0
    /// Waits that ended by themselves.
    var waits = 0
    /// The failures. Empty: the case has passed.
    var wrong: [String] = []
    /// Facts that help to understand the case.
    var note = ""
    var isKnown: Bool { !wrong.isEmpty && wrong.allSatisfy { KnownDefect.explains($0) } }
    var words: String { "\(row), \(name): \(wrong.joined(separator: "; "))\(note.isEmpty ? "" : " (\(note))")" }
    /// Whether the fault hit a call.
    var wasMet = true
    /// Whether a step took too long.
    private(set) var isLate = false

    mutating func expect(_ condition: Bool, _ words: @autoclosure () -> String) { if !condition { wrong.append(words()) } }
    /// Expects that a step took less time than `limit`. If it took longer, the case runs again, because the machine may have paused.
    mutating func expect(_ step: String, took time: Duration, lessThan limit: Duration) {
        isLate = isLate || time >= limit
        expect(time < limit, "\(step) took \(time)")
    }
    /// Counts a reported error, and checks that its sentence is clear.
    mutating func tell(_ message: String, _ whom: String) {
        errors += 1
        expect(isClear(message), "\(whom) was told “\(message)”")
    }
}

/// Gathers verdicts and writes the table.
@BusActor final class Report {
    private struct Row {
        var tried = 0, right = 0, errors = 0, waits = 0, known = 0, wrong = 0
    }
    private static var sections: [(title: String, text: String)] = []

    private let title: String
    private let notes: String
    private var order: [String] = []
    private var rows: [String: Row] = [:]
    private var wrong: [Verdict] = []
    private var known: [Verdict] = []
    private let begun = ContinuousClock.now
    private var written = ContinuousClock.now

    init(_ title: String, notes: String) { (self.title, self.notes) = (title, notes) }

    func take(_ verdict: Verdict) {
        guard verdict.wasMet else { return }
        defer { writeNowAndThen() }
        if rows[verdict.row] == nil { order.append(verdict.row) }
        rows[verdict.row, default: Row()].tried += 1
        rows[verdict.row]?.right += verdict.right
        rows[verdict.row]?.errors += verdict.errors
        rows[verdict.row]?.waits += verdict.waits
        guard !verdict.wrong.isEmpty else { return }
        if verdict.isKnown {
            rows[verdict.row]?.known += 1
            known.append(verdict)
        } else {
            rows[verdict.row]?.wrong += 1
            wrong.append(verdict)
        }
    }

    /// A campaign of hours leaves a table also if it is stopped.
    private func writeNowAndThen() {
        guard ContinuousClock.now - written >= .seconds(60) else { return }
        _ = write(hasEnded: false)
    }

    /// Writes the table with all sections so far. Fails the test if anything was wrong, or nothing was tried.
    ///
    /// - Parameter expected: rows that must not be empty, because the fault must have hit something.
    func finish(expecting expected: [String] = []) {
        let tried = write(hasEnded: true)
        for name in expected where Length.only == nil { #expect(rows[name] != nil, "no case of “\(name)” was met") }
        #expect(tried > 0 || Length.only != nil, "no case of “\(title)” was tried")
        for verdict in wrong.prefix(40) { Issue.record("\(verdict.words)") }
        if wrong.count > 40 { Issue.record("and \(wrong.count - 40) more cases: see \(Length.table)") }
    }

    /// - Returns: how many cases were tried.
    private func write(hasEnded: Bool) -> Int {
        written = .now
        var text = "| case | tried | right files | clear errors | waits | known | wrong |\n|---|--:|--:|--:|--:|--:|--:|\n"
        var sum = Row()
        for name in order.sorted() {
            guard let row = rows[name] else { continue }
            text += "| \(name) | \(row.tried) | \(row.right) | \(row.errors) | \(row.waits) | \(row.known) | \(row.wrong) |\n"
            sum.tried += row.tried
            sum.right += row.right
            sum.errors += row.errors
            sum.waits += row.waits
            sum.known += row.known
            sum.wrong += row.wrong
        }
        let sums = [sum.tried, sum.right, sum.errors, sum.waits, sum.known, sum.wrong].map { "**\($0)**" }
        text += "| **all** | \(sums.joined(separator: " | ")) |\n"
        let seconds = (ContinuousClock.now - begun) / .seconds(1)
        let length = "\(Length.isFull ? "Full" : "Short") length\(hasEnded ? "" : ", not at its end yet")"
        text += "\n\(notes) \(length), seed \(Length.seed), \(Int(seconds)) s.\n"
        if !wrong.isEmpty { text += "\nWrong:\n\n" + wrong.map { "- \($0.words)\n" }.joined() }
        if !known.isEmpty { text += "\nKnown and not mended yet:\n\n" + known.map { "- \($0.words)\n" }.joined() }
        Self.sections.removeAll { $0.title == title }
        Self.sections.append((title, text))
        let page = "# Fault campaign\n\n" + Self.sections.map { "## \($0.title)\n\n\($0.text)" }.joined(separator: "\n")
        writeFile(productPath(Length.table), page.utf8)
        return sum.tried
    }
}

/// Runs cases on `Length.lanes` buses, each case on the first free lane.
@BusActor func runCases<Case: Sendable>(
    _ cases: [Case], _ report: Report, lanes: Int = Length.lanes, _ run: @escaping @BusActor @Sendable (Case, Lane) async throws -> Verdict
) async throws {
    let shim = try await Shim.compiled()
    let queue = CaseQueue(cases)
    try await withThrowingTaskGroup(of: Void.self) { group in
        for _ in 0..<min(lanes, cases.count) {
            group.addTask { try await work(on: queue, shim, report, run) }
        }
        try await group.waitForAll()
    }
}

@BusActor private func work<Case: Sendable>(
    on queue: CaseQueue<Case>, _ shim: Shim, _ report: Report, _ run: @BusActor @Sendable (Case, Lane) async throws -> Verdict
) async throws {
    let lane = try await Lane(shim)
    while let next = queue.next() {
        // One case may try several things, and look at the rest of the name by itself.
        if let only = Length.only, !"\(next)".hasPrefix(only), !only.hasPrefix("\(next)") { continue }
        do {
            var verdict = try await runOnce(next, lane, run)
            // A pause of the machine makes a step late in one run, and a fault makes it late in each.
            for _ in 0..<4 where verdict.isLate {
                print("faults: runs again, because a step came late: \(verdict.words)")
                verdict = try await runOnce(next, lane, run)
            }
            report.take(verdict)
        } catch {
            report.take(Verdict(row: "the test itself", name: "\(next)", wrong: ["\(error)"]))
        }
        if lane.isRunning { await lane.end(SIGKILL) }
    }
}

/// Runs a case, after the daemon of the former run has ended.
@BusActor private func runOnce<Case: Sendable>(
    _ test: Case, _ lane: Lane, _ run: @BusActor @Sendable (Case, Lane) async throws -> Verdict
) async throws -> Verdict {
    if lane.isRunning { await lane.end(SIGKILL) }
    lane.begin()
    return try await run(test, lane)
}

@BusActor private final class CaseQueue<Case: Sendable> {
    private var rest: ArraySlice<Case>
    nonisolated init(_ cases: [Case]) { rest = cases[...] }
    func next() -> Case? { rest.popFirst() }
}
