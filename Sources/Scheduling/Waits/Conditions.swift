public import DownloadModel

/// The conditions outside of the queue under which downloads start and continue. Events set them; every decision checks them again.
public struct Conditions: Sendable {
    /// The service is exiting: start nothing.
    public internal(set) var isEnding = false
    /// The machine sleeps or is about to sleep: start nothing.
    var isAsleep = false
    /// The journal refuses further changes: transfers continue, and nothing starts.
    var isJournalFull = false
    /// Applications with a window in front. They show their outcomes themselves, unless a download always asks for a toast.
    var appsInFront: Set<String> = []
    /// The known condition of the network. nil: not known yet; nothing that needs the network starts.
    public private(set) var network: NetworkCondition?
    /// Counts the changes of reach. A resume in spite of a missing network counts only until the next change.
    private(set) var reachCount: Int32 = 0

    init(network: NetworkCondition?) { self.network = network }

    /// Whether a download may start at all.
    var allowStarts: Bool { !isEnding && !isAsleep && !isJournalFull }

    mutating func set(_ network: NetworkCondition?) {
        if network?.reach != self.network?.reach { reachCount &+= 1 }
        self.network = network
    }

    /// The reason why the network hinders a download that needs it; nil: none.
    ///
    /// - Parameters:
    ///   - defiedReach: the `reachCount` at which a caller resumed the download in spite of the network; nil: no caller did.
    ///   - allowsMetered: whether the download may use a metered connection.
    func hindrance(defiedReach: Int32?, allowsMetered: Bool) -> WaitReason? {
        guard let network, network != .open else { return nil }
        if network.reach == .offline || network.reach == .captive, defiedReach != reachCount { return .offline }
        return network.isMetered && !allowsMetered ? .metered : nil
    }
}
