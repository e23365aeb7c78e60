public import DownloadModel

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
        if place > 0 { gate.lanes.hadTurn(entry.number) } else if takesTurn { gate.comesNext(entry.number, entry.lane) }
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

    /// Changes the folder of a download without bytes on disk. A download that waits for its former folder, or for room there, starts if it
    /// may.
    func setDirectory(_ entry: ScheduledDownload, _ directory: String, now: WallTime) {
        guard entry.mayChangeFolder else { return }
        // The former folder may have a part file whose bytes are of no use. The new one has none, unless the download comes back.
        if entry.mayHavePart { sweep(entry) }
        let waitsForFolder = entry.state.waitsForFolder
        count(entry, in: entry.state, by: -1)
        change(entry) { record in
            record.directory = directory
            record.options.directory = directory
            if waitsForFolder { (record.retryAt, record.lastFailure) = (nil, nil) }
        }
        entry.mayHavePart = sweeps[entry.number]?.folders.has(directory) == true
        entry.startsAfterSave = true
        count(entry, in: entry.state)
        limitWait(of: entry, now: now)
        // The new folder may be a former one, in which a deletion is late.
        if entry.lane != nil, isBusy(entry) { makeRunnable(entry) }
        save(entry)
        if let batch = entry.batch { followFolder(batch, to: directory) }
        if waitsForFolder { applyOwn(.ready, to: entry, now: now) }
        output.append(.tell(entry))
    }

    /// The toast of a batch opens the folder that all its files go to.
    private func followFolder(_ batch: ScheduledBatch, to directory: String) {
        let isCommon = batch.record.numbers.allSatisfy { number in
            guard let entry = entries[number], entry.batch === batch else { return true }
            return entry.record.directory.isSameBytes(as: directory)
        }
        guard isCommon, !batch.record.directory.isSameBytes(as: directory) else { return }
        batch.record.directory = directory
        output.append(.save(.putBatch(batch.record)))
    }

    /// Changes the caller's own data, of an ended download, too. No property shows these data.
    func setMetadata(_ entry: ScheduledDownload, _ metadata: [UInt8]) {
        guard !entry.isRemoved else { return }
        index.count(entry.record, -1)
        entry.record.options.metadata = metadata
        index.count(entry.record, 1)
        save(entry)
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

extension ScheduledDownload {
    /// Whether nothing of the file is on disk and nothing is under way, so that the folder can change.
    public var mayChangeFolder: Bool {
        switch state {
        case .queued, .waiting, .paused: break
        default: return false
        }
        return work == .idle && !isInPool && !isRemoved && !record.hasBytes && !record.isToDescriptor
    }
}

extension DownloadRecord {
    /// Whether the part file may have bytes that count.
    public var hasBytes: Bool { resume != nil || received > 0 || isWhole }
}

extension DownloadState {
    /// The download waits for its folder, or for room there.
    fileprivate var waitsForFolder: Bool {
        switch self {
        case .waiting(.destination, _), .waiting(.diskSpace, _): true
        default: false
        }
    }
}
