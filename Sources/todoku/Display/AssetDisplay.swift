internal import EventLoop
internal import Glibc
internal import Localization
internal import TodokuClient

/// Shows the updates of assets by their stages. What the command prints in the end is not the display's.
@BusActor protocol AssetDisplay: AnyObject {
    func changed(_ asset: AssetDescription, before: AssetDescription?)
    /// Before other lines are written, and last.
    func clear()
}

/// Errors only.
final class QuietAssetDisplay: AssetDisplay {
    func changed(_ asset: AssetDescription, before: AssetDescription?) {}
    func clear() {}
}

/// One object a line, with the member "event".
final class JSONAssetDisplay: AssetDisplay {
    func changed(_ asset: AssetDescription, before: AssetDescription?) {
        let name = JSON.string("\(asset.app)/\(asset.name)")
        if asset.stage != before?.stage, asset.stage.isUnderWay {
            write([("event", .string("stage")), ("asset", name), ("stage", .string(asset.stage.name))])
        }
        if let progress = asset.progress, progress != before?.progress {
            write([
                ("event", .string("progress")), ("asset", name), ("stage", .string(asset.stage.name)), ("done", .unsigned(progress.done)),
                ("total", JSON(progress.total)),
            ])
        }
    }

    func clear() {}

    private func write(_ members: [(String, JSON)]) { Output.write(JSON.object(members).text + "\n") }
}

/// Lines on standard error, because standard output has the paths: the asset, a word, and its details. Scripts read the words, so they are
/// not translated.
final class PlainAssetDisplay: AssetDisplay {
    private var steps: [AssetReference: ProgressSteps] = [:]
    private let write: (String) -> Void

    init(write: @escaping (String) -> Void = Output.writeError) { self.write = write }

    func changed(_ asset: AssetDescription, before: AssetDescription?) {
        if asset.stage != before?.stage {
            steps[asset.reference] = nil
            if asset.stage.isUnderWay { line(asset, asset.stage.name) }
            if asset.stage == .ready, before?.stage.isUnderWay == true { line(asset, "ready \(asset.installedVersion)") }
        }
        if asset.status != before?.status, ["paused", "waiting-unmetered"].contains(asset.status) { line(asset, asset.status) }
        guard let progress = asset.progress,
            let step = steps[asset.reference, default: ProgressSteps()].next(received: progress.done, total: progress.total)
        else { return }
        line(asset, "progress \(step)")
    }

    func clear() {}

    private func line(_ asset: AssetDescription, _ text: String) {
        write(TerminalText.plain("\(asset.app)/\(asset.name) \(text)") + "\n")
    }
}

/// A line for each asset, redrawn in place.
final class LiveAssetDisplay: AssetDisplay {
    private static let interval: Duration = .milliseconds(100)
    private let style: AssetLine
    private var shown: [AssetDescription] = []
    /// Widths of the lines on the terminal now; the cursor is on the line below them.
    private var widths: [Int] = []
    private var drawn: ContinuousClock.Instant?
    private var timer: Poller.Token?

    init(utf8: Bool) { style = AssetLine(utf8: utf8) }

    func changed(_ asset: AssetDescription, before: AssetDescription?) {
        // What an asset did before this command is no news.
        guard asset.stage.isUnderWay || shown.contains(where: { $0.reference == asset.reference }) else { return }
        if let index = shown.firstIndex(where: { $0.reference == asset.reference }) { shown[index] = asset } else { shown.append(asset) }
        guard asset.stage == before?.stage, let drawn, .now - drawn < Self.interval else { return draw() }
        if timer == nil { timer = Poller.shared.schedule(at: drawn + Self.interval) { [weak self] in self?.draw() } }
    }

    func clear() {
        guard let terminal = Terminal.current else { return }
        stopTimer()
        Output.write(terminal.erasing(widths))
        widths = []
    }

    private func draw() {
        guard let terminal = Terminal.current else { return }
        stopTimer()
        let lines = shown.suffix(terminal.rows - 1).map { style.text($0, columns: terminal.columns - 1) }
        Output.write(terminal.erasing(widths) + lines.map { $0 + "\n" }.joined())
        widths = lines.map(TerminalText.width)
        drawn = .now
    }

    private func stopTimer() {
        if let timer { Poller.shared.cancel(timer) }
        timer = nil
    }
}
