internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Localization
internal import TodokuClient

/// Shows the progress of downloads. All displays except JSON's report failures on standard error.
@BusActor protocol ProgressDisplay: AnyObject {
    /// Called once the service has told of all downloads. `isEndless`: until the user ends the program.
    func begin(isEndless: Bool)
    /// Called when this command has queued a download.
    func queued(_ download: DownloadReference)
    func changed(_ download: DownloadDescription, before: DownloadDescription?)
    func removed(_ download: DownloadReference)
    /// Whether the display tells in words why downloads wait or stay queued. Some of these reasons need `learned`.
    var explainsWaits: Bool { get }
    /// Called with the service's present limits before a change that needs them, and before `staysQueued`.
    func learned(_ limits: ServiceLimits)
    /// Called for a download that has not started at once, and again while it is queued.
    func staysQueued(_ download: DownloadDescription)
    /// Leaves the terminal to another program until `resume`.
    func suspend()
    func resume()
    /// Leaves the present lines on the terminal, because the command ends, or because another text follows.
    func end()
}

extension ProgressDisplay {
    func begin(isEndless: Bool) {}
    func queued(_ download: DownloadReference) {}
    var explainsWaits: Bool { false }
    func learned(_ limits: ServiceLimits) {}
    func staysQueued(_ download: DownloadDescription) {}
    func suspend() {}
    func resume() {}
    func end() {}

    func complain(of download: DownloadDescription) { Output.complain(download.complaint, colour: Colour(download.state)) }
}

extension DownloadDescription {
    /// A sentence that the download failed, and why, or that it was cancelled.
    var complaint: String {
        let name = TerminalText.cut(displayName, to: 60, ellipsis: "...")
        if state == .cancelled { return catalog.text("%1$s (download %2$s) was cancelled", name, "\(reference)") }
        let reason = error.map { catalog.explanation($0) } ?? catalog.text("no reason is known")
        return catalog.text("%1$s (download %2$s) failed: %3$s", name, "\(reference)", reason)
    }
}

/// Errors only.
final class QuietDisplay: ProgressDisplay {
    private let json: Bool
    init(json: Bool) { self.json = json }

    func changed(_ download: DownloadDescription, before: DownloadDescription?) {
        guard download.state == .failed, before?.state != .failed else { return }
        if json { Output.write(JSON.object([("event", .string("ended"))] + download.json).text + "\n") } else { complain(of: download) }
    }
    func removed(_ download: DownloadReference) {}
}

/// One object a line, with the member "event".
final class JSONDisplay: ProgressDisplay {
    func queued(_ download: DownloadReference) {
        write("queued", [("download", .string(download.description)), ("object-path", .string(download.path))])
    }

    func changed(_ download: DownloadDescription, before: DownloadDescription?) {
        if before?.state.hasEnded == true, before?.state == download.state { return }
        write(download.state.hasEnded ? "ended" : "changed", download.json)
    }

    func removed(_ download: DownloadReference) {
        write("removed", [("download", .string(download.description)), ("object-path", .string(download.path))])
    }

    private func write(_ event: String, _ members: [(String, JSON)]) {
        Output.write(JSON.object([("event", .string(event))] + members).text + "\n")
    }
}

/// Lines for a log: the download, a word, and its details. Scripts read the words, so they are not translated.
final class PlainDisplay: ProgressDisplay {
    private var steps: [DownloadReference: ProgressSteps] = [:]
    /// The waits since the last attempt.
    private var waits: [DownloadReference: ToldWaits] = [:]
    private var limits: ServiceLimits?
    private let write: (String) -> Void

    init(write: @escaping (String) -> Void = Output.write) { self.write = write }

    private func line(_ download: DownloadReference, _ text: String) { write(TerminalText.plain("\(download) \(text)") + "\n") }

    var explainsWaits: Bool { true }

    func learned(_ limits: ServiceLimits) { self.limits = limits }

    func staysQueued(_ download: DownloadDescription) {
        let id = download.reference
        guard let cause = Reason(download, limits, plainCatalog).obstacle, waits[id, default: ToldWaits()].isNew(download) else { return }
        line(id, "queued: \(cause)")
    }

    func queued(_ download: DownloadReference) { line(download, "queued") }

    func changed(_ download: DownloadDescription, before: DownloadDescription?) {
        let id = download.reference
        if download.state.hasEnded { steps[id] = nil }
        if download.state != .waiting, download.state != .queued { waits[id] = nil }
        switch download.state {
        case .finished:
            guard before?.state != .finished else { return }
            // In a line of its own, because scripts take all that follows “finished” for the path.
            if download.isUnchanged { line(id, "unchanged: was there already") }
            line(id, "finished \(download.path ?? "")")
        case .failed:
            guard before?.state != .failed else { return }
            line(id, "failed \(download.error?.name ?? "")")
            complain(of: download)
        case .cancelled:
            guard before?.state != .cancelled else { return }
            line(id, "cancelled")
        case .paused:
            if before?.state != .paused { line(id, "paused") }
        case .waiting:
            if waits[id, default: ToldWaits()].isNew(download) { line(id, WaitLine.text(download, limits)) }
        case .extracting:
            if before?.state != .extracting { line(id, "extracting") }
        case .active:
            if before?.state != .active { line(id, "started \(download.displayName)") }
            if let step = steps[id, default: ProgressSteps()].next(received: download.received, total: download.total) {
                line(id, "progress \(step)")
            }
        default: break
        }
    }

    func removed(_ download: DownloadReference) {
        (steps[download], waits[download]) = (nil, nil)
        line(download, "removed")
    }
}

/// Decides when progress gets a line: at each tenth of a known total, or at each doubling from 1 MiB of an unknown one.
struct ProgressSteps {
    private var tenths = 0
    private var size: ByteCount = 1 << 20

    /// "40 % 4.0 MiB of 10.0 MiB"; nil: nothing new.
    mutating func next(received: ByteCount, total: ByteCount?) -> String? {
        if let total, total > 0 {
            let tenth = Int(clamping: Double(min(received, total)) / Double(total) * 10)
            guard tenth > tenths else { return nil }
            tenths = tenth
            return "\(plainCatalog.percent(tenth * 10)) \(plainCatalog.size(received, of: total))"
        }
        guard received >= size else { return nil }
        while size <= received, size < 1 << 62 { size <<= 1 }
        return plainCatalog.size(received)
    }
}
