internal import DownloadModel

/// The facts about a source that decide whether the next request goes to it.
struct SourceStanding: Equatable {
    var left: SourceFault?
    /// The source may not be asked even as a last resort.
    var isSpent = false
    /// A connection to the source was lost after it had brought bytes.
    var hasLost = false
    /// The origin of the source has requested a pause from this transfer.
    var isPaused = false
    /// The held bytes come from the source.
    var holds = false
    /// The source may bring a stretch while other segments fetch other stretches.
    var serves = true
    /// The number of segments that use the source, and whether one of them waits for its host.
    var connections = 0
    var isWaiting = false
    /// Bytes a second for each of its connections; nil: not known.
    var speed: Double?
}

/// Chooses among the sources of a transfer, which are in the order of preference.
enum SourceChoice {
    /// The source that a transfer asks when its last request has failed; nil: none is left.
    ///
    /// First a source that has not failed, then a source that has lost its connection, and at last a source that was given up only because
    /// it contradicts the others. Before the last kind come sources at an origin that has requested a pause, because the request would wait
    /// for the end of the pause. If sources do not mix, a source that has the held bytes and has lost its connection comes before all
    /// others, because the others would begin from the first byte.
    static func next(_ sources: [SourceStanding], mixes: Bool) -> Int? {
        func first(_ isWanted: (SourceStanding) -> Bool) -> Int? { sources.firstIndex(where: isWanted) }
        if !mixes, let holder = first({ $0.left == nil && $0.holds && $0.hasLost }) { return holder }
        return first { $0.left == nil && !$0.isPaused && !$0.hasLost } ?? first { $0.left == nil && !$0.isPaused }
            ?? first { $0.left == nil } ?? first { !$0.isSpent && $0.left?.isOfOthers ?? false }
    }

    /// The source of one more segment; nil: no source may get one.
    ///
    /// Chooses the source with the fewest connections, so that two connections use two sources. Among several such sources, chooses the
    /// fastest. A source whose host makes a request wait, or that has lost a connection, comes after the others.
    static func further(_ sources: [SourceStanding]) -> Int? {
        func rank(_ source: SourceStanding) -> (Int, Int, Int, Double) {
            (source.hasLost ? 1 : 0, source.isWaiting ? 1 : 0, source.connections, -(source.speed ?? .infinity))
        }
        // `min` returns the first of equal ones.
        return sources.indices.filter { sources[$0].left == nil && sources[$0].serves }.min { rank(sources[$0]) < rank(sources[$1]) }
    }
}
