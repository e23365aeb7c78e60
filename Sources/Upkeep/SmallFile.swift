internal import Glibc

/// Reads small files. Nothing in a file is trusted.
enum SmallFile {
    /// Most bytes that are read of a file.
    static let mostBytes = 1 << 20

    /// The bytes of a file; nil if it is unreadable or larger than `mostBytes`. Blocks.
    static func bytes(_ path: String) -> [UInt8]? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 16384)
        while bytes.count <= mostBytes {
            let count = read(descriptor, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return count == 0 ? bytes : nil }
            bytes.append(contentsOf: buffer.prefix(count))
        }
        return nil
    }

    static func text(_ path: String) -> String? { bytes(path).map { String(decoding: $0, as: UTF8.self) } }

    /// The target of a symbolic link; nil if `path` is none. Blocks.
    static func linkTarget(_ path: String) -> String? {
        var buffer = [UInt8](repeating: 0, count: Int(PATH_MAX))
        let count = buffer.withUnsafeMutableBytes { readlink(path, $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count) }
        return count > 0 ? String(decoding: buffer.prefix(count), as: UTF8.self) : nil
    }

    /// `path` without symbolic links; nil if nothing is there. Blocks.
    static func realPath(_ path: String) -> String? {
        guard let real = realpath(path, nil) else { return nil }
        defer { free(real) }
        return String(cString: real)
    }

    static func exists(_ path: String) -> Bool { access(path, F_OK) == 0 }
}

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

    private static let deletedMark = " (deleted)"

    /// Blocks.
    init(_ number: UInt32) {
        self.number = number
        let target = SmallFile.linkTarget("/proc/\(number)/exe")
        isReplaced = target?.hasSuffix(Self.deletedMark) ?? false
        program = target.map { $0.hasSuffix(Self.deletedMark) ? String($0.dropLast(Self.deletedMark.count)) : $0 }
        arguments = (SmallFile.bytes("/proc/\(number)/cmdline") ?? []).split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
        environment = SmallFile.bytes("/proc/\(number)/environ").map { bytes in
            var result: [String: String] = [:]
            for entry in bytes.split(separator: 0) {
                guard let equals = entry.firstIndex(of: UInt8(ascii: "=")) else { continue }
                result[String(decoding: entry[..<equals], as: UTF8.self)] = String(decoding: entry[equals...].dropFirst(), as: UTF8.self)
            }
            return result
        }
    }

    /// "/usr/bin/todokud (process 42)".
    var text: String { "\(program ?? "a program that cannot be seen") (process \(number))" }
}
