internal import DownloadModel

/// The queued downloads that may start, in lanes, and the applications, which take turns.
///
/// There is a lane for each host and application (and interval, origin, urgency and last refusal). A lane whose host takes a request now
/// offers its first download in its application's `ready`. So a choice costs the same with 100,000 queued downloads as with one.
struct Lanes {
    private var queue = DownloadQueue(countsAcrossLanes: true)
    /// The applications that have lanes or active downloads, by name.
    private(set) var apps: [String: AppShare] = [:]
    private var lastID: UInt32 = 0
    /// The origins of the downloads in lanes of several origins.
    private var origins: [DownloadNumber: String] = [:]
    /// Downloads that somebody has moved to the front, and that have neither started nor ended since. The last one comes first.
    private var moved: [DownloadNumber] = []
    /// At most this many moves to the front are remembered.
    private static let mostMoved = 16

    // MARK: Downloads

    /// The lane for downloads with these properties.
    ///
    /// - Parameter requestInterval, origin: as `host` distinguishes them.
    mutating func lane(
        at host: HostLoad, app: String, requestInterval: Duration, origin: String?, isUrgent: Bool, wasRefused: Bool, size: FileSize
    ) -> Lane {
        let known = host.lanes.first { lane in
            lane.app.name == app && lane.requestInterval == requestInterval && lane.origin == origin && lane.isUrgent == isUrgent
                && lane.wasRefused == wasRefused && lane.size == size
        }
        if let known { return known }
        lastID &+= 1
        let lane = Lane(
            id: lastID, host: host, app: share(of: app), requestInterval: requestInterval, origin: origin, isUrgent: isUrgent,
            wasRefused: wasRefused, size: size)
        lane.app.lanes += 1
        host.lanes.append(lane)
        return lane
    }

    /// - Parameter origin: `DownloadURL.origin` of the download's URL.
    mutating func insert(_ number: DownloadNumber, in lane: Lane, origin: String, priority: Int32, position: Int64) {
        lane.count += 1
        queue.insert(number, lane: lane.id, priority: priority, position: position)
        if lane.origin == nil { origins[number] = origin }
    }

    /// A lane ends with its last download.
    mutating func remove(_ number: DownloadNumber, from lane: Lane) {
        lane.count -= 1
        queue.remove(number)
        if lane.origin == nil { origins[number] = nil }
        if lane.offered == number { withdraw(lane) }
        guard lane.count == 0 else { return }
        lane.host.lanes.removeAll { $0 === lane }
        lane.app.lanes -= 1
        forgetIfIdle(lane.app)
    }

    func first(of lane: Lane) -> DownloadQueue.Ranked? { queue.first(in: lane.id) }

    /// The origin of the first download of `lane`. If this origin delays the first download, the downloads behind it wait, too.
    func origin(of lane: Lane) -> String { lane.origin ?? first(of: lane).flatMap { origins[$0.number] } ?? "" }

    func origin(of number: DownloadNumber, in lane: Lane) -> String { lane.origin ?? origins[number] ?? "" }

    /// The number of downloads of `lane` that come before `number`, which may be in another lane.
    func ahead(of number: DownloadNumber, in lane: Lane) -> Int { queue.ahead(of: number, in: lane.id) }

    /// The number of downloads of all lanes that come before `number`.
    func ahead(of number: DownloadNumber) -> Int { queue.ahead(of: number) }

    /// Visits the downloads of `lane` in order until `isWanted` returns false.
    func prefix(of lane: Lane, while isWanted: (DownloadNumber) -> Bool) { queue.prefix(of: lane.id, while: isWanted) }

    // MARK: Offers and turns

    /// Offers the first download of `lane`, because the lane's host takes it now; nil: withdraws the offer.
    mutating func offer(_ first: DownloadQueue.Ranked?, of lane: Lane) {
        guard first?.number != lane.offered else { return }
        withdraw(lane)
        guard let first else { return }
        lane.offered = first.number
        lane.app.ready[lane.size.rawValue].insert(first.number, priority: first.priority, position: first.position)
    }

    private func withdraw(_ lane: Lane) {
        if let number = lane.offered { lane.app.ready[lane.size.rawValue].remove(number) }
        lane.offered = nil
    }

    /// The first offered download of the highest priority; among several applications, the one whose turn it is.
    ///
    /// - Parameters:
    ///   - sizes: the sizes of the files that may start.
    ///   - obeysMoves: whether a download that was moved to the front precedes the application whose turn it is.
    func next(
        of sizes: [FileSize] = FileSize.allCases, obeysMoves: Bool = true
    ) -> (download: DownloadQueue.Ranked, app: AppShare)? {
        var best: (download: DownloadQueue.Ranked, app: AppShare)?
        for app in apps.values {
            guard let own = app.first(of: sizes) else { continue }
            guard let rival = best else {
                best = (own, app)
                continue
            }
            if precedes(own, of: app, rival.download, of: rival.app, obeysMoves: obeysMoves) { best = (own, app) }
        }
        return best
    }

