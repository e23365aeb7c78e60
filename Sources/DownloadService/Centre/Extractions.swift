internal import DownloadModel
internal import EventLoop
internal import Extraction
internal import Logging
internal import PartFiles
internal import Scheduling

/// The extractions of downloads (option `extract`).
@BusActor final class Extractions {
    /// The time between two checks of the progress.
    private static let interval: Duration = .milliseconds(250)

    private struct Extraction {
        let number: DownloadNumber
        let control = ExtractionControl()
        /// False while the extraction waits for its turn.
        var isRunning = false
        var begun = ContinuousClock.now
    }

    let turns = ExtractionTurns()
    private var all: [Extraction] = []
    private var timer: Poller.Token?
    /// Called with the extractions that run: when each has begun, and how much of its archive is read, 0.0–1.0.
    var progressed: ([(DownloadNumber, since: ContinuousClock.Instant, share: Double)]) -> Void = { _ in }

    /// Calls `start` in its turn. Every start is followed by `ended`.
    func add(_ number: DownloadNumber, in directory: String, start: @escaping (ExtractionControl) -> Void) {
        let extraction = Extraction(number: number)
        all.append(extraction)
        turns.add(extraction.control, in: directory) { [self] in
            if let index = all.firstIndex(where: { $0.number == number }) {
                all[index].isRunning = true
                all[index].begun = .now
            }
            start(extraction.control)
            if timer == nil { look() }
        }
    }

    /// Stops an extraction.
    ///
    /// - Returns: true if the extraction does not run, for example because this process has not continued it yet. Otherwise `ended`
    ///   follows.
    func stop(_ number: DownloadNumber) -> Bool {
        guard let extraction = all.first(where: { $0.number == number }) else { return true }
        extraction.control.cancel()
        guard turns.remove(extraction.control) else { return false }
        all.removeAll { $0.number == number }
        return true
    }

    /// The service exits: all extractions stop. The next process continues them.
    func stopAll() {
        turns.removeAll()
        all.removeAll { !$0.isRunning }
        for extraction in all { extraction.control.cancel() }
    }

    func ended(_ number: DownloadNumber) {
        guard let index = all.firstIndex(where: { $0.number == number }) else { return }
        turns.ended(all.remove(at: index).control)
        guard !all.contains(where: { $0.isRunning }), let timer else { return }
        Poller.shared.cancel(timer)
        self.timer = nil
    }

    private func look() {
        timer = Poller.shared.schedule(after: Self.interval) { [self] in
            progressed(
                all.filter { $0.isRunning }.map { extraction in
                    let progress = extraction.control.progress
                    return (extraction.number, extraction.begun, share(progress.read, of: progress.size))
                })
            look()
        }
    }

    private func share(_ read: ByteCount, of size: ByteCount) -> Double {
        size == 0 ? 0 : min(1, Double(read) / Double(size))
    }
}

extension Downloader {
    func unpack(_ entry: ScheduledDownload) {
        let directory = entry.record.directory
        extractions.add(entry.number, in: directory) { [self] control in
            let (record, part, allowHidden) = (entry.record, partNames.name(of: entry.number), allowsHidden(in: directory))
            let (reserve, watch) = (scheduler.settings.diskReserve, watchEnding(of: entry))
            log.debug("unpacking", metadata: ["download": "\(entry.number)"])
            DiskPool.shared.perform(at: .path(directory), takesLong: true) {
                CrashMarks.working(on: record.number.value) {
                    Archives.unpack(record, part: part, reserve, allowHidden: allowHidden, control)
                }
            } then: { [self] end in
                watch.end()
                extractions.ended(entry.number)
                ConfinementLog.tell(control, log)
                list.peek(entry.number)?.extracted = nil
                switch end {
                case .unpacked: decide(.unpacked(entry))
                case .lost: decide(.partLost(entry))
                case .stopped: decide(.unpackingStopped(entry))
                case .failed(let failure): decide(.endingFailed(entry, failure))
                case .unusable(let failure, let isDamaged): decide(.unpackingFailed(entry, failure, isDamaged: isDamaged))
                }
            }
        }
    }

    func stopUnpacking(_ entry: ScheduledDownload) { if extractions.stop(entry.number) { decide(.unpackingStopped(entry)) } }

    /// Gives an unpacked folder its name.
    ///
    /// - Parameters:
    ///   - mayBeNamed: an earlier process may have done so already.
    ///   - isNamed: this process has done so, and could not flush the name. The download cannot fail then.
    func nameFolder(of entry: ScheduledDownload, mayBeNamed: Bool = false, isNamed: Bool = false) {
        let (record, part) = (entry.record, partNames.name(of: entry.number))
        let (allowHidden, watch) = (allowsHidden(in: record.directory), watchEnding(of: entry))
        DiskPool.shared.perform(at: .path(record.directory), takesLong: true) {
            CrashMarks.working(on: record.number.value) { Archives.name(record, part: part, allowHidden: allowHidden) }
        } then: { [self] outcome in
            watch.end()
            switch outcome {
            case .named(let path, let identity): decide(.folderCommitted(entry, path: path, identity))
            case .taken(let path) where record.options.ifExists == .skip: decide(.committed(entry, path: path, skipped: true))
            case .taken(let path): decide(.endingFailed(entry, DownloadFailure(.alreadyExists, "\(path) exists already.")))
            case .lost: decide(.partLost(entry))
            case .unsettled: nameAgain(entry, after: .seconds(2), isNamed: true)
            case .failed(let error):
                let failure = error.failure(folder: record.directory)
                // Only the open folder above tells whether an earlier call has renamed the folder.
                guard isNamed || mayBeNamed && (failure.wait != nil || failure.isShortage) else {
                    return decide(.endingFailed(entry, failure))
                }
                decide(.endingDelayed(entry, failure))
                nameAgain(entry, after: .seconds(10), isNamed: isNamed)
            }
        }
    }

    private func nameAgain(_ entry: ScheduledDownload, after delay: Duration, isNamed: Bool) {
        Poller.shared.schedule(after: delay) { [self] in nameFolder(of: entry, mayBeNamed: true, isNamed: isNamed) }
    }

    /// Notes the progress of the extractions.
    func noteExtractions(_ all: [(DownloadNumber, since: ContinuousClock.Instant, share: Double)]) {
        var moved: [ManagedDownload] = []
        for (number, begun, share) in all {
            guard let download = list.download(number), download.state == .extracting, download.extracted != share else { continue }
            download.extracted = share
            // An earlier process made the transfer, or the object was released since.
            if download.transferStarted == nil { download.transferStarted = begun }
            moved.append(download)
        }
        if !moved.isEmpty { tell { $0.extracts(moved) } }
    }
}
