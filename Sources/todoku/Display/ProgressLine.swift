internal import DownloadModel
internal import Localization
internal import TodokuClient

extension DownloadDescription {
    /// The progress of the download or, once that is complete, of its extraction. nil: unknown.
    var stageFraction: Double? { state == .extracting ? extracted ?? 0 : fraction }
    /// The progress of the extraction; nil: the archive is not being unpacked.
    var extractedPercent: Int? { state == .extracting ? extracted.map { Int(clamping: $0 * 100) } : nil }
}

/// One download on a line of a terminal, and one that waits or is queued with a long cause on several lines. Pure.
struct ProgressLine {
    /// Whether the terminal shows more than ASCII.
    let utf8: Bool
    var catalog: Catalog = todoku.catalog
    /// The number of drawings, which moves the bar while the total is unknown.
    var turn = 0
    /// Wall clock, microseconds since the epoch: for the end of a wait.
    var now: UInt64 = 0
    /// For the reasons of waits and of queued downloads; nil: not known yet.
    var limits: ServiceLimits?

    private static let gap = 2
    private static let leastName = 12
    private static let longestName = 40
    private static let leastBar = 6
    private static let longestBar = 30
    /// Columns of percentage, sizes, speed and time left. If the line is too narrow, fields are dropped from the right.
    private static let fields = [5, 15, 12, 16]
    /// The fewest fields of a line that has the word of a state, which is in the place of the speed.
    private static let fieldsWithState = 3

    /// The widths of a line's parts, equal for all lines of a terminal.
    private struct Layout {
        var name: Int
        /// 0: there is no room for a bar.
        var bar: Int
        var fields: Int

        init(columns: Int) {
            var count = ProgressLine.fields.count
            func width() -> Int { ProgressLine.fields[..<count].reduce(0) { $0 + $1 + ProgressLine.gap } }
            while count > 1, width() + leastName + gap + leastBar > columns { count -= 1 }
            fields = count
            let room = max(0, columns - width())
            bar = room >= leastName + gap + leastBar ? min(longestBar, max(leastBar, room / 2 - gap)) : 0
            name = min(longestName, bar > 0 ? room - bar - gap : room)
        }
    }

    /// The lines, each at most `columns` wide. A wait has as many lines as its cause and its next try need, and so has a queued download;
    /// all else has one line.
    ///
    /// - Parameters:
    ///   - speed: nil if no byte came for a while.
    ///   - rows: the most lines. A cause that needs more is cut.
    ///   - tellsQueue: whether a queued download tells its cause. The cause is the same for all of them.
    func lines(_ download: DownloadDescription, speed: Speed?, columns: Int, rows: Int, tellsQueue: Bool = true) -> [String] {
        let layout = Layout(columns: columns)
        let ellipsis = utf8 ? "…" : "..."
        let name = TerminalText.cut(TerminalText.plain(download.displayName), to: layout.name, ellipsis: ellipsis)
        var line = TerminalText.padded(name, to: layout.name)
        switch download.state {
        case .active, .verifying, .extracting, .paused:
            if download.state != .active, layout.fields < Self.fieldsWithState {
                return [narrow(download, name, layout, columns: columns)]
            }
            if layout.bar > 0 { line += "  " + bar(download, columns: layout.bar) }
            var fields = [TerminalText.padded(percent(download) ?? "", to: Self.fields[0], right: true), sizes(download)]
            if download.state == .active {
                fields += [catalog.speed(speed ?? 0), timeLeft(download, speed: speed) ?? ""]
            } else {
                fields.append(catalog.state(download.state))
            }
            for (field, width) in zip(fields, Self.fields).prefix(layout.fields) { line += "  " + TerminalText.padded(field, to: width) }
        case .waiting: return TerminalText.hanging(waitText(download), behind: line, to: columns, rows: rows, ellipsis: ellipsis)
        case .queued where tellsQueue:
            let text = withObstacle(catalog.state(.queued), download)
            return TerminalText.hanging(text, behind: line, to: columns, rows: rows, ellipsis: ellipsis)
        default: line += "  " + catalog.state(download.state)
        }
        while line.last == " " { line.removeLast() }
        return [TerminalText.cut(line, to: columns, ellipsis: ellipsis)]
    }

    /// The line of a download whose state's word has no room behind bar and sizes. The word takes the place of the sizes, else of the bar.
    private func narrow(_ download: DownloadDescription, _ name: String, _ layout: Layout, columns: Int) -> String {
        let ellipsis = utf8 ? "…" : "..."
        let word = catalog.state(download.state)
        let percent = TerminalText.padded(percent(download) ?? "", to: Self.fields[0], right: true)
        let head = TerminalText.padded(name, to: layout.name)
        var line: String
        if layout.fields > 1 {
            line = head + "  " + bar(download, columns: layout.bar) + "  " + percent + "  " + word
        } else if layout.bar > 0 {
            line = head + "  " + word
            let whole = line + "  " + percent
            if TerminalText.width(whole) <= columns { line = whole }
        } else {
            let room = columns -| TerminalText.width(word) -| Self.gap
            line = room > 0 ? TerminalText.cut(name, to: room, ellipsis: ellipsis) + "  " + word : word
        }
        while line.last == " " { line.removeLast() }
        return TerminalText.cut(line, to: columns, ellipsis: ellipsis)
    }

