public import DownloadModel

/// Decides the content of the single progress toast: the downloads and batches that have been active long enough. Has no clock of its own.
///
/// A batch has a number from the downloads' sequence, and counts as one member here.
public struct ProgressGroup {
    /// How long a download must be active before the progress toast includes it.
    public static let delay: Duration = .seconds(2)
    /// The shortest time between two updates of the toast.
    public static let interval: Duration = .seconds(1)

    private var began: [DownloadNumber: ContinuousClock.Instant] = [:]
    /// Members whose toast the user dismissed. They get no other toast.
    private var dismissed: Set<DownloadNumber> = []
    /// The members that the toast on screen shows.
    private var told: Set<DownloadNumber> = []
    private var toldAt: ContinuousClock.Instant?
    /// Increases when the user dismisses the toast. A late update for an earlier round is not shown.
    public private(set) var round: UInt64 = 0

    public init() {}

    /// Notes that `number` has been active since `start`; for a batch, the earliest `start` counts.
    ///
    /// - Returns: whether to show or update the toast now.
    public mutating func isDue(_ number: DownloadNumber, since start: ContinuousClock.Instant, at now: ContinuousClock.Instant) -> Bool {
        if began[number].map({ $0 > start }) ?? true { began[number] = start }
        guard now - (began[number] ?? start) > Self.delay, !dismissed.contains(number) else { return false }
        return toldAt.map { now - $0 >= Self.interval } ?? true
    }

    /// The members that the toast shows now, by ascending number.
    public mutating func tell(at now: ContinuousClock.Instant) -> [DownloadNumber] {
        let all = began.keys.filter { !dismissed.contains($0) && began[$0].map { now - $0 > Self.delay } ?? false }.sorted()
        (told, toldAt) = (Set(all), now)
        return all
    }

    /// `number` is no longer active; it may become active again.
    ///
    /// - Returns: whether the toast has no member left and must close.
    public mutating func stop(_ number: DownloadNumber) -> Bool {
        guard began.removeValue(forKey: number) != nil, told.remove(number) != nil, told.isEmpty else { return false }
        toldAt = nil
        return true
    }

    /// The user dismissed the toast.
    public mutating func dismiss() {
        dismissed.formUnion(told)
        (told, toldAt) = ([], nil)
        round += 1
    }

    /// `number` has ended or was removed.
    public mutating func forget(_ number: DownloadNumber) { dismissed.remove(number) }

    public func contains(_ number: DownloadNumber) -> Bool { began[number] != nil }

    /// Whether the toast on screen shows `number`.
    public func isTold(_ number: DownloadNumber) -> Bool { told.contains(number) }
}
