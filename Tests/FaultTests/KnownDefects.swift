/// What the campaign has found and is not mended yet. A case is passed over, and counted as known, where one of these explains each thing
/// that is wrong with it; anything else fails the suite. A line goes with its mending; an empty list is the aim.
enum KnownDefect {
    /// A part of the words, and what is behind them.
    static let all: [(words: String, reason: String)] = [
        ("bytes were fetched for", "The written map counts only once a row names the part file, and that comes up to 100 ms late."),
        ("it failed instead of waiting: There is not enough room", "A full disk ends a download instead of making it wait."),
        ("it failed, and the file is there", "A commit whose last fsync fails is told as failed after the rename."),
        ("it became a (1).bin", "The same: the next try takes another name."),
        ("left behind: [\"a (1).bin\"", "The same: both files stay."),
        ("segments [\"", "A written map that came back, or whose removal was cut off, is not looked for at a start."),
        ("left behind: [\".todoku-3.part\"", "The same, for the part file of a cancelled download."),
        ("without its folder it is failed", "A folder that goes away ends a download instead of making it wait."),
    ]

    static func explains(_ words: String) -> Bool { all.contains { words.contains($0.words) } }
}
