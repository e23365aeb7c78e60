/// What the campaign has found and is not mended yet. A case is passed over, and counted as known, where one of these explains each thing
/// that is wrong with it; anything else fails the suite. A line goes with its mending; an empty list is the aim.
enum KnownDefect {
    /// A part of the words, and what is behind them.
    static let all: [(words: String, reason: String)] = []

    static func explains(_ words: String) -> Bool { all.contains { words.contains($0.words) } }
}
