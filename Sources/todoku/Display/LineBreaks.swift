/// Where a line of Japanese may end: JIS X 4051 in a few rules.
extension TerminalText {
    /// No line begins with one of these.
    private static let stayBehind = Set<Character>("、。，．・：；？！）］｝〕〉》」』】”’…‥ー々〜ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ,.;:?!)]}%")
    /// No line ends with one of these.
    private static let stayBefore = Set<Character>("（［｛〔〈《「『【“‘([{")

    /// The parts of `word` between which a line may end. A line may end beside a wide character; other characters make up words.
    static func unbroken(_ word: Substring) -> [String] {
        var parts: [String] = []
        var previous: Character?
        for character in word {
            if let previous, !mayBreak(previous, character) {
                parts[parts.count - 1].append(character)
            } else {
                parts.append(String(character))
            }
            previous = character
        }
        return parts
    }

    /// `text` in pieces of at most `columns`, for a word that no rule breaks.
    static func broken(_ text: String, to columns: Int) -> [String] {
        guard width(text) > columns else { return [text] }
        var (pieces, piece) = ([String](), "")
        for character in text {
            if !piece.isEmpty, width(piece) + width(character) > columns {
                // Such a character takes those before it along, up to one that may begin a line.
                var next = ""
                while piece.count > 1, stayBehind.contains(next.first ?? character) { next.insert(piece.removeLast(), at: next.startIndex) }
                pieces.append(piece)
                piece = next
            }
            piece.append(character)
        }
        return pieces + [piece]
    }

    private static func mayBreak(_ left: Character, _ right: Character) -> Bool {
        (width(left) > 1 || width(right) > 1) && !stayBefore.contains(left) && !stayBehind.contains(right)
    }
}
