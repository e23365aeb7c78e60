/// Text that cannot control a terminal, and its width in columns.
enum TerminalText {
    /// `text` with control characters, and those that change the writing direction, replaced by "?".
    static func plain(_ text: String) -> String {
        var result = String.UnicodeScalarView()
        for scalar in text.unicodeScalars {
            switch scalar.value {
            case 0x202A...0x202E, 0x2066...0x2069, 0x2028, 0x2029: result.append("?")
            default: result.append(scalar.properties.generalCategory == .control ? "?" : scalar)
            }
        }
        return String(result)
    }

    /// The columns of `text` on a terminal: 2 for East Asian wide characters and emoji, 0 for combining marks.
    static func width(_ text: String) -> Int { text.reduce(0) { $0 + width($1) } }

    static func width(_ character: Character) -> Int {
        let scalars = character.unicodeScalars
        // An emoji with its modifiers and joiners is one picture.
        if let first = scalars.first, first.properties.isEmojiPresentation || scalars.contains("\u{FE0F}") { return 2 }
        return scalars.reduce(0) { $0 + width($1) }
    }

    private static func width(_ scalar: Unicode.Scalar) -> Int {
        if scalar.value < 0x300 { return scalar.value == 0xAD ? 0 : 1 }
        if (0x1160...0x11FF).contains(scalar.value) { return 0 }  // the rest of a Hangul syllable
        switch scalar.properties.generalCategory {
        case .nonspacingMark, .enclosingMark, .format, .control: return 0
        default: return isWide(scalar) ? 2 : 1
        }
    }

    /// Unicode's East_Asian_Width W and F, by blocks, and emoji that are drawn as pictures.
    private static func isWide(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0x1100...0x115F, 0x2E80...0x303E, 0x3041...0x3247, 0x3250...0x4DBF, 0x4E00...0xA4CF, 0xA960...0xA97F, 0xAC00...0xD7A3,
            0xF900...0xFAFF, 0xFE10...0xFE19, 0xFE30...0xFE6F, 0xFF01...0xFF60, 0xFFE0...0xFFE6, 0x16FE0...0x18AFF, 0x1AFF0...0x1B2FF,
            0x20000...0x3FFFD:
            true
        default: scalar.properties.isEmojiPresentation
        }
    }

    /// `text` in at most `columns`. If it is longer, an ellipsis replaces its middle, so that start and extension stay.
    static func cut(_ text: String, to columns: Int, ellipsis: String = "…") -> String {
        guard width(text) > columns else { return text }
        let room = columns - width(ellipsis)
        guard room > 0 else { return columns > 0 ? String(ellipsis.prefix(columns)) : "" }
        let tail = min(room / 2, 10)
        var (head, headWidth) = ("", 0)
        for character in text {
            guard headWidth + width(character) <= room - tail else { break }
            head.append(character)
            headWidth += width(character)
        }
        var (end, endWidth) = ([Character](), 0)
        for character in text.reversed() {
            guard endWidth + width(character) <= room - headWidth else { break }
            end.append(character)
            endWidth += width(character)
        }
        return head + ellipsis + String(end.reversed())
    }

    /// `text` in lines of at most `columns`, broken between words, and in Japanese between characters.
    ///
    /// - Parameter cutsWords: a word that is longer than a line is cut, as by `cut`; otherwise it goes on in the next line.
    static func wrapped(_ text: String, to columns: Int, cutsWords: Bool = true) -> [String] {
        var lines: [String] = []
        for word in text.split(separator: " ") {
            var blank = " "
            for part in unbroken(word) {
                let pieces = cutsWords ? [cut(part, to: columns)] : broken(part, to: columns)
                for piece in pieces {
                    if let last = lines.last, width(last) + blank.count + width(piece) <= columns {
                        lines[lines.count - 1] = last + blank + piece
                    } else {
                        lines.append(piece)
                    }
                    blank = ""
                }
            }
        }
        return lines
    }

    /// The fewest columns for a text behind another one, and below it.
    private static let (leastBehind, leastBelow) = (20, 10)

    /// `text` behind `head`. Its further lines are below its first one. If few columns are left behind `head`, `text` begins in the line
    /// below `head`.
    ///
    /// - Parameter rows: the most lines. If they or the columns are too few, there is one line, whose middle is cut out.
    static func hanging(_ text: String, behind head: String, to columns: Int, rows: Int, ellipsis: String = "…") -> [String] {
        let line = head + "  " + text
        guard width(line) > columns else { return [line] }
        let isBehind = columns - width(head) - 2 >= leastBehind
        let indent = isBehind ? width(head) + 2 : 2
        let whole = columns - indent >= leastBelow ? wrapped(text, to: columns - indent, cutsWords: false) : []
        guard let first = whole.first, whole.count + (isBehind ? 0 : 1) <= rows else { return [cut(line, to: columns, ellipsis: ellipsis)] }
        let blanks = String(repeating: " ", count: indent)
        if isBehind { return [head + "  " + first] + whole.dropFirst().map { blanks + $0 } }
        var above = cut(head, to: columns, ellipsis: ellipsis)
        while above.last == " " { above.removeLast() }
        return [above] + whole.map { blanks + $0 }
    }

    /// `text`, padded with blanks to `columns`.
    static func padded(_ text: String, to columns: Int, right: Bool = false) -> String {
        let blanks = String(repeating: " ", count: max(0, columns - width(text)))
        return right ? blanks + text : text + blanks
    }
}
