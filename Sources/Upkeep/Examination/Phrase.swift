internal import DBus

/// English words, and what is filled into them. The command translates the words; this room knows no language.
///
/// `meson-helpers/translations` finds the words in the calls of the initializer, so write them as literals there.
public struct Phrase: Equatable, Sendable {
    public enum Argument: Equatable, Sendable {
        /// A name or a number: the same in each language.
        case quoted(String)
        case phrase(Phrase)
    }

    public private(set) var english: String
    /// The words, with `%1$s`, `%2$s` … for the arguments.
    public private(set) var template: String
    public private(set) var arguments: [Argument] = []
    /// Whether the text comes from the system or from another room, so that it is no template.
    public private(set) var isForeign = false

    init(_ words: Words) {
        (english, template, arguments) = (words.parts.english, words.parts.template, words.parts.arguments)
    }

    /// A text of the system, or an English sentence of another room, such as PartFiles. The command knows the sentences of rooms.
    init(foreign text: String) { (english, template, isForeign) = (text, text, true) }

    /// This phrase without the full stop of a text at its end: a message of another program may be a sentence. The words themselves must
    /// not end with a stop.
    var withoutStop: Phrase {
        guard english.hasSuffix(".") else { return self }
        var phrase = self
        phrase.english.removeLast()
        if phrase.template.hasSuffix(".") {
            phrase.template.removeLast()
        } else if let last = phrase.arguments.popLast() {
            phrase.arguments.append(last.withoutStop)
        }
        return phrase
    }
}

extension Phrase.Argument {
    fileprivate var withoutStop: Phrase.Argument {
        switch self {
        case .quoted(let text): .quoted(String(text.dropLast()))
        case .phrase(let phrase): .phrase(phrase.withoutStop)
        }
    }
}

extension Phrase {
    /// A literal with its interpolations.
    struct Words: ExpressibleByStringInterpolation {
        let parts: StringInterpolation

        init(stringLiteral literal: String) {
            var parts = StringInterpolation(literalCapacity: 0, interpolationCount: 0)
            parts.appendLiteral(literal)
            self.parts = parts
        }

        init(stringInterpolation parts: StringInterpolation) { self.parts = parts }

        struct StringInterpolation: StringInterpolationProtocol {
            private(set) var english = ""
            private(set) var template = ""
            private(set) var arguments: [Argument] = []

            init(literalCapacity: Int, interpolationCount: Int) {}

            mutating func appendLiteral(_ literal: String) {
                english.append(literal)
                template.append(literal)
            }

            mutating func appendInterpolation(_ value: some CustomStringConvertible) {
                append(.quoted(value.description), value.description)
            }

            mutating func appendInterpolation(_ phrase: Phrase) { append(.phrase(phrase), phrase.english) }

            /// The message of a call on a bus that failed.
            mutating func appendInterpolation(_ error: DBusError) { appendInterpolation(Phrase(foreign: error.message)) }

            private mutating func append(_ argument: Argument, _ text: String) {
                arguments.append(argument)
                template.append("%\(arguments.count)$s")
                english.append(text)
            }
        }
    }
}
