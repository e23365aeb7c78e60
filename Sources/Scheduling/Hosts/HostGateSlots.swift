internal import DownloadModel

/// Decides which transfers may take a slot, by the sizes of their files, and which requests share a connection at their host.
extension HostGate {
    /// At most this many silent or waiting transfers take no slot when a download starts.
    static let mostIdle = 64

    /// Whether a download with a file of this size may start. The slot of a transfer that waits for its host, or for a silent server, is
    /// free for others.
    func hasSlot(for size: FileSize) -> Bool {
        guard maxActive == Settings.automatic else { return hasSlot(beyond: min(slots.idle, Self.mostIdle)) }
        return hasRoom && activeLimit.admits(size, beside: slots.busy)
    }

    /// Whether there is a slot for some file while `maxActive` is automatic, however many transfers are idle.
    private var hasRoom: Bool { slots.count < ActiveLimit.most +| min(slots.idle, Self.mostIdle) }

    /// The sizes of the files that may start.
    var startable: [FileSize] { FileSize.allCases.filter { hasSlot(for: $0) } }

    /// Whether the transfer `number`, which waits, may make its next request.
    func hasSlotForHop(of number: DownloadNumber) -> Bool {
        guard maxActive == Settings.automatic, let slot = slots[number] else { return hasSlot(beyond: slots.idle) }
        return !slot.isIdle || activeLimit.admits(slot.size, beside: slots.busy)
    }

    /// Whether a transfer that got no slot for its next request may get one now.
    var hasSlotForAwaiting: Bool {
        guard maxActive == Settings.automatic else { return hasSlot(beyond: slots.idle) }
        return awaitingSizes.contains { activeLimit.admits($0, beside: slots.busy) }
    }

    /// Returns the names of the hosts in `awaitingSlot`, and empties it.
    mutating func takeAwaitingSlot() -> [String] {
        defer { (awaitingSlot, awaitingSizes) = ([], []) }
        return awaitingSlot.sorted()
    }

    private func hasSlot(beyond idle: Int) -> Bool { maxActive == 0 || slots.count < Int(maxActive) +| idle }

    /// The most transfers that may be active together with a transfer of a file of `size`.
    func mostActive(of size: FileSize) -> Int {
        guard maxActive == Settings.automatic else { return Int(maxActive) }
        return size == .small ? ActiveLimit.most : ActiveLimit.mostLarge + activeLimit.allowance
    }

    /// Whether the end of the transfer in `slot` helps to let a download start that has no slot now. `size` is that of its file.
    func isInTheWay(_ slot: Slots.Slot, of size: FileSize) -> Bool {
        let taken = activeLimit.placesTaken(with: size, beside: slots.busy)
        guard maxActive == Settings.automatic, taken > ActiveLimit.mostLarge else { return true }
        guard !slot.isIdle else { return false }
        var rest = slots.busy
        rest[slot.size] -= 1
        return activeLimit.placesTaken(with: size, beside: rest) < taken
    }

    /// The size of the file of an active transfer is known now.
    ///
    /// - Returns: whether the transfer must stop, because more large files are active than may be, or at its host.
    mutating func learn(_ size: FileSize, of number: DownloadNumber) -> Bool {
        guard let slot = slots[number], slot.size != size else { return false }
        slots.note(size, of: number)
        guard size == .large else { return false }
        activeLimit.fileTurnedLarge()
        var isTooMany = maxActive == Settings.automatic && slots.busy.large > ActiveLimit.mostLarge
        for id in slot.requests {
            guard var request = requests[id], request.isPresumedToShare || request.connection != nil else { continue }
            (request.isPresumedToShare, request.connection) = (false, nil)
            put(request, id)
            let host = load(of: request.host)
            hosts.touch(host)
            if case let limit = limit(of: host), limit > 0, host.connections > limit { isTooMany = true }
        }
        return isTooMany
    }

    /// A request was sent on this HTTP/2 connection, or its response came over it; nil: over a connection of its own.
    mutating func goes(_ id: RequestID, over connection: UInt32?) {
        guard var request = requests[id], !request.isWaiting, !request.hasLeft, slots[id.download]?.size != .large else { return }
        guard request.isPresumedToShare || request.connection != connection else { return }
        let load = load(of: request.host)
        let joins = connection.map { load.isShared(SharedConnection(origin: request.origin, connection: $0)) } ?? false
        (request.isPresumedToShare, request.connection) = (false, connection)
        put(request, id)
        if joins { load.sharingSucceeded(at: request.origin) }
        hosts.touch(load)
    }

    /// Bills the applications for the slots that their transfers have taken since the last turn. Called at the beginning of each turn, so
    /// that a turn compares applications, and admits new ones, by what they have used up to now.
    mutating func charge(now: WallTime) {
        if let chargedAt { bill(now - chargedAt) }
        chargedAt = now
    }

    /// Others may use the slots of idle transfers, so nobody pays for these slots. But if more than `mostIdle` transfers are idle, some of
    /// them take slots, and all of them are billed: so one of them yields to an application that has used less.
    ///
    /// - Parameter time: how long the transfers have been as they are now. Negative: takes back a part of their bill.
    func bill(_ time: Duration) {
        let billsIdle = slots.idle > Self.mostIdle
        for (app, use) in slots.apps { lanes.apps[app]?.used(time * (billsIdle ? use.busy + use.idle : use.busy)) }
    }

    /// A file has arrived whole.
    mutating func finished(_ size: ByteCount) {
        if FileSize(size) == .small { activeLimit.smallFileFinished() }
    }

    // MARK: Shared connections

    /// Whether `host` may take a request to `origin` that probably shares an HTTP/2 connection, so that it needs no place. Files of unknown
    /// size may share as far as small files have finished. Large files keep their places.
    func mayShare(at host: HostLoad, _ origin: String, _ size: FileSize) -> Bool {
        guard size != .large, host.sharing < (size == .small ? ActiveLimit.mostSmall : activeLimit.allowance) else { return false }
        return host.hasSharedConnection(to: origin)
    }

    /// Whether a request that waits for `host` needs no place there.
    func mayShare(_ request: PlacedRequest, of id: RequestID, at host: HostLoad) -> Bool {
        let size = slots[id.download]?.size
        return request.canShare(size) && mayShare(at: host, request.origin, size ?? .unknown)
    }
}
