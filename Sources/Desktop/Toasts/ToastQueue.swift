internal import DownloadModel

/// One piece of work for the notify thread.
enum ToastDelivery: Equatable, Sendable {
    case progress(ProgressToast)
    case closeProgress
    /// `until`: when the toast is too old to show.
    case end(EndToast, until: ContinuousClock.Instant)
    /// Closes the end toast of a download, because the toast is out of date.
    case withdraw(DownloadNumber)
}

/// Whether progress toasts are worth a call to the notify thread.
enum ProgressGate: Equatable, Sendable {
    case open
    /// The server hangs or did not answer.
    case closed(until: ContinuousClock.Instant)
    /// The server draws progress badly, or there is no server.
    case closedUntilServerChanges
    /// libnotify is not installed, or the service is shutting down. Nothing can be shown.
    case absent
}

/// The toasts that wait for the notify thread, which a hanging server may block for 25 s, or for a server to appear. Keeps the order,
/// merges progress, and is bounded.
struct ToastQueue {
    /// Most end toasts that wait, and most that are held. Beyond either, the oldest is dropped.
    static let mostEnds = 32

    private(set) var gate = ProgressGate.open
    private var waiting: [ToastDelivery] = []
    /// Whether a progress toast was handed out and not closed since.
    private var isProgressOut = false
    /// End toasts that no server has accepted, by ascending `until`. `again`: when to retry with the running server. nil: only the next
    /// server gets the toast, because none is running, or the running server may still show the toast.
    private var held: [(toast: EndToast, until: ContinuousClock.Instant, again: ContinuousClock.Instant?)] = []

    var isEmpty: Bool { waiting.isEmpty }
    var hasEnd: Bool { waiting.contains { $0.end != nil } }

    mutating func set(_ gate: ProgressGate) { if self.gate != .absent { self.gate = gate } }

    func wantsProgress(at now: ContinuousClock.Instant) -> Bool {
        switch gate {
        case .open: true
        case .closed(let until): now >= until
        case .closedUntilServerChanges, .absent: false
        }
    }

    mutating func add(_ toast: ProgressToast, at now: ContinuousClock.Instant) {
        guard wantsProgress(at: now) else { return }
        gate = .open
        if let same = waiting.firstIndex(where: \.isProgress) { waiting[same] = .progress(toast) } else { waiting.append(.progress(toast)) }
    }

    mutating func closeProgress() {
        waiting.removeAll(where: \.isProgress)
        if isProgressOut, gate != .absent { waiting.append(.closeProgress) }
        isProgressOut = false
    }

    /// - Returns: a dropped older toast, or `toast` itself if nothing can be shown.
    mutating func add(_ toast: EndToast, until: ContinuousClock.Instant) -> EndToast? {
        guard gate != .absent else { return toast }
        waiting.append(.end(toast, until: until))
        let ends = waiting.indices.filter { waiting[$0].end != nil }
        return ends.count > Self.mostEnds ? waiting.remove(at: ends[0]).end : nil
    }

    /// Removes the toasts of `number`, because they are out of date, and queues the removal from the screen.
    ///
    /// - Returns: how many unsent toasts were removed.
    mutating func withdraw(_ number: DownloadNumber) -> Int {
        let before = waiting.count + held.count
        waiting.removeAll { $0.end?.number == number }
        held.removeAll { $0.toast.number == number }
        defer { if gate != .absent { waiting.append(.withdraw(number)) } }
        return before - waiting.count - held.count
    }

    // MARK: Without a server

    /// Holds `toast`, which no server has accepted.
    ///
    /// - Parameter again: when to retry with the running server. nil: wait for the next server.
    /// - Returns: a dropped older toast, or `toast` itself if nothing can be shown.
    mutating func hold(_ toast: EndToast, until: ContinuousClock.Instant, again: ContinuousClock.Instant?) -> EndToast? {
        guard gate != .absent else { return toast }
        held.insert((toast, until, again), at: held.firstIndex { $0.until > until } ?? held.endIndex)
        return held.count > Self.mostEnds ? held.removeFirst().toast : nil
    }

    /// There is no server: holds end toasts for the next one, and discards the rest, because nothing is on screen.
    ///
    /// - Returns: the dropped toasts, as for `hold`.
    mutating func keepForServer() -> [EndToast] {
        let all = waiting
        (waiting, isProgressOut) = ([], false)
        set(.closedUntilServerChanges)
        return all.compactMap { if case .end(let toast, let until) = $0 { hold(toast, until: until, again: nil) } else { nil } }
    }

    /// The server has gone: stops all retries until the next server.
    mutating func serverLeft() { for index in held.indices { held[index].again = nil } }

    /// A new server is running: releases all held toasts.
    mutating func serverCame() {
        set(.open)
        release { _ in true }
    }

    /// The running server answered: releases the toasts that it was not sent.
    mutating func serverAnswered() { release { $0 != nil } }

    /// Releases the toasts whose retry is due.
    mutating func tryAgain(at now: ContinuousClock.Instant) { release { $0.map { $0 <= now } ?? false } }

    private mutating func release(where isDue: (_ again: ContinuousClock.Instant?) -> Bool) {
        waiting.insert(contentsOf: held.filter { isDue($0.again) }.map { .end($0.toast, until: $0.until) }, at: 0)
        held.removeAll { isDue($0.again) }
    }

    /// When the first held toast is due for a retry, or is too old to show.
    var expiry: ContinuousClock.Instant? { held.lazy.map { min($0.again ?? $0.until, $0.until) }.min() }

    /// Removes and returns the held toasts that are too old to show.
    mutating func expire(at now: ContinuousClock.Instant) -> [EndToast] {
        defer { held.removeAll { $0.until <= now } }
        return held.filter { $0.until <= now }.map(\.toast)
    }

    // MARK: The end

    /// Discards all waiting toasts. Only withdrawals, and the closing of the progress toast, remain.
    mutating func finish() {
        waiting = gate == .absent ? [] : waiting.filter(\.isWithdrawal) + (isProgressOut ? [.closeProgress] : [])
        held = []
        gate = .absent
    }

    /// Discards everything, and returns the numbers of the end toasts.
    mutating func dropAll() -> [DownloadNumber] {
        defer { (waiting, held) = ([], []) }
        return held.map(\.toast.number) + waiting.compactMap { $0.end?.number }
    }

    mutating func next() -> ToastDelivery? {
        guard !waiting.isEmpty else { return nil }
        let first = waiting.removeFirst()
        // Try the oldest unsent toast first: a new notification server may be running before its NameOwnerChanged signal arrives.
        if case .end(let toast, let until) = first, let older = held.firstIndex(where: { $0.again != nil }), held[older].until < until {
            let due = held.remove(at: older)
            _ = hold(toast, until: until, again: due.again)  // one toast leaves, one enters
            return .end(due.toast, until: due.until)
        }
        if first.isProgress { isProgressOut = true }
        return first
    }
}

extension ToastDelivery {
    fileprivate var isProgress: Bool { if case .progress = self { true } else { false } }

    fileprivate var isWithdrawal: Bool { if case .withdraw = self { true } else { false } }

    fileprivate var end: EndToast? { if case .end(let toast, _) = self { toast } else { nil } }
}
