internal import DownloadModel

/// One thing for the notify thread to do.
enum ToastDelivery: Equatable, Sendable {
    case progress(ProgressToast)
    case closeProgress(DownloadNumber)
    case end(EndToast)
    case closeAllProgress
}

/// Whether progress toasts are worth a hop to the notify thread.
enum ProgressGate: Equatable, Sendable {
    case open
    /// The server hangs, or there is none.
    case closed(until: ContinuousClock.Instant)
    /// The server that is there does not draw them well.
    case closedUntilServerChanges
    /// libnotify is not installed: nothing can be shown at all.
    case absent
}

/// What waits while the notify thread is busy, perhaps for 25 s with a server that hangs. Order is kept; progress is merged; bounded.
struct ToastQueue {
    /// Most end toasts that wait; beyond it the oldest is dropped.
    static let mostEnds = 32
    /// Most downloads that have a progress toast; further ones get none.
    static let mostProgress = 64

    private(set) var gate = ProgressGate.open
    private var waiting: [ToastDelivery] = []
    /// Downloads of which a progress toast was handed out and not closed since.
    private var delivered: Set<DownloadNumber> = []

    var isEmpty: Bool { waiting.isEmpty }

    mutating func set(_ gate: ProgressGate) { if self.gate != .absent { self.gate = gate } }

    mutating func add(_ toast: ProgressToast, at now: ContinuousClock.Instant) {
        switch gate {
        case .open: break
        case .closed(let until) where now >= until: gate = .open
        case .closed, .closedUntilServerChanges, .absent: return
        }
        if let same = waiting.firstIndex(where: { $0.isProgress(of: toast.number) }) {
            waiting[same] = .progress(toast)
        } else if delivered.contains(toast.number) || delivered.count + waiting.count(where: \.isProgress) < Self.mostProgress {
            waiting.append(.progress(toast))
        }
    }

    mutating func closeProgress(_ number: DownloadNumber) {
        waiting.removeAll { $0.isProgress(of: number) }
        if delivered.remove(number) != nil { waiting.append(.closeProgress(number)) }
    }

    /// - Returns: a toast that had to be dropped for it, or itself where nothing can be shown.
    mutating func add(_ toast: EndToast) -> EndToast? {
        guard gate != .absent else { return toast }
        closeProgress(toast.number)
        waiting.append(.end(toast))
        let ends = waiting.indices.filter { if case .end = waiting[$0] { true } else { false } }
        guard ends.count > Self.mostEnds, case .end(let oldest) = waiting.remove(at: ends[0]) else { return nil }
        return oldest
    }

    /// Forgets what waits; what is left to do is to take progress toasts off the screen.
    mutating func finish() {
        waiting = gate == .absent || delivered.isEmpty ? [] : [.closeAllProgress]
        gate = .absent
    }

    /// Forgets what waits and returns the end toasts among it.
    mutating func dropAll() -> [DownloadNumber] {
        defer { waiting = [] }
        return waiting.compactMap { if case .end(let toast) = $0 { toast.number } else { nil } }
    }

    mutating func next() -> ToastDelivery? {
        guard !waiting.isEmpty else { return nil }
        let first = waiting.removeFirst()
        if case .progress(let toast) = first { delivered.insert(toast.number) }
        return first
    }
}

extension ToastDelivery {
    fileprivate var isProgress: Bool { if case .progress = self { true } else { false } }

    fileprivate func isProgress(of number: DownloadNumber) -> Bool {
        if case .progress(let toast) = self { toast.number == number } else { false }
    }
}
