/// Defects that the campaign has found and that are not fixed yet. If they explain every failure of a case, the case counts as known. Any
/// other failure fails the suite. Fixing a defect removes its line; the list should be empty.
enum KnownDefect {
    /// A part of the failure's words, and the defect behind it.
    static let all: [(words: String, reason: String)] = []

    static func explains(_ words: String) -> Bool { all.contains { words.contains($0.words) } }
}
