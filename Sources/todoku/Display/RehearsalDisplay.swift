internal import DownloadModel
internal import Localization
internal import Rehearsal
internal import TodokuClient

/// The scenarios, for `todoku rehearse --list`.
enum ScenarioList {
    static var text: String { Scenario.Kind.allCases.map { lines(of: $0) }.joined() }

    private static func lines(of kind: Scenario.Kind) -> String {
        "\(kind.rawValue)\n  \(catalog.sentence(kind.sentence))\n\(kind.parameters.map { line(of: $0) }.joined())"
    }

    private static func line(of parameter: Scenario.Kind.Parameter) -> String {
        let value = parameter.bounds == nil ? "PATH" : String(parameter.standard)
        return "    \(parameter.key)=\(value)  \(catalog.sentence(parameter.meaning))\n"
    }

    static var json: JSON { .array(Scenario.Kind.allCases.map { object(of: $0) }) }

    private static func object(of kind: Scenario.Kind) -> JSON {
        .object([
            ("scenario", .string(kind.rawValue)), ("meaning", .string(kind.sentence)),
            ("parameters", .array(kind.parameters.map { object(of: $0) })),
        ])
    }

    private static func object(of parameter: Scenario.Kind.Parameter) -> JSON {
        .object([
            ("key", .string(parameter.key)), ("default", parameter.bounds == nil ? .null : .unsigned(parameter.standard)),
            ("meaning", .string(parameter.meaning)),
        ])
    }
}

/// The summary of a rehearsal. It is in English, because programs read it, and people far from this machine (docs/decisions/0009).
struct RehearsalDisplay {
    let scenario: Scenario
    /// The exit status of the command.
    let status: Int32
    let report: RehearsalReport
    /// The downloads as the service describes them at the end.
    var found: [DownloadDescription] = []
    /// What went wrong with the rehearsal itself: a sentence each.
    var complaints: [String] = []

    /// Whether the fault of the scenario has happened.
    var hasPlayed: Bool { scenario.kind == .none || report.played > 0 }

    /// Each download with the signals that the bus passed on, and with its present description; nil: it was removed.
    private var downloads: [Row] {
        var unheard: [String: DownloadDescription] = [:]
        for download in found { unheard[download.reference.path] = download }
        var rows = report.downloads.map { heard in Row(heard: heard, now: unheard.removeValue(forKey: heard.path)) }
        for download in found where unheard[download.reference.path] != nil {
            rows.append(Row(heard: RehearsalReport.Download(path: download.reference.path), now: download))
        }
        return rows
    }

    private struct Row {
        let heard: RehearsalReport.Download
        let now: DownloadDescription?
    }

    // MARK: Text

    var text: String {
        var lines = [headline]
        if report.serviceStarts > 1 { lines.append("  the service was started \(report.serviceStarts) times") }
        lines.append("  calls: \(report.calls.isEmpty ? "none" : report.calls.map { call($0) }.joined(separator: ", "))")
        lines.append("  requests: \(report.requests.isEmpty ? "none" : requests)")
        lines.append(contentsOf: downloads.map { Self.line($0) })
        lines.append(contentsOf: complaints.map { "todoku: \($0)" })
        return lines.map { TerminalText.plain($0) + "\n" }.joined()
    }

    private var headline: String {
        let end = "the command ended with \(status)"
        guard scenario.kind != .none else { return "todoku: rehearsal “none”: \(end)" }
        guard hasPlayed else {
            return "todoku: rehearsal “\(scenario)”: nothing went wrong, because no download reached the fault; \(end)"
        }
        let times = report.played == 1 ? "once" : "\(report.played) times"
        return "todoku: rehearsal “\(scenario)”: the fault happened \(times); \(end)"
    }

    /// “Wait 2 (1 NoReply)”.
    private func call(_ call: RehearsalReport.Call) -> String {
        let errors = call.errors.sorted { $0.key < $1.key }.map { "\($0.value) \(Self.short($0.key))" }
        return "\(call.member) \(call.count)" + (errors.isEmpty ? "" : " (\(errors.joined(separator: ", ")))")
    }

