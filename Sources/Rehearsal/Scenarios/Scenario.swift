internal import DownloadModel

/// What goes wrong in a rehearsal, with its parameters: `crash:at=1048576`.
package struct Scenario: Equatable, Sendable, CustomStringConvertible {
    package enum Kind: String, CaseIterable, Sendable {
        case none, busy, missing, unreachable, stall, slow, truncated, changed, damaged, expired, portal
        case redirectLoop = "redirect-loop"
        case fullDisk = "full-disk"
        case crash
    }

    package let kind: Kind
    /// The value of each parameter that is a number.
    private let numbers: [String: UInt64]
    /// The folder of an existing small disk, for `full-disk`.
    package let disk: String?

    /// The value of a parameter. The scenario must have it.
    package func number(_ key: String) -> UInt64 {
        guard let value = numbers[key] else { preconditionFailure("\(kind.rawValue) has no parameter \(key)") }
        return value
    }

    /// The parameters with their values, in the order of the table.
    package var parameters: [(key: String, value: UInt64)] {
        kind.parameters.compactMap { parameter in numbers[parameter.key].map { (key: parameter.key, value: $0) } }
    }

    /// As it would be written on a command line.
    package var description: String {
        let words = parameters.map { "\($0.key)=\($0.value)" } + (disk.map { ["disk=\($0)"] } ?? [])
        return words.isEmpty ? kind.rawValue : "\(kind.rawValue):\(words.joined(separator: ","))"
    }

    /// Reads `NAME` or `NAME:KEY=VALUE,KEY=VALUE`. Numbers may end in `K` or `M`, powers of 1024.
    ///
    /// - Throws: a sentence that names what is wrong.
    package static func parse(_ text: String) throws(RehearsalError) -> Scenario {
        let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        let name = String(parts.first ?? "")
        guard let kind = Kind(rawValue: name) else {
            throw RehearsalError("there is no scenario “\(name)”; “todoku rehearse --list” has them all")
        }
        var numbers: [String: UInt64] = [:]
        var disk: String?
        for word in parts.count == 2 ? parts[1].split(separator: ",", omittingEmptySubsequences: false) : [] {
            let pair = word.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            guard pair.count == 2 else { throw RehearsalError("“\(word)” is no parameter: write KEY=VALUE, with a comma between two") }
            guard let parameter = kind.parameters.first(where: { $0.key == pair[0] }) else { throw kind.hasNo(pair[0]) }
            guard numbers[pair[0]] == nil, pair[0] != "disk" || disk == nil else { throw RehearsalError("“\(pair[0])” is given twice") }
            guard let bounds = parameter.bounds else {
                guard pair[1].hasPrefix("/") else { throw RehearsalError("“disk” must be an absolute path, not “\(pair[1])”") }
                disk = pair[1]
                continue
            }
            guard let value = Self.value(of: pair[1]), bounds.contains(value) else {
                throw RehearsalError(
                    "“\(parameter.key)” of “\(name)” must be a number from \(bounds.lowerBound) to \(bounds.upperBound), not “\(pair[1])”")
            }
            numbers[pair[0]] = value
        }
        for parameter in kind.parameters where parameter.bounds != nil {
            numbers[parameter.key] = numbers[parameter.key] ?? parameter.standard
        }
        return Scenario(kind: kind, numbers: numbers, disk: disk)
    }

    private static func value(of text: String) -> UInt64? {
        switch text.utf8.last {
        case UInt8(ascii: "K"): decimal(text.utf8.dropLast(), as: UInt64.self).map { $0 *| 1024 }
        case UInt8(ascii: "M"): decimal(text.utf8.dropLast(), as: UInt64.self).map { $0 *| 1_048_576 }
        default: decimal(text.utf8, as: UInt64.self)
        }
    }
}

extension Scenario.Kind {
    package struct Parameter: Equatable, Sendable {
        package let key: String
        /// The value if none is given.
        package let standard: UInt64
        /// nil: the value is a path, and there is no default.
        package let bounds: ClosedRange<UInt64>?
        package let meaning: String
    }

