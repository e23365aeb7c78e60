internal import DownloadModel

/// One thing for the notify thread to do.
enum ToastDelivery: Equatable, Sendable {
    case progress(ProgressToast)
    case closeProgress
    /// Worth showing until then.
    case end(EndToast, until: ContinuousClock.Instant)
    /// Takes the end toast of a download off the screen: it is not true any more.
    case withdraw(DownloadNumber)
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

/// What waits while the notify thread is busy, perhaps for 25 s with a server that hangs, or until there is a server. Order is kept;
/// progress is merged; bounded.
struct ToastQueue {
    /// Most end toasts that wait, and most that are held; beyond it the oldest is dropped.
    static let mostEnds = 32

    private(set) var gate = ProgressGate.open
    private var waiting: [ToastDelivery] = []
    /// A progress toast was handed out and not closed since.
    private var isProgressOut = false
    /// End toasts that no server has taken, oldest first: for the next one. `again`: when the one that is there is tried once more; nil: it
    /// was sent the toast, and may show it yet.
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

    /// - Returns: a toast that had to be dropped for it, or itself where nothing can be shown.
    mutating func add(_ toast: EndToast, until: ContinuousClock.Instant) -> EndToast? {
        guard gate != .absent else { return toast }
        waiting.append(.end(toast, until: until))
        let ends = waiting.indices.filter { waiting[$0].end != nil }
        return ends.count > Self.mostEnds ? waiting.remove(at: ends[0]).end : nil
    }

    /// What was to be said of `number` is not true any more.
    ///
    /// - Returns: how many toasts of it were still to be shown, and are not.
    mutating func withdraw(_ number: DownloadNumber) -> Int {
        let before = waiting.count + held.count
        waiting.removeAll { $0.end?.number == number }
        held.removeAll { $0.toast.number == number }
        defer { if gate != .absent { waiting.append(.withdraw(number)) } }
        return before - waiting.count - held.count
    }

    // MARK: Without a server

    /// No server has taken `toast`.
    ///
    /// - Parameter again: nil where a server may have it all the same.
    /// - Returns: a toast that had to be dropped for it, or itself where nothing can be shown.
    mutating func hold(_ toast: EndToast, until: ContinuousClock.Instant, again: ContinuousClock.Instant?) -> EndToast? {
        guard gate != .absent else { return toast }
        held.insert((toast, until, again), at: held.firstIndex { $0.until > until } ?? held.endIndex)
        return held.count > Self.mostEnds ? held.removeFirst().toast : nil
    }

    /// There is no server: ends are held for the next, and there is nothing on the screen to be changed or taken away.
    ///
    /// - Returns: toasts that had to be dropped, as by `hold`.
    mutating func keepForServer() -> [EndToast] {
        let all = waiting
        (waiting, isProgressOut) = ([], false)
        set(.closedUntilServerChanges)
        return all.compactMap { if case .end(let toast, let until) = $0 { hold(toast, until: until, again: nil) } else { nil } }
    }

    /// The server has gone: nothing is tried again before the next has come.
    mutating func serverLeft() { for index in held.indices { held[index].again = nil } }

    /// A server has come that was not there.
    mutating func serverCame() {
        set(.open)
        release { _ in true }
    }

    /// The server that is there answers: it is sent what it was not.
    mutating func serverAnswered() { release { $0 != nil } }

    /// The time has come to try once more whether the server answers.
    mutating func tryAgain(at now: ContinuousClock.Instant) { release { $0.map { $0 <= now } ?? false } }

    private mutating func release(where isDue: (_ again: ContinuousClock.Instant?) -> Bool) {
        waiting.insert(contentsOf: held.filter { isDue($0.again) }.map { .end($0.toast, until: $0.until) }, at: 0)
        held.removeAll { isDue($0.again) }
    }

    /// When the first of those that are held is to be tried again, or not worth showing any more.
    var expiry: ContinuousClock.Instant? { held.lazy.map { min($0.again ?? $0.until, $0.until) }.min() }

    /// Forgets those that are held and not worth showing any more, and returns them.
    mutating func expire(at now: ContinuousClock.Instant) -> [EndToast] {
        defer { held.removeAll { $0.until <= now } }
        return held.filter { $0.until <= now }.map(\.toast)
    }

    // MARK: The end

    /// Forgets what waits to be shown; what is left to do is to take off the screen what is not true any more, and the progress toast.
    mutating func finish() {
        waiting = gate == .absent ? [] : waiting.filter(\.isWithdrawal) + (isProgressOut ? [.closeProgress] : [])
        held = []
        gate = .absent
    }

    /// Forgets what waits and returns the end toasts among it.
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
            _ = hold(toast, until: until, again: due.again)  // one out, one in
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
