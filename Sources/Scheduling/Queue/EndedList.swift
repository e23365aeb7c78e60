public import DownloadModel

/// The ended downloads that are still listed: in one list, and in a list for each application.
public struct EndedList: Sendable {
    /// Oldest end first.
    private var all = DownloadQueue()
    private var ofApps: [String: DownloadQueue] = [:]
    /// The number of the last end. Ends are numbered in order, because two ends may have the same instant.
    private(set) var last: Int64 = 0

    public var count: Int { all.count }
    /// Oldest end first.
    public var ordered: [DownloadNumber] { all.ordered }
    public func contains(_ number: DownloadNumber) -> Bool { all.contains(number) }
    public func walk(isReversed: Bool = false) -> DownloadQueue.Walk { all.walk(isReversed: isReversed) }

    /// The oldest end.
    var oldest: DownloadNumber? { all.next }
    func count(of app: String) -> Int { ofApps[app]?.count ?? 0 }

    /// The ended downloads of the application that has the most ended downloads; nil: no download has ended.
    var most: DownloadQueue? { ofApps.max { ($0.value.count, $1.key) < ($1.value.count, $0.key) }?.value }

    /// - Returns: the number of this end.
    mutating func insert(_ number: DownloadNumber, app: String) -> Int64 {
        last += 1
        all.insert(number, priority: 0, position: last)
        ofApps[app, default: DownloadQueue()].insert(number, priority: 0, position: last)
        return last
    }

    mutating func remove(_ number: DownloadNumber, app: String) {
        all.remove(number)
        ofApps[app]?.remove(number)
        if ofApps[app]?.count == 0 { ofApps[app] = nil }
    }
}
