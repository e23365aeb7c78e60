internal import DownloadModel

/// Collects the actions of a turn.
struct TurnOutput {
    private(set) var actions: [Scheduler.Action] = []
    /// The index in `actions` of each download's `changed`. A download has at most one `changed` in a turn.
    private var changes: [DownloadNumber: Int] = [:]

    /// Actions that come after all other actions of the turn.
    private var last: [Scheduler.Action] = []
    private var faults: [Scheduler.Fault] = []

    mutating func note(_ fault: Scheduler.Fault) { faults.append(fault) }
    mutating func append(_ action: Scheduler.Action) { actions.append(action) }
    /// Appends an action that comes after all other actions of the turn.
    mutating func appendLast(_ action: Scheduler.Action) { last.append(action) }
    mutating func append(_ saves: some Sequence<StoreChange>) { actions += saves.map { .save($0) } }

    /// Call before the record of `entry` changes.
    ///
    /// - Parameter state: the state that the bus shows now; nil if the state does not change.
    mutating func noteChange(of entry: ScheduledDownload, shown state: DownloadState? = nil) {
        if let index = changes[entry.number] {
            guard case .changed(var change) = actions[index], change.shownBefore == nil, let state else { return }
            change.shownBefore = state
            actions[index] = .changed(change)
        } else {
            changes[entry.number] = actions.count
            actions.append(.changed(Scheduler.Change(entry: entry, before: entry.record, shownBefore: state)))
        }
    }

    mutating func takeFaults() -> [Scheduler.Fault] {
        defer { faults = [] }
        return faults
    }

    /// The actions since the last call.
    mutating func take() -> [Scheduler.Action] {
        defer { (actions, last, changes) = ([], [], [:]) }
        return actions + last
    }
}
