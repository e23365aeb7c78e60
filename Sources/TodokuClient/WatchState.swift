internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop

/// The known downloads of one watch, and its receiver.
@BusActor final class WatchState {
    /// The watched downloads; nil: all.
    private(set) var wanted: Set<DownloadReference>?
    private let receive: @Sendable (DownloadUpdate) -> Void
    private var known: [String: (description: DownloadDescription, meter: ClientSpeedMeter)] = [:]
    /// The paths of downloads with a token that are watched by their number, by the path that their signals come from.
    private var numbered: [String: String] = [:]
    /// The ends that were reported last, while everything is watched, and those before them.
    private var (ends, formerEnds) = ([String: WallTime](), [String: WallTime]())
    /// More than a page of `Describe` has.
    private static let mostEnds = 1024
    /// Paths of downloads that were asked for, and whose end or removal was not reported meanwhile.
    private var asked: Set<String> = []
    var subscriptions: [Connection.Subscription] = []
    var isStopped = false
    /// How often the service has started or ended.
    var owners: UInt64 = 0
    var isAsking = false
    /// Whether the service went away while it was asked, so that its answers may be out of date.
    var asksAgain = false
    /// How often in a row the service went away, and when it did last.
    var losses = 0
    var lastLoss: ContinuousClock.Instant?

    init(_ downloads: [DownloadReference]?, _ receive: @escaping @Sendable (DownloadUpdate) -> Void) {
        (wanted, self.receive) = (downloads.map(Set.init), receive)
    }

    var wantsNew: Bool { wanted == nil }

    /// Adds a download to the watched ones.
    func want(_ download: DownloadReference) { wanted?.insert(download) }

    /// Whether a known download would continue by itself.
    var goesOn: Bool { known.values.contains { !$0.description.state.hasEnded && $0.description.state != .paused } }

    var notEnded: Set<DownloadReference> { Set(known.values.map(\.description).filter { !$0.state.hasEnded }.map(\.reference)) }

    func knows(_ download: DownloadReference) -> Bool { known[download.path] != nil }

    /// The paths under which the download is known whose signal came from `path`.
    func knownPaths(ofSignalFrom path: String) -> [String] {
        [path, numbered[path]].compactMap { $0 }.filter { known[$0] != nil }
    }

    /// Whether to ask for the description of a download. false while an answer is awaited: that answer contains all earlier changes.
    func beginAsking(_ download: DownloadReference) -> Bool { asked.insert(download.path).inserted }

    /// Whether to report the answer. false if a signal has reported the end or the removal: the download would end twice.
    func endAsking(_ download: DownloadReference) -> Bool { asked.remove(download.path) != nil }

    /// Reports a description from the service.
    func tell(_ description: DownloadDescription) {
        guard !isStopped, wanted?.contains(description.reference) ?? true, !hasTold(description) else { return }
        let meter = known[description.reference.path]?.meter ?? ClientSpeedMeter(description.speed, at: .now)
        keep(description, meter)
        if let token = description.token {
            let path = BusName.path(app: description.app, token: token).value
            if path != description.reference.path { numbered[path] = description.reference.path }
        }
        receive(.changed(description))
    }

    /// Whether this end was reported. A page of `Describe` may contain an end whose earlier signals come after it, and such a signal looks
    /// like a new start.
    private func hasTold(_ description: DownloadDescription) -> Bool {
        guard wantsNew, description.state.hasEnded, let endedAt = description.endedAt else { return false }
        return [ends, formerEnds].contains { $0[description.reference.path] == endedAt }
    }

    /// Ended downloads are dropped if everything is watched: otherwise the list would grow without a bound.
    private func keep(_ description: DownloadDescription, _ meter: ClientSpeedMeter) {
        let path = description.reference.path
        guard wantsNew, description.state.hasEnded else {
            known[path] = (description, meter)
            return
        }
        known[path] = nil
        asked.remove(path)
        if ends.count >= Self.mostEnds { (ends, formerEnds) = ([:], ends) }
        ends[path] = description.endedAt
    }

    func change(_ path: String, _ body: (inout DownloadDescription) -> Void) {
        guard !isStopped, var entry = known[path] else { return }
        let before = entry.description
        body(&entry.description)
        if entry.description.state != .active {
            entry.description.speed = 0
            entry.meter = ClientSpeedMeter(0, at: .now)
        }
        keep(entry.description, entry.meter)
        if entry.description != before { receive(.changed(entry.description)) }
    }

    /// Applies a signal of a download.
    func take(_ message: Message) {
        for path in knownPaths(ofSignalFrom: message.path) { apply(message, at: path) }
    }

    /// Applies a signal of the download that is known under `path`.
    private func apply(_ message: Message, at path: String) {
        guard !isStopped, known[path] != nil else { return }
        if let (written, received, total) = Download.progress.read(message) {
            let speed = known[path]?.meter.add(written, at: .now) ?? 0
            change(path) { description in
                description.received = received
                description.total = total < 0 ? nil : ByteCount(total)
                description.speed = speed
            }
        } else if let (offset, total) = Download.resumedAt.read(message) {
            change(path) { description in
                description.received = offset
                description.total = total < 0 ? nil : ByteCount(total)
            }
        }
    }

    /// - Parameter download: as a signal, or the watch itself, names it.
    func remove(_ download: DownloadReference) {
        if let path = numbered.removeValue(forKey: download.path) { remove(DownloadReference(ObjectPath(path))) }
        numbered = numbered.filter { $0.value != download.path }
        guard !isStopped, wanted?.contains(download) ?? true else { return }
        wanted?.remove(download)
        known[download.path] = nil
        asked.remove(download.path)
        receive(.removed(download))
    }

    func lose(_ error: ClientError) {
        guard !isStopped else { return }
        isStopped = true
        receive(.lost(error))
    }
}

/// Bytes per second, from the written bytes in signals: an exponential mean over about 3 s.
struct ClientSpeedMeter: Equatable, Sendable {
    private static let span = 3.0
    private var speed: Double
    private var last: ContinuousClock.Instant
    private var pending: ByteCount = 0

    /// - Parameter speed: the service's speed at `now`.
    init(_ speed: Speed, at now: ContinuousClock.Instant) { (self.speed, last) = (Double(speed), now) }

    /// Adds the bytes written between the last call and `now`.
    ///
    /// - Returns: the new speed.
    mutating func add(_ bytes: ByteCount, at now: ContinuousClock.Instant) -> Speed {
        pending +|= bytes
        let seconds = (now - last) / .seconds(1)
        guard seconds >= 0.02 else { return Speed(clamping: speed) }
        let weight = speed == 0 ? 1 : seconds / (Self.span + seconds)
        speed += weight * (Double(pending) / seconds - speed)
        (self.last, pending) = (now, 0)
        return Speed(clamping: speed)
    }
}
