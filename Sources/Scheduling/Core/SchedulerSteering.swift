internal import DownloadModel

/// Changes of places, priorities, limits and settings.
extension Scheduler {
    /// Moves `entry` to `place` among the downloads of its priority; 0 = next.
    ///
    /// - Parameter takesTurn: at place 0, the download starts next, whichever application's turn it is. False: the download waits for its
    ///   application's turn.
    func move(_ entry: ScheduledDownload, to place: UInt32, takesTurn: Bool = true) {
        for (number, position) in order.move(entry.number, to: place) {
            guard let moved = entries[number] else { continue }
            moved.record.position = position
            if moved.lane != nil { makeRunnable(moved) }
            save(moved)
        }
        if takesTurn, place == 0 { gate.comesNext(entry.record.options.app, entry.lane) }
    }

    func setPriority(_ entry: ScheduledDownload, _ priority: Int32) {
        change(entry) { $0.options.priority = priority }
        if order.contains(entry.number) { order.insert(entry.number, priority: priority, position: entry.record.position) }
        if entry.lane != nil { makeRunnable(entry) }
        save(entry)
        output.append(.tell(entry))
    }

    func setSpeedLimit(_ entry: ScheduledDownload, _ limit: Speed?) {
        change(entry) { $0.options.speedLimit = limit }
        save(entry)
        output.append(.tell(entry))
    }

    /// Changes whether the download may use a metered connection. One that waits for an unmetered connection starts if it may.
    func setAllowsMetered(_ entry: ScheduledDownload, _ allows: Bool, now: WallTime) {
        guard entry.record.options.allowsMetered != allows else { return }
        change(entry) { $0.options.allowsMetered = allows }
        save(entry)
        reconsider(entry, isBack: false, now: now)
        output.append(.tell(entry))
    }

    /// Changes the settings. Returns false if nothing changed.
    @discardableResult
    func set(now: WallTime, _ change: (inout Settings) -> Void) -> Bool {
        let before = settings
        change(&settings)
        guard settings != before else { return false }
        output.append(.save(.set(settings)))
        settingsChanged(now: now)
        return true
    }
}
