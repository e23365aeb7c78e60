internal import DownloadModel
internal import Localization
internal import TodokuClient

/// Columns with headings, aligned by display width.
struct Table {
    struct Column {
        let heading: String
        var isNumber = false
    }

    let columns: [Column]
    private var rows: [[String]] = []

    init(_ columns: [Column]) { self.columns = columns }

    mutating func add(_ cells: [String]) { rows.append(cells.map(TerminalText.plain)) }

    /// - Parameter width: the terminal's width, to which the last column is cut; nil: nothing is cut.
    func text(width: Int?) -> String {
        let all = [columns.map(\.heading)] + rows
        let widths = columns.indices.map { column in all.map { TerminalText.width($0[column]) }.max() ?? 0 }
        let before = widths.dropLast().reduce(0) { $0 + $1 + 2 }
        return all.map { cells in
            var line = ""
            for (index, cell) in cells.enumerated() {
                if index == columns.count - 1 {
                    line += width.map { TerminalText.cut(cell, to: max(8, $0 - before)) } ?? cell
                } else {
                    line += TerminalText.padded(cell, to: widths[index], right: columns[index].isNumber) + "  "
                }
            }
            while line.last == " " { line.removeLast() }
            return line + "\n"
        }.joined()
    }
}

extension Table {
    static func of(_ downloads: [DownloadDescription], _ catalog: Catalog = todoku.catalog) -> Table {
        var table = Table([
            Column(heading: catalog.text("DOWNLOAD"), isNumber: true), Column(heading: catalog.text("STATE")),
            Column(heading: "%", isNumber: true),
            Column(heading: catalog.text("SIZE"), isNumber: true), Column(heading: catalog.text("SPEED"), isNumber: true),
            Column(heading: catalog.text("NAME")),
        ])
        for download in downloads {
            table.add([
                download.reference.description, catalog.state(download.state),
                download.stageFraction.map { String(Int(clamping: $0 * 100)) } ?? "-",
                (download.total ?? (download.received > 0 ? download.received : nil)).map { catalog.size($0) } ?? "-",
                download.state == .active ? catalog.speed(download.speed) : "-", download.displayName,
            ])
        }
        return table
    }
}
