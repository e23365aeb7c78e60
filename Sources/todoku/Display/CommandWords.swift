internal import DownloadModel

/// The service names an option by its key on the bus; the command calls the same option by its flag.
enum CommandWords {
    /// The flags that are not the key with two hyphens before it.
    private static let flags = [
        "allow-metered": "--not-metered", "allow-private": "--not-private", "cookies": "--load-cookies", "header-list": "--header",
        "headers": "--header", "mirrors": "--mirror", "password": "--password-file", "start": "--paused", "username": "--user",
    ]

    /// Whether a sentence of the service says that a folder is missing.
    static func tellsMissingFolder(_ sentence: String) -> Bool { sentence.hasPrefix(folder) && sentence.hasSuffix(" does not exist.") }

    /// The flag of an option's key; nil: there is no such option.
    static func flag(of key: String) -> String? { OptionRow.byKey[key].map { _ in flags[key] ?? "--\(key)" } }

    /// How the service begins a sentence about a folder. Several flags name one, such as --output.
    private static let folder = "directory: "

    /// How the service names two options. The command has one flag for both.
    private static let credentials = "the options username and password"

    /// The keys with which sentences about their values begin.
    private static let keysInFront = ["checksum", "piece-hashes"]

    /// The mirror that a sentence of the service refuses, counted from 0; nil: the sentence is about no mirror.
    static func mirror(refusedBy sentence: String) -> Int? {
        guard let item = item(in: sentence), item.key == "mirrors" else { return nil }
        return item.place
    }

    /// The key of the option that a sentence of the service is about; nil: it begins with none.
    static func key(in sentence: String) -> String? {
        if sentence.hasPrefix(folder) { return "directory" }
        if let key = keysInFront.first(where: { sentence.hasPrefix("\($0): ") }) { return key }
        let words = sentence.split(separator: " ", maxSplits: 2)
        guard words.count > 1, words[0] == "Option" else { return nil }
        let key = String(words[1].prefix { $0.isASCII && ($0.isLetter || $0 == "-") })
        return OptionRow.byKey[key] == nil ? nil : key
    }

    /// The parts of a sentence about one value of an option: "Option mirrors, item 0: …". The service counts from 0.
    private static func item(in sentence: String) -> (key: Substring, place: Int, rest: Substring)? {
        let start = "Option "
        guard sentence.hasPrefix(start), let word = sentence.firstRange(of: ", item ") else { return nil }
        let (key, rest) = (sentence[..<word.lowerBound].dropFirst(start.count), sentence[word.upperBound...])
        guard !key.contains(" "), let colon = rest.firstIndex(of: ":"), let place = decimal(rest[..<colon].utf8, as: Int.self) else {
            return nil
        }
        return (key, place, rest[colon...])
    }

    /// A sentence of the service with flags in the place of keys: "Option filename is too long." becomes "--filename is too long.", and
    /// "Option mirrors, item 0: …" becomes "--mirror, number 1: …". A key that has a hyphen is replaced also without the word "option"
    /// before it.
    static func replacingKeys(in sentence: String) -> String {
        if sentence.hasPrefix(folder) { return "The folder \(sentence.dropFirst(folder.count))" }
        if keysInFront.contains(where: { sentence.hasPrefix("\($0): ") }) { return "--\(sentence)" }
        var sentence = sentence.replacing(credentials, with: "--user")
        if let (key, place, rest) = item(in: sentence) { sentence = "Option \(key), number \(place +| 1)\(rest)" }
        var words: [Substring] = []
        for word in sentence.split(separator: " ", omittingEmptySubsequences: false) {
            var lead = word.prefix { $0 == "(" }
            let key = word[lead.endIndex...].prefix { $0.isASCII && ($0.isLetter || $0 == "-") }
            let end = word[key.endIndex...]
            let isNamed = words.last.map(isOption) ?? false
            guard isNamed || isNoProse(key, before: end), let flag = flag(of: String(key)) else {
                words.append(word)
                continue
            }
            if isNamed {
                lead = words.removeLast().prefix { $0 == "(" }
                if words.last == "the" { words.removeLast() }
            }
            words.append("\(lead)\(flag)\(end)")
        }
        return words.joined(separator: " ")
    }

    /// Whether the next word is an option's key: "Option", "option", "(option".
    private static func isOption(_ word: Substring) -> Bool { ["Option", "option"].contains(word.drop { $0 == "(" }) }

    /// Whether `word`, which is an option's key, can only mean the option. A key of one word, such as extract, may be a word of the
    /// sentence.
    ///
    /// - Parameter end: what follows the key up to the next blank.
    private static func isNoProse(_ word: Substring, before end: Substring) -> Bool {
        word.contains("-") && end.allSatisfy { ".,:;)".contains($0) }
    }
}
