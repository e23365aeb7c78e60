internal import DownloadModel

/// The slots that transfers take under the setting `MaxActive`. A transfer has one slot, however many requests it makes.
struct Slots {
    struct Slot {
        let app: String
        /// The size of the file, as far as it is known.
        fileprivate(set) var size = FileSize.unknown
        /// When the transfer took its slot.
        fileprivate(set) var since: WallTime
        /// The transfer's requests that have not left.
        fileprivate(set) var requests: [RequestID] = []
        /// How many of `requests` are idle, and how many of these wait for their host.
        fileprivate var idle = 0
        fileprivate var waiting = 0

        /// Whether all requests wait for their host.
        var isWaiting: Bool { waiting > 0 && waiting == requests.count }
        /// Whether no request makes progress, so that others may use the slot meanwhile.
        var isIdle: Bool { idle > 0 && idle == requests.count }
    }

    private var slots: [DownloadNumber: Slot] = [:]
    /// The number of slots of idle transfers; and, of these, the slots of transfers whose requests all wait.
    private(set) var idle = 0
    private(set) var waiting = 0
    /// The slots of transfers that make progress, by the size of their files.
    private(set) var busy = ActiveLimit.Counts()
    /// The numbers of each application's transfers.
    private(set) var apps: [String: Use] = [:]

    /// How many transfers of an application make progress, and how many are idle.
    struct Use: Equatable {
        fileprivate(set) var busy = 0
        fileprivate(set) var idle = 0
    }

    var count: Int { slots.count }
    /// By download.
    var all: [DownloadNumber: Slot] { slots }
    subscript(number: DownloadNumber) -> Slot? { slots[number] }

    mutating func take(_ number: DownloadNumber, app: String, size: FileSize, now: WallTime) {
        set(Slot(app: app, size: size, since: now), of: number)
    }

    /// The size of the transfer's file is known now.
    mutating func note(_ size: FileSize, of number: DownloadNumber) {
        guard var slot = slots[number], slot.size != size else { return }
        slot.size = size
        set(slot, of: number)
    }

    /// - Precondition: its requests have left.
    mutating func release(_ number: DownloadNumber) { set(nil, of: number) }

    /// A request of a transfer has come, changed or left. nil: the request is not known.
    mutating func note(_ id: RequestID, from before: PlacedRequest?, to after: PlacedRequest?) {
        guard var slot = slots[id.download] else { return }
        let (was, has) = (before.map { !$0.hasLeft } ?? false, after.map { !$0.hasLeft } ?? false)
        if has, !was { slot.requests.append(id) }
        if was, !has { slot.requests.removeAll { $0 == id } }
        slot.idle += (after?.isIdle ?? false ? 1 : 0) - (before?.isIdle ?? false ? 1 : 0)
        slot.waiting += (after?.isWaiting ?? false ? 1 : 0) - (before?.isWaiting ?? false ? 1 : 0)
        set(slot, of: id.download)
    }

    private mutating func set(_ slot: Slot?, of number: DownloadNumber) {
        let before = slots[number]
        slots[number] = slot
        idle += (slot?.isIdle ?? false ? 1 : 0) - (before?.isIdle ?? false ? 1 : 0)
        waiting += (slot?.isWaiting ?? false ? 1 : 0) - (before?.isWaiting ?? false ? 1 : 0)
        if let before, !before.isIdle { busy[before.size] -= 1 }
        if let slot, !slot.isIdle { busy[slot.size] += 1 }
        if let slot { countUse(slot, 1) }
        if let before { countUse(before, -1) }
    }

    private mutating func countUse(_ slot: Slot, _ change: Int) {
        var use = apps[slot.app] ?? Use()
        if slot.isIdle { use.idle += change } else { use.busy += change }
        apps[slot.app] = use == Use() ? nil : use
    }

    /// The wall clock was set by `delta`.
    mutating func shift(by delta: Duration) {
        for (number, slot) in slots { slots[number]?.since = slot.since + delta }
    }
}
