internal import Glibc

/// Questions about paths.
enum Paths {
    /// The target of a symbolic link; nil if `path` is none. Blocks.
    static func linkTarget(_ path: String) -> String? {
        var buffer = [UInt8](repeating: 0, count: Int(PATH_MAX))
        let count = buffer.withUnsafeMutableBytes { readlink(path, $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count) }
        return count > 0 ? String(decoding: buffer.prefix(count), as: UTF8.self) : nil
    }

    /// `path` without symbolic links; nil if nothing is there. Blocks.
    static func real(_ path: String) -> String? {
        guard let real = realpath(path, nil) else { return nil }
        defer { free(real) }
        return String(cString: real)
    }

    static func exists(_ path: String) -> Bool { access(path, F_OK) == 0 }
}
