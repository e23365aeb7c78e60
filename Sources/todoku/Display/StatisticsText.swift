internal import DownloadModel
internal import Localization
internal import TodokuClient

/// Statistics as tables, and as bars on a terminal.
extension Statistics {
    /// Most hosts and applications in a table; JSON has all.
    private static let mostRows = 20

    /// - Parameters:
    ///   - app: the application whose downloads were counted; nil: all.
    ///   - width: the terminal's width; nil: no terminal, so there is no plot, and nothing is cut.
    ///   - now: the last day of the plot.
    func text(
        since: WallTime?, app: String? = nil, width: Int?, isUTF8: Bool, now: WallTime, _ catalog: Catalog = todoku.catalog
    ) -> String {
        let size = catalog.size(all.received)
        guard all.downloads > 0 else {
            let isOfAll = since == nil && app == nil
            return (isOfAll ? catalog.text("No download on the list has ended.") : catalog.text("There are no such downloads.")) + "\n"
        }
        let head =
            if let since {
                catalog.text(
                    "%1$s download has ended since %2$s: %3$s", "%1$s downloads have ended since %2$s: %3$s", count: all.downloads,
                    Clock.text(since), size)
            } else {
                catalog.text(
                    "%1$s download on the list has ended: %2$s", "%1$s downloads on the list have ended: %2$s", count: all.downloads, size)
            }
        var parts = [head + "\n", outcomeTable(catalog).text(width: width), hostTable(catalog).text(width: width)]
        if apps.count > 1 { parts.append(appTable(catalog).text(width: width)) }
        if let width { parts.append(plot(width: width, isUTF8: isUTF8, now: now, catalog)) }
        let note = catalog.text(
            "The list keeps ended downloads for 30 days, 10,000 at most. Downloads that were removed from it are not counted.")
        parts.append((width.map { TerminalText.wrapped(note, to: max(1, $0)) } ?? [note]).map { $0 + "\n" }.joined())
        return parts.joined(separator: "\n")
    }

    private func outcomeTable(_ catalog: Catalog) -> Table {
        var table = Table([
            Table.Column(heading: catalog.text("DOWNLOADS"), isNumber: true), Table.Column(heading: catalog.text("SIZE"), isNumber: true),
            Table.Column(heading: catalog.text("OUTCOME")),
        ])
        for (outcome, count) in outcomesInOrder {
            table.add([catalog.count(count.downloads), catalog.size(count.received), Self.text(outcome, catalog)])
        }
        return table
    }

    /// "failed: The server answered with an error (HTTP 404)".
    private static func text(_ outcome: Outcome, _ catalog: Catalog) -> String {
        let state = catalog.state(DownloadDescription.State(outcome.state))
        guard let error = outcome.error else { return state }
        let prefix = "org.todoku.Error."
        let known = error.hasPrefix(prefix) ? ErrorName(rawValue: String(error.dropFirst(prefix.utf8.count))) : nil
        return "\(state): \(known.map { catalog.reason($0, httpStatus: outcome.httpStatus).withoutStop } ?? error)"
    }

    private func hostTable(_ catalog: Catalog) -> Table { Self.table(hosts, heading: catalog.text("HOST"), catalog) }
    private func appTable(_ catalog: Catalog) -> Table { Self.table(apps, heading: catalog.text("APP"), catalog) }

    private static func table(_ counts: [String: Count], heading: String, _ catalog: Catalog) -> Table {
        var table = Table([
            Table.Column(heading: catalog.text("DOWNLOADS"), isNumber: true),
            Table.Column(heading: catalog.text("FAILED"), isNumber: true, leftOut: 1),
            Table.Column(heading: catalog.text("SIZE"), isNumber: true), Table.Column(heading: heading),
        ])
        func add(_ name: String, _ count: Count) {
            table.add([catalog.count(count.downloads), catalog.count(count.failed), catalog.size(count.received), name])
        }
        let ordered = inOrder(counts)
        for (name, count) in ordered.prefix(mostRows) { add(name.isEmpty ? "-" : name, count) }
        let rest = ordered.dropFirst(mostRows)
        guard !rest.isEmpty else { return table }
        var sum = Count()
        for (_, count) in rest { sum.add(count) }
        add(catalog.text("%1$s other", "%1$s others", count: UInt64(rest.count)), sum)
        return table
    }

    // MARK: The plot

    /// A bar for the bytes of each day.
    func plot(width: Int, isUTF8: Bool, now: WallTime, _ catalog: Catalog = todoku.catalog) -> String {
        let rows = daysInOrder(now: now).map { day in (String(day.suffix(5)), days[day]?.received ?? 0) }
        let most = rows.map { $0.1 }.max() ?? 0
        let sizes = rows.map { catalog.size($0.1) }
        let widest = sizes.map { TerminalText.width($0) }.max() ?? 0
        // "11-28  ████  1.2 GiB"
        let room = max(1, width - 5 - 2 - 2 - widest)
        return zip(rows, sizes).map { row, size in
            let bar = Self.bar(row.1, of: most, columns: room, isUTF8: isUTF8)
            return "\(row.0)  \(bar)\(bar.isEmpty ? "" : "  ")\(size)\n"
        }.joined()
    }

    /// The partial blocks of Unicode, from one to seven eighths of a column (U+258F to U+2589).
    private static let eighths = ["▏", "▎", "▍", "▌", "▋", "▊", "▉"]

    /// A bar of at most `columns`, in proportion to `value`; empty for 0.
    static func bar(_ value: ByteCount, of most: ByteCount, columns: Int, isUTF8: Bool) -> String {
        guard value > 0, most > 0 else { return "" }
        let part = min(1, Double(value) / Double(most)) * Double(columns)
        guard isUTF8 else { return String(repeating: "#", count: max(1, Int(clamping: part.rounded()))) }
        let steps = max(1, Int(clamping: (part * 8).rounded()))
        return String(repeating: "█", count: steps / 8) + (steps % 8 > 0 ? eighths[steps % 8 - 1] : "")
    }
}

extension Statistics.Count {
    /// Adds the sum of other downloads.
    fileprivate mutating func add(_ other: Statistics.Count) {
        downloads +|= other.downloads
        failed +|= other.failed
        cancelled +|= other.cancelled
        received +|= other.received
    }
}
