internal import Desktop

/// A process in `/proc`.
struct ObservedProcess: Sendable {
    let number: UInt32
    /// The path of its program; nil: it cannot be seen.
    let program: String?
    /// Whether the program's file was deleted or replaced since the start.
    let isReplaced: Bool
    /// Its environment at its start; nil: it cannot be seen.
    let environment: [String: String]?
    /// Its command line; empty: it cannot be seen.
    let arguments: [String]

    /// Most bytes that are read of its environment, and of its command line.
    private static let mostBytes = 1 << 20
    private static let deletedMark = " (deleted)"

    /// Blocks.
    init(_ number: UInt32) {
        self.number = number
        let target = Paths.linkTarget("/proc/\(number)/exe")
        isReplaced = target?.hasSuffix(Self.deletedMark) ?? false
        program = target.map { $0.hasSuffix(Self.deletedMark) ? String($0.dropLast(Self.deletedMark.count)) : $0 }
        let line = SmallFile.bytes("/proc/\(number)/cmdline", atMost: Self.mostBytes) ?? []
        arguments = line.split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
        environment = SmallFile.bytes("/proc/\(number)/environ", atMost: Self.mostBytes).map { bytes in
            var result: [String: String] = [:]
            for entry in bytes.split(separator: 0) {
                guard let equals = entry.firstIndex(of: UInt8(ascii: "=")) else { continue }
                result[String(decoding: entry[..<equals], as: UTF8.self)] = String(decoding: entry[equals...].dropFirst(), as: UTF8.self)
            }
            return result
        }
    }

    /// "/usr/bin/todokud (process 42)".
    var text: String { phrase.english }

    /// The same for a finding.
    var phrase: Phrase {
        let program = program.map { Phrase(foreign: $0) } ?? Phrase("a program that cannot be seen")
        return Phrase("\(program) (process \(number))")
    }
}