    private func bar(_ download: DownloadDescription, columns: Int) -> String {
        let (full, empty) = utf8 ? ("█", "░") : ("#", "-")
        guard let fraction = download.stageFraction else {
            // A block that moves back and forth: bytes come, but the total is unknown.
            let block = max(2, columns / 5)
            let way = columns - block
            let place = download.state == .active ? turn % (2 * way) : 0
            let offset = place <= way ? place : 2 * way - place
            return String(repeating: empty, count: offset) + String(repeating: full, count: block)
                + String(repeating: empty, count: way - offset)
        }
        let done = Int(clamping: fraction * Double(columns))
        return String(repeating: full, count: done) + String(repeating: empty, count: columns - done)
    }

    /// Rounded down, so that 100 % means the whole file.
    private func percent(_ download: DownloadDescription) -> String? {
        download.stageFraction.map { catalog.percent(Int(clamping: $0 * 100)) }
    }

    /// "1.5/30.0 MiB": the received bytes in the unit of the total.
    private func sizes(_ download: DownloadDescription) -> String {
        guard let total = download.total else { return catalog.size(download.received) }
        let whole = catalog.size(total)
        let units = [" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"]
        guard let power = units.lastIndex(where: whole.hasSuffix), power > 0 else { return "\(download.received)/\(whole)" }
        let tenths = Int(clamping: (Double(download.received) / Double(UInt64(1) << (10 * UInt64(power))) * 10).rounded(.down))
        return "\(tenths / 10)\(catalog.numbers.point)\(tenths % 10)/\(whole)"
    }

    private func timeLeft(_ download: DownloadDescription, speed: Speed?) -> String? {
        guard let total = download.total, let speed, speed > 0, total > download.received else { return nil }
        let seconds = (total -| download.received) / speed
        guard seconds < 100 * 86_400 else { return nil }
        return catalog.text("%1$s left", catalog.duration(.seconds(Int64(seconds) + 1)))
    }

    /// Why the download waits, and until when.
    private func waitText(_ download: DownloadDescription) -> String {
        switch download.waitReason {
        case "retry":
            return withCause(
                left(download).map { catalog.text("trying again in %1$s", $0) } ?? catalog.text("waiting to try again"), download)
        case "offline":
            return left(download).map { catalog.text("offline, trying again in %1$s", $0) }
                ?? catalog.text("offline, waiting to try again")
        case "rate-limit":
            let turn = left(download).map { catalog.text("its turn in %1$s", $0) }
            return withObstacle(turn ?? catalog.text("waiting for its turn"), download)
        case "host-limit": return withObstacle(catalog.text("waiting for its turn"), download)
        case "metered": return catalog.text("waiting for an unmetered connection")
        case "not-before":
            return download.waitUntil.map { catalog.text("waiting until %1$s", Clock.text($0)) } ?? catalog.text("waiting until its time")
        case "disk-space":
            return download.error?.missingBytes.map { catalog.text("waiting for space: %1$s missing", catalog.size($0)) }
                ?? catalog.text("waiting for disk space")
        case "destination":
            return withCause(
                left(download).map { catalog.text("trying again in %1$s", $0) } ?? catalog.text("waiting for its folder"), download)
        case "needs-url": return catalog.text("waiting for a fresh link (todoku renew)")
        case "paused-all": return catalog.text("paused with everything (todoku resume --all)")
        case let reason: return catalog.text("waiting: %1$s", catalog.waitReason(reason ?? ""))
        }
    }

    /// The time up to the end of the wait; nil: not known, or over.
    private func left(_ download: DownloadDescription) -> String? {
        guard let until = download.waitUntil?.microseconds, until > now else { return nil }
        return catalog.duration(.microseconds(Int64(clamping: until - now)))
    }

    /// "…: example.org allows one request a second".
    private func withObstacle(_ text: String, _ download: DownloadDescription) -> String {
        Reason(download, limits, catalog).obstacle.map { catalog.text("%1$s: %2$s", text, TerminalText.plain($0)) } ?? text
    }

    /// "…: the server refused the connection".
    private func withCause(_ text: String, _ download: DownloadDescription) -> String {
        download.error.map { catalog.text("%1$s: %2$s", text, TerminalText.plain(catalog.explanation($0).withoutStop)) } ?? text
    }

    /// The line that stays after a download has finished or was cancelled.
    static func end(_ download: DownloadDescription, _ catalog: Catalog = todoku.catalog) -> String {
        let name = TerminalText.plain(download.displayName)
        guard download.state == .finished else { return "\(catalog.state(download.state))  \(name)" }
        let text = "\(catalog.state(.finished))  \(TerminalText.plain(download.path ?? name))  "
        if download.isUnchanged { return text + catalog.text("was there already") }
        let size = catalog.size(download.received)
        if let started = download.startedAt, let ended = download.endedAt, ended > started {
            let time = catalog.duration(.microseconds(Int64(clamping: ended.microseconds - started.microseconds)))
            return text + catalog.text("%1$s in %2$s", size, time)
        }
        return text + size
    }
}