    private static func at(_ standard: UInt64, _ meaning: String) -> Parameter {
        Parameter(key: "at", standard: standard, bounds: 0...0x100_0000_0000, meaning: meaning)
    }

    private static func times(_ standard: UInt64, _ meaning: String) -> Parameter {
        Parameter(key: "times", standard: standard, bounds: 0...1_000_000, meaning: meaning)
    }

    private static func seconds(_ standard: UInt64, _ meaning: String) -> Parameter {
        Parameter(key: "seconds", standard: standard, bounds: 0...86_400, meaning: meaning)
    }

    package var parameters: [Parameter] {
        switch self {
        case .none, .missing, .redirectLoop: []
        case .busy:
            [
                Self.times(2, "requests of each file that are refused; 0: all"),
                Parameter(key: "status", standard: 503, bounds: 400...599, meaning: "the status"),
                Parameter(key: "retry-after", standard: 0, bounds: 0...86_400, meaning: "seconds in the field Retry-After"),
            ]
        case .unreachable: [Self.seconds(3, "how long, from the first failed request on; 0: always")]
        case .stall:
            [Self.at(256 << 10, "bytes of an answer that come first"), Self.times(1, "answers of each file that stall; 0: all")]
        case .slow: [Parameter(key: "rate", standard: 1 << 20, bounds: 1...0x100_0000_0000, meaning: "bytes per second of an answer")]
        case .truncated:
            [Self.at(256 << 10, "bytes of an answer that come first"), Self.times(1, "answers of each file that break off; 0: all")]
        case .changed: [Self.at(256 << 10, "bytes of the old version that come first")]
        case .damaged: [Self.times(0, "answers of each file that are damaged; 0: all")]
        case .expired: [Self.at(256 << 10, "bytes that come before the link expires")]
        case .portal:
            [
                Self.times(0, "requests of each file that the portal takes; 0: all"),
                Parameter(key: "redirect", standard: 1, bounds: 0...1, meaning: "1: 302 leads to the page; 0: the page comes at once"),
            ]
        case .fullDisk:
            [
                Parameter(key: "free", standard: 1 << 20, bounds: 0...16_777_216, meaning: "bytes that the disk has left"),
                Self.seconds(0, "when there is room again, from the first wait for it on; 0: never"),
                Parameter(key: "disk", standard: 0, bounds: nil, meaning: "the folder of a small disk that exists, to fill instead"),
            ]
        case .crash:
            [
                Self.at(2 << 20, "bytes of an answer that the service has when it is killed"),
                Self.times(1, "how often the service is killed; 0: at each answer that is long enough"),
            ]
        }
    }

    /// One sentence for a list.
    package var sentence: String {
        switch self {
        case .none: "Nothing goes wrong; shows that the test itself works."
        case .busy: "The server answers 503 with Retry-After: 0, and sends the file later."
        case .missing: "The server answers 404."
        case .unreachable: "Nothing listens at the server's port for a while."
        case .stall: "The server sends a part of the file, and then nothing more."
        case .slow: "The server sends few bytes a second."
        case .truncated: "The connection ends in the middle of the file."
        case .changed: "The file on the server changes while it is downloaded."
        case .damaged: "The bytes that arrive are not those whose digest the server states."
        case .expired: "The link expires in the middle of the file: 403 for every URL without “?renewed”."
        case .portal: "A captive portal answers with its login page in place of the file."
        case .redirectLoop: "Redirects lead in circles."
        case .fullDisk: "The disk of the download folder is full."
        case .crash: "The service is killed (kill -9) in the middle of a file, and the bus starts it again."
        }
    }

    fileprivate func hasNo(_ key: String) -> RehearsalError {
        let keys = parameters.map(\.key)
        let others = keys.isEmpty ? "it has none" : "it has \(keys.joined(separator: ", "))"
        return RehearsalError("“\(rawValue)” has no parameter “\(key)”; \(others)")
    }
}
