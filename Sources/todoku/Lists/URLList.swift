internal import DownloadModel
internal import Localization
internal import TodokuClient

/// A list of URLs with their mirrors, options and line numbers: one URL a line, or an input file of aria2 (aria2c(1), "Input File"), in
/// which a tab separates the URLs of one file, and indented lines `name=value` are options of the URL above them.
struct URLList: Equatable {
    struct Line: Equatable {
        let number: Int
        let url: String
        /// The URL's own options.
        var request = DownloadRequest()
        /// The lines of these options, by their names.
        var places: [String: Int] = [:]
    }

    /// Most bytes of a list: 10,000 URLs of the greatest length.
    private static let longest = (Limits.batchItems + 1) * (Limits.urlBytes + 2)
    /// Most bytes of a line: a URL and its mirrors, of the greatest length.
    private static let longestLine = (Limits.mirrors + 1) * (Limits.urlBytes + 2)

    let name: String
    private(set) var lines: [Line] = []
    /// Counts the URLs, also those over the limit, which `lines` leaves out.
    private var count = 0
    /// A sentence for each name of an option that has no effect, at its first place.
    private(set) var warnings: [String] = []
    /// The folder of the batch, for names with folders in them; nil: none is given.
    private let directory: String?
    private var warned: Set<String> = []
    /// The URL whose options are being read.
    private var entry: Entry?

    private struct Entry: Equatable {
        let line: Int
        let text: String
        let url: DownloadURL
        let mirrors: [String]
        var options = Aria2Options()
        var places: [String: Int] = [:]
    }

    /// - Parameter file: a path; `-` is standard input.
    init(file: String, directory: String? = nil) throws(CommandFailure) {
        let name = file == "-" ? catalog.text("standard input") : file
        guard let bytes = try InputFile.read(file, most: Self.longest) else {
            throw CommandFailure(
                .usage,
                catalog.text(
                    "“%1$s” is too long for a batch: at most %2$s URLs of %3$s bytes", name, catalog.count(Limits.batchItems),
                    catalog.count(Limits.urlBytes)))
        }
        try self.init(bytes, name: name, directory: directory)
    }

    /// - Throws: naming the first line without a valid URL or option.
    init(_ bytes: [UInt8], name: String, directory: String? = nil) throws(CommandFailure) {
        (self.name, self.directory) = (name, directory)
        let mark: [UInt8] = [0xEF, 0xBB, 0xBF]  // a byte order mark, as Windows' Notepad writes
        var rest = bytes.starts(with: mark) ? bytes[mark.count...] : bytes[...]
        var number = 0
        while !rest.isEmpty {
            let end = rest.firstIndex(of: UInt8(ascii: "\n")) ?? rest.endIndex
            number += 1
            try parse(rest[..<end], number)
            rest = rest[end...].dropFirst()
        }
        try endEntry()
        guard count > 0 else { throw CommandFailure(.usage, catalog.text("“%1$s” contains no URL", name)) }
        guard count <= Limits.batchItems else {
            throw CommandFailure(
                .refused,
                catalog.text(
                    "“%1$s” has %2$s URLs, but a batch takes at most %3$s", name, catalog.count(count), catalog.count(Limits.batchItems)),
                name: ErrorName.limitExceeded.busName)
        }
    }

    /// The folders that the list names, each once.
    var folders: Set<String> { Set(lines.compactMap { $0.request.directory }) }

    // MARK: Reading

    private mutating func parse(_ bytes: ArraySlice<UInt8>, _ line: Int) throws(CommandFailure) {
        let isIndented = bytes.first.map(Self.isBlank) ?? false
        let content = bytes.trimming(Self.isBlank)
        guard let first = content.first, first != UInt8(ascii: "#") else { return }
        guard content.count <= Self.longestLine else {
            let reason = catalog.text("it is longer than %1$s bytes", catalog.count(Self.longestLine))
            throw CommandFailure(.refused, Self.text(name, line: line, reason))
        }
        // UTF-16 has bytes of 0, and a text on the bus would end at the first of them.
        guard !content.contains(0), let text = String(validating: content, as: UTF8.self) else {
            throw CommandFailure(.refused, catalog.text("%1$s, line %2$s: it is not UTF-8", name, String(line)))
        }
        if isIndented, let option = Self.option(text) {
            try setOption(option.name, to: option.value, line: line)
        } else {
            try endEntry()
            entry = try begin(text, line: line)
        }
    }

    /// The parts of an option line; nil: `text` is no option line. A URL has a “:” before its first “=”.
    private static func option(_ text: String) -> (name: String, value: String)? {
        guard let (before, value) = text.divided(at: "=") else { return nil }
        let name = before.trimmingBlanks
        guard !name.isEmpty, name.allSatisfy({ $0.isASCII && ($0.isLetter || $0.isNumber || $0 == "-") }) else { return nil }
        return (String(name), String(value.trimmingBlanks))
    }

