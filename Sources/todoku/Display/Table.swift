internal import DownloadModel
internal import Localization
internal import TodokuClient

/// Columns with headings, aligned by display width.
struct Table {
    struct Column {
        let heading: String
        var isNumber = false
        /// On a narrow terminal, columns are left out, the highest number first; nil: the column stays.
        var leftOut: Int?
        /// The first column only: its cells are names. A name that is cut cannot be typed, so a wide one has a line of its own on a
        /// terminal.
        var isName = false
        /// With `isName`: a wide name stays in its row if the whole row fits into the width of the terminal.
        var staysInRow = false
    }

    /// The columns to which the last column is cut before another is left out.
    private static let narrowest = 12
    /// The most columns of a name that has no line of its own, unless it stays in its row.
    private static let widestName = 12

    let columns: [Column]
    /// Above the notes, where they are a column.
    var noteHeading = ""
    private var rows: [[String]] = []
    /// The note of a row, by the row's index.
    private var notes: [Int: String] = [:]
    /// The rows whose notes a terminal leaves out.
    private var repeated: Set<Int> = []
    /// By the row's index.
    private var colours: [Int: Colour] = [:]

    init(_ columns: [Column]) { self.columns = columns }

    /// - Parameters:
    ///   - note: what a terminal shows below the row. Elsewhere each row is one line, so the note is a last column.
    ///   - isRepeated: the note of an earlier row tells a terminal's reader as much.
    ///   - colour: that of the second cell, on a terminal.
    mutating func add(_ cells: [String], note: String? = nil, isRepeated: Bool = false, colour: Colour? = nil) {
        if let note { notes[rows.count] = TerminalText.plain(note) }
        if isRepeated { repeated.insert(rows.count) }
        colours[rows.count] = colour
        rows.append(cells.map(TerminalText.plain))
    }

    /// - Parameter width: the terminal's width, which no line exceeds but that of a long name; nil: nothing is cut or left out.
    func text(width: Int?, hasColour: Bool = Terminal.hasColour) -> String {
        let all = [columns.map(\.heading)] + rows
        let widest = columns.first?.isName == true ? width.map { widestNameInRow(all, $0) } : nil
        let hasOwnLine = all.map { cells in widest.map { TerminalText.width(cells[0]) > $0 } ?? false }
        let widths = columns.indices.map { column in
            zip(all, hasOwnLine).map { cells, hasOwnLine in column == 0 && hasOwnLine ? 0 : TerminalText.width(cells[column]) }.max() ?? 0
        }
        let shown = width.map { columnsThatFit(in: $0, widths) } ?? Array(columns.indices)
        let before = shown.dropLast().reduce(0) { $0 + widths[$1] + 2 }
        let indent = String(repeating: " ", count: (widths.first ?? 0) + 2)
        return zip(all, hasOwnLine).enumerated().map { place, row in
            let (cells, hasOwnLine) = row
            var line = ""
            for index in shown {
                let cell = index == 0 && hasOwnLine ? "" : cells[index]
                if index == columns.count - 1 {
                    line += width.map { TerminalText.cut(cell, to: max(1, $0 - before)) } ?? TerminalText.padded(cell, to: widths[index])
                } else {
                    let padded = TerminalText.padded(cell, to: widths[index], right: columns[index].isNumber)
                    line += (index == 1 && hasColour ? colours[place - 1]?.paint(padded) : nil) ?? padded
                    line += "  "
                }
            }
            // The heading comes only with a note, so a script finds the other columns where they are without notes.
            if width == nil, !notes.isEmpty { line += "  " + (place == 0 ? noteHeading : notes[place - 1] ?? "") }
            while line.last == " " { line.removeLast() }
            var text = (hasOwnLine ? cells[0] + "\n" : "") + line + "\n"
            if let width, !repeated.contains(place - 1), let note = notes[place - 1] {
                text += TerminalText.wrapped(note, to: max(1, width - indent.count)).map { indent + $0 + "\n" }.joined()
            }
            return text
        }.joined()
    }

