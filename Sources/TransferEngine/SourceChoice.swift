internal import DownloadModel

/// What decides about a source when a request is to be made.
struct SourceStanding: Equatable {
    var left: SourceFault?
    /// It may not be asked even if nothing else is left.
    var isSpent = false
    /// It has lost a connection after it had brought bytes.
    var hasLost = false
    /// The held bytes are of its representation.
    var holds = false
    /// It may fetch a stretch beside other segments.
    var serves = true
    /// The segments that use it, and whether one of them waits for its host.
    var connections = 0
    var isWaiting = false
    /// Bytes a second for each of its connections; nil: not known.
    var speed: Double?
}

/// Chooses among the sources of a transfer, which are in the order of preference.
enum SourceChoice {
    /// The source that a transfer asks when its last request has failed; nil: none is left.
    ///
    /// First a source that has not failed. Then one that has lost its connection: unless sources mix, the one with the held bytes comes
    /// before all others, because they begin from the first byte. At last one that was left only because it contradicts others.
    static func next(_ sources: [SourceStanding], mixes: Bool) -> Int? {
        func first(_ isWanted: (SourceStanding) -> Bool) -> Int? { sources.firstIndex(where: isWanted) }
        if !mixes, let holder = first({ $0.left == nil && $0.holds && $0.hasLost }) { return holder }
        return first { $0.left == nil && !$0.hasLost } ?? first { $0.left == nil }
            ?? first { !$0.isSpent && $0.left?.isOfOthers ?? false }
    }

    /// The source of one more segment; nil: none may get one.
    ///
    /// The one with the fewest connections, so that two connections use two sources; among these, the fastest. A source whose host makes a
    /// request wait, or that has lost a connection, comes after the others.
    static func further(_ sources: [SourceStanding]) -> Int? {
        func rank(_ source: SourceStanding) -> (Int, Int, Int, Double) {
            (source.hasLost ? 1 : 0, source.isWaiting ? 1 : 0, source.connections, -(source.speed ?? .infinity))
        }
        // `min` returns the first of equal ones.
        return sources.indices.filter { sources[$0].left == nil && sources[$0].serves }.min { rank(sources[$0]) < rank(sources[$1]) }
    }
}
