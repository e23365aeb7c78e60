public import DownloadModel

/// Of what the one progress toast tells: the downloads and batches under way that have lasted long enough. It decides, and has no clock.
///
/// A batch has a number of the downloads' own sequence, and counts as one here.
public struct ProgressGroup {
    /// A progress toast is for what lasts longer than this.
    public static let delay: Duration = .seconds(2)
    /// And it is updated at most so often.
    public static let interval: Duration = .seconds(1)

    private var began: [DownloadNumber: ContinuousClock.Instant] = [:]
    /// Those whose toast the user has put away: it does not come back for them.
    private var dismissed: Set<DownloadNumber> = []
    /// The downloads that the toast on screen counts.
    private var told: Set<DownloadNumber> = []
    private var toldAt: ContinuousClock.Instant?
    /// Grows with each toast that the user has put away: what was on its way to that one is not shown.
    public private(set) var round: UInt64 = 0

    public init() {}

    /// `number` is under way, and has been since `start`; for a batch, the earliest counts.
    ///
    /// - Returns: whether the toast is to be shown, or updated, now.
    public mutating func isDue(_ number: DownloadNumber, since start: ContinuousClock.Instant, at now: ContinuousClock.Instant) -> Bool {
        if began[number].map({ $0 > start }) ?? true { began[number] = start }
        guard now - (began[number] ?? start) > Self.delay, !dismissed.contains(number) else { return false }
        return toldAt.map { now - $0 >= Self.interval } ?? true
    }

    /// Those that the toast tells of now, in the order of their numbers.
    public mutating func tell(at now: ContinuousClock.Instant) -> [DownloadNumber] {
        let all = began.keys.filter { !dismissed.contains($0) && began[$0].map { now - $0 > Self.delay } ?? false }.sorted()
        (told, toldAt) = (Set(all), now)
        return all
    }

    /// `number` is not under way any more; it may be again.
    ///
    /// - Returns: whether the toast has nothing left to tell of and is to be closed.
    public mutating func stop(_ number: DownloadNumber) -> Bool {
        guard began.removeValue(forKey: number) != nil, told.remove(number) != nil, told.isEmpty else { return false }
        toldAt = nil
        return true
    }

    /// The user has put the toast away.
    public mutating func dismiss() {
        dismissed.formUnion(told)
        (told, toldAt) = ([], nil)
        round += 1
    }

    /// `number` has ended, or is off the list.
    public mutating func forget(_ number: DownloadNumber) { dismissed.remove(number) }

    public func contains(_ number: DownloadNumber) -> Bool { began[number] != nil }
}