    /// “/file 503 503 200, /small 200”: the first requests of each path.
    private var requests: String {
        var order: [String] = []
        var answers: [String: [Int]] = [:]
        for request in report.requests {
            if answers[request.path] == nil { order.append(request.path) }
            answers[request.path, default: []].append(request.status)
        }
        let shown = order.prefix(20).map { path in
            let all = answers[path] ?? []
            return "\(path) \(all.prefix(10).map { String($0) }.joined(separator: " "))\(all.count > 10 ? " …" : "")"
        }
        return "\(shown.joined(separator: ", "))\(order.count > shown.count ? ", …" : "")"
    }

    private static func line(_ row: Row) -> String {
        let (heard, now) = (row.heard, row.now)
        let name = DownloadReference(heard.path)?.description ?? heard.path
        var parts = heard.ends.map { end in
            end.outcome == "failed" ? failure(end.error, end.message) : end.outcome
        }
        if let now, !now.state.hasEnded {
            let reason = now.waitReason.map { " (\($0))" } ?? ""
            parts.append("\(now.state.name)\(reason) when the command ended")
        } else if let now, parts.isEmpty {
            // The service died after the end, and before the signals about it.
            parts.append(now.error.map { failure($0.name, $0.message) } ?? now.state.name)
        } else if parts.isEmpty {
            parts.append("removed")
        }
        let waits = heard.waits.isEmpty ? "" : "; it waited: \(heard.waits.joined(separator: ", "))"
        let what = now.map { " \($0.displayName)" } ?? ""
        return "  download \(name)\(what): \(parts.joined(separator: ", then "))\(waits)"
    }

    /// Without the stop of the message, because more may follow.
    private static func failure(_ name: String, _ message: String) -> String { "failed, \(short(name)): \(message.withoutStop)" }

    /// “HttpStatus” of “org.todoku.Error.HttpStatus”.
    private static func short(_ name: String) -> String { name.split(separator: ".").last.map(String.init) ?? name }

    // MARK: JSON

    var json: JSON {
        .object([
            ("scenario", .string(scenario.kind.rawValue)),
            ("parameters", .object(scenario.parameters.map { ($0.key, .unsigned($0.value)) })),
            ("played", .unsigned(report.played)), ("status", .integer(Int64(clamping: status))),
            ("service-starts", .unsigned(UInt64(clamping: report.serviceStarts))),
            ("calls", .array(report.calls.map { Self.json($0) })), ("requests", .array(report.requests.map { Self.json($0) })),
            ("request-count", .unsigned(UInt64(clamping: report.requestCount))),
            ("downloads", .array(downloads.map { Self.json($0) })), ("complaints", .array(complaints.map { .string($0) })),
        ])
    }

    private static func json(_ call: RehearsalReport.Call) -> JSON {
        let errors = call.errors.sorted { $0.key < $1.key }.map { ($0.key, JSON.unsigned(UInt64(clamping: $0.value))) }
        return .object([
            ("method", .string(call.member)), ("count", .unsigned(UInt64(clamping: call.count))), ("errors", .object(errors)),
        ])
    }

    private static func json(_ request: RehearsalReport.Request) -> JSON {
        .object([
            ("method", .string(request.method)), ("path", .string(request.path)), ("range", JSON(request.range)),
            ("status", .integer(Int64(clamping: request.status))),
        ])
    }

    private static func json(_ row: Row) -> JSON {
        let ends = row.heard.ends.map { end in
            JSON.object([("outcome", .string(end.outcome)), ("error", .string(end.error)), ("message", .string(end.message))])
        }
        return .object([
            ("object-path", .string(row.heard.path)), ("waits", .array(row.heard.waits.map { .string($0) })), ("ends", .array(ends)),
            ("now", row.now.map { .object($0.json) } ?? .null),
        ])
    }
}
