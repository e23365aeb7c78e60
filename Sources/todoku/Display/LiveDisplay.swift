internal import EventLoop
internal import Glibc
internal import Localization
internal import TodokuClient

/// Bars on a terminal, redrawn in place. Ended downloads are written above them and stay.
final class LiveDisplay: ProgressDisplay {
    /// Least time between two drawings, and most time while a download is active.
    private static let shortest: Duration = .milliseconds(100)
    private static let longest: Duration = .seconds(1)
    /// Time without a byte after which the speed is shown as 0.
    private static let stall: Duration = .seconds(3)

    private var style: ProgressLine
    private var shown: [DownloadDescription] = []
    private var moved: [DownloadReference: ContinuousClock.Instant] = [:]
    /// Lines to write above the bars.
    private var above: [String] = []
    /// Widths of the bars on the terminal now; the cursor is on the line below them.
    private var widths: [Int] = []
    private var drawn: ContinuousClock.Instant?
    private var timer: Poller.Token?
    private var isEndless = false
    private var isSuspended = false

    init(utf8: Bool) { style = ProgressLine(utf8: utf8) }

    func begin(isEndless: Bool) {
        self.isEndless = isEndless
        schedule(after: Self.shortest)
    }

    func changed(_ download: DownloadDescription, before: DownloadDescription?) {
        if before?.received != download.received { moved[download.reference] = .now }
        let index = shown.firstIndex { $0.reference == download.reference }
        if !download.state.hasEnded {
            if let index { shown[index] = download } else { shown.append(download) }
            return schedule(after: Self.shortest)
        }
        if let index { shown.remove(at: index) }
        moved[download.reference] = nil
        guard before?.state != download.state else { return }
        if download.state == .failed {
            if !Terminal.errorsAreSeen {
                let line = ProgressLine.end(download)
                above.append((Terminal.hasColour ? Colour(download.state)?.paint(line) : nil) ?? line)
            }
            draw()
            erase()
            complain(of: download)
            draw()
        } else {
            above.append(ProgressLine.end(download))
            draw()
        }
    }

    var explainsWaits: Bool { true }

    func learned(_ limits: ServiceLimits) { style.limits = limits }

    func staysQueued(_ download: DownloadDescription) { schedule(after: Self.shortest) }

    func removed(_ download: DownloadReference) {
        shown.removeAll { $0.reference == download }
        moved[download] = nil
        above.append(catalog.text("removed  download %1$s", "\(download)"))
        draw()
    }

    func suspend() {
        draw()
        erase()
        isSuspended = true
    }

    func resume() {
        isSuspended = false
        draw()
    }

    func end() {
        isSuspended = false
        draw()
        if let timer { Poller.shared.cancel(timer) }
        timer = nil
        widths = []
    }

    private func schedule(after delay: Duration) {
        if let drawn, timer != nil, .now - drawn < delay { return }
        if let timer { Poller.shared.cancel(timer) }
        if let drawn, .now - drawn >= delay { return draw() }
        timer = Poller.shared.schedule(at: (drawn ?? .now) + delay) { [weak self] in
            self?.timer = nil
            self?.draw()
        }
    }

    private func erase() {
        guard let terminal = Terminal.current else { return }
        Output.write(terminal.erasing(widths))
        widths = []
    }

    private func draw() {
        guard !isSuspended, let terminal = Terminal.current else { return }
        var text = terminal.erasing(widths)
        for line in above { text += line + "\n" }
        above = []
        let lines = bars(terminal)
        let hasColour = Terminal.hasColour
        for (line, colour) in lines { text += ((hasColour ? colour?.paint(line) : nil) ?? line) + "\n" }
        widths = lines.map { TerminalText.width($0.text) }
        Output.write(text)
        drawn = .now
        style.turn += 1
        if let timer { Poller.shared.cancel(timer) }
        timer = nil
        // Redraw without a signal, for the countdown of a wait and for a speed that falls to 0.
        if shown.contains(where: { $0.state == .active || $0.state == .waiting }) {
            timer = Poller.shared.schedule(after: Self.longest) { [weak self] in self?.draw() }
        }
    }

    /// The downloads for which the terminal has lines, active ones first.
    func bars(_ terminal: Terminal) -> [(text: String, colour: Colour?)] {
        if shown.isEmpty, isEndless { return [(catalog.text("Nothing to download now; press Ctrl-C to exit."), nil)] }
        style.now = wallClock()
        let columns = terminal.columns - 1
        func rank(_ download: DownloadDescription) -> Int {
            switch download.state {
            case .active, .verifying, .extracting: 0
            case .waiting: 1
            case .queued: 2
            default: 3
            }
        }
        let ordered = shown.enumerated().sorted { (rank($0.element), $0.offset) < (rank($1.element), $1.offset) }.map(\.element)
        let room = terminal.rows - 1
        // Many downloads often wait for the same cause. So the first ones tell it whole, and the others keep a line each. A quarter of the
        // terminal may go to whole causes even if fewer downloads are shown then.
        var spare = max(room - ordered.count, room / 4)
        var lines: [(text: String, colour: Colour?)] = []
        var tellsQueue = true
        for (index, download) in ordered.enumerated() {
            let left = room - lines.count
            guard left > 1 || left == 1 && index == ordered.count - 1 else {
                let rest = UInt64(ordered.count - index)
                lines.append((catalog.text("and %1$s more", "and %1$s more", count: rest), nil))
                break
            }
            let most = index == ordered.count - 1 ? left : left - 1
            let flows = moved[download.reference].map { .now - $0 < Self.stall } ?? false
            let speed = flows ? download.speed : nil
            let texts = style.lines(download, speed: speed, columns: columns, rows: min(most, spare + 1), tellsQueue: tellsQueue)
            if download.state == .queued { tellsQueue = false }
            spare -= texts.count - 1
            lines += texts.map { (text: $0, colour: Colour(download.state)) }
        }
        return lines
    }
}
