/// The plural form for a count: the expression in a catalogue's header, in gettext's subset of C, as in `nplurals=2; plural=(n != 1);`.
struct PluralRule: Sendable {
    private indirect enum Expression: Sendable {
        case count
        case number(UInt64)
        case not(Expression)
        case operation(String, Expression, Expression)
        case choice(Expression, Expression, Expression)
    }

    private let expression: Expression

    /// One form for all counts.
    static let none = PluralRule(expression: .number(0))

    private init(expression: Expression) { self.expression = expression }

    /// nil if the header has no valid expression.
    init?(_ header: some StringProtocol) {
        guard let text = header.split(separator: ";").lazy.map({ $0.drop { $0 == " " } }).first(where: { $0.hasPrefix("plural=") }) else {
            return nil
        }
        var reader = Reader(rest: Self.words(text.dropFirst("plural=".count))[...])
        guard let expression = reader.choice(), reader.rest.isEmpty else { return nil }
        self.expression = expression
    }

    func form(for count: UInt64) -> Int { Int(clamping: Self.value(expression, count)) }

    private static func value(_ expression: Expression, _ count: UInt64) -> UInt64 {
        switch expression {
        case .count: return count
        case .number(let number): return number
        case .not(let operand): return value(operand, count) == 0 ? 1 : 0
        case .choice(let condition, let yes, let no): return value(value(condition, count) != 0 ? yes : no, count)
        case .operation(let sign, let left, let right):
            let (a, b) = (value(left, count), value(right, count))
            return switch sign {
            case "||": a != 0 || b != 0 ? 1 : 0
            case "&&": a != 0 && b != 0 ? 1 : 0
            case "==": a == b ? 1 : 0
            case "!=": a != b ? 1 : 0
            case "<": a < b ? 1 : 0
            case ">": a > b ? 1 : 0
            case "<=": a <= b ? 1 : 0
            case ">=": a >= b ? 1 : 0
            case "+": a &+ b
            case "-": a &- b
            case "*": a &* b
            case "/": b == 0 ? 0 : a / b
            default: b == 0 ? 0 : a % b
            }
        }
    }

    /// Names, numbers and operators.
    private static func words(_ text: some StringProtocol) -> [String] {
        var words: [String] = []
        var isGlued = false
        for character in text {
            let isDigit = character.isASCII && character.isNumber
            if let last = words.last, isGlued,
                isDigit ? last.allSatisfy(\.isNumber) : ["||", "&&", "==", "!=", "<=", ">="].contains("\(last)\(character)")
            {
                words[words.count - 1].append(character)
            } else if !character.isWhitespace {
                words.append(String(character))
            }
            isGlued = !character.isWhitespace
        }
        return words
    }

    private struct Reader {
        var rest: ArraySlice<String>

        private static let ranks = [
            "||": 1, "&&": 2, "==": 3, "!=": 3, "<": 4, ">": 4, "<=": 4, ">=": 4, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6,
        ]

        private mutating func take(_ word: String) -> Bool {
            guard rest.first == word else { return false }
            rest.removeFirst()
            return true
        }

        mutating func choice() -> Expression? {
            guard let condition = operation(above: 0) else { return nil }
            guard take("?") else { return condition }
            guard let yes = choice(), take(":"), let no = choice() else { return nil }
            return .choice(condition, yes, no)
        }

        private mutating func operation(above rank: Int) -> Expression? {
            guard var left = operand() else { return nil }
            while let sign = rest.first, let own = Self.ranks[sign], own > rank {
                rest.removeFirst()
                guard let right = operation(above: own) else { return nil }
                left = .operation(sign, left, right)
            }
            return left
        }

        private mutating func operand() -> Expression? {
            if take("!") { return operand().map { .not($0) } }
            if take("(") {
                guard let inner = choice(), take(")") else { return nil }
                return inner
            }
            guard let word = rest.popFirst() else { return nil }
            return word == "n" ? .count : UInt64(word).map { .number($0) }
        }
    }
}