    private func begin(_ text: String, line: Int) throws(CommandFailure) -> Entry {
        let texts = text.split(separator: "\t").map { String($0.trimmingBlanks) }.filter { !$0.isEmpty }
        var urls: [DownloadURL] = []
        for text in texts {
            do throws(Refusal) { urls.append(try DownloadURL(text)) } catch {
                throw failure(error, line: line).suggestingScheme(for: text)
            }
        }
        // aria2's users repeat a URL to get another connection.
        var mirrors: [String] = []
        for (url, text) in zip(urls, texts) where url.text != urls[0].text && !mirrors.contains(text) {
            guard mirrors.count < Limits.mirrors else {
                let reason = catalog.text("A URL has at most %1$s mirrors.", catalog.count(Limits.mirrors))
                throw failure(Refusal(.limitExceeded, reason), line: line)
            }
            mirrors.append(text)
        }
        return Entry(line: line, text: texts[0], url: urls[0], mirrors: mirrors)
    }

    private mutating func setOption(_ option: String, to value: String, line: Int) throws(CommandFailure) {
        guard entry != nil else {
            let text = catalog.text("the option “%1$s” belongs to no URL; a URL line comes first", option)
            throw failure(Aria2Options.Fault(text), line: line)
        }
        entry?.places[option] = line
        do throws(Aria2Options.Fault) {
            guard let reason = try entry?.options.set(option, to: value), warned.insert(option).inserted else { return }
            warnings.append(catalog.text("%1$s, line %2$s: “%3$s” has no effect: %4$s", name, String(line), option, reason.text))
        } catch { throw failure(error, line: line) }
    }

    private mutating func endEntry() throws(CommandFailure) {
        guard let entry else { return }
        self.entry = nil
        count += 1
        // Only the number of the others matters, for the error.
        guard count <= Limits.batchItems else { return }
        var line = Line(number: entry.line, url: entry.text, places: entry.places)
        do throws(Aria2Options.Fault) {
            line.request = try entry.options.request(for: entry.url, uris: entry.mirrors.count +| 1, in: directory)
        } catch { throw failure(error, line: error.option.flatMap { entry.places[$0] } ?? entry.line) }
        if !entry.mirrors.isEmpty { line.request.mirrors = entry.mirrors }
        lines.append(line)
    }

    private static func isBlank(_ byte: UInt8) -> Bool {
        byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") || byte == UInt8(ascii: "\r")
    }

    // MARK: Refusals

    private static func text(_ name: String, line: Int, _ reason: String) -> String {
        catalog.text("%1$s, line %2$s: %3$s", name, String(line), reason)
    }

    private func failure(_ refusal: Refusal, line: Int) -> CommandFailure {
        CommandFailure(.refused, Self.text(name, line: line, catalog.explanation(refusal)), name: refusal.name.busName)
    }

    private func failure(_ fault: Aria2Options.Fault, line: Int) -> CommandFailure {
        CommandFailure(.refused, Self.text(name, line: line, fault.text), name: ErrorName.invalidOption.busName)
    }

    /// The service's refusal. If it names an item, the message names that item's line, or the line of the refused option.
    func failure(_ error: ClientError) -> CommandFailure {
        guard error.cause == .refused, error.message.hasPrefix("Item "), let colon = error.message.firstIndex(of: ":"),
            let index = Int(error.message[..<colon].dropFirst(5)), lines.indices.contains(index)
        else { return CommandFailure(error).namingParents(error) }
        let own = ClientError(error.cause, name: error.name, message: String(error.message[colon...].dropFirst(2)))
        let line = lines[index]
        var (number, reason) = (line.number, catalog.explanation(own))
        if let key = CommandWords.key(in: own.message), let (option, place) = line.place(of: key) {
            number = place
            if let flag = CommandWords.flag(of: key) { reason = reason.replacing(flag, with: "“\(option)”") }
        }
        return CommandFailure(
            .refused, Self.text(name, line: number, reason), name: error.name,
            about: .url(try? DownloadURL(line.url), number: index +| 1)
        ).namingParents(own)
    }
}

extension URLList.Line {
    /// The option of the file that sets an option of the download, and its line; nil: none does.
    fileprivate func place(of key: String) -> (option: String, line: Int)? {
        // “out” names a folder only if it has one in it.
        guard key != "directory" || request.directory != nil else { return nil }
        for option in Aria2Options.names(setting: key) { if let line = places[option] { return (option, line) } }
        return nil
    }
}
