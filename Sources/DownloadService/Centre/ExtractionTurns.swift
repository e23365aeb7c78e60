internal import EventLoop
internal import Extraction

/// The turns of all extractions, of downloads and of assets: at most two run at a time on each disk, the others wait in their order.
@BusActor final class ExtractionTurns {
    /// The most extractions at a time on one disk, which has four threads for long work. The other threads verify and name files.
    private static let mostOnDisk = 2

    private struct Turn {
        /// Identifies the extraction.
        let control: ExtractionControl
        let disk: DiskKey
        let start: () -> Void
    }

    private var running: [Turn] = []
    private var waiting: [Turn] = []

    /// Calls `start` in its turn. Every start is followed by `ended`.
    func add(_ control: ExtractionControl, in directory: String, start: @escaping () -> Void) {
        waiting.append(Turn(control: control, disk: DiskPool.shared.disk(byTextOf: directory), start: start))
        startNext()
    }

    /// Takes an extraction that waits for its turn out of the queue.
    ///
    /// - Returns: false if the extraction does not wait. If it runs, `ended` follows.
    func remove(_ control: ExtractionControl) -> Bool {
        guard let index = waiting.firstIndex(where: { $0.control === control }) else { return false }
        waiting.remove(at: index)
        return true
    }

    /// The service exits: no extraction that waits is started.
    func removeAll() { waiting = [] }

    func ended(_ control: ExtractionControl) {
        running.removeAll { $0.control === control }
        startNext()
    }

    private func startNext() {
        for next in waiting where running.count(where: { $0.disk == next.disk }) < Self.mostOnDisk {
            _ = remove(next.control)
            running.append(next)
            next.start()
        }
    }
}