    /// The most columns of a name that has no line of its own.
    private func widestNameInRow(_ rows: [[String]], _ width: Int) -> Int {
        guard columns.first?.staysInRow == true else { return Self.widestName }
        let others = columns.indices.dropFirst().reduce(0) { sum, column in
            sum +| 2 +| (rows.map { TerminalText.width($0[column]) }.max() ?? 0)
        }
        return max(Self.widestName, width -| others)
    }

    private func columnsThatFit(in width: Int, _ widths: [Int]) -> [Int] {
        var shown = Array(columns.indices)
        func needed() -> Int { shown.dropLast().reduce(min(widths.last ?? 0, Self.narrowest)) { $0 + widths[$1] + 2 } }
        let order = columns.indices.filter { columns[$0].leftOut != nil }.sorted { (columns[$0].leftOut ?? 0) > (columns[$1].leftOut ?? 0) }
        for column in order where needed() > width { shown.removeAll { $0 == column } }
        return shown
    }
}

extension Table {
    /// With the reasons why downloads wait, stay queued or have failed. All queued downloads have one cause, so a terminal shows it once.
    ///
    /// - Parameter limits: those of the queue and of hosts, which some reasons name; nil: unknown.
    static func of(_ downloads: [DownloadDescription], _ limits: ServiceLimits? = nil, _ catalog: Catalog = todoku.catalog) -> Table {
        var table = Table([
            Column(heading: catalog.text("DOWNLOAD"), isNumber: true, isName: true), Column(heading: catalog.text("STATE")),
            Column(heading: "%", isNumber: true, leftOut: 1),
            Column(heading: catalog.text("SIZE"), isNumber: true, leftOut: 2),
            Column(heading: catalog.text("SPEED"), isNumber: true, leftOut: 3),
            Column(heading: catalog.text("NAME")),
        ])
        table.noteHeading = catalog.text("REASON")
        var isQueueExplained = false
        for download in downloads {
            let cells = [
                download.reference.description, catalog.state(download.state),
                download.stageFraction.map { String(Int(clamping: $0 * 100)) } ?? "-",
                (download.total ?? (download.received > 0 ? download.received : nil)).map { catalog.size($0) } ?? "-",
                download.state == .active ? catalog.speed(download.speed) : "-", download.displayName,
            ]
            let (reason, isQueued) = (Reason(download, limits, catalog), download.state == .queued)
            let isExplained = download.state == .waiting || download.state == .failed || isQueued && reason.obstacle != nil
            table.add(
                cells, note: isExplained ? reason.detail : nil, isRepeated: isQueued && isQueueExplained, colour: Colour(download.state))
            isQueueExplained = isQueueExplained || isQueued
        }
        return table
    }

    static func of(_ batches: [BatchDescription], _ catalog: Catalog = todoku.catalog) -> Table {
        var table = Table([
            Column(heading: catalog.text("BATCH"), isNumber: true), Column(heading: catalog.text("FINISHED"), isNumber: true),
            Column(heading: catalog.text("FAILED"), isNumber: true), Column(heading: "%", isNumber: true, leftOut: 1),
            Column(heading: catalog.text("SIZE"), isNumber: true, leftOut: 2), Column(heading: catalog.text("TITLE")),
        ])
        for batch in batches {
            table.add([
                batch.reference.description,
                catalog.text("%1$s of %2$s", catalog.count(batch.outcomes.finished), catalog.count(batch.count)),
                batch.outcomes.failed > 0 ? catalog.count(batch.outcomes.failed) : "-",
                batch.fraction.map { String(Int(clamping: $0 * 100)) } ?? "-",
                (batch.total ?? (batch.received > 0 ? batch.received : nil)).map { catalog.size($0) } ?? "-",
                batch.title.isEmpty ? "-" : batch.title,
            ])
        }
        return table
    }
}