    /// Whether the download `a` of the application `first` starts before the download `b` of the application `second`.
    func precedes(
        _ a: DownloadQueue.Ranked, of first: AppShare, _ b: DownloadQueue.Ranked, of second: AppShare, obeysMoves: Bool = true
    ) -> Bool {
        let (own, other) = obeysMoves ? (place(of: a), place(of: b)) : (0, 0)
        return (b.priority, own, first.cost, a.position, a.number) < (a.priority, other, second.cost, b.position, b.number)
    }

    /// The place of `download` in `moved`. A download that is not there comes after all downloads that are.
    private func place(of download: DownloadQueue.Ranked) -> Int { moved.firstIndex(of: download.number) ?? moved.count }

    /// `number` was moved to the front: it starts next, whichever application's turn it is.
    mutating func comesNext(_ number: DownloadNumber) {
        hadTurn(number)
        moved.insert(number, at: 0)
        if moved.count > Self.mostMoved { moved.removeLast() }
    }

    /// `number` has started or ended, or was moved away from the front.
    mutating func hadTurn(_ number: DownloadNumber) { moved.removeAll { $0 == number } }

    // MARK: Applications

    mutating func share(of app: String) -> AppShare {
        if let share = apps[app] { return share }
        // A new application starts level with the least served one, so it cannot claim the service that others received before.
        let share = AppShare(name: app, cost: apps.values.map(\.cost).min() ?? .zero)
        apps[app] = share
        return share
    }

    mutating func forgetIfIdle(_ app: AppShare) { if app.isIdle { apps[app.name] = nil } }
}

/// Downloads that may start, in queue order. They share application, host, interval, origin, urgency and last refusal.
final class Lane {
    /// The lane's number in `Lanes`.
    let id: UInt32
    unowned let host: HostLoad  // the gate keeps a host that has lanes
    let app: AppShare
    /// The downloads' own `request-interval`; zero: none.
    let requestInterval: Duration
    /// The origin of the downloads' URLs; empty: no request needed; nil: several origins.
    let origin: String?
    /// A caller wants these downloads at once: no pause or pace of an origin delays them.
    var isUrgent: Bool
    /// A server refused these downloads' last requests (429, 503). They have a lane of their own, so that others need not wait behind them.
    let wasRefused: Bool
    /// The size of the downloads' files. Small files may start when large ones may not.
    let size: FileSize
    fileprivate(set) var count = 0
    /// The lane's first download while it may start: it is in `app.ready`.
    fileprivate(set) var offered: DownloadNumber?

    fileprivate init(
        id: UInt32, host: HostLoad, app: AppShare, requestInterval: Duration, origin: String?, isUrgent: Bool, wasRefused: Bool,
        size: FileSize
    ) {
        (self.id, self.host, self.app, self.requestInterval) = (id, host, app, requestInterval)
        (self.origin, self.isUrgent, self.wasRefused, self.size) = (origin, isUrgent, wasRefused, size)
    }
}

/// One application's use of the service; it decides whose turn it is.
final class AppShare {
    /// The cost of a start. With this cost, applications share slots by time; they share a host that keeps an interval by the number of
    /// requests.
    static let start: Duration = .seconds(1)

    let name: String
    /// The first download of each of the application's lanes that may start now, by `FileSize.rawValue`.
    fileprivate var ready = FileSize.allCases.map { _ in DownloadQueue() }
    fileprivate(set) var lanes = 0
    private(set) var active = 0
    /// The time for which its transfers took slots, up to this turn (`HostGate.charge`), plus `start` for each.
    private(set) var cost: Duration

    fileprivate init(name: String, cost: Duration) { (self.name, self.cost) = (name, cost) }

    fileprivate func first(of sizes: [FileSize]) -> DownloadQueue.Ranked? {
        sizes.lazy.compactMap { self.ready[$0.rawValue].first }.min { a, b in
            (b.priority, a.position, a.number) < (a.priority, b.position, b.number)
        }
    }

    /// Its transfers took slots for this time in total. Negative: they were billed too much.
    func used(_ time: Duration) { cost += time }

    /// A download takes a slot.
    func begins() {
        cost += Self.start
        active += 1
    }

    /// A download releases its slot.
    func ends() { active -= 1 }

    fileprivate var isIdle: Bool { lanes == 0 && active == 0 }
}
